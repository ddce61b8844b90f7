"""`df.writeTo(table)`: make a table, replace it, add to it, overwrite parts of it."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrameWriterV2, functions

from pyspark_delta.errors.table import OperationNotAllowedError
from pyspark_delta.spark.catalog import TableName, look_up, look_up_relation
from pyspark_delta.spark.enabled_sessions import is_enabled
from pyspark_delta.spark.jvm.parser import column_path
from pyspark_delta.spark.options import DeltaOptions
from pyspark_delta.spark.patches.said import (
    Method,
    Said,
    Wrap,
    format_wrap,
    is_delta,
    option_wrap,
    options_wrap,
    said,
)
from pyspark_delta.spark.table_writes import TableRows, TableVerb, insert_rows, make_table

# Properties of a table that are not its own, but say what the others of CREATE TABLE do.
_LOCATION, _COMMENT = "location", "comment"
_REPLACES_ROWS = ("replaceOn", "replaceUsing")


def _init(original: Method) -> Method:
    def __init__(self: Any, df: Any, table: str) -> None:
        said(self).table = table
        original(self, df, table)

    return __init__


def _table_property(original: Method) -> Method:
    def tableProperty(self: Any, property: str, value: str) -> Any:
        said(self).properties[property] = value
        return original(self, property, value)

    return tableProperty


def _partitioned_by(original: Method) -> Method:
    def partitionedBy(self: Any, col: Any, *cols: Any) -> Any:
        said(self).partition_by = (col, *cols)
        return original(self, col, *cols)

    return partitionedBy


def _cluster_by(original: Method) -> Method:
    def clusterBy(self: Any, col: str, *cols: str) -> Any:
        said(self).cluster_by = (col, *cols)
        return original(self, col, *cols)

    return clusterBy


def _makes(verb: TableVerb) -> Wrap:
    def wrap(original: Method) -> Method:
        def make(self: Any) -> None:
            words = said(self)
            table = _table_to_make(self, words)
            if table is None:
                original(self)
                return
            for name in _REPLACES_ROWS:
                if name in DeltaOptions(words.options):
                    raise OperationNotAllowedError(
                        "DELTA_DFV2_CREATE_REPLACE_INCOMPATIBLE_REPLACE_ON_OR_USING"
                    )
            make_table(self._spark, table, _described(self, words), verb)

        return make

    return wrap


def _append(original: Method) -> Method:
    def append(self: Any) -> None:
        table = _existing(self)
        if table is None:
            original(self)
        else:
            insert_rows(self._spark, table, _rows(self))

    return append


def _overwrite(original: Method) -> Method:
    def overwrite(self: Any, condition: Any) -> None:
        table = _existing(self)
        if table is None:
            original(self, condition)
            return
        rows = _rows(self)
        if "replaceWhere" in rows.options:
            raise OperationNotAllowedError("DELTA_REPLACE_WHERE_IN_OVERWRITE")
        where = condition if isinstance(condition, Column) else functions.col(condition)
        insert_rows(self._spark, table, rows, overwrite=True, replace_where=where)

    return overwrite


def _overwrite_partitions(original: Method) -> Method:
    def overwritePartitions(self: Any) -> None:
        table = _existing(self)
        if table is None:
            original(self)
        else:
            insert_rows(self._spark, table, _rows(self), overwrite=True, dynamic_partitions=True)

    return overwritePartitions


def _table_to_make(of: Any, words: Said) -> TableName | None:
    """The table if it is to be a Delta table; one that is may be replaced without saying so."""
    if not is_enabled(of._spark):
        return None
    ours = is_delta(of)
    if not ours and words.format is not None:
        return None
    table = look_up(of._spark, words.table)
    return table if table is not None and (ours or table.is_delta) else None


def _existing(of: Any) -> TableName | None:
    if not is_enabled(of._spark):
        return None
    table = look_up_relation(of._spark, said(of).table)
    return table if table is not None and table.is_delta else None


def _rows(of: Any) -> TableRows:
    return TableRows(data=of._df, options=DeltaOptions(said(of).options))


def _described(of: Any, words: Said) -> TableRows:
    lowered = {key.lower(): value for key, value in words.properties.items()}
    return TableRows(
        data=of._df,
        options=DeltaOptions(words.options),
        partition_by=tuple(_partition_column(column) for column in words.partition_by),
        cluster_by=words.cluster_by,
        location=lowered.get(_LOCATION),
        comment=lowered.get(_COMMENT),
        properties={
            key: value
            for key, value in words.properties.items()
            if key.lower() not in (_LOCATION, _COMMENT)
        },
    )


def _partition_column(column: str | Column) -> str:
    """A column's name; partitions by something else are not a Delta table's."""
    path = column_path(functions.col(column) if isinstance(column, str) else column)
    if path is None or len(path) != 1:
        raise OperationNotAllowedError(
            "DELTA_OPERATION_NOT_ALLOWED", operation="Partitioning by expressions"
        )
    return path[0]


CHANGED: dict[tuple[type, str], Wrap] = {
    (DataFrameWriterV2, "__init__"): _init,
    (DataFrameWriterV2, "using"): format_wrap,
    (DataFrameWriterV2, "option"): option_wrap,
    (DataFrameWriterV2, "options"): options_wrap,
    (DataFrameWriterV2, "tableProperty"): _table_property,
    (DataFrameWriterV2, "partitionedBy"): _partitioned_by,
    (DataFrameWriterV2, "clusterBy"): _cluster_by,
    (DataFrameWriterV2, "create"): _makes("create"),
    (DataFrameWriterV2, "replace"): _makes("replace"),
    (DataFrameWriterV2, "createOrReplace"): _makes("create or replace"),
    (DataFrameWriterV2, "append"): _append,
    (DataFrameWriterV2, "overwrite"): _overwrite,
    (DataFrameWriterV2, "overwritePartitions"): _overwrite_partitions,
}
