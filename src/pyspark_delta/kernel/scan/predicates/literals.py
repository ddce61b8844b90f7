"""Values of literals: cast from text by Spark's rules, and formatted as SQL.

A value has the form for comparisons: whole numbers, dates (days since 1970) and timestamps
(microseconds since 1970) are `int`, decimals are `Decimal`, the rest are `float`, `str`, `bytes`
and `bool`.  None is SQL's NULL.

>>> cast_text("2024-2-29", types.DATE), format_literal(19782, types.DATE)
(19782, "DATE '2024-02-29'")
>>> cast_text("2024-02-29T12:00:00.5-07:52:58", types.TIMESTAMP) % 60_000_000
58500000
"""

from __future__ import annotations

import math
import re
import struct
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Context, Decimal, InvalidOperation
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyspark_delta.kernel.protocol import types
from pyspark_delta.kernel.protocol.datetimes import (
    MICROS_PER_DAY,
    format_date,
    format_timestamp,
    parse_date,
    parse_timestamp,
)
from pyspark_delta.kernel.protocol.types import DataType, DecimalType
from pyspark_delta.kernel.sql.quoting import string_literal

LiteralValue = bool | int | float | str | bytes | Decimal | None

MIN_LONG, MAX_LONG = -(2**63), 2**63 - 1

# Whole number types and their bits.
INTEGRAL = {types.BYTE: 8, types.SHORT: 16, types.INTEGER: 32, types.LONG: 64}
FRACTIONAL = (types.FLOAT, types.DOUBLE)

_CONTEXT = Context(prec=100)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TRUE = frozenset({"t", "true", "y", "yes", "1"})
_FALSE = frozenset({"f", "false", "n", "no", "0"})
_WHOLE = re.compile(r"[+-]?[0-9]{1,40}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,5})?")
_SPECIAL_FLOATS = {
    "nan": math.nan,
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), math.inf),
    **dict.fromkeys(("-inf", "-infinity"), -math.inf),
}
_DATE = re.compile(r"([+-]?[0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2}))?)?")
_TIME = re.compile(r"[ T]([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{0,9}))?)?")
_OFFSET = re.compile(r"([+-])([0-9]{1,2})(?::?([0-9]{1,2})(?::?([0-9]{2}))?)?")


def zone_named(name: str) -> tzinfo:
    """The time zone of `name` in `spark.sql.session.timeZone`; ValueError if there is none."""
    text = name.strip()
    for prefix in ("UTC", "GMT", "UT", "Z"):
        if text.upper() == prefix:
            return UTC
        if text.startswith(prefix) and text[len(prefix) :][:1] in ("+", "-"):
            text = text[len(prefix) :]
    if found := _OFFSET.fullmatch(text):
        sign, hours, minutes, seconds = found.groups()
        parts = int(hours), int(minutes or 0), int(seconds or 0)
        if parts[0] > 18 or parts[1] > 59 or parts[2] > 59:
            raise ValueError(f"there is no time zone {name!r}")
        offset = timedelta(hours=parts[0], minutes=parts[1], seconds=parts[2])
        return timezone(-offset if sign == "-" else offset)
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"there is no time zone {name!r}") from None


def cast_text(text: str, data_type: DataType, zone: tzinfo = UTC) -> LiteralValue:
    """`text` cast to a type, by Spark's rules; ValueError when it cannot be."""
    trimmed = text.strip()
    if data_type == types.STRING:
        return text
    if data_type == types.BINARY:
        return text.encode()
    if data_type in INTEGRAL:
        return _whole_number(trimmed, data_type)
    if data_type in FRACTIONAL:
        return float_value(_fraction(trimmed), data_type)
    if data_type == types.BOOLEAN:
        if trimmed.lower() in _TRUE | _FALSE:
            return trimmed.lower() in _TRUE
        raise ValueError(f"{text!r} is not a boolean")
    if data_type == types.DATE:
        return _days(trimmed)
    if data_type in (types.TIMESTAMP, types.TIMESTAMP_NTZ):
        return _microseconds(trimmed, zone if data_type == types.TIMESTAMP else None)
    if isinstance(data_type, DecimalType):
        if not _NUMBER.fullmatch(trimmed):
            raise ValueError(f"{text!r} is not a decimal")
        return decimal_value(Decimal(trimmed), data_type)
    raise ValueError(f"text cannot become a {data_type}")


def decimal_value(number: Decimal, data_type: DecimalType) -> Decimal:
    """`number` at the scale of a decimal type, rounded half up; ValueError beyond its digits."""
    try:
        scaled = number.quantize(Decimal(1).scaleb(-data_type.scale), "ROUND_HALF_UP", _CONTEXT)
    except InvalidOperation:
        raise ValueError(f"{number} does not fit {data_type}") from None
    if abs(scaled) >= Decimal(10) ** (data_type.precision - data_type.scale):
        raise ValueError(f"{number} does not fit {data_type}")
    return scaled


