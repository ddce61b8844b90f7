"""Format and parse the statistics of one file, and loosen them for a deletion vector.

A bound may be wider than the data, never narrower: a long string is truncated and its maximum
raised by a tie-breaker, a timestamp is rounded to the millisecond below (minimum) or above
(maximum), and other bounds that cannot be written are left out.  `stats_columns` chooses columns.
PROTOCOL.md, "Per-file Statistics".

>>> format_stats(2, [ColumnStats(path=("v",), data_type=types.STRING, minimum="a", maximum="b")])
'{"numRecords":2,"minValues":{"v":"a"},"maxValues":{"v":"b"},"nullCount":{}}'
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from pyspark_delta.errors import InvalidActionsError
from pyspark_delta.kernel.protocol import types
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.codec import RawJson, dumps
from pyspark_delta.kernel.protocol.column_mapping import ColumnMappingMode
from pyspark_delta.kernel.protocol.datetimes import (
    MICROS_PER_DAY,
    MICROS_PER_SECOND,
    days_from_civil,
    format_date,
    format_timestamp,
    micros_of,
    parse_date,
    parse_timestamp,
)
from pyspark_delta.kernel.protocol.partition_values import as_single, format_float
from pyspark_delta.kernel.protocol.properties import (
    NUM_INDEXED_COLUMNS,
    STATS_COLUMNS,
    STRING_PREFIX_LENGTH,
    property_value,
)
from pyspark_delta.kernel.protocol.stats_columns import StatsColumn, has_bounds, stats_columns
from pyspark_delta.kernel.protocol.types import DataType, DecimalType

DEFAULT_PREFIX_LENGTH = 32
"""Characters (of UTF-16, as Spark counts) that are kept of a string bound."""

_LOW_TIE_BREAKER = "\x7f"
_HIGH_TIE_BREAKER = "\U0010ffff"
# The years that every implementation writes and reads alike: without sign or era.
_FIRST_DAY = days_from_civil(1, 1, 1)
_LAST_DAY = days_from_civil(9999, 12, 31)
# Offsets of local mean time have seconds, which writers truncate; the last ended in 1972.
_LOCAL_MEAN_TIME_END = days_from_civil(1973, 1, 1) * MICROS_PER_DAY
_OFFSET_WITHOUT_SECONDS = re.compile(r".*[+-][0-9]{2}:?[0-9]{2}")
_KNOWN_KEYS = ("numRecords", "minValues", "maxValues", "nullCount", "tightBounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStats:
    """The statistics of one leaf of a file.  None: unknown, or (bounds) there is no value.

    `path` is physical.  Dates are days and timestamps microseconds since 1970-01-01, or Python's.
    """

    path: tuple[str, ...]
    data_type: DataType
    minimum: Any = None
    maximum: Any = None
    null_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStats:
    """The parsed statistics of a file; the values are those of the JSON text.

    Numbers with a decimal point are Decimal, so none loses a digit.
    """

    num_records: int | None
    tight_bounds: bool
    min_values: Mapping[str, Any]
    max_values: Mapping[str, Any]
    null_counts: Mapping[str, Any]

    def minimum(self, path: Sequence[str], data_type: DataType) -> Any:
        """A value that no live row of the column is below; None when it is unknown."""
        return parse_bound(_at(self.min_values, path), data_type, is_max=False)

    def maximum(self, path: Sequence[str], data_type: DataType) -> Any:
        """A value that no live row of the column is above; None when it is unknown."""
        return parse_bound(_at(self.max_values, path), data_type, is_max=True)

    def null_count(self, path: Sequence[str]) -> int | None:
        """Nulls of the column; None when unknown, or made meaningless by a deletion vector."""
        count = _at(self.null_counts, path)
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            return None
        if not self.tight_bounds and count not in (0, self.num_records):
            return None
        return count


def table_stats_columns(
    metadata: Metadata, mode: ColumnMappingMode = ColumnMappingMode.NONE
) -> tuple[StatsColumn, ...]:
    """The leaves that a table's properties choose for statistics, with physical names by `mode`."""
    return stats_columns(
        metadata.schema,
        metadata.partition_columns,
        mode=mode,
        num_indexed=property_value(metadata.configuration, NUM_INDEXED_COLUMNS),
        listed=metadata.configuration.get(STATS_COLUMNS.key),
    )


def string_prefix_length(metadata: Metadata) -> int:
    """The number of characters of a string that bounds of a table keep."""
    length = property_value(metadata.configuration, STRING_PREFIX_LENGTH)
    return DEFAULT_PREFIX_LENGTH if length is None else length


