"""Writes by name: what saveAsTable, insertInto, writeTo, INSERT and AS SELECT mean.

Each becomes one `run_write` on the table's log; then the catalog is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from pyspark.sql import Column, DataFrame, SparkSession

from pyspark_delta.errors.table import TableNotFoundError
from pyspark_delta.spark.catalog import TableName, already_there, not_there, show_columns
from pyspark_delta.spark.commands.create_table import completed_table, is_definition_only
from pyspark_delta.spark.commands.write import run_write
from pyspark_delta.spark.commands.write_definition import clustering_names
from pyspark_delta.spark.commands.write_request import (
    SaveMode,
    TableOperation,
    TableWrite,
    WriteRequest,
)
from pyspark_delta.spark.jvm.new_columns import check_new_columns
from pyspark_delta.spark.options import DeltaOptions
from pyspark_delta.spark.table_layout import check_layout
from pyspark_delta.spark.table_places import TablePlace, known_name, place_of, register
from pyspark_delta.spark.types import from_spark

TableVerb = Literal["create", "replace", "create or replace"]

_OPERATIONS: Mapping[TableVerb, TableOperation] = {
    "create": "CREATE TABLE AS SELECT",
    "replace": "REPLACE TABLE AS SELECT",
    "create or replace": "CREATE OR REPLACE TABLE AS SELECT",
}
# Options with which an overwrite is of some rows, and history calls it so.
_REPLACES_ROWS = ("replaceWhere", "replaceOn", "replaceUsing")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRows:
    """Rows for a table, and what is said about the table besides."""

    data: DataFrame
    options: DeltaOptions = field(default_factory=DeltaOptions)
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    location: str | None = None
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


def save_as_table(spark: SparkSession, name: TableName, rows: TableRows, mode: SaveMode) -> None:
    """`df.write.saveAsTable`: columns by name, appended ones cast to what the table has.

    An overwrite replaces rows and keeps the table, its properties and its comment.
    """
    rows = replace(rows, comment=rows.options.get("comment"), location=rows.options.get("path"))
    if mode == "append":
        name = completed_table(spark, name)
    if not _exists(spark, name, rows):
        check_new_columns(rows.data)
        operation: TableVerb = "create or replace" if mode == "overwrite" else "create"
        _write_table(spark, name, rows, operation, is_v1=True)
    elif mode == "error":
        raise already_there(spark, name)
    elif mode == "overwrite" and any(option in rows.options for option in _REPLACES_ROWS):
        insert_rows(spark, name, rows, overwrite=True, casts=False)
    elif mode == "overwrite":
        check_new_columns(rows.data)
        _write_table(spark, name, rows, "create or replace", is_v1=True)
    elif mode == "append":
        place = place_of(spark, name, rows.location, rows.options)
        request = _request(rows, "append", casts=True)
        run_write(spark, place.log, rows.data, request)
        show_columns(spark, name)


def insert_rows(
    spark: SparkSession,
    name: TableName,
    rows: TableRows,
    *,
    overwrite: bool = False,
    by_position: bool = False,
    fields_by_position: bool = False,
    replace_where: Column | str | None = None,
    dynamic_partitions: bool = False,
    casts: bool = True,
) -> None:
    """Add rows to a table that exists, or put them in the place of all or some of its rows."""
    request = replace(
        _request(rows, "overwrite" if overwrite else "append", casts=casts),
        by_position=by_position,
        fields_by_position=fields_by_position,
        replace_where=replace_where,
        dynamic_partitions=dynamic_partitions,
    )
    name = completed_table(spark, name)
    place = place_of(spark, name, None, rows.options)
    if place.snapshot() is None:
        raise TableNotFoundError("DELTA_TABLE_NOT_FOUND", tableName=name.shown)
    run_write(spark, place.log, rows.data, request)
    show_columns(spark, name)


def make_table(spark: SparkSession, name: TableName, rows: TableRows, verb: TableVerb) -> None:
    """`df.writeTo(t).create()` and the like, and CREATE TABLE AS SELECT."""
    check_new_columns(rows.data)
    exists = _exists(spark, name, rows)
    if verb == "create" and exists:
        raise already_there(spark, name)
    if verb == "replace" and not exists and name.entry is None:
        raise not_there(spark, name)
    _write_table(spark, name, rows, verb, is_v1=False)


def _write_table(
    spark: SparkSession, name: TableName, rows: TableRows, verb: TableVerb, *, is_v1: bool
) -> None:
    schema = from_spark(rows.data.schema)
    check_layout(spark, schema, rows.partition_by, clustering_names(rows.cluster_by, schema))
    place = place_of(spark, name, rows.location, rows.options)
    if verb == "create" and place.is_unregistered():
        # Somebody made it and was stopped.  These rows come in the place of those.
        request = _table_request(place, rows, "create or replace")
        run_write(spark, place.log, rows.data, request, committing=lambda: register(spark, place))
        show_columns(spark, known_name(spark, name))
        return
    if verb == "create":
        place.check_empty()
    request = _table_request(place, rows, verb, is_v1_overwrite=is_v1 and verb != "create")
    if name.entry is not None:
        run_write(spark, place.log, rows.data, request)
    else:
        with place.making() as begin:
            run_write(spark, place.log, rows.data, request, starting=begin)
    register(spark, place)


def _table_request(
    place: TablePlace, rows: TableRows, verb: TableVerb, *, is_v1_overwrite: bool = False
) -> WriteRequest:
    as_table = TableWrite(
        operation=_OPERATIONS[verb],
        is_managed=place.is_managed,
        table_name=place.name.shown,
        comment=rows.comment,
        properties=rows.properties,
        is_v1_overwrite=is_v1_overwrite,
    )
    mode: SaveMode = "error" if verb == "create" else "overwrite"
    return replace(_request(rows, mode, casts=False), as_table=as_table)


def _exists(spark: SparkSession, name: TableName, rows: TableRows) -> bool:
    if name.path is None:
        return name.entry is not None and not is_definition_only(spark, name)
    return place_of(spark, name, None, rows.options).snapshot() is not None


def _request(rows: TableRows, mode: SaveMode, *, casts: bool) -> WriteRequest:
    return WriteRequest(
        mode=mode,
        partition_by=rows.partition_by,
        cluster_by=rows.cluster_by,
        options=rows.options,
        casts=casts,
    )
