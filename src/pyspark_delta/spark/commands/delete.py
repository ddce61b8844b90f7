"""DELETE: all rows, whole partitions, or the rows for which a condition is true.

What partition values can tell needs no job.  Else one job finds the positions of the rows, reading
no more than the condition's columns; with deletion vectors that is all, without them the rows
that stay are written anew.  A row for which the condition is null stays.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_delta.kernel.log.frames import add_files
from pyspark_delta.kernel.protocol.actions import AddCDCFile, AddFile
from pyspark_delta.kernel.protocol.operations import delete
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.commands.dml_files import (
    CHANGE_TYPE,
    DmlFiles,
    FileChanges,
    check_conserved,
    must_change,
    removed_metrics,
)
from pyspark_delta.spark.commands.dml_rows import (
    NOTHING_AFFECTED,
    Affected,
    ChangedRows,
    DmlCondition,
    Stopwatch,
    counts_that_match,
    dml_condition,
    files_by_partition,
    rows_that_match,
)
from pyspark_delta.spark.commands.write_options import WriteOptions
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.job_failures import typed_jobs
from pyspark_delta.spark.jvm.named_rows import Called
from pyspark_delta.spark.located_rows import located_rows
from pyspark_delta.spark.newest_source import one_version_each
from pyspark_delta.spark.staged_files import StagedFiles
from pyspark_delta.spark.table_reads import TableReads
from pyspark_delta.spark.transactions import start_transaction


@typed_jobs
def run_delete(
    spark: SparkSession, log: DeltaLog, condition: Column | None = None, *, alias: Called = None
) -> Affected:
    """Delete the rows for which `condition` is true, all rows without one.

    `alias` is what the condition may call the table.
    """
    asked = WriteOptions.parse({}, lambda key: spark.conf.get(key, None))
    txn = start_transaction(spark, log)
    if not must_change(spark, txn, asked):
        return NOTHING_AFFECTED
    watch = Stopwatch()
    jvm = JvmSession(spark)
    with one_version_each(jvm, txn.snapshot), StagedFiles(txn) as staged:
        files = DmlFiles(jvm, txn, staged, asked)
        where = None
        if condition is not None:
            exists = asked.allows_exists
            where = dml_condition(jvm, txn, condition, "DELETE", alias, allows_exists=exists)
        done = _deleted(files, where, watch)
        if where is not None and where.has_subquery:
            # Which rows go may hang on other rows of this very table.
            TableReads.of(log, where.matching(files.live_rows(()))).record(txn)
        # One that finds no row may be run again by its application, which it does not name.
        names = bool(done.actions)
        if not files.must_commit(done.actions, names_application=names):
            return NOTHING_AFFECTED
        operation = delete(["true" if where is None else where.text])
        metrics = {**done.metrics, **watch.metrics}
        version = files.commit(done.actions, operation, metrics, names_application=names)
    return Affected(version=version, num_rows=done.num_rows)


def _deleted(files: DmlFiles, where: DmlCondition | None, watch: Stopwatch) -> ChangedRows:
    """Find what goes, and write what must be written."""
    jvm, txn = files.jvm, files.txn
    if where is None:
        return _whole_files(files, txn.filter_files(), watch)
    candidates = where.candidates(txn)
    whole = files_by_partition(jvm, txn, where, candidates)
    if whole is not None:
        return _whole_files(files, whole, watch)
    with_vectors = files.uses_vectors("delete")
    rows = located_rows(jvm, txn, candidates)
    if where.is_steady and not with_vectors:
        changes = files.count(counts_that_match(where, rows))
    else:
        touched = rows_that_match(where, rows)
        # A feed that has only vectors to tell of needs no files of its own.
        can_rewrite = not files.writes_changes
        changes = files.plan(touched.files, with_vectors=with_vectors, can_rewrite=can_rewrite)
    watch.found()
    written = _copied(files, changes, where)
    told = [] if with_vectors else _told(files, changes, where)
    watch.written()
    actions = [*files.actions(changes), *written, *told]
    return ChangedRows(
        actions=actions,
        metrics={**changes.metrics(written, told), "numDeletedRows": changes.num_rows},
        num_rows=changes.num_rows,
    )


def _whole_files(files: DmlFiles, gone: pa.Table, watch: Stopwatch) -> ChangedRows:
    """Files of which every row goes: nothing is read of them, nothing is written."""
    removed = tuple(add_files(gone))
    num_rows = files.known_rows(removed)
    watch.found()
    now_ms = files.txn.log.now_ms()
    return ChangedRows(
        actions=[file.remove(now_ms) for file in removed],
        metrics={**removed_metrics(removed), "numDeletedRows": num_rows},
        num_rows=num_rows,
    )


def _copied(files: DmlFiles, changes: FileChanges, where: DmlCondition) -> list[AddFile]:
    """The rows that stay of files which go, in new ones."""
    partial = [each.file for each in changes.counted if each.num_left]
    rows = where.others(files.live_rows(partial)) if partial else files.copied_rows(changes)
    written = [] if rows is None else files.write(rows)
    check_conserved("DELETE", written=written, expected=changes.num_copied)
    return written


def _told(files: DmlFiles, changes: FileChanges, where: DmlCondition) -> list[AddCDCFile]:
    """The deleted rows, for the change feed."""
    if not files.writes_changes:
        return []
    if changes.counted:
        rows: DataFrame | None = where.matching(files.live_rows(changes.removed))
    else:
        rows = files.touched_rows(changes.files)
    if rows is None:
        return []
    return files.write_changes(rows.withColumn(CHANGE_TYPE, F.lit("delete")))
