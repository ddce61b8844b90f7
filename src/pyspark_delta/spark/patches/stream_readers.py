"""`spark.readStream`: `load` of the format delta, and `table` of a Delta table."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import StructType, _parse_datatype_string

from pyspark_delta.spark.catalog import look_up_relation
from pyspark_delta.spark.enabled_sessions import is_enabled
from pyspark_delta.spark.options import DeltaOptions
from pyspark_delta.spark.patches.readers import load_wrap
from pyspark_delta.spark.patches.said import (
    Method,
    Wrap,
    format_wrap,
    option_wrap,
    options_wrap,
    said,
    schema_wrap,
)
from pyspark_delta.spark.streaming.source import stream_table


def _load(spark: SparkSession, path: str, options: DeltaOptions, schema: Any) -> DataFrame:
    return stream_table(spark, path, options, _struct(schema))


def _table(original: Method) -> Method:
    def table(self: Any, tableName: str) -> Any:
        if not is_enabled(self._spark) or not isinstance(tableName, str):
            return original(self, tableName)
        found = look_up_relation(self._spark, tableName)
        if found is None or not found.is_delta or found.location is None:
            return original(self, tableName)
        # A table has a schema: one that the user gives is not looked at, as in delta-spark.
        frame = stream_table(self._spark, found.location, DeltaOptions(said(self).options))
        return frame.alias(found.table) if found.path is None else frame

    return table


def _struct(schema: Any) -> StructType | None:
    if isinstance(schema, str):
        schema = _parse_datatype_string(schema)
    return schema if isinstance(schema, StructType) else None


CHANGED: dict[tuple[type, str], Wrap] = {
    (DataStreamReader, "format"): format_wrap,
    (DataStreamReader, "option"): option_wrap,
    (DataStreamReader, "options"): options_wrap,
    (DataStreamReader, "schema"): schema_wrap,
    (DataStreamReader, "load"): load_wrap(_load),
    (DataStreamReader, "table"): _table,
}
