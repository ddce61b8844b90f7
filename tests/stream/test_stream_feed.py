"""A stream of changes, without Spark: its offsets are delta-spark's, entry by entry."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from pyspark_delta.errors import ChangeFeedError
from pyspark_delta.kernel.ops.changes.commits import FileRun
from pyspark_delta.kernel.ops.stream.run import StreamRun
from pyspark_delta.kernel.protocol.action_parts import DeletionVectorDescriptor
from pyspark_delta.kernel.protocol.actions import Action, AddCDCFile, CommitInfo
from pyspark_delta.kernel.protocol.paths import commit_path
from pyspark_delta.kernel.storage.memory import MemoryStore
from tests.support.log_builder import LogBuilder, add, metadata, remove
from tests.support.stream_runs import drained, offset, paths, run_of

VECTOR = DeletionVectorDescriptor(
    storage_type="i", path_or_inline_dv="x", size_in_bytes=1, cardinality=1
)
RECORDING = metadata(configuration={"delta.enableChangeDataFeed": "true"})
FEED = ["a", "b", "1x", "1y", "b", "b", "b", "5x", "5y", "a", "6"]


def cdc(path: str, size: int = 1) -> AddCDCFile:
    return AddCDCFile(path=path, partition_values={}, size=size, data_change=False)


def rewritten(path: str) -> list[Action]:
    """A commit that gives a file a deletion vector."""
    return [remove(path), replace(add(path), deletion_vector=VECTOR)]


def table_of(*actions: Action, store: MemoryStore | None = None) -> LogBuilder:
    """A table that records its changes."""
    return LogBuilder(store or MemoryStore()).create(*actions, metadata_action=RECORDING)


def feed_of(builder: LogBuilder, **settings: Any) -> StreamRun:
    return run_of(builder, reads_changes=True, **settings)


@pytest.fixture
def builder() -> LogBuilder:
    """Version 0 with two files."""
    return table_of(add("a"), add("b"))


def test_a_commit_that_tells_its_changes_ends_at_its_last_file(builder: LogBuilder) -> None:
    run = feed_of(builder, max_files=2)
    assert drained(run) == [(["a", "b"], offset(1))]
    builder.commit(cdc("1x"), cdc("1y"), add("n"), remove("a"))
    assert drained(run, offset(1)) == [(["1x", "1y"], offset(1, 1))]
    # Nothing is left of version 1, and nothing comes of it again.
    assert run.latest_offset(offset(1, 1)) == offset(1, 1)
    assert feed_of(builder, max_files=2).latest_offset(offset(1, 1)) == offset(1, 1)
    builder.commit(add("2"))
    for each in (run, feed_of(builder, max_files=2)):
        assert drained(each, offset(1, 1)) == [(["2"], offset(3))]


def test_with_room_left_the_next_version_begins(builder: LogBuilder) -> None:
    builder.commit(cdc("1")).commit(cdc("2x"), cdc("2y")).commit(add("3x"), add("3y"))
    run = feed_of(builder, max_files=2, starting_version=1)
    # Version 2 does not fit, and has no entry before its files that could be taken.
    assert drained(run) == [
        (["1"], offset(1, 0)),
        (["2x", "2y"], offset(2, 1)),
        (["3x", "3y"], offset(4)),
    ]
    run = feed_of(builder, max_files=4, starting_version=1)
    assert drained(run) == [(["1", "2x", "2y", "3x"], offset(3, 0)), (["3y"], offset(4))]


def test_without_a_limit_a_version_is_read_to_its_end(builder: LogBuilder) -> None:
    builder.commit(cdc("1x"), cdc("1y"))
    run = feed_of(builder, max_files=1, starting_version=0)
    assert run.latest_offset(None, is_limited=False) == offset(2)
    assert paths(run.batch(None, offset(2))) == ["a", "b", "1x", "1y"]
    assert run.latest_offset(offset(1, 1), is_limited=False) == offset(2)


def test_a_run_that_ends_now_ends_at_change_files_too(builder: LogBuilder) -> None:
    builder.commit(cdc("1"))
    run = feed_of(builder, max_files=1, starting_version=1)
    run.end_now()
    assert drained(run) == [(["1"], offset(1, 0))]
    builder.commit(cdc("2"))
    assert run.latest_offset(offset(1, 0)) == offset(1, 0)
    assert drained(feed_of(builder, max_files=1), offset(1, 0)) == [(["2"], offset(2, 0))]


def test_the_first_commit_of_a_batch_is_taken_however_large(builder: LogBuilder) -> None:
    builder.commit(cdc("1x", 50), cdc("1y", 50)).commit(cdc("2", 50))
    for limits in ({"max_files": 1}, {"max_bytes": 60}):
        run = feed_of(builder, starting_version=1, **limits)
        assert drained(run) == [(["1x", "1y"], offset(1, 1)), (["2"], offset(2, 0))]


def test_a_commit_without_files_comes_before_one_too_large(builder: LogBuilder) -> None:
    builder.commit().commit(cdc("2x"), cdc("2y"))
    run = feed_of(builder, max_files=1, starting_version=1)
    assert drained(run) == [([], offset(2)), (["2x", "2y"], offset(2, 1))]


def test_a_batch_without_room_does_not_look_further(builder: LogBuilder) -> None:
    builder.commit(add("1")).commit().commit()
    rows = run_of(builder, max_files=1, starting_version=1)
    assert drained(rows) == [(["1"], offset(4))]
    feed = feed_of(builder, max_files=1, starting_version=1)
    assert drained(feed) == [(["1"], offset(2)), ([], offset(4))]


def test_files_with_vectors_stay_together_and_end_behind_their_version(builder: LogBuilder) -> None:
    builder.commit(*rewritten("a")).commit(*rewritten("b")).commit(add("3"))
    run = feed_of(builder, max_files=1, starting_version=1)
    assert drained(run) == [
        (["a", "a"], offset(2)),
        (["b", "b"], offset(3)),
        (["3"], offset(4)),
    ]


@pytest.mark.parametrize(("max_files", "ends"), [(6, [2, 4]), (7, [3, 4]), (8, [4])])
def test_marks_around_files_with_vectors_count_as_files(
    builder: LogBuilder, max_files: int, ends: list[int]
) -> None:
    # Two files and the end of version 1; two files, the beginning and the end of version 2.
    builder.commit(*rewritten("a")).commit(*rewritten("b")).commit(add("3"))
    run = feed_of(builder, max_files=max_files, starting_version=1)
    assert [end for _, end in drained(run)] == [offset(version) for version in ends]


def test_a_merge_that_changed_nothing_has_only_its_marks(builder: LogBuilder) -> None:
    names = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
    info = CommitInfo(operation="MERGE", operation_metrics=dict.fromkeys(names, "0")).json
    builder.commit(info, remove("a"), add("n")).commit(info, *rewritten("n")).commit(add("3"))
    run = feed_of(builder, max_files=1, starting_version=1)
    assert drained(run) == [([], offset(2)), ([], offset(3)), (["3"], offset(4))]


def test_excluded_files_take_no_room(builder: LogBuilder) -> None:
    builder.commit(add("1x"), add("1"), add("1y"), add("1z"))
    builder.commit(cdc("2"), cdc("2x")).commit(cdc("3x")).commit(add("4"))
    feed = {"excluded": re.compile("[xyb]"), "max_files": 1}
    assert drained(feed_of(builder, **feed), offset(1)) == [
        (["1"], offset(1, 1)),
        (["1z"], offset(2)),
        (["2"], offset(2, 0)),
        (["4"], offset(5)),
    ]
    initial = table_of(add("a"), add("b"), add("c"))
    assert drained(feed_of(initial, **feed)) == [
        (["a"], offset(0, 0, is_initial=True)),
        (["c"], offset(1)),
    ]


def test_a_feed_asked_for_again_is_the_same(builder: LogBuilder) -> None:
    builder.commit(cdc("1x"), cdc("1y")).commit(*rewritten("b")).commit().commit(remove("b"))
    builder.commit(add("5x"), add("5y"), remove("a")).commit(cdc("6"))
    for limit in (1, 2, 3, 5, 100):
        for first, expected in (({}, ["5x", "5y", "b"]), ({"starting_version": 0}, FEED)):
            batches = drained(feed_of(builder, max_files=limit, **first))
            starts: list[str | None] = [None, *(end for _, end in batches)]
            for start, (batch, end) in zip(starts, batches, strict=False):
                again = feed_of(builder, max_files=limit, **first).batch(start, end)
                assert paths(again) == batch
            assert [path for batch, _ in batches for path in batch] == expected


class CountingStore(MemoryStore):
    """Counts how often commits are read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    def read(self, path: str) -> bytes:
        self.reads.append(path)
        return super().read(path)


