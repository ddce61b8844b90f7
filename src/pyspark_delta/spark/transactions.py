"""Transactions of a session: they read a table as its queries do.

A partition value that is a timestamp may not say its zone.  Scans take it to be in the session's,
so what a command finds, and what its commit conflicts with, must be found in that zone too.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.reader import session_zone


def start_transaction(spark: SparkSession, log: DeltaLog) -> OptimisticTransaction:
    """A transaction on the newest version, or on nothing where there is no table yet."""
    return log.start_transaction(time_zone=session_zone(spark))


def transaction_on(spark: SparkSession, log: DeltaLog, snapshot: Snapshot) -> OptimisticTransaction:
    """A transaction on a version that was read before."""
    return log.transaction_on(snapshot, time_zone=session_zone(spark))
