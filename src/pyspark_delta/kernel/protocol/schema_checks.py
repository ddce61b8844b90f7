"""Checks of a schema: names, partition columns, void columns, types that cannot be stored.

Every check takes a schema and returns None or raises SchemaError; none of them reads data.
`schema_merge` compares two schemas; `column_mapping` checks ids and physical names.
PROTOCOL.md, "Schema Serialization Format" and "Change Data Files".

>>> invalid_names(types.StructType((types.StructField("a b", types.VOID),)))
('a b',)
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_delta.errors import SchemaError
from pyspark_delta.kernel.protocol import types
from pyspark_delta.kernel.protocol.column_mapping import ColumnMappingMode
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.schema_merge import as_nullable, check_no_duplicates

ILLEGAL_CHARACTERS = " ,;{}()\n\t="
"""Characters that a column's name may not have in a table without column mapping."""

CDF_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")
"""The columns that the change data feed adds to a table's own."""

CDF_KEY = "delta.enableChangeDataFeed"
ALLOW_UNENFORCED_NOT_NULL = "spark.databricks.delta.constraints.allowUnenforcedNotNull.enabled"
"""delta-spark's setting for this, which errors name; it has no effect here."""


def check_schema(
    schema: types.StructType,
    partition_columns: Sequence[str],
    *,
    mode: ColumnMappingMode = ColumnMappingMode.NONE,
    change_data_feed: bool = False,
    needs_data: bool = True,
) -> None:
    """Run every check that a table's new schema must pass before it is committed.

    An existing table may be without data columns (`needs_data`) until one is added.
    """
    check_no_duplicates(schema, "DELTA_DUPLICATE_COLUMNS_FOUND.METADATA_UPDATE")
    check_names(schema, mode, partition_columns)
    check_types(schema)
    check_partition_columns(schema, partition_columns, needs_data=needs_data)
    if change_data_feed:
        check_no_cdf_columns(schema)


def invalid_names(schema: types.StructType) -> tuple[str, ...]:
    """Every column, at any depth, with a character in its name that Parquet rejects."""
    return tuple(
        types.column_name(path)
        for path, f in types.walk_fields(schema)
        if any(character in f.name for character in ILLEGAL_CHARACTERS)
    )


def check_names(
    schema: types.StructType, mode: ColumnMappingMode, partition_columns: Sequence[str] = ()
) -> None:
    """Raise for names that files cannot have; column mapping lifts this rule."""
    if mode is not ColumnMappingMode.NONE:
        return
    if any(character in name for name in partition_columns for character in ILLEGAL_CHARACTERS):
        raise SchemaError("DELTA_INVALID_PARTITION_COLUMN_NAME")
    if names := invalid_names(schema):
        raise SchemaError(
            "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES", invalidColumnNames=", ".join(names)
        )


def check_types(schema: types.StructType) -> None:
    """Raise for types that schemas may contain but tables cannot."""
    unsupported = [
        f"{types.column_name(path)}: {leaf.simple_string}"
        for path, leaf in types.walk_types(schema)
        if isinstance(leaf, types.PrimitiveType) and leaf.name not in types.PRIMITIVES
    ]
    if unsupported:
        raise SchemaError("DELTA_UNSUPPORTED_DATA_TYPES", dataTypeList=", ".join(unsupported))


def check_partition_columns(
    schema: types.StructType, partition_columns: Sequence[str], *, needs_data: bool = True
) -> None:
    """Raise for partition columns that are missing, repeated, nested, or all columns."""
    names = [name.lower() for name in partition_columns]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise SchemaError(
            "DELTA_DUPLICATE_COLUMNS_FOUND.PARTITION_COLUMNS", duplicateCols=", ".join(repeated)
        )
    for name in partition_columns:
        f = schema.get(name)
        if f is None:
            raise SchemaError(
                "DELTA_PARTITION_COLUMN_NOT_FOUND",
                columnName=name,
                schemaMap=", ".join(schema.names),
            )
        if not is_partition_type(f.data_type):
            raise SchemaError(
                "DELTA_INVALID_PARTITION_COLUMN_TYPE", name=name, dataType=f.data_type.simple_string
            )
    if needs_data and partition_columns and len(partition_columns) == len(schema):
        raise SchemaError("DELTA_CANNOT_USE_ALL_COLUMNS_FOR_PARTITION")


