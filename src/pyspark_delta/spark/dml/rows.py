"""The rows that DELETE, UPDATE and replaceWhere select, and the result of the command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_delta.errors import InvalidPredicateError, OperationNotAllowedError
from pyspark_delta.kernel.log.frames.file_actions import ADD_SCHEMA
from pyspark_delta.kernel.ops.rewrite_plan import FileChanges
from pyspark_delta.kernel.protocol.actions import Action
from pyspark_delta.kernel.scan.predicates.binding import BoundPredicate, bind
from pyspark_delta.kernel.scan.predicates.evaluation import evaluate
from pyspark_delta.kernel.scan.predicates.literals import zone_named
from pyspark_delta.kernel.scan.predicates.tree import FALSE
from pyspark_delta.kernel.scan.skipping.files import partition_columns_table
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.conf.settings import session_zone
from pyspark_delta.spark.dml.files import DmlFiles
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans.conditions import Condition, resolved_condition
from pyspark_delta.spark.jvm.plans.frames import Qualifier, named_rows
from pyspark_delta.spark.jvm.plans.merge import sql_of
from pyspark_delta.spark.scan.filters import predicate_of
from pyspark_delta.spark.scan.frame import (
    FILE,
    LocatedRows,
    chosen_rows,
    counted_rows,
    located_rows,
    touched_rows,
)

# Spark's conditions for aggregates and window functions in a query's WHERE; a DELETE or UPDATE has
# another condition, which no query raises.
_OF_MANY_ROWS = frozenset({"INVALID_WHERE_CONDITION", "WINDOW_FUNCTION_NOT_ALLOWED_IN_CLAUSE"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Affected:
    """The result of a command: its version, None if it made none, and the number of affected rows.

    `num_rows` is None when the number is not known.
    """

    version: int | None
    num_rows: int | None

    def frame(self, spark: SparkSession) -> DataFrame:
        """The result as SQL statements return it: one row, with -1 for an unknown number."""
        count = -1 if self.num_rows is None else self.num_rows
        # VALUES in a plan needs no job, unlike a SELECT of a constant.
        return spark.sql(f"SELECT * FROM VALUES ({count}L) AS result(num_affected_rows)")


NOTHING_AFFECTED = Affected(version=None, num_rows=0)
"""The result of a command that had nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRows:
    """The commit of DELETE or UPDATE; `num_rows` is None when the statistics do not have it."""

    actions: Sequence[Action] = ()
    metrics: dict[str, object] = field(default_factory=dict, hash=False)
    num_rows: int | None = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DmlCondition:
    """A resolved condition on rows of the table, with its predicate.

    `column` is the condition over rows that `named` qualified, by the table's name `alias`.
    `bound` is the part that the log can evaluate, over the table's logical names.
    """

    column: Column = field(hash=False)
    alias: Qualifier
    resolved: Condition
    bound: BoundPredicate

    def names_only(self, columns: Sequence[str]) -> bool:
        """Whether it uses only these columns, in any spelling."""
        if self.resolved.has_subquery:
            return False  # it reads other tables
        known = {name.lower() for name in columns}
        return all(name.lower() in known for name in self.resolved.columns)

    def candidates(self, txn: OptimisticTransaction) -> pa.Table:
        """The files that may hold a row for which the condition is true.

        The condition looks at each row by itself, so the commit depends only on rows that it
        changes.
        """
        return txn.filter_files(self.bound, by_row=True)

    def matching(self, rows: DataFrame) -> DataFrame:
        """Those of `rows` for which the condition is true."""
        return self.named(rows).where(self.column)

    def others(self, rows: DataFrame) -> DataFrame:
        """Those of `rows` for which the condition is false or null."""
        return self.named(rows).where(~F.coalesce(self.column, F.lit(False)))

    def named(self, rows: DataFrame) -> DataFrame:
        """`rows` under the table's name in the condition."""
        return named_rows(rows, self.alias)


