"""DESCRIBE of a Delta table and its columns, DESCRIBE DETAIL and HISTORY, all from the log.

SHOW uses the lookup of tables in this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.errors import (
    FileMissingError,
    OperationNotAllowedError,
    PropertyError,
    TableNotFoundError,
)
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.column_defaults import current_default
from pyspark_delta.kernel.protocol.types import CHAR_VARCHAR_KEY, STRING, StructField, StructType
from pyspark_delta.kernel.sql.quoting import quoted_name
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.jvm.catalog.entries import CatalogEntry, entry_properties
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parser.tables import ShowStatement, parse_show
from pyspark_delta.spark.results.detail import (
    DETAIL_SCHEMA,
    ForeignTable,
    detail_frame,
    foreign_detail_frame,
)
from pyspark_delta.spark.results.history import HISTORY_SCHEMA, history_frame
from pyspark_delta.spark.results.local_frame import Row, local_frame
from pyspark_delta.spark.sql.grammar import StatementReader
from pyspark_delta.spark.sql.statement import Command, Request, existing_table, log_above
from pyspark_delta.spark.sql.statements.create_statement import sql_name
from pyspark_delta.spark.tables.locations import hadoop_location, open_log
from pyspark_delta.spark.tables.names import (
    TableName,
    listed_properties,
    log_of,
    look_up_relation,
    missing_log_error,
    update_entry,
)

Line = tuple[str, str | None, str | None]
"""A row of DESCRIBE: name, type, comment."""
_BLANK: Line = ("", "", "")
_COLUMN_HEADS: Line = ("# col_name", "data_type", "comment")
_DESCRIBE_COLUMNS = StructType(
    (
        StructField("col_name", STRING, nullable=False),
        StructField("data_type", STRING, nullable=False),
        StructField("comment", STRING),
    )
)
_MOST_COMMITS = 2**31 - 9


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedTable:
    """A version of a table, with facts from its catalog.

    `name` is database and table, or `delta` and a path; `location` is in the spelling of the
    catalog or user.  A table by its path is neither managed nor external.
    """

    snapshot: Snapshot
    name: tuple[str, str]
    location: str
    owner: str | None = None
    is_managed: bool = False
    is_external: bool = False


def described(table: DescribedTable, *, is_extended: bool) -> list[Line]:
    """The rows of DESCRIBE TABLE, as Spark makes them for a table of delta-spark's catalog.

    They come from the log alone, without a call to Spark.
    """
    lines = [*_column_lines(table.snapshot), *_partition_lines(table.snapshot)]
    return [*lines, *_detail_lines(table)] if is_extended else lines


def delta_statement(request: Request) -> tuple[ShowStatement, TableName] | None:
    """The statement and its Delta table; None for a statement or a table of Spark's."""
    try:
        statement = parse_show(JvmSession(request.spark), request.sql)
    except ParseException:
        return None  # Spark has a better error
    if statement is None:
        return None
    name = statement.name
    if statement.database not in (None, name[:-1]):
        return None  # two databases are named: Spark raises the error, or chooses
    table = look_up_relation(request.spark, name)
    return (statement, table) if table is not None and table.is_delta else None


def newest(spark: SparkSession, table: TableName) -> Snapshot:
    """The newest version of a table; raises an error with the path if there is none."""
    try:
        return log_of(spark, table).update()
    except TableNotFoundError:
        if table.path is None:
            raise
        name = quoted_name(table.path)
        raise TableNotFoundError("DELTA_MISSING_DELTA_TABLE", tableName=name) from None


def described_table(spark: SparkSession, table: TableName) -> DescribedTable:
    """The newest version of a table, with facts from its catalog."""
    snapshot = newest(spark, table)
    entry = table.entry
    if entry is None:
        path = table.path or ""
        return DescribedTable(snapshot=snapshot, name=("delta", path), location=path)
    return DescribedTable(
        snapshot=snapshot,
        name=(entry.database, entry.table),
        location=hadoop_location(snapshot.store.root_uri),
        owner=entry.owner,
        is_managed=entry.is_managed,
        is_external=not entry.is_managed,
    )


def rows_command(spark: SparkSession, schema: StructType, rows: Sequence[Row]) -> Command:
    """A command whose result is known."""
    return Command(run=lambda: local_frame(spark, schema, rows), schema=schema)


def text_columns(*names: str, nullable: bool = False) -> StructType:
    """Columns of text."""
    return StructType(tuple(StructField(name, STRING, nullable) for name in names))


def describe_command(request: Request) -> Command | None:
    """DESCRIBE of a Delta table, or one of its columns; None for other tables."""
    found = delta_statement(request)
    if found is None:
        return None
    statement, table = found
    match statement.kind:
        case "DescribeRelation":
            lines = described(
                described_table(request.spark, table), is_extended=statement.is_extended
            )
            return rows_command(request.spark, _DESCRIBE_COLUMNS, lines)
        case "DescribeColumn":
            described_column = _one_column(request, table, statement)
            if described_column is not None:
                return described_column
        case _:
            pass
    # JSON output, partitions, and nested or missing columns: Spark runs or rejects these by name.
    update_entry(request.spark, table)
    return None


