"""Reads UPDATE, DELETE, MERGE and TRUNCATE from the plans of Spark's own parser.

Nothing is resolved here: expressions come as unresolved columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from pyspark.sql import Column, DataFrame

from pyspark_delta.kernel.sql.quoting import quoted_name
from pyspark_delta.spark.jvm.catalog.path_catalog import PATH_CATALOG, PATH_DATABASE
from pyspark_delta.spark.jvm.expressions.catalyst import column_of, transformed
from pyspark_delta.spark.jvm.gateway import JvmSession, items
from pyspark_delta.spark.jvm.parser.parameters import parsed_plan
from pyspark_delta.spark.jvm.plans.frames import plan_frame

_WITH = "UnresolvedWith"
_DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedTarget:
    """The table that a statement changes, and its alias; None if it has none."""

    name: tuple[str, ...]
    alias: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedAssignment:
    """A column or field by its name, each part quoted, and its value; None is DEFAULT."""

    name: str
    value: Column | None = field(hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedUpdate:
    """`UPDATE target SET ... [WHERE ...]`; a DEFAULT value is a column of that name."""

    target: ParsedTarget
    assignments: tuple[tuple[str, Column], ...] = field(hash=False)
    condition: Column | None = field(hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedDelete:
    """`DELETE FROM target [WHERE ...]`; the literal condition true counts as none."""

    target: ParsedTarget
    condition: Column | None = field(hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedClause:
    """One WHEN clause; `assignments` is None for a star, and a DELETE has no assignments."""

    kind: Literal["matched", "not matched", "not matched by source"]
    action: Literal["update", "delete", "insert"]
    condition: Column | None = field(hash=False)
    assignments: tuple[ParsedAssignment, ...] | None = field(hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedMerge:
    """`MERGE INTO target USING source ON condition` and its clauses."""

    target: ParsedTarget
    condition: Column = field(hash=False)
    clauses: tuple[ParsedClause, ...]
    evolves: bool
    source: Any = field(repr=False, hash=False)

    def source_rows(self, jvm: JvmSession) -> DataFrame:
        """The rows of the source; its names are resolved by this call."""
        return plan_frame(jvm, self.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedTruncate:
    """`TRUNCATE TABLE target`; `has_partition` means that it has a PARTITION clause."""

    target: ParsedTarget
    has_partition: bool


ParsedChange = ParsedUpdate | ParsedDelete | ParsedMerge | ParsedTruncate


def parse_change(jvm: JvmSession, sql: str, args: Any = None) -> ParsedChange | None:
    """Parse the statement in `sql`; None for another kind, or a table without a plain name."""
    return read_change(jvm, parsed_plan(jvm, sql, args))


def read_change(jvm: JvmSession, plan: Any) -> ParsedChange | None:
    """The statement of a plan that is not resolved; None as in `parse_change`."""
    queries = None
    if _kind(plan) == _WITH:
        queries, plan = plan, plan.child()
    read = _READERS.get(_kind(plan))
    return None if read is None else read(jvm, plan, queries)


def target_of(plan: Any) -> ParsedTarget | None:
    """The name of an unresolved table, with its alias if it has one."""
    alias = None
    if _kind(plan) == "SubqueryAlias":
        alias, plan = str(plan.alias()), plan.child()
    if _kind(plan) not in ("UnresolvedRelation", "UnresolvedTable"):
        return None
    parts = tuple(map(str, items(plan.multipartIdentifier())))
    if len(parts) == 2 and parts[0] == PATH_CATALOG:
        parts = (PATH_DATABASE, parts[1])
    return ParsedTarget(name=parts, alias=alias)


def with_queries(jvm: JvmSession, queries: Any, plan: Any) -> Any:
    """A query with the CTEs that precede the statement; `queries` is None if there are none."""
    return plan if queries is None else queries.withNewChildren(jvm.seq([plan]))


def is_default(expression: Any) -> bool:
    """Whether it is the bare keyword DEFAULT."""
    if expression.nodeName() != "UnresolvedAttribute":
        return False
    parts = expression.nameParts()
    return parts.size() == 1 and str(parts.head()).lower() == _DEFAULT


def _update(jvm: JvmSession, plan: Any, queries: Any) -> ParsedUpdate | None:
    target = target_of(plan.table())
    if target is None:
        return None
    return ParsedUpdate(
        target=target,
        assignments=tuple(
            (_name(each.key()), column_of(jvm, _with_queries_inside(jvm, queries, each.value())))
            for each in items(plan.assignments())
        ),
        condition=_condition(jvm, plan.condition()),
    )


def _delete(jvm: JvmSession, plan: Any, queries: Any) -> ParsedDelete | None:
    target = target_of(plan.table())
    if target is None:
        return None
    asked = plan.condition()
    is_all = asked.nodeName() == "Literal" and str(asked.toString()) == "true"
    return ParsedDelete(target=target, condition=None if is_all else column_of(jvm, asked))


def _merge(jvm: JvmSession, plan: Any, queries: Any) -> ParsedMerge | None:
    target = target_of(plan.targetTable())
    if target is None:
        return None
    return ParsedMerge(
        target=target,
        condition=column_of(jvm, plan.mergeCondition()),
        clauses=tuple(_clauses(jvm, plan)),
        evolves=bool(plan.withSchemaEvolution()),
        source=with_queries(jvm, queries, plan.sourceTable()),
    )


def _truncate(jvm: JvmSession, plan: Any, queries: Any) -> ParsedTruncate | None:
    target = target_of(plan.table())
    if target is None:
        return None
    return ParsedTruncate(target=target, has_partition=_kind(plan) == "TruncatePartition")


_READERS: dict[str, Callable[[JvmSession, Any, Any], ParsedChange | None]] = {
    "UpdateTable": _update,
    "DeleteFromTable": _delete,
    "MergeIntoTable": _merge,
    "TruncateTable": _truncate,
    "TruncatePartition": _truncate,
}
_ACTIONS: dict[str, Literal["update", "delete", "insert"]] = {
    "UpdateAction": "update",
    "UpdateStarAction": "update",
    "DeleteAction": "delete",
    "InsertAction": "insert",
    "InsertStarAction": "insert",
}


def _clauses(jvm: JvmSession, plan: Any) -> Iterator[ParsedClause]:
    for action in items(plan.matchedActions()):
        yield _clause(jvm, "matched", action)
    for action in items(plan.notMatchedActions()):
        yield _clause(jvm, "not matched", action)
    for action in items(plan.notMatchedBySourceActions()):
        yield _clause(jvm, "not matched by source", action)


def _clause(
    jvm: JvmSession, kind: Literal["matched", "not matched", "not matched by source"], action: Any
) -> ParsedClause:
    name = _kind(action)
    assignments: tuple[ParsedAssignment, ...] | None = ()
    if name in ("UpdateAction", "InsertAction"):
        assignments = tuple(
            ParsedAssignment(name=_name(each.key()), value=_value(jvm, each.value()))
            for each in items(action.assignments())
        )
    elif name != "DeleteAction":
        assignments = None
    return ParsedClause(
        kind=kind,
        action=_ACTIONS[name],
        condition=_condition(jvm, action.condition()),
        assignments=assignments,
    )


def _with_queries_inside(jvm: JvmSession, queries: Any, expression: Any) -> Any:
    """An expression whose subqueries can use the CTEs that precede the statement."""
    if queries is None:
        return expression

    def with_queries_below(node: Any) -> Any:
        if _kind(node) not in ("ScalarSubquery", "Exists", "ListQuery"):
            return node
        return node.withNewPlan(with_queries(jvm, queries, node.plan()))

    return transformed(jvm, expression, with_queries_below)


def _value(jvm: JvmSession, expression: Any) -> Column | None:
    return None if is_default(expression) else column_of(jvm, expression)


def _condition(jvm: JvmSession, asked: Any) -> Column | None:
    return column_of(jvm, asked.get()) if asked.isDefined() else None


def _name(key: Any) -> str:
    return ".".join(quoted_name(str(part)) for part in items(key.nameParts()))


def _kind(plan: Any) -> str:
    return str(plan.getClass().getSimpleName())
