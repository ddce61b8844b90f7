"""TRUNCATE TABLE: all files go, and no row is read."""

from __future__ import annotations

from pyspark.sql import SparkSession

from pyspark_delta.kernel.log.frames import add_files
from pyspark_delta.kernel.protocol.operations import truncate
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.commands.dml_files import DmlFiles, must_change
from pyspark_delta.spark.commands.dml_rows import Stopwatch
from pyspark_delta.spark.commands.write_options import WriteOptions
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.staged_files import StagedFiles


def run_truncate(spark: SparkSession, log: DeltaLog) -> int | None:
    """Remove all rows; the version that is made, None when there is nothing to remove."""
    asked = WriteOptions.parse({}, lambda key: spark.conf.get(key, None))
    txn = log.start_transaction()
    if not must_change(spark, txn, asked):
        return None
    watch = Stopwatch()
    with StagedFiles(txn) as staged:
        removed = tuple(add_files(txn.filter_files()))
        if not removed:
            return None
        now_ms = txn.log.now_ms()
        metrics = {"numRemovedFiles": len(removed), **watch.metrics}
        files = DmlFiles(JvmSession(spark), txn, staged, asked)
        return files.commit([file.remove(now_ms) for file in removed], truncate(), metrics)
