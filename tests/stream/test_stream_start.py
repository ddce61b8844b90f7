"""Where a stream begins: by time in a log that was cleaned up, and behind the newest version."""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_delta.errors import VersionNotFoundError
from pyspark_delta.kernel.protocol.commit_times import format_commit_time
from pyspark_delta.kernel.storage.memory import MemoryStore
from tests.support.cleaned_logs import cleaned_log
from tests.support.clock import FrozenClock
from tests.support.log_builder import LogBuilder, add, metadata
from tests.support.stream_runs import drained, offset, run_of

RECORDING = metadata(configuration={"delta.enableChangeDataFeed": "true"})
KINDS = pytest.mark.parametrize("reads_changes", [False, True])


@pytest.fixture
def builder() -> LogBuilder:
    """Versions 0 and 1, made at 1000 and 2000 ms, each with a file of its number."""
    clock = FrozenClock(start_ms=1000)
    builder = LogBuilder(MemoryStore(now_ms=clock))
    builder.create(add("0"), metadata_action=RECORDING)
    clock.advance(seconds=1)
    return builder.commit(add("1"))


def refused(builder: LogBuilder, **settings: Any) -> str:
    with pytest.raises(VersionNotFoundError) as caught:
        run_of(builder, **settings).latest_offset(None)
    return caught.value.condition


@KINDS
@pytest.mark.parametrize(
    ("time_ms", "first"),
    [(0, 5), (5000, 5), (5001, 6), (7500, 8), (8000, 8), (8500, 9), (9001, 10), (12_000, 12)],
)
def test_a_starting_time_may_be_before_all_that_can_be_put_together(
    time_ms: int, first: int, reads_changes: bool
) -> None:
    log = cleaned_log()
    run = run_of(log, starting_timestamp=format_commit_time(time_ms), reads_changes=reads_changes)
    assert drained(run) == [([str(version) for version in range(first, 13)], offset(13))]


@KINDS
@pytest.mark.parametrize(
    ("asked", "condition"),
    [
        ({"starting_version": 2}, "DELTA_VERSION_NOT_FOUND"),
        ({"starting_timestamp": "1970-01-01 00:00:02.001"}, "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"),
        ({"starting_timestamp": "2999-01-01"}, "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"),
    ],
)
def test_a_start_behind_the_newest_version_is_refused_unless_it_may_wait(
    builder: LogBuilder, asked: dict[str, Any], condition: str, reads_changes: bool
) -> None:
    assert refused(builder, reads_changes=reads_changes, **asked) == condition
    run = run_of(builder, is_tolerant=True, reads_changes=reads_changes, **asked)
    for _ in range(2):
        assert run.latest_offset(None) is None
    builder.commit(add("2")).commit(add("3"))
    assert drained(run) == [(["2", "3"], offset(4))]


@KINDS
def test_a_stream_waits_for_the_version_it_was_told(
    builder: LogBuilder, reads_changes: bool
) -> None:
    run = run_of(builder, starting_version=4, is_tolerant=True, reads_changes=reads_changes)
    for number in (2, 3, 4):
        assert run.latest_offset(None) is None
        builder.commit(add(str(number)))
    assert drained(run) == [(["4"], offset(5))]
    again = run_of(builder, starting_version=4, is_tolerant=True, reads_changes=reads_changes)
    assert [len(each) for each in again.batch(None, offset(5))] == [1]


def test_a_run_that_ends_now_does_not_wait(builder: LogBuilder) -> None:
    for version in (2, 9):
        run = run_of(builder, starting_version=version, is_tolerant=True)
        run.end_now()
        assert run.latest_offset(None) is None
        builder.commit(add("late"))
        assert run.latest_offset(None) is None


def test_what_is_to_come_begins_behind_the_newest_version_either_way(builder: LogBuilder) -> None:
    run = run_of(builder, starting_version="latest", is_tolerant=True)
    assert run.latest_offset(None) == offset(2)


def test_a_version_that_is_gone_is_refused_however_tolerant_a_stream_is() -> None:
    for is_tolerant in (False, True):
        condition = refused(cleaned_log(), starting_version=4, is_tolerant=is_tolerant)
        assert condition == "DELTA_VERSION_NOT_FOUND"
