"""A table's columns over those of its files: other names, ids, and void ones, which no file has."""

from __future__ import annotations

import json
from typing import Any

from pyspark_delta.kernel.protocol.column_defaults import EXISTS_DEFAULT
from pyspark_delta.kernel.protocol.column_mapping import (
    PARQUET_FIELD_ID_KEY,
    ColumnMappingMode,
    column_id,
    physical_name,
    physical_schema,
)
from pyspark_delta.kernel.protocol.schema_merge import as_nullable
from pyspark_delta.kernel.protocol.types import (
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    map_fields,
)
from pyspark_delta.spark.jvm.table_plan import TableColumn, quoted_name

# Field metadata that is between the table and its writers, and not for those who read.  A default
# is shown, as delta-spark shows it; Spark's scans would fill in an EXISTS_DEFAULT.
_INTERNAL_PREFIXES = ("delta.columnMapping.", "delta.identity.", "parquet.field.")
_INTERNAL = frozenset({"delta.generationExpression", "delta.typeChanges", EXISTS_DEFAULT})


def shown_schema(schema: StructType) -> StructType:
    """The schema that readers see: nothing in it is for writers."""
    cleaned = map_fields(schema, lambda f: StructField(f.name, f.data_type, f.nullable, _shown(f)))
    assert isinstance(cleaned, StructType)
    return cleaned


def files_schema(schema: StructType, mode: ColumnMappingMode) -> StructType:
    """The columns as files have them: by their names there, by id where ids count, none void."""
    physical = physical_schema(_stored_fields(schema), mode)
    if mode is not ColumnMappingMode.ID:
        return shown_schema(physical)
    identified = map_fields(
        physical,
        lambda f: StructField(
            f.name, f.data_type, f.nullable, {**_shown(f), PARQUET_FIELD_ID_KEY: column_id(f)}
        ),
    )
    assert isinstance(identified, StructType)
    return identified


def differs_from_files(schema: StructType, mode: ColumnMappingMode) -> bool:
    """Whether the columns of the table are others than those of its files."""
    return mode is not ColumnMappingMode.NONE or _has_void(schema)


def table_columns(schema: StructType, mode: ColumnMappingMode) -> tuple[TableColumn, ...]:
    """The table's columns, made of those of `files_schema`."""
    found = []
    for f, shown in zip(schema, shown_schema(schema), strict=True):
        scanned = quoted_name(physical_name(f, mode))
        cast_to: DataType | None = None
        if _has_void(f.data_type):
            # Made of its fields, it may be null as a whole, and so may they.
            cast_to = as_nullable(StructType((shown,))).fields[0].data_type
        elif mode is not ColumnMappingMode.NONE and _has_fields(f.data_type):
            cast_to = shown.data_type
        # Other columns take the metadata of the scan's, which is the same but for ids.
        is_other = cast_to is not None or mode is ColumnMappingMode.ID
        found.append(
            TableColumn(
                name=f.name,
                expression=_made(scanned, f.data_type, mode),
                cast_to=cast_to,
                metadata=json.dumps(dict(shown.metadata)) if is_other else None,
            )
        )
    return tuple(found)


def _shown(f: StructField) -> dict[str, Any]:
    return {
        key: value
        for key, value in f.metadata.items()
        if key not in _INTERNAL and not key.startswith(_INTERNAL_PREFIXES)
    }


def _made(scanned: str, data_type: DataType, mode: ColumnMappingMode) -> str:
    """SQL for a value of the type, its void fields included."""
    if not _has_void(data_type):
        return scanned
    if not isinstance(data_type, StructType) or not _stored_fields(data_type).fields:
        return "NULL"
    fields = ", ".join(
        f"{_made(f'{scanned}.{quoted_name(physical_name(f, mode))}', f.data_type, mode)}"
        f" AS {quoted_name(f.name)}"
        for f in data_type
    )
    return f"IF({scanned} IS NULL, NULL, struct({fields}))"


def _stored_fields(schema: StructType) -> StructType:
    """The fields that files have; a struct of nothing but void fields is in none of them."""
    return StructType(tuple(kept for f in schema if (kept := _stored(f)) is not None))


def _stored(f: StructField) -> StructField | None:
    if f.data_type == VOID:
        return None
    if not isinstance(f.data_type, StructType) or not f.data_type.fields:
        return f
    stored = _stored_fields(f.data_type)
    return f.with_type(stored) if stored.fields else None


def _has_void(data_type: DataType) -> bool:
    """Whether it is void or has void fields.  Those in arrays and maps no file can do without."""
    if isinstance(data_type, StructType):
        return any(_has_void(f.data_type) for f in data_type)
    return data_type == VOID


def _has_fields(data_type: DataType) -> bool:
    """Whether a value of the type holds structs, whose fields have names."""
    match data_type:
        case ArrayType(element_type=element):
            return _has_fields(element)
        case MapType(key_type=key, value_type=value):
            return _has_fields(key) or _has_fields(value)
    return isinstance(data_type, StructType)
