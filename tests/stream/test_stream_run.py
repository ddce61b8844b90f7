"""A run of a stream, without Spark: which files come between which offsets."""

from __future__ import annotations

import json
import re
import tracemalloc
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delta.errors import (
    DeltaError,
    FileMissingError,
    StreamError,
    UnsupportedProtocolError,
    VersionNotFoundError,
)
from pyspark_delta.kernel.ops.changes.commits import adds_table
from pyspark_delta.kernel.ops.changes.definitions import StreamDefinition
from pyspark_delta.kernel.ops.stream.changes import StreamRules, StreamSettings
from pyspark_delta.kernel.ops.stream.run import StreamRun
from pyspark_delta.kernel.protocol.actions import CommitInfo, Metadata, Protocol
from pyspark_delta.kernel.protocol.paths import commit_path
from pyspark_delta.kernel.protocol.types import DOUBLE, LONG, STRING, StructField, StructType
from pyspark_delta.kernel.storage.memory import MemoryStore
from tests.support.log_builder import SCHEMA, LogBuilder, add, metadata, remove
from tests.support.stream_runs import definition_of, drained, log_of, offset, paths, run_of


@pytest.fixture
def builder() -> LogBuilder:
    """Version 0 with three files in no order, then one version each with 1, 2, 0 and 1 files."""
    builder = LogBuilder(MemoryStore())
    old = replace(add("b"), modification_time=5)
    builder.create(add("c"), add("a"), old)
    builder.commit(add("1"))
    builder.commit(add("2x"), add("2y"))
    builder.commit(add("opt", data_change=False), remove("a", data_change=False))
    return builder.commit(add("4"))


def test_the_table_comes_first_by_time_and_path(builder: LogBuilder) -> None:
    run = run_of(builder, max_files=3)
    assert drained(run) == [
        (["b", "1", "2x"], offset(4, 2, is_initial=True)),
        (["2y", "4", "c"], offset(4, 5, is_initial=True)),
        (["opt"], offset(5)),
    ]
    builder.commit(add("5"))
    assert drained(run, offset(5)) == [(["5"], offset(6))]


def test_commits_come_in_their_order_and_are_parted_by_limits(builder: LogBuilder) -> None:
    run = run_of(builder, max_files=2, starting_version=1)
    assert drained(run) == [
        (["1", "2x"], offset(2, 0)),
        (["2y", "4"], offset(5)),
    ]
    sized = LogBuilder(MemoryStore()).create()
    sized.commit(add("a", size=10), add("b", size=10), add("c", size=1))
    run = run_of(sized, max_bytes=5, starting_version=1)
    assert [batch for batch, _ in drained(run)] == [["a"], ["b"], ["c"]]


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 100])
def test_a_batch_asked_for_again_is_the_same(builder: LogBuilder, limit: int) -> None:
    for first in ({}, {"starting_version": 0}):
        batches = drained(run_of(builder, max_files=limit, **first))
        starts: list[str | None] = [None, *(end for _, end in batches)]
        for start, (expected, end) in zip(starts, batches, strict=False):
            assert paths(run_of(builder, max_files=limit, **first).batch(start, end)) == expected


@given(
    commits=st.lists(st.lists(st.integers(1, 9), max_size=4), max_size=6),
    max_files=st.one_of(st.none(), st.integers(1, 5)),
    max_bytes=st.one_of(st.none(), st.integers(1, 30)),
    first=st.one_of(st.none(), st.integers(0, 2)),
)
def test_every_file_comes_once_and_no_batch_is_over_its_limits(
    commits: list[list[int]], max_files: int | None, max_bytes: int | None, first: int | None
) -> None:
    builder = LogBuilder(MemoryStore()).create(add("0", size=3))
    builder.commit(add("1", size=3)).commit()
    for version, sizes in enumerate(commits):
        builder.commit(*(add(f"{version}-{i}", size=size) for i, size in enumerate(sizes)))
    run = run_of(builder, max_files=max_files, max_bytes=max_bytes, starting_version=first)
    batches = drained(run)
    told = [path for batch, _ in batches for path in batch]
    expected = [f"{v}-{i}" for v, sizes in enumerate(commits) for i in range(len(sizes))]
    before = ["0", "1"][first or 0 :]
    assert sorted(told) == sorted([*before, *expected])
    sizes_by_path = {f"{v}-{i}": s for v, ss in enumerate(commits) for i, s in enumerate(ss)}
    for batch, _ in batches:
        assert len(batch) <= (max_files or 1000)
        sizes = [sizes_by_path.get(path, 3) for path in batch]
        assert max_bytes is None or sum(sizes[:-1]) < max_bytes


