from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delta.errors import VersionNotFoundError
from pyspark_delta.kernel.protocol.commit_times import (
    CommitWindow,
    enablement_properties,
    format_commit_time,
    monotonic,
    next_in_commit_timestamp,
    parse_commit_time,
    parse_path_time,
    search_window,
    version_at,
    version_from,
)

COMMITS = [(3, 1000), (4, 2000), (5, 3000)]
NEW_YEAR = 1704067200000  # 2024-01-01T00:00:00Z


def test_a_commits_time_is_now_but_after_the_one_before() -> None:
    assert next_in_commit_timestamp(100, None) == 100
    assert next_in_commit_timestamp(100, 50) == 100
    assert next_in_commit_timestamp(100, 100) == 101
    assert next_in_commit_timestamp(100, 500) == 501


def test_file_times_are_made_to_increase() -> None:
    assert monotonic([]) == []
    assert monotonic([(0, 5), (1, 5), (2, 3), (3, 100)]) == [(0, 5), (1, 6), (2, 7), (3, 100)]


@given(st.lists(st.integers(0, 20), max_size=20))
def test_adjusted_times_increase_and_never_go_back(times: list[int]) -> None:
    commits = list(enumerate(times))
    adjusted = monotonic(commits)
    assert all(a[1] < b[1] for a, b in pairwise(adjusted))
    assert all(new[1] >= old[1] for new, old in zip(adjusted, commits, strict=True))


@pytest.mark.parametrize(
    ("time", "version"), [(1000, 3), (1999, 3), (2000, 4), (2500, 4), (3000, 5)]
)
def test_a_time_means_the_version_that_was_newest_then(time: int, version: int) -> None:
    assert version_at(COMMITS, time) == version


def test_a_time_before_the_log_is_refused() -> None:
    with pytest.raises(VersionNotFoundError) as caught:
        version_at(COMMITS, 999)
    assert caught.value.condition == "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION"
    assert caught.value.parameters == {
        "userTimestamp": "1970-01-01 00:00:00.999",
        "commitTs": "1970-01-01 00:00:01",
        "timestampString": "1970-01-01 00:00:01",
    }
    assert version_at(COMMITS, 999, can_return_earliest=True) == 3


def test_a_time_after_the_last_commit_is_refused_unless_it_may_be_returned() -> None:
    with pytest.raises(VersionNotFoundError) as caught:
        version_at(COMMITS, 3001, zone="+01:00")
    assert caught.value.condition == "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"
    assert caught.value.parameters == {
        "providedTimestamp": "1970-01-01 01:00:03.001",
        "lastCommitTimestamp": "1970-01-01 01:00:03",
        "maximumTimestamp": "1970-01-01 01:00:03",
    }
    assert version_at(COMMITS, 3001, can_return_last=True) == 5


def test_the_last_commit_of_a_part_of_the_log_is_not_the_tables_last() -> None:
    assert version_at(COMMITS, 9999, latest=6) == 5


def test_a_log_without_commits_has_no_version_at_any_time() -> None:
    with pytest.raises(VersionNotFoundError) as caught:
        version_at([], 5)
    assert caught.value.condition == "DELTA_NO_COMMITS_FOUND"


@pytest.mark.parametrize(
    ("time", "version"), [(0, 3), (1000, 3), (1001, 4), (2000, 4), (2001, 5), (3000, 5)]
)
def test_a_start_means_the_first_version_at_its_time_or_after_it(time: int, version: int) -> None:
    assert version_from(COMMITS, time) == version
    assert version_from(COMMITS, time, can_exceed_latest=True) == version


def test_a_start_after_the_last_commit_is_refused_or_means_the_next_version() -> None:
    with pytest.raises(VersionNotFoundError) as caught:
        version_from(COMMITS, 3001)
    assert caught.value.condition == "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"
    assert version_from(COMMITS, 3001, can_exceed_latest=True) == 6
    assert version_from(COMMITS, 3001, latest=6) == 6


ICT = {"delta.enableInCommitTimestamps": "true"}
SWITCHED = {**ICT, **enablement_properties(10, 5000)}


