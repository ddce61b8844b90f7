"""Tables to be vacuumed: files and commits bear the time of a clock that tests move."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from uuid import uuid4

from pyspark_delta.kernel.ops.vacuum.run import VacuumOptions, VacuumResult, VacuumRules, run_vacuum
from pyspark_delta.kernel.protocol.actions import Action, AddCDCFile, AddFile, Protocol
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.storage.uris import encode_path
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.vector_files import changed_vector, write_vectors
from tests.support.clock import FrozenClock
from tests.support.hooks import InlineRunner
from tests.support.log_builder import SCHEMA, metadata

ROWS = 100
ANY_HOURS = VacuumRules(checks_retention=False, ignores_hours=False)
_FEATURES = ("deletionVectors", "changeDataFeed", "vacuumProtocolCheck")
_PROTOCOL = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors", "vacuumProtocolCheck"),
    writer_features=_FEATURES,
)


class ClockedStore(LocalStore):
    """Local files that bear the time of a clock."""

    def __init__(self, root: str | os.PathLike[str], clock: FrozenClock) -> None:
        super().__init__(root, fsync=False)
        self._clock = clock

    def create(self, path: str, data: bytes) -> None:
        super().create(path, data)
        self.touch(path)

    def overwrite(self, path: str, data: bytes) -> None:
        super().overwrite(path, data)
        self.touch(path)

    def touch(self, path: str) -> None:
        ns = self._clock() * 1_000_000
        os.utime(Path(self.root_path, path), ns=(ns, ns))


class VacuumTable:
    """A table whose files are a few bytes: VACUUM never looks into one."""

    def __init__(
        self,
        store: LogStore,
        clock: FrozenClock,
        *,
        partition_columns: Iterable[str] = (),
        configuration: Mapping[str, str] | None = None,
        protocol: Protocol = _PROTOCOL,
    ) -> None:
        self.store, self.clock = store, clock
        self.log = DeltaLog(store, now_ms=clock, hooks=InlineRunner(()))
        txn = self.log.start_transaction()
        on = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}
        txn.update_protocol(protocol)
        txn.update_metadata(metadata(SCHEMA, partition_columns, on | dict(configuration or {})))
        txn.commit([], "CREATE TABLE")

    @classmethod
    def at(cls, path: Path, clock: FrozenClock, **options: object) -> VacuumTable:
        return cls(ClockedStore(path, clock), clock, **options)  # type: ignore[arg-type]

    def commit(self, *actions: Action, operation: str = "WRITE") -> int:
        self.clock.advance(1)
        return self.log.start_transaction().commit(actions, operation).version

    def file(self, path: str, *, spelled: str | None = None) -> AddFile:
        """Write a file, and give the action that would add it."""
        self.store.create(path, b"data of " + path.encode())
        column = next(iter(self.log.snapshot.metadata.partition_columns), None)
        value = path.partition("/")[0].partition("=")[2] if column else None
        return AddFile(
            path=encode_path(path) if spelled is None else spelled,
            partition_values={} if column is None else {column: value},
            size=self.store.size(path),
            modification_time=self.clock(),
            data_change=True,
            stats=f'{{"numRecords":{ROWS}}}',
        )

    def add(self, *paths: str) -> list[AddFile]:
        """Write files and commit them."""
        files = [self.file(path) for path in paths]
        self.commit(*files)
        return files

    def remove(self, *files: AddFile) -> None:
        self.clock.advance(1)
        now_ms = self.clock.advance(-1) + 1  # when the commit will be made
        self.commit(*(file.remove(now_ms) for file in files), operation="DELETE")

    def delete_rows(self, file: AddFile, rows: Iterable[int], prefix: str = "") -> AddFile:
        """Put a vector on a file; the file as it is from then on."""
        written = write_vectors(
            self.store, [DeletionVector(rows)], new_uuid=lambda: str(uuid4()), prefix=prefix
        )
        (descriptor,) = written.descriptors
        removed, added = changed_vector(file, descriptor, deletion_timestamp=self.clock() + 1)
        self.commit(removed, added, operation="DELETE")
        return added

    def change(self, path: str) -> None:
        """Commit a change file."""
        self.store.create(path, b"changes")
        self.commit(
            AddCDCFile(path=encode_path(path), size=7, partition_values={}), self.file(f"{path} +")
        )

    def vacuum(
        self,
        hours: float | None = None,
        *,
        rules: VacuumRules = ANY_HOURS,
        **options: object,
    ) -> VacuumResult:
        asked = VacuumOptions(retention_hours=hours, **options)  # type: ignore[arg-type]
        return run_vacuum(self.log, asked, rules=rules)

    @property
    def paths(self) -> set[str]:
        """The files below the root, but for the log's."""
        return {
            info.path
            for info in self.store.list_recursive("")
            if not info.path.startswith("_delta_log/")
        }
