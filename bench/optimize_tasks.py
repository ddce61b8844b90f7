"""Tasks that write files anew: each runs on a fresh copy of a table, by SQL, as users have it."""

from __future__ import annotations

import random
from collections.abc import Callable

from pyspark.sql import SparkSession

from bench.dml_tasks import copy_table
from bench.measure import Timed, timed
from pyspark_delta import DeltaLog
from pyspark_delta.kernel.scan.plan import select_files
from pyspark_delta.kernel.scan.predicates.tree import compare

COLUMNS = ("c0", "c1", "c2", "c3")
_VALUES = 1_000_000
_OPTIMIZE = "spark.databricks.delta.optimize."


def even_columns(spark: SparkSession, path: str, count: int, files: int) -> Timed:
    """A table with four columns of even spread, as in the paper, and some more to carry."""
    spread = [f"abs(xxhash64({n}, id)) % {_VALUES} AS {name}" for n, name in enumerate(COLUMNS)]
    more = ["concat('name-', id % 100000) AS name", "id / 7 AS amount"]
    data = spark.range(0, count, 1, files).selectExpr("id", *spread, *more)
    data.write.format("delta").mode("overwrite").save(path)
    return Timed(0.0)


def optimize(
    spark: SparkSession, target: str, path: str, files: int, z_order_by: list[str] | None = None
) -> Timed:
    """OPTIMIZE a fresh copy of `target` into about so many files; how many it removed."""
    copy_table(target, path)
    largest = DeltaLog.for_table(path).update().size_in_bytes // files
    spark.conf.set(f"{_OPTIMIZE}maxFileSize", str(largest))
    order = f" ZORDER BY ({', '.join(z_order_by)})" if z_order_by else ""
    done = timed(lambda: spark.sql(f"OPTIMIZE delta.`{path}`{order}").collect()[0][1])
    metrics: dict[str, int] = done.answer.asDict()  # type: ignore[attr-defined]
    return Timed(done.seconds, metrics["numFilesRemoved"])


def files_opened(spark: SparkSession, path: str, lookups: int) -> Timed:
    """The share of files that looking for one value of one column opens, on average."""
    snapshot = DeltaLog.for_table(path).update()
    source = random.Random(8)
    opened = [
        select_files(snapshot, compare((name,), "=", source.randrange(_VALUES))).num_rows
        for name in COLUMNS
        for _ in range(lookups)
    ]
    return Timed(0.0, sum(opened) / len(opened) / snapshot.num_files)


TASKS: dict[str, Callable[..., Timed]] = {
    each.__name__: each for each in (even_columns, optimize, files_opened)
}
