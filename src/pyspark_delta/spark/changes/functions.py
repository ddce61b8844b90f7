"""The SQL table functions `table_changes` and `table_changes_by_path`: the change feed in FROM."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import cast

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.errors import ChangeFeedError, OperationNotAllowedError, TableNotFoundError
from pyspark_delta.kernel.sql.quoting import quoted_name
from pyspark_delta.spark.changes.feed import ChangeBound, change_bounds, changes_between
from pyspark_delta.spark.jvm.catalog.entries import parse_name
from pyspark_delta.spark.jvm.catalog.functions import Argument, TableFunction
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.tables.locations import open_log
from pyspark_delta.spark.tables.names import look_up_relation

BY_NAME, BY_PATH = "table_changes", "table_changes_by_path"

_FEWEST, _MOST = 2, 3
_BOUND_TYPES = ("IntegerType", "LongType", "StringType", "TimestampType")


def table_functions(spark: SparkSession) -> dict[str, TableFunction]:
    """The functions by their names in SQL."""

    def by_name(arguments: Sequence[Argument]) -> DataFrame | tuple[str, ...]:
        text, start, end = _arguments(BY_NAME, "table name", arguments)
        found = _location(spark, text)
        return _changes(spark, found, start, end) if isinstance(found, str) else found

    def by_path(arguments: Sequence[Argument]) -> DataFrame | tuple[str, ...]:
        path, start, end = _arguments(BY_PATH, "table path", arguments)
        return _changes(spark, path, start, end)

    return {BY_NAME: by_name, BY_PATH: by_path}


def _location(spark: SparkSession, name: str) -> str | tuple[str, ...]:
    """The location of the Delta table of that name; the name's parts if there is no table."""
    parts = parse_name(JvmSession(spark), name)
    table = look_up_relation(spark, parts)
    if table is not None and table.path is None and table.entry is None:
        return parts
    if table is None or not table.is_delta or table.location is None:
        raise TableNotFoundError("DELTA_TABLE_ONLY_OPERATION", tableName=name, operation=BY_NAME)
    return table.location


def _changes(
    spark: SparkSession, location: str, start: ChangeBound, end: ChangeBound | None
) -> DataFrame:
    log = open_log(spark, location)
    if not log.table_exists:
        raise TableNotFoundError("DELTA_MISSING_DELTA_TABLE", tableName=quoted_name(location))
    return changes_between(spark, log, change_bounds(spark, start, end))


def _arguments(
    function: str, what: str, arguments: Sequence[Argument]
) -> tuple[str, ChangeBound, ChangeBound | None]:
    """Parse the arguments of a call; raises a typed error for invalid ones."""
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
