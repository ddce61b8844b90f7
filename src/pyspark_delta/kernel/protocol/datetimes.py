"""Dates and timestamps as whole numbers and as text, over their whole range.

A date is days since 1970-01-01, a timestamp microseconds since then: what Arrow and Parquet hold,
and more than Python's `datetime` does (a 64-bit timestamp reaches 290,000 years each way).  The
calendar is the proleptic Gregorian one, as Spark's is.  Text that is not a date or timestamp gives
None, and the caller raises with its context.  PROTOCOL.md, "Partition Value Serialization".

>>> parse_date("1969-12-31"), format_date(-719529)
(-1, '-0001-12-31')
>>> parse_timestamp("2021-09-08T11:11:11.5+02:00") == parse_timestamp("2021-09-08 09:11:11.500000")
True
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

MICROS_PER_SECOND = 1_000_000
MICROS_PER_DAY = 86_400 * MICROS_PER_SECOND

_DATE = r"(?P<year>[+-]?[0-9]{4,7})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2})"
_TIME = r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{1,2}):(?P<second>[0-9]{1,2})"
_OFFSET = r"Z|(?P<sign>[+-])(?P<off_h>[0-9]{2}):?(?P<off_m>[0-9]{2})(?::?(?P<off_s>[0-9]{2}))?"
_DATE_TEXT = re.compile(_DATE)
_TIMESTAMP_TEXT = re.compile(
    rf"{_DATE}(?:[ T]{_TIME}(?:\.(?P<fraction>[0-9]{{1,9}}))?(?P<offset>{_OFFSET})?)?"
)
_DAYS_IN_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
# The Gregorian calendar repeats after 400 years, which is this many days.
_CYCLE_YEARS = 400
_CYCLE_DAYS = 146_097


def parse_date(text: str) -> int | None:
    """Days since 1970-01-01; None when `text` is not a date, or one outside of 32 bits."""
    match = _DATE_TEXT.fullmatch(text)
    return None if match is None else _days(match)


def format_date(days: int) -> str:
    """`yyyy-MM-dd`; years of more than four digits and those before 0 have a sign."""
    year, month, day = civil_from_days(days)
    return f"{_year_text(year)}-{month:02d}-{day:02d}"


def parse_timestamp(text: str, zone: tzinfo | None = UTC) -> int | None:
    """Microseconds since 1970-01-01; None when `text` is not a timestamp, or out of range.

    Text without an offset is local time in `zone`.  With `zone` None the result is local time
    itself (a timestamp without time zone), and an offset makes no sense.  Digits after
    microseconds are truncated, as in Spark.
    """
    match = _TIMESTAMP_TEXT.fullmatch(text)
    if match is None or (zone is None and match["offset"]):
        return None
    days = _days(match)
    seconds = _seconds(match)
    if days is None or seconds is None:
        return None
    fraction = int((match["fraction"] or "").ljust(6, "0")[:6])
    local = (days * 86_400 + seconds) * MICROS_PER_SECOND + fraction
    if match["offset"]:
        offset = _offset_micros(match)
        if offset is None:
            return None
    else:
        offset = 0 if zone is None else _zone_offset_micros(local, zone)
    micros = local - offset
    return micros if -(2**63) <= micros < 2**63 else None


def format_timestamp(micros: int, *, separator: str, fraction_digits: int | None) -> str:
    """`yyyy-MM-dd<separator>HH:mm:ss` and a fraction; the caller appends a zone.

    `fraction_digits` None writes as many digits as are needed, none for whole seconds; a number
    writes exactly that many and truncates the rest.
    """
    days, rest = divmod(micros, MICROS_PER_DAY)
    seconds, fraction = divmod(rest, MICROS_PER_SECOND)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    digits = f"{fraction:06d}"
    digits = digits.rstrip("0") if fraction_digits is None else digits[:fraction_digits]
    tail = f".{digits}" if digits else ""
    return f"{format_date(days)}{separator}{hour:02d}:{minute:02d}:{second:02d}{tail}"


def micros_of(value: datetime) -> int:
    """A Python datetime as microseconds; a naive one is taken as local time without zone."""
    naive = value.replace(tzinfo=None)
    offset = value.utcoffset() or timedelta()
    return (naive - datetime(1970, 1, 1) - offset) // timedelta(microseconds=1)


def days_from_civil(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 of a day of the proleptic Gregorian calendar."""
    # Years that begin in March put the leap day last, so a day's number follows from its month.
    year -= month <= 2
    cycle, year_of_cycle = divmod(year, _CYCLE_YEARS)
    day_of_year = (153 * ((month - 3) % 12) + 2) // 5 + day - 1
    day_of_cycle = year_of_cycle * 365 + year_of_cycle // 4 - year_of_cycle // 100 + day_of_year
    return cycle * _CYCLE_DAYS + day_of_cycle - 719_468


def civil_from_days(days: int) -> tuple[int, int, int]:
    """Year, month and day of a number of days since 1970-01-01."""
    cycle, day_of_cycle = divmod(days + 719_468, _CYCLE_DAYS)
    year_of_cycle = (
        day_of_cycle - day_of_cycle // 1460 + day_of_cycle // 36524 - day_of_cycle // 146_096
    ) // 365
    day_of_year = day_of_cycle - (365 * year_of_cycle + year_of_cycle // 4 - year_of_cycle // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = (month_from_march + 2) % 12 + 1
    return cycle * _CYCLE_YEARS + year_of_cycle + (month <= 2), month, day


def _days(match: re.Match[str]) -> int | None:
    year, month, day = int(match["year"]), int(match["month"]), int(match["day"])
    if not (1 <= month <= 12 and 1 <= day <= _DAYS_IN_MONTH[month - 1]):
        return None
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if (month, day) == (2, 29) and not is_leap:
        return None
    days = days_from_civil(year, month, day)
    return days if -(2**31) <= days < 2**31 else None


def _seconds(match: re.Match[str]) -> int | None:
    if match["hour"] is None:
        return 0
    hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["second"])
    if hour > 23 or minute > 59 or second > 59:
        return None
    return (hour * 60 + minute) * 60 + second


def _offset_micros(match: re.Match[str]) -> int | None:
    if match["offset"] == "Z":
        return 0
    hours, minutes, seconds = (int(match[name] or 0) for name in ("off_h", "off_m", "off_s"))
    if hours > 18 or minutes > 59 or seconds > 59:  # the bounds of java.time.ZoneOffset
        return None
    micros = ((hours * 60 + minutes) * 60 + seconds) * MICROS_PER_SECOND
    return -micros if match["sign"] == "-" else micros


def _zone_offset_micros(local: int, zone: tzinfo) -> int:
    """The offset of `zone` from UTC at a local time; in an overlap of clocks the earlier one."""
    days, rest = divmod(local, MICROS_PER_DAY)
    year, month, day = civil_from_days(days)
    # Beyond Python's years: a year of the same calendar, in which a zone's rules are the same too.
    if year > 9999:
        year = 9600 + year % _CYCLE_YEARS
    elif year < 1:
        year = _CYCLE_YEARS + year % _CYCLE_YEARS
    at = datetime(year, month, day) + timedelta(microseconds=rest)
    offset = at.replace(tzinfo=zone).utcoffset() or timedelta()
    return offset // timedelta(microseconds=1)


def _year_text(year: int) -> str:
    if 0 <= year <= 9999:
        return f"{year:04d}"
    return f"+{year}" if year > 0 else f"-{-year:04d}"
