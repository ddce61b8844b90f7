"""`CHANGES FROM`: what came and went between two versions, by the ids of rows.

A row whose file was written anew is gone and come with the same id and version: it did not change.
One that is gone and come otherwise was updated.  Over several versions only what is left of a row's
changes in the end may be wanted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from pyspark_delta.kernel.ops.changed_files import DELETE, INSERT
from pyspark_delta.kernel.ops.changelog import Changelog, read_changelog
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.scan.vectors import VectorReader
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.allowed_places import allowed_stores
from pyspark_delta.spark.change_rows import (
    CHANGE_TYPE,
    COMMIT_VERSION,
    ROW_ID,
    ROW_VERSION,
    ChangesOf,
    change_frame,
)
from pyspark_delta.spark.column_alignment import column
from pyspark_delta.spark.file_retention import check_retention
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.table_plan import METADATA

Deduplication = Literal["none", "dropCarryovers", "netChanges"]
"""Which changes are left out: none, rows that did not change, all but a row's net change."""

BEFORE, AFTER = "update_preimage", "update_postimage"
"""An updated row as it was, and as it is."""

_FIRST, _LAST, _NUMBER, _COUNT = "__delta_first", "__delta_last", "__delta_nth", "__delta_count"
_PAIRED, _COPIED = "__delta_paired", "__delta_copied"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogRequest:
    """Changes from version `start` to `end`, both included, of the table `name`.

    `computes_updates` tells updates as such; `where` leaves changes out before all else.
    """

    name: str
    start: int
    end: int
    leaves_out: Deduplication = "dropCarryovers"
    computes_updates: bool = False
    where: Column | None = None


def run_changelog(spark: SparkSession, log: DeltaLog, request: ChangelogRequest) -> DataFrame:
    """The changed rows: the table's columns, their ids, what happened to each row, and when."""
    start, end = log.snapshot_at(version=request.start), log.snapshot_at(version=request.end)
    check_retention(spark, log, start)
    vectors = VectorReader(Locations(log.store, allowed_stores(spark)))
    keeps_all = request.leaves_out == "none"
    found = read_changelog(log, start, end, vectors.read, name=request.name, has_copies=keeps_all)
    changes = _rows(spark, log, found, keeps_all=keeps_all)
    if request.where is not None:
        changes = changes.where(request.where)
    if found.has_pairs and not keeps_all:
        changes = _without_copies(changes, computes_updates=request.computes_updates)
    if request.leaves_out == "netChanges":
        changes = _net(changes, computes_updates=request.computes_updates)
    return _shown(changes)


def _shown(changes: DataFrame) -> DataFrame:
    """The ids of rows in a struct, as Spark has them for rows of the table."""
    ids = F.struct(
        F.col(ROW_ID).alias("row_id"), F.col(ROW_VERSION).alias("row_commit_version")
    ).alias(METADATA)
    *own, row_id, version, kind, commit, time = changes.columns
    assert (row_id, version) == (ROW_ID, ROW_VERSION)
    has_ids = METADATA not in own
    return changes.select(
        *map(column, own), *([ids] if has_ids else []), *map(column, (kind, commit, time))
    )


def _rows(spark: SparkSession, log: DeltaLog, found: Changelog, *, keeps_all: bool) -> DataFrame:
    kept, read_as = "all" if keeps_all else "changed", found.read_as
    table = ChangesOf(
        store=log.store,
        metadata=read_as.metadata,
        protocol=read_as.protocol,
        key=f"{kept} rows of {found.start} to {read_as.version}",
    )
    return change_frame(JvmSession(spark), table, found.files)


def _without_copies(changes: DataFrame, *, computes_updates: bool) -> DataFrame:
    """Changes without rows that are gone and come as they were."""
    of_commit = Window.partitionBy(ROW_ID, COMMIT_VERSION)
    kind, version = F.col(CHANGE_TYPE), F.col(ROW_VERSION)
    is_paired = (F.count(F.when(kind == DELETE, 1)).over(of_commit) == 1) & (
        F.count(F.when(kind == INSERT, 1)).over(of_commit) == 1
    )
    is_same = (F.count(version).over(of_commit) == 2) & (
        F.min(version).over(of_commit) == F.max(version).over(of_commit)
    )
    told = changes.withColumns({_PAIRED: is_paired, _COPIED: is_paired & is_same})
    told = told.where(~F.col(_COPIED))
    if computes_updates:
        as_update = F.when(kind == INSERT, AFTER).otherwise(BEFORE)
        told = told.withColumn(CHANGE_TYPE, F.when(F.col(_PAIRED), as_update).otherwise(kind))
    return told.drop(_PAIRED, _COPIED)


def _net(changes: DataFrame, *, computes_updates: bool) -> DataFrame:
    """The first and the last change of each row, if the row was there before, or is after."""
    kind = F.col(CHANGE_TYPE)
    comes_last = kind.isin(INSERT, AFTER).cast("int")
    ordered = Window.partitionBy(ROW_ID).orderBy(COMMIT_VERSION, comes_last)
    whole = ordered.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    told = changes.withColumns(
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
    told = told.withColumn(CHANGE_TYPE, net).where(F.col(CHANGE_TYPE).isNotNull())
    return told.drop(_NUMBER, _COUNT, _FIRST, _LAST)
