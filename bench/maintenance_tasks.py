"""Tasks that clean up: by SQL, as users have it."""

from __future__ import annotations

import time
from collections.abc import Callable

from pyspark.sql import SparkSession

from bench.measure import Timed


def vacuum(spark: SparkSession, path: str) -> Timed:
    """What VACUUM would delete, every row of it; how many there are, and how long their names."""
    start = time.perf_counter()
    found = spark.sql(f"VACUUM delta.`{path}` DRY RUN").collect()
    seconds = time.perf_counter() - start
    return Timed(seconds, [len(found), sum(len(row.path) for row in found)])


TASKS: dict[str, Callable[..., Timed]] = {"vacuum": vacuum}
