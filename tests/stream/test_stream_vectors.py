"""Changes of rows as commits tell them: change files, adds and removes, other vectors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyspark_delta.errors import DeletionVectorError
from pyspark_delta.kernel.ops.stream_commits import FileRun, parse_changes
from pyspark_delta.kernel.ops.stream_vectors import with_changed_rows
from pyspark_delta.kernel.protocol.actions import AddCDCFile, CommitInfo
from pyspark_delta.kernel.protocol.deletion_vectors import (
    DeletionVector,
    inline_descriptor,
    read_deletion_vector,
)
from pyspark_delta.kernel.scan.vectors import descriptor_of
from tests.support.log_builder import add, metadata, remove


def commit(*lines: str, time_ms: int = 5) -> Any:
    return parse_changes("x", 3, "\n".join(lines).encode(), time_ms=time_ms)


def test_adds_and_removes_come_in_the_order_of_the_log() -> None:
    found = commit(
        remove("a").json,
        add("b").json,
        remove("o", data_change=False).json,
        add("p", data_change=False).json,
        remove("c").json,
    )
    assert [row["path"] for row in found.files.rows] == ["a", "b", "c"]
    assert found.files.kinds == ("remove", "add", "remove")
    assert found.files.timestamp_ms == 5
    assert not found.must_stay_whole
    assert found.removed == "a"


def test_change_files_are_all_that_counts_where_there_are_any() -> None:
    cdc = AddCDCFile(path="c", partition_values={}, size=4, data_change=False)
    info = CommitInfo(operation="UPDATE", in_commit_timestamp=99).json
    found = commit(info, add("b").json, cdc.json, remove("a").json, metadata().json)
    assert [row["path"] for row in found.files.rows] == ["c"]
    assert found.files.kinds == ("cdc",)
    assert found.files.timestamp_ms == 99
    assert found.must_stay_whole
    assert found.metadata is not None


def test_a_merge_that_changed_no_row_tells_nothing() -> None:
    names = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
    for value, told in (("0", []), ("1", ["a", "b"])):
        metrics = {**dict.fromkeys(names, "0"), names[1]: value}
        info = CommitInfo(operation="MERGE", operation_metrics=metrics).json
        found = commit(info, remove("a").json, add("b").json)
        assert [row["path"] for row in found.files.rows] == told


def vector_row(path: str, gone: list[int] | None, records: int | None = 10) -> dict[str, Any]:
    row: dict[str, Any] = {"path": path, "size": 1, "dataChange": True}
    if records is not None:
        row["stats"] = json.dumps({"numRecords": records})
    if gone is not None:
        row["deletionVector"] = inline_descriptor(DeletionVector(gone)).to_json_value()
    return row


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (None, [1, 2], {"remove": [1, 2]}),
        ([1], [1, 2], {"remove": [2]}),
        ([1, 2], None, {"add": [1, 2]}),
        ([1, 2], [2, 3], {"remove": [3], "add": [1]}),
        ([1], [1], {}),
    ],
)
def test_only_rows_in_one_of_two_vectors_changed(
    before: list[int] | None, after: list[int] | None, told: dict[str, list[int]]
) -> None:
    rows = [vector_row("f", before), vector_row("f", after), vector_row("g", [4])]
    run = with_changed_rows(FileRun(1, rows, ("remove", "add", "add")), read_deletion_vector)
    assert run.kinds is not None
    assert isinstance(run.rows, list)
    found = {}
    for row, kind in zip(run.rows, run.kinds, strict=True):
        descriptor = descriptor_of(row["deletionVector"])
        assert descriptor is not None
        gone = set(read_deletion_vector(descriptor).rows_between(0, 10))
        if row["path"] == "f":
            found[kind] = sorted(set(range(10)) - gone)
        else:
            assert gone == {4}
    assert found == told


def test_a_file_without_a_number_of_rows_is_refused() -> None:
    rows = [vector_row("f", None, None), vector_row("f", [1], None)]
    with pytest.raises(DeletionVectorError) as caught:
        with_changed_rows(FileRun(1, rows, ("remove", "add")), read_deletion_vector)
    assert caught.value.condition == "DELTA_DELETION_VECTOR_MISSING_NUM_RECORDS"


def test_a_run_without_vectors_stays_as_it_is() -> None:
    run = FileRun(1, [vector_row("f", None)], ("add",))
    assert with_changed_rows(run, read_deletion_vector) is run
