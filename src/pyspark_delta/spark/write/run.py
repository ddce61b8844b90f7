"""Runs a write: append to a table, overwrite all or some of it, or create it, in one commit.

The job runs between the checks and the commit; if it fails, the table is unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.kernel.protocol.actions import Action
from pyspark_delta.kernel.protocol.row_tracking import PRESERVED_TAG
from pyspark_delta.kernel.protocol.schema_merge import STRICT
from pyspark_delta.kernel.txn.commit import Committed
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.files.stage import StagedFiles, due_hooks, run_hooks
from pyspark_delta.spark.files.stats import with_recorded_stats
from pyspark_delta.spark.files.write_options import WriteOptions, forget_session_version
from pyspark_delta.spark.jvm.failures import typed_jobs
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.scan.file_index import COMMAND
from pyspark_delta.spark.rules.alignment import store_assigned
from pyspark_delta.spark.scan.versions import TableReads, one_version_each
from pyspark_delta.spark.tables.registration import new_table_properties
from pyspark_delta.spark.write.jobs import WriteJobs, WriteResult
from pyspark_delta.spark.write.overwrite import OverwriteJobs
from pyspark_delta.spark.write.request import WriteRequest, must_write, write_options, write_scope
from pyspark_delta.spark.write.schema import data_schema, define_table, merge_rules


@typed_jobs
def run_write(
    spark: SparkSession,
    log: DeltaLog,
    data: DataFrame,
    request: WriteRequest,
    *,
    starting: Callable[[], None] = lambda: None,
    committing: Callable[[], None] = lambda: None,
) -> int | None:
    """Write `data` and return the new version; None if there was nothing to do.

    `starting` is called after all checks that need no job, before the first file is written;
    `committing` after all files are written, before the commit.
    """
    options = write_options(spark, request)
    reads = TableReads.of(log, data)
    txn = reads.start_transaction(spark, log)
    if not must_write(spark, txn, request, options):
        return None
    jvm, scope = JvmSession(spark), write_scope(txn, request, options)
    # An append reads Delta tables only in its data.  In a statement it must note its version, so
    # that later parts of the statement do not read its rows.
    outer = spark.sparkContext.getLocalProperty(COMMAND)
    reads_any = scope != "nothing" or reads.any_table or outer is not None
    with one_version_each(jvm, txn.snapshot) if reads_any else nullcontext():
        if scope == "matching":
            # It is read twice, and must have the same rows both times.
            data = data.localCheckpoint(eager=True)
        rows = _assigned(jvm, txn, data, request, options)
        definition = define_table(
            txn,
            data_schema(rows.schema),
            request,
            options,
            replaces_some=scope in ("partitions", "where", "matching"),
            new_properties=partial(new_table_properties, spark),
        )
        hooks = due_hooks(txn.metadata, options.conf)
        starting()
        with StagedFiles(txn) as staged:
            jobs = (WriteJobs if scope == "nothing" else OverwriteJobs)(
                jvm=jvm,
                txn=txn,
                request=request,
                options=options,
                staged=staged,
                scope=scope,
                source=data,
            )
            done = jobs.run(rows)
            reads.record(txn)
            committing()
            committed = _committed(jobs, done, definition)
    forget_session_version(spark, options)
    if committed is None:
        return None
    if done.written:
        run_hooks(hooks, spark, log, [*done.written, *done.copied], options.conf)
    return committed.version


def _committed(
    jobs: WriteJobs, done: WriteResult, definition: Sequence[Action]
) -> Committed | None:
    """Commit what the jobs did; None if that is nothing."""
    txn, options = jobs.txn, jobs.options
    actions = [*definition, *done.actions(txn, options)]
    operation = jobs.operation(done.predicate)
    commit = txn.commit if not actions and options.records_empty else txn.commit_if_needed
    jobs.staged.offer()
    return commit(
        with_recorded_stats(actions, txn, options.conf),
        operation,
        tags={PRESERVED_TAG: "true"} if done.keeps_ids(txn) else None,
        user_metadata=options.user_metadata,
        metrics=done.metrics,
    )


def _assigned(
    jvm: JvmSession,
    txn: OptimisticTransaction,
    data: DataFrame,
    request: WriteRequest,
    options: WriteOptions,
) -> DataFrame:
    """`data` cast to the table's types, if the caller's verb casts."""
    replaces_schema = request.replaces_definition or options.overwrites_schema
    is_new = txn.snapshot is None or (request.mode == "overwrite" and replaces_schema)
    if is_new or not (request.casts or request.by_position):
        return data
    return store_assigned(
        jvm,
        data,
        txn.metadata,
        by_position=request.by_position,
        fields_by_position=request.fields_by_position,
        widens=merge_rules(txn.metadata, options) != STRICT,
    )
