"""A database of its own for tests that make catalog tables, and rows in an order to compare."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta import DeltaLog


@contextmanager
def own_database(spark: SparkSession) -> Iterator[str]:
    """A new database that is the current one; it goes with all it holds."""
    name = f"db_{uuid4().hex[:12]}"
    spark.sql(f"CREATE DATABASE {name}")
    spark.sql(f"USE {name}")
    try:
        yield name
    finally:
        spark.sql("USE default")
        spark.sql(f"DROP DATABASE {name} CASCADE")


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    """All rows, sorted as their text is: nulls are among them."""
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def table_log(spark: SparkSession, name: str) -> DeltaLog:
    """The log of the Delta table of that name, found as any client finds it."""
    [detail] = spark.sql(f"DESCRIBE DETAIL {name}").collect()
    return DeltaLog.for_table(detail["location"].removeprefix("file:"))
