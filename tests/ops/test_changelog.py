"""Changes by row tracking, without Spark: which files, with which ids, and what cannot be told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyspark_delta.errors import ChangeFeedError
from pyspark_delta.kernel.log.table_log import TableLog
from pyspark_delta.kernel.ops.changes.feed import RangeChanges, read_changelog
from pyspark_delta.kernel.ops.changes.files import MARK, ChangeMark
from pyspark_delta.kernel.protocol.actions import (
    AddCDCFile,
    AddFile,
    Metadata,
    Protocol,
    RemoveFile,
)
from pyspark_delta.kernel.protocol.deletion_vectors import (
    DeletionVector,
    inline_descriptor,
    read_deletion_vector,
)
from pyspark_delta.kernel.protocol.features import is_supported
from pyspark_delta.kernel.protocol.types import INTEGER, LONG, STRING, StructField, StructType
from pyspark_delta.kernel.storage.memory import MemoryStore
from tests.support.log_builder import LogBuilder, add, metadata, remove

ON = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": "_row-id-col-1",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit-version-col-1",
}
FEATURES = ("deletionVectors", "rowTracking", "domainMetadata")
TRACKING = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors",),
    writer_features=FEATURES,
)
SCHEMA = StructType((StructField("id", LONG), StructField("v", STRING)))


def tracked(schema: StructType = SCHEMA, *, is_on: bool = True) -> Metadata:
    return metadata(schema, (), ON if is_on else {**ON, "delta.enableRowTracking": "false"})


def came(path: str, first: int, version: int, *rows: int, data_change: bool = True) -> AddFile:
    """A file, some rows of which are deleted."""
    vector = inline_descriptor(DeletionVector(rows)) if rows else None
    return replace(
        add(path),
        base_row_id=first,
        default_row_commit_version=version,
        deletion_vector=vector,
        data_change=data_change,
    )


def went(path: str, first: int, version: int, *rows: int) -> RemoveFile:
    vector = inline_descriptor(DeletionVector(rows)) if rows else None
    return replace(
        remove(path, partition_values={}),
        size=1,
        base_row_id=first,
        default_row_commit_version=version,
        deletion_vector=vector,
    )


@pytest.fixture
def builder() -> LogBuilder:
    """A file comes, rows of it are written anew, and then one is deleted by a vector."""
    builder = LogBuilder(MemoryStore())
    builder.create(came("a", 0, 0), protocol=TRACKING, metadata_action=tracked())
    builder.commit(went("a", 0, 0), came("b", 10, 1), AddCDCFile(path="c", size=1))
    builder.commit(went("b", 10, 1), came("b", 10, 1, 3))
    return builder


def changelog(
    builder: LogBuilder, start: int, end: int, *, has_copies: bool = False
) -> RangeChanges:
    log = TableLog(builder.store)
    first, last = log.snapshot_at(version=start), log.snapshot_at(version=end)
    return read_changelog(log, first, last, read_deletion_vector, name="t", has_copies=has_copies)


def told(found: RangeChanges) -> list[tuple[str, ChangeMark]]:
    files = found.files.data_files
    paths, numbers = files.column("path").to_pylist(), files.column(MARK).to_pylist()
    return [
        (path, replace(found.files.marks[number], timestamp_ms=0))
        for path, number in zip(paths, numbers, strict=True)
    ]


def test_files_come_with_what_ids_are_made_of(builder: LogBuilder) -> None:
    found = changelog(builder, 0, 1)
    assert told(found) == [
        (
            "a",
            ChangeMark(
                version=0,
                timestamp_ms=0,
                change_type="insert",
                keeps_rows=False,
                base_row_id=0,
                row_version=0,
            ),
        ),
        (
            "a",
            ChangeMark(
                version=1,
                timestamp_ms=0,
                change_type="delete",
                keeps_rows=False,
                base_row_id=0,
                row_version=0,
            ),
        ),
        (
            "b",
            ChangeMark(
                version=1,
                timestamp_ms=0,
                change_type="insert",
                keeps_rows=False,
                base_row_id=10,
                row_version=1,
            ),
        ),
    ]
    assert found.files.change_files.num_rows == 0
    assert found.has_pairs
    assert not changelog(builder, 0, 0).has_pairs


def test_a_vector_tells_its_rows_unless_copies_are_wanted(builder: LogBuilder) -> None:
    (one,) = told(changelog(builder, 2, 2))
    assert one == (
        "b",
        ChangeMark(
            version=2,
            timestamp_ms=0,
            change_type="delete",
            keeps_rows=True,
            base_row_id=10,
            row_version=1,
        ),
    )
    both = told(changelog(builder, 2, 2, has_copies=True))
    assert [(mark.change_type, mark.keeps_rows) for _, mark in both] == [
        ("delete", False),
        ("insert", False),
    ]


def test_files_that_only_moved_are_no_changes(builder: LogBuilder) -> None:
    builder.commit(
        replace(went("b", 10, 1, 3), data_change=False), came("d", 20, 3, data_change=False)
    )
    assert told(changelog(builder, 3, 3)) == []


def test_vectors_are_read_although_the_table_has_dropped_them(builder: LogBuilder) -> None:
    without = replace(TRACKING, min_reader_version=1, reader_features=None)
    builder.commit(replace(without, writer_features=FEATURES[1:]))  # version 3
    found = changelog(builder, 2, 3)
    assert told(found) == [
        (
            "b",
            ChangeMark(
                version=2,
                timestamp_ms=0,
                change_type="delete",
                keeps_rows=True,
                base_row_id=10,
                row_version=1,
            ),
        )
    ]
    assert is_supported(found.read_as.protocol, "deletionVectors")
    assert (found.start, found.read_as.version) == (2, 3)
    assert not is_supported(changelog(builder, 3, 3).read_as.protocol, "deletionVectors")


def refused(builder: LogBuilder, start: int, end: int) -> tuple[str, dict[str, object]]:
    with pytest.raises(ChangeFeedError) as error:
        changelog(builder, start, end)
    return error.value.condition, dict(error.value.parameters)


def test_rows_must_be_tracked_all_along(builder: LogBuilder) -> None:
    builder.commit(tracked(is_on=False))  # version 3
    builder.commit(came("e", 30, 4))
    builder.commit(tracked())
    disabled = "DELTA_CHANGELOG_ROW_TRACKING_DISABLED_IN_RANGE"
    assert refused(builder, 2, 5) == (disabled, {"version": "3"})
    assert refused(builder, 2, 4) == (disabled, {"version": "4"})
    assert refused(builder, 4, 5) == (
        "DELTA_CHANGELOG_REQUIRES_ROW_TRACKING",
        {"tableName": "t"},
    )
    assert told(changelog(builder, 5, 5)) == []


def test_one_schema_must_fit_all_files(builder: LogBuilder) -> None:
    builder.commit(tracked(SCHEMA.add(StructField("more", LONG))))  # version 3
    assert len(told(changelog(builder, 0, 3))) == 4
    other = StructType((StructField("id", LONG), StructField("v", INTEGER)))
    builder.commit(tracked(other))
    changed = "DELTA_CHANGELOG_SCHEMA_CHANGE_IN_RANGE"
    assert refused(builder, 2, 4) == (changed, {"version": "2"})
