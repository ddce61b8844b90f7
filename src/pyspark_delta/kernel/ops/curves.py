"""Curves through a space of several columns: points that are near on one are near in every column.

A column's values become range numbers, the places of bounds that a sample gives; the numbers of
all columns become one key, by Z-order (their bits interleaved) or along Hilbert's curve, which
never jumps.  Keys are 64-bit, so with many columns a range number keeps fewer bits.  Nothing here
moves rows: keys of a sample are made in Arrow, to find where each file ends; `spark/curve_keys.py`
makes the same keys of all rows.

>>> z_spread(2, 3)  # the bits of 0 to 7, two apart
[0, 1, 4, 5, 16, 17, 20, 21]
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

KEY_BITS = 62
"""How many bits a key may have; what is left of a long are its sign and a bit to spare."""

NOISE_BITS = 8
"""How many bits below a key tell equal ones apart, where many rows have the same values."""

_MOST_TABLE_COLUMNS = 6


def bits_per_column(num_columns: int, num_ranges: int) -> int:
    """How many bits the range number of a column has; none of them is needed without columns."""
    wanted = max(1, (num_ranges - 1).bit_length())
    return max(1, min(wanted, (KEY_BITS - NOISE_BITS) // max(num_columns, 1)))


def range_bounds(values: pa.Array, num_ranges: int) -> pa.Array:
    """Values that part a column into at most so many ranges of about as many rows.

    A value that is equal to a bound is in the range before it.  `values` are a sample; nulls are
    left out, for they are in the first range wherever that ends.
    """
    known = values.drop_null()
    if pa.types.is_floating(known.type):
        known = known.filter(pc.invert(pc.is_nan(known)))
    if not len(known) or num_ranges < 2:
        return known.slice(0, 0)
    ordered = known.take(pc.sort_indices(known))
    places = _quantiles(len(ordered), num_ranges)
    return pc.unique(ordered.take(pa.array(places, pa.int64())))


def range_numbers(values: pa.Array, bounds: pa.Array) -> pa.Array:
    """The number of each value's range; 0 for null."""
    ends = bounds.to_pylist()
    return pa.array([_number(value, ends) for value in values.to_pylist()], pa.int64())


def z_spread(num_columns: int, bits: int) -> list[int]:
    """Range numbers with room between their bits for those of the other columns.

    A key is made of one such number for each column, shifted by the column's place from the last.
    """
    return [_spread(number, num_columns, bits) for number in range(1 << bits)]


def z_keys(numbers: Sequence[pa.Array], bits: int) -> pa.Array:
    """The Z-order key of each row, from the range numbers of its columns."""
    spread = pa.array(z_spread(len(numbers), bits), pa.int64())
    keys = pa.repeat(pa.scalar(0, pa.int64()), len(numbers[0]))
    for place, column in enumerate(reversed(numbers)):
        keys = pc.bit_wise_or(keys, pc.shift_left(spread.take(column), place))
    return keys


@dataclass(frozen=True, slots=True, kw_only=True)
class HilbertTable:
    """Hilbert's curve as a machine: it reads a bit of each column, and gives as many bits.

    `entries` are numbered by state and bits read, the state being the higher part; an entry is the
    next state and the bits given, put together the same way.
    """

    num_columns: int
    entries: tuple[int, ...]

    @property
    def mask(self) -> int:
        """The bits given, of an entry."""
        return (1 << self.num_columns) - 1


def can_be_hilbert(num_columns: int) -> bool:
    """Whether there is a table: one column has no curve, and for many it would be huge."""
    return 1 < num_columns <= _MOST_TABLE_COLUMNS


@cache
def hilbert_table(num_columns: int) -> HilbertTable:
    """The machine for so many columns.

    Each step looks at one of the 2^n parts that a cube has.  In which order the parts are passed
    depends on where the curve enters the cube and along which axis it leaves: that is the state.
    """
    states = {(0, 0): 0}
    entries: list[int] = []
    todo = [(0, 0)]
    for entry, axis in todo:
        for read in range(1 << num_columns):
            part = _gray_inverse(_rotated(read ^ entry, -(axis + 1), num_columns))
            following = (
                entry ^ _rotated(_entry_of(part), axis + 1, num_columns),
                (axis + _axis_of(part, num_columns) + 1) % num_columns,
            )
            if following not in states:
                states[following] = len(states)
                todo.append(following)
            entries.append(states[following] << num_columns | part)
    return HilbertTable(num_columns=num_columns, entries=tuple(entries))


