"""Write deletion vectors: build them from bitmaps, pack them into files, set them on data files.

`protocol.deletion_vectors` has the format; the caller decides which rows to delete.
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

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors import DeletionVectorError, InvalidActionsError, StorageError
from pyspark_delta.kernel.log.frames.file_actions import file_key
from pyspark_delta.kernel.protocol.action_parts import DeletionVectorDescriptor
from pyspark_delta.kernel.protocol.actions import Action, AddFile, RemoveFile, num_records_of
from pyspark_delta.kernel.protocol.deletion_vectors import (
    IN_TABLE,
    TARGET_FILE_BYTES,
    DeletionVector,
    locate,
    pack_deletion_vectors,
)
from pyspark_delta.kernel.protocol.roaring import (
    ARRAY_MOST,
    BITSET_BYTES,
    Container,
    bitmap_of_containers,
)
from pyspark_delta.kernel.protocol.stats import widen_stats
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.txn.prepared import PreparedCommit

logger = logging.getLogger(__name__)
BUCKET_BYTES = 4096
"""The most bytes that Spark's bitmap functions put into one bitmap."""
_BUCKETS_PER_CONTAINER = BITSET_BYTES // BUCKET_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenVectors:
    """Written vectors: a descriptor for each, in order, and the files' decoded paths."""

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

    `prefix` is a directory below the table's root, with or without a final slash.  The caller
    deletes files that no commit names; a call that fails deletes its own.
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
            # A failed `create` may have written the file.
            paths.append(file.path)
            store.create(file.path, file.data)
    except BaseException:
        take_back(store, paths)
        raise
    descriptors = tuple(descriptor for file in files for descriptor in file.descriptors)
    return WrittenVectors(descriptors=descriptors, paths=tuple(paths))


def take_back(store: LogStore, paths: Sequence[str]) -> None:
    """Delete unreferenced files; those that cannot be deleted are left to VACUUM."""
    if not paths:
        return
    try:
        store.delete_many(paths)
    except StorageError as error:
        logger.warning("%d deletion vector files are left behind: %s", len(paths), error)


def path_in_table(descriptor: DeletionVectorDescriptor | None) -> str | None:
    """The decoded path of the table's own file with a vector; None for any other location."""
    if descriptor is None or descriptor.storage_type != IN_TABLE:
        return None
    return locate(descriptor).path


def with_vector(
    add: AddFile, descriptor: DeletionVectorDescriptor, *, num_records: int | None = None
) -> AddFile:
    """The file with the vector, in place of its present one.

    The bounds stay, but are no longer tight; a column of nulls only stays known as such; row ids,
    tags, and all else in the action and the statistics stay unchanged.  `num_records`, its rows
    with the deleted ones, is for a file whose statistics lack it.
    """
    old = add.deletion_vector
    stats = widen_stats(
        add.stats, num_records=num_records, deleted_records=0 if old is None else old.cardinality
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
    """The two actions that set a file's vector: a remove of the old pair, an add of the new."""
    return add.remove(deletion_timestamp), with_vector(add, descriptor, num_records=num_records)


class RebasedVectors:
    """The vector files that a commit writes, and no longer needs, while it is rebased.

    A commit that follows others on the same files needs new vectors, written before it is tried
    again.  Files that the final commit does not name are deleted, those of its first attempt too;
    after an unknown outcome they all stay, and VACUUM deletes unused ones.
    """

    def __init__(self, store: LogStore, new_uuid: Callable[[], str], first: PreparedCommit) -> None:
        self._store = store
        self._new_uuid = new_uuid
        self._first = _files_of_touched(first)
        self._written: list[str] = []

    def written(self, prepared: PreparedCommit) -> PreparedCommit:
        """The commit after writing each of its vectors to a file."""
        if not prepared.vectors:
            return prepared
        # In the directory of the first attempt's vectors, which the table's settings chose.
        beside = self._first[0].rpartition("/")[0] if self._first else ""
        paths = list(prepared.vectors)
        made = write_vectors(
            self._store, prepared.vectors.values(), new_uuid=self._new_uuid, prefix=beside
        )
        self._written += made.paths
        descriptors = dict(zip(paths, made.descriptors, strict=True))

        def stored(add: AddFile) -> AddFile:
            found = descriptors.get(file_key(add.path, None, prepared.table))
            return add if found is None else replace(add, deletion_vector=found)

        return replace(prepared.with_adds(map(stored, prepared.each(AddFile))), vectors={})

    def committed(self, actions: Sequence[Action]) -> None:
        """After a successful commit of these actions, delete the files that they do not name."""
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
        """After a failed commit, delete the files that rebasing wrote."""
        take_back(self._store, self._written)


def vector_of_bitmaps(buckets: Iterable[tuple[int, bytes]]) -> DeletionVector:
    r"""The rows in bitmaps as Spark numbers them for the value `row_index + 1`.

    Spark's `bitmap_construct_agg` gives 4,096 bytes for 32,768 rows.  Two of them make a bitset
    container of a roaring bitmap, so vectors are assembled without listing rows.

    >>> vector_of_bitmaps([(1, b"\x05"), (2, b"\x80")]).rows_between(0, 65_536).tolist()
    [0, 2, 32775]

    Bucket b, from 1 on, covers the rows from (b - 1) * 32768; bit i of its bytes, the least
    significant of each byte first, is the i-th of them.  Buckets come in any order, and bitmaps of
    one bucket are merged.
    """
    parts: dict[int, bytearray] = {}
    for bucket, bitmap in buckets:
        if bucket < 1 or len(bitmap) > BUCKET_BYTES:
            raise ValueError(f"bucket {bucket} with {len(bitmap)} bytes is none of row indexes")
        key, half = divmod(bucket - 1, _BUCKETS_PER_CONTAINER)
        bits = parts.setdefault(key, bytearray(BITSET_BYTES))
        start = half * BUCKET_BYTES
        end = start + len(bitmap)
        if any(bits[start:end]):
            both = int.from_bytes(bits[start:end], "little") | int.from_bytes(bitmap, "little")
            bitmap = both.to_bytes(len(bitmap), "little")
        bits[start:end] = bitmap
    containers = (_container(key, bytes(parts[key])) for key in sorted(parts))
    return DeletionVector(bitmap_of_containers(each for each in containers if each is not None))


def _files_of_touched(prepared: PreparedCommit) -> list[str]:
    """The files with the vectors by which the commit deletes rows."""
    touched = prepared.reads.touched
    if not touched:
        return []
    found: dict[str, None] = {}
    for add in prepared.each(AddFile):
        path = path_in_table(add.deletion_vector)
        if path is not None and file_key(add.path, None, prepared.table) in touched:
            found[path] = None
    return list(found)


def _container(key: int, bits: bytes) -> Container | None:
    count = int.from_bytes(bits, "little").bit_count()
    if not count:
        return None
    if count > ARRAY_MOST:
        return Container(key, count, bits)
    flags = pa.Array.from_buffers(pa.bool_(), 8 * len(bits), [None, pa.py_buffer(bits)])
    rows = pc.indices_nonzero(flags).cast(pa.uint16())
    return Container(key, count, rows.buffers()[1].to_pybytes()[: 2 * count])