def test_without_a_limit_one_batch_holds_all(builder: LogBuilder) -> None:
    run = run_of(builder, max_files=1)
    end = run.latest_offset(None, is_limited=False)
    assert end == offset(5)
    assert len(run.batch(None, end)) == 1
    assert adds_table(run_of(builder).batch(None, end)).num_rows == 7


def test_a_run_that_ends_now_reads_nothing_that_comes_later(builder: LogBuilder) -> None:
    run = run_of(builder, max_files=4)
    run.end_now()
    first = run.latest_offset(None)
    assert first == offset(4, 3, is_initial=True)
    builder.commit(add("late"))
    assert drained(run, first) == [(["4", "c", "opt"], offset(5))]
    assert drained(run_of(builder), offset(5)) == [(["late"], offset(6))]


def test_versions_without_data_move_the_offset(builder: LogBuilder) -> None:
    assert run_of(builder).latest_offset(offset(3)) == offset(5)
    builder.commit(add("o", data_change=False))
    assert drained(run_of(builder), offset(5)) == [([], offset(6))]
    empty = LogBuilder(MemoryStore()).create()
    assert drained(run_of(empty)) == [([], offset(1))]


def test_a_stream_of_what_is_to_come_remembers_where_it_began(builder: LogBuilder) -> None:
    run = run_of(builder, starting_version="latest")
    assert run.latest_offset(None) == offset(5)
    assert run.batch(None, offset(5)) == []
    builder.commit(add("5"))
    assert drained(run_of(builder, starting_version="latest"), offset(5)) == [(["5"], offset(6))]


def test_a_starting_version_has_to_be_in_the_log(builder: LogBuilder) -> None:
    for version in (5, 99):
        with pytest.raises(VersionNotFoundError) as caught:
            run_of(builder, starting_version=version).latest_offset(None)
        assert caught.value.condition == "DELTA_VERSION_NOT_FOUND"
    assert drained(run_of(builder, starting_version=4)) == [(["4"], offset(5))]


def test_a_starting_version_whose_protocol_we_cannot_read_is_refused() -> None:
    unknown = Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=("quantum",),
        writer_features=("quantum",),
    )
    builder = LogBuilder(MemoryStore()).create(add("a"), protocol=unknown)
    builder.commit(Protocol(), add("b")).commit(add("c"))
    with pytest.raises(UnsupportedProtocolError):
        run_of(builder, starting_version=0).latest_offset(None)
    assert [batch for batch, _ in drained(run_of(builder, starting_version=1))] == [["b", "c"]]
    run = run_of(builder)
    builder.commit(unknown)
    with pytest.raises(UnsupportedProtocolError):
        run.latest_offset(offset(3))


def test_a_starting_time_is_that_of_the_first_commit_at_or_after_it() -> None:
    builder = LogBuilder(MemoryStore())
    times = (1_000_000, 2_000_000, 3_000_000)
    in_commit = {"delta.enableInCommitTimestamps": "true"}
    protocol = Protocol(
        min_reader_version=1, min_writer_version=7, writer_features=("inCommitTimestamp",)
    )
    stamp = [CommitInfo(in_commit_timestamp=time).json for time in times]
    builder.commit(stamp[0], protocol, metadata(configuration=in_commit), add("0"))
    builder.commit(stamp[1], add("1"))
    builder.commit(stamp[2], add("2"))

    def begun(time: str) -> list[str]:
        return [p for batch, _ in drained(run_of(builder, starting_timestamp=time)) for p in batch]

    assert begun("1970-01-01") == ["0", "1", "2"]
    assert begun("1970-01-01 00:33:20") == ["1", "2"]
    assert begun("1970-01-01 00:33:20.001") == ["2"]
    assert begun("1970-01-01 00:50:00") == ["2"]
    with pytest.raises(VersionNotFoundError) as caught:
        begun("1970-01-01 00:50:00.001")
    assert caught.value.condition == "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"
    with pytest.raises(DeltaError) as refused:
        begun("some day")
    assert refused.value.condition == "DELTA_TIMESTAMP_INVALID"