@pytest.mark.parametrize(
    ("configuration", "time", "expected"),
    [
        ({}, 1, CommitWindow(first=2, last=20, in_commit=False)),
        (ICT, 1, CommitWindow(first=2, last=20, in_commit=True)),
        (SWITCHED, 5000, CommitWindow(first=10, last=20, in_commit=True)),
        (SWITCHED, 4999, CommitWindow(first=2, last=9, in_commit=False)),
        (
            {**ICT, **enablement_properties(2, 5000)},
            1,
            CommitWindow(first=2, last=20, in_commit=True),
        ),
    ],
)
def test_a_time_is_searched_on_one_side_of_the_switch(
    configuration: dict[str, str | None], time: int, expected: CommitWindow
) -> None:
    assert search_window(configuration, time, earliest=2, latest=20) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-01-01", NEW_YEAR),
        ("2024", NEW_YEAR),
        ("2024-1", NEW_YEAR),
        ("2024-1-1", NEW_YEAR),
        ("  2024-01-01  ", NEW_YEAR),
        ("2024-01-01 00:00:00", NEW_YEAR),
        ("2024-01-01T00:00:00Z", NEW_YEAR),
        ("2024-01-01 00:00", NEW_YEAR),
        ("2024-01-01 00:00:00.1", NEW_YEAR + 100),
        ("2024-01-01 00:00:00.123", NEW_YEAR + 123),
        ("2024-01-01 00:00:00.123999", NEW_YEAR + 123),
        ("2024-01-01T05:30:00+05:30", NEW_YEAR),
        ("2024-01-01 05:30:00 +05:30", NEW_YEAR),
        ("2024-01-01T02:00:00+2", NEW_YEAR),
        ("2023-12-31T16:00:00-0800", NEW_YEAR),
        ("2024-01-01 01:00:00 Europe/Berlin", NEW_YEAR),
        ("2024-01-01 00:00:00 UTC", NEW_YEAR),
        ("2024-01-01 02:00:00 GMT+2", NEW_YEAR),
        ("1969-12-31 23:59:59.999", -1),
        ("0001-01-01", -62135596800000),
        ("9999-12-31 23:59:59.999", 253402300799999),
    ],
)
def test_a_users_text_is_a_time(text: str, expected: int) -> None:
    assert parse_commit_time(text) == expected


def test_text_without_a_zone_is_in_the_sessions() -> None:
    assert parse_commit_time("2024-01-01", "America/Los_Angeles") == NEW_YEAR + 8 * 3_600_000
    assert parse_commit_time("2024-01-01 00:00:00Z", "America/Los_Angeles") == NEW_YEAR


def test_times_around_a_clock_change_are_read_as_java_reads_them() -> None:
    # 02:30 does not exist on that day: it is 03:30 by the later offset.
    gap = parse_commit_time("2024-03-31 02:30:00", "Europe/Berlin")
    assert gap == parse_commit_time("2024-03-31 01:30:00Z")
    # 02:30 exists twice: the first one counts.
    overlap = parse_commit_time("2024-10-27 02:30:00", "Europe/Berlin")
    assert overlap == parse_commit_time("2024-10-27 00:30:00Z")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2024-13-01",
        "2024-02-30",
        "2024-01-01 25:00:00",
        "2024-01-01 00:00:61",
        "2024-01-01 00:00:00 Mars/Olympus",
        "2024-01-01 00:00:00 ../../etc/passwd",
        "2024-01-01 00:00:00+19:00",
        "2024-01-01 00:00:00+01:99",
        "0000-01-01",
        "٢٠٢٤-01-01",
        "2024-01-01 00:00:00." + "1" * 50,
        "9" * 10_000,
    ],
)
def test_text_that_is_no_time_is_a_typed_error(text: str) -> None:
    with pytest.raises(VersionNotFoundError) as caught:
        parse_commit_time(text)
    assert caught.value.condition == "DELTA_TIMESTAMP_INVALID"
    assert len(str(caught.value)) < 300


def test_text_that_is_no_time_is_told_as_sql_has_it() -> None:
    with pytest.raises(VersionNotFoundError) as caught:
        parse_commit_time("it's \\ noon")
    assert caught.value.parameters == {"expr": r"'it\'s \\ noon'"}


@given(st.text(max_size=40), st.text(max_size=10))
def test_any_text_is_a_time_or_a_typed_error(text: str, zone: str) -> None:
    for candidate in (text, f"2024-01-01 00:00:00 {text}"):
        with suppress(VersionNotFoundError):
            assert isinstance(parse_commit_time(candidate, zone), int)


@given(st.integers(-62135596800000, 253402300799999))
def test_a_shown_time_is_read_back(time: int) -> None:
    assert parse_commit_time(format_commit_time(time)) == time


def test_a_path_carries_a_time_in_digits() -> None:
    assert parse_path_time("20240101000000123") == NEW_YEAR + 123
    for text in ("2024", "20240101000000123x", "v3", "20241301000000000"):
        with pytest.raises(VersionNotFoundError) as caught:
            parse_path_time(text)
        assert caught.value.condition in (
            "DELTA_INVALID_TIMESTAMP_FORMAT",
            "DELTA_TIMESTAMP_INVALID",
        )


def test_a_time_outside_of_the_calendar_is_still_shown() -> None:
    assert format_commit_time(10**18) == f"{10**18} ms"
    assert format_commit_time(0, "Nowhere/Land") == "0 ms"
