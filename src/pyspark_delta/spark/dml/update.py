"""UPDATE: new values for columns and fields of the rows for which a condition is true.

One job finds the positions of the rows, unless partition values decide.  With deletion vectors a
second job writes only the updated rows; without them, touched files are rewritten with old and new
rows.  Row ids are kept, and the change feed gets every row before and after.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_delta.errors import SchemaError
from pyspark_delta.kernel.log.frames.file_actions import add_table
from pyspark_delta.kernel.ops.rewrite_plan import FileChanges
from pyspark_delta.kernel.protocol.actions import AddCDCFile, AddFile
from pyspark_delta.kernel.protocol.operations import operation
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.conf.settings import conf_of
from pyspark_delta.spark.dml.assignments import (
    Assignment,
    Given,
    NewValues,
    assigned_columns,
    parse_assignments,
    updated_rows,
)
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
    dml_condition,
    files_by_partition,
    matching_changes,
    rows_that_stay,
)
from pyspark_delta.spark.files.stage import StagedFiles
from pyspark_delta.spark.files.write_options import WriteOptions
from pyspark_delta.spark.jvm.failures import typed_jobs
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans.frames import Qualifier, named_rows
from pyspark_delta.spark.rules.alignment import column
from pyspark_delta.spark.scan.frame import chosen_rows, located_rows, read_snapshot
from pyspark_delta.spark.scan.versions import TableReads, one_version_each, start_transaction

_UNKNOWN_NAMES = ("DELTA_MISSING_SET_COLUMN", "DELTA_UNSUPPORTED_NESTED_FIELD_IN_UPDATE")


@typed_jobs
def run_update(
    spark: SparkSession,
    log: DeltaLog,
    given: Given,
    condition: Column | None = None,
    *,
    alias: Qualifier = None,
    structs_by_name: bool = False,
) -> Affected:
    """Update columns and fields, by their SQL names, in the rows for which `condition` is true.

    Without a condition all rows are updated.  `alias` is the table's name in expressions.
    Fields of structs match by position, unless `structs_by_name`.
    """
    options = WriteOptions.parse({}, conf_of(spark))
    request = _Request(
        given=given, condition=condition, alias=alias, structs_by_name=structs_by_name
    )
    jvm = JvmSession(spark)
    txn: OptimisticTransaction | None = start_transaction(spark, log)
    while txn is not None:
        if not must_change(spark, txn, options):
            return NOTHING_AFFECTED
        with one_version_each(jvm, txn.snapshot), StagedFiles(txn) as staged:
            done, txn = _run_on(DmlFiles(jvm, txn, staged, options), log, request)
    return done


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    given: Given = field(hash=False)
    condition: Column | None = field(hash=False)
    alias: Qualifier
    structs_by_name: bool


def _run_on(
    files: DmlFiles, log: DeltaLog, request: _Request
) -> tuple[Affected, OptimisticTransaction | None]:
    """Run an UPDATE and commit it; or return another transaction on which it must run.

    That is one on an older version, which a query in the values reads.
    """
    watch = Stopwatch("scan", "rewrite")
    txn = files.txn
    with _names_by_spark(files.jvm, txn, request):
        command = _Update(files, request, watch)
        reads = command.reads(log)
        if reads.sources:
            older = reads.start_transaction(files.jvm.spark, log)
            if older.read_version < txn.read_version:
                return NOTHING_AFFECTED, older
        done = command.run()
    reads.record(txn)
    if not files.must_commit(done.actions):
        return NOTHING_AFFECTED, None
    texts = [] if command.where is None else [command.where.resolved.text]
    recorded = operation("UPDATE", predicate=texts)
    version = files.commit(done.actions, recorded, {**done.metrics, **watch.metrics})
    return Affected(version=version, num_rows=done.num_rows), None


@contextmanager
def _names_by_spark(
    jvm: JvmSession, txn: OptimisticTransaction, request: _Request
) -> Iterator[None]:
    """Wraps code that resolves names, to raise Spark's own errors for unknown names.

    Where Spark can resolve a name, such as a field of an array's elements, our error is raised.
    """
    try:
        yield
    except SchemaError as error:
        if error.condition in _UNKNOWN_NAMES and txn.snapshot is not None:
            rows = named_rows(read_snapshot(jvm.spark, txn.snapshot), request.alias)
            rows.select(*[F.col(name) for name in dict(request.given)])
        raise


class _Update:
    """The jobs of one UPDATE; `where` is its condition, resolved."""

    def __init__(self, files: DmlFiles, request: _Request, watch: Stopwatch) -> None:
        jvm, txn, condition, alias = files.jvm, files.txn, request.condition, request.alias
        assignments = parse_assignments(jvm, request.given, txn.schema, alias)
        self.where = (
            None if condition is None else dml_condition(jvm, txn, condition, "UPDATE", alias)
        )
        self._files = files
        self._jvm = jvm
        self._txn = txn
        self._alias = alias
        self._watch = watch
        candidates = txn.filter_files() if self.where is None else self.where.candidates(txn)
        self._candidates = located_rows(jvm, txn, candidates)
        self._values = self._new_values(assignments, request.structs_by_name)

    def _new_values(self, assignments: Sequence[Assignment], structs_by_name: bool) -> NewValues:
        metadata, protocol = self._txn.metadata, self._txn.protocol

        def over(rows: DataFrame) -> NewValues:
            rows = self._named(rows)
            return assigned_columns(
                self._jvm, rows, metadata, protocol, assignments, structs_by_name=structs_by_name
            )

        try:
            return over(self._candidates.frame)
        except AnalysisException:
            # Spark suggests other columns for an unknown one: let it suggest the table's.
            assert self._txn.snapshot is not None
            over(read_snapshot(self._jvm.spark, self._txn.snapshot))
            raise

    def reads(self, log: DeltaLog) -> TableReads:
        """The reads of the updated table by subqueries in the values."""
        if self._values.is_repeatable:
            return TableReads(sources=())
        return TableReads.of(log, self._values.data)

    def run(self) -> ChangedRows:
        """Find the rows, and write the new files."""
        files, with_vectors = self._files, self._files.uses_vectors("update")
        changes = self._changes(with_vectors=with_vectors)
        self._watch.done("scan")
        if not changes.num_rows:
            # Checks the values also when there is no row to update.
            self._updated(self._candidates.frame, hidden=StructType())
            return ChangedRows(metrics=_metrics(FileChanges(), [], []))
        if files.writes_changes and not self._values.is_repeatable:
            # Values may be nondeterministic, so the feed reads the new rows from the written files.
            written = files.write(self._updated(self._touched(changes)))
            new = chosen_rows(self._jvm, self._txn, add_table(written))
            feed = self._feed(changes, new, written)
            copied = rows_that_stay(files, changes, self.where)
            written += [] if copied is None else files.write(copied)
        else:
            written = files.write(self._all_rows(changes))
            feed = []
            if files.writes_changes:
                feed = self._feed(changes, self._updated(self._touched(changes)), written)
        check_conserved("UPDATE", written=written, expected=changes.num_rows + changes.num_copied)
        self._watch.done("rewrite")
        return ChangedRows(
            actions=[*files.actions(changes), *written, *feed],
            metrics=_metrics(changes, written, feed),
            num_rows=changes.num_rows,
        )

    def _changes(self, *, with_vectors: bool) -> FileChanges:
        found, where = self._candidates, self.where
        whole: pa.Table | None = found.files
        if where is not None:
            whole = files_by_partition(self._jvm, self._txn, where, found.files)
        if whole is not None:
            return self._files.all_rows(whole)
        assert where is not None
        return matching_changes(self._files, where, found, with_vectors=with_vectors)

    def _all_rows(self, changes: FileChanges) -> DataFrame:
        """The updated rows, and the rows of rewritten files that stay as they are."""
        if not changes.num_copied:
            return self._updated(self._touched(changes))
        if changes.counted:
            assert self.where is not None
            return self._updated(self._files.live_rows(changes.removed), self.where.column)
        new, copied = self._updated(self._touched(changes)), self._files.copied_rows(changes)
        return new if copied is None else new.union(copied)

    def _touched(self, changes: FileChanges) -> DataFrame:
        """The updated rows before the update, with the hidden columns."""
        files = [*changes.removed, *[each.file for each in changes.of("vector")]]
        if not changes.num_copied and not changes.of("vector"):
            return self._files.live_rows(files)
        where = self.where
        if where is not None and where.resolved.is_steady:
            return where.matching(self._files.live_rows(files))
        found = self._files.touched_rows(changes.files)
        assert found is not None
        return found

    def _updated(
        self, rows: DataFrame, updated: Column | None = None, hidden: StructType | None = None
    ) -> DataFrame:
        return updated_rows(
            self._jvm,
            self._named(rows),
            self._txn.metadata,
            self._txn.protocol,
            self._values.columns,
            hidden=self._files.hidden if hidden is None else hidden,
            updated=updated,
        )

    def _feed(
        self, changes: FileChanges, new: DataFrame, written: Sequence[AddFile]
    ) -> list[AddCDCFile]:
        """The rows before and after, for the change feed, by as many tasks as wrote the data."""
        names = list(map(column, self._txn.schema.names))
        before = self._touched(changes).select(*names, F.lit("update_preimage").alias(CHANGE_TYPE))
        after = new.select(*names, F.lit("update_postimage").alias(CHANGE_TYPE))
        return self._files.write_changes(before.union(after).coalesce(_num_tasks(written)))

    def _named(self, rows: DataFrame) -> DataFrame:
        return named_rows(rows, self._alias)


def _metrics(
    changes: FileChanges, written: Sequence[AddFile], feed: Sequence[AddCDCFile]
) -> dict[str, object]:
    """The metrics, counted as delta-spark counts them here.

    A file that gets a vector counts as removed; vectors that are removed with rewritten files are
    not counted.
    """
    found = changes.metrics(written, feed)
    if changes.counted:
        found["numDeletionVectorsRemoved"] = 0
    return {
        **found,
        "numRemovedFiles": len(changes.removed) + len(changes.of("vector")),
        "numUpdatedRows": changes.num_rows,
    }


def _num_tasks(written: Sequence[AddFile]) -> int:
    """How many tasks wrote these files: Spark puts the task's number into file names."""
    names = [file.path.rpartition("/")[2] for file in written]
    return max(len({name.split("-")[1] for name in names if name.count("-") > 1}), 1)