@pytest.mark.parametrize(
    ("rules", "on_delete", "on_change"),
    [
        ({}, "DELTA_SOURCE_IGNORE_DELETE", "DELTA_SOURCE_TABLE_IGNORE_CHANGES"),
        ({"ignore_deletes": True}, ["e"], "DELTA_SOURCE_TABLE_IGNORE_CHANGES"),
        ({"ignore_changes": True}, ["e"], ["n", "e"]),
        ({"skip_change_commits": True}, ["e"], ["e"]),
    ],
)
def test_rules_say_what_to_do_with_removed_and_changed_rows(
    rules: dict[str, bool], on_delete: list[str] | str, on_change: list[str] | str
) -> None:
    info = CommitInfo(operation="UPDATE", operation_parameters={"predicate": "x"}).json
    for actions, expected in (
        ([remove("a")], on_delete),
        ([info, remove("a"), add("n")], on_change),
    ):
        builder = LogBuilder(MemoryStore()).create(add("a")).commit(*actions).commit(add("e"))
        run = run_of(builder, starting_version=1, rules=StreamRules(**rules))
        if isinstance(expected, list):
            assert [path for batch, _ in drained(run) for path in batch] == expected
            continue
        with pytest.raises(StreamError) as caught:
            run.latest_offset(None)
        assert caught.value.condition == expected
        assert caught.value.parameters["version"] == "1"
    assert expected != "DELTA_SOURCE_TABLE_IGNORE_CHANGES" or (
        caught.value.parameters["changeInfo"].startswith("UPDATE")
    )


def test_excluded_files_count_but_do_not_come(builder: LogBuilder) -> None:
    run = run_of(builder, max_files=2, starting_version=1, excluded=re.compile("^2x|^1"))
    assert [batch for batch, _ in drained(run)] == [[], ["2y", "4"]]
    initial = run_of(builder, excluded=re.compile("^[a-c]"))
    assert drained(initial)[0][0] == ["1", "2x", "2y", "4", "opt"]


# What may happen to a log under a stream.


def test_a_gap_in_the_log_stops_the_stream_or_is_passed_over(builder: LogBuilder) -> None:
    builder.store.delete(commit_path(2))
    builder.store.delete(commit_path(3))
    builder.store.delete(commit_path(0))
    builder.store.delete(commit_path(1))
    builder.commit(metadata(), Protocol())
    definition = StreamDefinition(metadata=metadata(), protocol=Protocol(), version=5)
    log = log_of(builder)
    with pytest.raises(StreamError) as caught:
        StreamRun(log, StreamSettings(), definition).latest_offset(offset(2))
    assert caught.value.condition == "DELTA_MISSING_FILES_UNEXPECTED_VERSION"
    assert caught.value.parameters["earliestVersion"] == "4"
    lenient = StreamRun(log, StreamSettings(fail_on_data_loss=False), definition)
    assert drained(lenient, offset(2)) == [(["4"], offset(6))]
    # A batch that was begun: its last commit may be among those that are gone.
    strict = StreamRun(log, StreamSettings(), definition)
    for end, left in ((offset(4), []), (offset(5), ["4"])):
        assert paths(lenient.batch(offset(2), end)) == left
        with pytest.raises(StreamError):
            strict.batch(offset(2), end)


