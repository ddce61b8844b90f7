"""DESCRIBE of a Delta table, of its columns, DETAIL and HISTORY: all out of its log."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.errors.storage import FileMissingError
from pyspark_delta.errors.table import (
    OperationNotAllowedError,
    PropertyError,
    TableNotFoundError,
)
from pyspark_delta.kernel.protocol.types import CHAR_VARCHAR_KEY, STRING, StructField, StructType
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.catalog import TableName, show_columns, without_log
from pyspark_delta.spark.detail_frame import ForeignTable, detail_frame, foreign_detail_frame
from pyspark_delta.spark.history_frame import history_frame
from pyspark_delta.spark.jvm.catalog import (
    CatalogEntry,
    entry_comment,
    entry_created_ms,
    entry_partition_schema,
    entry_properties,
)
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parsed_show import ShowStatement
from pyspark_delta.spark.local_frame import local_frame
from pyspark_delta.spark.sql.described_table import described
from pyspark_delta.spark.sql.grammar import StatementReader
from pyspark_delta.spark.sql.optimized_table import log_above
from pyspark_delta.spark.sql.requests import Request
from pyspark_delta.spark.sql.shown_tables import (
    delta_statement,
    newest,
    shown_table,
    text_columns,
)
from pyspark_delta.spark.sql.targets import existing_table
from pyspark_delta.spark.table_access import open_log

_LINES = StructType(
    (
        StructField("col_name", STRING, nullable=False),
        StructField("data_type", STRING, nullable=False),
        StructField("comment", STRING),
    )
)
_MOST_COMMITS = 2**31 - 9


def run_describe(request: Request) -> DataFrame | None:
    """Columns and properties of a Delta table, or one of its columns; None for any other."""
    found = delta_statement(request)
    if found is None:
        return None
    statement, table = found
    match statement.kind:
        case "DescribeRelation":
            lines = described(shown_table(request.spark, table), is_extended=statement.is_extended)
            return local_frame(request.spark, _LINES, lines)
        case "DescribeColumn":
            described_column = _column(request, table, statement)
            if described_column is not None:
                return described_column
        case _:
            pass
    # As JSON, of a partition, of a nested or missing column: Spark answers, or refuses by name.
    show_columns(request.spark, table)
    return None


def run_detail(request: Request) -> DataFrame | None:
    """DESCRIBE DETAIL: one row about a table, Delta's or not, or about a path."""
    read = StatementReader(request.sql)
    place = _place(read, "DETAIL")
    if place is None:
        return run_describe(request)
    read.end()
    spark = request.spark
    if isinstance(place, str):
        return _path_detail(spark, place)
    table = existing_table(spark, place, "DESCRIBE DETAIL")
    entry = table.entry
    if entry is not None and not entry.is_delta:
        return foreign_detail_frame(spark, _foreign(spark, entry))
    if table.path is not None and (found := log_above(spark, table.path)) and found[1]:
        return _path_detail(spark, table.path)  # a directory in a table is none itself
    name = None if entry is None else entry.name
    return detail_frame(spark, newest(spark, table), name)


def run_history(request: Request) -> DataFrame | None:
    """DESCRIBE HISTORY: who changed a Delta table and how, newest first."""
    read = StatementReader(request.sql)
    place = _place(read, "HISTORY")
    if place is None:
        return run_describe(request)
    limit = read.whole_number() if read.takes("LIMIT") else None
    read.end()
    if limit is not None and limit > _MOST_COMMITS:
        raise PropertyError("DELTA_MAX_ARRAY_SIZE_EXCEEDED")
    return _commits(request.spark, place, limit)


def _column(request: Request, table: TableName, statement: ShowStatement) -> DataFrame | None:
    f = newest(request.spark, table).schema.find(statement.column)
    if f is None or len(statement.column) > 1:
        return None
    kind = f.metadata.get(CHAR_VARCHAR_KEY) or f.data_type.simple_string
    rows = [
        ("col_name", f.name),
        ("data_type", kind),
        ("comment", "NULL" if f.comment is None else f.comment),
    ]
    return local_frame(request.spark, text_columns("info_name", "info_value"), rows)


def _place(read: StatementReader, verb: str) -> str | tuple[str, ...] | None:
    """What stands behind the verb; None when the verb is itself the name of a table."""
    if not read.takes("DESC"):
        read.expect("DESCRIBE")
    read.expect(verb)
    if read.is_at_end() or read.is_next("."):
        return None
    return read.place()


def _path_detail(spark: SparkSession, path: str) -> DataFrame:
    log = open_log(spark, path)
    try:
        return detail_frame(spark, log.update(), None)
    except TableNotFoundError:
        if not _exists(log):
            raise FileMissingError("DELTA_FILE_NOT_FOUND", path=path) from None
    return foreign_detail_frame(spark, ForeignTable(location=path))


def _foreign(spark: SparkSession, entry: CatalogEntry) -> ForeignTable:
    return ForeignTable(
        location=entry.location,
        provider=entry.provider,
        name=entry.name,
        description=entry_comment(entry) or "",
        created_ms=entry_created_ms(entry),
        partition_columns=entry_partition_schema(entry).names,
        properties=entry_properties(JvmSession(spark), entry),
    )


def _commits(spark: SparkSession, place: str | tuple[str, ...], limit: int | None) -> DataFrame:
    verb = "DESCRIBE HISTORY"
    if isinstance(place, str):
        path = place
    else:
        table = existing_table(spark, place, verb)
        if not table.is_delta:
            raise OperationNotAllowedError("DELTA_ONLY_OPERATION", operation=verb)
        path = table.location or ""
    # The history of a directory in a table is the table's.
    found = log_above(spark, path)
    if found is None:
        if not isinstance(place, str) and table.entry is not None and table.entry.is_sparks_own:
            raise without_log(table.entry)
        raise TableNotFoundError(
            "DELTA_TABLE_ONLY_OPERATION", tableName=f"`{path}`", operation=verb
        )
    return history_frame(spark, found[0].history(limit))


def _exists(log: DeltaLog) -> bool:
    return next(iter(log.store.list_recursive("")), None) is not None
