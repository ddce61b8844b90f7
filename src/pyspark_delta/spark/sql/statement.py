"""The head, the target, the request and the command of a statement.

A target is a Delta table by its name or path; a temporary view with all rows of a table counts as
the table.  A head is read from the first words alone, so that other statements cost almost nothing.

>>> head("INSERT INTO TABLE a.`b c` VALUES (1)")
Head(verb='INSERT INTO', target=('a', 'b c'))
>>> head("select 1") is None
True
>>> head("WITH s AS (SELECT 1 AS id) MERGE INTO t USING s ON t.id = s.id")
Head(verb='MERGE', target=('t',))
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.errors import OperationNotAllowedError, StorageError, TableNotFoundError
from pyspark_delta.kernel.protocol.types import LONG, StructField, StructType
from pyspark_delta.kernel.sql.lexer import Token, tokens
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
from pyspark_delta.spark.jvm.parser.changes import parsed_plan
from pyspark_delta.spark.jvm.plans.frames import empty_frame, plan_frame
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

# The words of each verb, before the target's name; those in brackets are optional, and a bar is
# between alternatives.
_VERBS: dict[str, tuple[str, ...]] = {
    "CREATE TABLE": (
        *("CREATE", "[OR]", "[REPLACE]", "[EXTERNAL]", "TABLE"),
        *("[IF]", "[NOT]", "[EXISTS]"),
    ),
    "REPLACE TABLE": ("REPLACE", "TABLE"),
    "INSERT INTO": ("INSERT", "[WITH]", "[SCHEMA]", "[EVOLUTION]", "INTO", "[TABLE]"),
    "INSERT OVERWRITE": ("INSERT", "[WITH]", "[SCHEMA]", "[EVOLUTION]", "OVERWRITE", "[TABLE]"),
    "CONVERT TO DELTA": ("CONVERT", "TO", "DELTA"),
    "RESTORE": ("RESTORE", "[TABLE]"),
    "GENERATE": ("GENERATE",),
    "DROP TABLE": ("DROP", "TABLE", "[IF]", "[EXISTS]"),
    "OPTIMIZE": ("OPTIMIZE",),
    "VACUUM": ("VACUUM",),
    "REORG TABLE": ("REORG", "TABLE"),
    "UPDATE": ("UPDATE",),
    "DELETE": ("DELETE", "FROM"),
    "MERGE": ("MERGE", "[WITH]", "[SCHEMA]", "[EVOLUTION]", "INTO"),
    "TRUNCATE TABLE": ("TRUNCATE", "TABLE"),
    "ALTER TABLE": ("ALTER", "TABLE"),
    "COMMENT ON TABLE": ("COMMENT", "ON", "TABLE"),
    "COMMENT ON COLUMN": ("COMMENT", "ON", "COLUMN"),
    "LOAD DATA": ("LOAD", "DATA"),
    "MSCK REPAIR TABLE": ("MSCK", "REPAIR", "TABLE"),
    "ANALYZE TABLE": ("ANALYZE", "TABLE"),
    "DESCRIBE DETAIL": ("DESCRIBE|DESC", "DETAIL"),
    "DESCRIBE HISTORY": ("DESCRIBE|DESC", "HISTORY"),
    "DESCRIBE": ("DESCRIBE|DESC", "[TABLE]", "[EXTENDED]", "[FORMATTED]"),
    "SHOW COLUMNS": ("SHOW", "COLUMNS"),
    "SHOW PARTITIONS": ("SHOW", "PARTITIONS"),
    "SHOW TBLPROPERTIES": ("SHOW", "TBLPROPERTIES"),
    "SHOW CREATE TABLE": ("SHOW", "CREATE", "TABLE"),
    "EXPLAIN": ("EXPLAIN",),
}
# Words with which a statement may begin before its verb.
_QUERIES = ("WITH", "FROM")
_CHANGES = re.compile(r"\b(?:INSERT|UPDATE|DELETE|MERGE)\b", re.IGNORECASE)
_NO_COLUMNS = StructType()
_MOST_HEAD_WORDS = 24
_FIRST_WORDS = frozenset(word for pattern in _VERBS.values() for word in pattern[0].split("|"))
# VACUUM deletes files, so it must not run on the table for a directory inside it.
_ROOT_ONLY = "VACUUM"
_REORG = "REORG"


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The beginning of a statement that may concern a Delta table.

    `target` is empty if the first words do not have it.
    """

    verb: str
    target: tuple[str, ...] = ()


def head(sql: str) -> Head | None:
    """The head of `sql`; None if it cannot change or show a table."""
    stream = tokens(sql)
    first = next(stream, None)
    if first is not None and first.text.upper() in _QUERIES:
        first = _verb_behind(sql, stream)
    if first is None or first.text.upper() not in _FIRST_WORDS:
        return None
    start = [first, *islice(stream, _MOST_HEAD_WORDS)]
    for verb, pattern in _VERBS.items():
        left = _after(start, pattern)
        if left is not None:
            return Head(verb=verb, target=_name(left))
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A statement as the user passed it; `args` are by name or in order."""

    spark: SparkSession
    sql: str
    head: Head
    args: Any = None

    def run(self, text: str) -> DataFrame:
        """Run a text, with the same arguments, as if the session had no hooks of its parser."""
        jvm = JvmSession(self.spark)
        return plan_frame(jvm, parsed_plan(jvm, text, self.args))


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A statement that is decided and has done nothing yet.

    `run` does it, and returns the result; `schema` has the result's columns.  Spark may parse a
    statement more often than it runs it.
    """

    run: Callable[[], DataFrame]
    schema: StructType = _NO_COLUMNS


def command(spark: SparkSession, run: Callable[[], object]) -> Command:
    """A command without a result."""

    def run_all() -> DataFrame:
        run()
        return empty_frame(JvmSession(spark))

    return Command(run=run_all)


def counts_schema(*names: str) -> StructType:
    """The columns of a result that is one row of numbers."""
    return StructType(tuple(StructField(name, LONG) for name in names))


def delta_target(request: Request) -> TableName | None:
    """The Delta table of the statement; None for any other."""
    if not request.head.target:
        return None
    found = look_up_relation(request.spark, request.head.target)
    return found if found is not None and found.is_delta else None


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


def _verb_behind(sql: str, stream: Iterator[Token]) -> Token | None:
    """The verb that changes a table, after queries at the beginning of the statement."""
    if _CHANGES.search(sql) is None:
        return None
    depth = 0
    for word in stream:
        depth += (word.text == "(") - (word.text == ")")
        if depth == 0 and _CHANGES.fullmatch(word.text):
            return word
    return None


def _after(start: list[Token], pattern: tuple[str, ...]) -> list[Token] | None:
    """The words after a verb; None if `start` does not begin with the verb."""
    position = 0
    for wanted in pattern:
        words = wanted.strip("[]").split("|")
        is_here = position < len(start) and start[position].text.upper() in words
        if is_here:
            position += 1
        elif not wanted.startswith("["):
            return None
    return start[position:]


def _name(left: list[Token]) -> tuple[str, ...]:
    """The dotted name at the start of `left`; empty for none, or for a call like IDENTIFIER()."""
    parts: list[str] = []
    for word, following in zip(left[::2], chain(left[1::2], [None]), strict=False):
        if not word.is_name:
            return ()
        parts.append(word.value)
        if following is None or following.text != ".":
            if (
                following is not None
                and following.text == "("
                and word.text.upper() == "IDENTIFIER"
            ):
                return ()
            return tuple(parts)
    return ()


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
