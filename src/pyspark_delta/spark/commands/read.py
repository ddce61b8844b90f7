"""`spark.read.format("delta").load(path)`: which version, then a native scan of it."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession, functions

from pyspark_delta.errors.table import TableNotFoundError
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.partition_values import parse_partition_directory
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.commands.change_feed import reads_changes, run_change_feed
from pyspark_delta.spark.file_retention import check_retention
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.hadoop_conf import path_exists
from pyspark_delta.spark.options import DeltaOptions
from pyspark_delta.spark.reader import read_newest, read_snapshot, session_zone
from pyspark_delta.spark.table_access import hadoop_location, is_same_location, open_log
from pyspark_delta.spark.time_travel import asked_snapshot, names_version
from pyspark_delta.spark.types import to_spark_type


def run_load(spark: SparkSession, path: str, options: DeltaOptions) -> DataFrame:
    """The table at `path`, at the version or time that the options or the path itself ask for.

    A path to a partition of a table reads that partition.  Options may ask for changes instead.
    """
    if reads_changes(options):
        return run_change_feed(spark, path, options)
    try:
        log, snapshot = chosen_version(spark, path, options)
    except TableNotFoundError:
        table, values = _partition_path(path)
        if not values:
            _check_exists(spark, path, options)
            raise
        log, snapshot = chosen_version(spark, table, options)
        known = {name.lower() for name in snapshot.metadata.partition_columns}
        if not all(name.lower() in known for name, _ in values):
            raise
        rows = read_version(spark, log, snapshot, is_time_travel(table, options, snapshot))
        return _partition(rows, snapshot, values)
    return read_version(spark, log, snapshot, is_time_travel(path, options, snapshot))


def read_version(
    spark: SparkSession, log: DeltaLog, snapshot: Snapshot, is_time_travel: bool
) -> DataFrame:
    """The rows of a version that was named by its number or time, else always of the newest."""
    if is_time_travel:
        return read_snapshot(spark, snapshot, is_time_travel=True)
    return read_newest(spark, log, snapshot)


def _check_exists(spark: SparkSession, path: str, options: DeltaOptions) -> None:
    """Tell a place that is not there by Spark's own name for it, as programs expect."""
    if not names_version(path, options) and not path_exists(JvmSession(spark), path):
        raise TableNotFoundError("PATH_NOT_FOUND", path=path)


def chosen_snapshot(spark: SparkSession, path: str, options: DeltaOptions) -> Snapshot:
    """The snapshot that a read means; the newest unless it says otherwise."""
    return chosen_version(spark, path, options)[1]


def chosen_version(
    spark: SparkSession, path: str, options: DeltaOptions
) -> tuple[DeltaLog, Snapshot]:
    """As `chosen_snapshot`, with the log that it is from."""
    logs: list[DeltaLog] = []

    def opened(location: str) -> DeltaLog:
        logs.append(open_log(spark, location, options))
        return logs[-1]

    snapshot = asked_snapshot(opened, path, options, lambda _: session_zone(spark))
    if names_version(path, options):
        check_retention(spark, logs[-1], snapshot)
    return logs[-1], snapshot


def is_time_travel(path: str, options: DeltaOptions, snapshot: Snapshot) -> bool:
    """Whether a read asked for this version, and not for the newest, whichever that is.

    A table may be called as if its path named a version.
    """
    if "versionAsOf" in options or "timestampAsOf" in options:
        return True
    location = hadoop_location(snapshot.store.root_uri)
    return names_version(path, options) and not is_same_location(location, path)


def _partition_path(path: str) -> tuple[str, tuple[tuple[str, str | None], ...]]:
    """The path above the directories that name partition values, and those values."""
    steps = path.rstrip("/").split("/")
    start = len(steps)
    while start > 1 and "=" in steps[start - 1]:
        start -= 1
    return "/".join(steps[:start]), parse_partition_directory("/".join([*steps[start:], ""]))


def _partition(
    frame: DataFrame, snapshot: Snapshot, values: tuple[tuple[str, str | None], ...]
) -> DataFrame:
    for name, value in values:
        f = snapshot.metadata.schema[name]
        column = functions.col("`" + f.name.replace("`", "``") + "`")
        wanted = functions.lit(value).cast(to_spark_type(f.data_type))
        frame = frame.where(column.isNull() if value is None else column == wanted)
    return frame
