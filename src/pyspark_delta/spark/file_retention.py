"""Versions whose files may be gone: VACUUM deletes those that were removed long ago."""

from __future__ import annotations

from pyspark.sql import SparkSession

from pyspark_delta.errors.table import VersionNotFoundError
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.properties import DELETED_FILE_RETENTION, property_value
from pyspark_delta.kernel.txn.delta_log import DeltaLog

_ENFORCES_RETENTION = (
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
)
_HOUR_MS = 3_600_000


def check_retention(spark: SparkSession, log: DeltaLog, snapshot: Snapshot) -> None:
    """Refuse a version whose files VACUUM may have deleted by now; the newest has all of its."""
    if spark.conf.get(_ENFORCES_RETENTION, "true") != "true":
        return
    retention_ms = property_value(snapshot.metadata.configuration, DELETED_FILE_RETENTION)
    if retention_ms is None or snapshot.timestamp >= log.now_ms() - retention_ms:
        return
    if snapshot.version == log.update().version:
        return
    raise VersionNotFoundError(
        "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION",
        deletedFileRetention=retention_ms // _HOUR_MS,
    )
