"""Numbers of ours in Spark's UI: as metrics of a node on top of a running query's plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pyspark.sql import DataFrame

from pyspark_delta.spark.jvm.gateway import JvmSession

MetricKind = Literal["sum", "size"]
_EXECUTION_ID = "spark.sql.execution.id"
_METRICS = "org.apache.spark.sql.execution.metric"
_EVENTS = "org.apache.spark.sql.execution.ui"


class PlanMetrics:
    """The metrics of one node, which every run of a query shows anew.

    `described` says of each how it is called in the UI, and whether it counts bytes.
    """

    def __init__(
        self,
        jvm: JvmSession,
        node: str,
        shown: str,
        described: Mapping[str, tuple[str, MetricKind]],
    ) -> None:
        self._jvm = jvm
        self._node, self._shown = node, shown
        context, metrics = jvm.spark.sparkContext._jsc.sc(), f"{_METRICS}.SQLMetrics"
        info = jvm.java_class(f"{_METRICS}.SQLMetricInfo")
        self._metrics: dict[str, Any] = {}
        infos = []
        for key, (label, kind) in described.items():
            if kind == "size":
                metric = jvm.static(metrics, "createSizeMetric")(context, label, 0)
            else:
                metric = jvm.static(metrics, "createMetric")(context, label)
            self._metrics[key] = metric
            infos.append(info(label, metric.id(), kind))
        self._infos = jvm.seq(infos)
        self._all = jvm.seq(self._metrics.values())
        self._context = context
        self._bus = context.listenerBus()
        self._mode = jvm.java_class("org.apache.spark.sql.execution.ExplainMode$").fromString(
            "formatted"
        )

    def show(self, data: DataFrame, values: Mapping[str, int]) -> None:
        """Show the values in the execution that runs on this thread, whose data this is."""
        jvm = self._jvm
        execution = jvm.spark.sparkContext.getLocalProperty(_EXECUTION_ID)
        if execution is None:
            return
        for key, value in values.items():
            self._metrics[key].set(value)
        query = data._jdf.queryExecution()
        info = jvm.java_class("org.apache.spark.sql.execution.SparkPlanInfo")
        below = jvm.java_class("org.apache.spark.sql.execution.SparkPlanInfo$").fromSparkPlan(
            query.executedPlan()
        )
        no_more = jvm.remembered("no options", lambda: jvm.scala_map({}))
        plan = info(self._node, self._shown, jvm.seq([below]), no_more, self._infos)
        event = jvm.java_class(f"{_EVENTS}.SparkListenerSQLAdaptiveExecutionUpdate")
        self._bus.post(event(int(execution), query.explainString(self._mode), plan))
        post = jvm.java_class(f"{_METRICS}.SQLMetrics$").postDriverMetricUpdates
        post(self._context, execution, self._all)
