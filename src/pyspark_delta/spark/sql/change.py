"""UPDATE, DELETE, MERGE and TRUNCATE of a Delta table: the statement, and the command behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame

from pyspark_delta.errors.table import OperationNotAllowedError, TableNotFoundError
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.catalog import TableName, log_of
from pyspark_delta.spark.commands.delete import run_delete
from pyspark_delta.spark.commands.merge_clauses import Default, MergeClause
from pyspark_delta.spark.commands.merge_request import MergeRequest
from pyspark_delta.spark.commands.truncate import run_truncate
from pyspark_delta.spark.commands.update import run_update
from pyspark_delta.spark.jvm.catalog import SESSION_CATALOG
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parameters import are_arguments
from pyspark_delta.spark.jvm.parsed_changes import (
    ParsedClause,
    ParsedDelete,
    ParsedMerge,
    ParsedTarget,
    ParsedTruncate,
    ParsedUpdate,
    parse_change,
)
from pyspark_delta.spark.jvm.path_catalog import PATH_DATABASE
from pyspark_delta.spark.jvm.plans import empty_frame
from pyspark_delta.spark.sql.requests import Request, resolvable
from pyspark_delta.spark.sql.targets import changed_table
from pyspark_delta.spark.table_merges import merge_into


def run_change(request: Request) -> DataFrame | None:
    """Run the statement; None when its table is not Delta's."""
    table = changed_table(request.spark, request.head.target) if request.head.target else None
    if (table is None and request.head.target) or not are_arguments(request.args):
        return None
    spark = request.spark
    parsed = parse_change(JvmSession(spark), resolvable(spark, request.sql), request.args)
    if parsed is None:
        return None
    if table is None:
        # Named by IDENTIFIER(...), which the parser has made a name.
        table = changed_table(spark, parsed.target.name)
    if table is None:
        return None
    return _RUNNERS[type(parsed)](request, table, parsed)


def _update(request: Request, table: TableName, parsed: ParsedUpdate) -> DataFrame:
    log, called = _log(request, table), _called(request, table, parsed.target)
    done = run_update(request.spark, log, parsed.assignments, parsed.condition, alias=called)
    return done.frame(request.spark)


def _delete(request: Request, table: TableName, parsed: ParsedDelete) -> DataFrame:
    log, called = _log(request, table), _called(request, table, parsed.target)
    return run_delete(request.spark, log, parsed.condition, alias=called).frame(request.spark)


def _merge(request: Request, table: TableName, parsed: ParsedMerge) -> DataFrame:
    _log(request, table)
    merge = MergeRequest(
        source=parsed.source_rows(JvmSession(request.spark)),
        condition=parsed.condition,
        clauses=tuple(map(_clause, parsed.clauses)),
        called=_called(request, table, parsed.target),
        evolves=parsed.evolves,
    )
    return merge_into(request.spark, table, merge).counts.frame(request.spark)


def _truncate(request: Request, table: TableName, parsed: ParsedTruncate) -> DataFrame:
    if parsed.has_partition:
        raise OperationNotAllowedError("DELTA_TRUNCATE_TABLE_PARTITION_NOT_SUPPORTED")
    run_truncate(request.spark, _log(request, table))
    return empty_frame(JvmSession(request.spark))


_RUNNERS: dict[type, Callable[[Request, TableName, Any], DataFrame]] = {
    ParsedUpdate: _update,
    ParsedDelete: _delete,
    ParsedMerge: _merge,
    ParsedTruncate: _truncate,
}


def _clause(parsed: ParsedClause) -> MergeClause:
    assignments = parsed.assignments
    return MergeClause(
        kind=parsed.kind,
        action=parsed.action,
        condition=parsed.condition,
        assignments=None
        if assignments is None
        else tuple(
            (each.name, Default.VALUE if each.value is None else each.value) for each in assignments
        ),
    )


def _log(request: Request, table: TableName) -> DeltaLog:
    """The log of a table that must be there."""
    log = log_of(request.spark, table)
    if not log.table_exists:
        raise TableNotFoundError("DELTA_TABLE_NOT_FOUND", tableName=table.shown)
    return log


def _called(request: Request, table: TableName, target: ParsedTarget) -> tuple[str, ...]:
    """What expressions may call the table: its alias alone, or else all parts of its name."""
    if target.alias is not None:
        return (target.alias,)
    if table.path is not None:
        return (SESSION_CATALOG, PATH_DATABASE, table.path)
    assert table.entry is not None
    return table.entry.parts
