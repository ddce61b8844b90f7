"""Resolves the target of a statement: a Delta table by its name or path.

A temporary view with all rows of a table counts as the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.errors import OperationNotAllowedError, StorageError, TableNotFoundError
from pyspark_delta.kernel.sql.quoting import quoted_name, quoted_path
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.jvm.catalog.entries import (
    SESSION_CATALOG,
    is_temporary_view,
    missing_table,
)
from pyspark_delta.spark.jvm.catalog.path_catalog import PATH_DATABASE
from pyspark_delta.spark.jvm.failures import analysis_error
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans.views import (
    ViewColumns,
    catalog_name,
    is_frame_view,
    relation_frame,
    shows_one_table,
    view_columns,
)
from pyspark_delta.spark.jvm.scan.file_index import sources_in
from pyspark_delta.spark.scan.frame import read_snapshot
from pyspark_delta.spark.scan.source import SnapshotSource
from pyspark_delta.spark.tables.locations import ancestors, hadoop_location, open_log
from pyspark_delta.spark.tables.names import (
    TableName,
    is_path_name,
    log_of,
    look_up,
    look_up_relation,
)

# VACUUM deletes files, so it must not run on the table for a directory inside it.
_ROOT_ONLY = "VACUUM"
_REORG = "REORG"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedTable:
    """A Delta table, and its name in expressions: its own, or a view's.

    `view` has the columns for expressions; None for all of the table's.
    """

    table: TableName
    called: tuple[str, ...]
    view: ViewColumns | None = None


def changed_table(spark: SparkSession, name: Sequence[str], verb: str) -> ChangedTable | None:
    """The Delta table of that name; None if the name is something else.

    Raises for a view of a Delta table that does not allow changes.
    """
    jvm = JvmSession(spark)
    if not is_path_name(name) and is_temporary_view(jvm, name):
        return _table_behind(spark, name, verb, is_temporary=True)
    found = look_up(spark, name)
    if found is None:
        return None
    if found.path is not None:
        return ChangedTable(table=found, called=(SESSION_CATALOG, PATH_DATABASE, found.path))
    if found.entry is not None and found.entry.is_view:
        _table_behind(spark, name, verb, is_temporary=False)
    if found.entry is None or not found.is_delta:
        return None
    return ChangedTable(table=found, called=found.entry.parts)


def inserted_table(spark: SparkSession, name: Sequence[str]) -> TableName | None:
    """As `changed_table`, for INSERT and TRUNCATE.

    Spark allows INSERT only into one kind of view: the temporary view of a DataFrame that reads a
    whole table.  None for all other views, for which Spark raises.  delta-spark leaves the allowed
    kind to Spark, which then writes files into the table's directory that are not in the table.
    """
    jvm = JvmSession(spark)
    if is_path_name(name) or not is_temporary_view(jvm, name):
        found = look_up(spark, name)
        return found if found is not None and found.is_delta else None
    view = relation_frame(jvm, name)
    source = next(iter(sources_in(view)), None)
    if not isinstance(source, SnapshotSource) or not is_frame_view(view):
        return None
    _check_not_historical(source)
    whole = read_snapshot(spark, source.snapshot)
    columns = view_columns(view, whole) if shows_one_table(view) else None
    return _named_table(spark, view, source) if columns and _is_whole(columns, whole) else None


def existing_table(spark: SparkSession, name: Sequence[str], verb: str) -> TableName:
    """The table or path of that name; Spark's error if it does not exist, or is a view."""
    jvm = JvmSession(spark)
    table = look_up_relation(spark, name)
    view: Sequence[str] = ()
    if table is None and is_temporary_view(jvm, name):
        view = name
    elif table is not None and table.entry is not None and table.entry.is_view:
        view = table.entry.parts
    if view:
        condition = "EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE"
        raise analysis_error(jvm, condition, viewName=quoted_path(view), operation=verb)
    if table is None or (table.path is None and table.entry is None):
        raise missing_table(jvm, name)
    return table


def only_delta(spark: SparkSession, name: Sequence[str], verb: str) -> TableName:
    """The Delta table of that name; raises different errors for other formats and for no table."""
    jvm = JvmSession(spark)
    found = look_up_relation(spark, name)
    is_view = found is not None and found.entry is not None and found.entry.is_view
    if is_view or (found is None and is_temporary_view(jvm, name)):
        raise OperationNotAllowedError("DELTA_ONLY_OPERATION", operation=verb)
    if found is None or not found.is_delta:
        raise missing_table(jvm, name)
    return found


