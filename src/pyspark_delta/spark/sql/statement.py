"""The `Head`, `Request` and `Command` of a statement, and functions that all statements use.

A head is read from the first words alone, so that other statements cost almost nothing.

>>> head("INSERT INTO TABLE a.`b c` VALUES (1)")
Head(verb='INSERT INTO', target=('a', 'b c'))
>>> head("select 1") is None
True
>>> head("WITH s AS (SELECT 1 AS id) MERGE INTO t USING s ON t.id = s.id")
Head(verb='MERGE', target=('t',))
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.kernel.protocol.types import LONG, StructField, StructType
from pyspark_delta.kernel.sql.lexer import Token, tokens
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parser.parameters import parsed_plan
from pyspark_delta.spark.jvm.plans.frames import empty_frame, plan_frame
from pyspark_delta.spark.tables.names import TableName, look_up_relation


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The beginning of a statement that may concern a Delta table.

    `target` is empty if the first words do not have it.
    """

    verb: str
    target: tuple[str, ...] = ()


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
