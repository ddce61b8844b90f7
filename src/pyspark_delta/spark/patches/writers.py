"""`df.write`: `save` of the format delta, `saveAsTable`, `insertInto`."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrameWriter

from pyspark_delta.errors.table import OperationNotAllowedError
from pyspark_delta.spark.catalog import TableName, look_up
from pyspark_delta.spark.commands.write import run_write
from pyspark_delta.spark.commands.write_request import WriteRequest
from pyspark_delta.spark.enabled_sessions import is_enabled
from pyspark_delta.spark.jvm.catalog import parse_name
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.options import DeltaOptions
from pyspark_delta.spark.patches.readers import path_given
from pyspark_delta.spark.patches.said import (
    Method,
    Said,
    Wrap,
    column_list,
    format_wrap,
    is_delta,
    option_wrap,
    options_wrap,
    said,
    save_mode,
)
from pyspark_delta.spark.sql.targets import inserted_table
from pyspark_delta.spark.table_access import open_log
from pyspark_delta.spark.table_writes import TableRows, insert_rows, save_as_table


def _mode(original: Method) -> Method:
    def mode(self: Any, saveMode: str | None) -> Any:
        if saveMode is not None:
            said(self).mode = save_mode(saveMode)
        return original(self, saveMode)

    return mode


def _partition_by(original: Method) -> Method:
    def partitionBy(self: Any, *cols: Any) -> Any:
        said(self).partition_by = column_list(cols)
        return original(self, *cols)

    return partitionBy


def _cluster_by(original: Method) -> Method:
    def clusterBy(self: Any, *cols: Any) -> Any:
        said(self).cluster_by = column_list(cols)
        return original(self, *cols)

    return clusterBy


def _bucket_by(original: Method) -> Method:
    def bucketBy(self: Any, *args: Any, **kwargs: Any) -> Any:
        said(self).has_buckets = True
        return original(self, *args, **kwargs)

    return bucketBy


def _save(original: Method) -> Method:
    def save(
        self: Any,
        path: str | None = None,
        format: str | None = None,
        mode: str | None = None,
        partitionBy: Any = None,
        **options: Any,
    ) -> None:
        words = _last_words(self, format, mode, partitionBy)
        if not is_delta(self):
            original(self, path, format, mode, partitionBy, **options)
            return
        _check_no_buckets(words)
        given = DeltaOptions({**words.options, **options})
        request = WriteRequest(
            mode=words.mode,
            partition_by=_names(words),
            cluster_by=words.cluster_by,
            options=given,
        )
        log = open_log(self._spark, path_given(path, given), given)
        run_write(self._spark, log, self._df, request)

    return save


def _save_as_table(original: Method) -> Method:
    def saveAsTable(
        self: Any,
        name: str,
        format: str | None = None,
        mode: str | None = None,
        partitionBy: Any = None,
        **options: Any,
    ) -> None:
        words = _last_words(self, format, mode, partitionBy)
        table = _delta_table(self, words, name)
        if table is None:
            original(self, name, format, mode, partitionBy, **options)
            return
        _check_no_buckets(words)
        rows = TableRows(
            data=self._df,
            options=DeltaOptions({**words.options, **options}),
            partition_by=_names(words),
            cluster_by=words.cluster_by,
        )
        save_as_table(self._spark, table, rows, words.mode)

    return saveAsTable


def _insert_into(original: Method) -> Method:
    def insertInto(self: Any, tableName: str, overwrite: bool | None = None) -> None:
        words = said(self)
        if not is_enabled(self._spark) or words.partition_by:
            original(self, tableName, overwrite)
            return
        table = inserted_table(self._spark, parse_name(JvmSession(self._spark), tableName))
        if table is None:
            original(self, tableName, overwrite)
            return
        rows = TableRows(data=self._df, options=DeltaOptions(words.options))
        is_overwrite = words.mode == "overwrite" if overwrite is None else overwrite
        insert_rows(self._spark, table, rows, overwrite=is_overwrite, by_position=True)

    return insertInto


def _last_words(of: Any, format: str | None, mode: str | None, partition_by: Any) -> Said:
    """What was said, with the arguments of the last call on top."""
    words = said(of)
    words.format = format or words.format
    if mode is not None:
        words.mode = save_mode(mode)
    if partition_by is not None:
        words.partition_by = (partition_by,) if isinstance(partition_by, str) else (*partition_by,)
    return words


def _delta_table(of: Any, words: Said, name: str) -> TableName | None:
    """The table to save to; None when that is Spark's.

    An append that names no format takes the table's.
    """
    if not is_enabled(of._spark):
        return None
    ours = is_delta(of)
    if not ours and (words.format is not None or words.mode != "append"):
        return None
    table = look_up(of._spark, name)
    return table if table is not None and (ours or table.is_delta) else None


def _names(words: Said) -> tuple[str, ...]:
    return tuple(str(name) for name in words.partition_by)


def _check_no_buckets(words: Said) -> None:
    if words.has_buckets:
        raise OperationNotAllowedError("DELTA_OPERATION_NOT_ALLOWED", operation="Bucketing")


CHANGED: dict[tuple[type, str], Wrap] = {
    (DataFrameWriter, "format"): format_wrap,
    (DataFrameWriter, "option"): option_wrap,
    (DataFrameWriter, "options"): options_wrap,
    (DataFrameWriter, "mode"): _mode,
    (DataFrameWriter, "partitionBy"): _partition_by,
    (DataFrameWriter, "clusterBy"): _cluster_by,
    (DataFrameWriter, "bucketBy"): _bucket_by,
    (DataFrameWriter, "save"): _save,
    (DataFrameWriter, "saveAsTable"): _save_as_table,
    (DataFrameWriter, "insertInto"): _insert_into,
}
