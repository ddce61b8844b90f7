"""Commands on rows of files that exist in the log alone: which rows go is given by position."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.machine import random_uuid
from pyspark_delta.kernel.protocol.actions import Action, AddFile
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector
from pyspark_delta.kernel.scan.locations import Locations, VectorReader
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.kernel.txn.vector_files import changed_vector, write_vectors


def deleted_rows(store: LogStore, file: AddFile) -> DeletionVector:
    """The rows that are gone from a file."""
    vector = file.deletion_vector
    return DeletionVector() if vector is None else VectorReader(Locations(store)).read(vector)


def live_file(log: DeltaLog, path: str) -> AddFile:
    """The add action of a path in the newest version."""
    (found,) = (file for file in add_files(log.update().files) if file.path == path)
    return found


def rows_out(
    txn: OptimisticTransaction, rows: Mapping[str, Iterable[int]], *, prefix: str = ""
) -> list[Action]:
    """The actions that take rows out of files by vectors; the transaction is told."""
    assert txn.snapshot is not None
    store = txn.log.store
    files = [file for file in add_files(txn.snapshot.files) if file.path in rows]
    touched = {file.path: DeletionVector(rows[file.path]) for file in files}
    vectors = [deleted_rows(store, file).union(touched[file.path]) for file in files]
    written = write_vectors(store, vectors, new_uuid=random_uuid, prefix=prefix)
    txn.touch_rows(touched)
    return [
        action
        for file, vector in zip(files, written.descriptors, strict=True)
        for action in changed_vector(file, vector, deletion_timestamp=5)
    ]


def vector_files(store: LogStore) -> list[str]:
    """The vector files there are."""
    return sorted(info.path for info in store.list_recursive("") if info.path.endswith(".bin"))
