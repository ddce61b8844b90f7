"""WRITE: append to a table, overwrite all or some of it, or create it, in one commit.

The job runs between the checks and the commit; when it fails, the table is as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_delta.errors.base import DeltaError
from pyspark_delta.errors.table import ConstraintError, OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.log.frames import add_table
from pyspark_delta.kernel.protocol.actions import Action, AddCDCFile, AddFile, SetTransaction
from pyspark_delta.kernel.protocol.row_tracking import PRESERVED_TAG
from pyspark_delta.kernel.protocol.schema_merge import STRICT
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.chosen_rows import chosen_rows
from pyspark_delta.spark.commands.auto_compact import is_auto_compacted, run_auto_compaction
from pyspark_delta.spark.commands.dml_files import CHANGE_TYPE, DmlFiles, check_conserved
from pyspark_delta.spark.commands.dml_rows import DmlCondition, dml_condition
from pyspark_delta.spark.commands.matched_rows import match_condition, matched
from pyspark_delta.spark.commands.optimized_rows import optimized_rows
from pyspark_delta.spark.commands.overwrite_scope import (
    Scope,
    asked_options,
    forget_session_version,
    must_write,
    scope_of,
)
from pyspark_delta.spark.commands.overwritten_rows import rows_where
from pyspark_delta.spark.commands.replaced_rows import (
    Replaced,
    hidden_columns,
    partitions_of,
    whole_table,
)
from pyspark_delta.spark.commands.write_definition import data_schema, define_table, merge_rules
from pyspark_delta.spark.commands.write_history import write_metrics, write_operation
from pyspark_delta.spark.commands.write_options import WriteOptions
from pyspark_delta.spark.commands.write_request import WriteRequest
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.job_failures import typed_jobs
from pyspark_delta.spark.jvm.target_alias import without_alias
from pyspark_delta.spark.newest_source import one_version_each
from pyspark_delta.spark.recorded_stats import with_recorded_stats
from pyspark_delta.spark.staged_files import StagedFiles
from pyspark_delta.spark.table_places import new_table_properties
from pyspark_delta.spark.table_reads import TableReads
from pyspark_delta.spark.table_rows import (
    RowCheck,
    moved_identity,
    store_assigned,
    table_rows,
    typed_violations,
)
from pyspark_delta.spark.writer import stage


@typed_jobs
def run_write(
    spark: SparkSession,
    log: DeltaLog,
    data: DataFrame,
    request: WriteRequest,
    *,
    starting: Callable[[], None] | None = None,
    committing: Callable[[], None] | None = None,
) -> int | None:
    """Write `data` and give the version that has it; None when nothing was to be done.

    `starting` is called when all is settled that needs no job, before the first file is written;
    `committing` when all files are, before the commit.
    """
    asked = asked_options(spark, request)
    reads = TableReads.of(log, data)
    txn = reads.start_transaction(spark, log)
    if not must_write(spark, txn, request, asked):
        return None
    jvm = JvmSession(spark)
    with one_version_each(jvm, txn.snapshot):
        scope = scope_of(txn, request, asked)
        if scope == "matching":
            # It is looked at twice, and must be the same both times.
            data = data.localCheckpoint(eager=True)
        source = data
        data = _assigned(jvm, txn, data, request, asked)
        definition = define_table(
            txn,
            data_schema(data.schema),
            request,
            asked,
            replaces_some=scope in ("partitions", "where", "matching"),
            new_properties=partial(new_table_properties, spark),
        )
        compacts = is_auto_compacted(txn.metadata, asked.conf)
        if starting is not None:
            starting()
        with StagedFiles(txn) as staged:
            done = _Write(jvm, txn, request, asked, staged).run(scope, source, data)
            reads.record(txn)
            actions: list[Action] = [*definition, *done.actions(txn, asked)]
            operation = write_operation(request, asked, txn.metadata, done.predicate)
            if committing is not None:
                committing()
            staged.offer()
            records = txn.commit if not actions and asked.records_empty else txn.commit_if_needed
            committed = records(
                with_recorded_stats(actions, txn, asked.conf),
                operation,
                tags={PRESERVED_TAG: "true"} if done.keeps_ids(txn) else None,
                user_metadata=asked.user_metadata,
                metrics=write_metrics(done.written, done.copied, done.changes, done.replaced),
            )
    forget_session_version(spark, asked)
    if committed is None:
        return None
    if compacts and done.written:
        run_auto_compaction(spark, log, [*done.written, *done.copied], asked.conf)
    return committed.version


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """What jobs have left behind, for a commit to make use of."""

    written: list[AddFile]
    copied: list[AddFile]
    changes: list[AddCDCFile]
    replaced: Replaced
    predicate: str | None

    def keeps_ids(self, txn: OptimisticTransaction) -> bool:
        """Whether files lost some rows, and the others of them are known by their ids as before."""
        has_others = bool(self.copied or self.replaced.vectors)
        return has_others and bool(hidden_columns(txn).fields)

    def actions(self, txn: OptimisticTransaction, asked: WriteOptions) -> list[Action]:
        now_ms = txn.log.now_ms()
        found: list[Action] = []
        once = asked.txn
        if once is not None:
            found.append(
                SetTransaction(app_id=once.app_id, version=once.version, last_updated=now_ms)
            )
        taken = self.replaced.actions(now_ms, data_change=asked.data_change)
        return [*found, *taken, *self.written, *self.copied, *self.changes]


@dataclass(frozen=True, slots=True)
class _Write:
    """The jobs of one write, once the table's definition is settled."""

    jvm: JvmSession
    txn: OptimisticTransaction
    request: WriteRequest
    asked: WriteOptions
    staged: StagedFiles

    def run(self, scope: Scope, source: DataFrame, data: DataFrame) -> _Done:
        """Find what goes, write what comes; `source` is `data` as the user named its columns."""
        replaced, checks, predicate = Replaced(), [], self.asked.replace_where
        if scope == "everything":
            replaced = whole_table(self.txn)
        elif scope == "matching":
            condition = match_condition(self.asked, source, data, self.txn)
            replaced = matched(self._files, condition)
        elif scope == "where":
            where = self._condition()
            replaced = rows_where(self._files, where)
            checks = self._checks(where)
            predicate = predicate or self._text(where)
        written = self._stage_rows(data, checks, predicate)
        if scope == "partitions":
            leaves_nulls = self.asked.leaves_null_partitions is True
            replaced = partitions_of(self.jvm, self.txn, written, leaves_nulls=leaves_nulls)
        hidden = hidden_columns(self.txn)
        copied = [] if replaced.kept is None else self._stage(replaced.kept, hidden)
        check_conserved("WRITE", written=copied, expected=replaced.num_kept)
        moved = moved_identity(self.txn.metadata, written, given=data.columns)
        if moved is not None:
            self.txn.move_identity_marks(moved)
        return _Done(
            written=written,
            copied=copied,
            changes=self._changes(replaced, written),
            replaced=replaced,
            predicate=predicate,
        )

    @property
    def _files(self) -> DmlFiles:
        """The table's files; the write may have given it columns, which a condition may name."""
        metadata = self.txn.metadata
        return DmlFiles(self.jvm, self.txn, self.staged, self.asked, metadata=metadata)

    def _condition(self) -> DmlCondition:
        """The condition of replaceWhere, which must be one that the settings allow."""
        asked, partitions = self.asked, self.txn.metadata.partition_columns
        condition = dml_condition(self.jvm, self.txn, self._replace_where(), "An overwrite", None)
        resolved = condition.where.resolved
        others = sorted(set(resolved.columns) - set(partitions))
        if others and not asked.can_replace_by_data:
            raise SchemaError(
                "DELTA_NON_PARTITION_COLUMN_REFERENCE",
                columnName=others[0],
                columnList=", ".join(partitions),
            )
        if others and not asked.data_change:
            raise OperationNotAllowedError(
                "DELTA_REPLACE_WHERE_WITH_FILTER_DATA_CHANGE_UNSET", dataFilters=resolved.sql
            )
        return condition

    def _replace_where(self) -> Column:
        given = self.request.replace_where
        if isinstance(given, Column):
            return given
        condition = F.expr(given or self.asked.replace_where or "")
        alias = self.asked.target_alias
        return condition if alias is None else without_alias(self.jvm, condition, alias)

    def _checks(self, condition: DmlCondition) -> list[RowCheck]:
        must_hold = self.asked.checks_replaced or not self.asked.can_replace_by_data
        resolved = condition.where.resolved
        if not must_hold or not resolved.columns:
            return []
        return [RowCheck(name=f"EXPRESSION({resolved.sql})", condition=condition.column)]

    def _stage_rows(
        self, data: DataFrame, checks: list[RowCheck], predicate: str | None
    ) -> list[AddFile]:
        metadata = self.txn.metadata
        rows = table_rows(self.jvm, data, metadata, self.txn.protocol, checks=checks)
        rows, planning = optimized_rows(self.jvm, rows, metadata, self.asked)
        with typed_violations(lambda error: self._violation(error, predicate)):
            return self._stage(rows, StructType(), planning)

    def _stage(
        self, rows: DataFrame, hidden: StructType, planning: Mapping[str, str] | None = None
    ) -> list[AddFile]:
        files = stage(
            self.jvm,
            self.txn.log,
            rows,
            self.txn.metadata,
            self.txn.protocol,
            hidden=hidden,
            options=self.asked.files,
            planning=planning,
            data_change=self.asked.data_change,
        )
        self.staged.add(files)
        return files

    def _violation(self, error: DeltaError, predicate: str | None) -> DeltaError:
        """A row that breaks a rule, told as what it is to the user: data that does not belong."""
        is_overwrite = self.request.mode == "overwrite" and self.txn.snapshot is not None
        if not is_overwrite or not isinstance(error, ConstraintError):
            return error
        if predicate is not None:
            return ConstraintError(
                "DELTA_REPLACE_WHERE_MISMATCH", replaceWhere=predicate, message=str(error)
            )
        if self.asked.matches is not None:
            return ConstraintError(
                "DELTA_REPLACE_ON_OR_USING_TABLE_CONSTRAINT_VIOLATION",
                replaceExpression=self.asked.matches,
                invariantViolationMessage=str(error),
            )
        return error

    def _changes(self, replaced: Replaced, written: list[AddFile]) -> list[AddCDCFile]:
        """Rows for the change feed: all of them, or none where files say it all."""
        files, txn = self._files, self.txn
        if replaced.deleted is None or not self.asked.data_change or not files.writes_changes:
            return []
        inserted = chosen_rows(
            self.jvm,
            txn.log.store,
            add_table(written),
            protocol=txn.protocol,
            metadata=txn.metadata,
        )
        changed = [(replaced.deleted, "delete"), *([(inserted, "insert")] if written else [])]
        found: list[AddCDCFile] = []
        for rows, kind in changed:
            found += files.write_changes(rows.withColumn(CHANGE_TYPE, F.lit(kind)))
        return found

    def _text(self, condition: DmlCondition) -> str:
        given = self.request.replace_where
        return given if isinstance(given, str) else condition.where.resolved.sql


def _assigned(
    jvm: JvmSession,
    txn: OptimisticTransaction,
    data: DataFrame,
    request: WriteRequest,
    asked: WriteOptions,
) -> DataFrame:
    """`data` with the table's types, where the caller's verb casts."""
    replaces_schema = request.replaces_definition or asked.overwrites_schema
    is_new = txn.snapshot is None or (request.mode == "overwrite" and replaces_schema)
    if is_new or not (request.casts or request.by_position):
        return data
    widens = asked.merges_schema and merge_rules(txn.metadata, asked) != STRICT
    return store_assigned(
        jvm,
        data,
        txn.metadata,
        by_position=request.by_position,
        fields_by_position=request.fields_by_position,
        widens=widens,
    )
