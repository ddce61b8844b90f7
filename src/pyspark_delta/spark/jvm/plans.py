"""Logical plans of Spark's: a DataFrame's, one that names its table, one out of a statement."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from pyspark_delta.spark.jvm.gateway import JvmSession, items


def table_plan(jvm: JvmSession, data: DataFrame, catalog_table: Any) -> Any:
    """The plan of `data`, whose scans say which table of the catalog they read.

    REFRESH and UNCACHE find a table by it, and EXPLAIN shows it.  It is never a scan alone: into
    one of those Spark's own INSERT would write, past the log.
    """
    plan = _named(jvm, data._jdf.queryExecution().analyzed(), catalog_table)
    project = jvm.java_class("org.apache.spark.sql.catalyst.plans.logical.Project")
    return project(plan.output(), plan)


def plan_frame(jvm: JvmSession, plan: Any) -> DataFrame:
    """The DataFrame of a plan, which is analysed now."""
    dataset = jvm.java_class("org.apache.spark.sql.classic.Dataset$")
    return jvm.data_frame(dataset.ofRows(jvm.session, plan))


def empty_frame(jvm: JvmSession) -> DataFrame:
    """What a statement without a result gives: no columns, no rows."""
    return jvm.data_frame(jvm.session.emptyDataFrame())


def move_cached(jvm: JvmSession, old_plan: Any, new_plan: Any, name: str) -> None:
    """If the rows of `old_plan` are cached, let those of `new_plan` be instead."""
    if not has_cached_plans(jvm):
        return
    manager = jvm.session.sharedState().cacheManager()
    found = manager.lookupCachedData(jvm.session, old_plan)
    if not found.isDefined():
        return
    level = found.get().cachedRepresentation().cacheBuilder().storageLevel()
    manager.uncacheQuery(jvm.session, old_plan, False)
    manager.cacheQuery(jvm.session, new_plan, jvm.some(name), level)


def has_cached_plans(jvm: JvmSession) -> bool:
    """Whether Spark keeps the rows of any plan."""
    return not jvm.session.sharedState().cacheManager().isEmpty()


def read_cached_again(jvm: JvmSession, location: str) -> None:
    """Forget the rows that are kept of files in a directory; they are read when next needed."""
    jvm.session.sharedState().cacheManager().recacheByPath(jvm.session, location)


def _named(jvm: JvmSession, plan: Any, catalog_table: Any) -> Any:
    children = items(plan.children())
    if children:
        return plan.withNewChildren(jvm.seq([_named(jvm, c, catalog_table) for c in children]))
    if plan.getClass().getSimpleName() != "LogicalRelation":
        return plan
    return plan.copy(
        plan.relation(), plan.output(), jvm.some(catalog_table), plan.isStreaming(), plan.stream()
    )
