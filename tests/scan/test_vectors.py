"""Deletion vectors as a scan finds them: inline, in the table, elsewhere, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest

from pyspark_delta.errors import DataFileError, DeletionVectorError, DeltaError, UnsafePathError
from pyspark_delta.kernel.protocol.action_parts import DeletionVectorDescriptor
from pyspark_delta.kernel.protocol.deletion_vectors import (
    DeletionVector,
    inline_descriptor,
    pack_deletion_vectors,
)
from pyspark_delta.kernel.scan.locations import Locations, VectorReader, descriptor_of
from pyspark_delta.kernel.storage.memory import MemoryStore

FIRST, SECOND = DeletionVector([1, 5]), DeletionVector(range(10, 2000, 3))


def written(store: MemoryStore, prefix: str = "ä b") -> list[DeletionVectorDescriptor]:
    (file,) = pack_deletion_vectors([FIRST, SECOND], next_id=lambda: UUID(int=7), prefix=prefix)
    store.create(file.path, file.data)
    return list(file.descriptors)


def absolute(store: MemoryStore, found: DeletionVectorDescriptor) -> DeletionVectorDescriptor:
    uri = store.address(f"ä b/deletion_vector_{UUID(int=7)}.bin")
    return replace(found, storage_type="p", path_or_inline_dv=uri)


def test_vectors_of_one_file_are_each_read_at_their_place() -> None:
    store = MemoryStore("tä ble 100%")
    reader = VectorReader(Locations(store))
    assert [reader.read(found) for found in written(store)] == [FIRST, SECOND]


def test_an_inline_vector_needs_no_file() -> None:
    assert VectorReader(Locations(MemoryStore())).read(inline_descriptor(FIRST)) == FIRST


def test_an_absolute_vector_is_read_from_the_table_or_an_allowed_place() -> None:
    source, clone = MemoryStore("söurce 1"), MemoryStore("clone 1")
    first, _ = written(source)
    descriptor = absolute(source, first)
    assert VectorReader(Locations(source)).read(descriptor) == FIRST
    assert VectorReader(Locations(clone, [source])).read(descriptor) == FIRST
    with pytest.raises(UnsafePathError, match=r"outside of the table|its scheme"):
        VectorReader(Locations(clone)).read(descriptor)


def test_a_missing_vector_file_is_named() -> None:
    store = MemoryStore()
    descriptor, _ = written(store)
    store.delete(f"ä b/deletion_vector_{UUID(int=7)}.bin")
    with pytest.raises(DataFileError) as caught:
        VectorReader(Locations(store)).read(descriptor)
    assert caught.value.condition == "DELTA_FILE_NOT_FOUND"


Change = Callable[[DeletionVectorDescriptor], DeletionVectorDescriptor]


@pytest.mark.parametrize(
    ("change", "condition"),
    [
        (lambda d: replace(d, cardinality=9), "DELTA_DELETION_VECTOR_CARDINALITY_MISMATCH"),
        (lambda d: replace(d, size_in_bytes=2**31 - 1), "DELTA_DELETION_VECTOR_SIZE_MISMATCH"),
        (lambda d: replace(d, size_in_bytes=-1), "DELTA_DELETION_VECTOR_SIZE_MISMATCH"),
        (lambda d: replace(d, offset=3), "DELTA_DELETION_VECTOR_SIZE_MISMATCH"),
        (lambda d: replace(d, storage_type="q"), "DELTA_DELETION_VECTOR_INVALID_DESCRIPTOR"),
        (lambda d: replace(d, path_or_inline_dv=""), "DELTA_DELETION_VECTOR_INVALID_DESCRIPTOR"),
    ],
)
def test_a_vector_that_is_not_as_described_is_refused(change: Change, condition: str) -> None:
    store = MemoryStore()
    descriptor, _ = written(store)
    with pytest.raises(DeltaError) as caught:
        VectorReader(Locations(store)).read(change(descriptor))
    assert caught.value.condition == condition


@pytest.mark.parametrize("prefix", ["../", "a/../..", "/abs"])
def test_a_prefix_that_leads_out_of_the_table_is_refused(prefix: str) -> None:
    descriptor = DeletionVectorDescriptor(
        storage_type="u",
        path_or_inline_dv=prefix + "vBn[lx{q8@P<9BNH/isA",
        offset=1,
        size_in_bytes=36,
        cardinality=2,
    )
    with pytest.raises(UnsafePathError):
        VectorReader(Locations(MemoryStore())).read(descriptor)


def test_a_row_of_the_log_is_a_descriptor_or_none() -> None:
    assert descriptor_of(None) is None
    row = {**inline_descriptor(FIRST).to_json_value(), "offset": None}
    assert descriptor_of(row) == inline_descriptor(FIRST)
    with pytest.raises(DeletionVectorError):
        descriptor_of({"storageType": "u", "cardinality": 1})
