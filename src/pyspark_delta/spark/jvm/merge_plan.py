"""Plans of a MERGE: expressions looked up where they may look, and put into one projection.

Expressions of a clause see the source, the target, or both.  Each group is analysed once over the
plan that it may see; then all of them stand, each under a name, below one projection whose text
calls them by these names.  Spark's own rule puts them into their places there, so that a value
is computed only where its clause applies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame

from pyspark_delta.errors.base import DeltaError
from pyspark_delta.kernel.protocol.schema_json import parse_type
from pyspark_delta.kernel.protocol.types import DataType
from pyspark_delta.spark.jvm.catalyst import column_of, expression_of
from pyspark_delta.spark.jvm.filters import Filter, filters_of
from pyspark_delta.spark.jvm.gateway import JvmSession, items
from pyspark_delta.spark.jvm.moments import Moment
from pyspark_delta.spark.jvm.plans import plan_frame
from pyspark_delta.spark.jvm.table_plan import quoted_name
from pyspark_delta.spark.jvm.tree_functions import transformed

_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions"
_PLANS = "org.apache.spark.sql.catalyst.plans.logical"
_PYTHON_UTILS = "org.apache.spark.api.python.PythonUtils"
_ATTRIBUTE = "AttributeReference"
_SHOWN_FIELDS = 25
_OF_MANY_ROWS = frozenset({"Aggregate", "Window", "Generate"})
# Two columns that are equal: the optimizer, which takes longer than all else here, leaves it so.
_KEYS = re.compile(r"\((\w+#\d+L?) = (?!\1\))\w+#\d+L?\)")


@dataclass(frozen=True, slots=True)
class Scope:
    """A plan whose columns expressions may name."""

    plan: Any

    def columns(self, hidden: Collection[str] = ()) -> list[str]:
        """The names of the plan's columns but the `hidden` ones, for messages."""
        found = items(self.plan.output())
        return [str(each.sql()) for each in found if str(each.name()) not in hidden]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Expressions that a scope could make sense of, each under its name.

    `types` has None for a type that no table has.  `is_plain` is false when they need more than
    the rows that they are looked up in, one by one: aggregates, windows, generators.  `needs` is
    then the first node of the plan that they need, such as `Window`.  `has_queries` says that
    queries stand in them.
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
    """What expressions over a DataFrame see."""
    return Scope(frame._jdf.queryExecution().analyzed())


def named_scope(jvm: JvmSession, frame: DataFrame, parts: Sequence[str]) -> Scope:
    """As `scope_of`, under the name of a table, all parts of which may stand before a column's."""
    plan = frame._jdf.queryExecution().analyzed()
    alias = jvm.java_class("org.apache.spark.sql.catalyst.AliasIdentifier")
    named = alias(parts[-1], jvm.seq(parts[:-1]))
    return Scope(jvm.java_class(f"{_PLANS}.SubqueryAlias$").apply(named, plan))


def joined_scope(jvm: JvmSession, source: Scope, target: Scope) -> Scope:
    """The columns of both; the two have none in common."""
    return Scope(_join(jvm, source, target, "Inner", jvm.none()))


