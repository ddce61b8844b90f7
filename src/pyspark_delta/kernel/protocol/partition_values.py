"""Partition values: typed values, the strings of the log, and Hive's directory names.

The log is the only source of a file's partition values; directories follow a convention and prove
nothing.  Null and the empty string are both null, for every type.  A string that its column cannot
hold is an error here, never a silent null.  PROTOCOL.md, "Partition Value Serialization".

Values are what Arrow casts exactly: bool, int, float, Decimal, str, bytes; **dates are days and
timestamps microseconds since 1970-01-01**, for Python's own types end at the year 9999.

>>> parse_partition_value("2021-09-08", DATE), parse_partition_value("", INTEGER)
(18878, None)
>>> format_partition_value(1_500_000, TIMESTAMP)
'1970-01-01T00:00:01.500000Z'
>>> partition_directory(["p", "q"], {"p": "a/b", "q": None})
'p=a%2Fb/q=__HIVE_DEFAULT_PARTITION__'
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, tzinfo
from decimal import Context, Decimal, InvalidOperation
from typing import Any

from pyspark_delta.errors.table import PartitionValueError
from pyspark_delta.kernel.protocol.datetimes import (
    format_date,
    format_timestamp,
    micros_of,
    parse_date,
    parse_timestamp,
)
from pyspark_delta.kernel.protocol.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
)

HIVE_DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""The directory name that stands for null."""

PartitionValue = bool | int | float | Decimal | str | bytes

_INTEGER_BITS: Mapping[DataType, int] = {BYTE: 8, SHORT: 16, INTEGER: 32, LONG: 64}
_INTEGER_TEXT = re.compile(r"[+-]?[0-9]{1,40}")
_NUMBER_TEXT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_LONGEST_NUMBER = 400
_BOOLEANS = {"true": True, "false": False}
_SPECIAL_FLOATS = {
    "nan": math.nan,
    "infinity": math.inf,
    "+infinity": math.inf,
    "-infinity": -math.inf,
    "inf": math.inf,
    "+inf": math.inf,
    "-inf": -math.inf,
}
_EXACT = Context(prec=76)
# What Spark's ExternalCatalogUtils escapes, besides the control characters.
_ESCAPED = re.compile("[\x01-\x1f\x7f\"#%'*/:=?\\\\{\\[\\]^]")
_ESCAPE = re.compile("%([0-9A-Fa-f]{2})")


def parse_partition_value(
    text: str | None, data_type: DataType, *, column: str = "", zone: tzinfo = UTC
) -> PartitionValue | None:
    """The value that `text` spells, or PartitionValueError when the type has no such value.

    `zone` is that of the writer, for timestamps that do not say theirs.
    """
    if text is None or text == "":
        return None
    value: PartitionValue | None
    if isinstance(data_type, DecimalType):
        value = _parse_decimal(text, data_type)
    elif data_type == TIMESTAMP:
        value = parse_timestamp(text, zone)
    else:
        parse = _PARSERS.get(data_type)
        value = None if parse is None else parse(text)
    if value is None:
        raise _invalid(text, data_type, column)
    return value


def format_partition_value(
    value: PartitionValue | date | None, data_type: DataType, *, column: str = ""
) -> str | None:
    """The string of the log for a value; None for null and for the empty string.

    Timestamps become UTC in ISO form, which reads the same everywhere.  Takes Python's dates and
    datetimes too.  What would not read back as the same value is refused.
    """
    if value is None or value == "":
        return None
    if isinstance(data_type, DecimalType):
        text = _format_decimal(value, data_type)
    else:
        write = _FORMATTERS.get(data_type)
        text = None if write is None else write(value, data_type)
    if text is None:
        raise _invalid(value, data_type, column)
    return text


def escape_path_name(text: str) -> str:
    """A name or value as Hive and Spark escape it for a directory."""
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def unescape_path_name(text: str) -> str:
    """The name or value that a directory's name spells; `%` without two digits stays."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


def partition_directory(columns: Sequence[str], values: Mapping[str, str | None]) -> str:
    """The directory for files with these values: `a=1/b=x`.  Empty without columns."""
    return "/".join(
        f"{escape_path_name(name)}={escape_path_name(values[name] or '') or HIVE_DEFAULT_PARTITION}"
        for name in columns
    )


def parse_partition_directory(path: str) -> tuple[tuple[str, str | None], ...]:
    """Names and values that the directories above a file spell, outermost first.

    `path` is the file's, decoded.  Directories without `=` say nothing and are passed over.
    """
    found = []
    for part in path.split("/")[:-1]:
        name, equals, value = part.partition("=")
        if equals and name:
            is_null = value in ("", HIVE_DEFAULT_PARTITION)
            found.append((unescape_path_name(name), None if is_null else unescape_path_name(value)))
    return tuple(found)


def format_float(value: float, data_type: DataType) -> str:
    """A float or double with the fewest digits that read back, in Java's notation."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    text = _shortest_single(value) if data_type == FLOAT else repr(value)
    sign, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)
    shown = "".join(map(str, digits)).rstrip("0") or "0"
    point = len(digits) + exponent  # digits before the point
    prefix = "-" if sign else ""
    if value == 0 or -3 < point <= 7:
        whole = shown[:point].ljust(point, "0") if point > 0 else "0"
        fraction = shown[point:] if point > 0 else "0" * -point + shown
        return f"{prefix}{whole if value else 0}.{(fraction if value else '') or '0'}"
    return f"{prefix}{shown[0]}.{shown[1:] or '0'}E{point - 1}"


