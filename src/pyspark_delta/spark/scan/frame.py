"""Files of a table as a DataFrame: read by Spark's own scan, with the table's columns.

Values of a file that are only in the log (partition values, its deletion vector, its row ids) come
as partition columns; a filter in the JVM then drops deleted rows by their position.  Columns have
other names in files where columns are mapped, and void columns are not in files.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.log.table_files import ChosenFiles, TableFiles
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.column_mapping import (
    PARQUET_FIELD_ID_KEY,
    ColumnMappingMode,
    column_id,
    physical_name,
    physical_schema,
)
from pyspark_delta.kernel.protocol.row_tracking import materialized_columns
from pyspark_delta.kernel.protocol.schema_merge import as_nullable
from pyspark_delta.kernel.protocol.types import (
    LONG,
    VOID,
    DataType,
    StructField,
    StructType,
    map_fields,
    walk_types,
)
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.kernel.sql.quoting import quoted_name
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.conf.settings import READ_FIELD_IDS
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans.frames import plan_frame
from pyspark_delta.spark.jvm.plans.table import (
    TableColumn,
    metadata_name,
    with_columns,
    with_hidden_struct,
    without_deleted_rows,
)
from pyspark_delta.spark.jvm.scan.file_index import scan_plan
from pyspark_delta.spark.jvm.scan.optimizer_rule import VECTOR
from pyspark_delta.spark.scan.source import (
    BASE_ROW_ID,
    ROW_VERSION,
    ChosenSource,
    ScanSettings,
    SnapshotSource,
    reader_metadata,
    reader_schema,
)
from pyspark_delta.spark.scan.versions import NewestSource, follow_tables

_FILE_FIELDS = (
    *("file_path", "file_name", "file_size", "file_block_start", "file_block_length"),
    *("file_modification_time", "row_index"),
)


def read_snapshot(
    spark: SparkSession, snapshot: TableFiles, *, is_time_travel: bool = False
) -> DataFrame:
    """The rows of this version; a query over it chooses files when it is planned.

    `is_time_travel` means that the version was chosen by its number or time.
    """
    settings = ScanSettings.of(spark)
    source = SnapshotSource(snapshot, settings, is_time_travel=is_time_travel)
    return _read_source(JvmSession(spark), source)


def read_newest(spark: SparkSession, log: DeltaLog, snapshot: Snapshot) -> DataFrame:
    """The rows of the version that is the newest at planning, with the columns of `snapshot`."""
    jvm = JvmSession(spark)
    follow_tables(jvm)
    return _read_source(jvm, NewestSource(log, snapshot, ScanSettings.of(spark)))


def chosen_rows(
    jvm: JvmSession, store: LogStore, files: pa.Table, *, protocol: Protocol, metadata: Metadata
) -> DataFrame:
    """The rows of `files`, a table of add actions, with the columns of the given metadata.

    Each row has its file (`_metadata.file_path`) and, where rows are tracked, its id.
    """
    chosen = ChosenFiles(store, files, protocol=protocol, metadata=metadata)
    return _read_source(jvm, ChosenSource(chosen, ScanSettings.of(jvm.spark)))


def source_plan(jvm: JvmSession, source: SnapshotSource, *, is_stream: bool = False) -> Any:
    """The logical plan of the rows of a source's files; `is_stream` for a batch of a stream."""
    metadata = source.snapshot.metadata
    plan, hidden = file_scan(jvm, source, reads_ids=source.tracks_rows, is_stream=is_stream)
    if source.tracks_rows:
        row_id, row_version = row_id_expressions(source, hidden, BASE_ROW_ID, ROW_VERSION)
        # Spark's own fields, and those of PROTOCOL.md, "Row Tracking".
        fields = [
            *((name, f"{hidden}.{name}") for name in _FILE_FIELDS),
            ("base_row_id", BASE_ROW_ID),
            ("default_row_commit_version", ROW_VERSION),
            ("row_id", row_id),
            ("row_commit_version", row_version),
        ]
        return with_hidden_struct(jvm, plan, table_columns(metadata), fields)
    is_mapped = mapping_mode(metadata) is not ColumnMappingMode.NONE
    if source.has_vectors or is_mapped or _has_void(metadata.schema):
        return with_columns(jvm, plan, table_columns(metadata))
    return plan


