"""Writes by table name: saveAsTable, insertInto, writeTo, INSERT and AS SELECT.

Each becomes one `run_write` on the table's log, followed by an update of the catalog.  If the
catalog has only a table's definition, the caller creates the table before rows are added
(`ddl.create_table.completed_table`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pyspark.sql import Column, DataFrame, SparkSession

from pyspark_delta.errors import TableNotFoundError
from pyspark_delta.spark.conf.options import DeltaOptions
from pyspark_delta.spark.jvm.gateway import from_spark
from pyspark_delta.spark.jvm.write.file_writer import check_new_columns
from pyspark_delta.spark.tables.column_checks import check_layout
from pyspark_delta.spark.tables.names import (
    TableName,
    missing_table_error,
    table_exists_error,
    update_entry,
)
from pyspark_delta.spark.tables.registration import (
    TablePlace,
    is_definition_only,
    known_name,
    place_of,
    register,
)
from pyspark_delta.spark.write.request import SaveMode, TableVerb, TableWrite, WriteRequest
from pyspark_delta.spark.write.run import run_write
from pyspark_delta.spark.write.schema import clustering_names

# Options with which an overwrite replaces some rows, under the names in the history.
_REPLACES_ROWS = ("replaceWhere", "replaceOn", "replaceUsing")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRows:
    """Rows for a table, and the table's definition in the statement."""

    data: DataFrame
    options: DeltaOptions = field(default_factory=DeltaOptions)
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    location: str | None = None
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


def save_as_table(spark: SparkSession, name: TableName, rows: TableRows, mode: SaveMode) -> None:
    """`df.write.saveAsTable`: columns match by name, and an append casts to the table's types.

    An overwrite replaces rows and keeps the table, its properties and its comment.
    """
    rows = replace(rows, comment=rows.options.get("comment"), location=rows.options.get("path"))
    if not _exists(spark, name, rows):
        check_new_columns(rows.data)
        verb: TableVerb = "create or replace" if mode == "overwrite" else "create"
        _write_table(spark, name, rows, verb, is_v1=True)
    elif mode == "error":
        raise table_exists_error(spark, name)
    elif mode == "overwrite" and any(option in rows.options for option in _REPLACES_ROWS):
        insert_rows(spark, name, rows, overwrite=True, casts=False)
    elif mode == "overwrite":
        check_new_columns(rows.data)
        _write_table(spark, name, rows, "create or replace", is_v1=True)
    elif mode == "append":
        place = place_of(spark, name, rows.location, rows.options)
        run_write(spark, place.log, rows.data, _request(rows, "append", casts=True))
        update_entry(spark, name)


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
    """Add rows to an existing table, or replace all or some of its rows."""
    request = replace(
        _request(rows, "overwrite" if overwrite else "append", casts=casts),
        by_position=by_position,
        fields_by_position=fields_by_position,
        replace_where=replace_where,
        dynamic_partitions=dynamic_partitions,
    )
    place = place_of(spark, name, None, rows.options)
    if place.snapshot() is None:
        raise TableNotFoundError("DELTA_TABLE_NOT_FOUND", tableName=name.label)
    run_write(spark, place.log, rows.data, request)
    update_entry(spark, name)


def make_table(spark: SparkSession, name: TableName, rows: TableRows, verb: TableVerb) -> None:
    """`df.writeTo(t).create()` and its variants, and CREATE TABLE AS SELECT."""
    check_new_columns(rows.data)
    exists = _exists(spark, name, rows)
    if verb == "create" and exists:
        raise table_exists_error(spark, name)
    if verb == "replace" and not exists and name.entry is None:
        raise missing_table_error(spark, name)
    _write_table(spark, name, rows, verb, is_v1=False)


def _write_table(
    spark: SparkSession, name: TableName, rows: TableRows, verb: TableVerb, *, is_v1: bool
) -> None:
    schema = from_spark(rows.data.schema)
    check_layout(spark, schema, rows.partition_by, clustering_names(rows.cluster_by, schema))
    place = place_of(spark, name, rows.location, rows.options)
    if verb == "create" and place.is_unregistered():
        # An earlier creation was stopped; these rows replace its rows.
        request = _table_request(place, rows, "create or replace", is_v1_overwrite=False)
        run_write(spark, place.log, rows.data, request, committing=lambda: register(spark, place))
        update_entry(spark, known_name(spark, name))
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
    place: TablePlace, rows: TableRows, verb: TableVerb, *, is_v1_overwrite: bool
) -> WriteRequest:
    as_table = TableWrite(
        verb=verb,
        is_managed=place.is_managed,
        comment=rows.comment,
        properties=rows.properties,
        is_v1_overwrite=is_v1_overwrite,
    )
    return _request(rows, "error" if verb == "create" else "overwrite", as_table=as_table)


def _exists(spark: SparkSession, name: TableName, rows: TableRows) -> bool:
    if name.path is None:
        return name.entry is not None and not is_definition_only(spark, name)
    return place_of(spark, name, None, rows.options).snapshot() is not None


def _request(
    rows: TableRows, mode: SaveMode, *, casts: bool = False, as_table: TableWrite | None = None
) -> WriteRequest:
    return WriteRequest(
        mode=mode,
        partition_by=rows.partition_by,
        cluster_by=rows.cluster_by,
        options=rows.options,
        casts=casts,
        as_table=as_table,
    )
