"""Spark's parser with a statement's arguments, and UPDATE, DELETE, MERGE and TRUNCATE in its plans.

Nothing is resolved here: expressions come as unresolved columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_delta.kernel.sql.quoting import quoted_name
from pyspark_delta.spark.jvm.catalog.path_catalog import PATH_CATALOG, PATH_DATABASE
from pyspark_delta.spark.jvm.expressions.catalyst import (
    column_of,
    constant,
    expression_of,
    transformed,
)
from pyspark_delta.spark.jvm.failures import analysis_error
from pyspark_delta.spark.jvm.gateway import JvmSession, items, option_value, simple_name
from pyspark_delta.spark.jvm.plans.frames import plan_frame
from pyspark_delta.spark.jvm.plans.merge import (
    ClauseAction,
    ClauseKind,
    Default,
    MergeClause,
    Value,
)

_PARSER = "org.apache.spark.sql.catalyst.parser"
_WITH = "UnresolvedWith"
_DEFAULT = "default"
_ACTIONS: dict[str, ClauseAction] = {
    "UpdateAction": "update",
    "UpdateStarAction": "update",
    "DeleteAction": "delete",
    "InsertAction": "insert",
    "InsertStarAction": "insert",
}


def are_arguments(args: object) -> bool:
    """Whether these are valid arguments of a statement; Spark raises for others."""
    return args is None or isinstance(args, (dict, list))


def parsed_plan(jvm: JvmSession, sql: str, args: Any = None) -> Any:
    """The unresolved plan of a statement; Spark's ParseException for a syntax error.

    `args` are values by name, or in the order of their placeholders.
    """
    parser = jvm.parser
    if not args:
        return parser.parsePlan(sql)
    return parser.parsePlanWithParameters(sql, _context(jvm, args))


def substituted(jvm: JvmSession, sql: str, args: Any) -> str:
    """A Spark statement with its arguments substituted, as Spark does it.

    Raises Spark's ParseException for a syntax error, an AnalysisException for a missing argument.
    """
    handler = jvm.java_class(f"{_PARSER}.ParameterHandler")
    return str(handler.substituteParameters(sql, _context(jvm, args))._1())


def literal_text(jvm: JvmSession, value: Any) -> str:
    """A value as a SQL literal."""
    return str(_literal(jvm, value).sql())


def constant_text(jvm: JvmSession, expression: str) -> str:
    """The text that an expression without columns evaluates to; Spark's error for another type."""
    found = expression_of(jvm, constant(jvm, F.expr(expression)))
    facts = {"name": "IDENTIFIER", "expr": f'"{expression.strip()}"'}
    if found.nodeName() != "Literal":
        raise analysis_error(jvm, "NOT_A_CONSTANT_STRING.NOT_CONSTANT", **facts)
    if found.value() is None:
        raise analysis_error(jvm, "NOT_A_CONSTANT_STRING.NULL", **facts)
    data_type = str(found.dataType().sql())
    if data_type != "STRING":
        facts["dataType"] = f'"{data_type}"'
        raise analysis_error(jvm, "NOT_A_CONSTANT_STRING.WRONG_TYPE", **facts)
    return str(found.value().toString())


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedTarget:
    """The table that a statement changes, and its alias; None if it has none."""

    name: tuple[str, ...]
    alias: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedUpdate:
    """`UPDATE target SET ... [WHERE ...]`; a DEFAULT value is a column of that name.

    Assignments have the name of a column or field, each part quoted, and its value.
    """

    target: ParsedTarget
    assignments: tuple[tuple[str, Column], ...] = field(hash=False)
    condition: Column | None = field(hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedDelete:
    """`DELETE FROM target [WHERE ...]`; the literal condition true counts as none."""

    target: ParsedTarget
    condition: Column | None = field(hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedMerge:
    """`MERGE INTO target USING source ON condition` and its clauses."""

    target: ParsedTarget
    condition: Column = field(hash=False)
    clauses: tuple[MergeClause, ...]
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
    if simple_name(plan) == _WITH:
        queries, plan = plan, plan.child()
    read = _READERS.get(simple_name(plan))
    return None if read is None else read(jvm, plan, queries)


def target_of(plan: Any) -> ParsedTarget | None:
    """The name of an unresolved table, with its alias if it has one."""
    alias = None
    if simple_name(plan) == "SubqueryAlias":
        alias, plan = str(plan.alias()), plan.child()
    if simple_name(plan) not in ("UnresolvedRelation", "UnresolvedTable"):
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


def _context(jvm: JvmSession, args: Any) -> Any:
    if isinstance(args, dict):
        named = {name: _literal(jvm, value) for name, value in args.items()}
        return jvm.java_class(f"{_PARSER}.NamedParameterContext")(jvm.scala_map(named))
    listed = jvm.seq([_literal(jvm, value) for value in args])
    return jvm.java_class(f"{_PARSER}.PositionalParameterContext")(listed)


def _literal(jvm: JvmSession, value: Any) -> Any:
    """A value as Catalyst's literal; an expression is evaluated."""
    found = expression_of(jvm, F.lit(value))
    if found.nodeName() == "Literal":
        return found
    return expression_of(jvm, constant(jvm, F.lit(value)))


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
    condition = plan.condition()
    is_all = condition.nodeName() == "Literal" and str(condition.toString()) == "true"
    return ParsedDelete(target=target, condition=None if is_all else column_of(jvm, condition))


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
    return ParsedTruncate(target=target, has_partition=simple_name(plan) == "TruncatePartition")


def _clauses(jvm: JvmSession, plan: Any) -> Iterator[MergeClause]:
    for action in items(plan.matchedActions()):
        yield _clause(jvm, "matched", action)
    for action in items(plan.notMatchedActions()):
        yield _clause(jvm, "not matched", action)
    for action in items(plan.notMatchedBySourceActions()):
        yield _clause(jvm, "not matched by source", action)


def _clause(jvm: JvmSession, kind: ClauseKind, action: Any) -> MergeClause:
    name = simple_name(action)
    assignments: tuple[tuple[str, Value], ...] | None = ()
    if name in ("UpdateAction", "InsertAction"):
        assignments = tuple(
            (_name(each.key()), _value(jvm, each.value())) for each in items(action.assignments())
        )
    elif name != "DeleteAction":
        assignments = None
    return MergeClause(
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
        if simple_name(node) not in ("ScalarSubquery", "Exists", "ListQuery"):
            return node
        return node.withNewPlan(with_queries(jvm, queries, node.plan()))

    return transformed(jvm, expression, with_queries_below)


def _value(jvm: JvmSession, expression: Any) -> Value:
    return Default.VALUE if is_default(expression) else column_of(jvm, expression)


def _condition(jvm: JvmSession, condition: Any) -> Column | None:
    found = option_value(condition)
    return None if found is None else column_of(jvm, found)


def _name(key: Any) -> str:
    return ".".join(quoted_name(str(part)) for part in items(key.nameParts()))


_READERS: dict[str, Callable[[JvmSession, Any, Any], ParsedChange | None]] = {
    "UpdateTable": _update,
    "DeleteFromTable": _delete,
    "MergeIntoTable": _merge,
    "TruncateTable": _truncate,
    "TruncatePartition": _truncate,
}
