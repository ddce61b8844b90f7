"""DataFrames one below the other, with the parts that each of them has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame

from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans import plan_frame

UNION_SETTINGS = {"spark.sql.unionOutputPartitioning": "false"}
"""What the session that plans a union must say, so that inputs of one part each stay apart."""


def union_of(jvm: JvmSession, frames: Sequence[DataFrame]) -> DataFrame:
    """The rows of all frames, which have the same columns, in one step of analysis."""
    plans = [frame._jdf.queryExecution().analyzed() for frame in frames]
    return plan_frame(jvm, union_plan(jvm, plans))


def union_plan(jvm: JvmSession, plans: Sequence[Any]) -> Any:
    """The plan of the rows of all plans, by the positions of their columns."""
    by_name, allows_missing = False, False
    union = jvm.java_class("org.apache.spark.sql.catalyst.plans.logical.Union")
    return union(jvm.seq(plans), by_name, allows_missing)


def coalesced_plan(jvm: JvmSession, plan: Any, tasks: int) -> Any:
    """The plan of the same rows by so many tasks at most, without moving any between them."""
    shuffles = False
    repartition = jvm.java_class("org.apache.spark.sql.catalyst.plans.logical.Repartition")
    return repartition(tasks, shuffles, plan)
