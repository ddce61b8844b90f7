"""A version of a table as a DataFrame: the files that the log names, read by Spark's own scan.

What the log knows of a file and the file does not (partition values, its deletion vector, its row
ids) comes with it as partition columns; a filter in the JVM then drops deleted rows by their
position.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.column_mapping import (
    ColumnMappingMode,
    column_id,
    physical_name,
    physical_schema,
)
from pyspark_delta.kernel.protocol.row_tracking import materialized_columns
from pyspark_delta.kernel.protocol.types import (
    LONG,
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    map_fields,
)
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.spark.jvm.file_index import scan_plan
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.table_plan import (
    METADATA,
    TableColumn,
    data_frame,
    quoted_name,
    with_columns,
    with_hidden_struct,
    without_deleted_rows,
)
from pyspark_delta.spark.snapshot_source import BASE_ROW_ID, ROW_VERSION, VECTOR, SnapshotSource

TIME_ZONE = "spark.sql.session.timeZone"

_FIELD_IDS = "spark.sql.parquet.fieldId.read.enabled"
_PARQUET_ID = "parquet.field.id"
# Field metadata that is between the table and its writers, and not for those who read.
_INTERNAL_PREFIXES = ("delta.columnMapping.", "delta.identity.")
_INTERNAL = frozenset(
    {"delta.generationExpression", "delta.typeChanges", "CURRENT_DEFAULT", "EXISTS_DEFAULT"}
)
_FILE_FIELDS = (
    *("file_path", "file_name", "file_size", "file_block_start", "file_block_length"),
    *("file_modification_time", "row_index"),
)


def read_snapshot(
    spark: SparkSession, snapshot: Snapshot, *, is_time_travel: bool = False
) -> DataFrame:
    """The rows of a version; the files to open are chosen when a query over it is planned.

    `is_time_travel` says that this version was meant, and not the newest.
    """
    jvm = JvmSession(spark)
    zone = spark.conf.get(TIME_ZONE) or "UTC"
    return read_source(jvm, SnapshotSource(snapshot, zone, is_time_travel=is_time_travel))


def read_source(jvm: JvmSession, source: SnapshotSource) -> DataFrame:
    """The rows of a source's files."""
    return data_frame(jvm, source_plan(jvm, source))


def source_plan(jvm: JvmSession, source: SnapshotSource) -> Any:
    """The logical plan of `read_source`."""
    snapshot = source.snapshot
    metadata = snapshot.metadata
    mode = mapping_mode(metadata)
    shown = shown_schema(metadata)
    files_schema = physical_schema(without_void(metadata.schema), mode)
    if mode is ColumnMappingMode.ID:
        # Spark finds columns by their ids only where a session says so.
        jvm.spark.conf.set(_FIELD_IDS, "true")
        files_schema = _with_parquet_ids(files_schema)
    files_schema = _cleaned(files_schema)
    if source.tracks_rows:
        names = materialized_columns(metadata, snapshot.store.root_uri)
        files_schema = files_schema.add(*(StructField(name, LONG) for name in names))
    plan = scan_plan(jvm, source, files_schema)
    if source.has_vectors:
        plan = without_deleted_rows(jvm, plan, VECTOR)
    columns = _columns(metadata.schema, shown, mode)
    if source.tracks_rows:
        return with_hidden_struct(jvm, plan, columns, _row_tracking_fields(metadata, snapshot))
    if source.has_vectors or mode is not ColumnMappingMode.NONE:
        return with_columns(jvm, plan, columns)
    return plan


def shown_schema(metadata: Metadata) -> StructType:
    """The schema that readers see: no void columns, nothing that is for writers."""
    return _cleaned(without_void(metadata.schema))


def without_void(schema: StructType) -> StructType:
    """A schema without void fields, which no file has; inside of lists and maps they stay."""
    kept = (f for f in schema if f.data_type != VOID)
    return StructType(
        tuple(
            f.with_type(without_void(f.data_type)) if isinstance(f.data_type, StructType) else f
            for f in kept
        )
    )


def _cleaned(schema: StructType) -> StructType:
    cleaned = map_fields(
        schema,
        lambda f: f.with_metadata_items(
            {
                key: None
                for key in f.metadata
                if key in _INTERNAL or key.startswith(_INTERNAL_PREFIXES)
            }
        ),
    )
    assert isinstance(cleaned, StructType)
    return cleaned


def _with_parquet_ids(schema: StructType) -> StructType:
    changed = map_fields(schema, lambda f: f.with_metadata_items({_PARQUET_ID: column_id(f)}))
    assert isinstance(changed, StructType)
    return changed


def _columns(
    schema: StructType, shown: StructType, mode: ColumnMappingMode
) -> tuple[TableColumn, ...]:
    found = []
    for f in shown:
        is_renamed_inside = mode is not ColumnMappingMode.NONE and _has_fields(f.data_type)
        found.append(
            TableColumn(
                name=f.name,
                scanned=physical_name(schema[f.name], mode),
                cast_to=f.data_type if is_renamed_inside else None,
                metadata=json.dumps(dict(f.metadata)),
            )
        )
    return tuple(found)


def _has_fields(data_type: DataType) -> bool:
    """Whether a value of the type holds structs, whose fields have names."""
    match data_type:
        case ArrayType(element_type=element):
            return _has_fields(element)
        case MapType(key_type=key, value_type=value):
            return _has_fields(key) or _has_fields(value)
    return isinstance(data_type, StructType)


def _row_tracking_fields(metadata: Metadata, snapshot: Snapshot) -> list[tuple[str, str]]:
    """The fields of `_metadata`: Spark's, and those that PROTOCOL.md, "Row Tracking", gives."""
    row_id, row_version = map(quoted_name, materialized_columns(metadata, snapshot.store.root_uri))
    return [
        *((name, f"{METADATA}.{name}") for name in _FILE_FIELDS),
        ("base_row_id", BASE_ROW_ID),
        ("default_row_commit_version", ROW_VERSION),
        ("row_id", f"coalesce({row_id}, {BASE_ROW_ID} + {METADATA}.row_index)"),
        ("row_commit_version", f"coalesce({row_version}, {ROW_VERSION})"),
    ]
