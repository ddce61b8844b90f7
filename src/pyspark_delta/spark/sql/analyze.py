"""ANALYZE TABLE ... COMPUTE DELTA STATISTICS: statistics of the log, collected again.

Spark's own ANALYZE TABLE, without the word DELTA, is left to Spark.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from pyspark_delta.kernel.ops.compute_stats import run_compute_stats
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.spark.allowed_places import allowed_stores
from pyspark_delta.spark.catalog import log_of
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans import empty_frame
from pyspark_delta.spark.sql.grammar import StatementReader
from pyspark_delta.spark.sql.requests import Request, delta_target


def is_delta_analyze(sql: str) -> bool:
    """Whether the statement is ours, to its last word.

    >>> is_delta_analyze("ANALYZE TABLE t COMPUTE DELTA STATISTICS")
    True
    >>> is_delta_analyze("ANALYZE TABLE t COMPUTE STATISTICS")
    False
    """
    read = StatementReader(sql)
    read.expect("ANALYZE", "TABLE")
    read.name()
    if not read.takes("COMPUTE", "DELTA", "STATISTICS"):
        return False
    read.end()
    return True


def run_analyze(request: Request) -> DataFrame | None:
    """Run the statement; None when it is Spark's."""
    if not request.head.target or not is_delta_analyze(request.sql):
        return None
    name = delta_target(request)
    if name is None:
        return None
    spark = request.spark
    log = log_of(spark, name)
    run_compute_stats(log, Locations(log.store, allowed_stores(spark)))
    return empty_frame(JvmSession(spark))
