"""Files of changes, as a scan takes them: marks, vectors, and what a log must tell of a file."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from pyspark_delta.errors import ChangeFeedError
from pyspark_delta.kernel.log.frames.file_actions import add_table, remove_table
from pyspark_delta.kernel.ops.changes.commits import ChangeKind, FileRun
from pyspark_delta.kernel.ops.changes.files import (
    MARK,
    ChangedFiles,
    ChangeMark,
    changed_rows,
)
from pyspark_delta.kernel.protocol.action_parts import DeletionVectorDescriptor
from pyspark_delta.kernel.protocol.deletion_vectors import (
    DeletionVector,
    inline_descriptor,
    read_deletion_vector,
)
from pyspark_delta.kernel.scan.locations import descriptor_of
from tests.support.log_builder import add, remove


def file(path: str, gone: list[int] | None = None, **more: Any) -> dict[str, Any]:
    row = {"path": path, "size": 1, "partitionValues": {}, "stats": json.dumps({"of": path})}
    row |= more
    if gone is not None:
        row["deletionVector"] = inline_descriptor(DeletionVector(gone)).to_json_value()
    return row


def vector_of(row: dict[str, Any]) -> DeletionVector:
    descriptor = descriptor_of(row.get("deletionVector"))
    return DeletionVector() if descriptor is None else read_deletion_vector(descriptor)


def changed(*, is_partitioned: bool = False, has_stats: bool = True) -> ChangedFiles:
    return ChangedFiles(
        read=read_deletion_vector, is_partitioned=is_partitioned, has_stats=has_stats
    )


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
@pytest.mark.parametrize("is_added_first", [False, True])
def test_only_rows_in_one_of_two_vectors_changed(
    before: list[int] | None,
    after: list[int] | None,
    told: dict[str, list[int]],
    is_added_first: bool,
) -> None:
    files: list[tuple[ChangeKind, dict[str, Any]]] = [
        ("remove", file("f", before, stats="old")),
        ("add", file("f", after, stats="new")),
    ]
    files = [*(reversed(files) if is_added_first else files), ("add", file("g", [4]))]
    found: dict[str, list[int]] = {}
    for kind, row, keeps_rows in changed_rows(files, vector_of):
        descriptor = descriptor_of(row["deletionVector"])
        assert descriptor is not None
        rows = list(read_deletion_vector(descriptor).rows_between(0, 10))
        if row["path"] == "g":
            assert (kind, keeps_rows, rows) == ("add", False, [4])
        else:
            found[kind] = rows
            assert keeps_rows
            # Statistics of what is live cover the rows that were live on that side.
            assert row["stats"] == ("old" if kind == "remove" else "new")
    assert found == told


def test_every_file_has_the_mark_of_what_its_rows_did() -> None:
    files = changed()
    files.take(
        FileRun(version=1, rows=[file("a"), file("b")], kinds=("add", "remove"), timestamp_ms=10)
    )
    files.take(
        FileRun(
            version=2,
            rows=[file("c"), file("d"), file("e")],
            kinds=("cdc", "cdc", "cdc"),
            timestamp_ms=20,
        )
    )
    files.take(
        FileRun(
            version=3, rows=[file("a"), file("a", [1])], kinds=("remove", "add"), timestamp_ms=30
        )
    )
    files.take(
        FileRun(version=3, rows=add_table([add("f"), add("g")]), kinds=None, timestamp_ms=30)
    )
    files.take(FileRun(version=4, rows=remove_table([remove("h")]), kind="remove", timestamp_ms=40))

    def marks(table: Any) -> list[tuple[str, ChangeMark]]:
        columns = (table.column(name).to_pylist() for name in ("path", MARK))
        found = [(path, files.marks[mark]) for path, mark in zip(*columns, strict=True)]
        return sorted(found, key=repr)

    assert marks(files.data_files) == [
        ("a", ChangeMark(version=1, timestamp_ms=10, change_type="insert")),
        ("a", ChangeMark(version=3, timestamp_ms=30, change_type="delete", keeps_rows=True)),
        ("b", ChangeMark(version=1, timestamp_ms=10, change_type="delete")),
        ("f", ChangeMark(version=3, timestamp_ms=30, change_type="insert")),
        ("g", ChangeMark(version=3, timestamp_ms=30, change_type="insert")),
        ("h", ChangeMark(version=4, timestamp_ms=40, change_type="delete")),
    ]
    assert marks(files.change_files) == [
        (path, ChangeMark(version=2, timestamp_ms=20, change_type=None)) for path in "cde"
    ]
    assert len(files.marks) == 6
    assert json.loads(files.data_files.column("stats").to_pylist()[-1]) == {"of": "a"}


def test_a_vector_is_read_once_although_two_versions_tell_it() -> None:
    asked: list[DeletionVectorDescriptor] = []

    def read(descriptor: DeletionVectorDescriptor) -> DeletionVector:
        asked.append(descriptor)
        return read_deletion_vector(descriptor)

    files = ChangedFiles(read=read, is_partitioned=False)
    for version in range(1, 6):
        old, new = (file("f", list(range(count)) or None) for count in (version - 1, version))
        files.take(FileRun(version=version, rows=[old, new], kinds=("remove", "add")))
    assert len(asked) == 5
    assert files.data_files.num_rows == 5


def test_statistics_are_left_out_where_nobody_skips() -> None:
    files = changed(has_stats=False)
    files.take(FileRun(version=1, rows=[file("a")], kinds=("add",)))
    files.take(FileRun(version=1, rows=add_table([add("b", stats="{}")])))
    assert files.data_files.column("stats").to_pylist() == [None, None]


def test_a_removed_file_has_the_statistics_that_it_came_with() -> None:
    files = changed()
    own, brief = '{"minValues":{}}', '{"numRecords":2}'
    files.take(FileRun(version=1, rows=[file("a", stats=own)], kinds=("add",)))
    files.take(
        FileRun(
            version=2,
            rows=[file("a", stats=brief), file("b", stats=brief)],
            kinds=("remove", "remove"),
        )
    )
    files.take(FileRun(version=3, rows=[file("c", stats=own)], kinds=("add",)))
    files.take(
        FileRun(version=4, rows=[file("c", stats=brief), file("c", [1])], kinds=("remove", "add"))
    )
    rows = files.data_files.select(["path", "stats"]).to_pylist()
    assert [(row["path"], row["stats"]) for row in rows] == [
        ("a", own),
        ("a", own),
        ("b", brief),
        ("c", own),
        ("c", own),
    ]


@pytest.mark.parametrize("missing", ["size", "partitionValues"])
def test_a_removed_file_that_is_described_too_briefly_is_refused(missing: str) -> None:
    brief = {key: value for key, value in file("ä").items() if key != missing}
    with pytest.raises(ChangeFeedError) as caught:
        changed(is_partitioned=True).take(
            FileRun(version=1, rows=[file("b"), brief], kinds=("add", "remove"))
        )
    assert caught.value.condition == "DELTA_REMOVE_FILE_CDC_MISSING_EXTENDED_METADATA"
    assert caught.value.parameters["file"] == "ä"
    whole = remove("ä")
    briefly = (
        replace(whole, size=None) if missing == "size" else replace(whole, partition_values=None)
    )
    with pytest.raises(ChangeFeedError, match="ä"):
        changed(is_partitioned=True).take(
            FileRun(version=1, rows=remove_table([remove("b"), briefly]), kind="remove")
        )


def test_partition_values_are_not_missed_where_there_are_no_partitions() -> None:
    brief = {"path": "a", "size": 1}
    files = changed()
    files.take(FileRun(version=1, rows=[brief], kinds=("remove",)))
    assert files.data_files.num_rows == 1
