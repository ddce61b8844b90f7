"""What becomes of files that lose rows: a vector, gone, or written anew."""

from __future__ import annotations

import pytest

from pyspark_delta.errors import DeletionVectorError
from pyspark_delta.kernel.ops.rewrite_plan import (
    FileMode,
    RewritePlanner,
    num_live_rows,
    removed_metrics,
)
from pyspark_delta.kernel.protocol.actions import AddFile
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector, inline_descriptor
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.storage.memory import MemoryStore
from tests.support.data_tables import DataTable
from tests.support.transactions import TABLE, add


def never() -> Locations:
    raise AssertionError("the log tells all there is to know")


def of_rows(num_rows: int, gone: range = range(0)) -> AddFile:
    vector = inline_descriptor(DeletionVector(gone)) if gone else None
    return add("ä b.parquet", stats=f'{{"numRecords":{num_rows}}}', deletion_vector=vector)


@pytest.mark.parametrize(
    ("num_rows", "gone", "with_vectors", "can_rewrite", "mode"),
    [
        (10, range(10), True, True, "remove"),
        (10, range(10), False, True, "remove"),
        (10, range(9), True, True, "vector"),
        (10, range(9), False, True, "rewrite"),
        (10_000, range(9_500), True, True, "vector"),
        (10_000, range(9_501), True, True, "rewrite"),
        (10_000, range(9_501), True, False, "vector"),
        (9_999, range(9_998), True, True, "vector"),
    ],
)
def test_what_a_file_becomes_is_what_costs_least(
    num_rows: int, gone: range, with_vectors: bool, can_rewrite: bool, mode: FileMode
) -> None:
    [changed] = (
        RewritePlanner(never)
        .by_rows(
            [(of_rows(num_rows), DeletionVector(gone))],
            with_vectors=with_vectors,
            can_rewrite=can_rewrite,
        )
        .files
    )
    assert changed.mode == mode
    assert changed.num_left == num_rows - len(gone)


def test_rows_that_were_gone_before_count_as_gone() -> None:
    file = of_rows(10, gone=range(4))
    planner = RewritePlanner(lambda: Locations(MemoryStore(None, TABLE)))
    changes = planner.by_rows([(file, DeletionVector(range(2, 10)))], with_vectors=True)
    [changed] = changes.files
    assert (changed.mode, changed.rows.cardinality, changed.num_left) == ("remove", 8, 0)
    assert changes.removed == [file]
    assert changes.metrics([], [])["numDeletionVectorsRemoved"] == 1


def test_a_row_behind_the_end_of_its_file_is_refused() -> None:
    with pytest.raises(DeletionVectorError):
        RewritePlanner(never).by_rows([(of_rows(3), DeletionVector([3]))], with_vectors=True)


def test_the_number_of_rows_is_read_where_the_log_does_not_tell_it() -> None:
    table = DataTable(MemoryStore(None, TABLE))
    file = table.file("ä b 100%.parquet", {"id": [1, 2, 3]})
    planner = RewritePlanner(lambda: Locations(table.store))
    [changed] = planner.by_rows([(file, DeletionVector([1]))], with_vectors=True).files
    assert (changed.file.num_records, changed.num_left) == (3, 2)
    assert planner.by_counts([(file, 1)]).num_copied == 2
    assert planner.all_rows([file]).num_rows == 3


def test_counted_files_go_and_their_other_rows_are_copied() -> None:
    planner = RewritePlanner(never)
    changes = planner.by_counts([(of_rows(10, gone=range(4)), 1), (of_rows(5), 5)])
    assert (changes.num_rows, changes.num_copied, len(changes.removed)) == (6, 5, 2)
    whole = planner.all_rows([of_rows(10, gone=range(4)), of_rows(5)])
    assert (whole.num_rows, whole.num_copied) == (11, 0)


def test_rows_are_counted_by_the_log_where_it_can_tell() -> None:
    known = [of_rows(10, gone=range(4)), of_rows(5)]
    assert num_live_rows(known) == 11
    assert num_live_rows([*known, add("x.parquet", stats=None)]) is None
    assert num_live_rows([]) == 0
    assert removed_metrics(known)["numDeletionVectorsRemoved"] == 1
