"""A statement of `spark.sql`: ours to run, or Spark's, to which it goes as it was written.

One row per verb; a verb's runner gives None when the statement turns out to be Spark's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parameters import are_arguments
from pyspark_delta.spark.jvm.parser import syntax_error
from pyspark_delta.spark.jvm.plans import empty_frame
from pyspark_delta.spark.sql.alter import run_alter, run_comment_on_column
from pyspark_delta.spark.sql.analyze import run_analyze
from pyspark_delta.spark.sql.bound_statements import bound_statement
from pyspark_delta.spark.sql.change import run_change
from pyspark_delta.spark.sql.clone import run_clone_statement
from pyspark_delta.spark.sql.convert import run_convert
from pyspark_delta.spark.sql.define import run_define
from pyspark_delta.spark.sql.describe import run_describe, run_detail, run_history
from pyspark_delta.spark.sql.drop import run_drop
from pyspark_delta.spark.sql.explain import run_explain
from pyspark_delta.spark.sql.generate import run_generate_statement
from pyspark_delta.spark.sql.grammar import StatementSyntaxError
from pyspark_delta.spark.sql.heads import head
from pyspark_delta.spark.sql.insert import run_insert
from pyspark_delta.spark.sql.optimize import run_optimize_statement, run_reorg_statement
from pyspark_delta.spark.sql.refused import run_refused
from pyspark_delta.spark.sql.requests import Request, resolvable
from pyspark_delta.spark.sql.restore import run_restore_statement
from pyspark_delta.spark.sql.show import run_show
from pyspark_delta.spark.sql.vacuum import run_vacuum_statement


def run_statement(
    spark: SparkSession, sql: str, args: Any, run: Callable[[str, Any], DataFrame]
) -> DataFrame:
    """The result of a statement, by us or by Spark; `run` gives a text and arguments to Spark."""
    found = head(sql)
    if found is not None and are_arguments(args):
        jvm = JvmSession(spark)
        bound = bound_statement(jvm, sql, found, args)
        left = bound.left
        request = Request(
            spark, bound.sql, bound.head, bool(left), lambda text: run(text, left), left
        )
        try:
            result = _RUNNERS[bound.head.verb](request)
        except StatementSyntaxError as error:
            place = bound.written.place(error.start)
            raise syntax_error(jvm, sql, place, error.found) from None
        if result is not None:
            return result
    return run(resolvable(spark, sql), args)


def _define(request: Request) -> DataFrame | None:
    """A table from columns, from a query, or from another table's files."""
    cloned = run_clone_statement(request)
    return run_define(request) if cloned is None else cloned


def _convert(request: Request) -> DataFrame | None:
    run_convert(request.spark, request.sql)
    return empty_frame(JvmSession(request.spark))


def _analyze(request: Request) -> DataFrame | None:
    """Statistics of the log; those of the catalog would be past it."""
    collected = run_analyze(request)
    return run_refused(request) if collected is None else collected


_RUNNERS: dict[str, Callable[[Request], DataFrame | None]] = {
    "CREATE TABLE": _define,
    "REPLACE TABLE": _define,
    "INSERT INTO": run_insert,
    "INSERT OVERWRITE": run_insert,
    "DROP TABLE": run_drop,
    "OPTIMIZE": run_optimize_statement,
    "VACUUM": run_vacuum_statement,
    "REORG TABLE": run_reorg_statement,
    "CONVERT TO DELTA": _convert,
    "RESTORE": run_restore_statement,
    "GENERATE": run_generate_statement,
    "DESCRIBE DETAIL": run_detail,
    "DESC DETAIL": run_detail,
    "DESCRIBE HISTORY": run_history,
    "DESC HISTORY": run_history,
    "DESCRIBE": run_describe,
    "DESC": run_describe,
    "SHOW COLUMNS": run_show,
    "SHOW PARTITIONS": run_show,
    "SHOW TBLPROPERTIES": run_show,
    "SHOW CREATE TABLE": run_show,
    "UPDATE": run_change,
    "DELETE": run_change,
    "MERGE": run_change,
    "TRUNCATE TABLE": run_change,
    "ALTER TABLE": run_alter,
    "COMMENT ON TABLE": run_alter,
    "COMMENT ON COLUMN": run_comment_on_column,
    "LOAD DATA": run_refused,
    "MSCK REPAIR TABLE": run_refused,
    "ANALYZE TABLE": _analyze,
    "EXPLAIN": run_explain,
}
