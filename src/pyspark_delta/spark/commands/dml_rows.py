"""Which rows DELETE, UPDATE and replaceWhere mean, and what these tell of themselves afterwards."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_delta.errors.table import InvalidPredicateError
from pyspark_delta.kernel.protocol.actions import Action, AddFile
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.commands.replaced_rows import RowCondition, row_condition, whole_files
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.merge_plan import sql_of
from pyspark_delta.spark.jvm.named_rows import Called, named_rows
from pyspark_delta.spark.located_rows import FILE, LocatedRows, located_rows
from pyspark_delta.spark.touched_rows import TouchedRows, counted_rows, touched_rows

# How Spark refuses aggregates and window functions in a WHERE; no query has the one of a command.
_OF_MANY_ROWS = frozenset({"INVALID_WHERE_CONDITION", "WINDOW_FUNCTION_NOT_ALLOWED_IN_CLAUSE"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Affected:
    """What a command did: the version it made, None for none, and how many rows it affected.

    `num_rows` is None when nobody knows.
    """

    version: int | None
    num_rows: int | None

    def frame(self, spark: SparkSession) -> DataFrame:
        """The row that tells of it, as the SQL statement gives it; -1 for what nobody knows."""
        count = -1 if self.num_rows is None else self.num_rows
        # Rows that a plan spells out are there without a job, which a SELECT of a constant runs.
        return spark.sql(f"SELECT * FROM VALUES ({count}L) AS told(num_affected_rows)")


NOTHING_AFFECTED = Affected(version=None, num_rows=0)
"""What a command did that found nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRows:
    """What a commit of DELETE or UPDATE says; `num_rows` is None when statistics do not tell."""

    actions: Sequence[Action] = ()
    metrics: dict[str, object] = field(default_factory=dict, hash=False)
    num_rows: int | None = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DmlCondition:
    """A condition on rows of the table; `alias` is what it calls the table."""

    where: RowCondition
    alias: Called

    @property
    def text(self) -> str:
        """The condition as the history tells it."""
        return self.where.resolved.text

    @property
    def is_steady(self) -> bool:
        """Whether a second look at the same rows finds the same."""
        return self.where.resolved.is_steady

    @property
    def has_subquery(self) -> bool:
        """Whether it asks other rows than the one that it is about."""
        return self.where.resolved.has_subquery

    @property
    def column(self) -> Column:
        """The condition itself, over rows that `named` gave their name."""
        return self.where.column

    def candidates(self, txn: OptimisticTransaction) -> pa.Table:
        """The files that may hold a row for which the condition is true.

        Each row is judged by itself, so the commit depends on the rows that it changes.
        """
        return txn.filter_files(self.where.bound, by_row=True)

    def matching(self, rows: DataFrame) -> DataFrame:
        """Those of `rows` for which the condition is true."""
        return self.named(rows).where(self.column)

    def others(self, rows: DataFrame) -> DataFrame:
        """Those of `rows` for which the condition is false or null."""
        return self.named(rows).where(~F.coalesce(self.column, F.lit(False)))

    def named(self, rows: DataFrame) -> DataFrame:
        """`rows` under the name that the condition calls the table."""
        return named_rows(rows, self.alias)


class Stopwatch:
    """How long the parts of a command take: first the rows are found, then files are written."""

    def __init__(self) -> None:
        self._started = time.monotonic_ns()
        self._found: int | None = None
        self._written: int | None = None

    def found(self) -> None:
        """The rows are found."""
        self._found = time.monotonic_ns()

    def written(self) -> None:
        """Files are written."""
        self._written = time.monotonic_ns()

    @property
    def metrics(self) -> dict[str, object]:
        """The metrics of times, as DELETE and UPDATE record them."""
        now = time.monotonic_ns()
        found = now if self._found is None else self._found
        return {
            "executionTimeMs": _ms(now - self._started),
            "scanTimeMs": _ms(found - self._started),
            "rewriteTimeMs": 0 if self._written is None else _ms(self._written - found),
        }


def dml_condition(
    jvm: JvmSession,
    txn: OptimisticTransaction,
    condition: Column,
    operation: str,
    alias: Called,
    *,
    allows_exists: bool = False,
) -> DmlCondition:
    """A condition on rows to change, looked up; a typed error when it cannot be one.

    With `allows_exists` it may ask whether other rows exist.
    """
    try:
        where = row_condition(
            jvm, txn, condition, operation=operation, alias=alias, allows_exists=allows_exists
        )
    except AnalysisException as error:
        if error.getCondition() not in _OF_MANY_ROWS:
            raise
        raise InvalidPredicateError(
            "UNSUPPORTED_EXPR_FOR_OPERATOR",
            operation=operation,
            invalidExprSqls=sql_of(jvm, condition),
        ) from error
    if not where.resolved.is_deterministic:
        raise InvalidPredicateError(
            "INVALID_NON_DETERMINISTIC_EXPRESSIONS",
            operation=operation,
            sqlExprs=where.resolved.sql,
        )
    return DmlCondition(where=where, alias=alias)


def files_by_partition(
    jvm: JvmSession, txn: OptimisticTransaction, condition: DmlCondition, files: pa.Table
) -> pa.Table | None:
    """The files whose rows all meet the condition, and no others do; None when rows must be asked.

    That is so where it looks at partition columns alone.  Spark evaluates what the log has no
    words for, once for each file and without opening columns.
    """
    where = condition.where
    if not where.names_only(txn.metadata.partition_columns):
        return None
    if not where.bound.has_unknown:
        return whole_files(jvm, txn, where, files)
    rows = located_rows(jvm, txn, files).frame
    found = condition.matching(rows).select(FILE).distinct().collect()
    return files.take(pa.array(sorted(row[0] for row in found), pa.int64()))


def rows_that_match(condition: DmlCondition, rows: LocatedRows) -> TouchedRows:
    """The rows that meet the condition, by one job that reads its columns alone."""
    if not rows.files.num_rows:
        return TouchedRows(files=(), elsewhere={})
    return touched_rows(condition.matching(rows.frame), rows.files)


def counts_that_match(condition: DmlCondition, rows: LocatedRows) -> list[tuple[AddFile, int]]:
    """How many rows of each file meet the condition, of those that have some."""
    if not rows.files.num_rows:
        return []
    return counted_rows(condition.matching(rows.frame), rows.files)


def _ms(nanoseconds: int) -> int:
    return nanoseconds // 1_000_000
