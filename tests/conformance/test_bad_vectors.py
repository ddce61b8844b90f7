"""Bad deletion vectors: a row comes back only when the vector is all that its descriptor says."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from pyspark_delta.kernel.protocol.actions import DeletionVectorDescriptor, Protocol
from pyspark_delta.kernel.protocol.deletion_vectors import (
    DeletionVector,
    encode_z85,
    inline_descriptor,
    pack_deletion_vectors,
)
from tests.support.bad_tables import ROWS, BadTable, Case, add_a, case_id, check, listening
from tests.support.guarded import GuardedReader

CHECKSUM = "DELTA_DELETION_VECTOR_CHECKSUM_MISMATCH"
SIZE = "DELTA_DELETION_VECTOR_SIZE_MISMATCH"
DESCRIPTOR = "DELTA_DELETION_VECTOR_INVALID_DESCRIPTOR"
BITMAP = "DELTA_DELETION_VECTOR_MALFORMED"
CARDINALITY = "DELTA_DELETION_VECTOR_CARDINALITY_MISMATCH"
ROW = "DELTA_DELETION_VECTOR_INVALID_ROW_INDEX"
URI = "DELTA_CANNOT_RECONSTRUCT_PATH_FROM_URI"
UNSAFE = "DELTA_UNSAFE_PATH"
GONE = "DELTA_FILE_NOT_FOUND"
MALFORMED = "DELTA_MALFORMED_LOG_ENTRY"

FEATURE = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors",),
    writer_features=("deletionVectors",),
)
ID = UUID("9c2f4a10-1111-4222-8333-abcdefabcdef")
FILE = pack_deletion_vectors([DeletionVector([1])], next_id=lambda: ID)[0]
GOOD = FILE.descriptors[0]
INLINE = inline_descriptor(DeletionVector([1]))
LEFT = [ROWS[0], ROWS[2]]
Bytes = Callable[[bytes], bytes]


def _build(
    table: BadTable,
    *,
    data: Bytes | None = lambda data: data,
    protocol: Protocol = FEATURE,
    base: DeletionVectorDescriptor = GOOD,
    **changes: Any,
) -> BadTable:
    """A table whose file has a vector: `data` changes the vector's file, `changes` its entry."""
    if data is not None:
        table.write(FILE.path, data(FILE.data))
    vector = replace(base, **changes)
    action = replace(add_a(stats='{"numRecords":3}'), deletion_vector=vector)
    return table.create(action, protocol=protocol)


def _framed(bitmap: bytes) -> Bytes:
    """A vector's file with right frame and checksum around any bytes."""
    frame = struct.pack(">i", len(bitmap)) + bitmap + struct.pack(">I", zlib.crc32(bitmap))
    return lambda data: b"\x01" + frame


def _case(name: str, want: Any, bitmap: bytes | None = None, **changes: Any) -> Case:
    if bitmap is not None:
        changes = {"data": _framed(bitmap), "size_in_bytes": len(bitmap), **changes}
    return Case(name=name, build=lambda table: _build(table, **changes), want=want)


def _inline(name: str, want: Any, text: str, size: int, **changes: Any) -> Case:
    changes = {"base": INLINE, "path_or_inline_dv": text, "size_in_bytes": size, **changes}
    return _case(name, want, **changes)


_MAGIC = struct.pack("<i", 1681511377)
_ONE_ARRAY = struct.pack("<IIHHI", 12346, 1, 0, 0, 16)  # one container with one value
_RUN = struct.pack("<HHBHHHHH", 12347, 0, 1, 0, 0xFFFF, 1, 0, 0xFFFF)

