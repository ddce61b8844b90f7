"""Partition values: typed values, the strings of the log, and Hive's directory names.

The log is the only source of a file's partition values; names of directories are a convention.
Null and the empty string are both null, for every type.  A string that its column cannot hold is
an error here, never a silent null.  PROTOCOL.md, "Partition Value Serialization".

Values are what Arrow casts exactly: bool, int, float, Decimal, str, bytes; **dates are days and
timestamps microseconds since 1970-01-01**, for Python's own types end at the year 9999.

>>> parse_partition_value("2021-09-08", types.DATE), parse_partition_value("", types.INTEGER)
(18878, None)
>>> format_partition_value(1_500_000, types.TIMESTAMP)
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
from functools import partial
from typing import Any, TypeGuard

from pyspark_delta.errors import PartitionValueError
from pyspark_delta.kernel.protocol import types
from pyspark_delta.kernel.protocol.datetimes import (
    format_date,
    format_timestamp,
    micros_of,
    parse_date,
    parse_timestamp,
)
from pyspark_delta.kernel.protocol.types import DataType, DecimalType

HIVE_DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""The directory name for null."""

PartitionValue = bool | int | float | Decimal | str | bytes

_INTEGER_BITS: Mapping[DataType, int] = {
    types.BYTE: 8,
    types.SHORT: 16,
    types.INTEGER: 32,
    types.LONG: 64,
}
_INTEGER_TEXT = re.compile(r"[+-]?[0-9]{1,40}")
_NUMBER_TEXT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_LONGEST_NUMBER = 400
_BOOLEANS = {"true": True, "false": False}
_SPECIAL_FLOATS = {
    text: float(text)
    for text in ("nan", "infinity", "+infinity", "-infinity", "inf", "+inf", "-inf")
}
_EXACT = Context(prec=76)
# The characters that Spark's ExternalCatalogUtils escapes, control characters included.
_ESCAPED = re.compile("[\x01-\x1f\x7f\"#%'*/:=?\\\\{\\[\\]^]")
_ESCAPE = re.compile("%([0-9A-Fa-f]{2})")


def parse_partition_value(
    text: str | None, data_type: DataType, *, column: str = "", zone: tzinfo = UTC
) -> PartitionValue | None:
    """The value of `text`, or PartitionValueError when the type has no such value.

    `zone` is that of the writer, for timestamps without a zone.
    """
    if text is None or text == "":
        return None
    value: PartitionValue | None
    if isinstance(data_type, DecimalType):
        value = _parse_decimal(text, data_type)
    elif data_type == types.TIMESTAMP:
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
    """The log's string for a value; None for null and for the empty string.

    Timestamps become UTC in ISO form, which reads the same everywhere.  Accepts Python's dates and
    datetimes too.  Raises for a value that would not read back as the same value.
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
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def unescape_path_name(text: str) -> str:
    """The unescaped name or value of a directory's name; `%` without two digits stays."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


def partition_directory(columns: Sequence[str], values: Mapping[str, str | None]) -> str:
    """The directory for files with these values: `a=1/b=x`.  Empty without columns."""
    return "/".join(
        f"{escape_path_name(name)}={escape_path_name(values[name] or '') or HIVE_DEFAULT_PARTITION}"
        for name in columns
    )


def parse_partition_directory(path: str) -> tuple[tuple[str, str | None], ...]:
    """Names and values in the directories above a file, outermost first.

    `path` is the file's, decoded.  Directories without `=` are ignored.
    """
    pairs = []
    for part in path.split("/")[:-1]:
        name, equals, value = part.partition("=")
        if equals and name:
            is_null = value in ("", HIVE_DEFAULT_PARTITION)
            pairs.append((unescape_path_name(name), None if is_null else unescape_path_name(value)))
    return tuple(pairs)


