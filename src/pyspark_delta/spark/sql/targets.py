"""The table that a statement changes, by the name that the statement has for it.

A temporary view that shows all rows of a table stands for the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.errors.table import OperationNotAllowedError
from pyspark_delta.spark.catalog import (
    TableName,
    is_path_name,
    look_up,
    look_up_relation,
)
from pyspark_delta.spark.jvm.analysis_errors import analysis_error
from pyspark_delta.spark.jvm.catalog import SESSION_CATALOG, is_temporary_view
from pyspark_delta.spark.jvm.file_index import sources_in
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.missing_tables import missing_table
from pyspark_delta.spark.jvm.path_catalog import PATH_DATABASE
from pyspark_delta.spark.jvm.view_plans import (
    ShownTable,
    catalog_name,
    is_frame_view,
    relation_frame,
    shown_table,
    shows_one_table,
)
from pyspark_delta.spark.reader import read_snapshot
from pyspark_delta.spark.snapshot_source import SnapshotSource
from pyspark_delta.spark.table_access import hadoop_location


@dataclass(frozen=True, slots=True)
class ChangedTable:
    """A Delta table, and what expressions may call it: all parts of its name, or a view's.

    `view` is what they may see of it, None for all.
    """

    table: TableName
    called: tuple[str, ...]
    view: ShownTable | None = None


def changed_table(spark: SparkSession, name: Sequence[str], verb: str) -> ChangedTable | None:
    """The Delta table of that name; None when the statement is not about one.

    An error when it is a view of one that cannot be changed through it.
    """
    jvm = JvmSession(spark)
    if not is_path_name(name) and is_temporary_view(jvm, name):
        return _table_behind(spark, name, verb, is_temporary=True)
    found = look_up(spark, name)
    if found is None:
        return None
    if found.path is not None:
        return ChangedTable(found, (SESSION_CATALOG, PATH_DATABASE, found.path))
    if found.entry is not None and found.entry.is_view:
        _table_behind(spark, name, verb, is_temporary=False)
    if found.entry is None or not found.is_delta:
        return None
    return ChangedTable(found, found.entry.parts)


def inserted_table(spark: SparkSession, name: Sequence[str]) -> TableName | None:
    """As `changed_table`, for INSERT: of views, Spark lets it into a DataFrame that is a table.

    None for all others, which Spark refuses.  delta-spark leaves this one to Spark as well, whose
    files are then in the table's directory and not in the table.
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
    shown = shown_table(view, whole) if shows_one_table(view) else None
    return _named_table(spark, view, source) if shown and _is_whole(shown, whole) else None


def _table_behind(
    spark: SparkSession, name: Sequence[str], verb: str, *, is_temporary: bool
) -> ChangedTable | None:
    """The table that a view shows; None when there is no Delta table in it."""
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
    shown = shown_table(view, whole)
    if shown is None:
        raise OperationNotAllowedError("DELTA_UNEXPECTED_PARTIAL_SCAN", path=place)
    table = _named_table(spark, view, source)
    seen = None if _is_whole(shown, whole) else shown
    return None if table is None else ChangedTable(table, tuple(name), seen)


def _check_not_historical(source: SnapshotSource) -> None:
    if source.is_time_travel:
        raise OperationNotAllowedError(
            "DELTA_FAILED_SCAN_WITH_HISTORICAL_VERSION", historicalVersion=source.snapshot.version
        )


def _is_whole(shown: ShownTable, table: DataFrame) -> bool:
    return shown.columns == {column: column for column in table.columns}


def _named_table(spark: SparkSession, view: DataFrame, source: SnapshotSource) -> TableName | None:
    """The table by the name that the view knows it by, else by its path."""
    known = catalog_name(view)
    if known is not None and known[0].lower() == SESSION_CATALOG:
        return look_up(spark, known)
    return TableName(path=hadoop_location(source.snapshot.store.root_uri))


def existing_table(spark: SparkSession, name: Sequence[str], verb: str) -> TableName:
    """The table or path of that name; Spark's error when there is none, or a view."""
    jvm = JvmSession(spark)
    table = look_up_relation(spark, name)
    view: Sequence[str] = ()
    if table is None and is_temporary_view(jvm, name):
        view = name
    elif table is not None and table.entry is not None and table.entry.is_view:
        view = table.entry.parts
    if view:
        condition = "EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE"
        raise analysis_error(jvm, condition, viewName=_quoted(view), operation=verb)
    if table is None or (table.path is None and table.entry is None):
        raise missing_table(jvm, name)
    return table


def only_delta(spark: SparkSession, name: Sequence[str], verb: str) -> TableName:
    """The Delta table of that name, for a statement that tells tables of others from none."""
    jvm = JvmSession(spark)
    found = look_up_relation(spark, name)
    is_view = found is not None and found.entry is not None and found.entry.is_view
    if is_view or (found is None and is_temporary_view(jvm, name)):
        raise OperationNotAllowedError("DELTA_ONLY_OPERATION", operation=verb)
    if found is None or not found.is_delta:
        raise missing_table(jvm, name)
    return found


def _quoted(name: Sequence[str]) -> str:
    return ".".join(f"`{part}`" for part in name)
