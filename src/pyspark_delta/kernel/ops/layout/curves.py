"""Sort keys along space-filling curves (Z-order, Hilbert), which keep near values in near rows.

A column's values become range numbers: indexes among bounds from a sample.  The range numbers of
all columns become one key, by Z-order (their bits interleaved) or along Hilbert's curve, which
never jumps.  Keys are 64-bit, so with many columns a range number keeps fewer bits.  This module
computes keys of a sample in Arrow, to find where each file ends;
`spark/maintenance/curve_keys.py` computes the same keys of all rows.

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
"""The most bits of a key; the other bits of a long are its sign and a spare one."""

NOISE_BITS = 8
"""The number of low bits that distinguish equal keys, where many rows have the same values."""

_MOST_TABLE_COLUMNS = 6


def bits_per_column(num_columns: int, num_ranges: int) -> int:
    """The number of bits of a column's range number; 0 without columns."""
    wanted = max(1, (num_ranges - 1).bit_length())
    return max(1, min(wanted, (KEY_BITS - NOISE_BITS) // max(num_columns, 1)))


def range_bounds(values: pa.Array, num_ranges: int) -> pa.Array:
    """Values that divide a column into at most so many ranges with about equally many rows.

    A value that is equal to a bound is in the range before it.  `values` are a sample; nulls are
    left out, because they are in the first range in any case.
    """
    known = values.drop_null()
    if pa.types.is_floating(known.type):
        known = known.filter(pc.invert(pc.is_nan(known)))
    if not len(known) or num_ranges < 2:
        return known.slice(0, 0)
    return pc.unique(_ends_of_parts(known, num_ranges))


def range_numbers(values: pa.Array, bounds: pa.Array) -> pa.Array:
    """The number of each value's range; 0 for null."""
    ends = bounds.to_pylist()
    return pa.array([_number(value, ends) for value in values.to_pylist()], pa.int64())


def z_spread(num_columns: int, bits: int) -> list[int]:
    """Range numbers with gaps between their bits for those of the other columns.

    A key combines one such number for each column, shifted by the column's distance to the last.
    """
    return [
        sum(((number >> bit) & 1) << (bit * num_columns) for bit in range(bits))
        for number in range(1 << bits)
    ]


def z_keys(numbers: Sequence[pa.Array], bits: int) -> pa.Array:
    """The Z-order key of each row, from the range numbers of its columns."""
    spread = pa.array(z_spread(len(numbers), bits), pa.int64())
    keys = pa.repeat(pa.scalar(0, pa.int64()), len(numbers[0]))
    for place, column in enumerate(reversed(numbers)):
        keys = pc.bit_wise_or(keys, pc.shift_left(spread.take(column), place))
    return keys


@dataclass(frozen=True, slots=True, kw_only=True)
class HilbertTable:
    """Hilbert's curve as a state machine: it reads a bit of each column, and emits as many bits.

    `entries` are indexed by state and input bits, the state being the higher part; an entry is the
    next state and the output bits, packed in the same way.
    """

    num_columns: int
    entries: tuple[int, ...]

    @property
    def mask(self) -> int:
        return (1 << self.num_columns) - 1


def can_be_hilbert(num_columns: int) -> bool:
    """Whether there is a table: one column needs no curve, and for many it would be huge."""
    return 1 < num_columns <= _MOST_TABLE_COLUMNS


@cache
def hilbert_table(num_columns: int) -> HilbertTable:
    """The state machine for so many columns.

    Each step selects one of the 2^n parts of a cube.  The order of the parts depends on the corner
    where the curve enters the cube and the axis along which it leaves: these are the state.
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
    """The position of each row along Hilbert's curve, from the range numbers of its columns."""
    count = len(numbers)
    table = hilbert_table(count)
    entries = pa.array(table.entries, pa.int64())
    state = keys = pa.repeat(pa.scalar(0, pa.int64()), len(numbers[0]))
    for bit in reversed(range(bits)):
        at = pc.shift_left(state, count)
        for place, column in enumerate(reversed(numbers)):
            one = pc.bit_wise_and(pc.shift_right(column, bit), 1)
            at = pc.bit_wise_or(at, pc.shift_left(one, place))
        entry = entries.take(at)
        keys = pc.bit_wise_or(pc.shift_left(keys, count), pc.bit_wise_and(entry, table.mask))
        state = pc.shift_right(entry, count)
    return keys


@dataclass(frozen=True, slots=True, kw_only=True)
class FileBounds:
    """The bounds between files: keys no greater than the first bound go into the first file.

    With `has_noise` the bounds are of keys with random low bits, because so many rows share a key
    that files would be uneven without.
    """

    bounds: pa.Array
    has_noise: bool


def file_bounds(
    keys: pa.Array, num_files: int, *, allow_noise: bool, noise: Iterable[int]
) -> FileBounds:
    """Bounds that divide the rows of a sampled table into so many files of about the same size.

    `noise` generates numbers of `NOISE_BITS` bits.
    """
    ends = _ends_of_parts(keys, num_files)
    bounds = pc.unique(ends)
    if not allow_noise or len(bounds) == len(ends):
        return FileBounds(bounds=bounds, has_noise=False)
    added = pa.array([value for value, _ in zip(noise, range(len(keys)), strict=False)], pa.int64())
    noisy = pc.bit_wise_or(pc.shift_left(keys, NOISE_BITS), added)
    return FileBounds(bounds=pc.unique(_ends_of_parts(noisy, num_files)), has_noise=True)


def _number(value: Any, ends: Sequence[Any]) -> int:
    if value is None:
        return 0
    # NaN is above all numbers, and equal to none, itself included.
    return bisect_left(ends, value) if value == value else len(ends)


def _ends_of_parts(values: pa.Array, parts: int) -> pa.Array:
    """The last value of each of so many equal parts of the sorted values, but of the last part."""
    ends = {len(values) * part // parts - 1 for part in range(1, parts)}
    places = pa.array(sorted(end for end in ends if end >= 0), pa.int64())
    return values.take(pc.sort_indices(values)).take(places)


def _rotated(value: int, places: int, bits: int) -> int:
    places %= bits
    mask = (1 << bits) - 1
    return ((value << places) | (value >> (bits - places))) & mask


def _gray_inverse(value: int) -> int:
    number = 0
    while value:
        number ^= value
        value >>= 1
    return number


def _entry_of(part: int) -> int:
    """The corner at which the curve enters a part."""
    if part == 0:
        return 0
    number = 2 * ((part - 1) // 2)
    return number ^ (number >> 1)


def _axis_of(part: int, num_columns: int) -> int:
    """The axis along which the curve crosses a part."""
    if part == 0:
        return 0
    number = part if part % 2 else part - 1
    ones = 0
    while number & 1:
        number >>= 1
        ones += 1
    return ones % num_columns
