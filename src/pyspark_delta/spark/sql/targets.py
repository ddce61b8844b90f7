"""The table that a statement changes, by the name that the statement has for it."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from pyspark_delta.spark.catalog import TableName, look_up_relation


def changed_table(spark: SparkSession, name: Sequence[str]) -> TableName | None:
    """The Delta table of that name; None when the statement is not about one."""
    found = look_up_relation(spark, name)
    return found if found is not None and found.is_delta else None