def find(
    jvm: JvmSession,
    scope: Scope,
    named: Mapping[str, Column],
    texts: Mapping[str, str],
    moment: Moment,
) -> Found:
    """Look up columns, and SQL texts, over a scope, all in one analysis; `moment` is their time.

    Spark's AnalysisException when one of them makes no sense there.
    """
    own = [_alias(jvm, expression_of(jvm, each), name) for name, each in named.items()]
    listed = _concatenated(jvm, [_parsed(jvm, texts)] if texts else [], own)
    names = [*texts, *named]
    project = jvm.java_class(f"{_PLANS}.Project")(listed, scope.plan)
    plan = plan_frame(jvm, project)._jdf.queryExecution().analyzed()
    is_plain = plan.nodeName() == "Project" and plan.projectList().size() == len(names)
    is_plain = is_plain and plan.child().fastEquals(scope.plan)
    if not is_plain:
        types = dict.fromkeys(names)
        return Found(listed=None, types=types, is_plain=False, needs=_needed(plan, scope))
    fields = json.loads(plan.schema().json())["fields"]
    types = {name: _type(each["type"]) for name, each in zip(names, fields, strict=True)}
    return Found(
        listed=moment.fixed(plan).projectList(),
        types=types,
        is_plain=True,
        has_queries=not plan.subqueries().isEmpty(),
    )


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A column of the target, and what of the source it must be equal to for a pair to match."""

    name: str
    target: Column = field(hash=False)
    source: Column = field(hash=False)


def key_pairs(jvm: JvmSession, source: Scope, target: Scope, condition: Column) -> list[KeyPair]:
    """The parts of a condition that compare a column of the target as it is, by `=`."""
    on = jvm.some(expression_of(jvm, condition))
    keys = jvm.java_class("org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys$")
    found = keys.unapply(_join(jvm, source, target, "Inner", on))
    if not found.isDefined():
        return []
    pairs = zip(items(found.get()._2()), items(found.get()._3()), strict=True)
    return [
        KeyPair(str(own.name()), column_of(jvm, own), column_of(jvm, other))
        for other, own in pairs
        if own.nodeName() == _ATTRIBUTE
    ]


def values_of(jvm: JvmSession, rows: DataFrame, most: int) -> list[Any]:
    """For each column of a frame its values as a Scala set; None where there are more than `most`.

    The rows are looked at by one task, and null is no value.
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
    """Whether a column is one of the values of a Scala set, as Catalyst keeps them."""
    in_set = jvm.java_class(f"{_EXPRESSIONS}.InSet")
    return column_of(jvm, in_set(expression_of(jvm, column), values))


def key_filters(jvm: JvmSession, pairs: Sequence[KeyPair], values: Sequence[Any]) -> list[Filter]:
    """What a row of the target must fulfil to match: its keys are among sets of `values_of`."""
    known = zip(pairs, values, strict=True)
    listed = [is_in(jvm, pair.target, each) for pair, each in known if each is not None]
    return filters_of(jvm, jvm.seq([expression_of(jvm, each) for each in listed]))


def filters_on(jvm: JvmSession, condition: Any, scope: Scope) -> list[Filter]:
    """The parts of a condition that see a scope alone; all of them hold where it does."""
    return filters_of(jvm, jvm.seq(_parts_on(condition, scope.plan.outputSet())))


def _parts_on(condition: Any, own: Any) -> list[Any]:
    if condition.nodeName() == "And":
        return _parts_on(condition.left(), own) + _parts_on(condition.right(), own)
    return [condition] if condition.references().subsetOf(own) else []


def is_deterministic(expression: Any) -> bool:
    """Whether an expression gives the same for the same row each time."""
    return bool(expression.deterministic())


def has_subquery(jvm: JvmSession, expression: Any) -> bool:
    """Whether a query stands in an expression."""
    return bool(jvm.java_class(f"{_EXPRESSIONS}.SubqueryExpression$").hasSubquery(expression))


def named_columns(expression: Any, scope: Scope) -> list[str]:
    """The columns of a scope that an expression names."""
    found = items(expression.references().toSeq())
    own = scope.plan.outputSet()
    return sorted({str(each.name()) for each in found if own.contains(each)})


