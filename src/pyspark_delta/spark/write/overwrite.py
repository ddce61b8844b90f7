"""The jobs of an overwrite: the rows that it replaces, the new rows, and the change feed.

It replaces all rows, those of whole partitions, or those that match a condition.

Files whose rows are all replaced are removed.  Other files are rewritten without the replaced rows,
or get deletion vectors.  For a condition on partition columns the log suffices, without a job.

With `replaceWhere`, or a join by `replaceOn` and `replaceUsing`, rows are deleted as DELETE does
it.  With deletion vectors one job finds positions, and no file of the table is rewritten: a change
feed then reads deleted rows by the vectors, and inserted rows from the new files.  Without vectors
rows are counted, and evaluating the condition again finds them.  But a condition that reads the
clock, or runs code unknown to Spark, may differ the second time, and a row would be lost or the
feed be wrong.  So positions are found for such conditions too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_delta.errors import OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.log.frames.file_actions import add_files, add_table
from pyspark_delta.kernel.ops.layout.bins import partition_numbers
from pyspark_delta.kernel.ops.rewrite_plan import FileChanges, num_live_rows
from pyspark_delta.kernel.protocol.actions import AddCDCFile, AddFile
from pyspark_delta.kernel.scan.plan import chosen_adds
from pyspark_delta.kernel.scan.predicates.binding import bind
from pyspark_delta.kernel.scan.predicates.literals import zone_named
from pyspark_delta.kernel.scan.predicates.tree import (
    FALSE,
    IsNull,
    Predicate,
    compare,
    conjunction,
    disjunction,
)
from pyspark_delta.kernel.scan.predicates.tree import Column as Named
from pyspark_delta.kernel.scan.skipping.files import partition_columns_table
from pyspark_delta.kernel.sql.quoting import quoted_name
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.conf.setting_table import REPLACE_WHERE_CHECK, REPLACE_WHERE_DATA_COLUMNS
from pyspark_delta.spark.conf.settings import session_zone
from pyspark_delta.spark.dml.files import CHANGE_TYPE, DmlFiles, check_conserved
from pyspark_delta.spark.dml.rows import DmlCondition, dml_condition, files_by_partition
from pyspark_delta.spark.files.stage import hidden_columns
from pyspark_delta.spark.files.write_options import WriteOptions, using_columns
from pyspark_delta.spark.jvm.expressions.catalyst import without_alias
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans.conditions import is_repeatable
from pyspark_delta.spark.rules.rows import RowCheck
from pyspark_delta.spark.scan.frame import chosen_rows, counted_rows, located_rows, touched_rows
from pyspark_delta.spark.write.jobs import Replaced, WriteJobs, WriteResult

_RowFilter = Callable[[DataFrame], DataFrame]
_TARGET_ALIAS, _SOURCE_ALIAS = "__delta_target", "__delta_source"
# The number of partitions that conflict checks list; for more, the whole table counts as read.
_MOST_NAMED_PARTITIONS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class OverwriteJobs(WriteJobs):
    """The jobs of a write that replaces the rows of its scope."""

    def run(self, data: DataFrame) -> WriteResult:
        """Find the replaced rows and write the new ones; `data` has the table's columns."""
        scope, predicate = self.scope, self.options.replace_where
        replaced, checks = Replaced(), list[RowCheck]()
        if scope == "everything":
            replaced = whole_table(self.txn)
        elif scope == "matching":
            replaced = rows_matching(self._files, self.options, self.source, data)
        elif scope == "where":
            where = self._condition()
            replaced = rows_where(self._files, where)
            checks = self._checks(where)
            given = self.request.replace_where
            predicate = predicate or (given if isinstance(given, str) else where.resolved.sql)
        written = self._stage_rows(data, checks, predicate)
        if scope == "partitions":
            leaves_nulls = self.options.leaves_null_partitions is True
            replaced = partitions_of(self.jvm, self.txn, written, leaves_nulls=leaves_nulls)
        copied = (
            [] if replaced.kept is None else self._stage(replaced.kept, hidden_columns(self.txn))
        )
        check_conserved("WRITE", written=copied, expected=replaced.num_kept)
        self._move_identity(written, data)
        return WriteResult(
            written=written,
            copied=copied,
            changes=self._changes(replaced, written),
            replaced=replaced,
            predicate=predicate,
        )

    @property
    def _files(self) -> DmlFiles:
        """The table's files; the write may have added columns, which a condition may use."""
        metadata = self.txn.metadata
        return DmlFiles(self.jvm, self.txn, self.staged, self.options, metadata=metadata)

    def _condition(self) -> DmlCondition:
        """The condition of replaceWhere; raises if the settings do not allow it."""
        options, partitions = self.options, self.txn.metadata.partition_columns
        where = self.request.replace_where
        if not isinstance(where, Column):
            where = F.expr(where or options.replace_where or "")
            if options.target_alias is not None:
                where = without_alias(self.jvm, where, options.target_alias)
        condition = dml_condition(self.jvm, self.txn, where, "An overwrite", None)
        resolved = condition.resolved
        others = sorted(set(resolved.columns) - set(partitions))
        if others and not REPLACE_WHERE_DATA_COLUMNS.by(options.conf):
            raise SchemaError(
                "DELTA_NON_PARTITION_COLUMN_REFERENCE",
                columnName=others[0],
                columnList=", ".join(partitions),
            )
        if others and not options.data_change:
            raise OperationNotAllowedError(
                "DELTA_REPLACE_WHERE_WITH_FILTER_DATA_CHANGE_UNSET", dataFilters=resolved.sql
            )
        return condition

    def _checks(self, condition: DmlCondition) -> list[RowCheck]:
        conf, resolved = self.options.conf, condition.resolved
        must_hold = REPLACE_WHERE_CHECK.by(conf) or not REPLACE_WHERE_DATA_COLUMNS.by(conf)
        if not must_hold or not resolved.columns:
            return []
        return [RowCheck(name=f"EXPRESSION({resolved.sql})", condition=condition.column)]

    def _changes(self, replaced: Replaced, written: list[AddFile]) -> list[AddCDCFile]:
        """Rows for the change feed: all of them, or none if the files suffice."""
        files = self._files
        if replaced.deleted is None or not self.options.data_change or not files.writes_changes:
            return []
        inserted = chosen_rows(self.jvm, self.txn, add_table(written))
        changed = [(replaced.deleted, "delete"), *([(inserted, "insert")] if written else [])]
        found: list[AddCDCFile] = []
        for rows, kind in changed:
            found += files.write_changes(rows.withColumn(CHANGE_TYPE, F.lit(kind)))
        return found


