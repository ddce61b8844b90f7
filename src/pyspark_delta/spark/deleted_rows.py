"""Deletion vectors as plain bits, in the form in which the JVM tests them.

What tests them is in `jvm/table_plan.py`: a bit for each row of a file, which comes with the file.

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
from pyspark_delta.kernel.scan.vectors import VectorReader

# The bits are read in words of 64.
_WORD = 8
# How much is kept of what was read last: the next query tends to want it again.
_KEPT_BYTES = 64 * 1024 * 1024


def row_bits(vector: DeletionVector) -> bytes:
    """A bit for each row up to the last one that is gone, lowest bit first, in whole words."""
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
    """The bits of the rows from `start` on; the last one that is set is that of `start + last`."""
    rows = vector.rows_between(start, start + last + 1)
    found = pa.Array.from_buffers(pa.uint64(), len(rows), [None, pa.py_buffer(rows)])
    indices = pc.subtract(found.cast(pa.int64()), start)
    # Arrow marks which of an array's values are there by just these bits.
    scattered = pc.scatter(pa.repeat(pa.scalar(True), len(rows)), indices, max_index=last)
    marks = scattered.buffers()[0]
    size = -(-(last + 1) // (8 * _WORD)) * _WORD
    if marks is None:  # every row is gone
        bits = ((1 << (last + 1)) - 1).to_bytes(size, "little")
    else:
        bits = marks.to_pybytes()[: last // 8 + 1].ljust(size, b"\0")
    return bits


class RowBits:
    """The bits of a table's vectors, read once as long as they are among those wanted last."""

    def __init__(self, table_uri: str, reader: VectorReader) -> None:
        self._table_uri = table_uri
        self._reader = reader

    def of(self, descriptor: DeletionVectorDescriptor) -> bytes:
        """The bits of one vector."""
        key = (self._table_uri, descriptor)
        found = _KEPT.get(key)
        if found is None:
            found = row_bits(self._reader.read(descriptor))
            _KEPT.put(key, found)
        return found


_Key = tuple[str, DeletionVectorDescriptor]


class _Kept:
    """Bits up to a size, those used longest ago going first."""

    def __init__(self) -> None:
        self._bits: OrderedDict[_Key, bytes] = OrderedDict()
        self._size = 0
        self._lock = Lock()

    def get(self, key: _Key) -> bytes | None:
        with self._lock:
            found = self._bits.get(key)
            if found is not None:
                self._bits.move_to_end(key)
            return found

    def put(self, key: _Key, bits: bytes) -> None:
        with self._lock:
            self._size += len(bits) - len(self._bits.pop(key, b""))
            self._bits[key] = bits
            while self._size > _KEPT_BYTES:
                _, gone = self._bits.popitem(last=False)
                self._size -= len(gone)


_KEPT = _Kept()
