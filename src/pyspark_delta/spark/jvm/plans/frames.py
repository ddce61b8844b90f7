"""Logical plans and their DataFrames: naming, UNION, caching, EXPLAIN, size, what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pyspark.sql import DataFrame

from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.spark.jvm.gateway import (
    JvmSession,
    analyzed_plan,
    has_cached_plans,
    items,
    option_value,
    simple_name,
)

ExplainMode = Literal["simple", "extended", "codegen", "cost", "formatted"]
"""The modes of EXPLAIN."""
Qualifier = str | tuple[str, ...] | None
"""The name of a table in expressions: an alias, all parts of its name, or none."""
UNION_SETTINGS = {"spark.sql.unionOutputPartitioning": "false"}
"""Settings for planning a union, so that inputs with one partition each stay separate."""
_HASHED_RELATIONS = ("LongHashedRelation", "UnsafeHashedRelation")


def table_plan(jvm: JvmSession, data: DataFrame, catalog_table: Any) -> Any:
    """The plan of `data`, with the catalog's table in each of its scans.

    REFRESH and UNCACHE find a table by it, and EXPLAIN shows it.  The plan is never a bare scan,
    because Spark's own INSERT would write into a scan and bypass the log.
    """
    plan = _with_catalog_table(jvm, analyzed_plan(data), catalog_table)
    return jvm.plan_class("Project")(plan.output(), plan)


def plan_frame(jvm: JvmSession, plan: Any) -> DataFrame:
    """The DataFrame of a plan, which is analyzed by this call."""
    dataset = jvm.java_class("org.apache.spark.sql.classic.Dataset$")
    return jvm.data_frame(dataset.ofRows(jvm.session, plan))


def empty_frame(jvm: JvmSession) -> DataFrame:
    """The result of a statement without one: no columns, no rows."""
    return jvm.data_frame(jvm.session.emptyDataFrame())


def empty_rows(jvm: JvmSession, schema: StructType) -> DataFrame:
    """No rows, with the columns of a schema."""
    return plan_frame(jvm, jvm.plan_class("LocalRelation$").apply(jvm.data_type(schema)))


def move_cached(jvm: JvmSession, old_plan: Any, new_plan: Any, name: str) -> None:
    """If the rows of `old_plan` are cached, cache those of `new_plan` instead."""
    if not has_cached_plans(jvm):
        return
    manager = jvm.session.sharedState().cacheManager()
    found = option_value(manager.lookupCachedData(jvm.session, old_plan))
    if found is None:
        return
    level = found.cachedRepresentation().cacheBuilder().storageLevel()
    manager.uncacheQuery(jvm.session, old_plan, False)
    manager.cacheQuery(jvm.session, new_plan, jvm.some(name), level)


def read_cached_again(jvm: JvmSession, location: str) -> None:
    """Invalidate cached rows of files in a directory; Spark reads them again on the next use."""
    jvm.session.sharedState().cacheManager().recacheByPath(jvm.session, location)


def explain_text(jvm: JvmSession, rows: DataFrame, mode: ExplainMode) -> str:
    """The text of Spark's EXPLAIN of the rows; no job is run."""
    modes = jvm.java_class("org.apache.spark.sql.execution.ExplainMode")
    return str(rows._jdf.queryExecution().explainString(modes.fromString(mode)))


def named_rows(rows: DataFrame, called: Qualifier) -> DataFrame:
    """`rows` as the table of that name: `t`, or `db.t` and `t` where the name has two parts."""
    if not called:
        return rows
    if isinstance(called, str) or len(called) == 1:
        return rows.alias(called if isinstance(called, str) else called[0])
    jvm = JvmSession(rows.sparkSession)
    return plan_frame(jvm, named_plan(jvm, analyzed_plan(rows), called))


def named_plan(jvm: JvmSession, plan: Any, name: Sequence[str]) -> Any:
    """A plan whose columns are qualified by a table name, which may have several parts."""
    identifier = jvm.java_class("org.apache.spark.sql.catalyst.AliasIdentifier")
    alias = identifier(name[-1], jvm.seq(name[:-1]))
    return jvm.plan_class("SubqueryAlias$").apply(alias, plan)


def without_name(
    path: Sequence[str], called: Qualifier, *, exact: bool = False
) -> tuple[tuple[str, ...], ...]:
    """Other interpretations of a path: without the leading table name, or an ending of that name.

    With `exact`, case must match.

    >>> without_name(("db", "t", "x"), ("cat", "db", "t"))
    (('x',),)
    >>> without_name(("t", "x"), "t"), without_name(("x",), "x"), without_name(("a", "b"), None)
    ((('x',),), (), ())
    """
    names = (called,) if isinstance(called, str) else tuple(called or ())
    whole = [part if exact else part.lower() for part in names]
    steps = [step if exact else step.lower() for step in path]
    return tuple(
        tuple(path[size:])
        for size in range(len(whole), 0, -1)
        if len(path) > size and steps[:size] == whole[-size:]
    )


