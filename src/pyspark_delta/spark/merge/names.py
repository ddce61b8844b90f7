"""Resolves the names in a MERGE: its condition and clauses over a source and a target.

Expressions of WHEN MATCHED may use both sides, those of NOT MATCHED the source, those of NOT
MATCHED BY SOURCE the target.  Spark resolves them, its errors become ours, and what a MERGE cannot
have raises.  The result is SQL text, for each column of each clause, over names that
`jvm.plans.merge` resolves; no job runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_delta.errors import InvalidPredicateError, OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.types import BOOLEAN, VOID, StructType, type_name
from pyspark_delta.kernel.scan.predicates.tree import TRUE, Predicate
from pyspark_delta.kernel.sql.quoting import quoted_name
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.conf.settings import CASE_SENSITIVE, is_on
from pyspark_delta.spark.files.write_options import WriteOptions
from pyspark_delta.spark.jvm.expressions.catalyst import Moment, column_of
from pyspark_delta.spark.jvm.failures import analysis_error
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans.merge import (
    ClauseKind,
    Default,
    MergeClause,
    ResolvedValues,
    Scope,
    as_target_column,
    columns_in_scope,
    condition_texts,
    find,
    has_subquery,
    is_deterministic_value,
    joined_scope,
    name_among,
    named_scope,
    scope_of,
    shared_columns,
    sql_of,
)
from pyspark_delta.spark.merge.columns import (
    Assigned,
    ClauseColumns,
    ClauseValues,
    TableColumns,
    Target,
    evolved_schema,
    target_names,
)
from pyspark_delta.spark.merge.request import MergeRequest
from pyspark_delta.spark.write.schema import data_schema

_CONDITION = "__delta_condition"
"""The name of the search condition."""
_SEARCH_CONDITION = "search condition"
"""The name of the search condition in error messages."""
_ALL_KINDS: tuple[ClauseKind, ...] = get_args(ClauseKind)
_ALONE: ClauseKind = "not matched by source"
_NOTHING_FOUND = ResolvedValues(listed=None, types={}, is_plain=True)
# The target's name where it has none.
_NAMELESS = ("__delta_target",)
_NOT_THERE = ("UNRESOLVED_COLUMN", "UNRESOLVED_FIELD", "FIELD_NOT_FOUND")
_OF_ANOTHER_FRAME = "MISSING_ATTRIBUTES"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """A MERGE with all names resolved.

    `resolved` has the expressions that the texts of `clauses` name, by the kind of clause; for
    matching pairs they include the condition.  `at_target` has the target's columns, `values` are
    more expressions made from these.  `schema` is the table's new schema; `before` has the text of
    each of its columns with the target's current value.  `condition_columns` are the target's
    columns in the condition, and `moment` is the current time for all expressions.  `has_queries`
    means that values come from queries, perhaps of the table.  `taken` is true for every row of the
    target that a clause can affect.
    """

    source: Scope
    target: Scope
    moment: Moment = field(hash=False)
    condition: Column = field(hash=False)
    predicate: str
    resolved: Mapping[ClauseKind, ResolvedValues] = field(hash=False)
    at_target: ResolvedValues = field(hash=False)
    values: Mapping[str, Column] = field(hash=False)
    clauses: tuple[ClauseValues, ...]
    schema: StructType
    before: Mapping[str, str] = field(hash=False)
    condition_columns: tuple[str, ...]
    has_queries: bool
    taken: Predicate = TRUE

    def of_kind(self, *kinds: ClauseKind) -> dict[int, ClauseValues]:
        """The clauses of these kinds, by number."""
        return {i: each for i, each in enumerate(self.clauses) if each.clause.kind in kinds}


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeNames:
    """A MERGE with the frames over which its names are resolved.

    `has_old_values` means that the target's old values are needed.
    """

    jvm: JvmSession
    txn: OptimisticTransaction
    request: MergeRequest
    options: WriteOptions = field(hash=False)
    source: DataFrame = field(hash=False)
    target: DataFrame = field(hash=False)
    has_old_values: bool
    moment: Moment = field(hash=False)

    @property
    def snapshot(self) -> Snapshot:
        """The target before the MERGE."""
        assert self.txn.snapshot is not None
        return self.txn.snapshot

    @property
    def evolves(self) -> bool:
        """Whether the table's schema follows the source's."""
        return self.request.evolves or self.options.merges_schema


def resolve_merge(names: MergeNames) -> Resolution:
    """Resolve all names; raises typed errors, or Spark's own, for invalid expressions."""
    return _Resolver(names, _ALL_KINDS).resolve()


