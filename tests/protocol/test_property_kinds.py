from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delta.errors import PropertyError
from pyspark_delta.kernel.protocol.property_kinds import Interval, interval_ms, parse_interval

DAY = 86_400_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("interval 30 days", 30 * DAY),
        ("30 days", 30 * DAY),
        ("INTERVAL 1 Week", 7 * DAY),
        ("interval\t2  weeks 1 day", 15 * DAY),
        ("interval 24 hours", DAY),
        ("interval 90 minutes", 5_400_000),
        ("interval 1 second", 1000),
        ("interval 1.5 seconds", 1500),
        ("interval .25 second", 250),
        ("interval 5 milliseconds", 5),
        ("interval 5999 microseconds", 5),
        ("interval 2 days -1 hour", 2 * DAY - 3_600_000),
        ("interval - 1 day", -DAY),
        ("interval +1 day", DAY),
        ("interval 0 hours", 0),
        ("  interval 1 day  ", DAY),
        ("interval 1 day+2 hours", DAY + 7_200_000),
    ],
)
def test_an_interval_is_read_as_spark_reads_it(text: str, expected: int) -> None:
    assert interval_ms(text) == expected


def test_months_and_years_are_kept_apart_from_days() -> None:
    assert parse_interval("interval 1 year 2 months 3 days") == Interval(months=14, days=3)


@pytest.mark.parametrize("text", ["interval 1 month", "2 years", "interval 1 year 1 day"])
def test_a_span_of_months_has_no_fixed_length(text: str) -> None:
    with pytest.raises(PropertyError) as caught:
        interval_ms(text)
    assert caught.value.condition == "DELTA_INVALID_INTERVAL"


@pytest.mark.parametrize("text", ["", "   ", "\t\n"])
def test_an_empty_interval_is_refused(text: str) -> None:
    with pytest.raises(PropertyError) as caught:
        parse_interval(text)
    assert caught.value.condition == "DELTA_INVALID_CALENDAR_INTERVAL_EMPTY"


@pytest.mark.parametrize(
    "text",
    [
        "interval",
        "1",
        "day",
        "interval day",
        "interval 1 fortnight",
        "interval 1.5 days",
        "interval . seconds",
        "interval 1day",
        "interval 1 day foo",
        "interval 1 dayss",
        "interval 99999999999999999999 days",
        "interval 9999999999999 days",
        "interval ٣ days",
        "9" * 5000 + " days",
    ],
)
def test_text_that_is_no_interval_is_refused(text: str) -> None:
    with pytest.raises(PropertyError) as caught:
        interval_ms(text)
    assert caught.value.condition == "DELTA_INVALID_INTERVAL"
    assert len(str(caught.value)) < 300


@given(st.text(max_size=60))
def test_any_text_gives_a_length_or_a_typed_error(text: str) -> None:
    with suppress(PropertyError):
        assert isinstance(interval_ms(text), int)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**9))
def test_parts_of_an_interval_add_up(weeks: int, days: int, millis: int) -> None:
    text = f"interval {weeks} weeks {days} days {millis} milliseconds"
    assert interval_ms(text) == (weeks * 7 + days) * DAY + millis
