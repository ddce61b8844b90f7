"""`CHANGES FROM` in SQL and `spark.read.changes`: rows that changed between two versions.

Where rows are tracked, they are compared by their ids.  A row whose file was rewritten is deleted
and inserted with the same id and version: it did not change.  A row that is deleted and inserted
with another version was updated.  A request may want only the net change of each row over several
versions.  Tables without row tracking read the change feed, which delta-spark does not do here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, get_args

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from pyspark_delta.errors import ChangeFeedError, TableNotFoundError, VersionNotFoundError
from pyspark_delta.kernel.ops.changes.feed import (
    ChangeBounds,
    RangeChanges,
    is_recorded,
    read_changelog,
    tracks_rows,
)
from pyspark_delta.kernel.ops.changes.files import DELETE, INSERT
from pyspark_delta.kernel.scan.locations import Locations, VectorReader
from pyspark_delta.kernel.sql.quoting import quoted_name
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.changes.feed import ChangeBound, change_bounds, changes_between
from pyspark_delta.spark.changes.rows import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    ROW_ID,
    ROW_VERSION,
    ChangesOf,
    change_frame,
)
from pyspark_delta.spark.jvm.failures import analysis_error
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans.frames import METADATA
from pyspark_delta.spark.rules.alignment import column
from pyspark_delta.spark.scan.load import check_still_readable
from pyspark_delta.spark.tables.locations import allowed_stores, open_log

Deduplication = Literal["none", "dropCarryovers", "netChanges"]
"""Which changes are left out: none, rows that did not change, all but a row's net change."""
BEFORE, AFTER = "update_preimage", "update_postimage"
"""The change types of an updated row before and after the update."""
_FIRST, _LAST, _NUMBER, _COUNT = "__delta_first", "__delta_last", "__delta_nth", "__delta_count"
_PAIRED, _COPIED = "__delta_paired", "__delta_copied"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogRequest:
    """A range of versions or times, and the options for its changes.

    `leaves_out` is the deduplication mode as the user spelled it.  With `computes_updates` an
    update has its own change types, instead of a deletion and an insertion.
    """

    start: ChangeBound
    end: ChangeBound | None = None
    start_inclusive: bool = True
    end_inclusive: bool = True
    computes_updates: bool = False
    leaves_out: str = "dropCarryovers"

    def bounds(self, spark: SparkSession) -> ChangeBounds:
        """The versions and times, with versions that are excluded left out."""
        start, end = self.start, self.end
        if isinstance(start, int) and not self.start_inclusive:
            start += 1
        if isinstance(end, int) and not self.end_inclusive:
            end -= 1
        return change_bounds(spark, start, end)

    def within(self, changes: DataFrame) -> DataFrame:
        """Changes without those at times that are excluded."""
        if not self.start_inclusive and not isinstance(self.start, int):
            changes = changes.where(F.col(COMMIT_TIMESTAMP) > F.lit(self.start).cast("timestamp"))
        if not self.end_inclusive and self.end is not None and not isinstance(self.end, int):
            changes = changes.where(F.col(COMMIT_TIMESTAMP) < F.lit(self.end).cast("timestamp"))
        return changes


def run_changelog(
    spark: SparkSession, location: str, name: str, request: ChangelogRequest
) -> DataFrame:
    """The changes of the table at `location`; `name` is for messages."""
    updates = request.computes_updates
    mode = _deduplication(JvmSession(spark), name, request.leaves_out, updates)
    bounds = request.bounds(spark)
    log = open_log(spark, location)
    if not log.table_exists:
        raise TableNotFoundError("DELTA_MISSING_DELTA_TABLE", tableName=quoted_name(location))
    newest = log.update().version
    if bounds.start_version is not None and bounds.end_version is None and bounds.end_time is None:
        # An open end is the newest version, and a range must not end before it begins.
        if bounds.start_version > newest:
            raise ChangeFeedError("DELTA_INVALID_CDC_RANGE", start=bounds.start_version, end=newest)
        bounds = replace(bounds, end_version=newest)
    versions = bounds.versions(log, newest)
    if versions is not None:
        start = log.snapshot_at(version=versions[0])
        if tracks_rows(start) or not is_recorded(start.metadata) or mode == "netChanges":
            end = log.snapshot_at(version=versions[1])
            check_still_readable(spark, log, start)
            vectors = VectorReader(Locations(log.store, allowed_stores(spark)))
            has_copies = mode == "none"
            changelog = read_changelog(
                log, start, end, vectors.read, name=name, has_copies=has_copies
            )
            changes = request.within(_changed_rows(spark, log, changelog, keeps_all=has_copies))
            if changelog.has_pairs and not has_copies:
                changes = _without_copies(changes, computes_updates=updates)
            if mode == "netChanges":
                changes = _net_changes(changes, computes_updates=updates)
            return _with_metadata(changes)
    changes = request.within(changes_between(spark, log, bounds))
    return changes if updates else _as_two_changes(changes)