def resolve_kind(names: MergeNames, kind: ClauseKind, schema: StructType) -> Resolution:
    """As `resolve_merge`, for clauses of one kind only: over other frames, once rows are known.

    For "not matched by source" the target's frame has the rows without a match.  For "not matched"
    it has the target's columns in the condition.  `schema` is the table's after the MERGE.
    """
    return _Resolver(names, (kind,)).resolve(schema)


@dataclass(frozen=True, slots=True)
class _UserExpression:
    """An expression of the user's: its name, and its place in the statement for messages."""

    name: str
    column: Column = field(hash=False)
    where: str

    @property
    def is_condition(self) -> bool:
        """Whether it must be a boolean."""
        return self.where.endswith(" condition")


class _Resolver:
    """Resolves the names in clauses of some kinds; the other clauses have no columns."""

    def __init__(self, names: MergeNames, kinds: tuple[ClauseKind, ...]) -> None:
        jvm, request, schema = names.jvm, names.request, names.snapshot.metadata.schema
        called = request.called or _NAMELESS
        self._names = names
        self._kinds = kinds
        self._jvm = jvm
        self._clauses = request.clauses
        self._lookup = _Lookup(
            jvm=jvm,
            source=scope_of(names.source),
            target=named_scope(jvm, names.target, called),
            called=called,
            moment=names.moment,
            own=request.own_columns,
            hidden=frozenset(names.target.columns).difference(schema.names),
        )
        self._source_columns = names.source.columns
        self._table = TableColumns.of(
            jvm, schema, names.txn.protocol, self._source_columns, evolves=names.evolves
        )
        self._target = Target(
            jvm=jvm,
            schema=schema,
            called=called,
            scope=self._lookup.source,
            source=data_schema(names.source.schema) if names.evolves else None,
            exact=is_on(jvm.spark, CASE_SENSITIVE),
            computes=bool(self._table.computed or self._table.numbered),
        )

    def resolve(self, schema: StructType | None = None) -> Resolution:
        """Resolve the clauses; `schema` is the table's new one, which they decide by default."""
        lookup = self._lookup
        is_whole, has_target = self._kinds == _ALL_KINDS, self._kinds != ("not matched",)
        assigned = [
            self._target.assignments(each) if each.kind in self._kinds else ()
            for each in self._clauses
        ]
        stars = [self._star(each) for each in self._clauses]
        requested = {kind: list(self._expressions(kind, assigned)) for kind in _ALL_KINDS}
        at_source = lookup.find(lookup.source, requested["not matched"], self._star_texts(stars))
        at_target = lookup.find(lookup.target, [], self._target_texts() if has_target else {})
        both = joined_scope(self._jvm, lookup.source, lookup.target)
        resolved: dict[ClauseKind, ResolvedValues] = {
            "matched": lookup.find(both, requested["matched"], {}),
            "not matched": at_source,
            _ALONE: lookup.find(lookup.target, requested[_ALONE], {}),
        }
        schema = self._new_schema(assigned, stars) if schema is None else schema
        clauses = [
            self._values(
                ClauseColumns(
                    table=self._table,
                    clause=clause,
                    number=number,
                    schema=schema,
                    resolved=resolved[clause.kind],
                    at_source=at_source,
                    at_target=at_target,
                ),
                assigned[number],
                stars[number],
            )
            for number, clause in enumerate(self._clauses)
        ]
        has_condition = _CONDITION in resolved["matched"].types
        condition = resolved["matched"].expression(_CONDITION) if has_condition else None
        columns = () if condition is None else tuple(columns_in_scope(condition, lookup.target))
        before = self._before(schema, at_target) if has_target else {}
        texts = self._condition_texts(clauses, resolved, condition) if is_whole else {}
        return Resolution(
            source=lookup.source,
            target=lookup.target,
            moment=self._names.moment,
            condition=F.lit(True) if condition is None else column_of(self._jvm, condition),
            predicate=texts.get(_CONDITION, ""),
            resolved=resolved,
            at_target=at_target,
            values=self._table.made,
            clauses=tuple(
                replace(each, predicate=texts.get(each.condition or "")) for each in clauses
            ),
            schema=schema,
            before=before,
            condition_columns=columns,
            has_queries=any(each.has_queries for each in (*resolved.values(), at_target)),
        )

    def _star(self, clause: MergeClause) -> tuple[str, ...]:
        if not clause.is_star or clause.kind not in self._kinds:
            return ()
        return self._target.star_columns(clause, self._source_columns)

    def _values(
        self, columns: ClauseColumns, assigned: Sequence[Assigned], star: Sequence[str]
    ) -> ClauseValues:
        if columns.clause.kind not in self._kinds:
            return ClauseValues(clause=columns.clause, condition=None, columns={})
        if self._kinds == _ALL_KINDS and columns.clause.kind == _ALONE:
            # Only checked here: they are resolved again, over the rows without a match.
            columns = replace(columns, table=replace(self._table, made={}))
        return columns.values(assigned, star)

    def _expressions(
        self, kind: ClauseKind, assigned: Sequence[Sequence[Assigned]]
    ) -> Iterator[_UserExpression]:
        """The user's expressions in one kind of clauses; the condition is of matching pairs."""
        if kind == "matched" and self._kinds != (_ALONE,):
            yield _UserExpression(_CONDITION, self._names.request.condition, _SEARCH_CONDITION)
        for number, clause in enumerate(self._clauses):
            if clause.kind != kind or kind not in self._kinds:
                continue
            if clause.condition is not None:
                where = f"{clause.action_name} condition"
                yield _UserExpression(f"__delta_c{number}", clause.condition, where)
            for place, each in enumerate(assigned[number]):
                if not isinstance(each.value, Default):
                    where = f"{clause.action_name} clause"
                    yield _UserExpression(f"__delta_v{number}_{place}", each.value, where)

    def _condition_texts(
        self,
        clauses: Sequence[ClauseValues],
        resolved: Mapping[ClauseKind, ResolvedValues],
        condition: object,
    ) -> dict[str, str]:
        named: dict[str, object] = {_CONDITION: condition}
        for each in clauses:
            if each.condition is not None:
                named[each.condition] = resolved[each.clause.kind].expression(each.condition)
        return condition_texts(self._jvm, [self._lookup.source, self._lookup.target], named)

    def _before(self, schema: StructType, at_target: ResolvedValues) -> dict[str, str]:
        """The text of each column with the target's current value, cast to the new type."""
        if not self._names.has_old_values:
            return {}
        old = ClauseColumns(
            table=self._table,
            clause=MergeClause(kind="matched", action="update"),
            number=-1,
            schema=schema,
            resolved=at_target,
            at_source=at_target,
            at_target=at_target,
        )
        return {f.name: old.kept(f) for f in schema}

    def _star_texts(self, stars: Sequence[Sequence[str]]) -> dict[str, str]:
        """The source's columns that stars need, by the names used for resolution."""
        needed = {name.lower() for star in stars for name in star}
        return {
            f"__delta_s{i}": quoted_name(name)
            for i, name in enumerate(self._source_columns)
            if name.lower() in needed
        }

    def _target_texts(self) -> dict[str, str]:
        # The target's frame has more columns than the table: the row's position and its id.
        own = target_names(self._target.schema)
        names = own | {name: name for name in self._names.target.columns if name not in own}
        return {name: quoted_name(column) for column, name in names.items()}

    def _new_schema(
        self, assigned: Sequence[Sequence[Assigned]], stars: Sequence[Sequence[str]]
    ) -> StructType:
        if self._target.source is None:
            return self._target.schema
        paths: list[tuple[str, ...]] = []
        for clause, each, star in zip(self._clauses, assigned, stars, strict=True):
            if clause.kind != _ALONE:
                paths += [one.path for one in each]
                paths += [(name,) for name in star]
        names = self._names
        return evolved_schema(names.txn, self._target.source, paths, names.options.widening)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lookup:
    """The scopes of expressions in a MERGE: the source, the target, or both.

    `called` are the target's names, `own` the column sets of other frames over it.  `hidden` are
    columns of the target's frame that are not in the table, and not in messages.
    """

    jvm: JvmSession
    source: Scope
    target: Scope
    called: tuple[str, ...]
    moment: Moment = field(hash=False)
    own: tuple[Any, ...] = field(hash=False)
    hidden: frozenset[str]

    def find(
        self, scope: Scope, requested: Sequence[_UserExpression], texts: Mapping[str, str]
    ) -> ResolvedValues:
        """Resolve expressions of users, and texts of ours, over a scope."""
        if not requested and not texts:
            return _NOTHING_FOUND
        self._check_sides(scope, requested)
        try:
            found = self._find(scope, {each.name: each.column for each in requested}, texts)
        except AnalysisException as error:
            found = self._found_again(scope, requested, texts, error)
        if not found.is_plain:
            self._refuse(scope, requested)
        for each in requested:
            if each.is_condition:
                self._check_condition(found, each)
        return found

    def _find(
        self, scope: Scope, named: Mapping[str, Column], texts: Mapping[str, str] | None = None
    ) -> ResolvedValues:
        return find(self.jvm, scope, named, texts or {}, self.moment)

    def _check_sides(self, scope: Scope, requested: Sequence[_UserExpression]) -> None:
        """Raise for columns of frames over the target that the source has too, in the joint scope.

        Spark would resolve them to the source, and `target["id"] == source["id"]` would always be
        true.
        """
        if not self.own or scope is self.source or scope is self.target:
            return
        shared = shared_columns(self.source, self.own)
        for each in requested if shared else ():
            name = name_among(self.jvm, each.column, shared)
            if name is not None:
                both = f"[the source's {name}, the table's {name}]"
                raise analysis_error(
                    self.jvm, "AMBIGUOUS_REFERENCE", name=name, referenceNames=both
                )

    def _found_again(
        self,
        scope: Scope,
        requested: Sequence[_UserExpression],
        texts: Mapping[str, str],
        error: AnalysisException,
    ) -> ResolvedValues:
        """Retry with columns of another frame over the target resolved; else raise our error."""
        named = {each.name: each.column for each in requested}
        if self.own and _condition(error).startswith(_OF_ANOTHER_FRAME):
            named = {
                name: as_target_column(self.jvm, column, scope, self.own, self.called)
                for name, column in named.items()
            }
            try:
                return self._find(scope, named, texts)
            except AnalysisException as again:
                error = again
        for each in requested:
            try:
                self._find(scope, {each.name: named[each.name]})
            except AnalysisException as own:
                raise self._unresolved(scope, each, own) from own
        # Each is valid by itself, but not as a value of one row.
        self._refuse(scope, requested)
        raise error

    def _unresolved(
        self, scope: Scope, one: _UserExpression, error: AnalysisException
    ) -> Exception:
        """The error of ours for an expression that Spark cannot resolve by itself."""
        condition, facts = _condition(error), error.getMessageParameters() or {}
        if condition == "MISSING_GROUP_BY":
            # An aggregate beside columns is not a value of one row either.
            return self._of_many_rows(one, "Aggregate")
        if condition.startswith("UNSUPPORTED_GENERATOR"):
            return self._of_many_rows(one, "Generate")
        columns = ", ".join(scope.columns(self.hidden))
        if condition.startswith(_OF_ANOTHER_FRAME):
            return InvalidPredicateError(
                "DELTA_MERGE_RESOLVED_ATTRIBUTE_MISSING_FROM_INPUT",
                missingAttributes=facts.get("missingAttributes"),
                input=columns,
                merge=one.where,
            )
        if not condition.startswith(_NOT_THERE):
            return error
        return InvalidPredicateError(
            "DELTA_MERGE_UNRESOLVED_EXPRESSION",
            sqlExpr=facts.get("objectName") or sql_of(self.jvm, one.column),
            clause=one.where,
            cols=columns,
        )

    def _refuse(self, scope: Scope, requested: Sequence[_UserExpression]) -> None:
        for each in requested:
            found = self._find(scope, {each.name: each.column})
            if not found.is_plain:
                raise self._of_many_rows(each, found.needs)

    def _of_many_rows(self, one: _UserExpression, needs: str | None) -> Exception:
        """The error for a value that needs many rows, by the plan node that computes it."""
        operation, text = f"The {one.where} of a MERGE", sql_of(self.jvm, one.column)
        if needs == "Generate":
            return analysis_error(self.jvm, "UNSUPPORTED_GENERATOR.OUTSIDE_SELECT", plan="MERGE")
        if needs == "Aggregate" and one.is_condition:
            return OperationNotAllowedError(
                "DELTA_AGGREGATION_NOT_SUPPORTED", operation=operation, predicate=text
            )
        return OperationNotAllowedError(
            "UNSUPPORTED_EXPR_FOR_OPERATOR", operation=operation, invalidExprSqls=text
        )

    def _check_condition(self, found: ResolvedValues, one: _UserExpression) -> None:
        expression, data_type = found.expression(one.name), found.types[one.name]
        is_same = is_deterministic_value(expression)
        has_query = is_same and has_subquery(self.jvm, expression)
        if is_same and not has_query and data_type in (BOOLEAN, VOID):
            return
        operation, text = f"The {one.where} of a MERGE", sql_of(self.jvm, one.column)
        if not is_same:
            raise OperationNotAllowedError(
                "DELTA_NON_DETERMINISTIC_FUNCTION_NOT_SUPPORTED",
                operation=operation,
                expression=text,
            )
        if has_query:
            raise OperationNotAllowedError(
                "DELTA_UNSUPPORTED_SUBQUERY", operation=operation, cond=text
            )
        name = "unknown" if data_type is None else type_name(data_type)
        if one.where == _SEARCH_CONDITION:
            raise SchemaError(
                "JOIN_CONDITION_IS_NOT_BOOLEAN_TYPE", joinCondition=text, conditionType=name
            )
        raise SchemaError(
            "DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN", sqlExpr=text, filter=one.where, type=name
        )


def _condition(error: AnalysisException) -> str:
    return error.getCondition() or ""
