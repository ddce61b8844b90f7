"""A statement as it came in, and what every kind of statement asks of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.spark.catalog import TableName, look_up_relation
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.sql.change_names import with_change_calls
from pyspark_delta.spark.sql.heads import Head
from pyspark_delta.spark.sql.path_names import with_path_names
from pyspark_delta.spark.sql.version_names import with_version_names

Parsed = TypeVar("Parsed")


@dataclass(frozen=True, slots=True)
class Request:
    """A statement as it came in.

    `run` gives a text, with the same arguments, to Spark; `args` are these, by name or in order.
    """

    spark: SparkSession
    sql: str
    head: Head
    has_arguments: bool
    run: Callable[[str], DataFrame]
    args: Any = None


def delta_target(request: Request) -> TableName | None:
    """The Delta table that the statement is about; None for any other."""
    if not request.head.target:
        return None
    found = look_up_relation(request.spark, request.head.target)
    return found if found is not None and found.is_delta else None


def parsed_statement(request: Request, parse: Callable[[JvmSession, str, Any], Parsed]) -> Parsed:
    """What a parser makes of the statement, in names that Spark can resolve."""
    jvm, text = JvmSession(request.spark), resolvable(request.spark, request.sql)
    try:
        return parse(jvm, text, request.args)
    except ParseException:
        if text != request.sql:
            # The error is to show the statement as it was written.
            parse(jvm, request.sql, request.args)
        raise


def resolvable(spark: SparkSession, sql: str) -> str:
    """`sql` with names that Spark can resolve for path tables, and for tables at a version."""
    return with_version_names(spark, with_path_names(with_change_calls(spark, sql)))
