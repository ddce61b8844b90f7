"""Clauses of a MERGE as values, and its plans: resolved expressions, put into one projection.

Expressions of a clause may refer to the source, the target, or both.  Each group is analyzed once
over the plan that it may refer to.  All of them then have names below one projection, whose text
uses these names.  Spark's own rule inlines them there, so that a value is computed only where its
clause applies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

from pyspark.sql import Column, DataFrame

from pyspark_delta.kernel.protocol.types import DataType
from pyspark_delta.kernel.sql.quoting import quoted_name
from pyspark_delta.spark.jvm.expressions.catalyst import (
    Filter,
    Moment,
    alias_of,
    column_of,
    expression_of,
    filters_of,
    transformed,
)
from pyspark_delta.spark.jvm.gateway import JvmSession, analyzed_plan, items, type_of_json
from pyspark_delta.spark.jvm.plans.frames import named_plan, plan_frame

ClauseKind = Literal["matched", "not matched", "not matched by source"]
"""Which rows a clause is for: pairs that match, rows of the source, or rows of the target alone."""
ClauseAction = Literal["update", "delete", "insert"]
_PYTHON_UTILS = "org.apache.spark.api.python.PythonUtils"
_ATTRIBUTE = "AttributeReference"
_MOST_FIELDS = 25
_OF_MANY_ROWS = frozenset({"Aggregate", "Window", "Generate"})
# Equality of two columns: the optimizer leaves it unchanged, and is the slowest step here.
_KEYS = re.compile(r"\((\w+#\d+L?) = (?!\1\))\w+#\d+L?\)")


class Default(Enum):
    """The keyword DEFAULT in place of a value: the column's default value."""

    VALUE = "DEFAULT"


Value = Column | Default
Assignments = tuple[tuple[str, Value], ...]


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
    def action_name(self) -> str:
        """The name of the action for errors."""
        return self.action.upper()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """A plan whose columns expressions may refer to."""

    plan: Any

    def columns(self, hidden: Collection[str] = ()) -> list[str]:
        """The names of the plan's columns except the `hidden` ones, for messages."""
        found = items(self.plan.output())
        return [str(each.sql()) for each in found if str(each.name()) not in hidden]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedValues:
    """Expressions resolved in a scope, each with a name.

    `types` has None for a type that tables cannot have.  `is_plain` is false when they need more
    than one row at a time: aggregates, windows, generators.  `needs` is then the first plan node
    that they need, such as `Window`.  `has_queries` means that they have subqueries.
    """

    listed: Any = field(hash=False)  # a Scala sequence of Alias
    types: Mapping[str, DataType | None] = field(hash=False)
    is_plain: bool
    needs: str | None = None
    has_queries: bool = False

    def expression(self, name: str) -> Any:
        """The Catalyst expression of that name."""
        return self.listed.apply(list(self.types).index(name)).child()


def scope_of(frame: DataFrame) -> Scope:
    """The scope of expressions over a DataFrame."""
    return Scope(plan=analyzed_plan(frame))


def named_scope(jvm: JvmSession, frame: DataFrame, parts: Sequence[str]) -> Scope:
    """As `scope_of`, with columns qualified by a table name; it may have several parts."""
    return Scope(plan=named_plan(jvm, analyzed_plan(frame), parts))


def joined_scope(jvm: JvmSession, source: Scope, target: Scope) -> Scope:
    """The columns of both scopes, which have none in common."""
    return Scope(plan=_join(jvm, source, target, "Inner", jvm.none()))


