"""`table_changes` and `table_changes_by_path` of SQL: the change feed where a table can stand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_delta.errors.table import ChangeFeedError, OperationNotAllowedError, TableNotFoundError
from pyspark_delta.spark.catalog import look_up_relation
from pyspark_delta.spark.commands.change_feed import (
    ChangeBound,
    change_bounds,
    changes_between,
)
from pyspark_delta.spark.jvm.catalog import parse_name
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.table_functions import Argument, TableFunction
from pyspark_delta.spark.table_access import open_log

BY_NAME, BY_PATH = "table_changes", "table_changes_by_path"
BETWEEN = "pyspark_delta_changes"
"""What `CHANGES FROM` becomes: a name, two bounds, whether each is included, updates as such."""

_CHANGE_TYPE = "_change_type"
_FEWEST, _MOST = 2, 3
_BOUND_TYPES = ("IntegerType", "LongType", "StringType", "TimestampType")


def table_functions(spark: SparkSession) -> dict[str, TableFunction]:
    """The functions by their names in SQL."""

    def by_name(arguments: Sequence[Argument]) -> DataFrame | tuple[str, ...]:
        text, start, end = _arguments(BY_NAME, "table name", arguments)
        parts = parse_name(JvmSession(spark), text)
        table = look_up_relation(spark, parts)
        if table is not None and table.path is None and table.entry is None:
            return parts  # Spark says that there is none
        if table is None or not table.is_delta or table.location is None:
            raise TableNotFoundError(
                "DELTA_TABLE_ONLY_OPERATION", tableName=text, operation=BY_NAME
            )
        return _changes(spark, table.location, start, end)

    def by_path(arguments: Sequence[Argument]) -> DataFrame | tuple[str, ...]:
        path, start, end = _arguments(BY_PATH, "table path", arguments)
        return _changes(spark, path, start, end)

    def between(arguments: Sequence[Argument]) -> DataFrame | tuple[str, ...]:
        name, start, end, *flags = arguments
        has_end = end.value is not None
        found = by_name([name, start, *([end] if has_end else [])])
        if not isinstance(found, DataFrame):
            return found
        is_in = [bool(flag.value) for flag in flags]
        if not is_in[0]:
            found = found.where(_position(start) > F.lit(start.value))
        if has_end and not is_in[1]:
            found = found.where(_position(end) < F.lit(end.value))
        return found if is_in[2] else _as_two_changes(found)

    return {BY_NAME: by_name, BY_PATH: by_path, BETWEEN: between}


def _position(bound: Argument) -> Column:
    """The column that a bound is compared with."""
    return F.col("_commit_version" if isinstance(bound.value, int) else "_commit_timestamp")


def _as_two_changes(changes: DataFrame) -> DataFrame:
    """An update as the end of a row and the beginning of another."""
    kind = F.col(_CHANGE_TYPE)
    told = (
        F.when(kind == "update_preimage", "delete")
        .when(kind == "update_postimage", "insert")
        .otherwise(kind)
    )
    return changes.withColumn(_CHANGE_TYPE, told)


def _changes(
    spark: SparkSession, location: str, start: ChangeBound, end: ChangeBound | None
) -> DataFrame:
    log = open_log(spark, location)
    if not log.table_exists:
        raise TableNotFoundError("DELTA_MISSING_DELTA_TABLE", tableName=f"`{location}`")
    return changes_between(spark, log, change_bounds(spark, start, end))


def _arguments(
    function: str, what: str, arguments: Sequence[Argument]
) -> tuple[str, ChangeBound, ChangeBound | None]:
    """What a call means; a typed error when it cannot be one."""
    if not _FEWEST <= len(arguments) <= _MOST:
        raise OperationNotAllowedError(
            "INCORRECT_NUMBER_OF_ARGUMENTS",
            failure="not enough args" if len(arguments) < _FEWEST else "too many args",
            functionName=function,
            minArgs=_FEWEST,
            maxArgs=_MOST,
        )
    first = arguments[0]
    if not isinstance(first.value, str):
        raise _unsupported(what, first, ("StringType literal",))
    bounds = [
        _bound(each, f"{which} option")
        for each, which in zip(arguments[1:], ("starting", "ending"), strict=False)
    ]
    return first.value, bounds[0], bounds[1] if len(bounds) > 1 else None


def _bound(argument: Argument, what: str) -> ChangeBound:
    if argument.value is None:
        raise ChangeFeedError("DELTA_CDC_READ_NULL_RANGE_BOUNDARY")
    if isinstance(argument.value, bool) or not isinstance(argument.value, (int, str, date)):
        raise _unsupported(what, argument, _BOUND_TYPES)
    return cast(ChangeBound, argument.value)


def _unsupported(
    what: str, argument: Argument, supported: Sequence[str]
) -> OperationNotAllowedError:
    return OperationNotAllowedError(
        "DELTA_UNSUPPORTED_EXPRESSION",
        expType=argument.type_name,
        causedBy=what,
        supportedTypes=", ".join(supported),
    )
