"""UPDATE: new values for columns and fields of the rows for which a condition is true.

One job finds the positions of the rows, unless partition values tell.  With deletion vectors a
second one writes only them; without, touched files are read once more and written with old and new
rows side by side.  Row ids stay, and the change feed gets every row before and after.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_delta.errors.table import SchemaError
from pyspark_delta.kernel.log.frames import add_table
from pyspark_delta.kernel.protocol.actions import AddCDCFile, AddFile
from pyspark_delta.kernel.protocol.operations import update
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.chosen_rows import chosen_rows
from pyspark_delta.spark.column_alignment import column
from pyspark_delta.spark.commands.dml_assignments import (
    Assignment,
    Given,
    NewValues,
    assigned_columns,
    parse_assignments,
    updated_rows,
)
from pyspark_delta.spark.commands.dml_files import (
    CHANGE_TYPE,
    DmlFiles,
    FileChanges,
    check_conserved,
    must_change,
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
from pyspark_delta.spark.jvm.named_rows import Called, named_rows
from pyspark_delta.spark.located_rows import located_rows
from pyspark_delta.spark.newest_source import one_version_each
from pyspark_delta.spark.reader import read_snapshot
from pyspark_delta.spark.staged_files import StagedFiles
from pyspark_delta.spark.table_reads import TableReads
from pyspark_delta.spark.transactions import start_transaction

_SPARK_SAYS = ("DELTA_MISSING_SET_COLUMN", "DELTA_UNSUPPORTED_NESTED_FIELD_IN_UPDATE")


@typed_jobs
def run_update(
    spark: SparkSession,
    log: DeltaLog,
    given: Given,
    condition: Column | None = None,
    *,
    alias: Called = None,
    structs_by_name: bool = False,
) -> Affected:
    """Set columns and fields, by their SQL names, of the rows for which `condition` is true.

    Without a condition all rows are updated.  `alias` is what expressions may call the table.
    Fields of structs go by position, unless `structs_by_name`.
    """
    asked = WriteOptions.parse({}, lambda key: spark.conf.get(key, None))
    jvm = JvmSession(spark)
    txn: OptimisticTransaction | None = start_transaction(spark, log)
    while txn is not None:
        if not must_change(spark, txn, asked):
            return NOTHING_AFFECTED
        request = _Request(given, condition, alias, structs_by_name)
        with one_version_each(jvm, txn.snapshot), StagedFiles(txn) as staged:
            done, txn = _run_on(DmlFiles(jvm, txn, staged, asked), log, request)
    return done


@dataclass(frozen=True, slots=True)
class _Request:
    """An UPDATE as it was asked for."""

    given: Given
    condition: Column | None
    alias: Called
    structs_by_name: bool


def _run_on(
    files: DmlFiles, log: DeltaLog, request: _Request
) -> tuple[Affected, OptimisticTransaction | None]:
    """Run an UPDATE and commit it; or the transaction on which it must run in place of this one.

    That is one on an older version, which a query among the values reads.
    """
    watch = Stopwatch()
    jvm, txn, alias = files.jvm, files.txn, request.alias
    with _names_by_spark(jvm, txn, request.given, alias):
        assignments = parse_assignments(jvm, request.given, txn.schema, alias)
        asked = request.condition
        where = None if asked is None else dml_condition(jvm, txn, asked, "UPDATE", alias)
        values = _Values(assignments, request.structs_by_name)
        command = _Update(files, values, where, alias, watch)
        reads = command.reads(log)
        if reads.sources:
            older = reads.start_transaction(jvm.spark, log)
            if older.read_version < txn.read_version:
                return NOTHING_AFFECTED, older
        done = command.run()
    reads.record(txn)
    if not files.must_commit(done.actions):
        return NOTHING_AFFECTED, None
    predicates = [] if where is None else [where.text]
    version = files.commit(done.actions, update(predicates), {**done.metrics, **watch.metrics})
    return Affected(version=version, num_rows=done.num_rows), None


@contextmanager
def _names_by_spark(
    jvm: JvmSession, txn: OptimisticTransaction, given: Given, alias: Called
) -> Iterator[None]:
    """Around what looks names up: for those that mean nothing Spark has errors of its own.

    Where Spark finds something, an array's fields say, our error stays.
    """
    try:
        yield
    except SchemaError as error:
        if error.condition in _SPARK_SAYS and txn.snapshot is not None:
            rows = named_rows(read_snapshot(jvm.spark, txn.snapshot), alias)
            rows.select(*[F.col(name) for name in dict(given)])
        raise


@dataclass(frozen=True, slots=True)
class _Values:
    """What SET says, and whether structs in it go by name."""

    assignments: Sequence[Assignment]
    structs_by_name: bool


class _Update:
    """The jobs of one UPDATE."""

    def __init__(
        self,
        files: DmlFiles,
        values: _Values,
        where: DmlCondition | None,
        alias: Called,
        watch: Stopwatch,
    ) -> None:
        self._files = files
        self._jvm = files.jvm
        self._txn = files.txn
        self._where = where
        self._alias = alias
        self._watch = watch
        found = self._txn.filter_files() if where is None else where.candidates(self._txn)
        self._candidates = located_rows(self._jvm, self._txn, found)
        self._values = self._assigned(values)

    def _assigned(self, values: _Values) -> NewValues:
        txn = self._txn

        def assigned(rows: DataFrame) -> NewValues:
            return assigned_columns(
                self._jvm,
                self._named(rows),
                txn.metadata,
                txn.protocol,
                values.assignments,
                structs_by_name=values.structs_by_name,
            )

        try:
            return assigned(self._candidates.frame)
        except AnalysisException:
            # Spark suggests other columns than the unknown one: let these be the table's.
            assert txn.snapshot is not None
            assigned(read_snapshot(self._jvm.spark, txn.snapshot))
            raise

    def reads(self, log: DeltaLog) -> TableReads:
        """What subqueries among the values read of the very table."""
        if self._values.is_repeatable:
            return TableReads(())
        return TableReads.of(log, self._values.data)

    def run(self) -> ChangedRows:
        """Find the rows, and write what must be written."""
        files, with_vectors = self._files, self._files.uses_vectors("update")
        changes = self._changes(with_vectors=with_vectors)
        self._watch.found()
        if not changes.num_rows:
            # Values that no column can take are refused all the same.
            updated_rows(
                self._jvm,
                self._named(self._candidates.frame),
                self._txn.metadata,
                self._txn.protocol,
                self._values.columns,
                hidden=StructType(),
            )
            return ChangedRows(metrics=_metrics(FileChanges(), [], []))
        if files.writes_changes and not self._values.is_repeatable:
            # Whatever the values were, the feed tells those that are in the table.
            written = files.write(self._new_rows(changes))
            feed = self._feed(changes, self._rows_of(written), written)
            copied = self._copied(changes)
            written += [] if copied is None else files.write(copied)
        else:
            written = files.write(self._all_rows(changes))
            new = self._new_rows(changes) if files.writes_changes else None
            feed = [] if new is None else self._feed(changes, new, written)
        check_conserved("UPDATE", written=written, expected=changes.num_rows + changes.num_copied)
        self._watch.written()
        return ChangedRows(
            actions=[*files.actions(changes), *written, *feed],
            metrics=_metrics(changes, written, feed),
            num_rows=changes.num_rows,
        )

    def _changes(self, *, with_vectors: bool) -> FileChanges:
        """What becomes of the files that hold a row to update."""
        found, where = self._candidates, self._where
        whole: pa.Table | None = found.files
        if where is not None:
            whole = files_by_partition(self._jvm, self._txn, where, found.files)
        if whole is not None:
            return self._files.all_rows(whole)
        assert where is not None
        if where.is_steady and not with_vectors:
            return self._files.count(counts_that_match(where, found))
        touched = rows_that_match(where, found)
        return self._files.plan(touched.files, with_vectors=with_vectors)

    def _all_rows(self, changes: FileChanges) -> DataFrame:
        """The updated rows, and those of rewritten files that stay as they are."""
        if not changes.num_copied:
            return self._new_rows(changes)
        if changes.counted:
            assert self._where is not None
            return self._updated(self._files.live_rows(changes.removed), self._where.column)
        new, copied = self._new_rows(changes), self._files.copied_rows(changes)
        return new if copied is None else new.union(copied)

    def _copied(self, changes: FileChanges) -> DataFrame | None:
        """The rows of files that go which stay as they are; None for none."""
        partial = [each.file for each in changes.counted if each.num_left]
        if not partial:
            return self._files.copied_rows(changes)
        assert self._where is not None
        return self._where.others(self._files.live_rows(partial))

    def _new_rows(self, changes: FileChanges) -> DataFrame:
        """The updated rows as they will be."""
        return self._updated(self._touched(changes))

    def _touched(self, changes: FileChanges) -> DataFrame:
        """The updated rows as they were, with the hidden columns."""
        files = [*changes.removed, *[each.file for each in changes.of("vector")]]
        if not changes.num_copied and not changes.of("vector"):
            return self._files.live_rows(files)
        where = self._where
        if where is not None and where.is_steady:
            return where.matching(self._files.live_rows(files))
        found = self._files.touched_rows(changes.files)
        assert found is not None
        return found

    def _updated(self, rows: DataFrame, updated: Column | None = None) -> DataFrame:
        return updated_rows(
            self._jvm,
            self._named(rows),
            self._txn.metadata,
            self._txn.protocol,
            self._values.columns,
            hidden=self._files.hidden,
            updated=updated,
        )

    def _rows_of(self, written: Sequence[AddFile]) -> DataFrame:
        """The rows that are in files just written."""
        store, metadata = self._txn.log.store, self._txn.metadata
        return chosen_rows(
            self._jvm, store, add_table(written), protocol=self._txn.protocol, metadata=metadata
        )

    def _feed(
        self, changes: FileChanges, new: DataFrame, written: Sequence[AddFile]
    ) -> list[AddCDCFile]:
        """The rows before and after, for the change feed, by as many tasks as wrote the table's."""
        names = list(map(column, self._txn.schema.names))
        before = self._touched(changes).select(*names, F.lit("update_preimage").alias(CHANGE_TYPE))
        after = new.select(*names, F.lit("update_postimage").alias(CHANGE_TYPE))
        return self._files.write_changes(before.union(after).coalesce(_num_tasks(written)))

    def _named(self, rows: DataFrame) -> DataFrame:
        return named_rows(rows, self._alias)


def _metrics(
    changes: FileChanges, written: Sequence[AddFile], feed: Sequence[AddCDCFile]
) -> dict[str, object]:
    """What was done, as delta-spark counts it here.

    A file that gets a vector is one that went; vectors that go with files which were written anew
    are not told.
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
    """How many tasks wrote these files: Spark puts a task's number into their names."""
    names = [file.path.rpartition("/")[2] for file in written]
    return max(len({name.split("-")[1] for name in names if name.count("-") > 1}), 1)
