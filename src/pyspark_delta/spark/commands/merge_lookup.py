"""Expressions of a MERGE looked up where they may look, and what is told of those that cannot be.

Spark resolves names; here its errors become ours, and conditions that a MERGE cannot have are
refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column

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
    name_among,
    shared_columns,
    sql_of,
)
from pyspark_delta.spark.jvm.moments import Moment

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

    `called` is what the target may be called, `own` are the sets of columns that other frames over
    it have.  `hidden` are columns of the target that are none of the table's, and of which nobody
    is told.
    """

    jvm: JvmSession
    source: Scope
    target: Scope
    called: tuple[str, ...]
    moment: Moment = field(hash=False)
    own: tuple[Any, ...] = field(default=(), hash=False)
    hidden: frozenset[str] = frozenset()

    @property
    def both(self) -> Scope:
        """The columns of both sides."""
        return joined_scope(self.jvm, self.source, self.target)

    def find(self, scope: Scope, asked: Sequence[Asked], texts: Mapping[str, str]) -> Found:
        """Look up what users wrote, and texts of ours, over a scope."""
        if not asked and not texts:
            return NOTHING_FOUND
        self._check_sides(scope, asked)
        try:
            found = self._find(scope, {each.name: each.column for each in asked}, texts)
        except AnalysisException as error:
            found = self._found_again(scope, asked, texts, error)
        if not found.is_plain:
            self._refuse(scope, asked)
        for each in asked:
            if each.is_condition:
                self._check_condition(found, each)
        return found

    def _find(
        self, scope: Scope, named: Mapping[str, Column], texts: Mapping[str, str] | None = None
    ) -> Found:
        return find(self.jvm, scope, named, texts or {}, self.moment)

    def _check_sides(self, scope: Scope, asked: Sequence[Asked]) -> None:
        """Refuse columns of frames over the target that the source has too, where both are seen.

        Spark would take them for the source's, and `target["id"] == source["id"]` for true.
        """
        if not self.own or scope is self.source or scope is self.target:
            return
        shared = shared_columns(self.source, self.own)
        for each in asked if shared else ():
            name = name_among(self.jvm, each.column, shared)
            if name is not None:
                both = f"[the source's {name}, the table's {name}]"
                raise analysis_error(
                    self.jvm, "AMBIGUOUS_REFERENCE", name=name, referenceNames=both
                )

    def _found_again(
        self,
        scope: Scope,
        asked: Sequence[Asked],
        texts: Mapping[str, str],
        error: AnalysisException,
    ) -> Found:
        """Once more, for columns of another frame over the target; else the error, in our words."""
        named = {each.name: each.column for each in asked}
        if self.own and _condition(error).startswith(_OF_ANOTHER_FRAME):
            named = {
                name: as_target_column(self.jvm, column, scope, self.own, self.called)
                for name, column in named.items()
            }
            try:
                return self._find(scope, named, texts)
            except AnalysisException as again:
                error = again
        for each in asked:
            try:
                self._find(scope, {each.name: named[each.name]})
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
        facts = error.getMessageParameters() or {}
        if _condition(error).startswith(_OF_ANOTHER_FRAME):
            return InvalidPredicateError(
                "DELTA_MERGE_RESOLVED_ATTRIBUTE_MISSING_FROM_INPUT",
                missingAttributes=facts.get("missingAttributes"),
                input=", ".join(scope.columns(self.hidden)),
                merge=asked.where,
            )
        if not _condition(error).startswith(_NOT_THERE):
            return error
        return InvalidPredicateError(
            "DELTA_MERGE_UNRESOLVED_EXPRESSION",
            sqlExpr=facts.get("objectName") or sql_of(self.jvm, asked.column),
            clause=asked.where,
            cols=", ".join(scope.columns(self.hidden)),
        )

    def _refuse(self, scope: Scope, asked: Sequence[Asked]) -> None:
        for each in asked:
            found = self._find(scope, {each.name: each.column})
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