def whole_table(txn: OptimisticTransaction) -> Replaced:
    """All rows of the table."""
    files = tuple(add_files(txn.filter_files()))
    return Replaced(files=files, num_rows=num_live_rows(files))


def partitions_of(
    jvm: JvmSession,
    txn: OptimisticTransaction,
    adds: Sequence[AddFile],
    *,
    leaves_nulls: bool = False,
) -> Replaced:
    """All rows of the partitions that `adds` write to.

    With `leaves_nulls`, partitions with a null value are not replaced.
    """
    snapshot = txn.snapshot
    if leaves_nulls:
        adds = [add for add in adds if all(v is not None for v in add.partition_values.values())]
    if snapshot is None:
        return Replaced()
    if not adds:
        # It replaces no rows, but is no blind append either.
        txn.record_read(FALSE, snapshot.files.slice(0, 0))
        return Replaced()
    zone = zone_named(session_zone(jvm.spark))
    written = partition_columns_table(add_table(adds), txn.metadata, zone=zone)

    def is_written(files: pa.Table) -> pa.BooleanArray:
        there = partition_columns_table(files, txn.metadata, zone=zone)
        numbers = partition_numbers(pa.concat_tables([there, written]))
        return pc.is_in(numbers.slice(0, len(there)), value_set=numbers.slice(len(there)))

    found = chosen_adds(snapshot, ["path", "partitionValues"], is_written)
    txn.record_read(_of_partitions(txn, written, session_zone(jvm.spark)), found)
    replaced = tuple(add_files(found))
    return Replaced(files=replaced, num_rows=num_live_rows(replaced))


def rows_where(files: DmlFiles, condition: DmlCondition) -> Replaced:
    """The rows for which the condition is true."""
    candidates = files.txn.filter_files(condition.bound, by_row=files.uses_vectors("delete"))
    whole = files_by_partition(files.jvm, files.txn, condition, candidates)
    if whole is not None:
        gone = tuple(add_files(whole))
        return Replaced(files=gone, num_rows=num_live_rows(gone))
    return _replaced(files, candidates, condition.matching, condition.others)


