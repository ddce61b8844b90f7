"""Roaring bitmaps in the two layouts that deletion vectors are stored in.

Only bytes and bitmaps: frames, checksums and descriptors are in `deletion_vectors`.  A bitmap is
measured here before pyroaring parses it, so that counts in its headers are checked against the
actual bytes.  PROTOCOL.md, "Deletion Vector Format" and the RoaringFormatSpec.

>>> parse_bitmap(format_bitmap(BitMap64([3, 2**33])))
BitMap64([3, 8589934592])
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import accumulate, groupby, islice
from typing import NamedTuple

from pyroaring import BitMap64

PORTABLE_MAGIC = 1681511377
NATIVE_MAGIC = 1681511376  # older writers; read, never written
MAX_ROW = 2**63 - 1

ARRAY_MOST = 4096
"""A container with more rows than these is a bitset, one with fewer a sorted array."""

BITSET_BYTES = 8192
"""The length of a container that is a bitset."""

_PORTABLE = struct.pack("<i", PORTABLE_MAGIC)
_NATIVE = struct.pack("<i", NATIVE_MAGIC)
# The byte order of the example in PROTOCOL.md, "Deletion Vector Descriptor Schema".
_NATIVE_BIG_ENDIAN = struct.pack(">i", NATIVE_MAGIC)

_NO_RUNS = 12346
_RUNS = 12347
_OFFSETS_FROM = 4  # containers, in a bitmap with runs
_SMALLEST_BITMAP = 8


class Container(NamedTuple):
    """Up to 2**16 rows with the same upper bits.

    `data` is a bitset, its least significant bit first, when there are more than `ARRAY_MOST` of
    them, and a sorted array of 16-bit numbers when there are not.
    """

    key: int
    cardinality: int
    data: bytes


def bitmap_of_containers(containers: Iterable[Container]) -> BitMap64:
    """The bitmap of containers that come in the order of their keys, none of them empty.

    >>> bitmap_of_containers([Container(1, 2, struct.pack("<2H", 3, 5))])
    BitMap64([65539, 65541])
    """
    buckets = [
        struct.pack("<I", bucket) + _bitmap_32(list(members))
        for bucket, members in groupby(containers, lambda container: container.key >> 16)
    ]
    return BitMap64.deserialize(struct.pack("<Q", len(buckets)) + b"".join(buckets))


def parse_bitmap(data: bytes) -> BitMap64:
    """The rows in `data`, magic number included; ValueError when it holds anything else."""
    if len(data) < 4:
        raise ValueError(f"{len(data)} bytes are too few for a bitmap")
    if data.startswith(_PORTABLE):
        buckets = _buckets(data, "<q", is_native=False)
    elif data.startswith(_NATIVE):
        buckets = _buckets(data, "<i", is_native=True)
    elif data.startswith(_NATIVE_BIG_ENDIAN):
        buckets = _buckets(data, ">i", is_native=True)
    else:
        raise ValueError(f"there is no bitmap with the magic number {data[:4].hex()}")
    # Assembled again, without the empty buckets of some writers.
    parts = [struct.pack("<Q", len(buckets))]
    for key, start, end in buckets:
        parts += (struct.pack("<I", key), data[start:end])
    try:
        return BitMap64.deserialize(b"".join(parts))
    except (ValueError, IndexError) as error:
        raise ValueError(f"a bitmap is damaged: {error}") from None


def format_bitmap(bitmap: BitMap64) -> bytes:
    """`bitmap` in the portable layout, magic number included."""
    optimized = bitmap.copy()
    optimized.run_optimize()
    serialized: bytes = optimized.serialize()
    return _PORTABLE + serialized


def _buckets(data: bytes, count_form: str, *, is_native: bool) -> list[tuple[int, int, int]]:
    """Key, start and end of each bucket that is not empty."""
    # After their number, the portable layout has key and bitmap of each, the native one the length
    # of the bitmap and the bitmap: there the position is the key.
    (count,) = _unpack(count_form, data, 4)
    at = 4 + struct.calcsize(count_form)
    if not 0 <= count <= (len(data) - at) // (4 + _SMALLEST_BITMAP):
        raise ValueError(f"{len(data)} bytes cannot hold {count} bitmaps")
    buckets = []
    last = -1
    for position in range(count):
        (prefix,) = _unpack(f"{count_form[0]}i", data, at)
        if not is_native and prefix <= last:
            raise ValueError(f"the key {prefix} follows the key {last}")
        start, end = at + 4, _bitmap_end(data, at + 4)
        if is_native and end - start != prefix:
            raise ValueError(f"bitmap {position} is {end - start} bytes long, not {prefix}")
        if end - start > _SMALLEST_BITMAP:
            buckets.append((position if is_native else prefix, start, end))
        at, last = end, prefix
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes follow the last bitmap")
    return buckets


def _bitmap_end(data: bytes, start: int) -> int:
    """The end of the 32-bit bitmap that begins at `start`, by its own headers."""
    (cookie,) = _unpack("<I", data, start)
    if cookie == _NO_RUNS:
        (count,) = _unpack("<I", data, start + 4)
        at, flags, has_offsets = start + 8, b"", True
    elif cookie & 0xFFFF == _RUNS:
        count = (cookie >> 16) + 1
        at = start + 4 + (count + 7) // 8
        flags, has_offsets = data[start + 4 : at], count >= _OFFSETS_FROM
    else:
        raise ValueError(f"there is no bitmap with the cookie {cookie}")
    if count > 2**16:
        raise ValueError(f"a bitmap has {count} containers")
    header = _unpack(f"<{2 * count}H", data, at)
    at += 4 * count
    if any(left >= right for left, right in zip(header[::2], header[2::2], strict=False)):
        raise ValueError("the containers of a bitmap are out of order")
    offsets = _unpack(f"<{count}I", data, at) if has_offsets else ()
    at += 4 * len(offsets)
    for index, less_one in enumerate(header[1::2]):
        if has_offsets and offsets[index] != at - start:
            raise ValueError(f"container {index} is at {at - start}, not at {offsets[index]}")
        if flags and flags[index // 8] >> index % 8 & 1:
            (runs,) = _unpack("<H", data, at)
            at += 2 + 4 * runs
        elif less_one < ARRAY_MOST:
            at += 2 * (less_one + 1)
        else:
            at += BITSET_BYTES
        if at > len(data):
            raise ValueError(f"container {index} goes beyond the last byte")
    return at


def _bitmap_32(containers: list[Container]) -> bytes:
    count = len(containers)
    header = (part for each in containers for part in (each.key & 0xFFFF, each.cardinality - 1))
    first = 8 + 8 * count
    ends = accumulate((len(each.data) for each in containers), initial=first)
    offsets = islice(ends, count)
    head = struct.pack(f"<2I{2 * count}H{count}I", _NO_RUNS, count, *header, *offsets)
    return head + b"".join(each.data for each in containers)


def _unpack(form: str, data: bytes, at: int) -> tuple[int, ...]:
    if at + struct.calcsize(form) > len(data):
        raise ValueError("the bytes end too early")
    return struct.unpack_from(form, data, at)
