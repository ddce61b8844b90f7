"""Vectors out of bitmaps, into files, and onto the files whose rows they take."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delta.errors import DeletionVectorError, InvalidActionsError, StorageError
from pyspark_delta.kernel.machine import random_uuid
from pyspark_delta.kernel.protocol.actions import AddFile
from pyspark_delta.kernel.protocol.deletion_vectors import (
    DeletionVector,
    inline_descriptor,
)
from pyspark_delta.kernel.scan.locations import Locations, VectorReader
from pyspark_delta.kernel.storage.memory import MemoryStore
from pyspark_delta.kernel.txn.vector_files import (
    BUCKET_BYTES,
    changed_vector,
    vector_of_bitmaps,
    with_vector,
    write_vectors,
)
from tests.support.faulty import Fault, FaultStore
from tests.support.transactions import TABLE, add


def bitmaps(rows: set[int]) -> list[tuple[int, bytes]]:
    """Rows as Spark's bitmap functions give them for `row_index + 1`."""
    buckets: dict[int, bytearray] = {}
    for row in rows:
        value = row + 1
        bucket, position = 1 + (value - 1) // 32_768, (value - 1) % 32_768
        bits = buckets.setdefault(bucket, bytearray(4096))
        bits[position // 8] |= 1 << position % 8
    return [(bucket, bytes(bits)) for bucket, bits in buckets.items()]


ROWS = st.one_of(
    st.sets(st.integers(0, 200_000), max_size=30),
    st.builds(
        lambda start, stop, step: set(range(start, stop, step)),
        st.integers(0, 70_000),
        st.integers(70_000, 140_000),
        st.integers(1, 30),
    ),
    st.sets(st.integers(2**32 - 40_000, 2**32 + 40_000), max_size=10),
)


@given(ROWS, st.randoms(use_true_random=False))
def test_a_vector_holds_the_rows_of_its_bitmaps(rows: set[int], chance: random.Random) -> None:
    buckets = bitmaps(rows)
    chance.shuffle(buckets)
    made = vector_of_bitmaps(buckets)
    assert made == DeletionVector(rows)
    # What pyroaring made of the containers is what it would have made of the rows.
    assert made.serialize() == DeletionVector(rows).serialize()


@pytest.mark.parametrize(
    "rows",
    [
        range(0),
        range(1),
        range(32_768),
        range(32_767, 32_769),
        range(65_535, 65_537),
        range(4096),
        range(4097),
        range(0, 65_536, 16),
        range(0, 65_536, 15),
        range(1_000_000),
    ],
)
def test_the_edges_of_bitmaps_and_containers_are_kept(rows: range) -> None:
    assert vector_of_bitmaps(bitmaps(set(rows))) == DeletionVector(rows)


def test_bitmaps_may_be_short_repeated_or_empty() -> None:
    made = vector_of_bitmaps([(2, b"\x01"), (1, b""), (2, b"\x82"), (3, bytes(4096)), (2, b"\x02")])
    rows = 8 * BUCKET_BYTES
    assert made == DeletionVector([rows, rows + 1, rows + 7])


@pytest.mark.parametrize(("bucket", "bitmap"), [(0, b"\x01"), (-3, b"\x01"), (1, bytes(4097))])
def test_bitmaps_that_are_not_of_row_indexes_are_refused(bucket: int, bitmap: bytes) -> None:
    with pytest.raises(ValueError, match="row indexes"):
        vector_of_bitmaps([(bucket, bitmap)])


def test_ten_million_rows_are_put_together_and_not_counted_out() -> None:
    dense = [(bucket, b"\xff" * 4096) for bucket in range(1, 307)]
    assert vector_of_bitmaps(dense).cardinality == 306 * 32_768
    assert vector_of_bitmaps(dense).max_row == 306 * 32_768 - 1


def test_vectors_are_packed_into_files_in_the_order_given() -> None:
    store = MemoryStore(None, TABLE)
    vectors = [DeletionVector(range(i, 2000, i + 1)) for i in range(20)]
    written = write_vectors(store, vectors, new_uuid=random_uuid, prefix="k7/", target_size=9_000)
    read = VectorReader(Locations(store)).read
    assert [read(descriptor) for descriptor in written.descriptors] == vectors
    assert 1 < len(written.paths) < 20
    assert sorted(info.path for info in store.list_recursive("")) == sorted(written.paths)
    assert all(path.startswith("k7/deletion_vector_") for path in written.paths)
    assert all(store.size(path) <= 9_000 for path in written.paths)


def test_no_vectors_need_no_file() -> None:
    store = MemoryStore(None, TABLE)
    written = write_vectors(store, [], new_uuid=random_uuid)
    assert written.descriptors == written.paths == ()
    assert not list(store.list_recursive(""))


@pytest.mark.parametrize("fault", [Fault.ERROR_BEFORE, Fault.ERROR_AFTER])
def test_vectors_of_which_one_cannot_be_written_leave_no_file(fault: Fault) -> None:
    inner = MemoryStore(None, TABLE)
    calls = iter([None, None, fault])
    store = FaultStore(inner, lambda name, _: next(calls) if name == "create" else None)
    vectors = [DeletionVector([i]) for i in range(5)]
    with pytest.raises(StorageError):
        write_vectors(store, vectors, new_uuid=random_uuid, target_size=1)
    assert not list(inner.list_recursive(""))


FULL = (
    '{"numRecords":10,"minValues":{"a":1,"d":1.10,"v":{"x":"z85"}},'
    '"maxValues":{"a":1.7976931348623157E308},"nullCount":{"a":0,"all":10,"some":3,'
    '"s":{"all":10}},"fromTheFuture":{"kept":[1,2.50]}}'
)


def file(**changes: object) -> AddFile:
    return add("part=1/a", **{"stats": FULL, **changes})


def test_bounds_stay_and_are_no_longer_tight() -> None:
    changed = with_vector(file(), inline_descriptor(DeletionVector([1, 2])))
    assert changed.stats == (
        '{"numRecords":10,"minValues":{"a":1,"d":1.10,"v":{"x":"z85"}},'
        '"maxValues":{"a":1.7976931348623157E308},"nullCount":{"a":0,"all":10,"some":3,'
        '"s":{"all":10}},"tightBounds":false,"fromTheFuture":{"kept":[1,2.50]}}'
    )
    again = with_vector(changed, inline_descriptor(DeletionVector([1, 2, 3])))
    assert again.stats == changed.stats


def test_a_column_of_nulls_only_is_known_as_such_for_the_whole_file() -> None:
    stats = '{"numRecords":10,"nullCount":{"all":8,"some":3,"none":0},"tightBounds":true}'
    old = file(stats=stats, deletion_vector=inline_descriptor(DeletionVector([0, 1])))
    changed = with_vector(old, inline_descriptor(DeletionVector([0, 1, 2])))
    assert json.loads(changed.stats or "") == {
        "numRecords": 10,
        "nullCount": {"all": 10, "some": 3, "none": 0},
        "tightBounds": False,
    }


def test_all_else_that_is_known_of_a_file_stays() -> None:
    old = file(
        tags={"t": "1"},
        base_row_id=70,
        default_row_commit_version=3,
        clustering_provider="liquid",
        data_change=False,
        extra={"fromTheFuture": 1},
    )
    vector = inline_descriptor(DeletionVector([1]))
    removed, added = changed_vector(old, vector, deletion_timestamp=5)
    assert (added.path, added.size, added.partition_values) == (old.path, 100, {"part": "1"})
    assert (added.tags, added.clustering_provider) == ({"t": "1"}, "liquid")
    assert (added.base_row_id, added.default_row_commit_version) == (70, 3)
    assert added.extra == {"fromTheFuture": 1}
    assert added.data_change
    assert added.deletion_vector == vector
    assert (removed.deletion_vector, removed.deletion_timestamp) == (None, 5)


def test_the_remove_names_the_vector_that_is_there() -> None:
    """Trino 24648: a remove without the old vector leaves the file in the table twice."""
    first, second = (inline_descriptor(DeletionVector(range(n))) for n in (1, 2))
    old = with_vector(file(base_row_id=3, default_row_commit_version=1), first)
    removed, added = changed_vector(old, second, deletion_timestamp=5)
    assert removed.deletion_vector == first
    assert added.deletion_vector == second
    assert removed.extended_file_metadata
    assert (removed.size, removed.partition_values) == (100, {"part": "1"})
    assert (removed.base_row_id, removed.default_row_commit_version) == (3, 1)


def test_a_file_needs_a_number_of_records_which_may_come_from_its_footer() -> None:
    vector = inline_descriptor(DeletionVector([4]))
    with pytest.raises(InvalidActionsError):
        with_vector(file(stats=None), vector)
    changed = with_vector(file(stats=None), vector, num_records=5)
    assert changed.stats == '{"numRecords":5,"tightBounds":false}'
    with pytest.raises(DeletionVectorError):
        with_vector(file(stats='{"numRecords":0}'), vector)
