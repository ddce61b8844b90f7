"""Kinds of property values: flags, whole numbers, intervals, choices, lists of columns.

A kind parses text, and raises ValueError for text that is not one of its values.  `properties`
assigns a kind to each property.

>>> FLAG.parse("TRUE"), COLUMNS.parse("a, b.`c,d`")
(True, (('a',), ('b', 'c,d')))
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pyspark_delta.errors import PropertyError
from pyspark_delta.kernel.protocol.stats_columns import parse_column_list

_SECOND = 1_000_000  # microseconds
# Unit -> (field of Interval, how many of it).
_UNITS: Mapping[str, tuple[str, int]] = {
    "year": ("months", 12),
    "month": ("months", 1),
    "week": ("days", 7),
    "day": ("days", 1),
    "hour": ("microseconds", 3600 * _SECOND),
    "minute": ("microseconds", 60 * _SECOND),
    "second": ("microseconds", _SECOND),
    "millisecond": ("microseconds", 1000),
    "microsecond": ("microseconds", 1),
}
_BOUNDS = {"months": 2**31, "days": 2**31, "microseconds": 2**63}
_PART = re.compile(
    r"\s*(?P<sign>[+-]?)\s*(?P<whole>[0-9]{0,19})(?:\.(?P<fraction>[0-9]{0,9}))?"
    r"\s+(?P<unit>[a-z]{1,20})(?=\s|[+-]|$)"
)
_MAX_LENGTH = 1000
T_co = TypeVar("T_co", covariant=True)
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}")
_COLUMN = r"\s*(?:`(?:[^`]|``)+`|\w+)\s*"
_COLUMN_LIST = re.compile(rf"{_COLUMN}(?:[.,]{_COLUMN})*")
_SIZE = re.compile(r"\s*([0-9]{1,18})\s*([kmgtp]?)i?b?\s*", re.IGNORECASE)
_VERSION = re.compile(r"[12]\.[0-9]{1,4}\.[0-9]{1,4}")


@dataclass(frozen=True, slots=True)
class Kind(Generic[T_co]):
    """A parser of values, and the description of legal values for error messages."""

    parse: Callable[[str], T_co]
    needs: str


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


FLAG = Kind(_flag, "it needs to be true or false")


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text)
    size = int(match[1]) << 10 * " kmgtp".index(match[2].lower() or " ") if match else 0
    if not 0 < size < 2**63:
        raise ValueError(text)
    return size


SIZE = Kind(_size, "it needs to be a size such as 134217728 or 128mb")
TEXT = Kind(str, "it needs to be text")


def _duration(text: str) -> int:
    length = interval_ms(text)
    if length < 0:
        raise ValueError(text)
    return length


DURATION = Kind(
    _duration,
    "it needs to be an interval such as '2 weeks', without months and years and not below zero",
)


def _columns(text: str) -> tuple[tuple[str, ...], ...]:
    # Stricter than the reader of the property, which takes what other writers stored.
    if text.strip() and not _COLUMN_LIST.fullmatch(text):
        raise ValueError(text)
    return parse_column_list(text)


COLUMNS = Kind(
    _columns, "it needs to be a list of columns joined by commas, unusual names in backticks"
)


def _json_object(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError(text)
    return value


JSON_OBJECT = Kind(_json_object, "it needs to be a JSON object")


def _parquet_version(text: str) -> str:
    if not _VERSION.fullmatch(text):
        raise ValueError(text)
    return text


PARQUET_VERSION = Kind(_parquet_version, "it needs to be a Parquet version such as 1.0.0 or 2.12.0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A span of time in three separate parts, because months and days vary in length."""

    months: int = 0
    days: int = 0
    microseconds: int = 0


def parse_interval(text: str) -> Interval:
    """The calendar interval in `text`, by Spark's grammar; PropertyError for other text.

    Case does not matter, and the word `interval` may be missing.
    """
    rest = text.strip().lower()
    if not rest:
        raise PropertyError("DELTA_INVALID_CALENDAR_INTERVAL_EMPTY")
    if rest == "interval" or len(rest) > _MAX_LENGTH:
        raise _invalid(text)
    if rest.startswith("interval") and rest[8].isspace():
        rest = rest[9:]
    totals = dict.fromkeys(_BOUNDS, 0)
    position = 0
    while position < len(rest):
        match = _PART.match(rest, position)
        if match is None:
            raise _invalid(text)
        field, amount = _amount(match, text)
        totals[field] += amount
        position = match.end()
    if any(not -_BOUNDS[field] <= total < _BOUNDS[field] for field, total in totals.items()):
        raise _invalid(text)
    return Interval(**totals)


def interval_ms(text: str) -> int:
    """The length of an interval in milliseconds; raises for one with months or years.

    >>> interval_ms("interval 1 week")
    604800000
    """
    interval = parse_interval(text)
    if interval.months:
        raise _invalid(text)
    return (interval.days * 86_400 * _SECOND + interval.microseconds) // 1000


def whole(least: int, *, most: int = 2**31 - 1) -> Kind[int]:
    """Whole numbers from `least` to `most`; the default is the largest that fits 32 bits."""

    def parse(text: str) -> int:
        if not _WHOLE.fullmatch(text) or not least <= int(text) <= most:
            raise ValueError(text)
        return int(text)

    span = f"{least} or more" if most >= 2**31 - 1 else f"from {least} to {most}"
    return Kind(parse, f"it needs to be a whole number, {span}")


def choice(*values: str, ignore_case: bool = False) -> Kind[str]:
    """One of some words, returned in the spelling of `values`."""
    known = {value.lower() if ignore_case else value: value for value in values}

    def parse(text: str) -> str:
        value = known.get(text.lower() if ignore_case else text)
        if value is None:
            raise ValueError(text)
        return value

    return Kind(parse, f"it needs to be one of {', '.join(values)}")


def several(*values: str) -> Kind[tuple[str, ...]]:
    """Distinct words of a list, joined by commas; empty text means no word."""

    def parse(text: str) -> tuple[str, ...]:
        parts = tuple(text.split(",")) if text else ()
        if len(set(parts)) < len(parts) or not set(parts) <= set(values):
            raise ValueError(text)
        return parts

    return Kind(parse, f"it needs to be a list of different values out of {', '.join(values)}")


def _amount(match: re.Match[str], text: str) -> tuple[str, int]:
    unit = match["unit"].removesuffix("s")
    whole, fraction = match["whole"], match["fraction"]
    # Only seconds may have a fraction: half a day is not a number of days.
    if unit not in _UNITS or (fraction is not None and unit != "second"):
        raise _invalid(text)
    if not whole and not fraction:
        raise _invalid(text)
    field, size = _UNITS[unit]
    amount = int(whole or "0") * size + int((fraction or "").ljust(6, "0")[:6])
    return field, -amount if match["sign"] == "-" else amount


def _invalid(text: str) -> PropertyError:
    interval = text if len(text) <= 80 else text[:77] + "..."
    return PropertyError("DELTA_INVALID_INTERVAL", interval=interval)
