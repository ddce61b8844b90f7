"""What a condition on a table's rows is made of, once Spark has looked its names up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame

from pyspark_delta.spark.jvm.filters import Filter, filters_of
from pyspark_delta.spark.jvm.gateway import JvmSession, items

# Constants that no row passes, as plans show them.
_NEVER = frozenset({"false", "null"})

_EXISTS = "Exists"

# What Spark puts below a SELECT for values that are made of many rows, or make many.
_OF_MANY_ROWS = frozenset({"Window", "Generate"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition over a DataFrame.

    `columns` are those that it names, `sql` is Spark's spelling of it.  `filter` says the same with
    constants computed, and `text` is how a plan shows that; it is None when no row can pass.
    `is_steady` says that a second query finds the same rows: what asks for the time, or other
    tables, or runs code that Spark does not know, may not.  `asks_existence` says that its
    subqueries are all asked for nothing but whether they have a row.
    """

    columns: tuple[str, ...]
    sql: str
    text: str
    has_subquery: bool
    filter: Filter | None = field(hash=False)
    is_deterministic: bool = True
    is_steady: bool = True
    asks_existence: bool = False


def resolved_condition(jvm: JvmSession, rows: DataFrame, condition: Column) -> Condition:
    """Look a condition up over `rows`, the plain scan of a table; no job runs.

    Spark's AnalysisException when it makes no sense there.
    """
    analyzed = rows.where(condition)._jdf.queryExecution().analyzed()
    # Over a condition that names `_metadata` Spark picks the columns that are not hidden.
    kept = analyzed if analyzed.nodeName() == "Filter" else analyzed.child()
    asked = kept.condition()
    has_subquery = not kept.subqueries().isEmpty()
    found = asked if has_subquery else _optimized(rows, condition)
    is_never = found.nodeName() == "Literal" and str(found.toString()) in _NEVER
    return Condition(
        columns=tuple(each.name() for each in items(asked.references().toSeq())),
        sql=str(asked.sql()),
        text=str(found.toString()),
        has_subquery=has_subquery,
        filter=None if is_never else filters_of(jvm, jvm.seq([found]))[0],
        is_deterministic=bool(asked.deterministic()),
        is_steady=not has_subquery and not asked.containsAnyPattern(_unsteady(jvm)),
        asks_existence=has_subquery and _asks_existence(jvm, asked),
    )


def _optimized(rows: DataFrame, condition: Column) -> Any:
    """The condition as the optimizer leaves it where it is a value.

    In a filter it would get company: that its columns are not null.
    """
    plan = rows.select(condition.alias("asked"))._jdf.queryExecution().optimizedPlan()
    return plan.expressions().head().child()


def _asks_existence(jvm: JvmSession, asked: Any) -> bool:
    """Whether all subqueries of an expression are those of EXISTS."""
    if asked.nodeName() == _EXISTS:
        return True
    below = [each for each in items(asked.children()) if _has_subquery(jvm, each)]
    if not below:
        return not _has_subquery(jvm, asked)
    return all(_asks_existence(jvm, each) for each in below)


def _has_subquery(jvm: JvmSession, asked: Any) -> bool:
    patterns = jvm.java_class("org.apache.spark.sql.catalyst.trees.TreePattern$")
    return bool(asked.containsPattern(patterns.PLAN_EXPRESSION()))


def is_deterministic(data: DataFrame) -> bool:
    """Whether the values of a query depend on its rows, and not on chance."""
    return bool(data._jdf.queryExecution().analyzed().deterministic())


def other_rows_needed(data: DataFrame) -> str | None:
    """The node over the rows of a query for values that no single row has, such as `Window`."""
    plan = data._jdf.queryExecution().analyzed()
    while plan.nodeName() not in _OF_MANY_ROWS:
        below = plan.children()
        if below.size() != 1:
            return None
        plan = below.head()
    return str(plan.nodeName())


def is_repeatable(jvm: JvmSession, data: DataFrame) -> bool:
    """Whether a second query over the same rows gives the same values."""
    plan = data._jdf.queryExecution().analyzed()
    if not plan.deterministic() or plan.containsAnyPattern(_unsteady(jvm)):
        return False
    # Those of every node: what a subquery asks is not looked through.
    return bool(plan.subqueriesAll().isEmpty())


def _unsteady(jvm: JvmSession) -> Any:
    """The kinds of expressions that may give another value to the next query."""
    patterns = jvm.java_class("org.apache.spark.sql.catalyst.trees.TreePattern$")
    names = ("CURRENT_LIKE", "PYTHON_UDF", "SCALA_UDF")
    return jvm.remembered(
        f"{__name__} unsteady", lambda: jvm.seq([getattr(patterns, name)() for name in names])
    )
