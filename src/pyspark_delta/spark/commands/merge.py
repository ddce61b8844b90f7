"""MERGE: rows of a source update, delete and insert rows of a table, in one commit.

Names are looked up first (`merge_resolution`), then one join says what becomes of each row
(`merge_join`), and files follow from that (`merge_write`).  When anything fails, the table is as it
was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_delta.errors.table import SchemaError, TableNotFoundError
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.properties import (
    ENABLE_CHANGE_DATA_FEED,
    property_value,
)
from pyspark_delta.kernel.scan.plan import select_files
from pyspark_delta.kernel.scan.predicates import TRUE
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.commands.dml_files import DmlFiles, must_change
from pyspark_delta.spark.commands.merge_clauses import (
    check_clauses,
    is_insert_only,
)
from pyspark_delta.spark.commands.merge_history import (
    MergeTimes,
    RowCounts,
    merge_metrics,
    merge_operation,
)
from pyspark_delta.spark.commands.merge_join import MergeRows
from pyspark_delta.spark.commands.merge_layout import MergeLayout
from pyspark_delta.spark.commands.merge_pruning import taken_rows, with_known_keys
from pyspark_delta.spark.commands.merge_request import MergeRequest
from pyspark_delta.spark.commands.merge_resolution import MergeNames, Resolution, resolve_merge
from pyspark_delta.spark.commands.merge_source import MergeSource, merge_source
from pyspark_delta.spark.commands.merge_targets import evolve
from pyspark_delta.spark.commands.merge_write import (
    SOURCE_ROWS,
    Merged,
    MergeJobs,
    RowsLostError,
)
from pyspark_delta.spark.commands.replaced_rows import hidden_columns
from pyspark_delta.spark.commands.write_options import WriteOptions
from pyspark_delta.spark.jvm.frame_facts import release
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.job_failures import typed_jobs
from pyspark_delta.spark.jvm.moments import Moment
from pyspark_delta.spark.located_rows import LocatedRows, located_rows
from pyspark_delta.spark.newest_source import one_version_each
from pyspark_delta.spark.staged_files import StagedFiles
from pyspark_delta.spark.table_reads import TableReads

_INSERT_ONLY = "spark.databricks.delta.merge.optimizeInsertOnlyMerge.enabled"
_KEEPS_SOURCE = "spark.databricks.delta.merge.materializeSource"
_ATTEMPTS = f"{_KEEPS_SOURCE}.maxAttempts"
_DEFAULT_ATTEMPTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """How many rows were affected, and the version that was made; None when nothing changed."""

    counts: RowCounts
    version: int | None = None
    has_new_schema: bool = False


@typed_jobs
def run_merge(spark: SparkSession, log: DeltaLog, request: MergeRequest) -> MergeResult:
    """Run a MERGE and commit it; once more when rows that were kept for it are lost."""
    check_clauses(request.clauses)
    asked = WriteOptions.parse({}, lambda key: spark.conf.get(key, None))
    attempts = asked.conf(_ATTEMPTS) or ""
    left = int(attempts) if attempts.isdecimal() else _DEFAULT_ATTEMPTS
    while True:
        left -= 1
        try:
            return _run_once(spark, log, request, asked)
        except RowsLostError:
            if left <= 0:
                raise


def _run_once(
    spark: SparkSession, log: DeltaLog, request: MergeRequest, asked: WriteOptions
) -> MergeResult:
    reads = TableReads.of(log, request.source)
    txn = reads.start_transaction(spark, log)
    if txn.snapshot is None:
        raise TableNotFoundError("DELTA_MISSING_DELTA_TABLE", tableName=log.store.root_uri)
    _check_columns(txn, evolves=request.evolves or asked.merges_schema)
    if not must_change(spark, txn, asked, may_append=True):
        return MergeResult(counts=RowCounts())
    jvm = JvmSession(spark)
    with one_version_each(jvm, txn.snapshot):
        return _Merge(jvm, txn, request, asked).run(reads)


def _check_columns(txn: OptimisticTransaction, *, evolves: bool) -> None:
    """Refuse a table without columns, unless the MERGE may give it some."""
    if not txn.schema.fields and not evolves:
        raise SchemaError("DELTA_MERGE_INTO_EMPTY_SCHEMA_TARGET")


class _Merge:
    """One MERGE from its request to its commit."""

    def __init__(
        self,
        jvm: JvmSession,
        txn: OptimisticTransaction,
        request: MergeRequest,
        asked: WriteOptions,
    ) -> None:
        self._jvm = jvm
        self._txn = txn
        self._request = request
        self._asked = asked
        self._times = MergeTimes()
        self._moment = Moment(jvm)
        may_append = (asked.conf(_INSERT_ONLY) or "true").lower() == "true"
        self._only_inserts = may_append and is_insert_only(request.clauses)

    def run(self, reads: TableReads) -> MergeResult:
        """Run the jobs, and commit what they made."""
        source = self._source()
        try:
            return self._run(source, reads)
        finally:
            if source.kept is not None:
                release(source.kept)

    def _run(self, source: MergeSource, reads: TableReads) -> MergeResult:
        txn, request = self._txn, self._request
        assert txn.snapshot is not None
        target, names, resolution = self._resolved(source, txn.snapshot)
        if source.is_small:
            resolution = with_known_keys(self._jvm, resolution, source.frame, txn.snapshot)
        if resolution.has_queries:
            # What they read of the table is not known: nobody may have changed it.
            txn.read_whole_table()
        evolve(txn, resolution.schema)
        has_new_schema = txn.schema != txn.snapshot.metadata.schema
        rows = MergeRows(
            jvm=self._jvm,
            txn=txn,
            resolution=resolution,
            hidden=hidden_columns(txn),
            tells_before=names.tells_before,
        )
        layout = MergeLayout(
            jvm=self._jvm,
            metadata=txn.metadata,
            target_bytes=txn.snapshot.size_in_bytes,
            num_files=txn.snapshot.num_files,
            asked=self._asked,
        )
        with StagedFiles(txn) as staged:
            dml = DmlFiles(self._jvm, txn, staged, self._asked)
            jobs = MergeJobs(dml, rows, names, source, target, request, layout, self._times)
            done = jobs.insert_only() if self._only_inserts else jobs.run()
            if done.is_empty and not has_new_schema and not dml.must_commit(()):
                return MergeResult(counts=done.counts)
            reads.record(txn)
            done = _with_source(done, source.frame)
            actions = [*dml.actions(done.changes), *done.written, *done.feed]
            metrics = merge_metrics(done.counts, done.changes, done.written, done.feed)
            metrics |= self._times.metrics
            version = dml.commit(actions, merge_operation(resolution), metrics)
        return MergeResult(counts=done.counts, version=version, has_new_schema=has_new_schema)

    def _resolved(
        self, source: MergeSource, snapshot: Snapshot
    ) -> tuple[LocatedRows, MergeNames, Resolution]:
        """The rows of the target that clauses can be for, and what the MERGE means over them."""
        condition, clauses = self._request.condition, self._request.clauses
        target = located_rows(self._jvm, self._txn, snapshot.adds)
        names = self._names(source, target)
        resolution = resolve_merge(names, condition, clauses)
        taken = taken_rows(self._jvm, resolution, snapshot)
        if taken == TRUE:
            return target, names, resolution
        files = select_files(snapshot, taken, time_zone=self._txn.time_zone)
        if files.num_rows < snapshot.num_files:
            target = located_rows(self._jvm, self._txn, files)
            names = replace(names, target=target.frame)
            resolution = resolve_merge(names, condition, clauses)
        return target, names, replace(resolution, taken=taken)

    def _source(self) -> MergeSource:
        snapshot = self._txn.snapshot
        assert snapshot is not None
        said = self._asked.conf(_KEEPS_SOURCE) or "auto"
        keeps = said.lower() == "all"
        source = merge_source(self._jvm, self._request.source, snapshot.size_in_bytes, keeps=keeps)
        self._times.done("materializeSource")
        return source

    def _names(self, source: MergeSource, target: LocatedRows) -> MergeNames:
        tells = property_value(self._txn.metadata.configuration, ENABLE_CHANGE_DATA_FEED)
        return MergeNames(
            jvm=self._jvm,
            txn=self._txn,
            source=source.frame.observe(SOURCE_ROWS, F.count(F.lit(1)).alias("n")),
            target=target.frame,
            called=self._request.called,
            evolves=self._request.evolves or self._asked.merges_schema,
            widening=self._asked.widening,
            tells_before=bool(tells) and not self._only_inserts,
            moment=self._moment,
            own_columns=self._request.own_columns,
        )


def _with_source(done: Merged, source: DataFrame) -> Merged:
    """Count the source's rows where no part of the join was left to count them."""
    if done.counts.num_source is not None:
        return done
    return replace(done, counts=replace(done.counts, num_source=source.count()))