def test_a_single_commit_that_is_gone_is_found(builder: LogBuilder) -> None:
    definition = definition_of(log_of(builder))
    builder.store.delete(commit_path(2))
    with pytest.raises(StreamError) as caught:
        StreamRun(log_of(builder), StreamSettings(), definition).latest_offset(offset(2))
    assert caught.value.condition == "DELTA_MISSING_FILES_UNEXPECTED_VERSION"


def test_a_log_that_ends_before_the_offset_is_refused(builder: LogBuilder) -> None:
    with pytest.raises(StreamError) as caught:
        run_of(builder).latest_offset(offset(9))
    assert caught.value.condition == "DELTA_STREAMING_TRAILING_COMMIT_MISSING"
    assert caught.value.parameters["seenVersion"] == "4"
    assert run_of(builder).latest_offset(offset(5)) == offset(5)


def test_a_log_that_is_deleted_stops_a_running_stream(builder: LogBuilder) -> None:
    run = run_of(builder)
    assert run.latest_offset(offset(5)) == offset(5)
    for version in range(5):
        builder.store.delete(commit_path(version))
    with pytest.raises(StreamError) as caught:
        run.latest_offset(offset(5))
    assert caught.value.condition == "DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE"


def test_another_table_at_the_same_place_is_refused(builder: LogBuilder) -> None:
    run = run_of(builder)
    assert run.latest_offset(offset(5)) == offset(5)
    other = metadata(table_id="another")
    for version in range(5):
        builder.store.delete(commit_path(version))
    anew = LogBuilder(builder.store).create(metadata_action=other)
    for number in range(4):
        anew.commit(add(f"other {number}", size=77))
    with pytest.raises(StreamError) as caught:
        run.latest_offset(offset(5))
    assert caught.value.condition == "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE"


def test_a_first_version_that_is_gone_is_refused(builder: LogBuilder) -> None:
    with pytest.raises(StreamError) as caught:
        run_of(builder).batch(None, offset(9, 3, is_initial=True))
    assert caught.value.condition == "DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE"


# What may happen to a schema.


def with_columns(*fields: StructField) -> Metadata:
    return metadata(StructType((*SCHEMA.fields, *fields)))


def test_a_new_column_stops_a_stream_until_it_is_restarted(builder: LogBuilder) -> None:
    run = run_of(builder)
    builder.commit(with_columns(StructField("w", LONG))).commit(add("6"))
    with pytest.raises(StreamError) as caught:
        run.latest_offset(offset(4))
    assert caught.value.condition == "DELTA_SCHEMA_CHANGED_WITH_VERSION"
    assert caught.value.parameters["version"] == "5"
    assert [batch for batch, _ in drained(run_of(builder), offset(4))] == [["4", "6"]]


def test_other_changes_stop_a_stream_for_good(builder: LogBuilder) -> None:
    run = run_of(builder, starting_version=1)
    builder.commit(metadata(StructType((StructField("id", DOUBLE), StructField("v", STRING)))))
    for each in (run, run_of(builder, starting_version=1)):
        with pytest.raises(StreamError) as caught:
            each.latest_offset(offset(4))
        assert caught.value.condition == "DELTA_SCHEMA_CHANGED_WITH_VERSION"
    dropped = LogBuilder(MemoryStore()).create(add("a"))
    dropped.commit(metadata(StructType((StructField("id", LONG),))))
    with pytest.raises(StreamError):
        run_of(dropped, starting_version=0).latest_offset(None)


def test_properties_and_comments_stop_nothing(builder: LogBuilder) -> None:
    run = run_of(builder)
    commented = StructType((replace(SCHEMA["id"], metadata={"comment": "x"}), SCHEMA["v"]))
    builder.commit(metadata(commented, configuration={"delta.appendOnly": "true"})).commit(add("6"))
    assert [batch for batch, _ in drained(run, offset(5))] == [["6"]]


def test_a_table_that_changed_since_the_query_was_made_is_refused(builder: LogBuilder) -> None:
    run = run_of(builder)
    builder.commit(with_columns(StructField("w", LONG)))
    with pytest.raises(StreamError) as caught:
        run.latest_offset(None)
    assert caught.value.condition == "DELTA_STREAMING_SCHEMA_MISMATCH_ON_RESTART"


