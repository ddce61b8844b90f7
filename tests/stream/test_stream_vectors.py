"""Changes of rows as commits tell them: change files, or else adds and removes."""

from __future__ import annotations

from typing import Any

from pyspark_delta.kernel.ops.stream_commits import parse_changes
from pyspark_delta.kernel.protocol.actions import AddCDCFile, CommitInfo
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
    assert not found.tells_changes
    assert found.removed == "a"


def test_change_files_are_all_that_counts_where_there_are_any() -> None:
    cdc = AddCDCFile(path="c", partition_values={}, size=4, data_change=False)
    info = CommitInfo(operation="UPDATE", in_commit_timestamp=99).json
    found = commit(info, add("b").json, cdc.json, remove("a").json, metadata().json)
    assert [row["path"] for row in found.files.rows] == ["c"]
    assert found.files.kinds == ("cdc",)
    assert found.files.timestamp_ms == 99
    assert found.tells_changes
    assert found.metadata is not None


def test_a_merge_that_changed_no_row_tells_nothing() -> None:
    names = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
    for value, told in (("0", []), ("1", ["a", "b"])):
        metrics = {**dict.fromkeys(names, "0"), names[1]: value}
        info = CommitInfo(operation="MERGE", operation_metrics=metrics).json
        found = commit(info, remove("a").json, add("b").json)
        assert [row["path"] for row in found.files.rows] == told
