"""Prepares rows for a write: checks and projects columns, shuffles rows into large partitions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame

from pyspark_delta.kernel.protocol.types import DataType
from pyspark_delta.spark.jvm.expressions.catalyst import column_of
from pyspark_delta.spark.jvm.gateway import JvmSession, analyzed_plan, items
from pyspark_delta.spark.jvm.plans.frames import plan_frame

_FUNCTIONS = "org.apache.spark.sql.functions"
_ADAPTIVE = "spark.sql.adaptive."
_MIN_PARTITION_BYTES = 1 << 20


def check_columns_differ(jvm: JvmSession, schema: Any) -> None:
    """Raise Spark's error for duplicate column names at any depth of a Java schema.

    The session decides whether names are case-sensitive.
    """
    exact = jvm.state.conf().caseSensitiveAnalysis()
    utils = jvm.java_class("org.apache.spark.sql.util.SchemaUtils$")
    utils.checkSchemaColumnNameDuplication(schema, exact)


def check_new_columns(data: DataFrame) -> None:
    """As `check_columns_differ`, for the columns of rows for a new table.

    Spark makes this check before it calls a catalog.
    """
    check_columns_differ(JvmSession(data.sparkSession), data._jdf.schema())


@dataclass(frozen=True, slots=True, kw_only=True)
class Projected:
    """A column of a result: a SQL expression, cast to a type if there is one, under a name.

    `metadata` becomes the column's; without it, the column keeps that of the expression.  With
    `is_apart` the optimizer never merges it with another column of the same name and values.
    """

    expression: str
    name: str
    data_type: DataType | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    is_apart: bool = False


def project(jvm: JvmSession, data: DataFrame, columns: Sequence[Projected]) -> DataFrame:
    """`data` projected to exactly these columns, in few calls into the JVM.

    PySpark's own columns take a dozen calls each, which is slow for a small write.
    """
    selected = [_java_column(jvm, column) for column in columns]
    return jvm.data_frame(data._jdf.select(jvm.seq(selected)))


def rebalanced(
    jvm: JvmSession, data: DataFrame, columns: Sequence[str], num_bytes: int
) -> DataFrame:
    """`data` by Spark's adaptive shuffle: partitions of about `num_bytes`, clustered by `columns`.

    The size is that of shuffled bytes.
    """
    plan = analyzed_plan(data)
    by_name = {each.name(): each for each in items(plan.output())} if columns else {}
    # Py4J passes a small int as Integer, and Spark needs a long.
    text = jvm.java_class("scala.collection.StringOps$")
    some_long = getattr(text, "toLongOption$extension")(str(num_bytes))
    moved = jvm.plan_class("RebalancePartitions")(
        jvm.seq([by_name[name] for name in columns]),
        plan,
        jvm.none(),  # as many partitions as needed
        some_long,
    )
    return plan_frame(jvm, moved)


def rebalance_settings(num_bytes: int) -> dict[str, str]:
    """Settings by which `num_bytes`, not the number of cores, decides how many partitions."""
    return {
        f"{_ADAPTIVE}enabled": "true",
        f"{_ADAPTIVE}optimizeSkewsInRebalancePartitions.enabled": "true",
        f"{_ADAPTIVE}coalescePartitions.enabled": "true",
        f"{_ADAPTIVE}coalescePartitions.parallelismFirst": "false",
        f"{_ADAPTIVE}coalescePartitions.minPartitionSize": str(
            min(num_bytes, _MIN_PARTITION_BYTES)
        ),
    }


def _java_column(jvm: JvmSession, column: Projected) -> Any:
    if column.is_apart:
        # A free wrapper that the optimizer does not remove.  An alias with its own metadata would
        # not do: below a union it loses the metadata.
        parsed = jvm.parser.parseExpression(column.expression)
        found = column_of(jvm, jvm.expression_class("KnownNullable")(parsed))._jc
    else:
        found = jvm.static(_FUNCTIONS, "expr")(column.expression)
    if column.data_type is not None:
        found = found.cast(jvm.data_type(column.data_type))
    if not column.metadata:
        return getattr(found, "as")(column.name)
    text = json.dumps(column.metadata)
    metadata = jvm.static("org.apache.spark.sql.types.Metadata", "fromJson")(text)
    return getattr(found, "as")(column.name, metadata)