def optimized_table(spark: SparkSession, table: str | tuple[str, ...], verb: str) -> DeltaLog:
    """The log of the table of VACUUM, OPTIMIZE, REORG or GENERATE.

    The table is a quoted path, delta.`path`, or a name.  A path inside a partition means the whole
    table, except for VACUUM.  Otherwise it raises delta-spark's errors, with its names for them:
    TableNotFoundError if there is no table, Spark's own error for an unknown name.
    """
    if isinstance(table, str):
        found = log_above(spark, table)
        if found is None or (verb == _ROOT_ONLY and found[1]):
            raise _not_a_table(table, verb)
        return found[0]
    if is_path_name(table):
        return _log_at(spark, table[-1], verb)
    name = existing_table(spark, table, verb)
    if name.entry is not None and not name.is_delta:
        if verb == _REORG:
            short = f"{name.entry.database}.{name.entry.table}"
            raise OperationNotAllowedError("DELTA_NOT_A_DELTA_TABLE", tableName=short)
        raise OperationNotAllowedError("DELTA_ONLY_OPERATION", operation=verb)
    log = log_of(spark, name)
    if not log.table_exists:
        raise TableNotFoundError("DELTA_MISSING_DELTA_TABLE", tableName=name.label)
    return log


def log_above(spark: SparkSession, path: str) -> tuple[DeltaLog, bool] | None:
    """The log at a path, or of the table above it; the flag is true in the second case."""
    log = open_log(spark, path)
    if log.table_exists:
        return log, False
    with suppress(StorageError):
        for place in ancestors(path):
            log = open_log(spark, place)
            if log.table_exists:
                return log, True
    return None


def _table_behind(
    spark: SparkSession, name: Sequence[str], verb: str, *, is_temporary: bool
) -> ChangedTable | None:
    """The table of a view; None if there is no Delta table in it."""
    view = relation_frame(JvmSession(spark), name)
    sources = sources_in(view)
    if not sources:
        return None
    source = sources[0]
    is_simple = is_temporary and shows_one_table(view)
    if not isinstance(source, SnapshotSource) or not is_simple:
        raise OperationNotAllowedError("DELTA_UNSUPPORTED_SOURCE", operation=verb)
    place = hadoop_location(source.snapshot.store.root_uri)
    whole = read_snapshot(spark, source.snapshot)
    _check_not_historical(source)
    columns = view_columns(view, whole)
    if columns is None:
        raise OperationNotAllowedError("DELTA_UNEXPECTED_PARTIAL_SCAN", path=place)
    table = _named_table(spark, view, source)
    limited = None if _is_whole(columns, whole) else columns
    return None if table is None else ChangedTable(table=table, called=tuple(name), view=limited)


def _check_not_historical(source: SnapshotSource) -> None:
    if source.is_time_travel:
        raise OperationNotAllowedError(
            "DELTA_FAILED_SCAN_WITH_HISTORICAL_VERSION", historicalVersion=source.snapshot.version
        )


def _is_whole(view: ViewColumns, table: DataFrame) -> bool:
    return view.columns == {column: column for column in table.columns}


def _named_table(spark: SparkSession, view: DataFrame, source: SnapshotSource) -> TableName | None:
    """The table by its name in the view's plan, else by its path."""
    known = catalog_name(view)
    if known is not None and known[0].lower() == SESSION_CATALOG:
        return look_up(spark, known)
    return TableName(path=hadoop_location(source.snapshot.store.root_uri))


def _log_at(spark: SparkSession, path: str, verb: str) -> DeltaLog:
    found = log_above(spark, path)
    if found is None:
        raise TableNotFoundError("DELTA_MISSING_DELTA_TABLE", tableName=quoted_name(path))
    log, is_above = found
    if is_above and verb == _ROOT_ONLY:
        raise _not_a_table(path, verb)
    return log


def _not_a_table(path: str, verb: str) -> TableNotFoundError:
    return TableNotFoundError(
        "DELTA_TABLE_ONLY_OPERATION", tableName=quoted_name(path), operation=verb
    )