def format_stats(
    num_records: int,
    columns: Iterable[ColumnStats],
    *,
    tight_bounds: bool | None = None,
    prefix_length: int = DEFAULT_PREFIX_LENGTH,
) -> str:
    """The text for `add.stats`.  `tight_bounds` None leaves the key out, as without vectors."""
    columns = list(columns)
    bounded = [c for c in columns if has_bounds(c.data_type)]
    stats: dict[str, Any] = {"numRecords": num_records}
    if bounded:
        stats |= {"minValues": {}, "maxValues": {}}
    for c in bounded:
        low = format_bound(c.minimum, c.data_type, is_max=False, prefix_length=prefix_length)
        high = format_bound(c.maximum, c.data_type, is_max=True, prefix_length=prefix_length)
        _put(stats["minValues"], c.path, low)
        _put(stats["maxValues"], c.path, high)
    if columns:
        stats["nullCount"] = {}
    for c in columns:
        _put(stats["nullCount"], c.path, c.null_count)
    if tight_bounds is not None:
        stats["tightBounds"] = tight_bounds
    return _text(stats)


def format_bound(
    value: Any, data_type: DataType, *, is_max: bool, prefix_length: int = DEFAULT_PREFIX_LENGTH
) -> str | int | None:
    """The JSON value for a bound; None when no correct one is readable by every reader.

    Infinities and NaN have no number in JSON and are left out.  NaN is above all numbers in Spark:
    a caller whose values may include NaN must give no maximum.
    """
    if value is None:
        return None
    if data_type == types.STRING:
        cut = truncate_max if is_max else truncate_min
        return cut(value, prefix_length) if _is_unicode(value) else None
    if data_type in (types.FLOAT, types.DOUBLE):
        return RawJson(format_float(value, data_type)) if math.isfinite(value) else None
    if isinstance(data_type, DecimalType):
        number = Decimal(value)
        return RawJson(format(number, "f")) if number.is_finite() else None
    if data_type == types.DATE:
        return _format_date(value)
    if data_type in (types.TIMESTAMP, types.TIMESTAMP_NTZ):
        return _format_timestamp(value, is_max=is_max, is_utc=data_type == types.TIMESTAMP)
    return int(value)


def truncate_min(text: str, length: int = DEFAULT_PREFIX_LENGTH) -> str | None:
    """A prefix of `text`, which is never above it; None when no prefix may be kept."""
    units = _utf16_length(text)
    if units <= length:
        return text
    return _prefix(text, length) if length > 0 else None


def truncate_max(text: str, length: int = DEFAULT_PREFIX_LENGTH) -> str | None:
    """A short string that is not below `text`; None when there is none of twice the length.

    The first character left out is replaced by a larger one, the tie-breaker.  If no character is
    larger, it is kept, and the next one is tried.
    """
    if _utf16_length(text) <= length:
        return text
    if length <= 0:
        return None
    kept = len(_prefix(text, length))
    units = _utf16_length(text[:kept])
    while units <= 2 * length:
        if kept == len(text):
            return text
        following = text[kept]
        if following < _LOW_TIE_BREAKER:
            return text[:kept] + _LOW_TIE_BREAKER
        if following != _HIGH_TIE_BREAKER:
            return text[:kept] + _HIGH_TIE_BREAKER
        kept += 1
        units += 2
    return None


def parse_stats(text: str | None) -> FileStats | None:
    """The statistics in `add.stats`; None when it is absent or malformed."""
    value = _loads(text, parse_float=Decimal)
    if value is None:
        return None
    count = value.get("numRecords")
    is_count = isinstance(count, int) and not isinstance(count, bool) and count >= 0
    return FileStats(
        num_records=count if is_count else None,
        tight_bounds=value.get("tightBounds") is not False,
        min_values=_mapping(value.get("minValues")),
        max_values=_mapping(value.get("maxValues")),
        null_counts=_mapping(value.get("nullCount")),
    )


def parse_bound(raw: Any, data_type: DataType, *, is_max: bool) -> Any:
    """A bound as a value that can be compared; None when it cannot be trusted.

    Dates become days, timestamps microseconds.  Writers truncate timestamps to milliseconds, so a
    maximum is raised by as much.
    """
    if raw is None or not has_bounds(data_type):
        return None
    if data_type == types.STRING:
        return raw if isinstance(raw, str) else None
    if data_type == types.DATE:
        return parse_date(raw) if isinstance(raw, str) else None
    if data_type in (types.TIMESTAMP, types.TIMESTAMP_NTZ):
        return _parse_timestamp(raw, data_type, is_max=is_max)
    if isinstance(raw, bool) or not isinstance(raw, int | Decimal):
        return None
    if data_type in (types.FLOAT, types.DOUBLE):
        return _parse_float(raw, data_type)
    if isinstance(data_type, DecimalType):
        return Decimal(raw)
    return raw if isinstance(raw, int) else None


