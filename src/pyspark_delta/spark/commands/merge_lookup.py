"""Expressions of a MERGE looked up where they may look, and what is told of those that cannot be.

Spark resolves names; here its errors become ours, and conditions that a MERGE cannot have are
refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame

from pyspark_delta.errors.table import InvalidPredicateError, OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.protocol.types import BOOLEAN, VOID, type_name
from pyspark_delta.spark.jvm.analysis_errors import analysis_error
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.merge_plan import (
    Found,
    Scope,
    as_target_column,
    find,
    has_subquery,
    is_deterministic,
    joined_scope,
    named_scope,
    scope_of,
    sql_of,
)

NOTHING_FOUND = Found(listed=None, types={}, is_plain=True)
"""The answer when nothing was asked."""

SEARCH_CONDITION = "search condition"
"""Where the condition behind ON stands, for those who ask."""

_NOT_THERE = ("UNRESOLVED_COLUMN", "UNRESOLVED_FIELD", "FIELD_NOT_FOUND")
_OF_ANOTHER_FRAME = "MISSING_ATTRIBUTES"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a user wrote: a name for it, the expression, and where it stands."""

    name: str
    column: Column = field(hash=False)
    where: str

    @property
    def is_condition(self) -> bool:
        """Whether it must be true or false."""
        return self.where.endswith(" condition")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """What expressions of a MERGE may see: the source, the target, or both.

    `hidden` are columns of the target that are none of the table's, and of which nobody is told.
    """

    jvm: JvmSession
    source: Scope
    target: Scope
    called: tuple[str, ...]
    hidden: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        jvm: JvmSession,
        source: DataFrame,
        target: DataFrame,
        called: tuple[str, ...],
        own: Iterable[str],
    ) -> Lookup:
        """A source and a target; `called` is what it may be called, `own` are a user's columns."""
        return cls(
            jvm=jvm,
            source=scope_of(source),
            target=named_scope(jvm, target, called),
            called=called,
            hidden=frozenset(target.columns).difference(own),
        )

    @property
    def both(self) -> Scope:
        """The columns of both sides."""
        return joined_scope(self.jvm, self.source, self.target)

    def find(self, scope: Scope, asked: Sequence[Asked], texts: Mapping[str, str]) -> Found:
        """Look up what users wrote, and texts of ours, over a scope."""
        if not asked and not texts:
            return NOTHING_FOUND
        try:
            found = find(self.jvm, scope, {each.name: each.column for each in asked}, texts)
        except AnalysisException as error:
            found = self._found_again(scope, asked, texts, error)
        if not found.is_plain:
            self._refuse(scope, asked)
        for each in asked:
            if each.is_condition:
                self._check_condition(found, each)
        return found

    def _found_again(
        self,
        scope: Scope,
        asked: Sequence[Asked],
        texts: Mapping[str, str],
        error: AnalysisException,
    ) -> Found:
        """Once more, for columns of another frame over the target; else the error, in our words."""
        named = {each.name: each.column for each in asked}
        if _condition(error).startswith(_OF_ANOTHER_FRAME):
            known = [self.source, self.target]
            named = {
                name: as_target_column(self.jvm, column, known, self.called)
                for name, column in named.items()
            }
            try:
                return find(self.jvm, scope, named, texts)
            except AnalysisException as again:
                error = again
        for each in asked:
            try:
                find(self.jvm, scope, {each.name: named[each.name]}, {})
            except AnalysisException as own:
                raise self._unresolved(scope, each, own) from own
        # Each by itself makes sense, but not as a value of one row.
        self._refuse(scope, asked)
        raise error

    def _unresolved(self, scope: Scope, asked: Asked, error: AnalysisException) -> Exception:
        if _condition(error) == "MISSING_GROUP_BY":
            # An aggregate beside columns: no value of one row either.
            return self._of_many_rows(asked, "Aggregate")
        if _condition(error).startswith("UNSUPPORTED_GENERATOR"):
            return self._of_many_rows(asked, "Generate")
        if not _condition(error).startswith(_NOT_THERE):
            return error
        facts = error.getMessageParameters() or {}
        return InvalidPredicateError(
            "DELTA_MERGE_UNRESOLVED_EXPRESSION",
            sqlExpr=facts.get("objectName") or sql_of(self.jvm, asked.column),
            clause=asked.where,
            cols=", ".join(scope.columns(self.hidden)),
        )

    def _refuse(self, scope: Scope, asked: Sequence[Asked]) -> None:
        for each in asked:
            found = find(self.jvm, scope, {each.name: each.column}, {})
            if not found.is_plain:
                raise self._of_many_rows(each, found.needs)

    def _of_many_rows(self, asked: Asked, needs: str | None) -> Exception:
        """What to raise for a value that no single row has, by the node that would make it."""
        operation, text = f"The {asked.where} of a MERGE", sql_of(self.jvm, asked.column)
        if needs == "Generate":
            return analysis_error(self.jvm, "UNSUPPORTED_GENERATOR.OUTSIDE_SELECT", plan="MERGE")
        if needs == "Aggregate" and asked.is_condition:
            return OperationNotAllowedError(
                "DELTA_AGGREGATION_NOT_SUPPORTED", operation=operation, predicate=text
            )
        return OperationNotAllowedError(
            "UNSUPPORTED_EXPR_FOR_OPERATOR", operation=operation, invalidExprSqls=text
        )

    def _check_condition(self, found: Found, asked: Asked) -> None:
        expression = found.expression(asked.name)
        operation = f"The {asked.where} of a MERGE"
        if not is_deterministic(expression):
            raise OperationNotAllowedError(
                "DELTA_NON_DETERMINISTIC_FUNCTION_NOT_SUPPORTED",
                operation=operation,
                expression=sql_of(self.jvm, asked.column),
            )
        if has_subquery(self.jvm, expression):
            raise OperationNotAllowedError(
                "DELTA_UNSUPPORTED_SUBQUERY",
                operation=operation,
                cond=sql_of(self.jvm, asked.column),
            )
        data_type = found.types[asked.name]
        if data_type in (BOOLEAN, VOID):
            return
        text = sql_of(self.jvm, asked.column)
        shown = "unknown" if data_type is None else type_name(data_type)
        if asked.where == SEARCH_CONDITION:
            raise SchemaError(
                "JOIN_CONDITION_IS_NOT_BOOLEAN_TYPE", joinCondition=text, conditionType=shown
            )
        raise SchemaError(
            "DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN", sqlExpr=text, filter=asked.where, type=shown
        )


def _condition(error: AnalysisException) -> str:
    return error.getCondition() or ""
