"""`df.writeStream`: `start` of the format delta, and `toTable`."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_delta.spark.catalog import TableName, look_up_relation
from pyspark_delta.spark.enabled_sessions import is_enabled
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.stream_writer import source_of
from pyspark_delta.spark.patches.said import Method, Wrap
from pyspark_delta.spark.streaming.stream_writes import start_stream, stream_to_table


def _start(original: Method) -> Method:
    def start(
        self: Any,
        path: str | None = None,
        format: str | None = None,
        outputMode: str | None = None,
        partitionBy: Any = None,
        queryName: str | None = None,
        **options: Any,
    ) -> Any:
        if not _is_delta(self, format):
            return original(self, path, format, outputMode, partitionBy, queryName, **options)
        _say(self, format, outputMode, partitionBy, queryName, options)
        return start_stream(self._spark, self, path)

    return start


def _to_table(original: Method) -> Method:
    def toTable(
        self: Any,
        tableName: str,
        format: str | None = None,
        outputMode: str | None = None,
        partitionBy: Any = None,
        queryName: str | None = None,
        **options: Any,
    ) -> Any:
        table = _delta_table(self, format, tableName)
        if table is None:
            return original(self, tableName, format, outputMode, partitionBy, queryName, **options)
        _say(self, format, outputMode, partitionBy, queryName, options)
        return stream_to_table(self._spark, self, table)

    return toTable


def _is_delta(writer: Any, format: str | None) -> bool:
    if not is_enabled(writer._spark):
        return False
    source = format or source_of(JvmSession(writer._spark), writer)
    return source.lower() == "delta"


def _delta_table(writer: Any, format: str | None, name: str) -> TableName | None:
    """The table to write to; None when that is Spark's, or when Spark itself refuses it."""
    if not isinstance(name, str) or not _is_delta(writer, format):
        return None
    table = look_up_relation(writer._spark, name)
    is_new = table is not None and table.path is None and table.entry is None
    return table if table is not None and (is_new or table.is_delta) else None


def _say(
    writer: Any,
    format: str | None,
    output_mode: str | None,
    partition_by: Any,
    query_name: str | None,
    options: dict[str, Any],
) -> None:
    """Tell the writer what came with the last call, as PySpark does."""
    writer.options(**options)
    if output_mode is not None:
        writer.outputMode(output_mode)
    if partition_by is not None:
        writer.partitionBy(partition_by)
    if format is not None:
        writer.format(format)
    if query_name is not None:
        writer.queryName(query_name)


CHANGED: dict[tuple[type, str], Wrap] = {
    (DataStreamWriter, "start"): _start,
    (DataStreamWriter, "toTable"): _to_table,
}