def float_value(number: float, data_type: DataType) -> float:
    """`number` rounded to a FLOAT or DOUBLE."""
    if data_type != types.FLOAT or math.isnan(number) or math.isinf(number):
        return number
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)
    return rounded


def start_of_day(days: int, zone: tzinfo | None) -> int:
    """The first instant of a day in `zone`, in microseconds; None means without time zone."""
    return _in_range(parse_timestamp(format_date(days), zone))


def to_instant(local: int, zone: tzinfo) -> int:
    """The instant of a local time (TIMESTAMP_NTZ) in `zone`; the first of two."""
    return _in_range(parse_timestamp(_timestamp_text(local), zone))


def local_day(instant: int, zone: tzinfo) -> int:
    """The local day, since 1970, of an instant in `zone`."""
    if zone is UTC:
        return instant // MICROS_PER_DAY
    try:
        moment = (_EPOCH + timedelta(microseconds=instant)).astimezone(zone)
    except OverflowError:
        raise ValueError("the year is out of range for a time zone") from None
    return moment.toordinal() - _EPOCH.toordinal()


def format_literal(value: LiteralValue, data_type: DataType) -> str:
    """A literal in SQL that means exactly this value, in any time zone."""
    if value is None:
        return (
            "NULL"
            if data_type == types.VOID
            else f"CAST(NULL AS {data_type.simple_string.upper()})"
        )
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    if isinstance(value, str):
        return string_literal(value)
    if isinstance(value, Decimal):
        return f"{value:f}BD"
    if isinstance(value, float):
        if math.isnan(value) or math.isinf(value):
            name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
            return f"CAST('{name}' AS {data_type.simple_string.upper()})"
        return f"{value!r}{'F' if data_type == types.FLOAT else 'D'}"
    if data_type == types.DATE:
        return f"DATE '{format_date(value)}'"
    if data_type in (types.TIMESTAMP, types.TIMESTAMP_NTZ):
        zone = "Z" if data_type == types.TIMESTAMP else ""
        return f"{data_type.simple_string.upper()} '{_timestamp_text(value)}{zone}'"
    if data_type == types.INTEGER or data_type not in INTEGRAL:
        return str(value)
    return f"{value}{_SUFFIXES[data_type]}"


_SUFFIXES = {types.BYTE: "Y", types.SHORT: "S", types.LONG: "L"}


def _whole_number(text: str, data_type: DataType) -> int:
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is not a whole number")
    number = int(text)
    bound: int = 2 ** (INTEGRAL[data_type] - 1)  # type: ignore[index]
    if not -bound <= number < bound:
        raise ValueError(f"{text} does not fit {data_type}")
    return number


def _fraction(text: str) -> float:
    special = _SPECIAL_FLOATS.get(text.lower())
    if special is not None:
        return special
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is not a number")
    return float(text)


def _days(text: str) -> int:
    found = _DATE.match(text)
    # Spark ignores the text after a date, if it begins with a space or a T.
    if not found or (text[found.end() :] and text[found.end()] not in " T"):
        raise ValueError(f"{text!r} is not a date")
    days = parse_date(_whole_date(found))
    if days is None:
        raise ValueError(f"{text!r} is not a date")
    return days


def _microseconds(text: str, zone: tzinfo | None) -> int:
    day = _DATE.match(text)
    clock = "00:00:00"
    if day and text[day.end() :]:
        time = _TIME.match(text, day.end()) if day[3] else None
        if not time:
            raise ValueError(f"{text!r} is not a timestamp")
        hours, minutes, seconds, fraction = time.groups()
        clock = f"{hours}:{minutes}:{seconds or 0}.{fraction or 0}"
        if written := text[time.end() :].strip():
            written_zone = zone_named(written)
            # A TIMESTAMP_NTZ ignores a zone in its text.
            zone = None if zone is None else written_zone
    found = parse_timestamp(f"{_whole_date(day)} {clock}", zone) if day else None
    if found is None:
        raise ValueError(f"{text!r} is not a timestamp")
    return found


def _whole_date(found: re.Match[str]) -> str:
    """A date with Spark's defaults: a year, or a year and month, means its first day."""
    return f"{found[1]}-{found[2] or 1}-{found[3] or 1}"


def _timestamp_text(microseconds: int) -> str:
    return format_timestamp(microseconds, separator=" ", fraction_digits=6)


def _in_range(microseconds: int | None) -> int:
    if microseconds is None:
        raise ValueError("the year is out of range")
    return microseconds
