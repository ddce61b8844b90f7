"""A database of its own for tests that make catalog tables, and rows in an order to compare."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession


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
