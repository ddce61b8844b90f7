"""The Delta table that a SHOW or DESCRIBE is about, and results as local rows."""

from __future__ import annotations

from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from pyspark_delta.errors.table import TableNotFoundError
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.types import STRING, StructField, StructType
from pyspark_delta.spark.catalog import TableName, log_of, look_up_relation
from pyspark_delta.spark.jvm.catalog import entry_owner
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parsed_show import ShowStatement, parse_show
from pyspark_delta.spark.sql.described_table import ShownTable
from pyspark_delta.spark.sql.requests import Request
from pyspark_delta.spark.table_access import hadoop_location


def delta_statement(request: Request) -> tuple[ShowStatement, TableName] | None:
    """The statement and its Delta table; None for a statement or a table of Spark's."""
    try:
        statement = parse_show(JvmSession(request.spark), request.sql)
    except ParseException:
        return None  # Spark says better what is wrong with it
    if statement is None:
        return None
    name = statement.name
    if statement.database not in (None, name[:-1]):
        return None  # which of the two is meant is Spark's to say
    table = look_up_relation(request.spark, name)
    return (statement, table) if table is not None and table.is_delta else None


def newest(spark: SparkSession, table: TableName) -> Snapshot:
    """The newest version of a table; an error that names the path where there is none."""
    try:
        return log_of(spark, table).update()
    except TableNotFoundError:
        if table.path is None:
            raise
        name = f"`{table.path}`"
        raise TableNotFoundError("DELTA_MISSING_DELTA_TABLE", tableName=name) from None


def shown_table(spark: SparkSession, table: TableName) -> ShownTable:
    """What there is to tell of the newest version of a table."""
    snapshot = newest(spark, table)
    entry = table.entry
    if entry is None:
        path = table.path or ""
        return ShownTable(snapshot=snapshot, name=("delta", path), location=path)
    return ShownTable(
        snapshot=snapshot,
        name=(entry.database, entry.table),
        location=hadoop_location(snapshot.store.root_uri),
        owner=entry_owner(entry),
        is_managed=entry.is_managed,
        is_external=not entry.is_managed,
    )


def text_columns(*names: str, nullable: bool = False) -> StructType:
    """Columns of text."""
    return StructType(tuple(StructField(name, STRING, nullable) for name in names))
