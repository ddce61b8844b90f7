"""`readChangeFeed` and `table_changes`: what changed in a table between two versions or times.

The range is resolved and checked when the DataFrame is made, from the log alone: no job runs, and a
later commit does not change the DataFrame.
"""

from __future__ import annotations

import operator
from datetime import UTC, date, datetime, timedelta
from typing import SupportsIndex

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.errors import ChangeFeedError, VersionNotFoundError
from pyspark_delta.kernel.log.segment import list_log_for
from pyspark_delta.kernel.ops.changes.feed import ChangeBounds, no_changes, read_feed
from pyspark_delta.kernel.scan.locations import Locations, VectorReader
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.changes.rows import ChangesOf, change_frame
from pyspark_delta.spark.conf.options import DeltaOptions
from pyspark_delta.spark.conf.setting_table import (
    CHANGE_FEED_INCOMPATIBLE,
    CHANGE_FEED_OUT_OF_RANGE,
    CHANGE_FEED_SCHEMA_MODE,
)
from pyspark_delta.spark.conf.settings import session_zone
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.scan.load import check_still_readable, names_version, run_load
from pyspark_delta.spark.tables.locations import allowed_stores, open_log
from pyspark_delta.spark.tables.names import resolve_table

ChangeBound = SupportsIndex | str | date
"""An end of a range: a version, or a time as text, a datetime or a date."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_LONGEST_VERSION = 20


def run_read(spark: SparkSession, path: str, options: DeltaOptions) -> DataFrame:
    """What `load` gives for a path: the rows of a version, or changes, by its options."""
    # Evaluate both keys, so that an invalid value of either is an error.
    flags = [options.flag(key) for key in ("readChangeFeed", "readChangeData")]
    return (run_change_feed if any(flags) else run_load)(spark, path, options)


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
        is_tolerant=CHANGE_FEED_OUT_OF_RANGE.of(spark),
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
        check_still_readable(spark, log, start)
        vectors = VectorReader(Locations(log.store, allowed_stores(spark)))
        feed = read_feed(
            log,
            start,
            last,
            newest,
            vectors.read,
            mode=CHANGE_FEED_SCHEMA_MODE.of(spark),
            is_unsafe=CHANGE_FEED_INCOMPATIBLE.of(spark),
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
    return changes_between(spark, open_log(spark, path), change_bounds(spark, start, end))


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
        is_tolerant=CHANGE_FEED_OUT_OF_RANGE.of(spark),
    )


def _bound(given: object) -> tuple[int | None, str | int | None]:
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
