"""Parse statistics and partition values of many files from text into typed Arrow columns.

Statistics are JSON text from any writer.  A value that does not fit its column's type becomes
null, which readers take for "unknown", and never a wrong bound.  PROTOCOL.md, "Per-file
Statistics" and "Partition Value Serialization".

>>> wanted = pa.struct([("numRecords", pa.int64())])
>>> typed_stats(pa.array(['{"numRecords":3,"more":1}', "broken", None]), wanted).to_pylist()
[{'numRecords': 3}, None, None]
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from pyspark_delta.errors import PartitionValueError
from pyspark_delta.kernel.protocol.datetimes import parse_date, parse_timestamp
from pyspark_delta.kernel.protocol.partition_values import parse_partition_value
from pyspark_delta.kernel.protocol.types import DataType, StructType

# Below this number of rows the search for a broken line stops halving and parses each row.
_FEW_ROWS = 256
_BLOCK_BYTES = 1 << 21
_SPECIAL_FLOATS = frozenset({"NaN", "Infinity", "-Infinity", "+Infinity", "INF", "-INF"})
_EXACT = Context(prec=200)


def typed_stats(stats: pa.Array, wanted: pa.StructType) -> pa.StructArray:
    """`stats` as structs of type `wanted`; null where there are none or they are not an object."""
    if not len(stats) or stats.null_count == len(stats):
        return pa.nulls(len(stats), wanted)
    parsed = _parse_fast(pc.fill_null(stats, "null"), wanted)
    if parsed is not None:
        return parsed
    if len(stats) <= _FEW_ROWS:
        return pa.array([_fitted_text(text, wanted) for text in stats.to_pylist()], wanted)
    half = len(stats) // 2
    return pa.concat_arrays(
        [typed_stats(stats.slice(0, half), wanted), typed_stats(stats.slice(half), wanted)]
    )


def parse_partition_values(
    values: pa.MapArray, schema: StructType, wanted: pa.StructType
) -> pa.StructArray:
    """Typed partition values of each file.

    `schema` has the partition columns under their physical names, `wanted` is the same in Arrow.
    """
    children = [
        _typed(pc.map_lookup(values, f.name, "last"), f.data_type, wanted.field(f.name).type)
        for f in schema
    ]
    return pa.StructArray.from_arrays(children, fields=list(wanted))


def _parse_fast(stats: pa.Array, wanted: pa.StructType) -> pa.StructArray | None:
    """All rows by Arrow's JSON reader; None when one of them needs a closer look."""
    try:
        # In a wrapper each text is one value: two objects in a text, or none, cannot shift rows.
        lines = pc.binary_join_element_wise('{"s":', stats, "}\n", "")
        data = lines.buffers()[2]  # a fresh result's buffer holds the strings and nothing else
        longest = pc.max(pc.binary_length(lines)).as_py()
        table = pa_json.read_json(
            pa.BufferReader(data),
            read_options=pa_json.ReadOptions(
                use_threads=data.size > _BLOCK_BYTES, block_size=max(_BLOCK_BYTES, longest + 1)
            ),
            parse_options=pa_json.ParseOptions(
                explicit_schema=pa.schema([("s", _read_type(wanted))]),
                unexpected_field_behavior="ignore",
            ),
        )
        if table.num_rows != len(stats):
            return None
        return _cast(table.column("s").combine_chunks(), wanted)
    except pa.ArrowInvalid:
        return None


def _read_type(wanted: pa.DataType) -> pa.DataType:
    """The type to read as: Arrow's JSON has no dates, they are text until they are cast."""
    if pa.types.is_struct(wanted):
        return pa.struct([(f.name, _read_type(f.type)) for f in wanted])
    return pa.string() if pa.types.is_date(wanted) else wanted


