"""`spark.readStream`: `load` of the format delta, and `table` of a Delta table."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import StructType, _parse_datatype_string

from pyspark_delta.spark.catalog import look_up_relation
from pyspark_delta.spark.enabled_sessions import is_enabled
from pyspark_delta.spark.options import DeltaOptions
from pyspark_delta.spark.patches.readers import path_given
from pyspark_delta.spark.patches.said import (
    Method,
    Wrap,
    format_wrap,
    is_delta,
    option_wrap,
    options_wrap,
    said,
)
from pyspark_delta.spark.streaming.source import stream_table

_SCHEMA = "_delta_said_schema"


def _schema(original: Method) -> Method:
    def schema(self: Any, schema: Any) -> Any:
        self.__dict__[_SCHEMA] = schema
        return original(self, schema)

    return schema


def _load(original: Method) -> Method:
    def load(
        self: Any, path: Any = None, format: str | None = None, schema: Any = None, **options: Any
    ) -> Any:
        words = said(self)
        words.format = format or words.format
        if not is_delta(self):
            return original(self, path, format, schema, **options)
        given = DeltaOptions({**words.options, **options})
        wanted = _struct(schema if schema is not None else self.__dict__.get(_SCHEMA))
        return stream_table(self._spark, path_given(path, given), given, wanted)

    return load


def _table(original: Method) -> Method:
    def table(self: Any, tableName: str) -> Any:
        if not is_enabled(self._spark) or not isinstance(tableName, str):
            return original(self, tableName)
        found = look_up_relation(self._spark, tableName)
        if found is None or not found.is_delta or found.location is None:
            return original(self, tableName)
        given = DeltaOptions(said(self).options)
        wanted = _struct(self.__dict__.get(_SCHEMA))
        frame = stream_table(self._spark, found.location, given, wanted)
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
    (DataStreamReader, "schema"): _schema,
    (DataStreamReader, "load"): _load,
    (DataStreamReader, "table"): _table,
}
