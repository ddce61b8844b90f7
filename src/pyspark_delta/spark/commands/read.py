"""`spark.read.format("delta").load(path)`: which version, then a native scan of it."""

from __future__ import annotations

import re

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.errors.table import PropertyError, TableNotFoundError
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.timestamps import parse_path_timestamp
from pyspark_delta.spark.options import DeltaOptions
from pyspark_delta.spark.reader import read_snapshot
from pyspark_delta.spark.table_access import open_log

# `/path/to/table@v12`, `/path/to/table@20240131120000000`
_AT = re.compile(r"(?P<path>.*)@(?:v(?P<version>\d+)|(?P<time>\d{17}))")


def run_load(spark: SparkSession, path: str, options: DeltaOptions) -> DataFrame:
    """The table at `path`, at the version or time that the options or the path itself ask for."""
    return read_snapshot(spark, chosen_snapshot(spark, path, options))


def chosen_snapshot(spark: SparkSession, path: str, options: DeltaOptions) -> Snapshot:
    """The snapshot that a read means; the newest unless it says otherwise."""
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    version, time = options.whole_number("versionAsOf"), options.get("timestampAsOf")
    if version is not None and time is not None:
        raise PropertyError(
            "DELTA_ILLEGAL_OPTION",
            input=time,
            name="timestampAsOf",
            explain="stands beside versionAsOf, and only one of them can be meant",
        )
    log = open_log(spark, path, options)
    found = _AT.fullmatch(path)
    if found is not None and not log.table_exists:
        if version is not None or time is not None:
            raise PropertyError(
                "DELTA_ILLEGAL_OPTION",
                input=path,
                name="path",
                explain="names a version as well as the options",
            )
        log = open_log(spark, found["path"], options)
        if found["version"] is not None:
            version = int(found["version"])
        else:
            return log.snapshot_at(timestamp=parse_path_timestamp(found["time"], zone))
    if not log.table_exists:
        raise TableNotFoundError("DELTA_TABLE_NOT_FOUND", tableName=path)
    if version is not None:
        return log.snapshot_at(version=version)
    if time is not None:
        return log.snapshot_at(version=log.version_at(time, zone=zone))
    return log.update()
