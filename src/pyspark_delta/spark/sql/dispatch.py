"""A statement of `spark.sql`: ours to run, or Spark's, to which it goes as it was written.

One row per verb; a verb's runner gives None when the statement turns out to be Spark's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.errors.table import OperationNotAllowedError, TableNotFoundError
from pyspark_delta.spark.catalog import log_of, show_columns
from pyspark_delta.spark.jvm.catalog import drop_entry
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parser import syntax_error
from pyspark_delta.spark.jvm.plans import empty_frame
from pyspark_delta.spark.sql.convert import run_convert
from pyspark_delta.spark.sql.define import run_define
from pyspark_delta.spark.sql.grammar import StatementSyntaxError
from pyspark_delta.spark.sql.heads import head
from pyspark_delta.spark.sql.insert import run_insert
from pyspark_delta.spark.sql.requests import Request, delta_target, resolvable

_RENAME = re.compile(r"\bRENAME\s+TO\b", re.IGNORECASE)


def run_statement(
    spark: SparkSession, sql: str, args: Any, run: Callable[[str], DataFrame]
) -> DataFrame:
    """The result of a statement, by us or by Spark."""
    found = head(sql)
    if found is not None:
        try:
            result = _RUNNERS[found.verb](Request(spark, sql, found, bool(args), run))
        except StatementSyntaxError as error:
            raise syntax_error(JvmSession(spark), sql, error.start, error.found) from None
        if result is not None:
            return result
    return run(resolvable(spark, sql))


def _drop(request: Request) -> DataFrame | None:
    """Spark drops tables, files included; only it looks at one first, and a log may be gone."""
    name = delta_target(request)
    if name is None or name.entry is None:
        return None
    try:
        log_of(request.spark, name).update()
    except TableNotFoundError:
        drop_entry(JvmSession(request.spark), name.entry)
        return empty_frame(JvmSession(request.spark))
    return None


def _show(request: Request) -> DataFrame | None:
    """Spark shows the columns that the catalog has: let them be the newest version's."""
    name = delta_target(request)
    if name is not None and name.entry is not None:
        show_columns(request.spark, name)
    return None


def _convert(request: Request) -> DataFrame | None:
    run_convert(request.spark, request.sql)
    return empty_frame(JvmSession(request.spark))


def _refuse(request: Request) -> DataFrame | None:
    """What Spark would do with the catalog entry or the files, past the log."""
    if request.head.verb == "ALTER TABLE" and _RENAME.search(request.sql):
        return None
    name = delta_target(request)
    if name is None:
        return None
    raise OperationNotAllowedError(
        "DELTA_OPERATION_NOT_ALLOWED_DETAIL", operation=request.head.verb, tableName=name.shown
    )


_RUNNERS: dict[str, Callable[[Request], DataFrame | None]] = {
    "CREATE TABLE": run_define,
    "REPLACE TABLE": run_define,
    "INSERT INTO": run_insert,
    "INSERT OVERWRITE": run_insert,
    "DROP TABLE": _drop,
    "CONVERT TO DELTA": _convert,
    "DESCRIBE": _show,
    "DESC": _show,
    "SHOW COLUMNS IN": _show,
    "SHOW COLUMNS FROM": _show,
    "UPDATE": _refuse,
    "DELETE": _refuse,
    "MERGE": _refuse,
    "TRUNCATE TABLE": _refuse,
    "ALTER TABLE": _refuse,
    "COMMENT ON TABLE": _refuse,
    "LOAD DATA": _refuse,
    "MSCK REPAIR TABLE": _refuse,
}
