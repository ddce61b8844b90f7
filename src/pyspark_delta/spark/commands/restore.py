"""RESTORE: a table as it was at a version or a time becomes its newest version."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.errors.base import DeltaError
from pyspark_delta.errors.table import TableNotFoundError, VersionNotFoundError
from pyspark_delta.kernel.ops.restore import check_files_exist, commit_restore, plan_restore
from pyspark_delta.kernel.protocol.operations import restore
from pyspark_delta.kernel.protocol.timestamps import parse_timestamp
from pyspark_delta.kernel.protocol.types import LONG, StructField, StructType
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.scan.readable import ReadableSnapshot
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.allowed_places import allowed_stores
from pyspark_delta.spark.commands.user_metadata import session_user_metadata
from pyspark_delta.spark.file_retention import check_retention
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.java_times import timestamp_text
from pyspark_delta.spark.jvm.plans import empty_frame
from pyspark_delta.spark.local_frame import local_frame
from pyspark_delta.spark.reader import session_zone
from pyspark_delta.spark.time_travel import AsOf

DOWNGRADE_CONF = "spark.databricks.delta.restore.protocolDowngradeAllowed"
"""The setting that lets RESTORE and CLONE take features away from a table."""

_IGNORE_MISSING = "spark.sql.files.ignoreMissingFiles"
_COLUMNS = {
    "table_size_after_restore": "tableSizeAfterRestore",
    "num_of_files_after_restore": "numOfFilesAfterRestore",
    "num_removed_files": "numRemovedFiles",
    "num_restored_files": "numRestoredFiles",
    "removed_files_size": "removedFilesSize",
    "restored_files_size": "restoredFilesSize",
}


def run_restore(spark: SparkSession, log: DeltaLog, as_of: AsOf) -> DataFrame:
    """Restore the table and tell how much changed; nothing at all for the newest version."""
    jvm = JvmSession(spark)
    txn = log.start_transaction()
    if txn.snapshot is None:
        raise TableNotFoundError("DELTA_TABLE_NOT_FOUND", tableName=log.store.root_uri)
    target = _asked(spark, log, as_of)
    if target.version == txn.read_version:
        return empty_frame(jvm)
    check_retention(spark, log, target)
    plan = plan_restore(
        txn.snapshot, target, allow_downgrade=spark.conf.get(DOWNGRADE_CONF, "false") == "true"
    )
    if (spark.conf.get(_IGNORE_MISSING, "false") or "").lower() != "true":
        check_files_exist(plan, Locations(log.store, allowed_stores(spark)))
    operation = restore(version=as_of.version, timestamp=_told_time(spark, as_of))
    commit_restore(txn, plan, operation, user_metadata=session_user_metadata(spark))
    return metrics_frame(spark, _COLUMNS, plan.metrics)


def metrics_frame(
    spark: SparkSession, columns: dict[str, str], metrics: dict[str, int]
) -> DataFrame:
    """The one row that tells of a command: numbers by the names of `columns`."""
    schema = StructType(tuple(StructField(name, LONG) for name in columns))
    return local_frame(spark, schema, [[metrics[key] for key in columns.values()]])


def _asked(spark: SparkSession, log: DeltaLog, as_of: AsOf) -> ReadableSnapshot:
    try:
        return as_of.snapshot(log, session_zone(spark))
    except VersionNotFoundError as error:
        raise _refused(error) from error


def _refused(error: VersionNotFoundError) -> DeltaError:
    """The error of time travel as RESTORE has it."""
    told = error.parameters
    match error.condition:
        case "DELTA_VERSION_NOT_FOUND":
            return VersionNotFoundError(
                "DELTA_CANNOT_RESTORE_TABLE_VERSION",
                version=told["userVersion"],
                startVersion=told["earliest"],
                endVersion=told["latest"],
            )
        case "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION":
            return VersionNotFoundError(
                "DELTA_CANNOT_RESTORE_TIMESTAMP_EARLIER",
                requestedTimestamp=told["userTimestamp"],
                earliestTimestamp=told["commitTs"],
            )
        case "DELTA_TIMESTAMP_GREATER_THAN_COMMIT":
            return VersionNotFoundError(
                "DELTA_CANNOT_RESTORE_TIMESTAMP_GREATER",
                requestedTimestamp=told["providedTimestamp"],
                latestTimestamp=told["lastCommitTimestamp"],
            )
        case _:
            return error


def _told_time(spark: SparkSession, as_of: AsOf) -> str | None:
    if as_of.timestamp is None:
        return None
    zone = session_zone(spark)
    return timestamp_text(JvmSession(spark), parse_timestamp(as_of.timestamp, zone))