CASES = [
    _case("right", LEFT),
    _inline("right, inline", LEFT, INLINE.path_or_inline_dv, INLINE.size_in_bytes),
    _case("no feature in the protocol", "DELTA_DELETION_VECTOR_FEATURE_NOT_SUPPORTED",
          protocol=Protocol()),
    # The file.
    _case("bad checksum", CHECKSUM, data=lambda d: d[:-1] + bytes([d[-1] ^ 1])),
    _case("bad bytes", CHECKSUM, data=lambda d: d[:20] + bytes([d[20] ^ 1]) + d[21:]),
    _case("another size in the file", SIZE, data=lambda d: d[:1] + b"\0\0\0\x05" + d[5:]),
    _case("a size of 2 GB in the file", SIZE, data=lambda d: d[:1] + b"\x7f\xff\xff\xff" + d[5:]),
    _case("a file that is cut", SIZE, data=lambda d: d[:-6]),
    _case("an empty file", SIZE, data=lambda d: b""),
    _case("no file", GONE, data=None),
    # The descriptor.
    _case("a size one too large", SIZE, size_in_bytes=GOOD.size_in_bytes + 1),
    _case("a size one too small", SIZE, size_in_bytes=GOOD.size_in_bytes - 1),
    _case("a size of 2^31 - 1", SIZE, size_in_bytes=2**31 - 1),
    _case("a size of -1", SIZE, size_in_bytes=-1),
    _case("a size of 0", SIZE, size_in_bytes=0),
    _case("an offset beyond the file", SIZE, offset=2**31 - 1),
    _case("an offset of 0", SIZE, offset=0),
    _case("an offset of -1", DESCRIPTOR, offset=-1),
    _case("no offset", SIZE, offset=None),
    _case("an unknown storage type", DESCRIPTOR, storage_type="x"),
    _case("no storage type", DESCRIPTOR, storage_type=""),
    _case("a long storage type", DESCRIPTOR, storage_type="u" * 100_000),
    _case("a uuid that is short", DESCRIPTOR, path_or_inline_dv="abc"),
    _case("a uuid that is empty", DESCRIPTOR, path_or_inline_dv=""),
    _case("a uuid in other letters", DESCRIPTOR, path_or_inline_dv='"' * 20),
    _case("a uuid beyond 16 bytes", DESCRIPTOR, path_or_inline_dv="#" * 20),
    _case("a uuid in letters that are not ASCII", DESCRIPTOR, path_or_inline_dv="ä" * 20),
    _case("another uuid", GONE, path_or_inline_dv="0" * 20),
    _case("a cardinality one too large", CARDINALITY, cardinality=2),
    _case("a cardinality of 0", CARDINALITY, cardinality=0),
    _case("a cardinality of -1", CARDINALITY, cardinality=-1),
    _case("a cardinality of 2^63 - 1", CARDINALITY, cardinality=2**63 - 1),
    # Where it leads.
    _case("a prefix that climbs", UNSAFE, path_or_inline_dv="../../" + GOOD.path_or_inline_dv),
    _case("a prefix that climbs to the neighbour", UNSAFE,
          path_or_inline_dv="../_outside" + GOOD.path_or_inline_dv),
    _case("a prefix that is absolute", UNSAFE, path_or_inline_dv="/tmp" + GOOD.path_or_inline_dv),
    _case("a prefix with a backslash", UNSAFE,
          path_or_inline_dv="..\\x" + GOOD.path_or_inline_dv),
    _case("a prefix with a NUL", UNSAFE, path_or_inline_dv="a\0" + GOOD.path_or_inline_dv),
    _case("a prefix in the log", UNSAFE,
          path_or_inline_dv="_delta_log" + GOOD.path_or_inline_dv),
    _case("an absolute path without a scheme", URI, storage_type="p",
          path_or_inline_dv="/etc/passwd"),
    _case("a relative path as an absolute one", URI, storage_type="p",
          path_or_inline_dv="../_outside/o.parquet"),
    _case("an empty absolute path", URI, storage_type="p", path_or_inline_dv=""),
    _case("a URI elsewhere", UNSAFE, storage_type="p", path_or_inline_dv="file:///etc/passwd"),
    _case("a URI of another scheme", UNSAFE, storage_type="p",
          path_or_inline_dv="http://127.0.0.1:9/x.bin"),
    # Inline.
    _inline("an inline vector of nothing", frozenset({SIZE, BITMAP}), "", 0),
    _inline("an inline vector of nothing that claims a size", SIZE, "", 34),
    _inline("an inline vector of nothing that claims -1", SIZE, "", -1),
    _inline("an inline vector of four bytes", frozenset({SIZE, BITMAP}), encode_z85(_MAGIC), 4),
    _inline("an inline vector that claims less", frozenset({SIZE, BITMAP}),
            INLINE.path_or_inline_dv, 8),
    _inline("an inline vector that claims more", SIZE, INLINE.path_or_inline_dv, 2**31 - 1),
    _inline("an inline vector that is cut", DESCRIPTOR, INLINE.path_or_inline_dv[:-3], 34),
    _inline("an inline vector in other letters", DESCRIPTOR,
            "\u00e4" * len(INLINE.path_or_inline_dv), INLINE.size_in_bytes),
    # The bitmap, behind a right checksum.
    _case("a row beyond the file", ROW, DeletionVector([3]).serialize()),
    _case("a row at 2^40", ROW, DeletionVector([2**40]).serialize()),
    _case("a row at 2^63 - 1", frozenset({ROW, BITMAP}),
          _MAGIC + struct.pack("<qI", 1, 0x7FFFFFFF) + _ONE_ARRAY + b"\xff\xff"),
    _case("a row at 2^64 - 1", BITMAP,
          _MAGIC + struct.pack("<qI", 1, 0xFFFFFFFF) + _ONE_ARRAY + b"\xff\xff"),
    _case("no bytes", BITMAP, b""),
    _case("another magic number", BITMAP, b"\0\0\0\0" + DeletionVector([1]).serialize()[4:]),
    _case("2^31 bitmaps", BITMAP, _MAGIC + struct.pack("<q", 2**31)),
    _case("2^63 - 1 bitmaps", BITMAP, _MAGIC + struct.pack("<q", 2**63 - 1)),
    _case("-1 bitmaps", BITMAP, _MAGIC + struct.pack("<q", -1)),
    _case("2^32 - 1 containers", BITMAP,
          _MAGIC + struct.pack("<qI", 1, 0) + struct.pack("<II", 12346, 2**32 - 1)),
    _case("a container beyond the end", BITMAP,
          _MAGIC + struct.pack("<qI", 1, 0) + struct.pack("<IIHHI", 12346, 1, 0, 4000, 16)),
    _case("an array out of order", frozenset({BITMAP, CARDINALITY}),
          _MAGIC + struct.pack("<qI", 1, 0)
          + struct.pack("<IIHHI", 12346, 1, 0, 1, 16) + struct.pack("<HH", 2, 1), cardinality=2),
    _case("bytes behind the bitmap", BITMAP, DeletionVector([1]).serialize() + b"\0"),
    _case("a run of 65,536 rows in a file of three", ROW,
          _MAGIC + struct.pack("<qI", 1, 0) + _RUN, cardinality=65_536),
    _case("the older layout, 2^31 - 1 bitmaps", BITMAP,
          struct.pack("<ii", 1681511376, 2**31 - 1)),
    _case("the older layout, a size of 2^31 - 1", BITMAP,
          struct.pack("<iii", 1681511376, 1, 2**31 - 1)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_a_bad_vector_ends_in_a_typed_error(
    case: Case, tmp_path: Path, guarded: GuardedReader
) -> None:
    check(case, tmp_path, guarded)


@pytest.mark.parametrize("prefix", ["p", "a b", "100%", "%25+é", "x/y", ".hidden"])
def test_a_vector_in_a_directory_of_any_name_is_found(
    prefix: str, tmp_path: Path, guarded: GuardedReader
) -> None:
    (file,) = pack_deletion_vectors([DeletionVector([1])], next_id=lambda: ID, prefix=prefix)

    def build(table: BadTable) -> None:
        table.write(file.path, file.data)
        _build(table, data=None, base=file.descriptors[0])

    check(Case(name="", build=build, want=LEFT), tmp_path, guarded)


def test_a_vector_behind_a_link_outside_is_refused(tmp_path: Path, guarded: GuardedReader) -> None:
    def build(table: BadTable) -> None:
        (table.outside / "v.bin").write_bytes(FILE.data)
        table.path(FILE.path).symlink_to(table.outside / "v.bin")
        _build(table, data=None)

    check(Case(name="", build=build, want=UNSAFE), tmp_path, guarded)


def test_a_vector_at_another_host_is_not_asked_for(tmp_path: Path, guarded: GuardedReader) -> None:
    with listening() as (port, was_called):

        def build(table: BadTable) -> None:
            address = f"http://127.0.0.1:{port}/v.bin"
            _build(table, storage_type="p", path_or_inline_dv=address)

        check(Case(name="", build=build, want=UNSAFE), tmp_path, guarded)
        assert not was_called()


@pytest.mark.parametrize(
    "vector",
    [
        '{"storageType":"u","pathOrInlineDv":"x","sizeInBytes":2147483648,"cardinality":1}',
        '{"storageType":"u","pathOrInlineDv":"x","sizeInBytes":1e400,"cardinality":1}',
        '{"storageType":7,"pathOrInlineDv":"x","sizeInBytes":1,"cardinality":1}',
        '{"storageType":"u","sizeInBytes":1,"cardinality":1}',
        '{"storageType":"u","pathOrInlineDv":null,"sizeInBytes":1,"cardinality":1}',
        '{"storageType":"u","pathOrInlineDv":"x","sizeInBytes":1}',
        '{"storageType":"u","pathOrInlineDv":"x","sizeInBytes":1,"cardinality":9e99}',
    ],
)
def test_a_descriptor_of_another_shape_ends_in_a_typed_error(
    vector: str, tmp_path: Path, guarded: GuardedReader
) -> None:
    line = add_a().json[:-2] + f',"deletionVector":{vector}}}}}'

    def build(table: BadTable) -> None:
        table.create(protocol=FEATURE).commit(line)

    check(Case(name="", build=build, want=MALFORMED), tmp_path, guarded)
