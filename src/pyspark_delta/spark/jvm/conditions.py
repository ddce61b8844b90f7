"""What a condition on a table's rows is made of, once Spark has looked its names up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame

from pyspark_delta.spark.jvm.filters import Filter, filters_of
from pyspark_delta.spark.jvm.gateway import JvmSession, items


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition over a DataFrame.

    `columns` are those that it names, `sql` is Spark's spelling of it.  `filters` together say the
    same, constants computed and names as the scan has them; None when no row can pass.
    """

    columns: tuple[str, ...]
    sql: str
    has_subquery: bool
    filters: tuple[Filter, ...] | None = field(hash=False)


def resolved_condition(jvm: JvmSession, rows: DataFrame, condition: Column) -> Condition:
    """Look a condition up over `rows`, the plain scan of a table; no job runs.

    Spark's AnalysisException when it makes no sense there.
    """
    query = rows.where(condition)._jdf.queryExecution()
    asked = query.analyzed().condition()
    has_subquery = not query.analyzed().subqueries().isEmpty()
    return Condition(
        columns=tuple(each.name() for each in items(asked.references().toSeq())),
        sql=str(asked.sql()),
        has_subquery=has_subquery,
        filters=() if has_subquery else _filters(jvm, query.optimizedPlan()),
    )


def _filters(jvm: JvmSession, plan: Any) -> tuple[Filter, ...] | None:
    conditions = []
    while (children := plan.children()).size():
        if plan.nodeName() == "Filter":
            conditions.append(plan.condition())
        plan = children.head()
    # Spark puts rows that cannot be, none, in the place of the scan.
    is_scan = plan.getClass().getSimpleName() == "LogicalRelation"
    return tuple(filters_of(jvm, jvm.seq(conditions))) if is_scan else None