def widen_stats(
    stats: str | None, *, num_records: int | None = None, deleted_records: int = 0
) -> str:
    """Statistics for a file that gets a deletion vector: bounds stay, but are no longer tight.

    `num_records`, the rows of the file, is for files whose statistics lack it;
    `deleted_records` are rows that tight statistics already leave out.  A column of nulls only is
    marked as such for the whole file.  All other statistics stay unchanged.
    """
    value = _loads(stats, parse_float=RawJson) or {}
    count = value.get("numRecords")
    if not isinstance(count, int) or isinstance(count, bool):
        count = num_records
    if count is None:
        raise InvalidActionsError("DELTA_DELETION_VECTOR_MISSING_NUM_RECORDS")
    was_tight = value.get("tightBounds") is not False
    wide = {**value, "numRecords": count, "tightBounds": False}
    try:
        if was_tight and "nullCount" in value:
            all_null = count - deleted_records
            wide["nullCount"] = _all_null_marked(value["nullCount"], all_null, count)
        order = [key for key in _KNOWN_KEYS if key in wide]
        return _text({key: wide[key] for key in dict.fromkeys((*order, *wide))})
    except RecursionError:
        return _text({"numRecords": count, "tightBounds": False})


def with_num_records(stats: str | None, num_records: int) -> str:
    """The same statistics with a number of records; all others stay unchanged."""
    value = _loads(stats, parse_float=RawJson) or {}
    try:
        return _text({"numRecords": num_records, **value} | {"numRecords": num_records})
    except RecursionError:
        return _text({"numRecords": num_records})


def _all_null_marked(counts: Any, all_null: int, physical: int) -> Any:
    if isinstance(counts, dict):
        return {key: _all_null_marked(item, all_null, physical) for key, item in counts.items()}
    return physical if counts == all_null and not isinstance(counts, bool) else counts


def _loads(text: str | None, *, parse_float: Any) -> dict[str, Any] | None:
    if not text:
        return None
    try:
        value = json.loads(text, parse_float=parse_float, parse_constant=_no_number)
    except (ValueError, ArithmeticError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _no_number(name: str) -> None:
    """Parse NaN and Infinity, which some writers leave unquoted, as no bound."""


def _text(value: Any) -> str:
    """JSON in which numbers that are text already stay unchanged."""
    if isinstance(value, RawJson):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{dumps(key)}:{_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    return dumps(value)


def _put(target: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        target = target.setdefault(name, {})
    if value is not None:
        target[path[-1]] = value


def _at(values: Any, path: Sequence[str]) -> Any:
    for name in path:
        if not isinstance(values, Mapping):
            return None
        values = values.get(name)
    return values


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _utf16_length(text: str) -> int:
    return len(text) + (0 if text.isascii() else sum(c > "\uffff" for c in text))


def _prefix(text: str, length: int) -> str:
    """The first `length` UTF-16 units, one more where that would split a character."""
    units = 0
    for index, character in enumerate(text):
        if units >= length:
            return text[:index]
        units += 2 if character > "\uffff" else 1
    return text


def _format_date(value: Any) -> str | None:
    if isinstance(value, date):
        value = value.toordinal() - date(1970, 1, 1).toordinal()
    return format_date(value) if _FIRST_DAY <= value <= _LAST_DAY else None


def _format_timestamp(value: Any, *, is_max: bool, is_utc: bool) -> str | None:
    micros = micros_of(value) if isinstance(value, datetime) else value
    millis = -(-micros // 1000) if is_max else micros // 1000
    if not _FIRST_DAY <= millis // 86_400_000 <= _LAST_DAY:
        return None
    text = format_timestamp(millis * 1000, separator="T", fraction_digits=3)
    return f"{text}Z" if is_utc else text


def _parse_float(raw: int | Decimal, data_type: DataType) -> float | None:
    number: float | None = float(Decimal(raw))
    if data_type == types.FLOAT and number is not None:
        # `0.1` is short for the 32-bit number nearest to it, which may be above the 64-bit one.
        number = as_single(number)
    return number if number is not None and math.isfinite(number) else None


def _parse_timestamp(raw: Any, data_type: DataType, *, is_max: bool) -> int | None:
    if not isinstance(raw, str):
        return None
    micros = parse_timestamp(raw) if data_type == types.TIMESTAMP else parse_timestamp(raw, None)
    if micros is None:
        return None
    slack = 999 if is_max else 0
    if (
        data_type == types.TIMESTAMP
        and micros < _LOCAL_MEAN_TIME_END
        and _OFFSET_WITHOUT_SECONDS.fullmatch(raw)
    ):
        slack += 59 * MICROS_PER_SECOND
    return micros + slack if is_max else micros - slack
