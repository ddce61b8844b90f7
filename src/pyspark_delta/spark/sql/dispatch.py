"""Finds the command of a statement about Delta tables; all others are Spark's, unchanged.

One row per verb; its function returns None when the statement is Spark's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parser.parameters import are_arguments
from pyspark_delta.spark.jvm.parser.plans import syntax_error
from pyspark_delta.spark.sql.grammar import StatementSyntaxError
from pyspark_delta.spark.sql.heads import head
from pyspark_delta.spark.sql.parameters import bound_statement
from pyspark_delta.spark.sql.statement import Command, Request
from pyspark_delta.spark.sql.statements.alter import alter_command, column_comment_command
from pyspark_delta.spark.sql.statements.change import change_command
from pyspark_delta.spark.sql.statements.clone import clone_command, convert_command
from pyspark_delta.spark.sql.statements.define import define_command
from pyspark_delta.spark.sql.statements.describe import (
    describe_command,
    detail_command,
    history_command,
)
from pyspark_delta.spark.sql.statements.drop import drop_command, refused_command
from pyspark_delta.spark.sql.statements.explain import explain_command
from pyspark_delta.spark.sql.statements.insert import insert_command
from pyspark_delta.spark.sql.statements.maintain import (
    analyze_command,
    generate_command,
    optimize_command,
    reorg_command,
    restore_command,
    vacuum_command,
)
from pyspark_delta.spark.sql.statements.show import show_command


def find_command(spark: SparkSession, sql: str, args: Any) -> Command | None:
    """The command of a statement about Delta tables; None for a statement of Spark's."""
    found = head(sql)
    if found is None or not are_arguments(args):
        return None
    jvm = JvmSession(spark)
    bound = bound_statement(jvm, sql, found, args)
    request = Request(
        spark=spark,
        sql=bound.sql,
        head=bound.head,
        has_arguments=bool(bound.left),
        args=bound.left,
    )
    try:
        return _COMMANDS[bound.head.verb](request)
    except StatementSyntaxError as error:
        place = bound.written.place(error.start)
        raise syntax_error(jvm, sql, place, error.found) from None


def _create(request: Request) -> Command | None:
    """Create a table from columns, a query, or another table's files."""
    cloned = clone_command(request)
    return define_command(request) if cloned is None else cloned


def _analyze(request: Request) -> Command | None:
    """Collect the log's statistics; those in the catalog would bypass the log."""
    collected = analyze_command(request)
    if collected is None:
        refused_command(request)
    return collected


_COMMANDS: dict[str, Callable[[Request], Command | None]] = {
    "CREATE TABLE": _create,
    "REPLACE TABLE": _create,
    "INSERT INTO": insert_command,
    "INSERT OVERWRITE": insert_command,
    "DROP TABLE": drop_command,
    "OPTIMIZE": optimize_command,
    "VACUUM": vacuum_command,
    "REORG TABLE": reorg_command,
    "CONVERT TO DELTA": convert_command,
    "RESTORE": restore_command,
    "GENERATE": generate_command,
    "DESCRIBE DETAIL": detail_command,
    "DESC DETAIL": detail_command,
    "DESCRIBE HISTORY": history_command,
    "DESC HISTORY": history_command,
    "DESCRIBE": describe_command,
    "DESC": describe_command,
    "SHOW COLUMNS": show_command,
    "SHOW PARTITIONS": show_command,
    "SHOW TBLPROPERTIES": show_command,
    "SHOW CREATE TABLE": show_command,
    "UPDATE": change_command,
    "DELETE": change_command,
    "MERGE": change_command,
    "TRUNCATE TABLE": change_command,
    "ALTER TABLE": alter_command,
    "COMMENT ON TABLE": alter_command,
    "COMMENT ON COLUMN": column_comment_command,
    "LOAD DATA": refused_command,
    "MSCK REPAIR TABLE": refused_command,
    "ANALYZE TABLE": _analyze,
    "EXPLAIN": explain_command,
}
