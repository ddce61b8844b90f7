"""Rows and arrays as Spark lays them out in memory: bytes made here, read there without a copy.

An `UnsafeRow` is a bit for each field that is null, then a word of eight bytes for each field, then
whatever does not fit a word, which the word then tells the place and length of.  An
`UnsafeArrayData` is the same behind its length.  One buffer holds as many rows as a scan has, so
that they cross to the JVM in one call.

>>> len(row_bytes([1, None, b"text"]))
40
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from decimal import Context, Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.kernel.protocol.types import (
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    SHORT,
    DataType,
    DecimalType,
    StructType,
)

Word = int | bytes | None
"""A field: the 64 bits of its word, bytes that do not fit one, or null."""

_WORD = 8
# Values of these types fill only a part of their word.
_NARROW_BITS: dict[DataType, int] = {BOOLEAN: 8, BYTE: 8, SHORT: 16, INTEGER: 32, DATE: 32}
_LONG_DIGITS = 18
_LARGE_DECIMAL_BYTES = 16
_EXACT = Context(prec=80)
_MASK = 2**64 - 1
# What is behind a text whose size is so much less than whole words.
_PADDING = pa.array([bytes(missing) for missing in range(_WORD)], pa.binary())


def word_of(value: Any, data_type: DataType) -> Word:
    """A value as a field of a row: what Catalyst keeps of it.

    Dates are days and timestamps microseconds since 1970.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    if isinstance(value, Decimal):
        return _decimal(value, data_type)
    if data_type == FLOAT:
        return int.from_bytes(struct.pack("=f", value), sys.byteorder)
    if data_type == DOUBLE:
        return int.from_bytes(struct.pack("=d", value), sys.byteorder)
    return int(value) & ((1 << _NARROW_BITS.get(data_type, 64)) - 1)


def values_row(values: Sequence[Any], schema: StructType) -> bytes:
    """A row with the values of a struct."""
    return row_bytes([word_of(v, f.data_type) for v, f in zip(values, schema, strict=True)])


def row_bytes(fields: Sequence[Word]) -> bytes:
    """An `UnsafeRow`."""
    return _laid_out(fields, b"")


def array_bytes(elements: Sequence[Word]) -> bytes:
    """An `UnsafeArrayData` of elements of one type that takes a whole word, or does not fit one."""
    return _laid_out(elements, _number(len(elements)))


class TextRows:
    """An `UnsafeRow` for each of many texts, with numbers behind it: made by Arrow, all at once.

    A number that is null is 0, for a row that is not there would have no bytes at all.
    """

    def __init__(self, texts: pa.Array, *numbers: pa.Array) -> None:
        fields = 1 + len(numbers)
        content = texts.cast(pa.binary())
        sizes = pc.binary_length(content).cast(pa.int64())
        at = _null_bytes(fields) + _WORD * fields
        known = (pc.fill_null(each.cast(pa.int64()), 0) for each in numbers)
        words = [pc.add(sizes, at << 32), *known]
        rows = pc.binary_join_element_wise(
            pa.scalar(bytes(_null_bytes(fields))),
            *(word.view(pa.binary(_WORD)).cast(pa.binary()) for word in words),
            content,
            _PADDING.take(pc.bit_wise_and(pc.negate(sizes), _WORD - 1)),
            pa.scalar(b""),
        )
        _, offsets, data = rows.buffers()
        listed = pa.Array.from_buffers(
            pa.int32(), len(rows) + 1, [None, offsets], offset=rows.offset
        )
        self._offsets: list[int] = listed.to_pylist()
        self._data = memoryview(b"" if data is None else data)

    def array(self, start: int, end: int) -> bytes:
        """An `UnsafeArrayData` of the rows from `start` up to `end`."""
        count = end - start
        offsets = self._offsets[start : end + 1]
        move = _WORD + _null_bytes(count) + _WORD * count - offsets[0]
        words = [(a + move) << 32 | (b - a) for a, b in pairwise(offsets)]
        return b"".join(
            (
                _number(count),
                bytes(_null_bytes(count)),
                struct.pack(f"={count}Q", *words),
                self._data[offsets[0] : offsets[-1]],
            )
        )


def _laid_out(fields: Sequence[Word], head: bytes) -> bytes:
    nulls = 0
    words: list[int] = []
    parts: list[bytes] = []
    at = len(head) + _null_bytes(len(fields)) + _WORD * len(fields)
    for index, field in enumerate(fields):
        if field is None:
            nulls |= 1 << index
            words.append(0)
        elif isinstance(field, bytes):
            words.append(at << 32 | len(field))
            padding = -len(field) % _WORD
            parts += (field, bytes(padding))
            at += len(field) + padding
        else:
            words.append(field & _MASK)
    bits = nulls.to_bytes(_null_bytes(len(fields)), "little")
    if sys.byteorder == "big":
        bits = b"".join(bits[i : i + _WORD][::-1] for i in range(0, len(bits), _WORD))
    return b"".join((head, bits, struct.pack(f"={len(words)}Q", *words), *parts))


def _null_bytes(fields: int) -> int:
    return (fields + 63) // 64 * _WORD


def _number(number: int) -> bytes:
    return struct.pack("=q", number)


def _decimal(value: Decimal, data_type: DataType) -> Word:
    assert isinstance(data_type, DecimalType)
    unscaled = int(value.scaleb(data_type.scale, _EXACT))
    if data_type.precision <= _LONG_DIGITS:
        return unscaled
    size = max((unscaled.bit_length() + 8) // 8, 1)
    assert size <= _LARGE_DECIMAL_BYTES
    return unscaled.to_bytes(size, "big", signed=True)
