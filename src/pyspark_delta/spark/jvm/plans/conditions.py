"""Resolved conditions on a table's rows: their columns, text, and determinism."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame

from pyspark_delta.spark.jvm.expressions.catalyst import Filter, filters_of
from pyspark_delta.spark.jvm.gateway import JvmSession, analyzed_plan, items

# Constants in plans for conditions that are never true.
_NEVER = frozenset({"false", "null"})
# The nodes that Spark puts below a SELECT for window functions and generators.
_OF_MANY_ROWS = frozenset({"Window", "Generate"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition over a DataFrame.

    `columns` are the columns in it, and `sql` is Spark's text of it.  `filter` is the condition
    with constants evaluated, and `text` is how plans show that; None when it is never true.
    `is_steady` means that a second query finds the same rows: conditions on the current time, on
    other tables, or with code unknown to Spark may not.  `has_only_exists` means that all its
    subqueries are EXISTS.
    """

    columns: tuple[str, ...]
    sql: str
    text: str
    has_subquery: bool
    filter: Filter | None = field(hash=False)
    is_deterministic: bool = True
    is_steady: bool = True
    has_only_exists: bool = False


def resolved_condition(jvm: JvmSession, rows: DataFrame, condition: Column) -> Condition:
    """Resolve a condition over `rows`, the plain scan of a table; no job runs.

    Raises Spark's AnalysisException for an invalid condition.
    """
    analyzed = analyzed_plan(rows.where(condition))
    # Over a condition on `_metadata` Spark adds a projection to the columns that are not hidden.
    kept = analyzed if analyzed.nodeName() == "Filter" else analyzed.child()
    written = kept.condition()
    has_subquery = not kept.subqueries().isEmpty()
    found = written if has_subquery else _optimized(rows, condition)
    is_never = found.nodeName() == "Literal" and str(found.toString()) in _NEVER
    return Condition(
        columns=tuple(each.name() for each in items(written.references().toSeq())),
        sql=str(written.sql()),
        text=str(found.toString()),
        has_subquery=has_subquery,
        filter=None if is_never else filters_of(jvm, jvm.seq([found]))[0],
        is_deterministic=bool(written.deterministic()),
        is_steady=not has_subquery and not written.containsAnyPattern(_unsteady(jvm)),
        has_only_exists=has_subquery and _has_only_exists(jvm, written),
    )


def _optimized(rows: DataFrame, condition: Column) -> Any:
    """The condition after the optimizer, as a value in a projection.

    In a filter, Spark would add that its columns are not null.
    """
    plan = rows.select(condition.alias("condition"))._jdf.queryExecution().optimizedPlan()
    return plan.expressions().head().child()


def _has_only_exists(jvm: JvmSession, expression: Any) -> bool:
    """Whether all subqueries of an expression are those of EXISTS."""
    if expression.nodeName() == "Exists":
        return True
    subquery = _patterns(jvm).PLAN_EXPRESSION()
    below = [each for each in items(expression.children()) if each.containsPattern(subquery)]
    if not below:
        return not expression.containsPattern(subquery)
    return all(_has_only_exists(jvm, each) for each in below)


def is_deterministic_query(data: DataFrame) -> bool:
    """Whether a query is deterministic: its values depend only on its rows."""
    return bool(analyzed_plan(data).deterministic())


def other_rows_needed(data: DataFrame) -> str | None:
    """The plan node for values that need many rows, such as `Window`; None if there is none."""
    plan = analyzed_plan(data)
    while plan.nodeName() not in _OF_MANY_ROWS:
        below = plan.children()
        if below.size() != 1:
            return None
        plan = below.head()
    return str(plan.nodeName())


def is_repeatable(jvm: JvmSession, data: DataFrame) -> bool:
    """Whether a second query over the same rows gives the same values."""
    plan = analyzed_plan(data)
    if not plan.deterministic() or plan.containsAnyPattern(_unsteady(jvm)):
        return False
    # Subqueries of all nodes count; they are not inspected.
    return bool(plan.subqueriesAll().isEmpty())


def _unsteady(jvm: JvmSession) -> Any:
    """The kinds of expressions that may have another value in the next query."""
    kinds = _patterns(jvm)
    return jvm.remembered(
        f"{__name__} unsteady",
        lambda: jvm.seq([kinds.CURRENT_LIKE(), kinds.PYTHON_UDF(), kinds.SCALA_UDF()]),
    )


def _patterns(jvm: JvmSession) -> Any:
    return jvm.java_class("org.apache.spark.sql.catalyst.trees.TreePattern$")
