"""DROP FEATURE in a session: which way it goes, and the jobs that write files anew for it.

What must happen in which order is in `kernel.ops.drop_feature`.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from pyspark_delta.kernel.ops.bin_packing import Sizes, plan_rewrite
from pyspark_delta.kernel.ops.drop_feature import DropRequest, run_drop_feature
from pyspark_delta.kernel.ops.feature_cleanup import Cleaning, FileRewrites
from pyspark_delta.kernel.ops.widened_files import widened_files
from pyspark_delta.kernel.protocol.operations import reorg
from pyspark_delta.kernel.protocol.row_tracking import PRESERVED_TAG
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.allowed_places import allowed_stores
from pyspark_delta.spark.commands.compact import compact
from pyspark_delta.spark.commands.remove_column_mapping import run_remove_column_mapping
from pyspark_delta.spark.commands.replaced_rows import hidden_columns
from pyspark_delta.spark.commands.row_tracking_backfill import files_per_commit
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.staged_files import StagedFiles

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
    """Files written by Spark's jobs."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def purge_vectors(self, log: DeltaLog) -> None:
        """See FileRewrites."""
        txn = log.start_transaction()
        assert txn.snapshot is not None
        files = txn.snapshot.files
        self._rewrite(txn, files.filter(pc.is_valid(files.column("deletionVector"))))

    def rewrite_widened(self, log: DeltaLog) -> int:
        """See FileRewrites."""
        txn = log.start_transaction()
        assert txn.snapshot is not None
        locations = Locations(log.store, allowed_stores(self._spark))
        chosen = widened_files(txn.snapshot.files, txn.metadata, locations)
        self._rewrite(txn, chosen)
        return int(chosen.num_rows)

    def remove_mapping(self, log: DeltaLog) -> None:
        """See FileRewrites."""
        run_remove_column_mapping(self._spark, log, keeps_property=False)

    def _rewrite(self, txn: OptimisticTransaction, files: pa.Table) -> None:
        """Write files anew as REORG does; without any, nothing is committed."""
        if not files.num_rows:
            return
        bins = plan_rewrite(files, txn.metadata, Sizes().largest)
        with StagedFiles(txn) as staged:
            done = compact(JvmSession(self._spark), txn, bins, staged)
            staged.offer()
            txn.commit(
                done.actions(txn.log.now_ms()),
                reorg(),
                tags={PRESERVED_TAG: "true"} if hidden_columns(txn).fields else None,
                metrics=done.metrics,
            )


def _is_on(spark: SparkSession, key: str) -> bool:
    return (spark.conf.get(key, None) or "true").lower() != "false"
