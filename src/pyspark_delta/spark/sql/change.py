"""UPDATE, DELETE, MERGE and TRUNCATE of a Delta table: the statement, and the command behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.errors.base import DeltaError
from pyspark_delta.errors.table import OperationNotAllowedError, TableNotFoundError
from pyspark_delta.spark.catalog import TableName, log_of
from pyspark_delta.spark.commands.delete import run_delete
from pyspark_delta.spark.commands.merge_clauses import Default, MergeClause
from pyspark_delta.spark.commands.merge_request import MergeRequest
from pyspark_delta.spark.commands.planned_changes import plan_delete, plan_merge, plan_update
from pyspark_delta.spark.commands.truncate import run_truncate
from pyspark_delta.spark.commands.update import run_update
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parameters import are_arguments
from pyspark_delta.spark.jvm.parsed_changes import (
    ParsedChange,
    ParsedClause,
    ParsedDelete,
    ParsedMerge,
    ParsedTruncate,
    ParsedUpdate,
    parse_change,
)
from pyspark_delta.spark.jvm.plans import empty_frame
from pyspark_delta.spark.sql.changed_views import through_view
from pyspark_delta.spark.sql.requests import Request, parsed_statement
from pyspark_delta.spark.sql.targets import ChangedTable, changed_table, inserted_table
from pyspark_delta.spark.table_merges import merge_into
from pyspark_delta.spark.table_roots import table_root


def run_change(request: Request) -> DataFrame | None:
    """Run the statement; None when its table is not Delta's."""
    found = _found(request)
    if found is None:
        return None
    target, parsed = found
    return _RUNNERS[type(parsed)](request.spark, target, parsed)


def plan_change(request: Request) -> tuple[str, DataFrame] | None:
    """What EXPLAIN shows: the command, and the rows that it would work on.

    None when the table is not Delta's, or the statement has no rows to tell of.
    """
    found = _found(request)
    if found is None:
        return None
    target, parsed = found
    if isinstance(parsed, ParsedTruncate):
        return None
    spark, log, name = request.spark, log_of(request.spark, target.table), target.table.shown
    if isinstance(parsed, ParsedDelete):
        rows = plan_delete(spark, log, parsed.condition, target.called)
        return f"DeleteCommand {name}", rows
    if isinstance(parsed, ParsedUpdate):
        rows = plan_update(spark, log, parsed.assignments, parsed.condition, target.called)
        return f"UpdateCommand {name}", rows
    merge = _merge_request(spark, target, parsed)
    return f"MergeIntoCommand {name}", plan_merge(spark, log, merge)


def _found(request: Request) -> tuple[ChangedTable, ParsedChange] | None:
    """The table, under the name that the statement has for it, and what the statement says."""
    spark, verb, named = request.spark, request.head.verb, request.head.target
    target = _target(spark, named, verb) if named else None
    if (target is None and named) or not are_arguments(request.args):
        return None
    parsed = parsed_statement(request, parse_change)
    if parsed is None:
        return None
    if target is None:
        # Named by IDENTIFIER(...), which the parser has made a name.
        target = _target(spark, parsed.target.name, verb)
    if target is None:
        return None
    if not log_of(spark, target.table).table_exists:
        raise _no_table(spark, target.table)
    if parsed.target.alias is not None:
        target = replace(target, called=(parsed.target.alias,))
    if target.view is not None:
        snapshot = log_of(spark, target.table).update()
        parsed = through_view(
            spark,
            target.view,
            target.called,
            parsed,
            schema=snapshot.metadata.schema,
            path=snapshot.store.root_uri,
        )
    return target, parsed


def _no_table(spark: SparkSession, name: TableName) -> DeltaError:
    """What is wrong with a name or path that has no table: it may be a part of one."""
    root = None if name.path is None else table_root(spark, name.path)
    if root is None:
        return TableNotFoundError("DELTA_MISSING_DELTA_TABLE", tableName=name.shown)
    return OperationNotAllowedError("DELTA_UNEXPECTED_PARTIAL_SCAN", path=root)


def _target(spark: SparkSession, name: Sequence[str], verb: str) -> ChangedTable | None:
    if verb.startswith("TRUNCATE"):
        table = inserted_table(spark, name)
        return None if table is None else ChangedTable(table, ())
    return changed_table(spark, name, verb)


def _update(spark: SparkSession, target: ChangedTable, parsed: ParsedUpdate) -> DataFrame:
    log = log_of(spark, target.table)
    done = run_update(
        spark,
        log,
        parsed.assignments,
        parsed.condition,
        alias=target.called,
        structs_by_name=True,
    )
    return done.frame(spark)


def _delete(spark: SparkSession, target: ChangedTable, parsed: ParsedDelete) -> DataFrame:
    log = log_of(spark, target.table)
    return run_delete(spark, log, parsed.condition, alias=target.called).frame(spark)


def _merge(spark: SparkSession, target: ChangedTable, parsed: ParsedMerge) -> DataFrame:
    merge = _merge_request(spark, target, parsed)
    return merge_into(spark, target.table, merge).counts.frame(spark)


def _merge_request(spark: SparkSession, target: ChangedTable, parsed: ParsedMerge) -> MergeRequest:
    return MergeRequest(
        source=parsed.source_rows(JvmSession(spark)),
        condition=parsed.condition,
        clauses=tuple(map(_clause, parsed.clauses)),
        called=target.called,
        evolves=parsed.evolves,
    )


def _truncate(spark: SparkSession, target: ChangedTable, parsed: ParsedTruncate) -> DataFrame:
    if parsed.has_partition:
        raise OperationNotAllowedError("DELTA_TRUNCATE_TABLE_PARTITION_NOT_SUPPORTED")
    run_truncate(spark, log_of(spark, target.table))
    return empty_frame(JvmSession(spark))


_RUNNERS: dict[type, Callable[[SparkSession, ChangedTable, Any], DataFrame]] = {
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
