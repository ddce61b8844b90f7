r"""Parse Thrift's compact protocol, the encoding of Parquet footers, without decoding all values.

A struct is read field by field, each with its number, its type, and the place of its value, which
the caller decodes.  Malformed bytes raise IndexError or ValueError.

>>> varint(300).hex(), read_varint(varint(300), 0)
('ac02', (300, 2))
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

BINARY, LIST, STRUCT, I32 = 8, 9, 12, 5
"""Types of values that callers compare with."""

_SET = 10


def element(data: bytes, place: int) -> tuple[dict[int, tuple[int, bytes]], int]:
    """The fields of a struct by number, each with its type and bytes, and where the struct ends."""
    values, end = {}, place
    for number, kind, start, end in fields(data, place):
        values[number] = (kind, data[start:end])
    return values, end + 1


def fields(data: bytes, place: int) -> Iterator[tuple[int, int, int, int]]:
    """Each field of a struct: number, type, where its value starts and where it ends."""
    for number, kind, start in starts(data, place):
        yield number, kind, start, _value_end(data, start, kind)


def starts(data: bytes, place: int, number: int = 0) -> Iterator[tuple[int, int, int]]:
    """As `fields`, without the ends: a value is skipped when the next one is requested.

    `number` is that of the field before, where `place` is inside of the struct.
    """
    while kind := data[place] & 15:
        delta = data[place] >> 4
        place += 1
        if delta:
            number += delta
        else:
            number = integer(data, place)
            place = read_varint(data, place)[1]
        yield number, kind, place
        place = _value_end(data, place, kind)


def field(data: bytes, place: int, wanted: int, number: int = 0) -> int | None:
    """Where the value of a field starts; None where the struct does not have it."""
    places = (start for each, _, start in starts(data, place, number) if each == wanted)
    return next(places, None)


def struct_bytes(values: Mapping[int, tuple[int, bytes]]) -> bytes:
    """The struct of these fields: the reverse of `element`."""
    made, last = [], 0
    for number, (kind, value) in sorted(values.items()):
        delta = number - last
        made.append(
            bytes([delta << 4 | kind]) if delta < 16 else bytes([kind]) + varint(number << 1)
        )
        made.append(value)
        last = number
    return b"".join(made) + b"\0"


def _value_end(data: bytes, place: int, kind: int, *, is_element: bool = False) -> int:
    if kind in (1, 2):
        return place + is_element  # a flag is in its field's type, or a byte of its own
    if kind in (LIST, _SET):
        count, element_kind, place = list_header(data, place)
        for _ in range(count):
            place = _value_end(data, place, element_kind, is_element=True)
        return place
    if kind == STRUCT:
        while kind := data[place] & 15:
            number_end = place + 1 if data[place] >> 4 else read_varint(data, place + 1)[1]
            place = _value_end(data, number_end, kind)
        return place + 1
    if kind == BINARY:
        length, place = read_varint(data, place)
        return place + length
    if kind in (4, 5, 6):
        return read_varint(data, place)[1]
    if kind in (3, 7):
        return place + (1 if kind == 3 else 8)
    raise ValueError(f"Thrift's type {kind}")


def elements(data: bytes, place: int) -> Iterator[tuple[int, int]]:
    """Where each element of a list starts and ends."""
    count, kind, place = list_header(data, place)
    for _ in range(count):
        end = _value_end(data, place, kind, is_element=True)
        yield place, end
        place = end


def list_header(data: bytes, place: int) -> tuple[int, int, int]:
    """The number of elements, their type, and where the first one starts."""
    count, kind = data[place] >> 4, data[place] & 15
    if count == 15:
        count, place = read_varint(data, place + 1)
        return count, kind, place
    return count, kind, place + 1


def integer(data: bytes, place: int) -> int:
    """A signed number."""
    number, _ = read_varint(data, place)
    return (number >> 1) ^ -(number & 1)


def read_varint(data: bytes, place: int) -> tuple[int, int]:
    """An unsigned number, and where it ends."""
    value = shift = 0
    while data[place] & 128:
        value |= (data[place] & 127) << shift
        shift, place = shift + 7, place + 1
    return value | data[place] << shift, place + 1


def varint(value: int) -> bytes:
    """The encoding of an unsigned number, as `read_varint` reads it."""
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)


def binary(data: bytes, place: int) -> bytes:
    """The bytes of a binary value."""
    length, place = read_varint(data, place)
    return data[place : place + length]


def text(raw: bytes) -> str:
    """The text of a binary value."""
    return binary(raw, 0).decode("utf-8", "replace") if raw else ""