def test_a_renamed_column_asks_for_a_schema_log() -> None:
    mapped = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"}
    protocol = Protocol(min_reader_version=2, min_writer_version=5)

    def named(name: str) -> Metadata:
        keys = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "x"}
        return metadata(StructType((StructField(name, LONG, metadata=keys),)), configuration=mapped)

    builder = LogBuilder(MemoryStore()).create(protocol=protocol, metadata_action=named("a"))
    run = run_of(builder)
    builder.commit(named("b")).commit(add("f"))
    for each in (run, run_of(builder)):
        with pytest.raises(StreamError) as caught:
            each.latest_offset(offset(1) if each is run else offset(0, 0))
        condition = "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE_USE_SCHEMA_LOG"
        assert caught.value.condition == condition
    lenient = run_of(builder, is_lenient=True)
    assert [batch for batch, _ in drained(lenient)] == [["f"]]


def test_a_large_commit_is_read_as_a_small_one_is(builder: LogBuilder) -> None:
    stats = json.dumps({"numRecords": 1, "minValues": {"v": "x" * 100}})
    files = [add(f"f{i:05d}", stats=stats, size=i + 1) for i in range(4000)]
    builder.commit(CommitInfo(operation="WRITE").json, *files, add("no", data_change=False))
    run = run_of(builder, max_files=1500)
    found = drained(run, offset(5))
    assert [len(batch) for batch, _ in found] == [1500, 1500, 1000]
    assert [path for batch, _ in found for path in batch] == [file.path for file in files]
    assert found[0][1] == offset(5, 1499)
    runs = run_of(builder).batch(offset(5, 10), offset(5, 12))
    assert paths(runs) == ["f00011", "f00012"]
    assert adds_table(runs).column("size").to_pylist() == [12, 13]


class LateStore(MemoryStore):
    """A store where a commit appears, with the one behind it, right after it was missed."""

    late: tuple[bytes, bytes] | None = None

    def read(self, path: str) -> bytes:
        try:
            return super().read(path)
        except FileMissingError:
            if self.late is not None and path == commit_path(1):
                first, second = self.late
                self.late = None
                self.create(commit_path(1), first)
                self.create(commit_path(2), second)
            raise


def test_commits_that_come_while_the_end_is_looked_for_are_no_gap() -> None:
    store = LateStore()
    run = run_of(LogBuilder(store).create())
    assert run.latest_offset(offset(1)) == offset(1)
    store.late = (add("1").json.encode(), add("2").json.encode())
    assert drained(run, offset(1)) == [(["1", "2"], offset(3))]


# What a run costs.


def peak_of(count: int, **settings: Any) -> int:
    """The most memory that a run over so many commits takes once it has begun, in bytes.

    To begin with a version, the log is listed once.
    """
    recording = metadata(configuration={"delta.enableChangeDataFeed": "true"})
    builder = LogBuilder(MemoryStore()).create(metadata_action=recording)
    stats = json.dumps({"numRecords": 1, "minValues": {"v": "x" * 50}})
    for number in range(count):
        builder.commit(*(add(f"{number}-{i}", stats=stats) for i in range(2)))
    run = run_of(builder, max_files=10, starting_version=0, **settings)
    run.end_now()
    start = run.latest_offset(None)
    tracemalloc.start()
    arrow = pa.total_allocated_bytes()
    try:
        for _ in range(count):
            end = run.latest_offset(start)
            if end == start:
                break
            assert end is not None
            run.batch(start, end)
            run.commit(end)
            start = end
        assert start == offset(count + 1)
        grown: int = pa.total_allocated_bytes() - arrow
        return tracemalloc.get_traced_memory()[1] + grown
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("settings", [{}, {"reads_changes": True}])
def test_a_long_log_takes_no_more_memory_than_a_short_one(settings: dict[str, bool]) -> None:
    assert peak_of(600, **settings) < peak_of(50, **settings) + 100_000