def file_scan(
    jvm: JvmSession,
    source: SnapshotSource,
    *,
    reads_ids: bool,
    more: Sequence[StructField] = (),
    kept_from: str | None = None,
    is_stream: bool = False,
) -> tuple[Any, str]:
    """The plan of a scan of the files without deleted rows, and its name for `_metadata`.

    Its columns are those of the files, with the columns that `more` names; with `reads_ids` the
    materialized columns of row tracking too.
    """
    metadata = source.snapshot.metadata
    mode = mapping_mode(metadata)
    if mode is ColumnMappingMode.ID:
        jvm.spark.conf.set(READ_FIELD_IDS, "true")
    scanned = _files_schema(metadata.schema, mode).add(*more)
    if reads_ids:
        names = materialized_columns(metadata, source.snapshot.store.root_uri)
        scanned = scanned.add(*(StructField(name, LONG) for name in names))
    plan = scan_plan(jvm, source, scanned, is_stream=is_stream)
    hidden = metadata_name(scanned.names)
    if source.has_vectors:
        plan = without_deleted_rows(jvm, plan, VECTOR, hidden, kept_from=kept_from)
    return plan, hidden


def row_id_expressions(
    source: SnapshotSource, hidden: str, base: str, version: str
) -> tuple[str, str]:
    """SQL over a scan for the id and the version of a row: its own, or those of its file.

    `base` and `version` are the columns with the values of the file.
    """
    snapshot = source.snapshot
    own = map(quoted_name, materialized_columns(snapshot.metadata, snapshot.store.root_uri))
    own_id, own_version = own
    return (
        f"coalesce({own_id}, {base} + {hidden}.row_index)",
        f"coalesce({own_version}, {version})",
    )


def table_columns(metadata: Metadata) -> list[TableColumn]:
    """The table's columns as expressions over those of its files."""
    schema, mode = metadata.schema, mapping_mode(metadata)
    columns = []
    for f, read_as in zip(schema, reader_schema(schema), strict=True):
        scanned = quoted_name(physical_name(f, mode))
        cast_to: DataType | None = None
        if _has_void(f.data_type):
            # Rebuilt from its fields, the value is nullable, and its fields are.
            cast_to = as_nullable(StructType((read_as,))).fields[0].data_type
        elif mode is not ColumnMappingMode.NONE and any(
            isinstance(each, StructType) for _, each in walk_types(f.data_type)
        ):
            cast_to = read_as.data_type
        # Other columns keep the metadata of the scan's, which differs only in ids.
        is_other = cast_to is not None or mode is ColumnMappingMode.ID
        columns.append(
            TableColumn(
                name=f.name,
                expression=_value_text(scanned, f.data_type, mode),
                cast_to=cast_to,
                metadata=json.dumps(dict(read_as.metadata)) if is_other else None,
            )
        )
    return columns


def _read_source(jvm: JvmSession, source: SnapshotSource) -> DataFrame:
    return plan_frame(jvm, source_plan(jvm, source))


def _files_schema(schema: StructType, mode: ColumnMappingMode) -> StructType:
    """The columns as in files: by physical name, or by id where ids are used, without void ones."""
    physical = physical_schema(_stored_fields(schema), mode)
    if mode is not ColumnMappingMode.ID:
        return reader_schema(physical)
    return map_fields(
        physical,
        lambda f: StructField(
            f.name,
            f.data_type,
            f.nullable,
            {**reader_metadata(f), PARQUET_FIELD_ID_KEY: column_id(f)},
        ),
    )


def _value_text(scanned: str, data_type: DataType, mode: ColumnMappingMode) -> str:
    """SQL for a value of the type, with its void fields."""
    if not _has_void(data_type):
        return scanned
    if not isinstance(data_type, StructType) or not _stored_fields(data_type).fields:
        return "NULL"
    fields = ", ".join(
        f"{_value_text(f'{scanned}.{quoted_name(physical_name(f, mode))}', f.data_type, mode)}"
        f" AS {quoted_name(f.name)}"
        for f in data_type
    )
    return f"IF({scanned} IS NULL, NULL, struct({fields}))"


def _stored_fields(schema: StructType) -> StructType:
    """The fields in files; a struct with only void fields is in none of them."""
    return StructType(tuple(kept for f in schema if (kept := _stored_field(f)) is not None))


def _stored_field(f: StructField) -> StructField | None:
    if f.data_type == VOID:
        return None
    if not isinstance(f.data_type, StructType) or not f.data_type.fields:
        return f
    stored = _stored_fields(f.data_type)
    return f.with_type(stored) if stored.fields else None


def _has_void(data_type: DataType) -> bool:
    """Whether it is void or has void fields, except in arrays and maps, where files have them."""
    if isinstance(data_type, StructType):
        return any(_has_void(f.data_type) for f in data_type)
    return data_type == VOID
