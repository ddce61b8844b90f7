"""What Spark's EXPLAIN says of a DataFrame."""

from __future__ import annotations

from typing import Literal

from pyspark.sql import DataFrame

from pyspark_delta.spark.jvm.gateway import JvmSession

ExplainMode = Literal["simple", "extended", "codegen", "cost", "formatted"]
"""How much is told of a plan."""


def explain_text(jvm: JvmSession, rows: DataFrame, mode: ExplainMode) -> str:
    """The plans of the rows; nothing of them is run."""
    modes = jvm.java_class("org.apache.spark.sql.execution.ExplainMode")
    return str(rows._jdf.queryExecution().explainString(modes.fromString(mode)))
