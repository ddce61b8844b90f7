"""A version of a table as a DataFrame: the files that the log names, read by Spark's own scan.

What the log knows of a file and the file does not (partition values, its deletion vector, its row
ids) comes with it as partition columns; a filter in the JVM then drops deleted rows by their
position.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.column_mapping import ColumnMappingMode
from pyspark_delta.kernel.protocol.row_tracking import materialized_columns
from pyspark_delta.kernel.protocol.types import LONG, StructField
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.allowed_places import allowed_stores
from pyspark_delta.spark.jvm.file_index import scan_plan
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans import plan_frame
from pyspark_delta.spark.jvm.scan_rule import VECTOR
from pyspark_delta.spark.jvm.table_plan import (
    metadata_name,
    quoted_name,
    with_columns,
    with_hidden_struct,
    without_deleted_rows,
)
from pyspark_delta.spark.newest_source import NewestSource, follow_tables
from pyspark_delta.spark.scan_columns import differs_from_files, files_schema, table_columns
from pyspark_delta.spark.settings import STATS_SKIPPING
from pyspark_delta.spark.snapshot_source import BASE_ROW_ID, ROW_VERSION, SnapshotSource

TIME_ZONE = "spark.sql.session.timeZone"

_FIELD_IDS = "spark.sql.parquet.fieldId.read.enabled"
_FILE_FIELDS = (
    *("file_path", "file_name", "file_size", "file_block_start", "file_block_length"),
    *("file_modification_time", "row_index"),
)


def session_zone(spark: SparkSession) -> str:
    """The zone in which a session's days begin, and that of times which name none."""
    return spark.conf.get(TIME_ZONE) or "UTC"


def read_snapshot(
    spark: SparkSession,
    snapshot: Snapshot,
    *,
    is_time_travel: bool = False,
) -> DataFrame:
    """The rows of this version; the files to open are chosen when a query over it is planned.

    `is_time_travel` says that the version was named by its number or time.
    """
    source = SnapshotSource(
        snapshot,
        session_zone(spark),
        is_time_travel=is_time_travel,
        allowed=lambda: allowed_stores(spark),
        skips_by_stats=lambda: STATS_SKIPPING.value(spark) is not False,
    )
    return read_source(JvmSession(spark), source)


def read_newest(spark: SparkSession, log: DeltaLog, snapshot: Snapshot) -> DataFrame:
    """The rows of the newest version whenever a query is planned, in the columns of `snapshot`."""
    jvm = JvmSession(spark)
    follow_tables(jvm)
    source = NewestSource(
        log,
        snapshot,
        session_zone(spark),
        allowed=lambda: allowed_stores(spark),
        skips_by_stats=lambda: STATS_SKIPPING.value(spark) is not False,
    )
    return read_source(jvm, source)


def read_source(jvm: JvmSession, source: SnapshotSource) -> DataFrame:
    """The rows of a source's files."""
    return plan_frame(jvm, source_plan(jvm, source))


def prepare_for(jvm: JvmSession, mode: ColumnMappingMode) -> None:
    """Let the session find columns by their ids, where a table has them found so."""
    if mode is ColumnMappingMode.ID:
        jvm.spark.conf.set(_FIELD_IDS, "true")


def source_plan(jvm: JvmSession, source: SnapshotSource, *, is_stream: bool = False) -> Any:
    """The logical plan of `read_source`; `is_stream` for a batch of a stream."""
    snapshot = source.snapshot
    metadata = snapshot.metadata
    mode = mapping_mode(metadata)
    prepare_for(jvm, mode)
    scanned = files_schema(metadata.schema, mode)
    if source.tracks_rows:
        names = materialized_columns(metadata, snapshot.store.root_uri)
        scanned = scanned.add(*(StructField(name, LONG) for name in names))
    plan = scan_plan(jvm, source, scanned, is_stream=is_stream)
    hidden = metadata_name(scanned.names)
    if source.has_vectors:
        plan = without_deleted_rows(jvm, plan, VECTOR, hidden)
    columns = table_columns(metadata.schema, mode)
    if source.tracks_rows:
        fields = _row_tracking_fields(metadata, snapshot, hidden)
        return with_hidden_struct(jvm, plan, columns, fields)
    if source.has_vectors or differs_from_files(metadata.schema, mode):
        return with_columns(jvm, plan, columns)
    return plan


def _row_tracking_fields(
    metadata: Metadata, snapshot: Snapshot, hidden: str
) -> list[tuple[str, str]]:
    """The fields of `_metadata`: Spark's, and those that PROTOCOL.md, "Row Tracking", gives."""
    row_id, row_version = map(quoted_name, materialized_columns(metadata, snapshot.store.root_uri))
    return [
        *((name, f"{hidden}.{name}") for name in _FILE_FIELDS),
        ("base_row_id", BASE_ROW_ID),
        ("default_row_commit_version", ROW_VERSION),
        ("row_id", f"coalesce({row_id}, {BASE_ROW_ID} + {hidden}.row_index)"),
        ("row_commit_version", f"coalesce({row_version}, {ROW_VERSION})"),
    ]
