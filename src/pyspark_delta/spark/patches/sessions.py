"""`spark.sql`, `spark.table`, settings, and sessions made of sessions."""

from __future__ import annotations

from functools import partial
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.conf import RuntimeConfig
from pyspark.sql.sql_formatter import SQLStringFormatter

from pyspark_delta.spark.delta_spark_confs import (
    CATALOG,
    drop_delta_spark_catalog,
    is_delta_spark_catalog,
    log_dropped,
)
from pyspark_delta.spark.enabled_sessions import MARK, is_enabled, turn_on
from pyspark_delta.spark.jvm.callback_errors import raised_again
from pyspark_delta.spark.options import DeltaOptions
from pyspark_delta.spark.patches.readers import read_table
from pyspark_delta.spark.patches.said import Method, Wrap
from pyspark_delta.spark.sql.dispatch import run_statement
from pyspark_delta.spark.sql.path_names import with_path_names


def _sql(original: Method) -> Method:
    def sql(self: Any, sqlQuery: str, args: Any = None, **kwargs: Any) -> Any:
        if not is_enabled(self) or not isinstance(sqlQuery, str):
            return original(self, sqlQuery, args, **kwargs)
        if not kwargs:
            return run(self, sqlQuery, args)
        formatter = SQLStringFormatter(self)
        try:
            return run(self, formatter.format(sqlQuery, **kwargs), args)
        finally:
            formatter.clear()

    def run(spark: SparkSession, text: str, args: Any) -> Any:
        with raised_again():
            result = run_statement(spark, text, args, partial(original, spark))
        if CATALOG in text:  # SET, which names delta-spark's catalog in programs for it
            drop_delta_spark_catalog(spark)
        return result

    return sql


def _table(original: Method) -> Method:
    def table(self: Any, tableName: str) -> Any:
        if not is_enabled(self) or not isinstance(tableName, str):
            return original(self, tableName)
        ours = read_table(self, tableName, DeltaOptions(), has_schema=False)
        if ours is not None:
            return ours
        with raised_again():
            return original(self, with_path_names(tableName))

    return table


def _new_session(original: Method) -> Method:
    def newSession(self: Any) -> Any:
        child = original(self)
        if is_enabled(self):
            turn_on(child)
        return child

    return newSession


def _set(original: Method) -> Method:
    def set(self: Any, key: str, value: Any) -> None:
        if is_delta_spark_catalog(key, value) and self.get(MARK, None) == "true":
            log_dropped(key, value)
            return
        original(self, key, value)

    return set


CHANGED: dict[tuple[type, str], Wrap] = {
    (SparkSession, "sql"): _sql,
    (SparkSession, "table"): _table,
    (SparkSession, "newSession"): _new_session,
    (RuntimeConfig, "set"): _set,
}
