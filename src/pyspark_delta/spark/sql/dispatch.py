"""A statement of `spark.sql`: ours to run, or Spark's, to which it goes as it was written.

One row per verb; a verb's runner gives None when the statement turns out to be Spark's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.errors.table import OperationNotAllowedError, TableNotFoundError
from pyspark_delta.spark.catalog import TableName, log_of, look_up, look_up_relation, show_columns
from pyspark_delta.spark.commands.create_table import TableDefinition, run_create_table
from pyspark_delta.spark.jvm.catalog import drop_entry
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parser import (
    Query,
    TableStatement,
    parse_insert,
    parse_table_statement,
    syntax_error,
)
from pyspark_delta.spark.jvm.plans import empty_frame
from pyspark_delta.spark.options import DeltaOptions
from pyspark_delta.spark.sql.column_metadata import delta_columns
from pyspark_delta.spark.sql.convert import run_convert
from pyspark_delta.spark.sql.grammar import StatementSyntaxError
from pyspark_delta.spark.sql.heads import Head, head
from pyspark_delta.spark.sql.path_names import with_path_names
from pyspark_delta.spark.sql.version_names import with_version_names
from pyspark_delta.spark.table_writes import TableRows, TableVerb, insert_rows, make_table

DEFAULT_SOURCE = "spark.sql.sources.default"

_RENAME = re.compile(r"\bRENAME\s+TO\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Request:
    """A statement as it came in.  `run` gives a text, with the same arguments, to Spark."""

    spark: SparkSession
    sql: str
    head: Head
    has_arguments: bool
    run: Callable[[str], DataFrame]


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
    return run(_resolvable(spark, sql))


def _define(request: Request) -> DataFrame | None:
    """CREATE or REPLACE TABLE, where the provider says that it is a Delta table."""
    spark = request.spark
    default = (spark.conf.get(DEFAULT_SOURCE) or "").lower()
    if "delta" not in request.sql.lower() and default != "delta":
        return None
    try:
        statement = parse_table_statement(JvmSession(spark), request.sql)
    except ParseException:
        return None  # Spark says better what is wrong with it
    if statement is None or (statement.provider or default).lower() != "delta":
        return None
    name = look_up(spark, statement.name)
    if name is None:
        return None
    _check_supported(statement)
    if statement.query is not None:
        _define_from_query(request, name, statement, statement.query)
    else:
        run_create_table(
            spark,
            TableDefinition(
                name=name,
                schema=delta_columns(statement.schema),
                partition_by=statement.partition_by,
                cluster_by=statement.cluster_by,
                location=statement.location,
                comment=statement.comment,
                properties=statement.properties,
                creates=statement.creates,
                replaces=statement.replaces,
                if_not_exists=statement.if_not_exists,
            ),
        )
    return empty_frame(JvmSession(spark))


def _define_from_query(
    request: Request, name: TableName, statement: TableStatement, query: Query
) -> None:
    if statement.if_not_exists and name.entry is not None:
        return
    verb: TableVerb = "create"
    if statement.replaces:
        verb = "create or replace" if statement.creates else "replace"
    rows = TableRows(
        data=_query_rows(request, query),
        partition_by=statement.partition_by,
        cluster_by=tuple(".".join(path) for path in statement.cluster_by),
        location=statement.location,
        comment=statement.comment,
        properties=statement.properties,
    )
    make_table(request.spark, name, rows, verb)


def _insert(request: Request) -> DataFrame | None:
    name = _delta_target(request)
    if name is None:
        return None
    statement = parse_insert(JvmSession(request.spark), request.sql)
    if statement is None:
        return None
    if statement.partitions or statement.has_criteria:
        what = "INSERT with PARTITION" if statement.partitions else "INSERT with REPLACE"
        raise OperationNotAllowedError("DELTA_OPERATION_NOT_ALLOWED", operation=what)
    rows = TableRows(data=_query_rows(request, statement.query))
    if statement.columns:
        rows = replace(rows, data=rows.data.toDF(*statement.columns))
    if statement.evolves_schema:
        rows = replace(rows, options=DeltaOptions({"mergeSchema": "true"}))
    by_position = not (statement.by_name or statement.columns)
    insert_rows(request.spark, name, rows, overwrite=statement.overwrite, by_position=by_position)
    return empty_frame(JvmSession(request.spark))


def _drop(request: Request) -> DataFrame | None:
    """Spark drops tables, files included; only it looks at one first, and a log may be gone."""
    name = _delta_target(request)
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
    name = _delta_target(request)
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
    name = _delta_target(request)
    if name is None:
        return None
    raise OperationNotAllowedError(
        "DELTA_OPERATION_NOT_ALLOWED_DETAIL", operation=request.head.verb, tableName=name.shown
    )


def _delta_target(request: Request) -> TableName | None:
    """The Delta table that the statement is about; None for any other."""
    if not request.head.target:
        return None
    found = look_up_relation(request.spark, request.head.target)
    return found if found is not None and found.is_delta else None


def _query_rows(request: Request, query: Query) -> DataFrame:
    text = _resolvable(request.spark, query.text)
    if request.has_arguments or text != query.text:
        return request.run(text)
    return query.frame(JvmSession(request.spark))


def _resolvable(spark: SparkSession, sql: str) -> str:
    """`sql` with names that Spark can resolve for path tables, and for tables at a version."""
    return with_version_names(spark, with_path_names(sql))


def _check_supported(statement: TableStatement) -> None:
    asks = (
        ("Partitioning by expressions", statement.transforms),
        ("CREATE TABLE with constraints", statement.has_constraints),
    )
    for what, found in asks:
        if found:
            raise OperationNotAllowedError("DELTA_OPERATION_NOT_ALLOWED", operation=what)


_RUNNERS: dict[str, Callable[[Request], DataFrame | None]] = {
    "CREATE TABLE": _define,
    "REPLACE TABLE": _define,
    "INSERT INTO": _insert,
    "INSERT OVERWRITE": _insert,
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