def detail_command(request: Request) -> Command | None:
    """DESCRIBE DETAIL: one row about a table of any format, or about a path."""
    read = StatementReader(request.sql)
    place = _described_place(read, "DETAIL")
    if place is None:
        return describe_command(request)
    read.end()
    return Command(run=lambda: _detail(request.spark, place), schema=DETAIL_SCHEMA)


def _detail(spark: SparkSession, place: str | tuple[str, ...]) -> DataFrame:
    if isinstance(place, str):
        return _path_detail(spark, place)
    table = existing_table(spark, place, "DESCRIBE DETAIL")
    entry = table.entry
    if entry is not None and not entry.is_delta:
        return foreign_detail_frame(spark, _foreign_table(spark, entry))
    if table.path is not None and (found := log_above(spark, table.path)) and found[1]:
        return _path_detail(spark, table.path)  # a directory inside a table is not a table
    name = None if entry is None else entry.name
    return detail_frame(spark, newest(spark, table), name)


def history_command(request: Request) -> Command | None:
    """DESCRIBE HISTORY: the commits of a Delta table, newest first."""
    read = StatementReader(request.sql)
    place = _described_place(read, "HISTORY")
    if place is None:
        return describe_command(request)
    limit = read.whole_number() if read.takes("LIMIT") else None
    read.end()
    if limit is not None and limit > _MOST_COMMITS:
        raise PropertyError("DELTA_MAX_ARRAY_SIZE_EXCEEDED")
    return Command(run=lambda: _history(request.spark, place, limit), schema=HISTORY_SCHEMA)


def _column_line(name: str, f: StructField) -> Line:
    return (name, f.data_type.simple_string, f.comment)


def _column_lines(snapshot: Snapshot) -> Iterator[Line]:
    for f in snapshot.schema:
        yield _column_line(f.name, f)


def _partition_lines(snapshot: Snapshot) -> Iterator[Line]:
    metadata = snapshot.metadata
    if metadata.partition_columns:
        yield ("# Partition Information", "", "")
        yield _COLUMN_HEADS
        for name in metadata.partition_columns:
            yield _column_line(sql_name((name,)), metadata.schema[name])


def _detail_lines(table: DescribedTable) -> Iterator[Line]:
    description = table.snapshot.metadata.description
    yield _BLANK
    yield ("# Detailed Table Information", "", "")
    database, name = table.name
    yield ("Catalog", "spark_catalog", "")
    yield ("Namespace", database, "")
    yield ("Database", database, "")
    yield ("Table", name, "")
    yield ("Type", "EXTERNAL" if table.is_external else "MANAGED", "")
    if description is not None:
        yield ("Comment", description, "")
    yield ("Location", table.location, "")
    yield ("Provider", "delta", "")
    if table.owner:
        yield ("Owner", table.owner, "")
    if table.is_managed:
        yield ("Is_managed_location", "true", "")
    pairs = (f"{key}={value}" for key, value in listed_properties(table.snapshot).items())
    yield ("Table Properties", f"[{','.join(pairs)}]", "")
    defaults = [(f, current_default(f)) for f in table.snapshot.schema]
    known = [(f, default) for f, default in defaults if default is not None]
    if known:
        yield _BLANK
        yield ("# Column Default Values", "", "")
        for f, default in known:
            yield (f.name, f.data_type.simple_string, default)


def _one_column(request: Request, table: TableName, statement: ShowStatement) -> Command | None:
    f = newest(request.spark, table).schema.find(statement.column)
    if f is None or len(statement.column) > 1:
        return None
    kind = f.metadata.get(CHAR_VARCHAR_KEY) or f.data_type.simple_string
    rows = [
        ("col_name", f.name),
        ("data_type", kind),
        ("comment", "NULL" if f.comment is None else f.comment),
    ]
    return rows_command(request.spark, text_columns("info_name", "info_value"), rows)


def _described_place(read: StatementReader, verb: str) -> str | tuple[str, ...] | None:
    """The path or name after the verb; None if the verb is the name of a table."""
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
        if not _has_files(log):
            raise FileMissingError("DELTA_FILE_NOT_FOUND", path=path) from None
    return foreign_detail_frame(spark, ForeignTable(location=path))


def _foreign_table(spark: SparkSession, entry: CatalogEntry) -> ForeignTable:
    return ForeignTable(
        location=entry.location,
        provider=entry.provider,
        name=entry.name,
        description=entry.comment or "",
        created_ms=entry.created_ms,
        partition_columns=entry.partition_schema.names,
        properties=entry_properties(JvmSession(spark), entry),
    )


def _history(spark: SparkSession, place: str | tuple[str, ...], limit: int | None) -> DataFrame:
    verb = "DESCRIBE HISTORY"
    if isinstance(place, str):
        path = place
    else:
        table = existing_table(spark, place, verb)
        if not table.is_delta:
            raise OperationNotAllowedError("DELTA_ONLY_OPERATION", operation=verb)
        path = table.location or ""
    # For a directory inside a table, return the table's history.
    found = log_above(spark, path)
    if found is None:
        if not isinstance(place, str) and table.entry is not None and table.entry.is_sparks_own:
            raise missing_log_error(table.entry)
        raise TableNotFoundError(
            "DELTA_TABLE_ONLY_OPERATION", tableName=quoted_name(path), operation=verb
        )
    return history_frame(spark, found[0].history(limit))


def _has_files(log: DeltaLog) -> bool:
    return next(iter(log.store.list_recursive("")), None) is not None
