"""A MERGE as the builder, `mergeInto` or a statement requests it: clauses, source, and result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.storagelevel import StorageLevel

from pyspark_delta.errors import InvalidPredicateError, OperationNotAllowedError
from pyspark_delta.kernel.protocol.types import LONG, StructField, StructType
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans.frames import broadcast_threshold, size_in_bytes, stored_bytes
from pyspark_delta.spark.jvm.plans.merge import ClauseAction, ClauseKind, MergeClause
from pyspark_delta.spark.jvm.scan.file_index import is_steady
from pyspark_delta.spark.results.local_frame import local_frame

SMALL_TARGET = 32 << 20
"""Up to this size, shuffling the target costs no noticeable time."""

# Spark's value for an unknown size is at least this.
_UNKNOWN = 1 << 60

MERGE_SCHEMA = StructType(
    tuple(
        StructField(f"num_{rows}_rows", LONG)
        for rows in ("affected", "updated", "deleted", "inserted")
    )
)


_OMITTED_CONDITIONS = {
    "matched": "DELTA_NON_LAST_MATCHED_CLAUSE_OMIT_CONDITION",
    "not matched": "DELTA_NON_LAST_NOT_MATCHED_CLAUSE_OMIT_CONDITION",
    "not matched by source": "DELTA_NON_LAST_NOT_MATCHED_BY_SOURCE_CLAUSE_OMIT_CONDITION",
}


def of_kind(clauses: Sequence[MergeClause], kind: ClauseKind) -> tuple[MergeClause, ...]:
    """The clauses for one kind of rows, in order."""
    return tuple(clause for clause in clauses if clause.kind == kind)


def is_insert_only(clauses: Sequence[MergeClause]) -> bool:
    """Whether no row of the target can change."""
    return all(clause.kind == "not matched" for clause in clauses)


def is_limited(clauses: Sequence[MergeClause]) -> bool:
    """Whether conditions limit the rows of the target that can change.

    A clause for rows without a match depends on all rows that could match.
    """
    return all(clause.kind == "matched" and clause.condition is not None for clause in clauses)


def tolerates_duplicates(clauses: Sequence[MergeClause]) -> bool:
    """Whether a target row may match several source rows, because it can only be deleted.

    As in delta-spark: one matched clause alone, an unconditional delete.
    """
    matched = of_kind(clauses, "matched")
    return len(matched) == 1 and matched[0].action == "delete" and matched[0].condition is None


def check_clauses(clauses: Sequence[MergeClause]) -> None:
    """Raise for a MERGE without clauses, or with a clause that cannot apply.

    A clause without a condition takes all rows of its kind, so none may follow it.  UPDATE * needs
    the columns of a source row, so WHEN NOT MATCHED BY SOURCE cannot have it.  `merge.names` checks
    names and types, against a source and a target.

    >>> check_clauses([MergeClause(kind="matched", action="delete")])
    >>> MergeClause(kind="not matched", action="insert").action_name
    'INSERT'
    """
    if not clauses:
        raise OperationNotAllowedError("DELTA_MERGE_MISSING_WHEN")
    if any(clause.is_star for clause in of_kind(clauses, "not matched by source")):
        raise OperationNotAllowedError(
            "DELTA_UNEXPECTED_ACTION_EXPRESSION",
            expression="UPDATE * of WHEN NOT MATCHED BY SOURCE",
        )
    for kind, condition in _OMITTED_CONDITIONS.items():
        same = of_kind(clauses, kind)  # type: ignore[arg-type]
        if any(clause.condition is None for clause in same[:-1]):
            raise InvalidPredicateError(condition)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRequest:
    """A MERGE.

    `called` is the table's name in expressions, its parts in order; empty for none.  With `evolves`
    the table's schema follows the source's.  `own_columns` are sets of columns of other frames over
    the table, which expressions may use.
    """

    source: DataFrame = field(hash=False)
    condition: Column = field(hash=False)
    clauses: tuple[MergeClause, ...]
    called: tuple[str, ...] = ()
    evolves: bool = False
    own_columns: tuple[Any, ...] = field(default=(), hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCounts:
    """The number of rows of each clause; `num_source` is None when it was not counted."""

    clauses: tuple[MergeClause, ...] = ()
    by_clause: Mapping[int, int] = field(default_factory=dict, hash=False)
    num_source: int | None = 0

    def of(self, action: ClauseAction, kind: ClauseKind | None = None) -> int:
        """The rows of all clauses with an action, or of those of one kind."""
        return sum(
            count
            for number, count in self.by_clause.items()
            if self.clauses[number].action == action and kind in (None, self.clauses[number].kind)
        )

    @property
    def num_updated(self) -> int:
        return self.of("update")

    @property
    def num_deleted(self) -> int:
        return self.of("delete")

    @property
    def num_inserted(self) -> int:
        return self.of("insert")

    def frame(self, spark: SparkSession) -> DataFrame:
        """The row that a MERGE returns."""
        counts = (self.num_updated, self.num_deleted, self.num_inserted)
        return local_frame(spark, MERGE_SCHEMA, [(sum(counts), *counts)])


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """How many rows were affected, and the new version; None when nothing changed."""

    counts: RowCounts
    version: int | None = None
    has_new_schema: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSource:
    """The source of a running MERGE: whether it is small beside its target, and can be read twice.

    A small source is broadcast, and a large target is not shuffled.  Before that, its keys prune
    the target's files.  An outer join cannot broadcast it, so a second, small join finds the source
    rows without a match.  All this needs a source with the same rows each time; others are cached
    first, on disk where memory is short.

    `is_small` means that it fits into every task and gives the same rows each time.  `kept` must be
    released afterwards, None for nothing.
    """

    frame: DataFrame = field(hash=False)
    is_small: bool = False
    kept: DataFrame | None = field(default=None, hash=False)


def merge_source(
    jvm: JvmSession, source: DataFrame, target_bytes: int, *, keeps: bool = False
) -> MergeSource:
    """Inspect a source, and cache its rows if `keeps`, or where it is needed."""
    if not keeps and target_bytes <= SMALL_TARGET:
        return MergeSource(frame=source)
    threshold = broadcast_threshold(jvm)
    if not keeps:
        if threshold <= 0:
            return MergeSource(frame=source)
        size = size_in_bytes(source)
        if threshold < size < _UNKNOWN:
            return MergeSource(frame=source)
        if size <= threshold and is_steady(jvm, source):
            return MergeSource(frame=source, is_small=True)
    kept = source.localCheckpoint(eager=True, storageLevel=StorageLevel.MEMORY_AND_DISK)
    is_small = target_bytes > SMALL_TARGET and stored_bytes(jvm, kept) <= threshold
    return MergeSource(frame=kept, is_small=is_small, kept=kept)
