"""Rows brought together before a write: Spark's own adaptive shuffle, and how large files get."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from pyspark_delta.spark.jvm.gateway import JvmSession, items
from pyspark_delta.spark.jvm.plans import plan_frame

_PLAN = "org.apache.spark.sql.catalyst.plans.logical.RebalancePartitions"
_ADAPTIVE = "spark.sql.adaptive."
_LEAST_SIZE = 1 << 20


def rebalanced(
    jvm: JvmSession, data: DataFrame, columns: Sequence[str], num_bytes: int
) -> DataFrame:
    """`data` with rows that are equal in `columns` next to each other, in parts of about a size.

    The size counts shuffled bytes.
    """
    plan = data._jdf.queryExecution().analyzed()
    by_name = {each.name(): each for each in items(plan.output())} if columns else {}
    # Py4J makes an Integer of a small int, and Spark wants a long.
    text = jvm.java_class("scala.collection.StringOps$")
    some_long = getattr(text, "toLongOption$extension")(str(num_bytes))
    moved = jvm.java_class(_PLAN)(
        jvm.seq([by_name[name] for name in columns]),
        plan,
        jvm.none(),  # as many parts as it takes
        some_long,
    )
    return plan_frame(jvm, moved)


def rebalance_settings(num_bytes: int) -> dict[str, str]:
    """What a session must say so that the asked size decides, and not the number of cores."""
    return {
        f"{_ADAPTIVE}enabled": "true",
        f"{_ADAPTIVE}optimizeSkewsInRebalancePartitions.enabled": "true",
        f"{_ADAPTIVE}coalescePartitions.enabled": "true",
        f"{_ADAPTIVE}coalescePartitions.parallelismFirst": "false",
        f"{_ADAPTIVE}coalescePartitions.minPartitionSize": str(min(num_bytes, _LEAST_SIZE)),
    }