def changelog_bound(bound: str | datetime | None) -> ChangeBound:
    """A bound of a range: a version, which is text here, or a time; raises for none."""
    if bound is None:
        raise ChangeFeedError("DELTA_CHANGELOG_UNBOUNDED_RANGE")
    if isinstance(bound, datetime):
        return bound
    if not (bound.isascii() and bound.isdigit()):
        raise VersionNotFoundError("DELTA_VERSION_INVALID", version=bound)
    return int(bound)


def _deduplication(
    jvm: JvmSession, name: str, leaves_out: str, computes_updates: bool
) -> Deduplication:
    """The mode of that name, in any case; raises Spark's error for a wrong combination."""
    modes: tuple[Deduplication, ...] = get_args(Deduplication)
    mode = next(mode for mode in modes if mode.lower() == leaves_out.lower())
    if mode == "none" and computes_updates:
        condition = "INVALID_CDC_OPTION.UPDATE_DETECTION_REQUIRES_CARRY_OVER_REMOVAL"
        raise analysis_error(jvm, condition, changelogName=f"{name} (changes)")
    return mode


def _with_metadata(changes: DataFrame) -> DataFrame:
    """Put row ids and versions into a struct, as Spark has them for rows of the table."""
    ids = F.struct(
        F.col(ROW_ID).alias("row_id"), F.col(ROW_VERSION).alias("row_commit_version")
    ).alias(METADATA)
    *own, row_id, version, kind, commit, time = changes.columns
    assert (row_id, version) == (ROW_ID, ROW_VERSION)
    has_ids = METADATA not in own
    return changes.select(
        *map(column, own), *([ids] if has_ids else []), *map(column, (kind, commit, time))
    )


def _changed_rows(
    spark: SparkSession, log: DeltaLog, found: RangeChanges, *, keeps_all: bool
) -> DataFrame:
    kept, read_as = "all" if keeps_all else "changed", found.read_as
    table = ChangesOf(
        store=log.store,
        metadata=read_as.metadata,
        protocol=read_as.protocol,
        key=f"{kept} rows of {found.start} to {read_as.version}",
    )
    return change_frame(JvmSession(spark), table, found.files)


def _without_copies(changes: DataFrame, *, computes_updates: bool) -> DataFrame:
    """Drop the changes of rows that were only copied into other files."""
    of_commit = Window.partitionBy(ROW_ID, COMMIT_VERSION)
    kind, version = F.col(CHANGE_TYPE), F.col(ROW_VERSION)
    is_paired = (F.count(F.when(kind == DELETE, 1)).over(of_commit) == 1) & (
        F.count(F.when(kind == INSERT, 1)).over(of_commit) == 1
    )
    is_same = (F.count(version).over(of_commit) == 2) & (
        F.min(version).over(of_commit) == F.max(version).over(of_commit)
    )
    left = changes.withColumns({_PAIRED: is_paired, _COPIED: is_paired & is_same})
    left = left.where(~F.col(_COPIED))
    if computes_updates:
        as_update = F.when(kind == INSERT, AFTER).otherwise(BEFORE)
        left = left.withColumn(CHANGE_TYPE, F.when(F.col(_PAIRED), as_update).otherwise(kind))
    return left.drop(_PAIRED, _COPIED)


def _net_changes(changes: DataFrame, *, computes_updates: bool) -> DataFrame:
    """The first change of rows that exist before the range, and the last of those after it."""
    kind = F.col(CHANGE_TYPE)
    comes_last = kind.isin(INSERT, AFTER).cast("int")
    ordered = Window.partitionBy(ROW_ID).orderBy(COMMIT_VERSION, comes_last)
    whole = ordered.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    numbered = changes.withColumns(
        {
            _NUMBER: F.row_number().over(ordered),
            _COUNT: F.count(F.lit(1)).over(whole),
            _FIRST: F.first(kind).over(whole),
            _LAST: F.last(kind).over(whole),
        }
    )
    was_there = F.col(_FIRST).isin(DELETE, BEFORE)
    is_there = F.col(_LAST).isin(INSERT, AFTER)
    is_first, is_last = F.col(_NUMBER) == 1, F.col(_NUMBER) == F.col(_COUNT)
    before, after = (BEFORE, AFTER) if computes_updates else (DELETE, INSERT)
    net = (
        F.when(~was_there & is_there & is_last, INSERT)
        .when(was_there & ~is_there & is_first, DELETE)
        .when(was_there & is_there & is_first, before)
        .when(was_there & is_there & is_last, after)
    )
    left = numbered.withColumn(CHANGE_TYPE, net).where(F.col(CHANGE_TYPE).isNotNull())
    return left.drop(_NUMBER, _COUNT, _FIRST, _LAST)


def _as_two_changes(changes: DataFrame) -> DataFrame:
    """Split an update into a deletion and an insertion."""
    kind = F.col(CHANGE_TYPE)
    as_two = F.when(kind == BEFORE, DELETE).when(kind == AFTER, INSERT).otherwise(kind)
    return changes.withColumn(CHANGE_TYPE, as_two)
