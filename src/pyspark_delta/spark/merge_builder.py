"""`DeltaMergeBuilder`: a MERGE put together clause by clause, with delta-spark's names.

Every call gives a new builder, and nothing happens before `execute`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame

from pyspark_delta.spark.commands.merge import MergeResult
from pyspark_delta.spark.commands.merge_clauses import (
    Assignments,
    ClauseAction,
    ClauseKind,
    Default,
    MergeClause,
    Value,
)
from pyspark_delta.spark.commands.merge_request import MergeRequest
from pyspark_delta.spark.expression_arguments import condition_argument, values_argument
from pyspark_delta.spark.jvm.attribute_names import is_default_keyword
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.spark_errors import raises_spark_errors

Expression = str | Column
ColumnMapping = Mapping[str, Expression]


@raises_spark_errors
class DeltaMergeBuilder:
    """What a MERGE does with rows that match, and with those of either side that do not.

    Of the clauses of one kind the first whose condition holds is the one for a row; only the last
    may be without a condition.
    """

    def __init__(self, request: MergeRequest, run: Callable[[MergeRequest], MergeResult]) -> None:
        """Made by `DeltaTable.merge`."""
        self._request = request
        self._run = run

    def whenMatchedUpdate(
        self, condition: Expression | None = None, set: ColumnMapping | None = None
    ) -> DeltaMergeBuilder:
        """Update a row that matches: `set` has values, as SQL or Column, by names of columns."""
        return self._with("matched", "update", condition, set, "'set' in whenMatchedUpdate")

    def whenMatchedUpdateAll(
        self, condition: Expression | None = None, *, except_cols: Sequence[str] | None = None
    ) -> DeltaMergeBuilder:
        """Update all columns of a row that matches from source columns of the same names.

        Columns of `except_cols` stay as they are.
        """
        return self._with_all("matched", "update", condition, except_cols)

    def whenMatchedDelete(self, condition: Expression | None = None) -> DeltaMergeBuilder:
        """Delete a row that matches."""
        return self._added(_clause("matched", "delete", condition))

    def whenNotMatchedInsert(
        self, condition: Expression | None = None, values: ColumnMapping | None = None
    ) -> DeltaMergeBuilder:
        """Insert a source row that matches nothing: `values` by names of columns."""
        where = "'values' in whenNotMatchedInsert"
        return self._with("not matched", "insert", condition, values, where)

    def whenNotMatchedInsertAll(
        self, condition: Expression | None = None, *, except_cols: Sequence[str] | None = None
    ) -> DeltaMergeBuilder:
        """Insert a source row that matches nothing, columns by their names.

        Columns of `except_cols` get their defaults.
        """
        return self._with_all("not matched", "insert", condition, except_cols)

    def whenNotMatchedBySourceUpdate(
        self, condition: Expression | None = None, set: ColumnMapping | None = None
    ) -> DeltaMergeBuilder:
        """Update a row of the table that no source row matches."""
        where = "'set' in whenNotMatchedBySourceUpdate"
        return self._with("not matched by source", "update", condition, set, where)

    def whenNotMatchedBySourceDelete(
        self, condition: Expression | None = None
    ) -> DeltaMergeBuilder:
        """Delete a row of the table that no source row matches."""
        return self._added(_clause("not matched by source", "delete", condition))

    def withSchemaEvolution(self) -> DeltaMergeBuilder:
        """Let the table get the columns of the source that clauses assign to."""
        return DeltaMergeBuilder(replace(self._request, evolves=True), self._run)

    def execute(self) -> DataFrame:
        """Run the MERGE; the one row tells how many rows were affected, and how."""
        result = self._run(self._request)
        return result.counts.frame(self._request.source.sparkSession)

    def _with(
        self,
        kind: ClauseKind,
        action: ClauseAction,
        condition: Expression | None,
        given: ColumnMapping | None,
        where: str,
    ) -> DeltaMergeBuilder:
        jvm = JvmSession(self._request.source.sparkSession)
        assignments = _assignments(jvm, given, where)
        return self._added(replace(_clause(kind, action, condition), assignments=assignments))

    def _with_all(
        self,
        kind: ClauseKind,
        action: ClauseAction,
        condition: Expression | None,
        except_cols: Sequence[str] | None,
    ) -> DeltaMergeBuilder:
        clause = _clause(kind, action, condition)
        left_out = _names(except_cols)
        return self._added(replace(clause, assignments=None, except_columns=left_out))

    def _added(self, clause: MergeClause) -> DeltaMergeBuilder:
        clauses = (*self._request.clauses, clause)
        return DeltaMergeBuilder(replace(self._request, clauses=clauses), self._run)


def merge_request(source: object, condition: object, called: tuple[str, ...]) -> MergeRequest:
    """A MERGE without clauses; ValueError for None, TypeError for what cannot be one."""
    for name, given in (("source", source), ("condition", condition)):
        if given is None:
            raise ValueError(f"'{name}' in merge cannot be None")
    if not isinstance(source, DataFrame):
        raise TypeError(f"'source' in merge must be DataFrame, not {type(source).__name__}")
    found = condition_argument(condition)
    assert found is not None
    return MergeRequest(source=source, condition=found, clauses=(), called=called)


def _clause(kind: ClauseKind, action: ClauseAction, condition: object) -> MergeClause:
    return MergeClause(kind=kind, action=action, condition=condition_argument(condition))


def _assignments(jvm: JvmSession, given: object, where: str) -> Assignments:
    values = values_argument(given, where)
    return tuple((name, _value(jvm, value)) for name, value in values.items())


def _value(jvm: JvmSession, value: Column) -> Value:
    return Default.VALUE if is_default_keyword(jvm, value) else value


def _names(given: Sequence[str] | None) -> tuple[str, ...]:
    if given is None:
        return ()
    if isinstance(given, str) or not all(isinstance(name, str) for name in given):
        raise TypeError("'except_cols' must be a list of names of columns")
    return tuple(given)
