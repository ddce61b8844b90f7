"""Convert minimum and maximum values of statistics to reliable bounds.

Statistics are coarser than data: timestamps are truncated to milliseconds, and old writers cut the
seconds off a zone's offset; decimals may have been converted to doubles; floats are written with
the digits of a float.  Each bound is moved outwards by the possible loss.

>>> lower, upper = Side.LOWER, Side.UPPER
>>> text = pa.array(["2024-01-01T00:00:00.000Z"])
>>> bound(text, TIMESTAMP, upper)[0].as_py() - bound(text, TIMESTAMP, lower)[0].as_py()
1000
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.kernel.protocol.types import (
    BOOLEAN,
    DATE,
    FLOAT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
)
from pyspark_delta.kernel.scan.predicates.evaluation import comparable, comparable_type
from pyspark_delta.kernel.scan.predicates.literals import (
    FRACTIONAL,
    INTEGRAL,
    MAX_LONG,
    MIN_LONG,
    cast_text,
)


class Side(Enum):
    """The direction in which a bound may move: a lower one down, an upper one up."""

    LOWER = "minValues"
    UPPER = "maxValues"


_MILLISECOND = 1_000
_OFFSET_SECONDS = 59_000_000
# The last zone with seconds in its offset, Liberia's, dropped them in 1972.
_WHOLE_OFFSETS_FROM = 94_694_400_000_000  # 1973-01-01
_PLAIN_DATE = r"^\d{4}-\d{2}-\d{2}$"
_PLAIN_INSTANT = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d{1,6})?(Z|[+-]\d{2}:\d{2})$"
_PLAIN_CLOCK = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}:\d{2}(\.\d{1,6})?)?$"
_HAS_ZONE = r"(Z|[+-]\d{2}:\d{2}(:\d{2})?)$"
_HAS_OFFSET_SECONDS = r"[+-]\d{2}:\d{2}:\d{2}$"
# The number of digits that survive a conversion to double.
_DOUBLE_DIGITS = 15
_DOUBLE_ERROR = 2.0**-51
_MAX_DIGITS = 38


def has_usable_bounds(data_type: DataType) -> bool:
    """Whether statistics of a type have a usable minimum and maximum."""
    return json_arrow_type(data_type) is not None


def json_arrow_type(data_type: DataType) -> pa.DataType | None:
    """The type a bound has in JSON; None for a type that has no bounds."""
    if isinstance(data_type, DecimalType):
        return pa.decimal128(_MAX_DIGITS, data_type.scale)
    if data_type in INTEGRAL:
        return pa.int64()
    if data_type in FRACTIONAL:
        return pa.float64()
    if data_type == BOOLEAN:
        return pa.bool_()
    if data_type in (STRING, DATE, TIMESTAMP, TIMESTAMP_NTZ):
        return pa.string()
    return None


def bound(raw: pa.Array, data_type: DataType, side: Side) -> pa.Array:
    """A column of bounds from JSON, in comparable form."""
    if data_type == DATE:
        days = _from_text(raw, _PLAIN_DATE, pa.date32(), lambda text: cast_text(text, DATE))
        return days.cast(pa.int64())
    if data_type == TIMESTAMP:
        instants = _from_text(raw, _PLAIN_INSTANT, pa.timestamp("us", "UTC"), _instant)
        is_exact = pc.or_(
            pc.and_(
                pc.ends_with(raw, pattern="Z"), pc.greater_equal(instants, _WHOLE_OFFSETS_FROM)
            ),
            pc.match_substring_regex(raw, _HAS_OFFSET_SECONDS),
        )
        return _moved(instants, side, pc.if_else(is_exact, 0, _OFFSET_SECONDS))
    if data_type == TIMESTAMP_NTZ:
        clocks = _from_text(raw, _PLAIN_CLOCK, pa.timestamp("us"), _clock)
        return _moved(clocks, side, pa.scalar(0, pa.int64()))
    if data_type == FLOAT:
        return raw.cast(pa.float32(), safe=False).cast(pa.float64())
    if isinstance(data_type, DecimalType):
        return _decimal_bound(raw, data_type, side)
    return raw.cast(comparable_type(data_type))


def struct_bound(values: pa.Array, data_type: DataType, side: Side) -> pa.Array:
    """As `bound`, for a column of a checkpoint's `stats_parsed`."""
    try:
        array = comparable(values, data_type)
    except (pa.ArrowException, TypeError, AttributeError):
        # The column had another type, or none, when the checkpoint was written.
        return pa.nulls(len(values), comparable_type(data_type))
    if data_type == TIMESTAMP:
        # It was parsed from JSON, whose text is not known here.
        return _moved(array, side, pa.scalar(_OFFSET_SECONDS, pa.int64()))
    if data_type == TIMESTAMP_NTZ:
        return _moved(array, side, pa.scalar(0, pa.int64()))
    if isinstance(data_type, DecimalType):
        return _decimal_bound(array, data_type, side)
    return array


