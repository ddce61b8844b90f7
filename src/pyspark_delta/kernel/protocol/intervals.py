"""Calendar intervals such as `interval 30 days`, as table properties spell durations.

Case does not matter and the word `interval` may be missing.  Months and years are read but have no
fixed length: `interval_ms` refuses them.  There is no rule for this in PROTOCOL.md beyond the
examples of its properties; the grammar is Spark's.

>>> interval_ms("interval 1 week")
604800000
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_delta.errors.table import PropertyError

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A span of time in three parts that cannot be exchanged: months and days vary in length."""

    months: int = 0
    days: int = 0
    microseconds: int = 0


def parse_interval(text: str) -> Interval:
    """The interval that `text` spells; PropertyError when it spells none."""
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
        found = _PART.match(rest, position)
        if found is None:
            raise _invalid(text)
        field, amount = _amount(found, text)
        totals[field] += amount
        position = found.end()
    if any(not -_BOUNDS[field] <= total < _BOUNDS[field] for field, total in totals.items()):
        raise _invalid(text)
    return Interval(**totals)


def interval_ms(text: str) -> int:
    """The length of an interval in milliseconds; one with months or years has none."""
    interval = parse_interval(text)
    if interval.months:
        raise _invalid(text)
    return (interval.days * 86_400 * _SECOND + interval.microseconds) // 1000


def _amount(found: re.Match[str], text: str) -> tuple[str, int]:
    unit = found["unit"].removesuffix("s")
    whole, fraction = found["whole"], found["fraction"]
    # Only seconds may have a fraction: half a day is not a number of days.
    if unit not in _UNITS or (fraction is not None and unit != "second"):
        raise _invalid(text)
    if not whole and not fraction:
        raise _invalid(text)
    field, size = _UNITS[unit]
    amount = int(whole or "0") * size + int((fraction or "").ljust(6, "0")[:6])
    return field, -amount if found["sign"] == "-" else amount


def _invalid(text: str) -> PropertyError:
    shown = text if len(text) <= 80 else text[:77] + "..."
    return PropertyError("DELTA_INVALID_INTERVAL", interval=shown)
