"""Deletion vectors: descriptors, frames, and the ways in which they can lie."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from pyspark_delta.errors import DeletionVectorError, DeltaError, UnsafePathError
from pyspark_delta.kernel.protocol.action_parts import DeletionVectorDescriptor
from pyspark_delta.kernel.protocol.deletion_vectors import (
    ALPHABET,
    DeletionVector,
    DeletionVectorFile,
    check_rows_exist,
    decode_z85,
    encode_z85,
    inline_descriptor,
    locate,
    pack_deletion_vectors,
    read_deletion_vector,
)

ROWS = [3, 4, 7, 11, 18, 29]
SPEC_VECTOR = DeletionVectorDescriptor(
    storage_type="i",
    path_or_inline_dv="wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
    size_in_bytes=40,
    cardinality=6,
)
SPEC_UUID = UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")
SPEC_PATH = "ab^-aqEH.-t@S}K{vb[*k^"


def ids(*given: int) -> Callable[[], UUID]:
    left = iter(given or range(1, 1000))
    return lambda: UUID(int=next(left))


def reader(file: DeletionVectorFile) -> Callable[[str, int, int], bytes]:
    def read(path: str, offset: int, length: int) -> bytes:
        assert path == file.path
        assert 0 <= offset <= offset + length <= len(file.data), "asked for more than there is"
        return file.data[offset : offset + length]

    return read


def read_back(file: DeletionVectorFile, number: int = 0) -> DeletionVector:
    return read_deletion_vector(file.descriptors[number], reader(file), len(file.data))


def packed(*vectors: DeletionVector) -> DeletionVectorFile:
    (file,) = pack_deletion_vectors(vectors, next_id=ids(), target_bytes=2**31)
    return file


def condition_of(descriptor: DeletionVectorDescriptor, file: DeletionVectorFile | None) -> str:
    source = () if file is None else (reader(file), len(file.data))
    with pytest.raises(DeltaError) as caught:
        read_deletion_vector(descriptor, *source)
    assert isinstance(caught.value, DeletionVectorError | UnsafePathError)
    return caught.value.condition


# Z85


@given(st.binary(max_size=64).map(lambda data: data + bytes(-len(data) % 4)))
def test_z85_goes_there_and_back(data: bytes) -> None:
    text = encode_z85(data)
    assert len(text) == len(data) // 4 * 5
    assert set(text) <= set(ALPHABET)
    assert decode_z85(text) == data


@pytest.mark.parametrize("text", ["abcd", "abc d", 'abc"d', "abcdé", "abcd\0", "#####", "%nSc1"])
def test_z85_refuses_what_it_would_not_write(text: str) -> None:
    with pytest.raises(ValueError, match="Z85"):
        decode_z85(text)
    with pytest.raises(ValueError, match="Z85"):
        encode_z85(b"abc")


# The set of rows


def test_the_vector_of_the_specification_is_read() -> None:
    vector = read_deletion_vector(SPEC_VECTOR)
    assert vector.rows_between(0, 100).tolist() == ROWS
    assert vector.cardinality == 6
    assert vector.max_row == 29
    assert 7 in vector
    assert 8 not in vector
    assert "7" not in vector


def test_a_vector_is_a_set_of_rows() -> None:
    few, more = DeletionVector([1, 5]), DeletionVector([1, 2**35, 5])
    assert few.is_subset(more)
    assert not more.is_subset(few)
    assert few.union(DeletionVector([2**35])) == more
    assert more.difference(few) == DeletionVector([2**35])
    assert few.is_disjoint(DeletionVector([2]))
    assert not few.is_disjoint(more)
    assert hash(few) == hash(DeletionVector([5, 1]))
    assert few != more
    assert few != [1, 5]
    assert DeletionVector().max_row is None
    assert repr(few) == "DeletionVector(2 rows)"
    assert pickle.loads(pickle.dumps(more)) == more


def test_rows_between_stops_before_its_end() -> None:
    vector = DeletionVector([0, 9, 10, 2**32, 2**32 + 1])
    assert vector.rows_between(0, 10).tolist() == [0, 9]
    assert vector.rows_between(10, 2**32 + 1).tolist() == [10, 2**32]
    assert vector.rows_between(5, 5).tolist() == []
    assert vector.rows_between(6, 5).tolist() == []


def test_rows_between_costs_what_its_window_holds() -> None:
    # Eight bytes of runs can mark billions of rows: only the ones asked for may take memory.
    every_row = BitMap64()
    every_row.add_range(0, 2**32)
    assert DeletionVector(every_row).rows_between(10, 13).tolist() == [10, 11, 12]


def test_a_row_beyond_the_file_is_refused() -> None:
    vector = DeletionVector(ROWS)
    check_rows_exist(vector, 30)
    check_rows_exist(DeletionVector(), 0)
    with pytest.raises(DeletionVectorError) as caught:
        check_rows_exist(vector, 29)
    assert caught.value.condition == "DELTA_DELETION_VECTOR_INVALID_ROW_INDEX"


# Descriptors


def test_a_prefix_is_a_directory_before_the_uuid() -> None:
    descriptor = DeletionVectorDescriptor(
        storage_type="u", path_or_inline_dv=SPEC_PATH, offset=4, size_in_bytes=40, cardinality=6
    )
    location = locate(descriptor)
    assert location.path == f"ab/deletion_vector_{SPEC_UUID}.bin"
    assert (location.offset, location.size_in_bytes) == (4, 40)
    without = locate(replace(descriptor, path_or_inline_dv=SPEC_PATH[2:], offset=None))
    assert without.path == f"deletion_vector_{SPEC_UUID}.bin"
    assert without.offset == 0


def test_an_absolute_descriptor_keeps_its_uri() -> None:
    uri = "s3://mytable/t%C3%A4%20ble%20100%25/deletion_vector.bin"
    descriptor = replace(SPEC_VECTOR, storage_type="p", path_or_inline_dv=uri, offset=1)
    assert locate(descriptor).uri == uri
    assert locate(descriptor).path is None


@pytest.mark.parametrize(
    "prefix", ["..", "../", "../..", "a/../../b", "/", "/etc", "a//b", ".", "a/", "..\\x", "a\0"]
)
def test_a_prefix_cannot_lead_out_of_the_table(prefix: str) -> None:
    where = prefix + SPEC_PATH[2:]
    descriptor = replace(SPEC_VECTOR, storage_type="u", path_or_inline_dv=where)
    with pytest.raises(UnsafePathError) as caught:
        locate(descriptor)
    assert caught.value.condition == "DELTA_UNSAFE_PATH"


INVALID = "DELTA_DELETION_VECTOR_INVALID_DESCRIPTOR"
MALFORMED = "DELTA_DELETION_VECTOR_MALFORMED"
SIZE = "DELTA_DELETION_VECTOR_SIZE_MISMATCH"
CARDINALITY = "DELTA_DELETION_VECTOR_CARDINALITY_MISMATCH"
CHECKSUM = "DELTA_DELETION_VECTOR_CHECKSUM_MISMATCH"
URI = "DELTA_CANNOT_RECONSTRUCT_PATH_FROM_URI"


@pytest.mark.parametrize(
    ("changes", "condition"),
    [
        ({"storage_type": "x"}, INVALID),
        ({"storage_type": ""}, INVALID),
        ({"storage_type": "u", "path_or_inline_dv": "short"}, INVALID),
        ({"storage_type": "u", "path_or_inline_dv": ""}, INVALID),
        ({"storage_type": "u", "path_or_inline_dv": "é" * 20}, INVALID),
        ({"storage_type": "u", "path_or_inline_dv": "#" * 20}, INVALID),
        ({"storage_type": "p", "path_or_inline_dv": "a/relative.bin"}, URI),
        ({"storage_type": "p", "path_or_inline_dv": "/no/scheme.bin"}, URI),
        ({"storage_type": "p", "path_or_inline_dv": ""}, URI),
        ({"storage_type": "p", "path_or_inline_dv": "file:/a\0b"}, URI),
        ({"path_or_inline_dv": "wi5b"}, INVALID),
        ({"path_or_inline_dv": "wi5 ="}, INVALID),
        ({"path_or_inline_dv": ""}, SIZE),
        ({"path_or_inline_dv": "", "size_in_bytes": 0, "cardinality": 0}, MALFORMED),
        ({"size_in_bytes": 39}, MALFORMED),
        ({"size_in_bytes": 41}, SIZE),
        ({"size_in_bytes": 36}, SIZE),
        ({"size_in_bytes": -1}, SIZE),
        ({"size_in_bytes": 2**31 - 1}, SIZE),
        ({"cardinality": 5}, CARDINALITY),
        ({"cardinality": -1}, CARDINALITY),
        ({"offset": -1}, INVALID),
    ],
)
def test_a_descriptor_that_lies_is_refused(changes: dict[str, object], condition: str) -> None:
    assert condition_of(replace(SPEC_VECTOR, **changes), None) == condition


# Files


def test_an_inline_descriptor_holds_its_vector() -> None:
    for rows in ([], ROWS, [2**40], range(5000)):
        vector = DeletionVector(rows)
        descriptor = inline_descriptor(vector)
        assert descriptor.offset is None
        assert read_deletion_vector(descriptor) == vector


def test_several_vectors_share_a_file() -> None:
    vectors = [DeletionVector(ROWS), DeletionVector(), DeletionVector(range(100, 70_000))]
    file = packed(*vectors)
    assert file.data[0] == 1
    assert file.path == "deletion_vector_00000000-0000-0000-0000-000000000001.bin"
    assert file.descriptors[0].offset == 1
    assert [locate(descriptor).path for descriptor in file.descriptors] == [file.path] * 3
    assert [read_back(file, number) for number in range(3)] == vectors


def test_a_file_is_closed_once_it_is_large_enough() -> None:
    vectors = [DeletionVector(range(start, start + 90, 3)) for start in range(0, 1000, 100)]
    files = pack_deletion_vectors(vectors, next_id=ids(), prefix="é 9", target_bytes=250)
    assert len(files) > 1
    assert all(len(file.data) <= 250 for file in files)
    assert len({file.path for file in files}) == len(files)
    assert all(file.path.startswith("é 9/deletion_vector_") for file in files)
    read = [read_back(file, n) for file in files for n in range(len(file.descriptors))]
    assert read == vectors
    assert pack_deletion_vectors([], next_id=ids()) == ()
    alone = pack_deletion_vectors(vectors[:2], next_id=ids(), target_bytes=1)
    assert [len(file.descriptors) for file in alone] == [1, 1]


def test_a_vector_in_a_file_needs_a_way_to_read_it() -> None:
    with pytest.raises(ValueError, match="read_range"):
        read_deletion_vector(packed(DeletionVector(ROWS)).descriptors[0])


@pytest.mark.parametrize(
    ("changes", "condition"),
    [
        ({"offset": 0}, SIZE),
        ({"offset": 2}, SIZE),
        ({"offset": 2**31 - 1}, SIZE),
        ({"size_in_bytes": 2**31 - 1}, SIZE),
        ({"size_in_bytes": 43}, SIZE),
        ({"cardinality": 7}, CARDINALITY),
    ],
)
def test_a_frame_that_does_not_fit_its_descriptor_is_refused(
    changes: dict[str, object], condition: str
) -> None:
    file = packed(DeletionVector(ROWS), DeletionVector(ROWS))
    assert condition_of(replace(file.descriptors[0], **changes), file) == condition


def test_a_flipped_byte_is_found_by_the_checksum() -> None:
    file = packed(DeletionVector(ROWS))
    for at in range(5, len(file.data)):
        damaged = bytearray(file.data)
        damaged[at] ^= 0x40
        broken = replace(file, data=bytes(damaged))
        assert condition_of(broken.descriptors[0], broken) == CHECKSUM


def test_a_store_that_returns_too_little_is_noticed() -> None:
    file = packed(DeletionVector(ROWS))
    with pytest.raises(DeletionVectorError) as caught:
        read_deletion_vector(file.descriptors[0], lambda *_: b"1234", len(file.data))
    assert caught.value.condition == SIZE


@given(
    st.lists(st.integers(0, 100_000), max_size=50),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_damage_gives_the_same_rows_or_a_typed_error(
    rows: list[int], chance: random.Random, inline: bool
) -> None:
    vector = DeletionVector(rows)
    if inline:
        sound = inline_descriptor(vector)
        text = list(sound.path_or_inline_dv)
        text[chance.randrange(len(text))] = chance.choice(ALPHABET + " é")
        descriptor = replace(sound, path_or_inline_dv="".join(text))
        file = packed(vector)
    else:
        file = packed(vector)
        data = bytearray(file.data)
        data[chance.randrange(len(data))] = chance.randrange(256)
        file = replace(file, data=bytes(data[: chance.choice([len(data), len(data) - 1])]))
        descriptor = file.descriptors[0]
    try:
        read = read_deletion_vector(descriptor, reader(file), len(file.data))
    except (DeletionVectorError, UnsafePathError):
        return
    # Inline vectors have no checksum: the count is all that their descriptor vouches for.
    assert read == vector or (inline and read.cardinality == vector.cardinality)