def shown_conditions(
    jvm: JvmSession, scopes: Sequence[Scope], conditions: Mapping[str, Any]
) -> dict[str, str]:
    """Conditions as delta-spark's history spells them: as Spark's optimizer leaves them.

    They stand over a leaf that has the columns of the scopes and nothing below: what the plans know
    of the values must not get into the text.
    """
    plain = {name: _shown(each) for name, each in conditions.items()}
    if all(map(_KEYS.fullmatch, plain.values())):
        return plain
    output = _concatenated(jvm, [scope.plan.output() for scope in scopes])
    one_row = jvm.java_class(f"{_PLANS}.OneRowRelation")()
    leaf = jvm.java_class(f"{_PLANS}.CommandResult")(output, one_row, None, jvm.seq([]))
    listed = jvm.seq([_alias(jvm, each, name) for name, each in conditions.items()])
    project = jvm.java_class(f"{_PLANS}.Project")(listed, leaf)
    plan = jvm.session.sessionState().optimizer().execute(project)
    # Code that Spark does not know is taken out of the projection.
    if plan.nodeName() != "Project" or plan.child().nodeName() != leaf.nodeName():
        return plain
    found = items(plan.projectList())
    return {name: _shown(each.child()) for name, each in zip(conditions, found, strict=True)}


def _shown(expression: Any) -> str:
    return str(expression.simpleString(_SHOWN_FIELDS))


def sql_of(jvm: JvmSession, column: Column) -> str:
    """An expression as a user could have written it."""
    return str(expression_of(jvm, column).sql())


