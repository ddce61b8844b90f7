"""CREATE TABLE LIKE, where the source is a Delta table or the statement says USING delta."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.kernel.protocol.actions import Protocol
from pyspark_delta.kernel.protocol.column_defaults import without_defaults
from pyspark_delta.kernel.protocol.column_mapping import without_mapping
from pyspark_delta.kernel.protocol.properties import PROPERTIES
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.spark.catalog import (
    TableName,
    log_of,
    look_up,
    look_up_relation,
    show_columns,
)
from pyspark_delta.spark.commands.create_table import TableDefinition, run_create_table
from pyspark_delta.spark.jvm.catalog import (
    entry_comment,
    entry_partition_schema,
    entry_properties,
    entry_schema,
)
from pyspark_delta.spark.jvm.column_types import stored_columns
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parsed_like import LikeStatement, parse_like
from pyspark_delta.spark.jvm.plans import empty_frame
from pyspark_delta.spark.sql.create_statement import quoted_name
from pyspark_delta.spark.sql.requests import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """What a new table takes over from another."""

    schema: StructType
    partition_by: tuple[str, ...] = ()
    comment: str | None = None
    properties: dict[str, str] = field(default_factory=dict, hash=False)
    protocol: Protocol | None = None


def run_like(request: Request) -> DataFrame | None:
    """Make an empty table with the columns of another; None when Spark is to do it."""
    spark = request.spark
    try:
        statement = parse_like(JvmSession(spark), request.sql)
    except ParseException:
        return None  # Spark says better what is wrong with it
    if statement is None or statement.stored_as:
        return None
    source = look_up_relation(spark, statement.source)
    is_delta = source is not None and source.is_delta
    provider = (statement.provider or ("delta" if is_delta else "")).lower()
    if provider != "delta":
        if is_delta and source is not None:
            show_columns(spark, source)
        return None
    name = look_up(spark, statement.name)
    if name is None:
        return None
    run_create_table(spark, _definition(name, statement, _source(spark, statement, source)))
    return empty_frame(JvmSession(spark))


def _definition(name: TableName, statement: LikeStatement, source: _Source) -> TableDefinition:
    return TableDefinition(
        name=name,
        schema=source.schema,
        partition_by=source.partition_by,
        location=statement.location,
        comment=source.comment,
        properties={**source.properties, **statement.properties},
        if_not_exists=statement.if_not_exists,
        protocol=source.protocol,
    )


def _source(spark: SparkSession, statement: LikeStatement, source: TableName | None) -> _Source:
    if source is not None and source.is_delta:
        return _delta_source(spark, source)
    if source is None or source.entry is None:
        # A temporary view, or nothing: then the error is Spark's own.
        shown = spark.table(quoted_name(statement.source)).schema
        return _Source(schema=without_defaults(stored_columns(JvmSession(spark), shown)))
    entry = source.entry
    schema = entry_schema(entry)
    return _Source(
        # A view shows the defaults of the table below it, and has none.
        schema=without_defaults(schema) if entry.is_view else schema,
        partition_by=entry_partition_schema(entry).names,
        comment=entry_comment(entry),
        properties={} if entry.is_view else entry_properties(JvmSession(spark), entry),
    )


def _delta_source(spark: SparkSession, source: TableName) -> _Source:
    snapshot = log_of(spark, source).update()
    metadata = snapshot.metadata
    return _Source(
        schema=without_mapping(metadata.schema),
        partition_by=metadata.partition_columns,
        comment=metadata.description,
        properties={
            key: value or ""
            for key, value in metadata.configuration.items()
            if key not in PROPERTIES or PROPERTIES[key].settable
        },
        protocol=snapshot.protocol,
    )
