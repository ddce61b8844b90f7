"""What is known of a DataFrame beside its rows: its size, whether it is steady, what it counted."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from pyspark_delta.spark.jvm.conditions import is_repeatable
from pyspark_delta.spark.jvm.file_index import sources_in
from pyspark_delta.spark.jvm.gateway import JvmSession, items

# Plans of these nodes give the same rows each time, as far as their leaves do.
_STEADY = frozenset(
    {
        *("CollectMetrics", "Filter", "LocalRelation", "LogicalRelation", "OneRowRelation"),
        *("Project", "Range", "SubqueryAlias", "Union", "View"),
    }
)
_RELATION = "LogicalRelation"


def size_in_bytes(frame: DataFrame) -> int:
    """How large Spark takes the rows of a DataFrame to be; a huge number when it has no idea."""
    return int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))


def broadcast_threshold(jvm: JvmSession) -> int:
    """Up to which size Spark sends rows to every task unasked; below zero for never."""
    return int(jvm.session.sessionState().conf().autoBroadcastJoinThreshold())


def is_steady(jvm: JvmSession, frame: DataFrame) -> bool:
    """Whether a second query over the frame gives the same rows, as a version of a table does."""
    plan = frame._jdf.queryExecution().analyzed()
    nodes = _nodes(plan)
    if not set(nodes) <= _STEADY or not is_repeatable(jvm, frame):
        return False
    return nodes.count(_RELATION) == len(sources_in(frame))


def output_set(frame: DataFrame) -> Any:
    """The columns of a DataFrame as Spark tells them from those of others."""
    return frame._jdf.queryExecution().analyzed().outputSet()


def stored_bytes(jvm: JvmSession, checkpointed: DataFrame) -> int:
    """How much a local checkpoint holds, in memory and on disk."""
    number = checkpointed._jdf.queryExecution().analyzed().rdd().id()
    for info in jvm.spark.sparkContext._jsc.sc().getRDDStorageInfo():
        if info.id() == number:
            return int(info.memSize()) + int(info.diskSize())
    return 0


def observed(frame: DataFrame, name: str) -> int | None:
    """A number that was to be observed under a name, once a job over the frame has run.

    None when nothing that observes was left in the plan that ran.
    """
    found = frame._jdf.queryExecution().observedMetrics().get(name)
    return int(found.get().getLong(0)) if found.isDefined() else None


def release(checkpointed: DataFrame) -> None:
    """Give back what a local checkpoint holds."""
    plan = checkpointed._jdf.queryExecution().analyzed()
    if plan.getClass().getSimpleName() == "LogicalRDD":
        rdd = plan.rdd()
        # Not `RDD.unpersist`: it warns that the rows cannot be computed again.
        rdd.sparkContext().unpersistRDD(rdd.id(), False)


def running_once(jvm: JvmSession, frame: DataFrame) -> DataFrame:
    """The rows of a frame as its own plan makes them, which is planned now and for good."""
    query = frame._jdf.queryExecution()
    schema = frame._jdf.schema()
    return jvm.data_frame(jvm.session.internalCreateDataFrame(query.toRdd(), schema, False))


def _nodes(plan: Any) -> list[str]:
    """The short names of all nodes of a plan."""
    found = [str(plan.getClass().getSimpleName())]
    for child in items(plan.children()):
        found += _nodes(child)
    return found
