"""The table that a path lies in: the path itself, or a directory above it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from pyspark.sql import SparkSession

from pyspark_delta.errors.table import TableNotFoundError
from pyspark_delta.kernel.protocol.paths import LOG_DIRECTORY
from pyspark_delta.spark.table_access import ancestors, open_log

# What no search for a table's root goes beyond.
_NOT_IN_A_TABLE = (LOG_DIRECTORY, "_samples")


def table_root(
    spark: SparkSession, path: str, options: Mapping[str, str] | None = None
) -> str | None:
    """The root of the table that a path is in, perhaps the path itself; None for none."""
    for place in (path, *ancestors(path)):
        if place.rstrip("/").rpartition("/")[2] in _NOT_IN_A_TABLE:
            return None
        with suppress(TableNotFoundError):
            open_log(spark, place, options).update()
            return place
    return None
