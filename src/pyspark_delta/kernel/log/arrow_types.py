"""The Arrow types of the log's columns.

Timestamps are in microseconds, as the protocol defines: in UTC, or without a time zone.

>>> str(log_arrow_type(ArrayType(types.LONG)))
'list<item: int64>'
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from pyspark_delta.kernel.protocol import types
from pyspark_delta.kernel.protocol.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructType,
)

ARROW_TYPES: Mapping[PrimitiveType, pa.DataType] = {
    types.STRING: pa.string(),
    types.LONG: pa.int64(),
    types.INTEGER: pa.int32(),
    types.SHORT: pa.int16(),
    types.BYTE: pa.int8(),
    types.FLOAT: pa.float32(),
    types.DOUBLE: pa.float64(),
    types.BOOLEAN: pa.bool_(),
    types.BINARY: pa.binary(),
    types.DATE: pa.date32(),
    types.TIMESTAMP: pa.timestamp("us", "UTC"),
    types.TIMESTAMP_NTZ: pa.timestamp("us"),
}


def log_arrow_type(data_type: DataType) -> pa.DataType:
    """A type as Arrow has it, every field nullable; types that no log has a column of are text."""
    match data_type:
        case StructType():
            return pa.struct([(f.name, log_arrow_type(f.data_type)) for f in data_type])
        case ArrayType(element_type=element):
            return pa.list_(log_arrow_type(element))
        case MapType(key_type=key, value_type=value):
            return pa.map_(log_arrow_type(key), log_arrow_type(value))
        case DecimalType(precision=precision, scale=scale):
            return pa.decimal128(precision, scale)
        case PrimitiveType():
            return ARROW_TYPES.get(data_type, pa.string())
        case _:
            return pa.string()