def around_float(bounds: pa.Array, side: Side) -> pa.Array:
    """Bounds of doubles that are valid for the nearest float as well, as which they were written.

    A column that was widened from FLOAT has files whose 0.1 is a little more than a double's.
    """
    rounded = bounds.cast(pa.float32(), safe=False).cast(pa.float64())
    outer = pc.min_element_wise if side is Side.LOWER else pc.max_element_wise
    return outer(bounds, rounded, skip_nulls=False)


def _moved(microseconds: pa.Array, side: Side, slack: pa.Array | pa.Scalar) -> pa.Array:
    """Timestamps of statistics moved by the millisecond of their precision, and by `slack`."""
    if side is Side.LOWER:
        least = MIN_LONG + _OFFSET_SECONDS
        moved = pc.subtract(pc.max_element_wise(microseconds, least, skip_nulls=False), slack)
        return pc.if_else(pc.less(microseconds, least), MIN_LONG, moved)
    most = MAX_LONG - _OFFSET_SECONDS - _MILLISECOND
    moved = pc.add(pc.min_element_wise(microseconds, most, skip_nulls=False), slack)
    return pc.if_else(pc.greater(microseconds, most), MAX_LONG, pc.add(moved, _MILLISECOND))


def _decimal_bound(raw: pa.Array, data_type: DecimalType, side: Side) -> pa.Array:
    if data_type.precision <= _DOUBLE_DIGITS:
        return raw
    scale = data_type.scale
    kind, wide = pa.decimal128(_MAX_DIGITS, scale), pa.decimal256(_MAX_DIGITS + 2, scale)
    limit = pa.scalar(Decimal(10) ** (_MAX_DIGITS - 1 - scale), kind)
    has_room = pc.less(pc.abs(raw), limit)
    kept = pc.if_else(has_room, raw, pa.scalar(None, kind))
    error = pc.multiply(pc.abs(kept.cast(pa.float64())), _DOUBLE_ERROR)
    step = pa.scalar(Decimal(1).scaleb(-scale), wide)
    slack = pc.cast(error, kind, safe=False).cast(wide)
    move = pc.subtract if side is Side.LOWER else pc.add
    moved = kept.cast(wide)
    for part in (slack, step):
        moved = move(moved, part).cast(wide)
    return moved.cast(kind)


def _instant(text: str) -> object:
    # The zone of a timestamp without one is unknown.
    return cast_text(text, TIMESTAMP) if pc.match_substring_regex(text, _HAS_ZONE).as_py() else None


def _clock(text: str) -> object:
    has_zone = pc.match_substring_regex(text, r"\d:\d{2}.*" + _HAS_ZONE).as_py()
    return None if has_zone else cast_text(text, TIMESTAMP_NTZ)


def _from_text(
    raw: pa.Array, plain: str, kind: pa.DataType, parse: Callable[[str], object]
) -> pa.Array:
    """Text as 64-bit integers: Arrow parses `plain` values, `parse` others, or gives null."""
    whole = pa.int32() if pa.types.is_date(kind) else pa.int64()
    try:
        return raw.cast(kind).cast(whole).cast(pa.int64())
    except pa.ArrowInvalid:
        pass
    is_plain = pc.match_substring_regex(raw, plain)
    try:
        fast = pc.if_else(is_plain, raw, None).cast(kind).cast(whole).cast(pa.int64())
    except pa.ArrowInvalid:
        fast, is_plain = pa.nulls(len(raw), pa.int64()), pc.if_else(is_plain, False, is_plain)
    encoded = pc.if_else(is_plain, None, raw).dictionary_encode()
    parsed = [_or_none(parse, text) for text in encoded.dictionary.to_pylist()]
    return pc.coalesce(fast, pc.take(pa.array(parsed, pa.int64()), encoded.indices))


def _or_none(parse: Callable[[str], object], text: str) -> object:
    try:
        return parse(text)
    except ValueError:
        return None
