"""DROP FEATURE in a session: which way it goes, and the jobs that write files anew for it.

What must happen in which order is in `kernel.ops.drop_feature`.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession

from pyspark_delta.kernel.ops.drop_feature import DropRequest, run_drop_feature
from pyspark_delta.kernel.ops.feature_cleanup import Cleaning, FileRewrites
from pyspark_delta.kernel.ops.widened_files import widened_files
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.allowed_places import allowed_stores
from pyspark_delta.spark.commands.optimize import OptimizeRequest, run_optimize
from pyspark_delta.spark.commands.remove_column_mapping import run_remove_column_mapping
from pyspark_delta.spark.commands.reorg import run_purge
from pyspark_delta.spark.commands.row_tracking_backfill import files_per_commit

_FAST = "spark.databricks.delta.tableFeatures.fastDropFeature."


def run_drop(
    spark: SparkSession, log: DeltaLog, feature: str, *, truncate_history: bool = False
) -> int:
    """Drop a feature of a table; the version that did."""
    cleaning = Cleaning(
        log=log,
        rewrites=_SparkRewrites(spark),
        most_files=files_per_commit(spark),
        buries_vectors=_is_on(spark, f"{_FAST}generateDVTombstones.enabled"),
    )
    request = DropRequest(
        feature=feature,
        truncate_history=truncate_history,
        is_fast=_is_on(spark, f"{_FAST}enabled"),
    )
    return run_drop_feature(cleaning, request)


class _SparkRewrites(FileRewrites):
    """Files written by Spark's jobs, as REORG writes them."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def purge_vectors(self, log: DeltaLog) -> None:
        """See FileRewrites."""
        run_purge(self._spark, log)

    def rewrite_widened(self, log: DeltaLog) -> int:
        """See FileRewrites."""

        def choose(files: pa.Table) -> pa.Table:
            locations = Locations(log.store, allowed_stores(self._spark))
            return widened_files(files, log.snapshot.metadata, locations)

        return len(run_optimize(self._spark, log, OptimizeRequest(choose=choose)).removed)

    def remove_mapping(self, log: DeltaLog) -> None:
        """See FileRewrites."""
        run_remove_column_mapping(self._spark, log, keeps_property=False)


def _is_on(spark: SparkSession, key: str) -> bool:
    return (spark.conf.get(key, None) or "true").lower() != "false"
