"""Converts deletion vectors to plain bitmaps, in the form that the JVM tests.

`jvm/plans/table.py` has the test: a bit for each row of a file, which comes with the file.

>>> row_bits(DeletionVector([0, 9])).hex()
'0102000000000000'
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.kernel.protocol.action_parts import DeletionVectorDescriptor
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector
from pyspark_delta.kernel.scan.locations import VectorReader

# The bits are read in words of 64.
_WORD = 8


def row_bits(vector: DeletionVector) -> bytes:
    """A bit for each row up to the last deleted one, lowest bit first, in whole words."""
    last = vector.max_row
    return b"" if last is None else _bits(vector, 0, last)


def stretch_bits(vector: DeletionVector) -> tuple[int, bytes]:
    r"""The row of the first bit, and bits from the first row of the vector to its last.

    >>> stretch_bits(DeletionVector([1000, 1001]))
    (960, b'\x00\x00\x00\x00\x00\x03\x00\x00')
    """
    first, last = vector.min_row, vector.max_row
    if first is None or last is None:
        return 0, b""
    start = first // (8 * _WORD) * (8 * _WORD)
    return start, _bits(vector, start, last - start)


def _bits(vector: DeletionVector, start: int, last: int) -> bytes:
    """The bits of the rows from `start` on; the last bit that is set is for row `start + last`."""
    rows = vector.rows_between(start, start + last + 1)
    found = pa.Array.from_buffers(pa.uint64(), len(rows), [None, pa.py_buffer(rows)])
    indices = pc.subtract(found.cast(pa.int64()), start)
    # Arrow's validity bitmap has just this form.
    scattered = pc.scatter(pa.repeat(pa.scalar(True), len(rows)), indices, max_index=last)
    marks = scattered.buffers()[0]
    size = -(-(last + 1) // (8 * _WORD)) * _WORD
    if marks is None:  # every row is deleted
        bits = ((1 << (last + 1)) - 1).to_bytes(size, "little")
    else:
        bits = marks.to_pybytes()[: last // 8 + 1].ljust(size, b"\0")
    return bits


class RowBits:
    """The bits of vectors, with a cache of the most recently used up to a total size."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._kept: OrderedDict[tuple[str, DeletionVectorDescriptor], bytes] = OrderedDict()
        self._size = 0
        self._lock = Lock()

    def of(
        self, table_uri: str, reader: VectorReader, descriptor: DeletionVectorDescriptor
    ) -> bytes:
        """The bits of one vector of a table."""
        key = (table_uri, descriptor)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        bits = row_bits(reader.read(descriptor))
        with self._lock:
            self._size += len(bits) - len(self._kept.pop(key, b""))
            self._kept[key] = bits
            while self._size > self._most_bytes:
                _, gone = self._kept.popitem(last=False)
                self._size -= len(gone)
        return bits


ROW_BITS = RowBits(most_bytes=64 * 1024 * 1024)
"""The cache of this process: the next query often needs the same bits again."""