def dml_condition(
    jvm: JvmSession,
    txn: OptimisticTransaction,
    condition: Column,
    operation: str,
    alias: Qualifier,
    *,
    allows_exists: bool = False,
) -> DmlCondition:
    """A condition on rows to change, resolved; raises a typed error for an invalid one.

    `alias` is the table's name in it, `operation` is for errors.  With `allows_exists` it may have
    EXISTS subqueries.
    """
    zone = session_zone(jvm.spark)
    try:
        resolved = resolved_condition(jvm, named_rows(_no_rows(jvm, txn), alias), condition)
    except AnalysisException as error:
        if error.getCondition() not in _OF_MANY_ROWS:
            raise
        raise InvalidPredicateError(
            "UNSUPPORTED_EXPR_FOR_OPERATOR",
            operation=operation,
            invalidExprSqls=sql_of(jvm, condition),
        ) from error
    if resolved.has_subquery and not (allows_exists and resolved.has_only_exists):
        raise OperationNotAllowedError(
            "DELTA_UNSUPPORTED_SUBQUERY", operation=operation, cond=resolved.sql
        )
    if not resolved.is_deterministic:
        raise InvalidPredicateError(
            "INVALID_NON_DETERMINISTIC_EXPRESSIONS", operation=operation, sqlExprs=resolved.sql
        )
    known = resolved.filter
    predicate = FALSE if known is None else predicate_of(known, time_zone=zone)
    bound = bind(predicate, txn.schema, time_zone=zone, lenient=True)
    return DmlCondition(column=condition, alias=alias, resolved=resolved, bound=bound)


def files_by_partition(
    jvm: JvmSession, txn: OptimisticTransaction, condition: DmlCondition, files: pa.Table
) -> pa.Table | None:
    """The files that match as a whole; None when the condition must be evaluated on rows.

    A condition on partition columns alone selects whole files.  What the log cannot evaluate, Spark
    does, once for each file and without reading columns.
    """
    metadata = txn.metadata
    if not condition.names_only(metadata.partition_columns):
        return None
    if condition.bound.has_unknown:
        rows = located_rows(jvm, txn, files).frame
        found = condition.matching(rows).select(FILE).distinct().collect()
        return files.take(pa.array(sorted(row[0] for row in found), pa.int64()))
    if not metadata.partition_columns:
        return files  # a condition without columns, and these files are left because it is true
    zone = zone_named(session_zone(jvm.spark))
    passed = evaluate(condition.bound, partition_columns_table(files, metadata, zone=zone))
    return files.filter(pc.fill_null(passed, False))


def matching_changes(
    files: DmlFiles,
    condition: DmlCondition,
    rows: LocatedRows,
    *,
    with_vectors: bool,
    can_rewrite: bool = True,
) -> FileChanges:
    """The changes of the files that have a matching row.

    One job finds the rows, and reads only the condition's columns.  A command that rewrites files,
    and can find the same rows again, only counts them.
    """
    if not rows.files.num_rows:
        return FileChanges()
    matching = condition.matching(rows.frame)
    if condition.resolved.is_steady and not with_vectors:
        return files.count(counted_rows(matching, rows.files))
    touched = touched_rows(matching, rows.files).files
    return files.plan(touched, with_vectors=with_vectors, can_rewrite=can_rewrite)


def rows_that_stay(
    files: DmlFiles, changes: FileChanges, condition: DmlCondition | None
) -> DataFrame | None:
    """The rows of removed files that do not match; None for none."""
    partial = [each.file for each in changes.counted if each.num_left]
    if not partial:
        return files.copied_rows(changes)
    assert condition is not None
    return condition.others(files.live_rows(partial))


def _no_rows(jvm: JvmSession, txn: OptimisticTransaction) -> DataFrame:
    """The table's columns under their logical names, in a scan of no files.

    Conditions do not depend on how the scan handles physical names and row ids.
    """
    plain = replace(txn.metadata, configuration={})
    files = ADD_SCHEMA.empty_table()
    return chosen_rows(jvm, txn, files, metadata=plain)
