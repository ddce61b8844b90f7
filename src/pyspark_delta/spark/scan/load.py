"""A table by its path or name: the version that options or the path choose, and a scan of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions

from pyspark_delta.errors import PropertyError, TableNotFoundError, VersionNotFoundError
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.commit_times import parse_path_time
from pyspark_delta.kernel.protocol.partition_values import parse_partition_directory
from pyspark_delta.kernel.protocol.properties import DELETED_FILE_RETENTION, property_value
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.kernel.scan.arrow_reader import ReadableSnapshot
from pyspark_delta.kernel.sql.quoting import quoted_name
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.conf.options import DeltaOptions
from pyspark_delta.spark.conf.setting_table import ENFORCE_TIME_TRAVEL_RETENTION
from pyspark_delta.spark.conf.settings import session_zone
from pyspark_delta.spark.jvm.catalog.entries import SESSION_CATALOG, find_entry, path_table
from pyspark_delta.spark.jvm.catalog.path_catalog import PATH_CATALOG, PATH_DATABASE, version_in
from pyspark_delta.spark.jvm.gateway import JvmSession, to_spark_type
from pyspark_delta.spark.jvm.hadoop.conf import path_exists
from pyspark_delta.spark.jvm.plans.frames import (
    has_hidden_struct,
    move_cached,
    table_plan,
    with_own_struct,
)
from pyspark_delta.spark.scan.frame import read_newest, read_snapshot
from pyspark_delta.spark.scan.versions import refresh_cached
from pyspark_delta.spark.tables.locations import (
    allow_places,
    hadoop_location,
    is_same_location,
    open_log,
)
from pyspark_delta.spark.tables.names import missing_log_error, schema_for_catalog

# The number of plans kept for each session; the oldest is dropped first.
_MOST_PLANS = 256
_HOUR_MS = 3_600_000
_PATH_WITH_VERSION = re.compile(r"(?P<path>.*)@(?:v(?P<version>\d+)|(?P<time>\d{17}))")


def check_still_readable(spark: SparkSession, log: DeltaLog, snapshot: Snapshot) -> None:
    """Raise for a version whose files VACUUM may have deleted by now.

    VACUUM deletes files that were removed long ago, so the newest version has all of its files.
    """
    if not ENFORCE_TIME_TRAVEL_RETENTION.of(spark):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AsOf:
    """A version of a table: by its number, or the newest at a time, which is a text."""

    version: int | None = None
    timestamp: str | None = None

    def snapshot(self, log: DeltaLog, zone: str) -> ReadableSnapshot:
        """The version in that log; texts without a zone are in `zone`."""
        if self.timestamp is not None:
            return log.snapshot_at(timestamp=self.timestamp, zone=zone)
        return log.snapshot_at(version=self.version)


def requested_snapshot(
    opened: Callable[[str], DeltaLog],
    path: str,
    options: DeltaOptions,
    zone_of: Callable[[str], str],
) -> ReadableSnapshot:
    """The snapshot that `path` and `options` choose; the newest by default.

    `versionAsOf` and `timestampAsOf` are options; `/table@v12` and `/table@20240131120000000` are
    the same in the path, unless there is a table at that very path.  `opened` gives the log of a
    location; `zone_of` the time zone for a text.
    """
    version, time = options.whole_number("versionAsOf"), options.get("timestampAsOf")
    if version is not None and time is not None:
        raise PropertyError("DELTA_ONEOF_IN_TIMETRAVEL")
    log = opened(path)
    found = _PATH_WITH_VERSION.fullmatch(path)
    if found is not None and not log.table_exists:
        if version is not None or time is not None:
            raise PropertyError("DELTA_UNSUPPORTED_TIME_TRAVEL_MULTIPLE_FORMATS")
        log = opened(found["path"])
        if not log.table_exists:
            raise TableNotFoundError("DELTA_TABLE_NOT_FOUND", tableName=found["path"])
        if found["version"] is None:
            zone = zone_of(found["time"])
            at = parse_path_time(found["time"], zone)
            return log.snapshot_at(timestamp=at, zone=zone)
        version = int(found["version"])
    try:
        if version is not None:
            return log.snapshot_at(version=version)
        if time is not None:
            return log.snapshot_at(timestamp=time, zone=zone_of(time))
        return log.update()
    except TableNotFoundError:
        raise TableNotFoundError("DELTA_TABLE_NOT_FOUND", tableName=path) from None


def names_version(path: str, options: DeltaOptions) -> bool:
    """Whether options or path choose a version, instead of the newest."""
    has_option = "versionAsOf" in options or "timestampAsOf" in options
    return has_option or _PATH_WITH_VERSION.fullmatch(path) is not None


def run_load(spark: SparkSession, path: str, options: DeltaOptions) -> DataFrame:
    """The table at `path`, at the version or time in the options or in the path itself.

    A path to a partition of a table reads that partition.
    """
    try:
        log, snapshot = opened_version(spark, path, options)
    except TableNotFoundError:
        table, values = _partition_path(path)
        if not values:
            _check_exists(spark, path, options)
            raise
        log, snapshot = opened_version(spark, table, options)
        known = {name.lower() for name in snapshot.metadata.partition_columns}
        if not all(name.lower() in known for name, _ in values):
            raise
        rows = read_version(spark, log, snapshot, is_time_travel(table, options, snapshot))
        return _rows_of_partition(rows, snapshot, values)
    return read_version(spark, log, snapshot, is_time_travel(path, options, snapshot))


def read_version(
    spark: SparkSession, log: DeltaLog, snapshot: Snapshot, is_time_travel: bool
) -> DataFrame:
    """The rows of this version for time travel, else always of the newest."""
    if is_time_travel:
        return read_snapshot(spark, snapshot, is_time_travel=True)
    return read_newest(spark, log, snapshot)


def chosen_snapshot(spark: SparkSession, path: str, options: DeltaOptions) -> Snapshot:
    """The snapshot that `path` and `options` choose; the newest by default."""
    return opened_version(spark, path, options)[1]


def opened_version(
    spark: SparkSession, path: str, options: DeltaOptions
) -> tuple[DeltaLog, Snapshot]:
    """As `chosen_snapshot`, with the log that it is from."""
    logs: list[DeltaLog] = []

    def opened(location: str) -> DeltaLog:
        logs.append(open_log(spark, location, options))
        return logs[-1]

    snapshot = requested_snapshot(opened, path, options, lambda _: session_zone(spark))
    if names_version(path, options):
        check_still_readable(spark, logs[-1], snapshot)
    return logs[-1], snapshot


def is_time_travel(path: str, options: DeltaOptions, snapshot: Snapshot) -> bool:
    """Whether a read is of this fixed version, and not always of the newest.

    A table's own path may look like one with a version.
    """
    if "versionAsOf" in options or "timestampAsOf" in options:
        return True
    location = hadoop_location(snapshot.store.root_uri)
    return names_version(path, options) and not is_same_location(location, path)


class TablePlans:
    """Plans for the names of Delta tables in a session.  Safe to share between threads.

    Spark calls this on every lookup of a name.  A plan is kept as long as the table's definition is
    the same, so that equal queries have equal plans; the version that a query reads is chosen when
    it is planned.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._jvm = JvmSession(spark)
        self._made: dict[tuple[str, str, str], _MadePlan] = {}

    def find_plan(self, catalog: str, database: str, table: str) -> Any:
        """The plan of a Delta table by its full name; None when there is none."""
        key = (catalog, database, table)
        if catalog == PATH_CATALOG:
            log, snapshot = opened_version(self._spark, table, DeltaOptions())
            columns = schema_for_catalog(snapshot.metadata.schema)
            handle = path_table(self._jvm, PATH_CATALOG, PATH_DATABASE, table, columns)
            is_older = is_time_travel(table, DeltaOptions(), snapshot)
            return self._plan(key, log, snapshot, handle, is_time_travel=is_older)
        version = version_in(catalog)
        if catalog != SESSION_CATALOG and version is None:
            return None
        entry = find_entry(self._jvm, database, table)
        if entry is None or not entry.is_delta or entry.location is None:
            return None
        allow_places(self._spark, entry.outside)
        options = DeltaOptions({"versionAsOf": version})
        try:
            log, snapshot = opened_version(self._spark, entry.location, options)
        except TableNotFoundError as error:
            raise missing_log_error(entry) from error
        return self._plan(key, log, snapshot, entry.handle, is_time_travel=version is not None)

    def is_table(self, path: str) -> bool:
        """Whether there is a Delta table at a path, which may end in a version."""
        try:
            chosen_snapshot(self._spark, path, DeltaOptions())
        except TableNotFoundError:
            return False
        return True

    def columns_of(self, path: str) -> StructType:
        """The columns of the table at a path, as a catalog keeps them."""
        return schema_for_catalog(
            chosen_snapshot(self._spark, path, DeltaOptions()).metadata.schema
        )

    def version_at(self, path: str, time_ms: int | None) -> int:
        """The version that was the newest at a time; the newest of all for None."""
        log = open_log(self._spark, path)
        if not log.table_exists:
            raise TableNotFoundError("DELTA_TABLE_NOT_FOUND", tableName=path)
        if time_ms is None:
            return log.update().version
        return log.version_at(time_ms, zone=session_zone(self._spark))

    def path_of(self, database: str, table: str) -> str:
        """The location of the Delta table of that name."""
        entry = find_entry(self._jvm, database, table)
        if entry is None or not entry.is_delta or entry.location is None:
            raise TableNotFoundError("DELTA_MISSING_DELTA_TABLE", tableName=f"{database}.{table}")
        return entry.location

    def _plan(
        self,
        key: tuple[str, str, str],
        log: DeltaLog,
        snapshot: Snapshot,
        handle: Any,
        *,
        is_time_travel: bool,
    ) -> Any:
        zone = session_zone(self._spark)
        made = self._made.get(key)
        if made is not None and made.serves(snapshot, zone, is_time_travel=is_time_travel):
            if not is_time_travel:
                refresh_cached(self._jvm, log.store.root_uri, snapshot.version)
            # A query may read the table twice, and each read needs row ids of its own.
            return with_own_struct(self._jvm, made.plan) if made.has_struct else made.plan
        rows = read_version(self._spark, log, snapshot, is_time_travel)
        plan = table_plan(self._jvm, rows, handle)
        self._made.pop(key, None)
        self._made[key] = _MadePlan(
            snapshot=snapshot,
            zone=zone,
            is_time_travel=is_time_travel,
            plan=plan,
            has_struct=has_hidden_struct(plan),
        )
        while len(self._made) > _MOST_PLANS:
            self._made.pop(next(iter(self._made)), None)
        if made is not None and _is_same_table(made.snapshot, snapshot):
            move_cached(self._jvm, made.plan, plan, key[-1])
        return plan


