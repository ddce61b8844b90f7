"""Changes as Spark has words for them: `CHANGES FROM` in SQL, and `spark.read.changes`.

Told by row tracking where rows are tracked, else by the change feed, which delta-spark does not
look at here.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from functools import reduce
from typing import get_args

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_delta.errors.table import ChangeFeedError, TableNotFoundError, VersionNotFoundError
from pyspark_delta.kernel.ops.change_feed import is_recorded
from pyspark_delta.kernel.ops.change_range import ChangeBounds
from pyspark_delta.kernel.ops.changed_files import DELETE, INSERT
from pyspark_delta.kernel.ops.changelog import tracks_rows
from pyspark_delta.spark.change_rows import CHANGE_TYPE, COMMIT_TIMESTAMP
from pyspark_delta.spark.commands.change_feed import ChangeBound, change_bounds, changes_between
from pyspark_delta.spark.commands.changelog import (
    AFTER,
    BEFORE,
    ChangelogRequest,
    Deduplication,
    run_changelog,
)
from pyspark_delta.spark.jvm.analysis_errors import analysis_error
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.options import DeltaOptions
from pyspark_delta.spark.table_access import open_log

DROP_COPIES = "dropCarryovers"
"""What is left out unless a user says otherwise."""

_OPTIONS = "INVALID_CDC_OPTION"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedChanges:
    """A range of versions or times, and how its changes are to be told.

    `leaves_out` is as the user wrote it.
    """

    start: ChangeBound
    end: ChangeBound | None = None
    start_inclusive: bool = True
    end_inclusive: bool = True
    computes_updates: bool = False
    leaves_out: str = DROP_COPIES

    @classmethod
    def of(cls, spark: SparkSession, options: DeltaOptions) -> AskedChanges:
        """What the options of a reader say."""
        kinds = ("Version", "Timestamp")
        given = [[options.get(f"{end}{kind}") for end in ("starting", "ending")] for kind in kinds]
        versions, times = given
        jvm = JvmSession(spark)
        if any(versions) and any(times):
            raise analysis_error(jvm, f"{_OPTIONS}.CONFLICTING_RANGE_TYPES")
        for (start, end), kind in zip(given, kinds, strict=True):
            if end is not None and start is None:
                raise analysis_error(jvm, f"{_OPTIONS}.MISSING_STARTING_{kind.upper()}")
        start, end = versions if any(versions) else times
        if start is None:
            raise ChangeFeedError("DELTA_CHANGELOG_UNBOUNDED_RANGE")
        is_version = bool(versions[0])
        return cls(
            start=_version(start) if is_version else start,
            end=_version(end) if is_version and end is not None else end,
            start_inclusive=_flag(options, "startingBoundInclusive", True),
            end_inclusive=_flag(options, "endingBoundInclusive", True),
            computes_updates=_flag(options, "computeUpdates", False),
            leaves_out=options.get("deduplicationMode") or DROP_COPIES,
        )


def asked_changes(spark: SparkSession, location: str, name: str, asked: AskedChanges) -> DataFrame:
    """The changes of the table at `location`; `name` is for messages."""
    leaves_out = deduplication(JvmSession(spark), name, asked.leaves_out, asked.computes_updates)
    start, end = asked.start, asked.end
    where: list[Column] = []
    if not asked.start_inclusive:
        if isinstance(start, int):
            start += 1
        else:
            where.append(F.col(COMMIT_TIMESTAMP) > F.lit(start).cast("timestamp"))
    if not asked.end_inclusive and end is not None:
        if isinstance(end, int):
            end -= 1
        else:
            where.append(F.col(COMMIT_TIMESTAMP) < F.lit(end).cast("timestamp"))
    request = ChangelogRequest(
        name=name,
        start=0,
        end=0,
        leaves_out=leaves_out,
        computes_updates=asked.computes_updates,
        where=reduce(operator.and_, where) if where else None,
    )
    return _changes(spark, location, change_bounds(spark, start, end), request)


def _changes(
    spark: SparkSession, location: str, bounds: ChangeBounds, request: ChangelogRequest
) -> DataFrame:
    log = open_log(spark, location)
    if not log.table_exists:
        raise TableNotFoundError("DELTA_MISSING_DELTA_TABLE", tableName=f"`{location}`")
    newest = log.update().version
    if bounds.start_version is not None and bounds.end_version is None and bounds.end_time is None:
        # An open end is the newest version, and a range must not end before it begins.
        if bounds.start_version > newest:
            raise ChangeFeedError("DELTA_INVALID_CDC_RANGE", start=bounds.start_version, end=newest)
        bounds = replace(bounds, end_version=newest)
    versions = bounds.versions(log, newest)
    if versions is not None:
        first, last = versions
        start = log.snapshot_at(version=first)
        has_feed = is_recorded(start.metadata) and request.leaves_out != "netChanges"
        if tracks_rows(start) or not has_feed:
            return run_changelog(spark, log, replace(request, start=first, end=last))
    found = changes_between(spark, log, bounds)
    if request.where is not None:
        found = found.where(request.where)
    return found if request.computes_updates else _as_two_changes(found)


def _as_two_changes(changes: DataFrame) -> DataFrame:
    """An update as the end of a row and the beginning of another."""
    kind = F.col(CHANGE_TYPE)
    told = F.when(kind == BEFORE, DELETE).when(kind == AFTER, INSERT).otherwise(kind)
    return changes.withColumn(CHANGE_TYPE, told)


def deduplication(
    jvm: JvmSession, name: str, leaves_out: str, computes_updates: bool
) -> Deduplication:
    """What a user calls it, in any case; Spark's error for what goes with nothing."""
    modes: tuple[Deduplication, ...] = get_args(Deduplication)
    mode = next((mode for mode in modes if mode.lower() == leaves_out.lower()), None)
    if mode is None:
        raise analysis_error(jvm, f"{_OPTIONS}.INVALID_DEDUPLICATION_MODE", mode=leaves_out)
    if mode == "none" and computes_updates:
        condition = f"{_OPTIONS}.UPDATE_DETECTION_REQUIRES_CARRY_OVER_REMOVAL"
        raise analysis_error(jvm, condition, changelogName=f"{name} (changes)")
    return mode


def _version(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise VersionNotFoundError("DELTA_VERSION_INVALID", version=text)
    return int(text)


def _flag(options: DeltaOptions, key: str, otherwise: bool) -> bool:
    found = options.flag(key)
    return otherwise if found is None else found
