"""Curves: keys that keep near what is near, the same for a sample as for all rows."""

from __future__ import annotations

from itertools import count, pairwise, product

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delta.kernel.ops.layout.curves import (
    KEY_BITS,
    NOISE_BITS,
    bits_per_column,
    can_be_hilbert,
    file_bounds,
    hilbert_keys,
    hilbert_table,
    range_bounds,
    range_numbers,
    z_keys,
)


def grid(num_columns: int, bits: int) -> tuple[list[tuple[int, ...]], list[pa.Array]]:
    points = list(product(range(1 << bits), repeat=num_columns))
    return points, [pa.array(column, pa.int64()) for column in zip(*points, strict=True)]


@pytest.mark.parametrize(("num_columns", "bits"), [(2, 1), (2, 4), (3, 3), (4, 2), (5, 2)])
def test_hilberts_curve_passes_every_point_and_never_jumps(num_columns: int, bits: int) -> None:
    points, columns = grid(num_columns, bits)
    keys = hilbert_keys(columns, bits).to_pylist()
    assert sorted(keys) == list(range(len(points)))
    by_key = dict(zip(keys, points, strict=True))
    for here, there in pairwise(by_key[key] for key in range(len(points))):
        assert sum(abs(a - b) for a, b in zip(here, there, strict=True)) == 1


def test_z_order_interleaves_bits_the_first_column_being_the_highest() -> None:
    columns = [pa.array([0b10, 0b11, 0, 0b01]), pa.array([0b01, 0b11, 0, 0])]
    assert z_keys(columns, 2).to_pylist() == [0b1001, 0b1111, 0, 0b0010]
    points, grid_columns = grid(3, 3)
    assert sorted(z_keys(grid_columns, 3).to_pylist()) == list(range(len(points)))
    assert z_keys([pa.array([5, 0, 7])], 3).to_pylist() == [5, 0, 7]


def test_the_machine_of_hilberts_curve_stays_small() -> None:
    assert [len(hilbert_table(n).entries) >> n for n in (2, 3, 4)] == [4, 12, 32]
    assert [can_be_hilbert(n) for n in (1, 2, 6, 7)] == [False, True, True, False]


def test_keys_have_room_for_every_column() -> None:
    assert bits_per_column(4, 1000) == 10
    assert bits_per_column(1, 2) == 1
    for num_columns in range(1, KEY_BITS - NOISE_BITS + 1):
        assert 1 <= bits_per_column(num_columns, 1000) * num_columns <= KEY_BITS - NOISE_BITS


@given(st.lists(st.none() | st.integers(-50, 50), max_size=200), st.integers(1, 20))
def test_ranges_are_in_order_and_nulls_are_in_the_first(
    drawn: list[int | None], num_ranges: int
) -> None:
    values = pa.array(drawn, pa.int64())
    bounds = range_bounds(values, num_ranges)
    ends = bounds.to_pylist()
    assert ends == sorted(set(ends))
    assert len(ends) < max(num_ranges, 1)
    numbers = range_numbers(values, bounds).to_pylist()
    found = sorted((v, n) for v, n in zip(drawn, numbers, strict=True) if v is not None)
    assert [n for _, n in found] == sorted(n for _, n in found)
    assert all(n == 0 for v, n in zip(drawn, numbers, strict=True) if v is None)
    assert all(0 <= n <= len(ends) for n in numbers)


def test_nan_is_above_all_numbers_and_no_bound() -> None:
    values = pa.array([1.0, float("nan"), 2.0, 3.0, None])
    bounds = range_bounds(values, 3)
    assert bounds.to_pylist() == [1.0, 2.0]
    assert range_numbers(values, bounds).to_pylist() == [0, 2, 1, 2, 0]
    assert range_bounds(pa.array([], pa.string()), 4).to_pylist() == []


def test_files_get_as_many_rows_each() -> None:
    keys = pa.array(range(1000), pa.int64())
    ends = file_bounds(keys, 10, allow_noise=True, noise=count())
    assert not ends.has_noise
    assert ends.bounds.to_pylist() == list(range(99, 999, 100))


def test_noise_parts_rows_that_have_the_same_key() -> None:
    keys = pa.array([7] * 900 + [8] * 100, pa.int64())
    plain = file_bounds(keys, 10, allow_noise=False, noise=())
    assert (plain.bounds.to_pylist(), plain.has_noise) == ([7], False)
    noise = (number % (1 << NOISE_BITS) for number in count())
    ends = file_bounds(keys, 10, allow_noise=True, noise=noise)
    assert ends.has_noise
    assert len(ends.bounds) == 9
    assert {end >> NOISE_BITS for end in ends.bounds.to_pylist()} == {7}