def test_an_idle_stream_does_not_read_its_last_commit_again() -> None:
    store = CountingStore()
    builder = table_of(store=store).commit(cdc("1"))
    run = feed_of(builder, max_files=1, starting_version=1)
    assert run.latest_offset(None) == offset(1, 0)
    runs: list[FileRun] = run.batch(None, offset(1, 0))
    assert paths(runs) == ["1"]
    store.reads.clear()
    for _ in range(3):
        assert run.latest_offset(offset(1, 0)) == offset(1, 0)
    assert commit_path(1) not in store.reads


def test_changes_must_have_been_recorded(builder: LogBuilder) -> None:
    silent = LogBuilder(MemoryStore()).create(add("a")).commit(add("1"))
    for settings in ({}, {"starting_version": 0}, {"starting_version": 1}):
        with pytest.raises(ChangeFeedError) as caught:
            feed_of(silent, **settings).latest_offset(None)
        assert caught.value.condition == "DELTA_MISSING_CHANGE_DATA"
        assert caught.value.parameters["version"] == str(settings.get("starting_version", 1))
    # From where they are, and as long as they are.
    silent.commit(RECORDING).commit(add("3"))
    assert drained(feed_of(silent, starting_version=2)) == [(["3"], offset(4))]
    run = feed_of(builder)
    assert drained(run) == [(["a", "b"], offset(1))]
    builder.commit(metadata())
    with pytest.raises(ChangeFeedError) as caught:
        run.latest_offset(offset(1))
    assert caught.value.parameters["version"] == "1"


