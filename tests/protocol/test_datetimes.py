"""Dates and timestamps over their whole range."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delta.kernel.protocol.datetimes import (
    civil_from_days,
    days_from_civil,
    format_date,
    format_timestamp,
    micros_of,
    parse_date,
    parse_timestamp,
)
from tests.support.zones import zone

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOST_MICROS = 2**63 - 1


@given(st.dates())
def test_the_calendar_is_pythons_where_python_has_one(day: date) -> None:
    days = day.toordinal() - date(1970, 1, 1).toordinal()
    assert days_from_civil(day.year, day.month, day.day) == days
    assert civil_from_days(days) == (day.year, day.month, day.day)
    assert parse_date(day.isoformat()) == days
    assert format_date(days) == day.isoformat()


@given(st.integers(-(2**31), 2**31 - 1))
def test_every_date_of_32_bits_reads_back(days: int) -> None:
    assert parse_date(format_date(days)) == days


@given(st.integers(-(2**63), MOST_MICROS))
def test_every_timestamp_of_64_bits_reads_back(micros: int) -> None:
    for separator, digits in (("T", 6), (" ", None)):
        text = format_timestamp(micros, separator=separator, fraction_digits=digits)
        assert parse_timestamp(text) == micros
        assert parse_timestamp(text, None) == micros


@given(st.datetimes(timezones=st.just(UTC)))
def test_timestamps_are_pythons_where_python_has_them(moment: datetime) -> None:
    micros = (moment - EPOCH) // timedelta(microseconds=1)
    assert micros_of(moment) == micros
    assert parse_timestamp(moment.isoformat()) == micros


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("1970-01-01", 0),
        ("0001-01-01", -719162),
        ("0000-02-29", -719469),
        ("-0001-12-31", -719529),
        ("9999-12-31", 2932896),
        ("+10000-01-01", 2932897),
        ("2024-2-29", 19782),
    ],
)
def test_dates_are_read(text: str, days: int) -> None:
    assert parse_date(text) == days


@pytest.mark.parametrize(
    "text",
    [
        *("", "1970", "1970-01", "1970-13-01", "1970-00-01", "1970-01-32", "1970-04-31"),
        *("2023-02-29", "1900-02-29", "70-01-01", "1970/01/01", "1970-01-01 ", "today"),
        *("9999999-01-01", "-9999999-01-01", "٢٠٢٠-٠١-٠١", "1970-01-01T00:00:00"),
    ],
)
def test_what_is_no_date_is_none(text: str) -> None:
    assert parse_date(text) is None


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01 00:00:00", 0),
        ("1970-01-01 00:00:00.123456", 123456),
        ("1970-01-01 00:00:00.5", 500000),
        ("1970-01-01 00:00:00.123456789", 123456),
        ("1970-01-01T00:00:00.123456Z", 123456),
        ("1970-01-01 00:00:00Z", 0),
        ("1970-01-01T00:00:00+01:00", -3_600_000_000),
        ("1970-01-01T00:00:00-0130", 5_400_000_000),
        ("1850-01-01T00:00:00-07:52:58", -3786797222000000),
        ("1970-01-01", 0),
        ("1969-12-31 23:59:59.999999", -1),
    ],
)
def test_timestamps_are_read_in_both_forms(text: str, micros: int) -> None:
    assert parse_timestamp(text) == micros


@pytest.mark.parametrize(
    "text",
    [
        *("", "1970-01-01 ", "1970-01-01 24:00:00", "1970-01-01 00:60:00", "1970-01-01 00:00:60"),
        *("1970-02-30 00:00:00", "1970-01-01 00:00", "1970-01-01T00:00:00+19:00"),
        *("1970-01-01T00:00:00+01:60", "1970-01-01T00:00:00.Z", "1970-01-01Z", "0"),
        *("+300000-01-01 00:00:00", "-300000-01-01 00:00:00", "1970-01-01 00:00:00 UTC"),
    ],
)
def test_what_is_no_timestamp_is_none(text: str) -> None:
    assert parse_timestamp(text) is None


def test_a_timestamp_without_zone_takes_no_offset() -> None:
    assert parse_timestamp("1970-01-01 00:00:01", None) == 1_000_000
    assert parse_timestamp("1970-01-01 00:00:01Z", None) is None


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2021-07-01 00:00:00", "2021-06-30T22:00:00Z"),
        ("2021-01-01 00:00:00", "2020-12-31T23:00:00Z"),
        # Clocks go from 2 to 3: a time that does not exist moves on.
        ("2021-03-28 02:30:00", "2021-03-28T01:30:00Z"),
        # Clocks go from 3 to 2: the first of both.
        ("2021-10-31 02:30:00", "2021-10-31T00:30:00Z"),
        # 400 years are one turn of the calendar.
        ("+12021-07-01 00:00:00", "+12021-06-30T22:00:00Z"),
        # Text that says its offset is not moved.
        ("2021-07-01T00:00:00Z", "2021-07-01T00:00:00Z"),
    ],
)
def test_local_time_is_read_in_the_zone_of_its_writer(text: str, instant: str) -> None:
    assert parse_timestamp(text, zone("Europe/Berlin")) == parse_timestamp(instant)


def test_zones_reach_beyond_the_years_of_python() -> None:
    ahead = timezone(timedelta(hours=2))
    assert parse_timestamp("-0005-01-01 02:00:00", ahead) == parse_timestamp(
        "-0005-01-01T00:00:00Z"
    )


@pytest.mark.parametrize(
    ("digits", "expected"),
    [
        (None, "1970-01-01 00:00:01.5"),
        (0, "1970-01-01 00:00:01"),
        (3, "1970-01-01 00:00:01.500"),
        (6, "1970-01-01 00:00:01.500000"),
    ],
)
def test_fractions_have_the_digits_asked_for(digits: int | None, expected: str) -> None:
    assert format_timestamp(1_500_000, separator=" ", fraction_digits=digits) == expected


def test_whole_seconds_have_no_fraction_unless_asked_for() -> None:
    assert format_timestamp(0, separator=" ", fraction_digits=None) == "1970-01-01 00:00:00"