def find(
    jvm: JvmSession,
    scope: Scope,
    named: Mapping[str, Column],
    texts: Mapping[str, str],
    moment: Moment,
) -> ResolvedValues:
    """Resolve columns and SQL texts over a scope in one analysis; `moment` is their current time.

    Raises Spark's AnalysisException for an expression that is invalid there.
    """
    listed = _concatenated(jvm, [_parsed(jvm, texts)] if texts else [], _aliases(jvm, named))
    names = [*texts, *named]
    plan = _projected(jvm, listed, scope.plan)
    is_plain = plan.nodeName() == "Project" and plan.projectList().size() == len(names)
    is_plain = is_plain and plan.child().fastEquals(scope.plan)
    if not is_plain:
        types = dict.fromkeys(names)
        return ResolvedValues(listed=None, types=types, is_plain=False, needs=_needed(plan, scope))
    fields = json.loads(plan.schema().json())["fields"]
    types = {name: type_of_json(f["type"]) for name, f in zip(names, fields, strict=True)}
    return ResolvedValues(
        listed=moment.fixed(plan).projectList(),
        types=types,
        is_plain=True,
        has_queries=not plan.subqueries().isEmpty(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A column of the target, and the source expression that it equals in matching pairs."""

    name: str
    target: Column = field(hash=False)
    source: Column = field(hash=False)


def key_pairs(jvm: JvmSession, source: Scope, target: Scope, condition: Column) -> list[KeyPair]:
    """The conjuncts that compare a plain column of the target, by `=`."""
    on = jvm.some(expression_of(jvm, condition))
    keys = jvm.java_class("org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys$")
    found = keys.unapply(_join(jvm, source, target, "Inner", on))
    if not found.isDefined():
        return []
    pairs = zip(items(found.get()._2()), items(found.get()._3()), strict=True)
    return [
        KeyPair(name=str(own.name()), target=column_of(jvm, own), source=column_of(jvm, other))
        for other, own in pairs
        if own.nodeName() == _ATTRIBUTE
    ]


def values_of(jvm: JvmSession, rows: DataFrame, most: int) -> list[Any]:
    """The values of each column of a frame as a Scala set; None for more than `most` values.

    One task reads the rows; null does not count as a value.
    """
    texts = [f"collect_set({quoted_name(name)}) AS found" for name in rows.columns]
    sets = rows.coalesce(1).selectExpr(*texts).toDF(*[f"v{i}" for i in range(len(texts))])
    short = [f"IF(size(v{i}) <= {most}, v{i}, NULL) AS v{i}" for i in range(len(texts))]
    query = sets.selectExpr(*short)._jdf.queryExecution()
    (row,) = query.executedPlan().executeCollect()
    found: list[Any] = []
    for i, each in enumerate(items(query.analyzed().output())):
        if row.isNullAt(i):
            found.append(None)
            continue
        values = row.getArray(i).toObjectArray(each.dataType().elementType())
        listed = jvm.static("java.util.Arrays", "asList")(values)
        found.append(jvm.static(_PYTHON_UTILS, "toSeq")(listed).toSet())
    return found


def is_in(jvm: JvmSession, column: Column, values: Any) -> Column:
    """Whether a column's value is in a Scala set of Catalyst values."""
    return column_of(jvm, jvm.expression_class("InSet")(expression_of(jvm, column), values))


def key_filters(jvm: JvmSession, pairs: Sequence[KeyPair], values: Sequence[Any]) -> list[Filter]:
    """Filters on the target for rows that can match: keys are in the sets of `values_of`."""
    known = zip(pairs, values, strict=True)
    listed = [is_in(jvm, pair.target, each) for pair, each in known if each is not None]
    return filters_of(jvm, jvm.seq([expression_of(jvm, each) for each in listed]))


def filters_on(jvm: JvmSession, condition: Any, scope: Scope) -> list[Filter]:
    """The conjuncts of a condition that refer only to one scope."""
    return filters_of(jvm, jvm.seq(_parts_on(condition, scope.plan.outputSet())))


def _parts_on(condition: Any, own: Any) -> list[Any]:
    if condition.nodeName() == "And":
        return _parts_on(condition.left(), own) + _parts_on(condition.right(), own)
    return [condition] if condition.references().subsetOf(own) else []


def is_deterministic_value(expression: Any) -> bool:
    """Whether an expression has the same value for the same row each time."""
    return bool(expression.deterministic())


def has_subquery(jvm: JvmSession, expression: Any) -> bool:
    """Whether an expression has a subquery."""
    return bool(jvm.expression_class("SubqueryExpression$").hasSubquery(expression))


def columns_in_scope(expression: Any, scope: Scope) -> list[str]:
    """The columns of a scope that an expression refers to."""
    found = items(expression.references().toSeq())
    own = scope.plan.outputSet()
    return sorted({str(each.name()) for each in found if own.contains(each)})


def condition_texts(
    jvm: JvmSession, scopes: Sequence[Scope], conditions: Mapping[str, Any]
) -> dict[str, str]:
    """Conditions as text for the history, after Spark's optimizer, as in delta-spark.

    They are optimized over a leaf with the columns of the scopes: what the real plans know of the
    values must not get into the text.
    """
    plain = {name: _text(each) for name, each in conditions.items()}
    if all(map(_KEYS.fullmatch, plain.values())):
        return plain
    output = _concatenated(jvm, [scope.plan.output() for scope in scopes])
    one_row = jvm.plan_class("OneRowRelation")()
    leaf = jvm.plan_class("CommandResult")(output, one_row, None, jvm.seq([]))
    listed = jvm.seq([alias_of(jvm, each, name) for name, each in conditions.items()])
    plan = jvm.state.optimizer().execute(jvm.plan_class("Project")(listed, leaf))
    # Code unknown to Spark is extracted from the projection.
    if plan.nodeName() != "Project" or plan.child().nodeName() != leaf.nodeName():
        return plain
    found = items(plan.projectList())
    return {name: _text(each.child()) for name, each in zip(conditions, found, strict=True)}


def _text(expression: Any) -> str:
    return str(expression.simpleString(_MOST_FIELDS))


def sql_of(jvm: JvmSession, column: Column) -> str:
    """The SQL text of an expression, as a user could have written it."""
    return str(expression_of(jvm, column).sql())


def as_target_column(
    jvm: JvmSession, column: Column, scope: Scope, own: Sequence[Any], table: Sequence[str]
) -> Column:
    """Resolve a column of another DataFrame over the target, such as `DeltaTable.toDF()`, by name.

    `own` are the column sets of such frames, `table` is the target's name.  Columns of the scope,
    and of unknown frames, stay as they are.
    """
    known = scope.plan.outputSet()
    unresolved = jvm.java_class("org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute")

    def by_name(node: Any) -> Any:
        if node.nodeName() != _ATTRIBUTE or known.contains(node):
            return node
        if not any(each.contains(node) for each in own):
            return node
        return unresolved(jvm.seq([*table, str(node.name())]))

    return column_of(jvm, transformed(jvm, expression_of(jvm, column), by_name))


def shared_columns(source: Scope, own: Sequence[Any]) -> list[Any]:
    """The columns of a source that frames over the target have too, as sets."""
    found = [source.plan.outputSet().intersect(each) for each in own]
    return [each for each in found if not each.isEmpty()]


def name_among(jvm: JvmSession, column: Column, sets: Sequence[Any]) -> str | None:
    """The name of a column in an expression that is in one of the sets; None if none is."""
    found: list[str] = []

    def look(node: Any) -> Any:
        if node.nodeName() == _ATTRIBUTE and any(each.contains(node) for each in sets):
            found.append(str(node.sql()))
        return node

    transformed(jvm, expression_of(jvm, column), look)
    return found[0] if found else None


class JoinedRows:
    """The join of a source and a target, and projections of its rows."""

    def __init__(self, jvm: JvmSession, plan: Any, listed: Sequence[Any]) -> None:
        """`listed` are sequences of named expressions over the plan."""
        self._jvm = jvm
        self._plan = plan
        self._listed = _concatenated(jvm, listed)

    @classmethod
    def join(
        cls,
        jvm: JvmSession,
        source: Scope,
        target: Scope,
        kind: str,
        condition: Any,
        found: Sequence[ResolvedValues],
        *,
        broadcasts_source: bool = False,
        broadcasts_target: bool = False,
    ) -> JoinedRows:
        """Join by a resolved condition; `kind` is Inner, LeftOuter or LeftAnti.

        A small source can be broadcast, but not for LeftOuter.  For LeftAnti it is then read twice,
        first to find the target rows with any match.
        """
        hint, on = None, jvm.some(condition)
        if broadcasts_source and kind == "LeftAnti":
            right = _broadcast(jvm, left=False)
            target = Scope(plan=_join(jvm, target, _uncounted(source), "LeftSemi", on, right))
        elif broadcasts_source or broadcasts_target:
            hint = _broadcast(jvm, left=broadcasts_source)
        plan = _join(jvm, source, target, kind, on, hint)
        return cls(jvm, plan, [each.listed for each in found if each.types])

    @classmethod
    def of(cls, jvm: JvmSession, scope: Scope, found: Sequence[ResolvedValues]) -> JoinedRows:
        """The rows of one side only."""
        return cls(jvm, scope.plan, [each.listed for each in found if each.types])

    def with_values(self, values: Mapping[str, Column], moment: Moment) -> JoinedRows:
        """The same rows with more named expressions, made from resolved ones."""
        if not values:
            return self
        jvm = self._jvm
        listed = _concatenated(jvm, [self._listed], _aliases(jvm, values))
        plan = _projected(jvm, listed, self._plan)
        return JoinedRows(jvm, self._plan, [moment.fixed(plan).projectList()])

    def select(self, choice: str, choice_name: str, texts: Mapping[str, str]) -> DataFrame:
        """Select `choice`, then `texts`, which may use it; rows with a null choice are left out.

        Texts are SQL over the names of resolved expressions.
        """
        jvm = self._jvm
        project = jvm.plan_class("Project")
        chosen = self._cleaned({choice_name: choice}, self._plan, self._listed)
        first = project(self._plan.output().appendedAll(chosen), self._plan)
        attribute = chosen.head().toAttribute()
        is_chosen = jvm.expression_class("IsNotNull")(attribute)
        filtered = jvm.plan_class("Filter")(is_chosen, first)
        made = self._cleaned(texts, filtered, self._listed.appended(attribute))
        return plan_frame(jvm, project(made, filtered))

    def _cleaned(self, texts: Mapping[str, str], plan: Any, listed: Any) -> Any:
        """Texts over a plan, with names replaced by their expressions."""
        jvm = self._jvm
        lower = jvm.plan_class("Project")(listed, plan)
        found = _projected(jvm, _parsed(jvm, texts), lower)
        rule = jvm.java_class("org.apache.spark.sql.catalyst.optimizer.CollapseProject$")
        return rule.buildCleanedProjectList(found.projectList(), found.child().projectList())


def _needed(plan: Any, scope: Scope) -> str | None:
    """The plan node over a scope for values that need many rows or make many, if any."""
    while plan.nodeName() not in _OF_MANY_ROWS and not plan.fastEquals(scope.plan):
        below = plan.children()
        if below.size() != 1:
            return None
        plan = below.head()
    return str(plan.nodeName())


def _parsed(jvm: JvmSession, texts: Mapping[str, str]) -> Any:
    """SQL texts with names, as a Scala sequence of unresolved expressions."""
    select = ", ".join(f"{text} AS {quoted_name(name)}" for name, text in texts.items())
    return jvm.parser.parsePlan(f"SELECT {select}").projectList()


def _projected(jvm: JvmSession, listed: Any, plan: Any) -> Any:
    return analyzed_plan(plan_frame(jvm, jvm.plan_class("Project")(listed, plan)))


def _aliases(jvm: JvmSession, named: Mapping[str, Column]) -> list[Any]:
    return [alias_of(jvm, expression_of(jvm, each), name) for name, each in named.items()]


def _join(
    jvm: JvmSession, left: Scope, right: Scope, kind: str, condition: Any, hint: Any = None
) -> Any:
    join_type = jvm.java_class(f"org.apache.spark.sql.catalyst.plans.{kind}$")
    if hint is None:
        hint = jvm.plan_class("JoinHint$").NONE()
    return jvm.plan_class("Join")(left.plan, right.plan, join_type, condition, hint)


def _broadcast(jvm: JvmSession, *, left: bool) -> Any:
    hint = jvm.some(jvm.plan_class("HintInfo")(jvm.some(jvm.plan_class("BROADCAST$"))))
    sides = (hint, jvm.none()) if left else (jvm.none(), hint)
    return jvm.plan_class("JoinHint$").apply(*sides)


def _uncounted(source: Scope) -> Scope:
    """A source without the observation that counts its rows, which must not count twice."""
    plan = source.plan
    return Scope(plan=plan.child()) if plan.nodeName() == "CollectMetrics" else source


def _concatenated(jvm: JvmSession, sequences: Sequence[Any], more: Sequence[Any] = ()) -> Any:
    """Scala sequences one after the other, and then more items."""
    whole = jvm.seq(more)
    for each in reversed(sequences):
        whole = whole.prependedAll(each)
    return whole
