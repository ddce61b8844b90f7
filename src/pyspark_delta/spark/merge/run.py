"""MERGE: rows of a source update, delete and insert rows of a table, in one commit.

First names are resolved (`names`), then one join gives each row its clause and values (`join`), and
from that files are written (`jobs`).  After an error the table is unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_delta.errors import SchemaError, TableNotFoundError
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.operations import Operation, merge
from pyspark_delta.kernel.protocol.properties import ENABLE_CHANGE_DATA_FEED, property_value
from pyspark_delta.kernel.scan.plan import select_files
from pyspark_delta.kernel.scan.predicates.tree import TRUE
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.conf.setting_table import MERGE_ATTEMPTS, MERGE_INSERT_ONLY, MERGE_SOURCE
from pyspark_delta.spark.conf.settings import conf_of
from pyspark_delta.spark.dml.files import DmlFiles, Stopwatch, must_change
from pyspark_delta.spark.files.stage import StagedFiles, hidden_columns
from pyspark_delta.spark.files.write_options import WriteOptions
from pyspark_delta.spark.jvm.expressions.catalyst import Moment
from pyspark_delta.spark.jvm.failures import typed_jobs
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans.frames import release
from pyspark_delta.spark.jvm.plans.merge import ClauseKind
from pyspark_delta.spark.merge.columns import evolve
from pyspark_delta.spark.merge.jobs import SOURCE_ROWS, Merged, MergeJobs, RowsLostError
from pyspark_delta.spark.merge.join import MergeRows
from pyspark_delta.spark.merge.names import MergeNames, Resolution, resolve_merge
from pyspark_delta.spark.merge.pruning import affected_rows, with_known_keys
from pyspark_delta.spark.merge.request import (
    MergeRequest,
    MergeResult,
    MergeSource,
    RowCounts,
    check_clauses,
    is_insert_only,
    is_limited,
    merge_source,
)
from pyspark_delta.spark.scan.frame import LocatedRows, located_rows
from pyspark_delta.spark.scan.versions import TableReads, one_version_each


def merge_into(
    spark: SparkSession,
    log: DeltaLog,
    request: MergeRequest,
    evolved: Callable[[], None] = lambda: None,
) -> MergeResult:
    """Run a MERGE and commit it; `evolved` writes the table's new columns into the catalog."""
    result = _run(spark, log, request)
    if result.has_new_schema:
        evolved()
    return result


@typed_jobs
def _run(spark: SparkSession, log: DeltaLog, request: MergeRequest) -> MergeResult:
    check_clauses(request.clauses)
    options = WriteOptions.parse({}, conf_of(spark))
    left = MERGE_ATTEMPTS.by(options.conf)
    while True:
        left -= 1
        try:
            return _run_once(spark, log, request, options)
        except RowsLostError:
            if left <= 0:
                raise


def _run_once(
    spark: SparkSession, log: DeltaLog, request: MergeRequest, options: WriteOptions
) -> MergeResult:
    reads = TableReads.of(log, request.source)
    txn = reads.start_transaction(spark, log)
    if txn.snapshot is None:
        raise TableNotFoundError("DELTA_MISSING_DELTA_TABLE", tableName=log.store.root_uri)
    if not txn.schema.fields and not (request.evolves or options.merges_schema):
        raise SchemaError("DELTA_MERGE_INTO_EMPTY_SCHEMA_TARGET")
    if not must_change(spark, txn, options, may_append=True):
        return MergeResult(counts=RowCounts())
    jvm = JvmSession(spark)
    with one_version_each(jvm, txn.snapshot):
        return _Merge(jvm, txn, request, options).run(reads)