def is_partition_type(data_type: types.DataType) -> bool:
    """Whether a value of the type can be a partition value."""
    if isinstance(data_type, types.PrimitiveType):
        return data_type.name in types.PRIMITIVES and data_type not in (types.VOID, types.VARIANT)
    return isinstance(data_type, types.DecimalType)


def check_data_columns(data_schema: types.StructType, partition_columns: Sequence[str]) -> None:
    """Raise if the data has no columns besides partition columns."""
    partitions = {name.lower() for name in partition_columns}
    rest = [f for f in data_schema if f.name.lower() not in partitions]
    if not rest:
        raise SchemaError("DELTA_NON_PARTITION_COLUMN_ABSENT.ALL_PARTITION_COLUMNS")
    if all(f.data_type == types.VOID for f in rest):
        if not partitions:
            raise SchemaError("DELTA_CANNOT_WRITE_EMPTY_SCHEMA.TABLE_ALL_VOID_COLUMNS")
        raise SchemaError("DELTA_NON_PARTITION_COLUMN_ABSENT.NULL_TYPE_COLUMNS_DROPPED")


def check_writable_schema(schema: types.StructType) -> None:
    """Raise for a schema that cannot be written into a file, as a whole or in part.

    A void column is left out of files and read as null.  That works beside other columns of the
    same struct; inside an array or map there is no way to leave it out.
    """
    if not schema.fields:
        raise SchemaError("DELTA_CANNOT_WRITE_EMPTY_SCHEMA.TABLE_NO_COLUMNS")
    if all(f.data_type == types.VOID for f in schema):
        raise SchemaError("DELTA_CANNOT_WRITE_EMPTY_SCHEMA.TABLE_ALL_VOID_COLUMNS")
    for f in schema:
        _check_writable_type(f.data_type, (f.name,))


def without_void(schema: types.StructType) -> types.StructType:
    """The schema of files: without void fields, at any depth of structs."""
    return types.StructType(tuple(_without_void(f) for f in schema if f.data_type != types.VOID))


def check_no_cdf_columns(schema: types.StructType, *, enabling: bool = False) -> None:
    """Raise for the column names of the change data feed; `enabling` when a commit enables it."""
    names = [f.name for f in schema if f.name.lower() in CDF_COLUMNS]
    if not names:
        return
    listed = "[" + ",".join(names) + "]"
    if enabling:
        raise SchemaError("DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS", columnList=listed)
    raise SchemaError("RESERVED_CDC_COLUMNS_ON_WRITE", columnList=listed, config=CDF_KEY)


def check_nested_not_null(schema: types.StructType) -> None:
    """Raise for NOT NULL inside arrays and maps, where no write can enforce it."""
    for path, f in types.walk_fields(schema):
        if isinstance(f.data_type, types.StructType):
            continue
        for step, inner in types.inner_types(f.data_type):
            if isinstance(inner, types.StructType) and as_nullable(inner) != inner:
                raise SchemaError(
                    "DELTA_NESTED_NOT_NULL_CONSTRAINT",
                    parent=types.column_name(path),
                    nestType=step,
                    nestedPrettyJson=format_schema(inner),
                    configKey=ALLOW_UNENFORCED_NOT_NULL,
                )


def _check_writable_type(data_type: types.DataType, path: tuple[str, ...]) -> None:
    match data_type:
        case types.StructType(fields=()):
            raise SchemaError(
                "DELTA_CANNOT_WRITE_EMPTY_SCHEMA.STRUCT_NO_FIELDS",
                columnPath=types.column_name(path),
            )
        case types.StructType(fields=fields):
            if all(f.data_type == types.VOID for f in fields):
                raise SchemaError(
                    "DELTA_CANNOT_WRITE_EMPTY_SCHEMA.STRUCT_ALL_VOID_FIELDS",
                    columnPath=types.column_name(path),
                )
            for f in fields:
                _check_writable_type(f.data_type, (*path, f.name))
        case types.ArrayType() | types.MapType():
            if any(inner == types.VOID for _, inner in types.walk_types(data_type)):
                raise SchemaError(
                    "DELTA_COMPLEX_TYPE_COLUMN_CONTAINS_NULL_TYPE",
                    columName=types.column_name(path),
                    dataType=types.type_name(data_type),
                )
            for step, inner in types.inner_types(data_type):
                _check_writable_type(inner, (*path, step))


def _without_void(f: types.StructField) -> types.StructField:
    if not isinstance(f.data_type, types.StructType):
        return f
    return f.with_type(without_void(f.data_type))
