"""Kernel types as Arrow types and back, and casts of a file's values to the type of a column.

The Arrow types are those that readers return: timestamps are microseconds in UTC, TIMESTAMP_NTZ has
no zone, a variant is the struct of its two binary parts, and `char`/`varchar` are text.  Columns of
the log have the same, but all nullable.
PROTOCOL.md, "Primitive Types", "Variant Type", "Reader Requirements for Type Widening".

>>> arrow_schema(types.StructType((types.StructField("at", types.TIMESTAMP),))).field("at").type
TimestampType(timestamp[us, tz=UTC])
>>> kernel_type(pa.list_(pa.int16())).simple_string
'array<smallint>'
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors import SchemaError
from pyspark_delta.kernel.protocol import types

VARIANT_PARTS = ("value", "metadata")
"""The fields of a variant, in the order in which readers return them."""

_PRIMITIVES: Mapping[types.PrimitiveType, pa.DataType] = {
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
    types.VOID: pa.null(),
    types.VARIANT: pa.struct(
        [pa.field(name, pa.binary(), nullable=False) for name in VARIANT_PARTS]
    ),
}
# A log has no typed columns of these.
_NOT_IN_LOGS = (types.VOID, types.VARIANT)
_FIELD_ID = "PARQUET:field_id"
_TEXT = re.compile(r"(var)?char\([0-9]+\)")

_Test = Callable[[pa.DataType], bool]
Convert = Callable[[pa.Array], pa.Array]

_TEXT_TESTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES_TESTS = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
_LIST_TESTS = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)
# The kernel types of data to write, each the smallest that holds the values of its Arrow types.
_FROM_ARROW: tuple[tuple[types.DataType, tuple[_Test, ...]], ...] = (
    (types.BOOLEAN, (pa.types.is_boolean,)),
    (types.BYTE, (pa.types.is_int8,)),
    (types.SHORT, (pa.types.is_int16, pa.types.is_uint8)),
    (types.INTEGER, (pa.types.is_int32, pa.types.is_uint16)),
    (types.LONG, (pa.types.is_int64, pa.types.is_uint32)),
    (types.DecimalType(20, 0), (pa.types.is_uint64,)),
    (types.FLOAT, (pa.types.is_float16, pa.types.is_float32)),
    (types.DOUBLE, (pa.types.is_float64,)),
    (types.STRING, _TEXT_TESTS),
    (types.BINARY, (*_BYTES_TESTS, pa.types.is_fixed_size_binary)),
    (types.DATE, (pa.types.is_date,)),
    (types.VOID, (pa.types.is_null,)),
)
# The types that a file may have for a column of the type.  Casts are checked, so that a wide
# integer in a narrow column is read when it fits.
_READABLE: Mapping[types.DataType, tuple[_Test, ...]] = {
    types.BOOLEAN: (pa.types.is_boolean,),
    **dict.fromkeys((types.BYTE, types.SHORT, types.INTEGER, types.LONG), (pa.types.is_integer,)),
    types.FLOAT: (pa.types.is_float16, pa.types.is_float32),
    types.DOUBLE: (pa.types.is_floating, lambda t: pa.types.is_integer(t) and t.bit_width <= 32),
    types.BINARY: (*_TEXT_TESTS, *_BYTES_TESTS, pa.types.is_fixed_size_binary),
    types.DATE: (pa.types.is_date,),
    types.TIMESTAMP: (pa.types.is_timestamp,),
    types.TIMESTAMP_NTZ: (pa.types.is_timestamp, pa.types.is_date32),
}


def arrow_type(data_type: types.DataType) -> pa.DataType:
    """The Arrow type that holds values of `data_type`; SchemaError when there is none."""
    match data_type:
        case types.StructType(fields=fields):
            return pa.struct([arrow_field(f) for f in fields])
        case types.ArrayType(element_type=element, contains_null=contains_null):
            return pa.list_(pa.field("element", arrow_type(element), nullable=contains_null))
        case types.MapType(key_type=key, value_type=value, value_contains_null=contains_null):
            item = pa.field("value", arrow_type(value), nullable=contains_null)
            return pa.map_(arrow_type(key), item)
        case types.DecimalType(precision=precision, scale=scale):
            return pa.decimal128(precision, scale)
        case types.PrimitiveType(name=name):
            if data_type in _PRIMITIVES:
                return _PRIMITIVES[data_type]
            if _TEXT.fullmatch(name):
                return pa.string()
    raise _unsupported(data_type)


def log_arrow_type(data_type: types.DataType) -> pa.DataType:
    """A type as Arrow has it, every field nullable; types that no log has a column of are text."""
    match data_type:
        case types.StructType():
            return pa.struct([(f.name, log_arrow_type(f.data_type)) for f in data_type])
        case types.ArrayType(element_type=element):
            return pa.list_(log_arrow_type(element))
        case types.MapType(key_type=key, value_type=value):
            return pa.map_(log_arrow_type(key), log_arrow_type(value))
        case types.DecimalType(precision=precision, scale=scale):
            return pa.decimal128(precision, scale)
        case types.PrimitiveType():
            return (
                pa.string()
                if data_type in _NOT_IN_LOGS
                else _PRIMITIVES.get(data_type, pa.string())
            )
        case _:
            return pa.string()


def arrow_field(f: types.StructField) -> pa.Field:
    """A column as an Arrow field, without the metadata of features."""
    return pa.field(f.name, arrow_type(f.data_type), nullable=f.nullable)


def arrow_schema(schema: types.StructType) -> pa.Schema:
    """A table's schema as an Arrow schema, in the same order, with logical names."""
    return pa.schema([arrow_field(f) for f in schema])