@dataclass(frozen=True, slots=True, kw_only=True)
class _MadePlan:
    """A plan and its inputs; another version with the same definition may use it."""

    snapshot: Snapshot
    zone: str
    is_time_travel: bool
    plan: Any
    has_struct: bool

    def serves(self, snapshot: Snapshot, zone: str, *, is_time_travel: bool) -> bool:
        """Whether the plan also fits a read of `snapshot`."""
        mine = self.snapshot
        if snapshot is mine:
            same = True
        elif is_time_travel or mine.store.root_uri != snapshot.store.root_uri:
            same = False
        else:
            same = mine.metadata == snapshot.metadata and mine.protocol == snapshot.protocol
        return same and (zone, is_time_travel) == (self.zone, self.is_time_travel)


def _check_exists(spark: SparkSession, path: str, options: DeltaOptions) -> None:
    """Raise Spark's own condition for a path that does not exist, as programs expect."""
    if not names_version(path, options) and not path_exists(JvmSession(spark), path):
        raise TableNotFoundError("PATH_NOT_FOUND", path=path)


def _partition_path(path: str) -> tuple[str, tuple[tuple[str, str | None], ...]]:
    """The path above the directories of partition values, and those values."""
    steps = path.rstrip("/").split("/")
    start = len(steps)
    while start > 1 and "=" in steps[start - 1]:
        start -= 1
    return "/".join(steps[:start]), parse_partition_directory("/".join([*steps[start:], ""]))


def _rows_of_partition(
    frame: DataFrame, snapshot: Snapshot, values: tuple[tuple[str, str | None], ...]
) -> DataFrame:
    for name, value in values:
        f = snapshot.metadata.schema[name]
        column = functions.col(quoted_name(f.name))
        wanted = functions.lit(value).cast(to_spark_type(f.data_type))
        frame = frame.where(column.isNull() if value is None else column == wanted)
    return frame


def _is_same_table(old: Snapshot, new: Snapshot) -> bool:
    return (old.store.root_uri, old.metadata.id) == (new.store.root_uri, new.metadata.id)
