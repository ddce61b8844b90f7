"""Kernel types as Arrow types, and back.

The Arrow side is what the reader hands out: timestamps are microseconds in UTC, TIMESTAMP_NTZ has
no zone, a variant is the struct of its two binary parts, and `char`/`varchar` are text.
PROTOCOL.md, "Primitive Types" and "Variant Type".

>>> arrow_schema(StructType((StructField("at", TIMESTAMP),))).field("at").type
TimestampType(timestamp[us, tz=UTC])
>>> kernel_type(pa.list_(pa.int16())).simple_string
'array<smallint>'
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import pyarrow as pa

from pyspark_delta.errors.table import SchemaError
from pyspark_delta.kernel.log.atomic_types import ARROW_TYPES
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
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

VARIANT_PARTS = ("value", "metadata")
"""The fields of a variant, in the order in which they are handed out."""

_PRIMITIVES: Mapping[PrimitiveType, pa.DataType] = {
    **ARROW_TYPES,
    VOID: pa.null(),
    VARIANT: pa.struct([pa.field(name, pa.binary(), nullable=False) for name in VARIANT_PARTS]),
}
_FIELD_ID = "PARQUET:field_id"
_TEXT = re.compile(r"(var)?char\([0-9]+\)")

# Arrow types that other writers hand in, and the smallest kernel type that holds their values.
_FROM_ARROW: tuple[tuple[Callable[[pa.DataType], bool], DataType], ...] = (
    (pa.types.is_boolean, BOOLEAN),
    (pa.types.is_int8, BYTE),
    (pa.types.is_int16, SHORT),
    (pa.types.is_int32, INTEGER),
    (pa.types.is_int64, LONG),
    (pa.types.is_uint8, SHORT),
    (pa.types.is_uint16, INTEGER),
    (pa.types.is_uint32, LONG),
    (pa.types.is_uint64, DecimalType(20, 0)),
    (pa.types.is_float16, FLOAT),
    (pa.types.is_float32, FLOAT),
    (pa.types.is_float64, DOUBLE),
    (pa.types.is_string, STRING),
    (pa.types.is_large_string, STRING),
    (pa.types.is_string_view, STRING),
    (pa.types.is_binary, BINARY),
    (pa.types.is_large_binary, BINARY),
    (pa.types.is_binary_view, BINARY),
    (pa.types.is_fixed_size_binary, BINARY),
    (pa.types.is_date, DATE),
    (pa.types.is_null, VOID),
)


def arrow_type(data_type: DataType) -> pa.DataType:
    """The Arrow type that holds values of `data_type`; SchemaError when there is none."""
    match data_type:
        case StructType(fields=fields):
            return pa.struct([arrow_field(f) for f in fields])
        case ArrayType(element_type=element, contains_null=contains_null):
            return pa.list_(pa.field("element", arrow_type(element), nullable=contains_null))
        case MapType(key_type=key, value_type=value, value_contains_null=contains_null):
            item = pa.field("value", arrow_type(value), nullable=contains_null)
            return pa.map_(arrow_type(key), item)
        case DecimalType(precision=precision, scale=scale):
            return pa.decimal128(precision, scale)
        case PrimitiveType(name=name):
            if data_type in _PRIMITIVES:
                return _PRIMITIVES[data_type]
            if _TEXT.fullmatch(name):
                return pa.string()
    raise _unsupported(data_type)


def arrow_field(f: StructField) -> pa.Field:
    """A column as Arrow describes it; what features hang on it stays behind."""
    return pa.field(f.name, arrow_type(f.data_type), nullable=f.nullable)


def arrow_schema(schema: StructType) -> pa.Schema:
    """A table's schema as Arrow has it, in the same order, under logical names."""
    return pa.schema([arrow_field(f) for f in schema])


def kernel_type(arrow: pa.DataType) -> DataType:
    """The type of a column that takes every value of an Arrow type; SchemaError for none."""
    for is_of_kind, found in _FROM_ARROW:
        if is_of_kind(arrow):
            return found
    if pa.types.is_decimal(arrow):
        return _decimal(arrow)
    if pa.types.is_timestamp(arrow):
        return TIMESTAMP if arrow.tz else TIMESTAMP_NTZ
    if pa.types.is_dictionary(arrow):
        return kernel_type(arrow.value_type)
    if isinstance(arrow, pa.BaseExtensionType):
        return kernel_type(arrow.storage_type)
    if pa.types.is_struct(arrow):
        return StructType(tuple(_kernel_field(f) for f in arrow))
    if is_list(arrow):
        return ArrayType(kernel_type(arrow.value_type), arrow.value_field.nullable)
    if pa.types.is_map(arrow):
        value = kernel_type(arrow.item_type)
        return MapType(kernel_type(arrow.key_type), value, arrow.item_field.nullable)
    raise _unsupported(arrow)


def kernel_schema(schema: pa.Schema) -> StructType:
    """The schema of a table that takes rows of an Arrow schema."""
    return StructType(tuple(_kernel_field(f) for f in schema))


def is_list(arrow: pa.DataType) -> bool:
    """Whether an Arrow type is one of the several kinds of list."""
    return bool(
        pa.types.is_list(arrow)
        or pa.types.is_large_list(arrow)
        or pa.types.is_fixed_size_list(arrow)
        or pa.types.is_list_view(arrow)
        or pa.types.is_large_list_view(arrow)
    )


def _kernel_field(f: pa.Field) -> StructField:
    return StructField(f.name, kernel_type(f.type), f.nullable)


def _decimal(arrow: pa.DataType) -> DecimalType:
    try:
        return DecimalType(arrow.precision, arrow.scale)
    except ValueError:
        raise _unsupported(arrow) from None


def _unsupported(shown: object) -> SchemaError:
    return SchemaError("DELTA_UNSUPPORTED_DATA_TYPES", dataTypeList=shown)


def field_with_ids(
    f: StructField, ids: Mapping[tuple[str, ...], int], parent: tuple[str, ...] = ()
) -> pa.Field:
    """A column of a data file; `ids` gives the Parquet field ids by path, where there are any."""
    path = (*parent, f.name)
    metadata = {_FIELD_ID: str(ids[path])} if path in ids else None
    return pa.field(f.name, _type_with_ids(f.data_type, path, ids), f.nullable, metadata)


def _type_with_ids(
    data_type: DataType, path: tuple[str, ...], ids: Mapping[tuple[str, ...], int]
) -> pa.DataType:
    match data_type:
        case StructType():
            return pa.struct([field_with_ids(f, ids, path) for f in data_type])
        case ArrayType():
            element = StructField("element", data_type.element_type, data_type.contains_null)
            return pa.list_(field_with_ids(element, ids, path))
        case MapType():
            key = StructField("key", data_type.key_type, nullable=False)
            value = StructField("value", data_type.value_type, data_type.value_contains_null)
            return pa.map_(field_with_ids(key, ids, path), field_with_ids(value, ids, path))
    return arrow_type(data_type)
