"""Queries that write to Delta tables: what `start` and `toTable` of a stream's writer mean."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_delta.errors.table import OperationNotAllowedError, PropertyError, SchemaError
from pyspark_delta.kernel.protocol.schema_merge import as_nullable
from pyspark_delta.spark.catalog import TableName, look_up, show_columns
from pyspark_delta.spark.commands.create_table import (
    TableDefinition,
    completed_table,
    run_create_table,
)
from pyspark_delta.spark.commands.write_definition import data_schema
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.stream_writer import StreamWrite, start_query, stream_write
from pyspark_delta.spark.options import DeltaOptions
from pyspark_delta.spark.streaming.sink import DeltaSink
from pyspark_delta.spark.table_places import place_of


def start_stream(spark: SparkSession, writer: DataStreamWriter, path: str | None) -> StreamingQuery:
    """Start a query into the table at `path`, or at the place that the option of that name says."""
    write = _checked(spark, writer)
    by_option = DeltaOptions(write.options).get("path")
    if path is not None and by_option is not None and path != by_option:
        raise _illegal_path(by_option, "is given twice: leave the option or the argument out")
    location = by_option if path is None else path
    if location is None:
        raise _illegal_path("", "needs one path")
    sink = _sink(spark, write, location)
    return start_query(JvmSession(spark), writer, sink, {**write.options, "path": location})


def stream_to_table(
    spark: SparkSession, writer: DataStreamWriter, name: TableName
) -> StreamingQuery:
    """Start a query into the table of that name, which is made if there is none."""
    write = _checked(spark, writer)
    location = DeltaOptions(write.options).get("path")
    name = completed_table(spark, name)
    place = place_of(spark, name, location)
    if place.snapshot() is None or (name.path is None and name.entry is None):
        schema = as_nullable(data_schema(writer._df.schema))
        definition = TableDefinition(
            name=name,
            schema=schema,
            partition_by=write.partition_by,
            cluster_by=tuple((column,) for column in write.cluster_by),
            location=location,
        )
        run_create_table(spark, definition)
    sink = _sink(spark, write, place.location, name)
    return start_query(JvmSession(spark), writer, sink, {**write.options, "path": place.location})


def _checked(spark: SparkSession, writer: DataStreamWriter) -> StreamWrite:
    """What was said to the writer, if that can be done."""
    write = stream_write(JvmSession(spark), writer)
    if write.is_continuous:
        raise OperationNotAllowedError(
            "DELTA_OPERATION_NOT_ALLOWED", operation="Writing with a continuous trigger"
        )
    known = {name.lower() for name in writer._df.columns}
    for column in (*write.partition_by, *(name.split(".")[0] for name in write.cluster_by)):
        if column.lower() not in known:
            raise SchemaError(
                "DELTA_PARTITION_COLUMN_NOT_FOUND",
                columnName=column,
                schemaMap=", ".join(writer._df.columns),
            )
    return write


def _sink(
    spark: SparkSession, write: StreamWrite, location: str, name: TableName | None = None
) -> DeltaSink:
    return DeltaSink(
        spark,
        location,
        write.partition_by,
        write.output_mode,
        write.options,
        cluster_by=write.cluster_by,
        changed=None if name is None else lambda: _show_columns(spark, name),
    )


def _show_columns(spark: SparkSession, name: TableName) -> None:
    found = look_up(spark, _parts(name)) if name.path is None else None
    if found is not None:
        show_columns(spark, found)


def _parts(name: TableName) -> Sequence[str]:
    return [part for part in (name.database, name.table) if part is not None]


def _illegal_path(found: str, explain: str) -> PropertyError:
    return PropertyError("DELTA_ILLEGAL_OPTION", input=found, name="path", explain=explain)
