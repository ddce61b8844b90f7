"""REORG TABLE APPLY (PURGE): files without the deleted rows and the dropped columns they hold."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession

from pyspark_delta.kernel.ops.purge import files_to_purge
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.allowed_places import allowed_stores
from pyspark_delta.spark.commands.optimize import OptimizeRequest, run_optimize
from pyspark_delta.spark.optimize_frame import OptimizeReport


def run_purge(spark: SparkSession, log: DeltaLog, *where: str) -> OptimizeReport:
    """Write anew every file, of the partitions that `where` chooses, with something to purge."""

    def choose(files: pa.Table) -> pa.Table:
        locations = Locations(log.store, allowed_stores(spark))
        return files_to_purge(files, log.snapshot.metadata, locations)

    return run_optimize(spark, log, OptimizeRequest(where=where, choose=choose))
