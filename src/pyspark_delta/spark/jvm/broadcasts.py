"""Rows that a join sent to every task, given back when the command that joined is done.

Spark waits for a garbage collection of the JVM before it lets go of them, and that one for a
collection in Python, whose objects keep the plan.  Until then each join holds a page of Spark's
memory, up to 64 MB for a handful of rows, so a few dozen small MERGEs would hold gigabytes.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from pyspark_delta.spark.jvm.gateway import items

_ADAPTIVE = "AdaptiveSparkPlanExec"
_STAGE = "BroadcastQueryStageExec"
_HASHED = ("LongHashedRelation", "UnsafeHashedRelation")


def release_broadcasts(frame: DataFrame) -> None:
    """Give back what was sent to every task for a frame whose jobs have all succeeded.

    The frame cannot be computed a second time.  A task that is still running would read pages
    that are somebody else's by now: so this is not for jobs that failed.
    """
    plan = frame._jdf.queryExecution().executedPlan()
    if _kind(plan) != _ADAPTIVE:
        return
    for stage in items(plan.context().stageCache().values().toSeq()):
        if _kind(stage) != _STAGE:
            continue
        result = stage.resultOption().get()
        if result.isDefined():
            _release(result.get())


def _release(broadcast: Any) -> None:
    relation = broadcast.value()
    # Its pages go back to the pool that the next join takes them from.
    if _kind(relation) in _HASHED:
        relation.close()
    broadcast.destroy()


def _kind(java_object: Any) -> str:
    return str(java_object.getClass().getSimpleName())
