"""`readChangeFeed` and `table_changes`: what changed in a table between two versions or times.

The range and whether it can be told are settled when the DataFrame is made, from the log alone; no
job runs, and a later commit changes nothing of it.
"""

from __future__ import annotations

import operator
from datetime import UTC, date, datetime, timedelta
from typing import SupportsIndex

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.errors.table import (
    ChangeFeedError,
    PropertyError,
    VersionNotFoundError,
)
from pyspark_delta.kernel.log.segment import list_log_for
from pyspark_delta.kernel.ops.change_feed import SCHEMA_MODE, SchemaMode, no_changes, read_feed
from pyspark_delta.kernel.ops.change_range import OUT_OF_RANGE, ChangeBounds
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.scan.vectors import VectorReader
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.allowed_places import allowed_stores
from pyspark_delta.spark.catalog import resolve_table
from pyspark_delta.spark.change_rows import ChangesOf, change_frame
from pyspark_delta.spark.file_retention import check_retention
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.options import DeltaOptions
from pyspark_delta.spark.reader import session_zone
from pyspark_delta.spark.table_access import open_log
from pyspark_delta.spark.time_travel import names_version

ChangeBound = SupportsIndex | str | date
"""An end of a range: a version, or a time as text, a datetime or a date."""

_UNSAFE = "spark.databricks.delta.changeDataFeed.unsafeBatchReadOnIncompatibleSchemaChanges.enabled"
_ASKED = ("readChangeFeed", "readChangeData")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_LONGEST_VERSION = 20


def reads_changes(options: DeltaOptions) -> bool:
    """Whether a read is of changes and not of rows."""
    # All of them are looked at, so that none goes with an illegal value.
    asked = [options.flag(key) for key in _ASKED]
    return any(asked)


def run_change_feed(spark: SparkSession, path: str, options: DeltaOptions) -> DataFrame:
    """The changes of the table at `path` between the versions or times that the options give."""
    log = open_log(spark, path, options)
    if names_version(path, options) and not ("@" in path and log.table_exists):
        raise ChangeFeedError("DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS")
    bounds = ChangeBounds(
        start_version=_version(options, "startingVersion"),
        start_time=options.get("startingTimestamp"),
        end_version=_version(options, "endingVersion"),
        end_time=options.get("endingTimestamp"),
        time_zone=session_zone(spark),
        is_tolerant=_is_on(spark, OUT_OF_RANGE),
    )
    return changes_between(spark, log, bounds)


def changes_between(spark: SparkSession, log: DeltaLog, bounds: ChangeBounds) -> DataFrame:
    """The changes of a table within bounds: its columns, what happened to each row, and when."""
    newest = log.update()
    versions = bounds.versions(log, newest.version)
    if versions is None:
        feed = no_changes(newest)
    else:
        first, last = versions
        listing = list_log_for(log.store, first)
        start = log.snapshot_at(version=first, listing=listing)
        check_retention(spark, log, start)
        vectors = VectorReader(Locations(log.store, allowed_stores(spark)))
        feed = read_feed(
            log,
            start,
            last,
            newest,
            vectors.read,
            mode=_schema_mode(spark),
            is_unsafe=_is_on(spark, _UNSAFE),
            listing=listing,
        )
    table = ChangesOf(
        store=log.store,
        metadata=feed.read_as.metadata,
        protocol=feed.read_as.protocol,
        key=f"changes {feed.start} to {feed.end} as of {feed.read_as.version}",
    )
    return change_frame(JvmSession(spark), table, feed.files)


def table_changes(
    spark: SparkSession, name: str, start: ChangeBound, end: ChangeBound | None = None
) -> DataFrame:
    """The changes of the table of that name, in the catalog or at delta.`path`.

    `start` and `end` are versions, or times as text, datetimes or dates; both are part of the
    range.  Without an end it goes up to the newest version.  The columns are those of the table,
    and `_change_type`, `_commit_version` and `_commit_timestamp`.
    """
    bounds = change_bounds(spark, start, end)
    table = resolve_table(spark, name)
    assert table.location is not None
    return changes_between(spark, open_log(spark, table.location), bounds)


def table_changes_by_path(
    spark: SparkSession, path: str, start: ChangeBound, end: ChangeBound | None = None
) -> DataFrame:
    """As `table_changes`, of the table at `path`."""
    bounds = change_bounds(spark, start, end)
    return changes_between(spark, open_log(spark, path), bounds)


def change_bounds(
    spark: SparkSession, start: ChangeBound | None, end: ChangeBound | None
) -> ChangeBounds:
    """The range from `start` to `end`, in the session's time zone; None is an open end only."""
    if start is None:
        raise ChangeFeedError("DELTA_CDC_READ_NULL_RANGE_BOUNDARY")
    start_version, start_time = _bound(start)
    end_version, end_time = (None, None) if end is None else _bound(end)
    return ChangeBounds(
        start_version=start_version,
        start_time=start_time,
        end_version=end_version,
        end_time=end_time,
        time_zone=session_zone(spark),
        is_tolerant=_is_on(spark, OUT_OF_RANGE),
    )


def _bound(given: object) -> tuple[int | None, str | int | None]:
    """A version, or a time."""
    if isinstance(given, str):
        return None, given
    if isinstance(given, datetime):
        has_zone = given.utcoffset() is not None
        return None, (given - _EPOCH) // _MILLISECOND if has_zone else given.isoformat(sep=" ")
    if isinstance(given, date):
        return None, given.isoformat()
    if isinstance(given, bool) or not isinstance(given, SupportsIndex):
        raise TypeError(
            f"an end of a range is a version, a text, a datetime or a date, "
            f"not {type(given).__name__}"
        )
    version = operator.index(given)
    if version < 0:
        raise VersionNotFoundError("DELTA_VERSION_INVALID", version=version)
    return version, None


def _version(options: DeltaOptions, key: str) -> int | None:
    text = options.get(key)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < _LONGEST_VERSION):
        raise VersionNotFoundError("DELTA_VERSION_INVALID", version=text)
    return int(text)


def _schema_mode(spark: SparkSession) -> SchemaMode | None:
    text = spark.conf.get(SCHEMA_MODE, None)
    if text is None:
        return None
    try:
        return SchemaMode(text.lower())
    except ValueError:
        raise PropertyError(
            "DELTA_ILLEGAL_OPTION",
            input=text,
            name=SCHEMA_MODE,
            explain="needs legacy, latest or endVersion",
        ) from None


def _is_on(spark: SparkSession, key: str) -> bool:
    return (spark.conf.get(key, "false") or "").lower() == "true"
