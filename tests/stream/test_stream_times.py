"""What a stream of changes tells as the time of a commit: what a batch read tells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delta.errors import FileMissingError
from pyspark_delta.kernel.log.history import COMMITS_BEFORE
from pyspark_delta.kernel.ops.changes.commits import CommitTimes
from pyspark_delta.kernel.ops.changes.feed import commit_files
from pyspark_delta.kernel.ops.stream.run import StreamRun
from pyspark_delta.kernel.protocol.actions import CommitInfo, Protocol
from pyspark_delta.kernel.protocol.commit_times import format_commit_time
from pyspark_delta.kernel.protocol.paths import commit_path
from pyspark_delta.kernel.storage.base import FileInfo
from pyspark_delta.kernel.storage.memory import MemoryStore
from tests.support.log_builder import LogBuilder, add, metadata
from tests.support.stream_runs import drained, log_of, offset, run_of

RECORDING = {"delta.enableChangeDataFeed": "true"}
TIMES = (5000, 4000, 4500, 9000)
RISING = {0: 5000, 1: 5001, 2: 5002, 3: 9000}


class TimedStore(MemoryStore):
    """A store whose files have the time that is set, and that counts its listings."""

    def __init__(self) -> None:
        super().__init__(now_ms=lambda: self.time_ms)
        self.time_ms = 0
        self.listings = 0

    def list_from(self, start: str) -> list[FileInfo]:
        self.listings += 1
        return super().list_from(start)


class TimedTable(LogBuilder):
    """A table that records its changes: each version has one file, and its commit a given time."""

    store: TimedStore

    def __init__(self, times: Iterable[int] = ()) -> None:
        super().__init__(TimedStore())
        for time in times:
            self.then(time)

    def then(self, time_ms: int) -> TimedTable:
        """The next version."""
        self.store.time_ms = time_ms
        file = add(str(self.version + 1))
        if self.version < 0:
            self.create(file, metadata_action=metadata(configuration=RECORDING))
        else:
            self.commit(file)
        return self


def feed_of(table: LogBuilder, **settings: Any) -> StreamRun:
    return run_of(table, reads_changes=True, **settings)


def told(run: StreamRun, start: str | None = None) -> dict[int, int]:
    """The time of each version of a stream."""
    found: dict[int, int] = {}
    while (end := run.latest_offset(start)) not in (None, start):
        assert end is not None
        found.update((each.version, each.timestamp_ms) for each in run.batch(start, end))
        start = end
    return found


def in_batch(table: LogBuilder, start: int) -> dict[int, int]:
    """The time of each version from `start` on, as a batch read tells it."""
    commits = commit_files(log_of(table), start, table.version)
    return {file.version: time for file, _, time in commits}


@pytest.mark.parametrize("limit", [1, 3, None])
def test_times_rise_where_those_of_files_do_not(limit: int | None) -> None:
    table = TimedTable(TIMES)
    for start in range(4):
        found = told(feed_of(table, starting_version=start, max_files=limit))
        assert found == in_batch(table, start)
        assert found == {version: RISING[version] for version in range(start, 4)}


def test_the_table_that_comes_first_has_the_time_of_its_commit() -> None:
    table = TimedTable(TIMES[:3])
    run = feed_of(table)
    assert told(run) == {2: 5002}
    table.then(TIMES[3])
    table.then(8000)
    assert told(run, offset(3)) == {3: 9000, 4: 9001}
    assert told(feed_of(table), offset(2, 0, is_initial=True)) == {2: 5002, 3: 9000, 4: 9001}


def test_a_batch_that_another_run_asks_for_again_has_the_same_times() -> None:
    table = TimedTable(TIMES)
    batches = drained(feed_of(table, max_files=1, starting_version=0))
    assert len(batches) == 4
    starts: list[str | None] = [None, *(end for _, end in batches)]
    for version, (start, (_, end)) in enumerate(zip(starts, batches, strict=False)):
        again = feed_of(table, max_files=1, starting_version=0).batch(start, end)
        assert {each.version: each.timestamp_ms for each in again} == {version: RISING[version]}


def test_a_stream_that_starts_at_a_time_it_was_told_begins_with_that_commit() -> None:
    table = TimedTable(TIMES)
    for version, time in RISING.items():
        text = format_commit_time(time)
        assert min(told(feed_of(table, starting_timestamp=text))) == version
        assert log_of(table).version_from(time) == version


def test_times_inside_of_commits_stay_as_they_are() -> None:
    table = LogBuilder(TimedStore())
    own = metadata(configuration={**RECORDING, "delta.enableInCommitTimestamps": "true"})
    protocol = Protocol(
        min_reader_version=1, min_writer_version=7, writer_features=("inCommitTimestamp",)
    )
    table.commit(CommitInfo(in_commit_timestamp=70).json, protocol, own, add("0"))
    table.commit(CommitInfo(in_commit_timestamp=71).json, add("1"))
    assert told(feed_of(table, starting_version=0)) == {0: 70, 1: 71}
    run = feed_of(table)
    assert told(run) == {1: 71}
    table.commit(CommitInfo(in_commit_timestamp=75).json, add("2"))
    assert told(run, offset(2)) == {2: 75}


def test_commits_behind_a_gap_are_later_than_those_before_it() -> None:
    table = TimedTable([1000, 9000, 2000, 3000])
    table.store.time_ms = 2500
    table.commit(metadata(configuration=RECORDING), Protocol(), add("4"))
    run = feed_of(table, starting_version=0, max_files=2, fail_on_data_loss=False)
    assert run.latest_offset(None) == offset(2)
    table.store.delete(commit_path(2))
    assert told(run, offset(2)) == {3: 9001, 4: 9002}


def test_a_stream_that_follows_its_table_does_not_list_the_log_for_each_commit() -> None:
    table = TimedTable([1000])
    run = feed_of(table, starting_version=0)
    start = run.latest_offset(None)
    listings = table.store.listings
    for time in range(2000, 2000 + 10 * 2 * COMMITS_BEFORE, 10):
        for file_time, expected in ((time, time), (time - 500, time + 1)):
            table.then(file_time)
            end = run.latest_offset(start)
            assert end is not None
            assert [each.timestamp_ms for each in run.batch(start, end)] == [expected]
            start = end
    assert table.store.listings == listings


@pytest.mark.parametrize(("start", "expected"), [(100, 10_100), (101, 1100)])
def test_only_so_many_commits_before_a_batch_have_a_say_in_its_times(
    start: int, expected: int
) -> None:
    table = TimedTable([10_000, *[1000] * (COMMITS_BEFORE + 1)])
    assert in_batch(table, start)[start] == expected
    assert told(feed_of(table, starting_version=start))[start] == expected


@given(
    times=st.lists(st.integers(0, 30), min_size=1, max_size=12),
    starts=st.lists(st.integers(0, 11), min_size=1, max_size=6),
)
def test_wherever_batches_begin_their_times_are_those_of_a_batch_read(
    times: Sequence[int], starts: Sequence[int]
) -> None:
    table = TimedTable(times)
    commit_times = CommitTimes(table.store)
    for start in starts:
        start = min(start, table.version)
        commit_times.begin_batch(start)
        expected = in_batch(table, start)
        assert {version: commit_times.time_of(version) for version in expected} == expected


def test_a_batch_may_begin_long_before_the_last_commit_that_was_read() -> None:
    table = TimedTable([5000, 4000, *range(6000, 6000 + 5 * COMMITS_BEFORE)])
    times = CommitTimes(table.store)
    for start in (0, 1, 300, 0, 1):
        times.begin_batch(start)
        expected = in_batch(table, start)
        assert {version: times.time_of(version) for version in expected} == expected
    with pytest.raises(FileMissingError):
        times.time_of(table.version + 1)
