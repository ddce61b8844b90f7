"""Bitmaps as bytes: both layouts, and what damage does to them."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from pyspark_delta.kernel.protocol.roaring import (
    NATIVE_MAGIC,
    PORTABLE_MAGIC,
    format_bitmap,
    parse_bitmap,
)

EMPTY = BitMap().serialize()

ROWS = st.one_of(
    st.lists(st.integers(0, 2**40), max_size=40),
    st.builds(range, st.integers(0, 1000), st.integers(1000, 200_000), st.integers(1, 40)),
).map(BitMap64)


def portable(*buckets: tuple[int, bytes], count: int | None = None) -> bytes:
    said = len(buckets) if count is None else count
    body = b"".join(struct.pack("<i", key) + bitmap for key, bitmap in buckets)
    return struct.pack("<iq", PORTABLE_MAGIC, said) + body


def native(*bitmaps: bytes, count: int | None = None) -> bytes:
    said = len(bitmaps) if count is None else count
    body = b"".join(struct.pack("<i", len(bitmap)) + bitmap for bitmap in bitmaps)
    return struct.pack("<ii", NATIVE_MAGIC, said) + body


def samples() -> list[BitMap64]:
    """One of each kind of container, with and without a second bucket."""
    sparse = BitMap64([3, 4, 7, 11, 18, 29])
    dense = BitMap64(range(0, 30_000, 2))
    runs = BitMap64(range(100, 60_000))
    many = BitMap64(range(0, 2_000_000, 30_000))
    return [sparse, dense, runs, many, sparse | BitMap64([2**33 + 7]), dense | runs | many]


@given(ROWS)
def test_what_is_written_is_read_again(rows: BitMap64) -> None:
    assert parse_bitmap(format_bitmap(rows)) == rows


@given(st.lists(st.integers(0, 2**34), max_size=60))
def test_the_native_layout_holds_the_same_rows(rows: list[int]) -> None:
    buckets = 1 + max((row >> 32 for row in rows), default=0)
    bitmaps = [
        BitMap(row & 0xFFFFFFFF for row in rows if row >> 32 == key).serialize()
        for key in range(buckets)
    ]
    assert parse_bitmap(native(*bitmaps)) == BitMap64(rows)


def test_empty_buckets_are_legal_and_hold_nothing() -> None:
    three = BitMap([3]).serialize()
    assert parse_bitmap(portable((0, EMPTY), (1, three), (2, EMPTY))) == BitMap64([2**32 + 3])
    assert parse_bitmap(portable()) == BitMap64()
    assert parse_bitmap(portable((0, EMPTY))) == BitMap64()
    assert parse_bitmap(native()) == BitMap64()


THREE = BitMap([3]).serialize()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        struct.pack("<i", PORTABLE_MAGIC),
        struct.pack("<i", 42) + portable()[4:],
        portable(count=2**31),
        portable(count=2**62),
        portable(count=-1),
        portable((0, THREE), count=2),
        portable((0, THREE), count=0),
        portable((1, THREE), (0, THREE)),
        portable((1, THREE), (1, THREE)),
        portable((-1, THREE)),
        portable((0, THREE)) + b"\0",
        native(count=2**31 - 1),
        native(count=-1),
        native(THREE)[:-1],
        native(THREE) + b"\0",
        struct.pack("<iii", NATIVE_MAGIC, 1, 7) + THREE,
        struct.pack("<iii", NATIVE_MAGIC, 1, -1) + THREE,
        portable((0, struct.pack("<II", 12346, 2**16 + 1))),
        portable((0, struct.pack("<II", 12346, 2**32 - 1) + bytes(64))),
        portable((0, struct.pack("<I", 99) + bytes(64))),
        # Arrays out of order, runs that overlap, an offset that points elsewhere.
        portable((0, struct.pack("<IIHHIHH", 12346, 1, 0, 1, 16, 9, 3))),
        portable((0, struct.pack("<IBHHHHHHH", 12347, 1, 0, 0xFF, 2, 5, 10, 7, 3))),
        portable((0, struct.pack("<IIHHIH", 12346, 1, 0, 0, 17, 9))),
        portable((0, struct.pack("<IIHHHHIIHH", 12346, 2, 5, 0, 5, 0, 24, 26, 1, 2))),
    ],
)
def test_bytes_that_are_no_bitmap_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_bitmap(data)


@pytest.mark.parametrize("number", range(len(samples())))
def test_every_truncation_is_refused(number: int) -> None:
    whole = format_bitmap(samples()[number])
    for length in {*range(min(len(whole), 200)), *range(0, len(whole), 97), len(whole) - 1}:
        with pytest.raises(ValueError, match=r"\w"):
            parse_bitmap(whole[:length])


def test_flipped_bytes_never_do_more_than_change_rows() -> None:
    chance = random.Random(20)
    for _ in range(2_000):
        data = bytearray(format_bitmap(chance.choice(samples())))
        for _ in range(chance.randrange(1, 4)):
            end = min(len(data), 48) if chance.random() < 0.7 else len(data)
            data[chance.randrange(end)] = chance.randrange(256)
        try:
            rows = parse_bitmap(bytes(data))
        except ValueError:
            continue
        # Whatever is left is a sound bitmap, of no more containers than the bytes have room for.
        assert parse_bitmap(format_bitmap(rows)) == rows
        assert rows.get_statistics()["n_containers"] <= len(data) // 4