def _cast(array: Any, wanted: pa.DataType) -> Any:
    if isinstance(array, pa.ChunkedArray):  # the result of combining no chunks
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if not pa.types.is_struct(wanted):
        if pa.types.is_decimal(wanted):
            # The reader counts digits before it pads to the scale; Parquet would cut the rest.
            array.validate(full=True)
        return array if array.type.equals(wanted) else array.cast(wanted)
    children = [_cast(array.field(i), f.type) for i, f in enumerate(wanted)]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=mask)


# One text at a time.


def _fitted_text(text: str | None, wanted: pa.StructType) -> Any:
    if text is None:
        return None
    return fitted(loaded(text), wanted)


def loaded(text: str) -> Any:
    """The JSON value in a text, with exact numbers; None when it is broken."""
    try:
        return json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError, InvalidOperation):
        return None


def fitted(value: Any, wanted: pa.DataType, rounding: str | None = None) -> Any:
    """A JSON value as Python's value for an Arrow type; None when it does not fit.

    A decimal with too many digits only fits with a `rounding`, one of the module `decimal`.
    """
    if pa.types.is_struct(wanted):
        if not isinstance(value, dict):
            return None
        return {f.name: fitted(value.get(f.name), f.type) for f in wanted}
    if value is None:
        return None
    try:
        if pa.types.is_decimal(wanted):
            return _decimal(value, wanted, rounding)
        return next(read for is_type, read in _LEAVES.items() if is_type(wanted))(value, wanted)
    except (ValueError, TypeError, OverflowError, InvalidOperation):
        return None


def _integer(value: Any, wanted: pa.DataType) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    most = 1 << (wanted.bit_width - 1)
    # The range first: a short text may be a number of any length.
    return int(value) if -most <= value < most and value == int(value) else None


def _float(value: Any, wanted: pa.DataType) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return float(value) if value in _SPECIAL_FLOATS else None
    number = float(value)
    return None if isinstance(value, Decimal) and math.isinf(number) else number


def _decimal(value: Any, wanted: pa.DataType, rounding: str | None) -> Decimal | None:
    if isinstance(value, bool):
        return None
    number = Decimal(value)
    if not number.is_finite() or number.adjusted() >= wanted.precision:
        return None
    fitting = number.quantize(Decimal(1).scaleb(-wanted.scale), rounding, _EXACT)
    if abs(fitting) >= Decimal(10) ** (wanted.precision - wanted.scale):
        return None
    # Unrounded, a bound with more digits than the column has cannot be a value of the column.
    return None if rounding is None and fitting != number else fitting


def _date(value: Any, wanted: pa.DataType) -> int | None:
    days = parse_date(value)
    return days if days is not None and -(2**31) <= days < 2**31 else None


def _timestamp(value: Any, wanted: pa.DataType) -> int | None:
    micros = parse_timestamp(value, None if wanted.tz is None else UTC)
    return micros if micros is not None and -(2**63) <= micros < 2**63 else None


def _string(value: Any, wanted: pa.DataType) -> str | None:
    if not isinstance(value, str):
        return None
    value.encode()  # half of a surrogate pair is no text
    return value


def _boolean(value: Any, wanted: pa.DataType) -> bool | None:
    return value if isinstance(value, bool) else None


_LEAVES: Mapping[Callable[[pa.DataType], bool], Callable[[Any, pa.DataType], Any]] = {
    pa.types.is_integer: _integer,
    pa.types.is_floating: _float,
    pa.types.is_date: _date,
    pa.types.is_timestamp: _timestamp,
    pa.types.is_boolean: _boolean,
    pa.types.is_string: _string,
}


# Partition values.


def _typed(texts: pa.Array, data_type: DataType, wanted: pa.DataType) -> pa.Array:
    """Texts as values; few are distinct, and each of those is read once."""
    encoded = texts.dictionary_encode()
    values = [_value(text, data_type) for text in encoded.dictionary.to_pylist()]
    return pa.array(values, wanted).take(encoded.indices)


def _value(text: str | None, data_type: DataType) -> Any:
    try:
        return parse_partition_value(text, data_type)
    except PartitionValueError:
        # As in delta-spark's checkpoints: readers of rows find the text itself beside it.
        return None