def union_of(jvm: JvmSession, frames: Sequence[DataFrame]) -> DataFrame:
    """The UNION ALL of frames with the same columns, analyzed once."""
    return plan_frame(jvm, union_plan(jvm, [analyzed_plan(frame) for frame in frames]))


def union_plan(jvm: JvmSession, plans: Sequence[Any]) -> Any:
    """The plan of a UNION ALL; columns match by position."""
    by_name, allows_missing = False, False
    return jvm.plan_class("Union")(jvm.seq(plans), by_name, allows_missing)


def coalesced_plan(jvm: JvmSession, plan: Any, tasks: int) -> Any:
    """A plan of the same rows with at most so many tasks, without a shuffle."""
    shuffles = False
    return jvm.plan_class("Repartition")(tasks, shuffles, plan)


def size_in_bytes(frame: DataFrame) -> int:
    """Spark's estimate of the size of the rows; a huge number when it has no estimate."""
    return int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))


def broadcast_threshold(jvm: JvmSession) -> int:
    """The size up to which Spark broadcasts rows without a hint; negative for never."""
    return int(jvm.state.conf().autoBroadcastJoinThreshold())


def output_set(frame: DataFrame) -> Any:
    """The columns of a DataFrame with Catalyst's ids, which make them unique."""
    return analyzed_plan(frame).outputSet()


def stored_bytes(jvm: JvmSession, checkpointed: DataFrame) -> int:
    """The size of a local checkpoint, in memory and on disk."""
    number = analyzed_plan(checkpointed).rdd().id()
    infos = jvm.spark.sparkContext._jsc.sc().getRDDStorageInfo()
    sizes = (int(each.memSize()) + int(each.diskSize()) for each in infos if each.id() == number)
    return next(sizes, 0)


def observed(frame: DataFrame, name: str) -> int | None:
    """The value of a metric of `DataFrame.observe`, once a job over the frame has run.

    None when the optimizer has removed the observing node from the plan that ran.
    """
    found = option_value(frame._jdf.queryExecution().observedMetrics().get(name))
    return None if found is None else int(found.getLong(0))


def release(checkpointed: DataFrame) -> None:
    """Free the memory and disk of a local checkpoint."""
    plan = analyzed_plan(checkpointed)
    if simple_name(plan) == "LogicalRDD":
        rdd = plan.rdd()
        # Not `RDD.unpersist`: it warns that the rows cannot be computed again.
        rdd.sparkContext().unpersistRDD(rdd.id(), False)


def running_once(jvm: JvmSession, frame: DataFrame) -> DataFrame:
    """A DataFrame over the physical plan of `frame`, which is fixed by this call."""
    query = frame._jdf.queryExecution()
    schema = frame._jdf.schema()
    return jvm.data_frame(jvm.session.internalCreateDataFrame(query.toRdd(), schema, False))


def release_broadcasts(frame: DataFrame) -> None:
    """Free the broadcasts of a frame whose jobs have all succeeded.

    Spark keeps them until a garbage collection of the JVM, which first needs a collection in
    Python, whose objects hold the plan.  Until then each join holds a page of Spark's memory, up to
    64 MB for a few rows, so a few dozen small MERGEs would hold gigabytes.

    The frame cannot be computed a second time.  A task that is still running could read pages that
    were reused, so this is not for jobs that failed.
    """
    plan = frame._jdf.queryExecution().executedPlan()
    if simple_name(plan) != "AdaptiveSparkPlanExec":
        return
    for stage in items(plan.context().stageCache().values().toSeq()):
        if simple_name(stage) != "BroadcastQueryStageExec":
            continue
        broadcast = option_value(stage.resultOption().get())
        if broadcast is None:
            continue
        relation = broadcast.value()
        # Its pages return to the pool from which the next join takes them.
        if simple_name(relation) in _HASHED_RELATIONS:
            relation.close()
        broadcast.destroy()


def _with_catalog_table(jvm: JvmSession, plan: Any, catalog_table: Any) -> Any:
    children = items(plan.children())
    if children:
        return plan.withNewChildren(
            jvm.seq([_with_catalog_table(jvm, c, catalog_table) for c in children])
        )
    if simple_name(plan) != "LogicalRelation":
        return plan
    return plan.copy(
        plan.relation(), plan.output(), jvm.some(catalog_table), plan.isStreaming(), plan.stream()
    )
