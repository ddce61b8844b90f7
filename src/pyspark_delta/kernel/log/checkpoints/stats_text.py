"""Format typed statistics as JSON text, one Arrow column at a time.

A checkpoint may hold only typed statistics (`delta.checkpoint.writeStatsAsJson`), but an add
action needs them as text.

>>> parsed = pa.array([{"numRecords": 3, "minValues": {"a": None, "b": "x"}}, None])
>>> stats_texts(parsed).to_pylist()
['{"numRecords":3,"minValues":{"b":"x"}}', None]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.kernel.protocol.codec import dumps
from pyspark_delta.kernel.protocol.datetimes import (
    MICROS_PER_DAY,
    days_from_civil,
    format_date,
    format_timestamp,
)

# Between them years have four digits, and Arrow's text is the one that is wanted.
_FIRST_DAY, _BEHIND_LAST_DAY = days_from_civil(1, 1, 1), days_from_civil(10_000, 1, 1)
_NEEDS_ESCAPE = r'["\\\x00-\x1f]'


def stats_texts(parsed: pa.StructArray) -> pa.StringArray:
    """Each row as JSON without its nulls; null for a row that is null."""
    return _texts(parsed)


def _object_texts(array: pa.StructArray) -> pa.StringArray:
    members = [
        pc.fill_null(
            pc.binary_join_element_wise(f"{dumps(f.name)}:", _texts(array.field(i)), ",", ""), ""
        )
        for i, f in enumerate(array.type)
    ]
    # Not by skipping nulls: where all are null, Arrow 26 then gives no rows at all.
    opened = pc.binary_join_element_wise(pa.repeat("{", len(array)), *members, "")
    texts = pc.binary_join_element_wise(pc.ascii_rtrim(opened, characters=","), "}", "")
    return pc.if_else(array.is_valid(), texts, None) if array.null_count else texts


def _texts(array: pa.Array) -> pa.StringArray:
    for is_kind, texts in _KINDS:
        if is_kind(array.type):
            return texts(array)
    return pa.array([None if v is None else _scalar(v) for v in array.to_pylist()], pa.string())


def _plain_texts(array: pa.Array) -> pa.StringArray:
    return array.cast(pa.string())


def _float_texts(array: pa.Array) -> pa.StringArray:
    # A float's own digits are less exact than those of the double that it is.
    doubles = array.cast(pa.float64())
    texts = doubles.cast(pa.string())
    is_whole = pc.invert(pc.match_substring_regex(texts, "[.e]"))
    texts = pc.if_else(is_whole, pc.binary_join_element_wise(texts, ".0", ""), texts)
    return _with(texts, pc.invert(pc.is_finite(doubles)), doubles)


def _decimal_texts(array: pa.Array) -> pa.StringArray:
    texts = array.cast(pa.string())
    return _with(texts, pc.match_substring(texts, "E"), array)


def _date_texts(array: pa.Array) -> pa.StringArray:
    days = array.cast(pa.int32())
    far = _is_outside(days, _FIRST_DAY, _BEHIND_LAST_DAY)
    return _with(_quoted(_clear(days, far).cast(pa.date32()).cast(pa.string())), far, days, _day)


def _timestamp_texts(array: pa.Array) -> pa.StringArray:
    zone = "" if array.type.tz is None else "Z"
    micros = array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64())
    far = _is_outside(micros, _FIRST_DAY * MICROS_PER_DAY, _BEHIND_LAST_DAY * MICROS_PER_DAY)
    texts = _clear(micros, far).cast(pa.timestamp("us")).cast(pa.string())
    texts = pc.binary_replace_slice(texts, start=10, stop=11, replacement="T")
    return _with(_quoted(texts, zone), far, micros, lambda value: _moment(value, zone))


def _string_texts(array: pa.Array) -> pa.StringArray:
    plain = array.cast(pa.string())
    return _with(_quoted(plain), pc.match_substring_regex(plain, _NEEDS_ESCAPE), plain)


def _quoted(texts: pa.StringArray, behind: str = "") -> pa.StringArray:
    return pc.binary_join_element_wise('"', texts, f'{behind}"', "")


def _is_outside(values: pa.Array, first: int, behind_last: int) -> pa.BooleanArray:
    return pc.or_(pc.less(values, first), pc.greater_equal(values, behind_last))


def _clear(values: pa.Array, mask: pa.BooleanArray) -> pa.Array:
    """The values without those that Arrow has no text for."""
    return pc.if_else(mask, None, values) if mask.true_count else values


def _with(
    texts: pa.StringArray,
    mask: pa.BooleanArray,
    values: pa.Array,
    text_of: Callable[[Any], str] | None = None,
) -> pa.StringArray:
    """`texts`, with the text formatted by Python where `mask` is true."""
    if not mask.true_count:
        return texts
    mask = pc.fill_null(mask, False)
    others = [(text_of or _scalar)(value) for value in values.filter(mask).to_pylist()]
    return pc.replace_with_mask(texts, mask, pa.array(others, pa.string()))


def _day(days: int) -> str:
    return f'"{format_date(days)}"'


def _moment(micros: int, zone: str) -> str:
    return f'"{format_timestamp(micros, separator="T", fraction_digits=6)}{zone}"'


def _scalar(value: Any) -> str:
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float) and not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else f'"{"-" if value < 0 else ""}Infinity"'
    return dumps(value)


_KINDS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.StringArray]], ...] = (
    (pa.types.is_struct, _object_texts),
    (pa.types.is_integer, _plain_texts),
    (pa.types.is_boolean, _plain_texts),
    (pa.types.is_floating, _float_texts),
    (pa.types.is_decimal, _decimal_texts),
    (pa.types.is_date, _date_texts),
    (pa.types.is_timestamp, _timestamp_texts),
    (pa.types.is_string, _string_texts),
    (pa.types.is_large_string, _string_texts),
)