def as_target_column(
    jvm: JvmSession, column: Column, scope: Scope, own: Sequence[Any], table: Sequence[str]
) -> Column:
    """A column of another DataFrame over the target, `DeltaTable.toDF()` say, found by its name.

    `own` are the sets of columns that such frames have, `table` is what the target is called.
    Columns of the scope, and of frames that nobody knows, stay as they are.
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
    """Sets of those columns of a source that frames over the target have, too."""
    found = [source.plan.outputSet().intersect(each) for each in own]
    return [each for each in found if not each.isEmpty()]


def name_among(jvm: JvmSession, column: Column, sets: Sequence[Any]) -> str | None:
    """The name of a column in an expression that is in one of the sets; None when none is."""
    found: list[str] = []

    def look(node: Any) -> Any:
        if node.nodeName() == _ATTRIBUTE and any(each.contains(node) for each in sets):
            found.append(str(node.sql()))
        return node

    transformed(jvm, expression_of(jvm, column), look)
    return found[0] if found else None


class JoinedRows:
    """A join of a source with a target, and what is made of its rows."""

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
        found: Sequence[Found],
        *,
        broadcasts_source: bool = False,
        broadcasts_target: bool = False,
    ) -> JoinedRows:
        """Join by a condition that was looked up; `kind` is Inner, LeftOuter or LeftAnti.

        A small source can be sent to every task: not for LeftOuter, and for LeftAnti it is asked
        twice, first for the rows of the target that match at all.
        """
        hint, on = None, jvm.some(condition)
        if broadcasts_source and kind == "LeftAnti":
            target = Scope(_join(jvm, target, _uncounted(source), "LeftSemi", on, _right(jvm)))
        elif broadcasts_source:
            hint = _left(jvm)
        elif broadcasts_target:
            hint = _right(jvm)
        plan = _join(jvm, source, target, kind, on, hint)
        return cls(jvm, plan, [each.listed for each in found if each.types])

    @classmethod
    def of(cls, jvm: JvmSession, scope: Scope, found: Sequence[Found]) -> JoinedRows:
        """The rows of one side alone."""
        return cls(jvm, scope.plan, [each.listed for each in found if each.types])

    def with_values(self, values: Mapping[str, Column], moment: Moment) -> JoinedRows:
        """The same rows with more named expressions, made of those that were looked up."""
        if not values:
            return self
        jvm = self._jvm
        more = [_alias(jvm, expression_of(jvm, each), name) for name, each in values.items()]
        listed = _concatenated(jvm, [self._listed], more)
        project = jvm.java_class(f"{_PLANS}.Project")(listed, self._plan)
        plan = plan_frame(jvm, project)._jdf.queryExecution().analyzed()
        return JoinedRows(jvm, self._plan, [moment.fixed(plan).projectList()])

    def select(self, choice: str, choice_name: str, texts: Mapping[str, str]) -> DataFrame:
        """First `choice`, then `texts`, which may name it; rows whose choice is null are left out.

        Texts are SQL over the names of what was looked up.
        """
        jvm = self._jvm
        project = jvm.java_class(f"{_PLANS}.Project")
        chosen = self._cleaned({choice_name: choice}, self._plan, self._listed)
        first = project(self._plan.output().appendedAll(chosen), self._plan)
        attribute = chosen.head().toAttribute()
        is_chosen = jvm.java_class(f"{_EXPRESSIONS}.IsNotNull")(attribute)
        filtered = jvm.java_class(f"{_PLANS}.Filter")(is_chosen, first)
        made = self._cleaned(texts, filtered, self._listed.appended(attribute))
        plan = project(made, filtered)
        return plan_frame(jvm, plan)

    def _cleaned(self, texts: Mapping[str, str], plan: Any, listed: Any) -> Any:
        """Texts over a plan, with what the names in them stand for in their places."""
        jvm = self._jvm
        project = jvm.java_class(f"{_PLANS}.Project")
        upper = project(_parsed(jvm, texts), project(listed, plan))
        found = plan_frame(jvm, upper)._jdf.queryExecution().analyzed()
        rule = jvm.java_class("org.apache.spark.sql.catalyst.optimizer.CollapseProject$")
        return rule.buildCleanedProjectList(found.projectList(), found.child().projectList())


def _needed(plan: Any, scope: Scope) -> str | None:
    """The node over a scope that makes its values of many rows, or many rows of its values."""
    while plan.nodeName() not in _OF_MANY_ROWS and not plan.fastEquals(scope.plan):
        below = plan.children()
        if below.size() != 1:
            return None
        plan = below.head()
    return str(plan.nodeName())


def _parsed(jvm: JvmSession, texts: Mapping[str, str]) -> Any:
    """SQL texts, each under its name, as a Scala sequence of unresolved expressions."""
    select = ", ".join(f"{text} AS {quoted_name(name)}" for name, text in texts.items())
    return jvm.session.sessionState().sqlParser().parsePlan(f"SELECT {select}").projectList()


def _join(
    jvm: JvmSession, left: Scope, right: Scope, kind: str, condition: Any, hint: Any = None
) -> Any:
    join_type = jvm.java_class(f"org.apache.spark.sql.catalyst.plans.{kind}$")
    if hint is None:
        hint = jvm.java_class(f"{_PLANS}.JoinHint$").NONE()
    return jvm.java_class(f"{_PLANS}.Join")(left.plan, right.plan, join_type, condition, hint)


def _uncounted(source: Scope) -> Scope:
    """A source whose rows are not counted a second time."""
    plan = source.plan
    return Scope(plan.child()) if plan.nodeName() == "CollectMetrics" else source


def _left(jvm: JvmSession) -> Any:
    return jvm.java_class(f"{_PLANS}.JoinHint$").apply(jvm.some(_broadcast(jvm)), jvm.none())


def _right(jvm: JvmSession) -> Any:
    return jvm.java_class(f"{_PLANS}.JoinHint$").apply(jvm.none(), jvm.some(_broadcast(jvm)))


def _broadcast(jvm: JvmSession) -> Any:
    strategy = jvm.java_class(f"{_PLANS}.BROADCAST$")
    return jvm.java_class(f"{_PLANS}.HintInfo")(jvm.some(strategy))


def _alias(jvm: JvmSession, child: Any, name: str) -> Any:
    identity = jvm.java_class(f"{_EXPRESSIONS}.NamedExpression$").newExprId()
    nothing = jvm.seq([])
    alias = jvm.java_class(f"{_EXPRESSIONS}.Alias")
    return alias(child, name, identity, nothing, jvm.none(), nothing)


def _concatenated(jvm: JvmSession, sequences: Sequence[Any], more: Sequence[Any] = ()) -> Any:
    """Scala sequences one after the other, and then more items."""
    whole = jvm.seq(more)
    for each in reversed(sequences):
        whole = whole.prependedAll(each)
    return whole


def _type(spelled: Any) -> DataType | None:
    try:
        return parse_type(spelled)
    except DeltaError:
        return None