def kernel_type(arrow: pa.DataType) -> types.DataType:
    """The column type for all values of an Arrow type; SchemaError when there is none."""
    for found, tests in _FROM_ARROW:
        if any(test(arrow) for test in tests):
            return found
    if pa.types.is_decimal(arrow):
        try:
            return types.DecimalType(arrow.precision, arrow.scale)
        except ValueError:
            raise _unsupported(arrow) from None
    if pa.types.is_timestamp(arrow):
        return types.TIMESTAMP if arrow.tz else types.TIMESTAMP_NTZ
    if pa.types.is_dictionary(arrow):
        return kernel_type(arrow.value_type)
    if isinstance(arrow, pa.BaseExtensionType):
        return kernel_type(arrow.storage_type)
    if pa.types.is_struct(arrow):
        return types.StructType(
            tuple(types.StructField(f.name, kernel_type(f.type), f.nullable) for f in arrow)
        )
    if is_list(arrow):
        return types.ArrayType(kernel_type(arrow.value_type), arrow.value_field.nullable)
    if pa.types.is_map(arrow):
        value = kernel_type(arrow.item_type)
        return types.MapType(kernel_type(arrow.key_type), value, arrow.item_field.nullable)
    raise _unsupported(arrow)


def is_list(arrow: pa.DataType) -> bool:
    """Whether an Arrow type is any kind of list."""
    return any(test(arrow) for test in _LIST_TESTS)


def caster(file_type: pa.DataType, wanted: types.DataType) -> Convert | None:
    """The conversion of a file's column to the atomic type `wanted`; None for incompatible types.

    A file may be older than its column's type (type widening), or come from a writer with other
    types: unsigned or wider integers, nanoseconds, text in dictionaries.  The conversion raises
    ArrowInvalid for a value that does not fit; it never gives another value.

    >>> caster(pa.int32(), types.LONG)(pa.array([7], pa.int32())).type
    DataType(int64)
    >>> caster(pa.string(), types.LONG) is None
    True
    """
    target = arrow_type(wanted)
    if pa.types.is_null(file_type) or wanted == types.VOID:
        return lambda array: pa.nulls(len(array), target)
    if pa.types.is_dictionary(file_type):
        decoded = caster(file_type.value_type, wanted)
        return None if decoded is None else lambda array: decoded(array.dictionary_decode())
    if file_type.equals(target):
        return unchanged
    if isinstance(wanted, types.DecimalType):
        tests: tuple[_Test, ...] = (pa.types.is_decimal, pa.types.is_integer)
    elif pa.types.is_string(target):
        # Many older writers store text as binary without an annotation; the cast checks it.
        tests = (*_TEXT_TESTS, *_BYTES_TESTS)
    else:
        tests = _READABLE.get(wanted, ())
    if not any(test(file_type) for test in tests):
        return None
    if pa.types.is_timestamp(file_type):
        return lambda array: _microseconds(array).view(target)
    return lambda array: array.cast(target)


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column in one piece; a list of files is not expected to have more text than one holds."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays([pa.nulls(0, column.type), *column.chunks])


def unchanged(array: pa.Array) -> pa.Array:
    """The conversion of a column that has the table's type already."""
    return array


def _microseconds(array: pa.Array) -> pa.Array:
    """Timestamps in microseconds, rounded down as in Spark, without a zone."""
    unit = array.type.unit
    # The zone only affects how a value is printed; the stored instant is the same.
    plain = array.view(pa.timestamp(unit))
    if unit == "ns":
        plain = pc.floor_temporal(plain, unit="microsecond")
    return plain.cast(pa.timestamp("us"))


def _unsupported(data_type: object) -> SchemaError:
    return SchemaError("DELTA_UNSUPPORTED_DATA_TYPES", dataTypeList=data_type)


def field_with_ids(
    f: types.StructField, ids: Mapping[tuple[str, ...], int], parent: tuple[str, ...] = ()
) -> pa.Field:
    """A column of a data file; `ids` gives the Parquet field ids by path, where there are any."""
    path = (*parent, f.name)
    metadata = {_FIELD_ID: str(ids[path])} if path in ids else None
    return pa.field(f.name, _type_with_ids(f.data_type, path, ids), f.nullable, metadata)


def _type_with_ids(
    data_type: types.DataType, path: tuple[str, ...], ids: Mapping[tuple[str, ...], int]
) -> pa.DataType:
    match data_type:
        case types.StructType():
            return pa.struct([field_with_ids(f, ids, path) for f in data_type])
        case types.ArrayType():
            element = types.StructField("element", data_type.element_type, data_type.contains_null)
            return pa.list_(field_with_ids(element, ids, path))
        case types.MapType():
            key = types.StructField("key", data_type.key_type, nullable=False)
            value = types.StructField("value", data_type.value_type, data_type.value_contains_null)
            return pa.map_(field_with_ids(key, ids, path), field_with_ids(value, ids, path))
    return arrow_type(data_type)