@pytest.mark.parametrize("is_limited", [True, False])
def test_all_that_was_recorded_comes_before_the_commit_that_ends_it(is_limited: bool) -> None:
    builder = table_of(add("a")).commit(add("1")).commit(cdc("2x"), cdc("2y"))
    builder.commit(metadata()).commit(add("4"))
    run = feed_of(builder)
    end = run.latest_offset(offset(1), is_limited=is_limited)
    assert end == (offset(2, 1) if is_limited else offset(3))
    assert paths(run.batch(offset(1), end)) == ["1", "2x", "2y"]
    for each in (run, feed_of(builder)):
        with pytest.raises(ChangeFeedError) as caught:
            each.latest_offset(end, is_limited=is_limited)
        assert caught.value.condition == "DELTA_MISSING_CHANGE_DATA"
        assert caught.value.parameters["version"] == "3"
    # A run that begins asks for its last batch again.
    assert paths(feed_of(builder).batch(offset(1), end)) == ["1", "2x", "2y"]


def test_the_table_a_stream_begins_with_comes_before_the_feed_ends(builder: LogBuilder) -> None:
    run = feed_of(builder)
    begun = run.latest_offset(None)
    builder.commit(metadata())
    again = feed_of(builder)
    assert begun == offset(1)
    assert paths(again.batch(None, begun)) == ["a", "b"]
    assert again.latest_offset(offset(0, 0, is_initial=True)) == offset(1)
    with pytest.raises(ChangeFeedError):
        again.latest_offset(begun)


def test_a_batch_given_out_behind_the_end_of_the_feed_is_refused(builder: LogBuilder) -> None:
    builder.commit(add("1")).commit(metadata()).commit(add("3"))
    with pytest.raises(ChangeFeedError) as caught:
        feed_of(builder).batch(offset(1), offset(4))
    assert caught.value.parameters["version"] == "2"