def as_single(number: float) -> float | None:
    """The nearest value that 32 bits hold; None when it would be infinite."""
    try:
        (single,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:
        return None
    return float(single)


def _invalid(value: object, data_type: DataType, column: str) -> PartitionValueError:
    shown = str(value)
    return PartitionValueError(
        "DELTA_INVALID_PARTITION_VALUE",
        value=shown if len(shown) <= 100 else shown[:97] + "...",
        column=column,
        dataType=data_type.simple_string,
    )


def _parse_integer(text: str, bits: int) -> int | None:
    if not _INTEGER_TEXT.fullmatch(text):
        return None
    return _in_range(int(text), bits)


def _in_range(number: int, bits: int) -> int | None:
    return number if -(1 << (bits - 1)) <= number < 1 << (bits - 1) else None


def _parse_decimal(text: str, data_type: DecimalType) -> Decimal | None:
    if len(text) > _LONGEST_NUMBER or not _NUMBER_TEXT.fullmatch(text):
        return None
    return _fitted(Decimal(text), data_type)


def _fitted(number: Decimal, data_type: DecimalType) -> Decimal | None:
    """`number` with exactly the scale of the type; None when digits would be lost."""
    try:
        fitted = number.quantize(Decimal(1).scaleb(-data_type.scale), context=_EXACT)
    except InvalidOperation:
        return None
    if fitted != number or len(fitted.as_tuple().digits) > data_type.precision:
        return None
    return fitted


def _parse_double(text: str) -> float | None:
    special = _SPECIAL_FLOATS.get(text.lower())
    if special is not None:
        return special
    if len(text) > _LONGEST_NUMBER or not _NUMBER_TEXT.fullmatch(text):
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def _parse_single(text: str) -> float | None:
    number = _parse_double(text)
    return None if number is None else as_single(number)


def _shortest_single(number: float) -> str:
    for digits in range(6, 10):
        text = f"{number:.{digits}g}"
        if as_single(float(text)) == number:
            return text
    return repr(number)


def _parse_bytes(text: str) -> bytes | None:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return None


_PARSERS: Mapping[DataType, Callable[[str], PartitionValue | None]] = {
    STRING: lambda text: text,
    BYTE: lambda text: _parse_integer(text, 8),
    SHORT: lambda text: _parse_integer(text, 16),
    INTEGER: lambda text: _parse_integer(text, 32),
    LONG: lambda text: _parse_integer(text, 64),
    FLOAT: _parse_single,
    DOUBLE: _parse_double,
    BOOLEAN: lambda text: _BOOLEANS.get(text.lower()),
    BINARY: _parse_bytes,
    DATE: parse_date,
    TIMESTAMP_NTZ: lambda text: parse_timestamp(text, None),
}


def _format_decimal(value: Any, data_type: DecimalType) -> str | None:
    if isinstance(value, bool) or not isinstance(value, Decimal | int):
        return None
    fitted = _fitted(Decimal(value), data_type)
    return None if fitted is None else format(fitted, "f")


def _format_integer(value: Any, data_type: DataType) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return None if _in_range(value, _INTEGER_BITS[data_type]) is None else str(value)


def _format_float(value: Any, data_type: DataType) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    number = as_single(value) if data_type == FLOAT else float(value)
    return None if number is None else format_float(number, data_type)


def _format_text(value: Any, data_type: DataType) -> str | None:
    # A lone surrogate is not text in any file.
    return value if isinstance(value, str) and _parse_bytes(value) is not None else None


def _format_bytes(value: Any, data_type: DataType) -> str | None:
    # Bytes are kept as the text they are in UTF-8.  Others, and none at all, have no spelling.
    if not isinstance(value, bytes) or not value:
        return None
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _format_boolean(value: Any, data_type: DataType) -> str | None:
    return str(value).lower() if isinstance(value, bool) else None


def _format_date(value: Any, data_type: DataType) -> str | None:
    if isinstance(value, date) and not isinstance(value, datetime):
        value = value.toordinal() - date(1970, 1, 1).toordinal()
    if isinstance(value, bool) or not isinstance(value, int) or _in_range(value, 32) is None:
        return None
    return format_date(value)


def _format_timestamp(value: Any, data_type: DataType) -> str | None:
    is_local = data_type == TIMESTAMP_NTZ
    if isinstance(value, datetime):
        if (value.tzinfo is None) is not is_local:
            return None
        value = micros_of(value)
    if isinstance(value, bool) or not isinstance(value, int) or _in_range(value, 64) is None:
        return None
    if is_local:
        return format_timestamp(value, separator=" ", fraction_digits=None)
    return format_timestamp(value, separator="T", fraction_digits=6) + "Z"


_FORMATTERS: Mapping[DataType, Callable[[Any, DataType], str | None]] = {
    STRING: _format_text,
    BYTE: _format_integer,
    SHORT: _format_integer,
    INTEGER: _format_integer,
    LONG: _format_integer,
    FLOAT: _format_float,
    DOUBLE: _format_float,
    BOOLEAN: _format_boolean,
    BINARY: _format_bytes,
    DATE: _format_date,
    TIMESTAMP: _format_timestamp,
    TIMESTAMP_NTZ: _format_timestamp,
}