class _Merge:
    def __init__(
        self,
        jvm: JvmSession,
        txn: OptimisticTransaction,
        request: MergeRequest,
        options: WriteOptions,
    ) -> None:
        self._jvm = jvm
        self._txn = txn
        self._request = request
        self._options = options
        self._times = Stopwatch("materializeSource", "scan", "rewrite")
        may_append = MERGE_INSERT_ONLY.by(options.conf)
        self._only_inserts = may_append and is_insert_only(request.clauses)

    def run(self, reads: TableReads) -> MergeResult:
        """Run the jobs, and commit their files."""
        source = self._source()
        try:
            return self._run(source, reads)
        finally:
            if source.kept is not None:
                release(source.kept)

    def _run(self, source: MergeSource, reads: TableReads) -> MergeResult:
        txn = self._txn
        assert txn.snapshot is not None
        target, names, resolution = self._resolved(source, txn.snapshot)
        if source.is_small:
            resolution = with_known_keys(self._jvm, resolution, source.frame, txn.snapshot)
        if resolution.has_queries:
            # The reads of subqueries are not known, so any change to the table is a conflict.
            txn.read_whole_table()
        has_new_schema = resolution.schema != txn.schema
        evolve(txn, resolution.schema)
        rows = MergeRows(names=names, resolution=resolution, hidden=hidden_columns(txn))
        with StagedFiles(txn) as staged:
            dml = DmlFiles(self._jvm, txn, staged, self._options)
            jobs = MergeJobs(dml, rows, source, target, self._times)
            done = jobs.insert_only() if self._only_inserts else jobs.run()
            if done.is_empty and not has_new_schema and not dml.must_commit(()):
                return MergeResult(counts=done.counts)
            reads.record(txn)
            counts = done.counts
            if counts.num_source is None:
                # The optimizer removed the join that counts them.
                counts = replace(counts, num_source=source.frame.count())
            actions = [*dml.actions(done.changes), *done.written, *done.feed]
            metrics = _metrics(counts, done) | self._times.metrics
            version = dml.commit(actions, _operation(resolution), metrics)
        return MergeResult(counts=counts, version=version, has_new_schema=has_new_schema)

    def _resolved(
        self, source: MergeSource, snapshot: Snapshot
    ) -> tuple[LocatedRows, MergeNames, Resolution]:
        """The rows of the target that the MERGE can affect, and its names resolved over them."""
        target = located_rows(self._jvm, self._txn, snapshot.adds)
        names = self._names(source, target)
        resolution = resolve_merge(names)
        if not is_limited(self._request.clauses):
            return target, names, resolution
        affected = affected_rows(self._jvm, resolution, snapshot)
        if affected != TRUE:
            zone, by_stats = self._txn.time_zone, self._txn.skips_by_stats
            target.narrow(select_files(snapshot, affected, time_zone=zone, by_stats=by_stats))
            resolution = replace(resolution, taken=affected)
        return target, names, resolution

    def _source(self) -> MergeSource:
        snapshot = self._txn.snapshot
        assert snapshot is not None
        keeps = MERGE_SOURCE.by(self._options.conf) == "all"
        source = merge_source(self._jvm, self._request.source, snapshot.size_in_bytes, keeps=keeps)
        self._times.done("materializeSource")
        return source

    def _names(self, source: MergeSource, target: LocatedRows) -> MergeNames:
        has_feed = property_value(self._txn.metadata.configuration, ENABLE_CHANGE_DATA_FEED)
        return MergeNames(
            jvm=self._jvm,
            txn=self._txn,
            request=self._request,
            options=self._options,
            source=source.frame.observe(SOURCE_ROWS, F.count(F.lit(1)).alias("n")),
            target=target.frame,
            has_old_values=bool(has_feed) and not self._only_inserts,
            moment=Moment(self._jvm),
        )


def _operation(resolution: Resolution) -> Operation:
    """The operation with its conditions, for the history."""

    def listed(kind: ClauseKind) -> list[tuple[str, str | None]]:
        clauses = resolution.of_kind(kind).values()
        return [(each.clause.action, each.predicate) for each in clauses]

    return merge(
        [resolution.predicate],
        matched=listed("matched"),
        not_matched=listed("not matched"),
        not_matched_by_source=listed("not matched by source"),
    )


def _metrics(counts: RowCounts, done: Merged) -> dict[str, object]:
    files = done.changes.metrics(done.written, done.feed)
    by_source: ClauseKind = "not matched by source"
    return {
        "numSourceRows": counts.num_source,
        "numTargetRowsInserted": counts.num_inserted,
        "numTargetRowsUpdated": counts.num_updated,
        "numTargetRowsMatchedUpdated": counts.of("update", "matched"),
        "numTargetRowsNotMatchedBySourceUpdated": counts.of("update", by_source),
        "numTargetRowsDeleted": counts.num_deleted,
        "numTargetRowsMatchedDeleted": counts.of("delete", "matched"),
        "numTargetRowsNotMatchedBySourceDeleted": counts.of("delete", by_source),
        "numTargetRowsCopied": done.changes.num_copied,
        "numOutputRows": counts.num_inserted + counts.num_updated + done.changes.num_copied,
        "numTargetBytesAdded": files["numAddedBytes"],
        "numTargetBytesRemoved": files["numRemovedBytes"],
        "numTargetFilesAdded": files["numAddedFiles"],
        "numTargetFilesRemoved": files["numRemovedFiles"],
        "numTargetChangeFilesAdded": files["numAddedChangeFiles"],
        "numTargetDeletionVectorsAdded": files["numDeletionVectorsAdded"],
        "numTargetDeletionVectorsRemoved": files["numDeletionVectorsRemoved"],
        "numTargetDeletionVectorsUpdated": files["numDeletionVectorsUpdated"],
    }
