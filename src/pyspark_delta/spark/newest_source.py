"""Reads that follow their table: a query sees the version that is the newest when it is planned.

All scans of a table in one query read one version, and so do all queries of one command, which see
the version that its transaction is on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any

from pyspark_delta.errors.table import OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.ops.stream_definitions import loses_columns
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.schema_merge import is_read_compatible, schema_differences
from pyspark_delta.kernel.scan.log_answers import Answers, Asked
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.jvm.file_index import ScanSource, indexes_of_versions
from pyspark_delta.spark.jvm.filters import Filter
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.log_aggregates import answered
from pyspark_delta.spark.jvm.partition_directories import FileGroups
from pyspark_delta.spark.jvm.scan_rule import install_rule, running_command
from pyspark_delta.spark.snapshot_source import SnapshotSource

# The commands that are running, by the names that Spark knows them by.
_COMMANDS: dict[str, ReadVersions] = {}
_NUMBERS = count(1)


class ReadVersions:
    """The version of each table that is read, decided when the table is first read.

    `own` is that of a table that a command changes; `outer` has the versions of a statement that
    the command is a part of.
    """

    def __init__(self, own: Snapshot | None = None, outer: ReadVersions | None = None) -> None:
        self._by_root = {} if own is None else {own.store.root_uri: own}
        self._outer = outer
        if outer is not None and own is not None:
            # The parts that follow do not see what this part writes.
            outer._by_root.setdefault(own.store.root_uri, own)

    def of(self, log: DeltaLog) -> Snapshot:
        """The version to read of the table that `log` is of."""
        root = log.store.root_uri
        if root not in self._by_root:
            self._by_root[root] = log.update() if self._outer is None else self._outer.of(log)
        return self._by_root[root]


@contextmanager
def one_version_each(
    jvm: JvmSession, snapshot: Snapshot | None = None, *, apart: bool = False
) -> Iterator[None]:
    """Around a command: let its queries read one version of each table.

    `snapshot` is the one of the table that it changes.  A command inside of another reads what
    that one reads, unless it is `apart`.
    """
    name = str(next(_NUMBERS))
    try:
        with running_command(jvm, name) as outer:
            above = None if apart or outer is None else _COMMANDS.get(outer)
            _COMMANDS[name] = ReadVersions(snapshot, above)
            yield
    finally:
        _COMMANDS.pop(name, None)


class NewestSource(SnapshotSource):
    """The newest version of a table, with the columns that it had when the read was made."""

    follows_table = True

    def __init__(
        self,
        log: DeltaLog,
        snapshot: Snapshot,
        time_zone: str,
        *,
        allowed: Callable[[], Sequence[LogStore]] = tuple,
        skips_by_stats: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(snapshot, time_zone, allowed=allowed, skips_by_stats=skips_by_stats)
        self.log = log
        self._version: SnapshotSource | None = None

    @property
    def size_in_bytes(self) -> int:
        return self.log.snapshot.size_in_bytes

    @property
    def identity(self) -> tuple[str, ...]:
        return (self.snapshot.store.root_uri, self.snapshot.metadata.id, "newest version")

    def at(self, snapshot: Snapshot) -> SnapshotSource:
        """This read of one version; the same source for the same snapshot."""
        known = self._version
        if known is None or known.snapshot is not snapshot:
            _check_followed(self.snapshot.metadata, snapshot.metadata)
            known = SnapshotSource(
                snapshot,
                self._time_zone,
                allowed=self._allowed,
                skips_by_stats=self._skips_by_stats,
                tracks_rows=self.tracks_rows,
                reads=self.reads,
            )
            self._version = known
        known.checks_every_link = self.checks_every_link
        return known

    def groups(
        self, partition_filters: Sequence[Filter], data_filters: Sequence[Filter]
    ) -> tuple[FileGroups, list[int]]:
        # Only in a session without the rule, where nothing would drop deleted rows.
        version = self.at(self.log.update())
        if version.has_vectors:
            raise OperationNotAllowedError(
                "DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG",
                operation="A read of a table with deletion vectors",
            )
        return version.groups(partition_filters, data_filters)

    def answers(
        self, partition_filters: Sequence[Filter], asked: Sequence[Asked]
    ) -> Answers | None:
        return None

    def _may_hide_rows(self) -> bool:
        return False  # deleted rows are those of the version that a query reads


def follow_tables(jvm: JvmSession) -> None:
    """Let the session's queries choose the versions that they read; once is enough."""
    install_rule(jvm, _indexes, answered)


def _indexes(command: str, names: Sequence[str]) -> list[Any]:
    # A thread that a command has started may outlive it.
    versions = _COMMANDS.get(command) or ReadVersions()
    return indexes_of_versions(names, partial(_versions_of, versions))


def _versions_of(versions: ReadVersions, sources: Sequence[ScanSource]) -> list[ScanSource]:
    found: list[ScanSource] = []
    for source in sources:
        assert isinstance(source, NewestSource)
        found.append(source.at(versions.of(source.log)))
    return found


def _check_followed(planned: Metadata, now: Metadata) -> None:
    """Refuse a schema to which a plan made for another cannot be applied; new columns are fine."""
    if planned is now or (
        is_read_compatible(planned.schema, now.schema)
        and not loses_columns(planned, now)
        and planned.partition_columns == now.partition_columns
    ):
        return
    differences = schema_differences(planned.schema, now.schema)
    raise SchemaError(
        "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS",
        schemaDiff="; ".join(differences) or "its columns or partition columns are others",
    )
