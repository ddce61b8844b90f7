"""A range of changes, without Spark: which versions, which files, and what cannot be told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from pyspark_delta.errors import (
    ChangeFeedError,
    DeltaError,
    UnsupportedProtocolError,
    VersionNotFoundError,
)
from pyspark_delta.kernel.log.table_log import TableLog
from pyspark_delta.kernel.ops.changes import feed as change_feed
from pyspark_delta.kernel.ops.changes.feed import (
    ChangeBounds,
    RangeChanges,
    SchemaMode,
    no_changes,
    read_feed,
)
from pyspark_delta.kernel.ops.changes.files import MARK
from pyspark_delta.kernel.protocol.action_parts import DeletionVectorDescriptor
from pyspark_delta.kernel.protocol.actions import (
    AddCDCFile,
    CommitInfo,
    Metadata,
    Protocol,
)
from pyspark_delta.kernel.protocol.column_mapping import MODE_KEY
from pyspark_delta.kernel.protocol.deletion_vectors import (
    DeletionVector,
    inline_descriptor,
    read_deletion_vector,
)
from pyspark_delta.kernel.protocol.features import is_supported
from pyspark_delta.kernel.protocol.paths import commit_path
from pyspark_delta.kernel.protocol.types import (
    INTEGER,
    LONG,
    STRING,
    StructField,
    StructType,
)
from pyspark_delta.kernel.storage.memory import MemoryStore
from tests.support.clock import FrozenClock
from tests.support.log_builder import LogBuilder, add, metadata, remove

ON = {"delta.enableChangeDataFeed": "true"}
ID, V = StructField("id", LONG), StructField("v", STRING)
VECTORS = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors",),
    writer_features=("deletionVectors",),
)


def recorded(
    *fields: StructField,
    partition_columns: tuple[str, ...] = (),
    configuration: Mapping[str, str] = ON,
) -> Metadata:
    schema = StructType(fields or (ID, V))
    return metadata(schema, partition_columns, {**ON, **configuration})


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock(start_ms=1000)


@pytest.fixture
def builder(clock: FrozenClock) -> LogBuilder:
    """Versions 0 to 3, made at 1000, 2000, 3000 and 4000 ms, each with one file of its number."""
    builder = LogBuilder(MemoryStore(now_ms=clock))
    builder.create(add("0"), metadata_action=recorded())
    for number in range(1, 4):
        clock.advance(seconds=1)
        builder.commit(add(str(number)))
    return builder


def feed(builder: LogBuilder, start: int = 0, end: int | None = None, **more: Any) -> RangeChanges:
    log = TableLog(builder.store)
    newest = log.update()
    last = newest.version if end is None else end
    first = log.snapshot_at(version=start)
    return read_feed(log, first, last, newest, read_deletion_vector, **more)


def told(found: RangeChanges) -> list[tuple[str, str | None, int, int]]:
    """Path, kind, version and time of each file."""
    files = found.files
    return [
        (row["path"], mark.change_type, mark.version, mark.timestamp_ms)
        for table in (files.data_files, files.change_files)
        for row in table.select(["path", MARK]).to_pylist()
        for mark in [files.marks[row[MARK]]]
    ]


def versions(builder: LogBuilder, **bounds: Any) -> tuple[int, int] | None:
    log = TableLog(builder.store)
    return ChangeBounds(**bounds).versions(log, log.update().version)


def refused(builder: LogBuilder, **bounds: Any) -> str:
    with pytest.raises(DeltaError) as caught:
        versions(builder, **bounds)
    return caught.value.condition


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({"start_version": 1}, (1, 3)),
        ({"start_version": 0, "end_version": 0}, (0, 0)),
        ({"start_version": 2, "end_version": 99}, (2, 3)),
        ({"start_version": 3, "start_time": 0}, (3, 3)),
        ({"start_time": 0}, (0, 3)),
        ({"start_time": 2000, "end_time": 3000}, (1, 2)),
        ({"start_time": 2001, "end_time": 3999}, (2, 2)),
        ({"start_time": "1970-01-01 00:00:02", "end_version": 2}, (1, 2)),
        ({"start_time": "1970-01-01 01:00:02", "time_zone": "UTC+01:00"}, (1, 3)),
        ({"start_time": 2001, "end_time": 2999}, None),
        ({"start_version": 9, "is_tolerant": True}, None),
        ({"start_time": 9000, "is_tolerant": True}, None),
        ({"start_time": 4000, "end_time": 9000, "is_tolerant": True}, (3, 3)),
    ],
)
def test_both_ends_belong_to_a_range(
    builder: LogBuilder, bounds: dict[str, Any], expected: tuple[int, int] | None
) -> None:
    assert versions(builder, **bounds) == expected


@pytest.mark.parametrize(
    ("bounds", "condition"),
    [
        ({}, "DELTA_NO_START_FOR_CDC_READ"),
        ({"end_version": 1}, "DELTA_NO_START_FOR_CDC_READ"),
        ({"start_version": 4}, "DELTA_CDC_START_VERSION_AFTER_LATEST"),
        ({"start_version": 2, "end_version": 1}, "DELTA_INVALID_CDC_RANGE"),
        ({"start_version": 2, "end_time": 2000}, "DELTA_INVALID_CDC_RANGE"),
        ({"start_time": 2999, "end_time": 2001}, "DELTA_INVALID_CDC_RANGE"),
        ({"start_time": 4001}, "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"),
        ({"start_version": 0, "end_time": 4001}, "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"),
        ({"start_time": 0, "end_time": 999}, "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION"),
        ({"start_time": "noon"}, "DELTA_TIMESTAMP_INVALID"),
    ],
)
def test_a_range_that_means_nothing_is_refused(
    builder: LogBuilder, bounds: dict[str, Any], condition: str
) -> None:
    assert refused(builder, **bounds) == condition


def test_commits_are_told_by_change_files_or_else_by_adds_and_removes(
    builder: LogBuilder, clock: FrozenClock
) -> None:
    clock.advance(seconds=-2)  # file times are made to rise
    cdc = AddCDCFile(path="c", partition_values={}, size=4, data_change=False)
    builder.commit(remove("1"), add("4"), cdc)
    builder.commit(remove("2"), add("5"), add("opt", data_change=False))
    builder.commit(CommitInfo(in_commit_timestamp=77), add("6"))
    assert sorted(told(feed(builder, 3)), key=repr) == [
        ("2", "delete", 5, 4002),
        ("3", "insert", 3, 4000),
        ("5", "insert", 5, 4002),
        ("6", "insert", 6, 77),
        ("c", None, 4, 4001),
    ]


def test_a_large_commit_is_told_like_a_small_one(
    builder: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vector(*rows: int) -> DeletionVectorDescriptor:
        return inline_descriptor(DeletionVector(rows))

    builder.commit(VECTORS, recorded(ID, V, StructField("w", LONG)))
    builder.commit(
        CommitInfo(in_commit_timestamp=88),
        replace(remove("1"), size=5),
        replace(add("1"), deletion_vector=vector(1, 2)),
        replace(remove("2"), deletion_vector=vector(0)),
        add("n", stats='{"numRecords":1}'),
        add("opt", data_change=False),
    )
    no_op = dict.fromkeys(
        ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"), "0"
    )
    builder.commit(CommitInfo(operation="MERGE", operation_metrics=no_op), remove("3"), add("m"))
    small = feed(builder, 1)
    monkeypatch.setattr(change_feed, "LARGE_COMMIT_BYTES", 1)
    large = feed(builder, 1)
    assert sorted(told(large)) == sorted(told(small))
    assert {row[0] for row in told(large) if row[2] == 5} == {"1", "2", "n"}
    assert not [row for row in told(large) if row[2] == 6]
    assert sum(mark.keeps_rows for mark in large.files.marks) == 1
    assert large.read_as.metadata.schema.names == ("id", "v", "w")
    by_path = {
        row["path"]: row for row in large.files.data_files.to_pylist() if row["path"] in ("n", "2")
    }
    assert by_path["n"]["stats"] == '{"numRecords":1}'
    assert by_path["2"]["deletionVector"]["cardinality"] == 1


def test_every_version_of_the_range_must_have_been_recorded(builder: LogBuilder) -> None:
    builder.commit(recorded(configuration={"delta.enableChangeDataFeed": "false"}))
    builder.commit(add("5"))
    builder.commit(recorded())
    builder.commit(add("7"))
    for start, end, version in ((0, 7, 4), (4, 5, 4), (5, 7, 5)):
        with pytest.raises(ChangeFeedError) as caught:
            feed(builder, start, end)
        assert caught.value.condition == "DELTA_MISSING_CHANGE_DATA"
        assert caught.value.parameters["version"] == str(version)
    assert [row[0] for row in told(feed(builder, 0, 3))] == ["0", "1", "2", "3"]
    assert [row[0] for row in told(feed(builder, 6, 7))] == ["7"]


def test_a_commit_that_is_gone_is_missed(builder: LogBuilder) -> None:
    builder.store.delete(commit_path(2))
    log = TableLog(builder.store)
    start = TableLog(builder.store).snapshot_at(version=1)
    with pytest.raises(VersionNotFoundError) as caught:
        read_feed(log, start, 3, start, read_deletion_vector)
    assert caught.value.condition == "DELTA_VERSIONS_NOT_CONTIGUOUS"


def test_a_commit_that_asks_too_much_of_its_readers_is_refused(builder: LogBuilder) -> None:
    builder.commit(
        Protocol(
            min_reader_version=3,
            min_writer_version=7,
            reader_features=("madeUp",),
            writer_features=("madeUp",),
        )
    )
    log = TableLog(builder.store)
    start = log.snapshot_at(version=1)
    with pytest.raises(UnsupportedProtocolError):
        read_feed(log, start, 4, start, read_deletion_vector)


def test_vectors_are_read_although_the_table_has_dropped_them(builder: LogBuilder) -> None:
    builder.commit(VECTORS)
    builder.commit(Protocol())
    assert is_supported(feed(builder).read_as.protocol, "deletionVectors")
    assert feed(builder, 0, 3).read_as.protocol == Protocol()


def test_types_may_have_widened_since_the_table_dropped_vectors(clock: FrozenClock) -> None:
    builder = LogBuilder(MemoryStore(now_ms=clock))
    narrow = recorded(StructField("id", INTEGER))
    builder.create(add("0"), protocol=VECTORS, metadata_action=narrow)
    widening = ("typeWidening",)
    builder.commit(replace(VECTORS, reader_features=widening, writer_features=widening))
    builder.commit(recorded(ID))
    assert [row[0] for row in told(feed(builder))] == ["0"]
    assert feed(builder).read_as.metadata.schema.names == ("id",)


@pytest.mark.parametrize(
    ("before", "after", "start", "condition"),
    [
        # a column more: older rows have none
        ((ID,), (ID, V), 0, None),
        # another type, without type widening
        ((StructField("id", INTEGER),), (ID,), 0, "DATA_SCHEMA"),
        # one column less, another name
        ((ID, V), (ID,), 0, "DATA_SCHEMA"),
        ((ID, V), (ID, StructField("w", STRING)), 0, "DATA_SCHEMA"),
        # from the change on there is one schema
        ((ID, V), (ID,), 1, None),
    ],
)
def test_one_schema_must_fit_all_files(
    before: tuple[StructField, ...],
    after: tuple[StructField, ...],
    start: int,
    condition: str | None,
) -> None:
    builder = LogBuilder(MemoryStore())
    builder.create(add("0"), metadata_action=recorded(*before))
    builder.commit(recorded(*after), add("1"))
    if condition is None:
        assert feed(builder, start).read_as.metadata.schema == StructType(after)
        return
    with pytest.raises(ChangeFeedError) as caught:
        feed(builder, start)
    assert caught.value.condition == f"DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_{condition}"
    assert feed(builder, start, is_unsafe=True).read_as.version == 1
    with pytest.raises(ChangeFeedError):
        feed(builder, start, start)
    before_it = feed(builder, start, start, mode=SchemaMode.END_VERSION)
    assert before_it.read_as.metadata.schema == StructType(before)


def test_a_schema_in_the_middle_that_nobody_can_follow_is_named(builder: LogBuilder) -> None:
    builder.commit(recorded(ID))
    builder.commit(recorded(ID, V))
    assert feed(builder, 4).read_as.metadata.schema == StructType((ID, V))
    builder.commit(recorded(ID, StructField("v", LONG)))
    builder.commit(recorded(ID, V))
    with pytest.raises(ChangeFeedError) as caught:
        feed(builder, 5)
    assert caught.value.condition == "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE"
    assert caught.value.parameters["incompatibleVersion"] == "6"


def test_other_partitions_are_another_schema(builder: LogBuilder) -> None:
    builder.commit(recorded(partition_columns=("v",)))
    with pytest.raises(ChangeFeedError):
        feed(builder)
    assert feed(builder, 4).read_as.metadata.partition_columns == ("v",)


def test_wider_types_fit_where_the_table_widens(builder: LogBuilder) -> None:
    protocol = Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=("typeWidening",),
        writer_features=("typeWidening",),
    )
    changes = [{"fromType": "integer", "toType": "long"}]
    wide = StructField("id", LONG, metadata={"delta.typeChanges": changes})
    builder = LogBuilder(MemoryStore())
    builder.create(
        add("0"), protocol=protocol, metadata_action=recorded(StructField("id", INTEGER))
    )
    builder.commit(recorded(wide), add("1"))
    assert feed(builder).read_as.metadata.schema["id"].data_type == LONG
    assert feed(builder, 0, 0).read_as.version == 1


def mapped(name: str, number: int) -> StructField:
    keys = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
    return StructField(name, LONG, metadata=keys)


def test_mapped_columns_have_their_names_at_the_end_of_the_range() -> None:
    with_mapping = {MODE_KEY: "name"}
    builder = LogBuilder(MemoryStore())
    protocol = Protocol(min_reader_version=2, min_writer_version=5)

    def columns(*fields: StructField) -> Metadata:
        return recorded(*fields, configuration=with_mapping)

    builder.create(
        add("0"), protocol=protocol, metadata_action=columns(mapped("a", 1), mapped("b", 2))
    )
    builder.commit(add("1"))
    builder.commit(columns(mapped("x", 1), mapped("b", 2)))
    builder.commit(add("3"))
    assert feed(builder, 0, 1).read_as.metadata.schema.names == ("a", "b")
    assert feed(builder, 2).read_as.metadata.schema.names == ("x", "b")
    for mode in (SchemaMode.LATEST, SchemaMode.LEGACY):
        with pytest.raises(ChangeFeedError) as caught:
            feed(builder, 0, 1, mode=mode)
        assert caught.value.condition == "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA"
    with pytest.raises(ChangeFeedError):
        feed(builder)
    assert feed(builder, is_unsafe=True).read_as.metadata.schema.names == ("x", "b")
    # Names in older files are lost with the mapping.
    builder.commit(recorded(StructField("x", LONG), StructField("b", LONG)))
    with pytest.raises(ChangeFeedError):
        feed(builder, 3)


def test_a_feed_of_nothing_has_the_newest_columns(builder: LogBuilder) -> None:
    found = no_changes(TableLog(builder.store).update())
    assert told(found) == []
    assert found.read_as.metadata.schema.names == ("id", "v")