def hilbert_keys(numbers: Sequence[pa.Array], bits: int) -> pa.Array:
    """How far along Hilbert's curve each row is, from the range numbers of its columns."""
    count = len(numbers)
    table = hilbert_table(count)
    entries = pa.array(table.entries, pa.int64())
    state = keys = pa.repeat(pa.scalar(0, pa.int64()), len(numbers[0]))
    for bit in reversed(range(bits)):
        at = pc.shift_left(state, count)
        for place, column in enumerate(reversed(numbers)):
            one = pc.bit_wise_and(pc.shift_right(column, bit), 1)
            at = pc.bit_wise_or(at, pc.shift_left(one, place))
        found = entries.take(at)
        keys = pc.bit_wise_or(pc.shift_left(keys, count), pc.bit_wise_and(found, table.mask))
        state = pc.shift_right(found, count)
    return keys


@dataclass(frozen=True, slots=True, kw_only=True)
class FileBounds:
    """Where files end: keys that are no greater than the first bound go into the first file.

    `has_noise` says that bounds are of keys with noise below them, because so many rows share a
    key that files would come out uneven without.
    """

    bounds: pa.Array
    has_noise: bool


def file_bounds(
    keys: pa.Array, num_files: int, *, allow_noise: bool, noise: Iterable[int]
) -> FileBounds:
    """Bounds that part the rows behind a sample into so many files of about the same size.

    `noise` gives numbers of `NOISE_BITS` bits.
    """
    ordered = keys.take(pc.sort_indices(keys))
    places = _quantiles(len(ordered), num_files)
    bounds = pc.unique(ordered.take(pa.array(places, pa.int64())))
    if not allow_noise or len(bounds) == len(places):
        return FileBounds(bounds=bounds, has_noise=False)
    added = pa.array([value for value, _ in zip(noise, range(len(keys)), strict=False)], pa.int64())
    noisy = pc.bit_wise_or(pc.shift_left(keys, NOISE_BITS), added)
    noisy = noisy.take(pc.sort_indices(noisy))
    return FileBounds(bounds=pc.unique(noisy.take(pa.array(places, pa.int64()))), has_noise=True)


def _number(value: Any, ends: Sequence[Any]) -> int:
    if value is None:
        return 0
    # NaN is above all numbers, and equal to none, itself included.
    return bisect_left(ends, value) if value == value else len(ends)


def _quantiles(count: int, parts: int) -> list[int]:
    """The places of the last values of all parts but the last, each place once."""
    ends = (count * part // parts - 1 for part in range(1, parts))
    return sorted({end for end in ends if end >= 0})


def _spread(number: int, apart: int, bits: int) -> int:
    return sum(((number >> bit) & 1) << (bit * apart) for bit in range(bits))


def _rotated(value: int, places: int, bits: int) -> int:
    """The bits of a value moved to the left, those at the end coming back on the right."""
    places %= bits
    mask = (1 << bits) - 1
    return ((value << places) | (value >> (bits - places))) & mask


def _gray_inverse(value: int) -> int:
    """Which number has this Gray code."""
    found = 0
    while value:
        found ^= value
        value >>= 1
    return found


def _entry_of(part: int) -> int:
    """The corner at which the curve comes into a part."""
    if part == 0:
        return 0
    number = 2 * ((part - 1) // 2)
    return number ^ (number >> 1)


def _axis_of(part: int, num_columns: int) -> int:
    """The axis along which the curve goes through a part."""
    if part == 0:
        return 0
    number = part if part % 2 else part - 1
    ones = 0
    while number & 1:
        number >>= 1
        ones += 1
    return ones % num_columns
