"""DELETE and TRUNCATE TABLE: all rows, whole partitions, or rows for which a condition is true.

A condition on partition columns alone needs no job.  Else one job finds the positions of the rows,
and reads the condition's columns only; with deletion vectors that is all, without them the rows
that stay are rewritten.  A row for which the condition is null stays.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.ops.rewrite_plan import FileChanges, removed_metrics
from pyspark_delta.kernel.protocol.actions import AddCDCFile
from pyspark_delta.kernel.protocol.operations import operation
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.conf.settings import conf_of
from pyspark_delta.spark.dml.files import (
    CHANGE_TYPE,
    DmlFiles,
    Stopwatch,
    check_conserved,
    must_change,
)
from pyspark_delta.spark.dml.rows import (
    NOTHING_AFFECTED,
    Affected,
    ChangedRows,
    DmlCondition,
    dml_condition,
    files_by_partition,
    matching_changes,
    rows_that_stay,
)
from pyspark_delta.spark.files.stage import StagedFiles
from pyspark_delta.spark.files.write_options import WriteOptions
from pyspark_delta.spark.jvm.failures import typed_jobs
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans.frames import Qualifier
from pyspark_delta.spark.scan.frame import located_rows
from pyspark_delta.spark.scan.versions import TableReads, one_version_each, start_transaction


@typed_jobs
def run_delete(
    spark: SparkSession, log: DeltaLog, condition: Column | None = None, *, alias: Qualifier = None
) -> Affected:
    """Delete the rows for which `condition` is true, all rows without one.

    `alias` is the table's name in the condition.
    """
    options = WriteOptions.parse({}, conf_of(spark))
    txn = start_transaction(spark, log)
    if not must_change(spark, txn, options):
        return NOTHING_AFFECTED
    watch = Stopwatch("scan", "rewrite")
    jvm = JvmSession(spark)
    with one_version_each(jvm, txn.snapshot), StagedFiles(txn) as staged:
        files = DmlFiles(jvm, txn, staged, options)
        where = None
        if condition is not None:
            exists = options.allows_exists
            where = dml_condition(jvm, txn, condition, "DELETE", alias, allows_exists=exists)
        done = _delete_rows(files, where, watch)
        if where is not None and where.resolved.has_subquery:
            # The subquery may read other rows of this very table.
            TableReads.of(log, where.matching(files.live_rows(()))).record(txn)
        # A DELETE without rows does not record its application, so that this may run it again.
        names = bool(done.actions)
        if not files.must_commit(done.actions, names_application=names):
            return NOTHING_AFFECTED
        recorded = operation("DELETE", predicate=["true" if where is None else where.resolved.text])
        metrics = {**done.metrics, **watch.metrics}
        version = files.commit(done.actions, recorded, metrics, names_application=names)
    return Affected(version=version, num_rows=done.num_rows)


def run_truncate(spark: SparkSession, log: DeltaLog) -> int | None:
    """Remove all files without reading a row; the new version, None for an empty table."""
    options = WriteOptions.parse({}, conf_of(spark))
    txn = log.start_transaction()
    if not must_change(spark, txn, options):
        return None
    watch = Stopwatch("scan", "rewrite")
    with StagedFiles(txn) as staged:
        removed = tuple(add_files(txn.filter_files()))
        if not removed:
            return None
        watch.done("scan")
        now_ms = txn.log.now_ms()
        metrics = {"numRemovedFiles": len(removed), **watch.metrics}
        files = DmlFiles(JvmSession(spark), txn, staged, options)
        removes = [file.remove(now_ms) for file in removed]
        return files.commit(removes, operation("TRUNCATE"), metrics)


def _delete_rows(files: DmlFiles, where: DmlCondition | None, watch: Stopwatch) -> ChangedRows:
    """Find the rows, and write files for the rows that stay and for the change feed."""
    jvm, txn = files.jvm, files.txn
    if where is None:
        return _whole_files(files, txn.filter_files(), watch)
    candidates = where.candidates(txn)
    whole = files_by_partition(jvm, txn, where, candidates)
    if whole is not None:
        return _whole_files(files, whole, watch)
    with_vectors = files.uses_vectors("delete")
    rows = located_rows(jvm, txn, candidates)
    # Where only vectors change, the change feed needs no files of its own.
    can_rewrite = not files.writes_changes
    changes = matching_changes(
        files, where, rows, with_vectors=with_vectors, can_rewrite=can_rewrite
    )
    watch.done("scan")
    kept = rows_that_stay(files, changes, where)
    written = [] if kept is None else files.write(kept)
    check_conserved("DELETE", written=written, expected=changes.num_copied)
    feed = [] if with_vectors else _change_files(files, changes, where)
    watch.done("rewrite")
    actions = [*files.actions(changes), *written, *feed]
    return ChangedRows(
        actions=actions,
        metrics={**changes.metrics(written, feed), "numDeletedRows": changes.num_rows},
        num_rows=changes.num_rows,
    )


def _whole_files(files: DmlFiles, gone: pa.Table, watch: Stopwatch) -> ChangedRows:
    """Remove files whose rows all go: nothing is read, nothing is written."""
    removed = tuple(add_files(gone))
    num_rows = files.known_rows(removed)
    watch.done("scan")
    now_ms = files.txn.log.now_ms()
    return ChangedRows(
        actions=[file.remove(now_ms) for file in removed],
        metrics={**removed_metrics(removed), "numDeletedRows": num_rows},
        num_rows=num_rows,
    )


def _change_files(files: DmlFiles, changes: FileChanges, where: DmlCondition) -> list[AddCDCFile]:
    if not files.writes_changes:
        return []
    if changes.counted:
        rows: DataFrame | None = where.matching(files.live_rows(changes.removed))
    else:
        rows = files.touched_rows(changes.files)
    if rows is None:
        return []
    return files.write_changes(rows.withColumn(CHANGE_TYPE, F.lit("delete")))
