"""Monotonic functions of a date or time, and what a comparison with one implies for its column.

`year(c) = 2024` holds where `c` is from 2024 on and before 2025.  A function is described by two
days for a value: the first on which it is not below the value, and the first on which it is above.

>>> year = year_of(day_of(Column(("d",)), DATE, None))
>>> year.compared("<=", 1970).to_sql()
"d < DATE '1971-01-01'"
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta, tzinfo

from pyspark_delta.kernel.protocol.types import DATE, DataType
from pyspark_delta.kernel.scan.predicates.literals import local_day, start_of_day
from pyspark_delta.kernel.scan.predicates.tree import (
    Column,
    Comparison,
    Literal,
    Predicate,
    conjunction,
)

_EPOCH = date(1970, 1, 1)
_MICROS = timedelta(microseconds=1)
_MONTHS = {"MONTH": 1, "MON": 1, "MM": 1, "QUARTER": 3, "YEAR": 12, "YYYY": 12, "YY": 12}
_DAY_NAMES = frozenset({"DAY", "DD"})
# No clock is set back further than that, and none changes twice within it.
_CLOCK_CHANGE = 3 * 3_600_000_000

# The first day of a value's range, and the first day after it, as bounds of the column.
_BOUNDS: dict[str, tuple[str | None, str | None]] = {
    "=": ("first", "next"),
    "<=>": ("first", "next"),
    "<": (None, "first"),
    "<=": (None, "next"),
    ">": ("next", None),
    ">=": ("first", None),
}

Place = Callable[[int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped:
    """A function of a column.

    `first_day` is the first day on which the function is not below a value, `next_day` the first on
    which it is above.
    """

    column: Column
    data_type: DataType
    zone: tzinfo | None
    first_day: Place
    next_day: Place

    def compared(self, op: str, value: int) -> Predicate:
        """A predicate that the column satisfies where `function op value` holds.

        Raises ValueError if there is none.
        """
        if op not in _BOUNDS:
            raise ValueError(f"there is no operator {op!r}")
        days = {"first": self.first_day, "next": self.next_day}
        lower, upper = _BOUNDS[op]
        bounds = []
        if lower is not None:
            bounds.append(Comparison(">=", self.column, self._start(days[lower](value), -1)))
        if upper is not None:
            bounds.append(Comparison("<", self.column, self._start(days[upper](value), 1)))
        return conjunction(bounds)

    def _start(self, day: int, direction: int) -> Literal:
        """The start of a day; hours off, to be safe, where clocks change at about that time."""
        if self.data_type == DATE:
            return Literal(day, DATE)
        start = start_of_day(day, self.zone)
        if self.zone is not None and _offset(start - _CLOCK_CHANGE, self.zone) != _offset(
            start + _CLOCK_CHANGE, self.zone
        ):
            start += direction * _CLOCK_CHANGE
        return Literal(start, self.data_type)


def day_of(column: Column, data_type: DataType, zone: tzinfo | None) -> Stepped:
    """`CAST(column AS DATE)`; `zone` applies to a TIMESTAMP."""
    return Stepped(
        column=column,
        data_type=data_type,
        zone=zone,
        first_day=lambda day: day,
        next_day=lambda day: day + 1,
    )


def year_of(day: Stepped) -> Stepped:
    """The year of a day."""
    return replace(
        day,
        first_day=lambda year: _days(date(year, 1, 1)),
        next_day=lambda year: _days(date(year + 1, 1, 1)),
    )


def truncated_to(unit: str, day: Stepped, *, to_day: bool = False) -> Stepped:
    """`date_trunc(unit, ...)`, or `trunc(..., unit)`, whose value is a day.

    ValueError for units below a day, and unknown ones.
    """
    following = _following(unit.upper())

    def day_at(value: int) -> tuple[int, bool]:
        """The first day of the unit that contains a value, and whether the value is its start."""
        local = value if to_day else local_day(value, day.zone or UTC)
        start = _unit_start(unit.upper(), local)
        exact = start == value if to_day else start_of_day(start, day.zone) == value
        return start, exact

    def first(value: int) -> int:
        start, exact = day_at(value)
        return start if exact else following(start)

    return replace(day, first_day=first, next_day=lambda value: following(day_at(value)[0]))


def _following(unit: str) -> Place:
    if unit in _DAY_NAMES:
        return lambda day: day + 1
    if unit == "WEEK":
        return lambda day: day + 7
    if unit in _MONTHS:
        return lambda day: _days(_months_later(_EPOCH + timedelta(days=day), _MONTHS[unit]))
    raise ValueError(f"there is no unit {unit!r} of days")


def _unit_start(unit: str, day: int) -> int:
    if unit in _DAY_NAMES:
        return day
    found = _EPOCH + timedelta(days=day)
    if unit == "WEEK":
        return day - found.weekday()
    months = _MONTHS[unit]
    return _days(date(found.year, (found.month - 1) // months * months + 1, 1))


def _months_later(day: date, months: int) -> date:
    index = day.year * 12 + day.month - 1 + months
    return date(index // 12, index % 12 + 1, 1)


def _days(day: date) -> int:
    return (day - _EPOCH).days


def _offset(instant: int, zone: tzinfo) -> timedelta | None:
    return (datetime(1970, 1, 1, tzinfo=UTC) + instant * _MICROS).astimezone(zone).utcoffset()