def format_float(value: float, data_type: DataType) -> str:
    """A float or double with the fewest digits that read back, in Java's notation."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    text = _shortest_single(value) if data_type == types.FLOAT else repr(value)
    sign, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)
    significant = "".join(map(str, digits)).rstrip("0") or "0"
    point = len(digits) + exponent  # digits before the point
    prefix = "-" if sign else ""
    if value == 0 or -3 < point <= 7:
        whole = significant[:point].ljust(point, "0") if point > 0 else "0"
        fraction = significant[point:] if point > 0 else "0" * -point + significant
        return f"{prefix}{whole if value else 0}.{(fraction if value else '') or '0'}"
    return f"{prefix}{significant[0]}.{significant[1:] or '0'}E{point - 1}"


def as_single(number: float) -> float | None:
    """The nearest 32-bit value; None when it would be infinite."""
    try:
        (single,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:
        return None
    return float(single)


def _invalid(value: object, data_type: DataType, column: str) -> PartitionValueError:
    text = str(value)
    return PartitionValueError(
        "DELTA_INVALID_PARTITION_VALUE",
        value=text if len(text) <= 100 else text[:97] + "...",
        column=column,
        dataType=data_type.simple_string,
    )


def _parse_integer(text: str, bits: int) -> int | None:
    number = int(text) if _INTEGER_TEXT.fullmatch(text) else None
    return number if _is_integer(number, bits) else None


def _is_integer(value: object, bits: int) -> TypeGuard[int]:
    if isinstance(value, bool) or not isinstance(value, int):
        return False
    return -(1 << (bits - 1)) <= value < 1 << (bits - 1)


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
    types.STRING: lambda text: text,
    **{kind: partial(_parse_integer, bits=bits) for kind, bits in _INTEGER_BITS.items()},
    types.FLOAT: _parse_single,
    types.DOUBLE: _parse_double,
    types.BOOLEAN: lambda text: _BOOLEANS.get(text.lower()),
    types.BINARY: _parse_bytes,
    types.DATE: parse_date,
    types.TIMESTAMP_NTZ: lambda text: parse_timestamp(text, None),
}


def _format_decimal(value: Any, data_type: DecimalType) -> str | None:
    if isinstance(value, bool) or not isinstance(value, Decimal | int):
        return None
    fitted = _fitted(Decimal(value), data_type)
    return None if fitted is None else format(fitted, "f")


def _format_integer(value: Any, data_type: DataType) -> str | None:
    return str(value) if _is_integer(value, _INTEGER_BITS[data_type]) else None


def _format_float(value: Any, data_type: DataType) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    number = as_single(value) if data_type == types.FLOAT else float(value)
    return None if number is None else format_float(number, data_type)


def _format_text(value: Any, data_type: DataType) -> str | None:
    # A lone surrogate is not text in any file.
    return value if isinstance(value, str) and _parse_bytes(value) is not None else None


def _format_bytes(value: Any, data_type: DataType) -> str | None:
    # Bytes are stored as UTF-8 text.  Invalid UTF-8 and empty bytes have no such form.
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
    return format_date(value) if _is_integer(value, 32) else None


def _format_timestamp(value: Any, data_type: DataType) -> str | None:
    is_local = data_type == types.TIMESTAMP_NTZ
    if isinstance(value, datetime):
        if (value.tzinfo is None) is not is_local:
            return None
        value = micros_of(value)
    if not _is_integer(value, 64):
        return None
    if is_local:
        return format_timestamp(value, separator=" ", fraction_digits=None)
    return format_timestamp(value, separator="T", fraction_digits=6) + "Z"


_FORMATTERS: Mapping[DataType, Callable[[Any, DataType], str | None]] = {
    types.STRING: _format_text,
    **dict.fromkeys(_INTEGER_BITS, _format_integer),
    types.FLOAT: _format_float,
    types.DOUBLE: _format_float,
    types.BOOLEAN: _format_boolean,
    types.BINARY: _format_bytes,
    types.DATE: _format_date,
    types.TIMESTAMP: _format_timestamp,
    types.TIMESTAMP_NTZ: _format_timestamp,
}
