"""WHEN clauses of a MERGE: what may stand in them, and in which order.

Names and types are not looked at here; `merge_resolution` does that against a source and a target.

>>> check_clauses([MergeClause(kind="matched", action="delete")])
>>> MergeClause(kind="not matched", action="insert").shown
'INSERT'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from pyspark.sql import Column

from pyspark_delta.errors.table import InvalidPredicateError, OperationNotAllowedError

ClauseKind = Literal["matched", "not matched", "not matched by source"]
"""Which rows a clause is for: pairs that match, rows of the source, or rows of the target alone."""

ClauseAction = Literal["update", "delete", "insert"]


class Default(Enum):
    """The word DEFAULT in the place of a value: the column's own default."""

    VALUE = "DEFAULT"


Value = Column | Default
Assignments = tuple[tuple[str, Value], ...]

_OMITTED = {
    "matched": "DELTA_NON_LAST_MATCHED_CLAUSE_OMIT_CONDITION",
    "not matched": "DELTA_NON_LAST_NOT_MATCHED_CLAUSE_OMIT_CONDITION",
    "not matched by source": "DELTA_NON_LAST_NOT_MATCHED_BY_SOURCE_CLAUSE_OMIT_CONDITION",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeClause:
    """One WHEN clause.

    `assignments` are names of target columns and their values as the user wrote them; None stands
    for all columns, but those of `except_columns`.  A delete has none.
    """

    kind: ClauseKind
    action: ClauseAction
    condition: Column | None = field(default=None, hash=False)
    assignments: Assignments | None = field(default=(), hash=False)
    except_columns: tuple[str, ...] = ()

    @property
    def is_star(self) -> bool:
        """Whether it assigns all columns without naming them."""
        return self.assignments is None

    @property
    def shown(self) -> str:
        """What errors call it."""
        return self.action.upper()


def of_kind(clauses: Sequence[MergeClause], kind: ClauseKind) -> tuple[MergeClause, ...]:
    """The clauses for one kind of rows, in order."""
    return tuple(clause for clause in clauses if clause.kind == kind)


def is_insert_only(clauses: Sequence[MergeClause]) -> bool:
    """Whether no row of the target can change."""
    return all(clause.kind == "not matched" for clause in clauses)


def tolerates_duplicates(clauses: Sequence[MergeClause]) -> bool:
    """Whether a target row may match several source rows, because all that can happen is its end.

    As in delta-spark: one matched clause alone, an unconditional delete.
    """
    matched = of_kind(clauses, "matched")
    return len(matched) == 1 and matched[0].action == "delete" and matched[0].condition is None


def check_clauses(clauses: Sequence[MergeClause]) -> None:
    """Refuse a MERGE without clauses, or with one that makes no sense.

    Behind a clause that takes all rows of its kind there are none left, and where no source row is
    there are no columns of one to take.
    """
    if not clauses:
        raise OperationNotAllowedError("DELTA_MERGE_MISSING_WHEN")
    if any(clause.is_star for clause in of_kind(clauses, "not matched by source")):
        raise OperationNotAllowedError(
            "DELTA_UNEXPECTED_ACTION_EXPRESSION",
            expression="UPDATE * of WHEN NOT MATCHED BY SOURCE",
        )
    for kind, condition in _OMITTED.items():
        same = of_kind(clauses, kind)  # type: ignore[arg-type]
        if any(clause.condition is None for clause in same[:-1]):
            raise InvalidPredicateError(condition)
