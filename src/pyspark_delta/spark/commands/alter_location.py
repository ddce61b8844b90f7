"""ALTER TABLE SET LOCATION: the catalog's name for another table that is there already."""

from __future__ import annotations

from pyspark.sql import SparkSession

from pyspark_delta.errors.table import (
    OperationNotAllowedError,
    SchemaError,
    TableNotFoundError,
)
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.spark.catalog import TableName, log_of, look_up, show_columns, shown_schema
from pyspark_delta.spark.jvm.catalog import move_entry, qualified_location
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.table_access import open_log

_BYPASS = "spark.databricks.delta.alterLocation.bypassSchemaCheck"


def run_set_location(spark: SparkSession, table: TableName, location: str) -> None:
    """Let the name mean the Delta table at `location`, if it has the same columns."""
    if table.entry is None:
        raise OperationNotAllowedError("DELTA_CANNOT_SET_LOCATION_ON_PATH_IDENTIFIER")
    jvm = JvmSession(spark)
    old = log_of(spark, table).update().metadata
    place = qualified_location(jvm, table.entry.database, location)
    try:
        new = open_log(spark, place).update().metadata
    except TableNotFoundError:
        raise TableNotFoundError("DELTA_MISSING_DELTA_TABLE", tableName=f"`{location}`") from None
    bypasses = (spark.conf.get(_BYPASS, None) or "false").lower() == "true"
    if not bypasses and _columns(old) != _columns(new):
        raise SchemaError(
            "DELTA_SET_LOCATION_SCHEMA_MISMATCH",
            original=old.schema.simple_string,
            destination=new.schema.simple_string,
        )
    move_entry(jvm, table.entry, place)
    moved = look_up(spark, table.entry.parts)
    assert moved is not None
    show_columns(spark, moved)


def _columns(metadata: Metadata) -> tuple[StructType, tuple[str, ...]]:
    return shown_schema(metadata.schema), metadata.partition_columns
