"""RESTORE, GENERATE and REORG TABLE APPLY (PURGE)."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.errors import OperationNotAllowedError, TableNotFoundError, VersionNotFoundError
from pyspark_delta.kernel.log.symlink_manifests import write_manifests
from pyspark_delta.kernel.ops.features.outdated_files import files_to_purge
from pyspark_delta.kernel.ops.restore import check_files_exist, commit_restore, plan_restore
from pyspark_delta.kernel.protocol.commit_times import parse_commit_time
from pyspark_delta.kernel.protocol.operations import operation
from pyspark_delta.kernel.protocol.types import LONG, StructField, StructType
from pyspark_delta.kernel.scan.arrow_reader import ReadableSnapshot
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.conf.setting_table import PROTOCOL_DOWNGRADE, USER_METADATA
from pyspark_delta.spark.conf.settings import IGNORE_MISSING_FILES, is_on, session_zone
from pyspark_delta.spark.jvm.gateway import JvmSession, timestamp_text
from pyspark_delta.spark.jvm.plans.frames import empty_frame
from pyspark_delta.spark.maintenance.optimize import OptimizeRequest, run_optimize
from pyspark_delta.spark.results.local_frame import local_frame
from pyspark_delta.spark.results.optimize import OptimizeReport
from pyspark_delta.spark.scan.load import AsOf, check_still_readable
from pyspark_delta.spark.tables.locations import allowed_stores

RESTORE_COLUMNS = {
    "table_size_after_restore": "tableSizeAfterRestore",
    "num_of_files_after_restore": "numOfFilesAfterRestore",
    "num_removed_files": "numRemovedFiles",
    "num_restored_files": "numRestoredFiles",
    "removed_files_size": "removedFilesSize",
    "restored_files_size": "restoredFilesSize",
}
# By the condition of time travel: that of RESTORE, and its parameters by those of time travel.
_RESTORE_ERRORS: dict[str, tuple[str, dict[str, str]]] = {
    "DELTA_VERSION_NOT_FOUND": (
        "DELTA_CANNOT_RESTORE_TABLE_VERSION",
        {"version": "userVersion", "startVersion": "earliest", "endVersion": "latest"},
    ),
    "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION": (
        "DELTA_CANNOT_RESTORE_TIMESTAMP_EARLIER",
        {"requestedTimestamp": "userTimestamp", "earliestTimestamp": "commitTs"},
    ),
    "DELTA_TIMESTAMP_GREATER_THAN_COMMIT": (
        "DELTA_CANNOT_RESTORE_TIMESTAMP_GREATER",
        {"requestedTimestamp": "providedTimestamp", "latestTimestamp": "lastCommitTimestamp"},
    ),
}
_GENERATE_MODES = {"symlink_format_manifest": write_manifests}


def run_restore(spark: SparkSession, log: DeltaLog, as_of: AsOf) -> DataFrame:
    """Restore a version, or the version at a time; the result counts the changes.

    An empty result, and no commit, if it is the newest version.
    """
    jvm = JvmSession(spark)
    txn = log.start_transaction()
    if txn.snapshot is None:
        raise TableNotFoundError("DELTA_TABLE_NOT_FOUND", tableName=log.store.root_uri)
    target = _target_snapshot(spark, log, as_of)
    if target.version == txn.read_version:
        return empty_frame(jvm)
    check_still_readable(spark, log, target)
    plan = plan_restore(txn.snapshot, target, allow_downgrade=PROTOCOL_DOWNGRADE.of(spark))
    if not is_on(spark, IGNORE_MISSING_FILES):
        check_files_exist(plan, Locations(log.store, allowed_stores(spark)))
    recorded = operation("RESTORE", version=as_of.version, timestamp=_recorded_time(spark, as_of))
    commit_restore(txn, plan, recorded, user_metadata=USER_METADATA.of(spark))
    return metrics_frame(spark, RESTORE_COLUMNS, plan.metrics)


def metrics_frame(
    spark: SparkSession, columns: dict[str, str], metrics: dict[str, int]
) -> DataFrame:
    """One row of numbers for the result of a command, under the names of `columns`."""
    schema = StructType(tuple(StructField(name, LONG) for name in columns))
    return local_frame(spark, schema, [[metrics[key] for key in columns.values()]])


def run_generate(log: DeltaLog, mode: str) -> None:
    """Write all manifests of the newest version, for engines that do not support Delta."""
    generate = _GENERATE_MODES.get(mode.lower())
    if generate is None:
        raise OperationNotAllowedError(
            "DELTA_MODE_NOT_SUPPORTED", mode=mode, supportedModes=", ".join(_GENERATE_MODES)
        )
    generate(log.update())


def run_purge(spark: SparkSession, log: DeltaLog, *where: str) -> OptimizeReport:
    """Rewrite files of the partitions in `where` without their deleted rows and dropped columns.

    Files that have neither stay.
    """

    def choose(files: pa.Table) -> pa.Table:
        locations = Locations(log.store, allowed_stores(spark))
        return files_to_purge(files, log.snapshot.metadata, locations)

    return run_optimize(spark, log, OptimizeRequest(where=where, choose=choose))


def _target_snapshot(spark: SparkSession, log: DeltaLog, as_of: AsOf) -> ReadableSnapshot:
    """The version to restore; RESTORE has errors of its own for those of time travel."""
    try:
        return as_of.snapshot(log, session_zone(spark))
    except VersionNotFoundError as error:
        if error.condition not in _RESTORE_ERRORS:
            raise
        condition, names = _RESTORE_ERRORS[error.condition]
        facts = {name: error.parameters[key] for name, key in names.items()}
        raise VersionNotFoundError(condition, **facts) from error


def _recorded_time(spark: SparkSession, as_of: AsOf) -> str | None:
    if as_of.timestamp is None:
        return None
    zone = session_zone(spark)
    return timestamp_text(JvmSession(spark), parse_commit_time(as_of.timestamp, zone))