def rows_matching(
    files: DmlFiles, options: WriteOptions, source: DataFrame, data: DataFrame
) -> Replaced:
    """The rows that a row of the data matches, by the option `replaceOn` or `replaceUsing`.

    `source` has its columns as the user named them, `data` as they go into the table.
    """
    if options.replace_on is not None:
        alias, condition = options.target_alias or _TARGET_ALIAS, F.expr(options.replace_on)
    else:
        alias, condition = _TARGET_ALIAS, F.lit(True)
        for name in using_columns(options.replace_using or ""):
            _check_column(name, files.txn.schema.names, "table")
            _check_column(name, data.columns, "data")
            column = quoted_name(name)
            condition = condition & (
                F.col(f"{_TARGET_ALIAS}.{column}") == F.col(f"{_SOURCE_ALIAS}.{column}")
            )
        source = data.alias(_SOURCE_ALIAS)

    def joined(kind: str) -> _RowFilter:
        return lambda rows: rows.alias(alias).join(source, condition, kind)

    candidates = files.txn.filter_files(by_row=files.uses_vectors("delete"))
    try:
        return _replaced(files, candidates, joined("left_semi"), joined("left_anti"))
    except AnalysisException as error:
        raise _unresolved(error) from error


def _of_partitions(txn: OptimisticTransaction, partitions: pa.Table, zone: str) -> Predicate | None:
    """The predicate of being in one of these partitions; None if there are too many."""
    rows = list({tuple(row.values()): row for row in partitions.to_pylist()}.values())
    if len(rows) > _MOST_NAMED_PARTITIONS:
        return None
    named = disjunction(
        conjunction(
            IsNull(Named((name,))) if value is None else compare((name,), "=", value)
            for name, value in row.items()
        )
        for row in rows
    )
    return bind(named, txn.schema, time_zone=zone, lenient=True).predicate


def _replaced(
    files: DmlFiles, candidates: pa.Table, matching: _RowFilter, others: _RowFilter
) -> Replaced:
    """Find the deleted rows by one job, and the rows to write for the table and the change feed.

    `matching` and `others` are filters for the rows that are deleted, and for the others.
    """
    if not candidates.num_rows:
        return Replaced()
    with_vectors = files.uses_vectors("delete")
    rows = located_rows(files.jvm, files.txn, candidates, metadata=files.metadata)
    deleted = matching(rows.frame)
    if not with_vectors and is_repeatable(files.jvm, deleted):
        # The condition finds the rows again, which were only counted.
        changes = files.count(counted_rows(deleted, rows.files))
        gone = changes.removed
        partial = [each.file for each in changes.counted if each.num_left]
        return Replaced(
            files=tuple(gone),
            kept=others(files.live_rows(partial)) if partial else None,
            deleted=matching(files.live_rows(gone)) if gone else None,
            num_rows=changes.num_rows,
            num_kept=changes.num_copied,
        )
    touched = touched_rows(deleted, rows.files)
    changes = files.plan(touched.files, with_vectors=with_vectors, can_rewrite=False)
    marked = FileChanges(files=changes.of("vector"))
    return Replaced(
        files=tuple(changes.removed),
        vectors=tuple(files.actions(marked)),
        kept=files.copied_rows(changes),
        deleted=None if with_vectors else files.touched_rows(changes.files),
        num_rows=changes.num_rows,
        num_kept=changes.num_copied,
    )


def _check_column(name: str, names: Sequence[str], where: str) -> None:
    if name.lower() not in (each.lower() for each in names):
        raise SchemaError(
            "UNRESOLVED_INSERT_REPLACE_USING_COLUMN",
            colName=name,
            relationType=where,
            suggestion=", ".join(names),
        )


def _unresolved(error: AnalysisException) -> Exception:
    """Our error for a condition with unknown or ambiguous names."""
    condition = error.getCondition() or ""
    facts = error.getMessageParameters() or {}
    if condition.startswith("AMBIGUOUS_REFERENCE"):
        return SchemaError(
            "DELTA_INSERT_REPLACE_ON_AMBIGUOUS_COLUMNS_IN_CONDITION", columnNames=facts.get("name")
        )
    if condition.startswith("UNRESOLVED_COLUMN"):
        return SchemaError(
            "DELTA_INSERT_REPLACE_ON_UNRESOLVED_COLUMNS_IN_CONDITION",
            columnNames=facts.get("objectName"),
        )
    return error
