"""Deletion vectors on their way into a table: packed into files, and put on data files.

What a vector is made of is in `protocol.deletion_vectors`; which rows go is the caller's to know.
PROTOCOL.md, "Deletion Vectors", "Per-file Statistics".

>>> from pyspark_delta.kernel.protocol.deletion_vectors import inline_descriptor
>>> file = AddFile(
...     path="f", size=1, modification_time=0, data_change=False, stats='{"numRecords":5}'
... )
>>> changed = with_vector(file, inline_descriptor(DeletionVector([3])))
>>> changed.stats, changed.data_change
('{"numRecords":5,"tightBounds":false}', True)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from pyspark_delta.errors.storage import StorageError
from pyspark_delta.errors.table import DeletionVectorError, InvalidActionsError
from pyspark_delta.kernel.log.frames import file_key
from pyspark_delta.kernel.protocol.action_parts import DeletionVectorDescriptor
from pyspark_delta.kernel.protocol.actions import Action, AddFile, RemoveFile, num_records_of
from pyspark_delta.kernel.protocol.deletion_vectors import (
    IN_TABLE,
    TARGET_FILE_BYTES,
    DeletionVector,
    locate,
    pack_deletion_vectors,
)
from pyspark_delta.kernel.protocol.stats import widen_stats
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.txn.prepared import PreparedCommit

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenVectors:
    """Vectors that are in files: a descriptor for each, in order, and the files' decoded paths."""

    descriptors: tuple[DeletionVectorDescriptor, ...] = ()
    paths: tuple[str, ...] = ()


def write_vectors(
    store: LogStore,
    vectors: Iterable[DeletionVector],
    *,
    new_uuid: Callable[[], str],
    prefix: str = "",
    target_size: int = TARGET_FILE_BYTES,
) -> WrittenVectors:
    """Write `vectors` into as few files as `target_size` bytes each allow.

    `prefix` is a directory below the table's root, with or without a slash behind it.  Files that
    no commit comes to name are the caller's to take back; those of a call that fails are gone.
    """
    files = pack_deletion_vectors(
        list(vectors),
        next_id=lambda: UUID(new_uuid()),
        prefix=prefix.rstrip("/"),
        target_bytes=target_size,
    )
    paths: list[str] = []
    try:
        for file in files:
            # A create that failed may have written all the same.
            paths.append(file.path)
            store.create(file.path, file.data)
    except BaseException:
        take_back(store, paths)
        raise
    descriptors = tuple(descriptor for file in files for descriptor in file.descriptors)
    return WrittenVectors(descriptors=descriptors, paths=tuple(paths))


def take_back(store: LogStore, paths: Sequence[str]) -> None:
    """Delete files that nothing refers to; what cannot be deleted is left to VACUUM."""
    if not paths:
        return
    try:
        store.delete_many(paths)
    except StorageError as error:
        logger.warning("%d deletion vector files are left behind: %s", len(paths), error)


def path_in_table(descriptor: DeletionVectorDescriptor | None) -> str | None:
    """The decoded path of the table's own file that holds a vector; None for any other place."""
    if descriptor is None or descriptor.storage_type != IN_TABLE:
        return None
    return locate(descriptor).path


def with_vector(
    add: AddFile, descriptor: DeletionVectorDescriptor, *, num_records: int | None = None
) -> AddFile:
    """The file as it is once the vector is on it, in place of the one that it has.

    The bounds stay, but are no longer tight; a column of nulls only stays known as such; row ids,
    tags, and all else that the log or the statistics say of the file stay as they are.
    `num_records`, its rows with those that are gone, is for a file whose statistics do not say.
    """
    old = add.deletion_vector
    stats = widen_stats(
        add.stats,
        num_records=num_records,
        deleted_records=0 if old is None else old.cardinality,
    )
    rows = num_records_of(stats)
    if rows is None:
        raise InvalidActionsError("DELTA_DELETION_VECTOR_MISSING_NUM_RECORDS")
    if descriptor.cardinality > rows:
        raise DeletionVectorError("DELTA_DELETION_VECTOR_INVALID_ROW_INDEX")
    return replace(add, deletion_vector=descriptor, stats=stats, data_change=True)


def changed_vector(
    add: AddFile,
    descriptor: DeletionVectorDescriptor,
    *,
    deletion_timestamp: int,
    num_records: int | None = None,
) -> tuple[RemoveFile, AddFile]:
    """The two actions that put a vector on a file: out with the old pair, in with the new one."""
    return add.remove(deletion_timestamp), with_vector(add, descriptor, num_records=num_records)


class RebasedVectors:
    """The vector files that a commit comes to need, and no longer needs, on its way into the log.

    A commit that follows others on the same files needs new vectors, written before it is tried
    again.  Files that the commit does not name in the end are taken back, those of its first try
    too; after an outcome that nobody knows they all stay, and are VACUUM's.
    """

    def __init__(self, store: LogStore, new_uuid: Callable[[], str], first: PreparedCommit) -> None:
        self._store = store
        self._new_uuid = new_uuid
        self._first = _files_of_touched(first)
        self._written: list[str] = []

    def written(self, prepared: PreparedCommit) -> PreparedCommit:
        """The commit with every vector in a file."""
        if not prepared.vectors:
            return prepared
        # Beside those of the first try, which are where the table wants them.
        beside = self._first[0].rpartition("/")[0] if self._first else ""
        paths = list(prepared.vectors)
        made = write_vectors(
            self._store, prepared.vectors.values(), new_uuid=self._new_uuid, prefix=beside
        )
        self._written += made.paths
        descriptors = dict(zip(paths, made.descriptors, strict=True))
        actions: list[Action] = []
        for action in prepared.actions:
            if isinstance(action, AddFile):
                found = descriptors.get(file_key(action.path, None, prepared.table))
                if found is not None:
                    action = replace(action, deletion_vector=found)
            actions.append(action)
        return replace(prepared, actions=tuple(actions), vectors={})

    def committed(self, actions: Sequence[Action]) -> None:
        """The commit stands with these actions: what they do not name goes."""
        if not actions:
            return
        ours = dict.fromkeys((*self._first, *self._written))
        if ours:
            named = {
                path_in_table(action.deletion_vector)
                for action in actions
                if isinstance(action, AddFile | RemoveFile)
            }
            take_back(self._store, [path for path in ours if path not in named])

    def refused(self) -> None:
        """No commit stands, or will."""
        take_back(self._store, self._written)


def _files_of_touched(prepared: PreparedCommit) -> list[str]:
    """The files of the vectors by which the commit takes rows out of files."""
    touched = prepared.reads.touched
    if not touched:
        return []
    adds = (add for add in prepared.each(AddFile) if add.deletion_vector is not None)
    found = (
        path_in_table(add.deletion_vector)
        for add in adds
        if file_key(add.path, None, prepared.table) in touched
    )
    return list(dict.fromkeys(path for path in found if path is not None))
