r"""Rows that a command touches, from the bitmaps of a job to vectors on files.

Spark's `bitmap_construct_agg` gives 4,096 bytes for 32,768 rows.  Two of them are what a bitset
container of a roaring bitmap holds, so that vectors are put together and not counted out.

>>> vector_of_bitmaps([(1, b"\x05"), (2, b"\x80")]).rows_between(0, 65_536).tolist()
[0, 2, 32775]
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector
from pyspark_delta.kernel.protocol.roaring import (
    ARRAY_MOST,
    BITSET_BYTES,
    Container,
    bitmap_of_containers,
)
from pyspark_delta.kernel.txn.vector_files import (
    WrittenVectors,
    changed_vector,
    with_vector,
    write_vectors,
)

__all__ = [
    "BUCKET_BYTES",
    "BUCKET_ROWS",
    "WrittenVectors",
    "changed_vector",
    "vector_of_bitmaps",
    "with_vector",
    "write_vectors",
]

BUCKET_BYTES = 4096
"""The most bytes that Spark's bitmap functions put into one bitmap."""

BUCKET_ROWS = 8 * BUCKET_BYTES
"""How many rows one bitmap covers."""

_BUCKETS_PER_CONTAINER = BITSET_BYTES // BUCKET_BYTES


def vector_of_bitmaps(buckets: Iterable[tuple[int, bytes]]) -> DeletionVector:
    """The rows in bitmaps as Spark numbers them for the value `row_index + 1`.

    Bucket b, from 1 on, covers the rows from (b - 1) * 32768; bit i of its bytes, the least
    significant of each byte first, is the i-th of them.  Buckets come in any order, and what two
    bitmaps of one bucket hold is put together.
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


def _container(key: int, bits: bytes) -> Container | None:
    count = int.from_bytes(bits, "little").bit_count()
    if not count:
        return None
    if count > ARRAY_MOST:
        return Container(key, count, bits)
    flags = pa.Array.from_buffers(pa.bool_(), 8 * len(bits), [None, pa.py_buffer(bits)])
    rows = pc.indices_nonzero(flags).cast(pa.uint16())
    return Container(key, count, rows.buffers()[1].to_pybytes()[: 2 * count])
