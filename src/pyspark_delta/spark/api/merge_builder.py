"""`DeltaMergeBuilder` builds a MERGE clause by clause, with delta-spark's names.

Every call returns a new builder; only `execute` runs anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from pyspark.sql import Column, DataFrame

from pyspark_delta.spark.api.arguments import condition_argument, values_argument
from pyspark_delta.spark.api.errors import raises_spark_errors
from pyspark_delta.spark.jvm.expressions.catalyst import is_default_keyword
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans.merge import (
    Assignments,
    ClauseAction,
    ClauseKind,
    Default,
    MergeClause,
)
from pyspark_delta.spark.merge.request import MergeRequest

Expression = str | Column
ColumnMapping = Mapping[str, Expression]


@raises_spark_errors
class DeltaMergeBuilder:
    """The clauses of a MERGE: for matched rows, and for rows of either side without a match.

    A row takes the first clause of its kind whose condition is true.  Only the last clause of a
    kind may have no condition.
    """

    def __init__(self, request: MergeRequest, run: Callable[[MergeRequest], DataFrame]) -> None:
        """Use `DeltaTable.merge`, which creates builders."""
        self._request = request
        self._run = run

    def whenMatchedUpdate(
        self, condition: Expression | None = None, set: ColumnMapping | None = None
    ) -> Self:
        """Update matched rows; `set` maps column names to values, as SQL text or Column."""
        values = self._assignments(set, "'set' in whenMatchedUpdate")
        return self._when("matched", "update", condition, assignments=values)

    def whenMatchedUpdateAll(
        self, condition: Expression | None = None, *, except_cols: Sequence[str] | None = None
    ) -> Self:
        """Update all columns of matched rows from the source columns of the same names.

        Columns in `except_cols` keep their values.
        """
        return self._when_all("matched", "update", condition, except_cols)

    def whenMatchedDelete(self, condition: Expression | None = None) -> Self:
        """Delete matched rows."""
        return self._when("matched", "delete", condition)

    def whenNotMatchedInsert(
        self, condition: Expression | None = None, values: ColumnMapping | None = None
    ) -> Self:
        """Insert source rows without a match; `values` maps column names to values."""
        given = self._assignments(values, "'values' in whenNotMatchedInsert")
        return self._when("not matched", "insert", condition, assignments=given)

    def whenNotMatchedInsertAll(
        self, condition: Expression | None = None, *, except_cols: Sequence[str] | None = None
    ) -> Self:
        """Insert source rows without a match; all columns get the source columns of the same names.

        Columns in `except_cols` get their default values.
        """
        return self._when_all("not matched", "insert", condition, except_cols)

    def whenNotMatchedBySourceUpdate(
        self, condition: Expression | None = None, set: ColumnMapping | None = None
    ) -> Self:
        """Update rows of the table that no source row matches."""
        values = self._assignments(set, "'set' in whenNotMatchedBySourceUpdate")
        return self._when("not matched by source", "update", condition, assignments=values)

    def whenNotMatchedBySourceDelete(self, condition: Expression | None = None) -> Self:
        """Delete rows of the table that no source row matches."""
        return self._when("not matched by source", "delete", condition)

    def withSchemaEvolution(self) -> Self:
        """Add source columns that clauses assign to and that the table does not have."""
        return type(self)(replace(self._request, evolves=True), self._run)

    def execute(self) -> DataFrame:
        """Run the MERGE; returns one row with the numbers of affected rows."""
        return self._run(self._request)

    def _when(
        self,
        kind: ClauseKind,
        action: ClauseAction,
        condition: object,
        *,
        assignments: Assignments | None = (),
        except_columns: tuple[str, ...] = (),
    ) -> Self:
        clause = MergeClause(
            kind=kind,
            action=action,
            condition=condition_argument(condition),
            assignments=assignments,
            except_columns=except_columns,
        )
        clauses = (*self._request.clauses, clause)
        return type(self)(replace(self._request, clauses=clauses), self._run)

    def _when_all(
        self, kind: ClauseKind, action: ClauseAction, condition: object, except_cols: object
    ) -> Self:
        """A clause for all columns but those of `except_cols`."""
        names: Any = () if except_cols is None else except_cols
        if isinstance(names, str) or not all(isinstance(name, str) for name in names):
            raise TypeError("'except_cols' must be a list of names of columns")
        return self._when(kind, action, condition, assignments=None, except_columns=tuple(names))

    def _assignments(self, given: object, where: str) -> Assignments:
        jvm = JvmSession(self._request.source.sparkSession)
        return tuple(
            (name, Default.VALUE if is_default_keyword(jvm, value) else value)
            for name, value in values_argument(given, where).items()
        )


def merge_request(source: object, condition: object, called: tuple[str, ...]) -> MergeRequest:
    """A MERGE without clauses; ValueError for None, TypeError for arguments of a wrong type."""
    for name, given in (("source", source), ("condition", condition)):
        if given is None:
            raise ValueError(f"'{name}' in merge cannot be None")
    if not isinstance(source, DataFrame):
        raise TypeError(f"'source' in merge must be DataFrame, not {type(source).__name__}")
    matches = condition_argument(condition)
    assert matches is not None
    return MergeRequest(source=source, condition=matches, clauses=(), called=called)
