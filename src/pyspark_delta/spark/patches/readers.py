"""`spark.read`: `load` of the format delta, `table`, and `changes`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from pyspark_delta.errors.table import PropertyError, SchemaError
from pyspark_delta.spark.asked_changes import AskedChanges, asked_changes
from pyspark_delta.spark.catalog import look_up_relation
from pyspark_delta.spark.commands.read import run_load
from pyspark_delta.spark.enabled_sessions import is_enabled
from pyspark_delta.spark.jvm.callback_errors import raised_again
from pyspark_delta.spark.options import DeltaOptions
from pyspark_delta.spark.patches.said import (
    Method,
    Wrap,
    format_wrap,
    is_delta,
    option_wrap,
    options_wrap,
    said,
    schema_wrap,
)
from pyspark_delta.spark.sql.path_names import with_path_names

# `events@v12`, `events@20240131120000000`
_AT = re.compile(r"(?P<name>[^`]+|.*`)(?P<at>@(?:v\d+|\d{17}))")


def read_table(
    spark: SparkSession, name: str, options: DeltaOptions, *, has_schema: bool
) -> DataFrame | None:
    """A Delta table as options or its name ask for it; None when neither asks for anything."""
    found = _AT.fullmatch(name)
    if found is None and not options and not has_schema:
        return None
    table = look_up_relation(spark, name if found is None else found["name"])
    if table is None or not table.is_delta or table.location is None:
        return None
    _check_no_schema(has_schema)
    at = "" if found is None else found["at"]
    frame = run_load(spark, f"{table.location}{at}", options)
    return frame.alias(table.table) if table.path is None else frame


def path_given(path: Any, options: DeltaOptions) -> str:
    """The one path of a read or write: `load`'s and `save`'s own, or the option's."""
    found = path if path is not None else options.get("path")
    if not isinstance(found, str):
        raise PropertyError(
            "DELTA_ILLEGAL_OPTION", input=str(found), name="path", explain="needs one path"
        )
    return found


def load_wrap(read: Callable[[SparkSession, str, DeltaOptions, Any], DataFrame]) -> Wrap:
    """`load`, where `read` gives the rows of a path under options and the user's schema, if any."""

    def wrap(original: Method) -> Method:
        def load(
            self: Any,
            path: Any = None,
            format: str | None = None,
            schema: Any = None,
            **options: Any,
        ) -> Any:
            words = said(self)
            words.format = format or words.format
            if not is_delta(self):
                return original(self, path, format, schema, **options)
            given = DeltaOptions({**words.options, **options})
            wanted = words.schema if schema is None else schema
            return read(self._spark, path_given(path, given), given, wanted)

        return load

    return wrap


def _load(spark: SparkSession, path: str, options: DeltaOptions, schema: Any) -> DataFrame:
    _check_no_schema(schema is not None)
    return run_load(spark, path, options)


def _table(original: Method) -> Method:
    def table(self: Any, tableName: str) -> Any:
        if not is_enabled(self._spark) or not isinstance(tableName, str):
            return original(self, tableName)
        words = said(self)
        options, has_schema = DeltaOptions(words.options), words.schema is not None
        ours = read_table(self._spark, tableName, options, has_schema=has_schema)
        if ours is not None:
            return ours
        with raised_again():
            return original(self, with_path_names(tableName))

    return table


def _changes(original: Method) -> Method:
    def changes(self: Any, tableName: str) -> Any:
        table = None
        if is_enabled(self._spark) and isinstance(tableName, str):
            table = look_up_relation(self._spark, tableName)
        if table is None or not table.is_delta or table.location is None:
            return original(self, tableName)
        words = said(self)
        _check_no_schema(words.schema is not None)
        asked = AskedChanges.of(self._spark, DeltaOptions(words.options))
        frame = asked_changes(self._spark, table.location, tableName, asked)
        return frame.alias(table.table) if table.path is None else frame

    return changes


def _check_no_schema(has_schema: bool) -> None:
    if has_schema:
        raise SchemaError("DELTA_UNSUPPORTED_SCHEMA_DURING_READ")


CHANGED: dict[tuple[type, str], Wrap] = {
    (DataFrameReader, "format"): format_wrap,
    (DataFrameReader, "option"): option_wrap,
    (DataFrameReader, "options"): options_wrap,
    (DataFrameReader, "schema"): schema_wrap,
    (DataFrameReader, "load"): load_wrap(_load),
    (DataFrameReader, "table"): _table,
    (DataFrameReader, "changes"): _changes,
}
