"""From the rows that DELETE, UPDATE or MERGE touches to the files and actions of their commit.

`kernel.ops.rewrite_plan` decides how each file changes.  This module has the rows that a file loses
and keeps, writes the new files, and commits.  It knows no conditions or clauses, only positions of
rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Literal
from uuid import uuid4

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.errors import AppendOnlyError, InvalidActionsError, SchemaError
from pyspark_delta.kernel.log.frames.file_actions import add_files, add_table
from pyspark_delta.kernel.machine import random_uuid
from pyspark_delta.kernel.ops.rewrite_plan import (
    ChangedFile,
    FileChanges,
    RewritePlanner,
    num_live_rows,
)
from pyspark_delta.kernel.protocol.actions import Action, AddCDCFile, AddFile, Metadata
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector
from pyspark_delta.kernel.protocol.features import is_supported
from pyspark_delta.kernel.protocol.operations import Operation
from pyspark_delta.kernel.protocol.properties import (
    APPEND_ONLY,
    ENABLE_CHANGE_DATA_FEED,
    ENABLE_DELETION_VECTORS,
    property_value,
)
from pyspark_delta.kernel.protocol.row_tracking import PRESERVED_TAG
from pyspark_delta.kernel.protocol.types import STRING, StructField, StructType
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.kernel.txn.vector_files import changed_vector, write_vectors
from pyspark_delta.spark.conf.setting_table import (
    CASTS_FOLLOW_ANSI,
    DELETE_VECTORS,
    MERGE_VECTORS,
    UPDATE_VECTORS,
)
from pyspark_delta.spark.conf.settings import ANSI_ENABLED, STORE_ASSIGNMENT_POLICY
from pyspark_delta.spark.files.stage import (
    StagedFiles,
    StageRequest,
    due_hooks,
    hidden_columns,
    optimized_rows,
    run_hooks,
    stage,
    stage_changes,
)
from pyspark_delta.spark.files.stats import with_recorded_stats
from pyspark_delta.spark.files.write_options import (
    WriteOptions,
    forget_session_version,
    is_committed,
    random_prefix,
)
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.rules.alignment import column
from pyspark_delta.spark.rules.rows import typed_violations
from pyspark_delta.spark.scan.frame import FILE, ROW, TouchedFile, located_rows
from pyspark_delta.spark.tables.locations import allowed_stores

CHANGE_TYPE = "_change_type"
"""The column of change files that says what happened to a row."""

# The settings that decide how values are cast, as error messages name them.
_CASTING = {
    "storeAssignmentPolicyFlag": STORE_ASSIGNMENT_POLICY,
    "updateAndMergeCastingFollowsAnsiEnabledFlag": CASTS_FOLLOW_ANSI.key,
    "ansiEnabledFlag": ANSI_ENABLED,
}
_VECTOR_SETTINGS = {"delete": DELETE_VECTORS, "merge": MERGE_VECTORS, "update": UPDATE_VECTORS}
_CHANGE_COLUMNS = StructType((StructField(CHANGE_TYPE, STRING),))


class DmlFiles:
    """The files that one command reads and writes, and its commit.

    `hidden` are the row tracking columns that rows have beside the table's: the id and
    the version of a copied row are its own, an updated one has a null version, a new one two.
    Rows are read with the columns of `metadata`, by default the table's before the transaction.
    """

    def __init__(
        self,
        jvm: JvmSession,
        txn: OptimisticTransaction,
        staged: StagedFiles,
        options: WriteOptions,
        *,
        metadata: Metadata | None = None,
    ) -> None:
        self.jvm = jvm
        self.txn = txn
        self.metadata = metadata
        self.hidden = hidden_columns(txn)
        self._staged = staged
        self._options = options

    @property
    def writes_changes(self) -> bool:
        """Whether the table has a change data feed."""
        return bool(property_value(self.txn.metadata.configuration, ENABLE_CHANGE_DATA_FEED))

    def uses_vectors(self, command: Literal["delete", "update", "merge"]) -> bool:
        """Whether files may get deletion vectors: by the table's property and the session."""
        metadata, protocol = self.txn.metadata, self.txn.protocol
        if not property_value(metadata.configuration, ENABLE_DELETION_VECTORS):
            return False
        if not is_supported(protocol, "deletionVectors"):
            return False
        return _VECTOR_SETTINGS[command].by(self._options.conf)

    def plan(
        self, touched: Iterable[TouchedFile], *, with_vectors: bool, can_rewrite: bool = True
    ) -> FileChanges:
        """Plan how each file changes.

        Without `can_rewrite` a file gets a vector even where writing it anew would be cheaper.
        """
        return self._planner.by_rows(
            ((each.file, each.rows) for each in touched),
            with_vectors=with_vectors,
            can_rewrite=can_rewrite,
        )

    def count(self, counts: Iterable[tuple[AddFile, int]]) -> FileChanges:
        """The changes of a command without deletion vectors, from the number of rows it touches."""
        return self._planner.by_counts(counts)

    def all_rows(self, files: pa.Table) -> FileChanges:
        """The changes of a command that touches every row of files, without a search for rows."""
        return self._planner.all_rows(add_files(files))

    def known_rows(self, files: Sequence[AddFile]) -> int | None:
        """The number of rows by the log; None where it may not be used, or does not have it."""
        return num_live_rows(files) if not files or self._options.counts_by_log else None

    def live_rows(self, files: Iterable[AddFile]) -> DataFrame:
        """All rows of files, with the hidden columns."""
        return self._located(add_table(files), {})

    def copied_rows(self, changes: FileChanges) -> DataFrame | None:
        """The rows of rewritten files that stay, with the hidden columns; None for none.

        They are selected by position, so that no condition is evaluated again.
        """
        return self._rows_without([(each.file, each.gone) for each in changes.of("rewrite")])

    def touched_rows(self, changes: Iterable[ChangedFile]) -> DataFrame | None:
        """The rows that are removed, before the change, with the hidden columns; None for none."""
        return self._rows_without(
            [
                (each.file, DeletionVector(range(each.file.num_records or 0)).difference(each.rows))
                for each in changes
            ]
        )

    def write(self, rows: DataFrame) -> list[AddFile]:
        """Write rows, which have the table's columns and the hidden ones, into files of the table.

        Rules are in their plan already (`rules.rows`); a row that breaks one gives its own error.
        """
        rows, planning = optimized_rows(self.jvm, rows, self.txn.metadata, self._options)
        with typed_failures():
            files = stage(self.jvm, self._stage_request(rows, self.hidden, planning))
        self._staged.add(files)
        return files

    def write_changes(self, rows: DataFrame) -> list[AddCDCFile]:
        """Write rows for the change feed; they have the table's columns and `CHANGE_TYPE`."""
        rows = rows.select(*map(column, [*self.txn.schema.names, CHANGE_TYPE]))
        with typed_failures():
            files = stage_changes(self.jvm, self._stage_request(rows, _CHANGE_COLUMNS))
        self._staged.add(files)
        return files

    def _stage_request(
        self, rows: DataFrame, extra: StructType, planning: Mapping[str, str] | None = None
    ) -> StageRequest:
        return StageRequest(
            log=self.txn.log,
            data=rows,
            metadata=self.txn.metadata,
            protocol=self.txn.protocol,
            extra=extra,
            options=self._options.files,
            planning=planning,
        )

    def actions(self, changes: FileChanges) -> list[Action]:
        """Write the deletion vectors; returns all actions for the touched files.

        The transaction records the touched rows: a commit that removes other rows of the same file
        is then no conflict.
        """
        txn = self.txn
        now_ms = txn.log.now_ms()
        vectored = changes.of("vector")
        found: list[Action] = [file.remove(now_ms) for file in changes.removed]
        if not vectored:
            return found
        vectors = write_vectors(
            txn.log.store,
            (each.gone for each in vectored),
            new_uuid=random_uuid,
            prefix=random_prefix(txn.metadata),
        )
        self._staged.add_paths(vectors.paths)
        txn.touch_rows({each.file.path: each.rows for each in vectored})
        for each, descriptor in zip(vectored, vectors.descriptors, strict=True):
            found += changed_vector(each.file, descriptor, deletion_timestamp=now_ms)
        return found

    def must_commit(self, actions: Sequence[Action], *, names_application: bool = True) -> bool:
        """Whether a command commits: because it has actions, or although it has none.

        Without actions it commits to record the application's version, or because a setting wants
        every command in the history.
        """
        if actions or (names_application and self._options.txn is not None):
            return True
        return self._options.records_empty

    def commit(
        self,
        actions: Sequence[Action],
        operation: Operation,
        metrics: Mapping[str, object],
        *,
        names_application: bool = True,
    ) -> int:
        """Commit, and run the hooks of writes; returns the new version.

        Without `names_application` the commit does not record the session's application, which may
        then run the command again.
        """
        txn, options = self.txn, self._options
        hooks = due_hooks(txn.metadata, options.conf)
        first: list[Action] = []
        if options.txn is not None and names_application:
            first.append(options.txn.action(txn.log.now_ms()))
        self._staged.offer()
        committed = txn.commit(
            [*first, *with_recorded_stats(actions, txn, options.conf)],
            operation,
            tags={PRESERVED_TAG: "true"} if self.hidden.fields else None,
            user_metadata=options.user_metadata,
            metrics=metrics,
        )
        if first:
            forget_session_version(self.jvm.spark, options)
        added = [action for action in actions if isinstance(action, AddFile)]
        log: DeltaLog = txn.log  # type: ignore[assignment]
        run_hooks(hooks, self.jvm.spark, log, added, options.conf)
        return committed.version

    def _rows_without(self, files: Sequence[tuple[AddFile, DeletionVector]]) -> DataFrame | None:
        if not files:
            return None
        without = {file.path: rows for file, rows in files}
        return self._located(add_table(file for file, _ in files), without)

    def _located(self, files: pa.Table, without: Mapping[str, DeletionVector]) -> DataFrame:
        rows = located_rows(self.jvm, self.txn, files, without=without, metadata=self.metadata)
        return rows.frame.drop(FILE, ROW)

    @cached_property
    def _planner(self) -> RewritePlanner:
        store, spark = self.txn.log.store, self.jvm.spark
        return RewritePlanner(lambda: Locations(store, allowed_stores(spark)))


class Stopwatch:
    """Measures the phases of a command, such as its scan and its rewrite."""

    def __init__(self, *phases: str) -> None:
        self._started = self._last = time.monotonic_ns()
        self._phases = dict.fromkeys(phases, 0)

    def done(self, phase: str) -> None:
        """Add the time since the previous phase to this one."""
        now = time.monotonic_ns()
        self._phases[phase] += now - self._last
        self._last = now

    @property
    def metrics(self) -> dict[str, object]:
        """The durations as metrics."""
        times = {"execution": time.monotonic_ns() - self._started, **self._phases}
        return {f"{phase}TimeMs": taken // 1_000_000 for phase, taken in times.items()}


def must_change(
    spark: SparkSession,
    txn: OptimisticTransaction,
    options: WriteOptions,
    *,
    may_append: bool = False,
) -> bool:
    """Whether a command has anything to do; raises a typed error if it is not allowed.

    It has nothing to do when its application has committed this version already.  For a table that
    is append-only, the commit of a command that `may_append` decides: it raises if rows are
    removed.
    """
    if property_value(txn.metadata.configuration, APPEND_ONLY) and not may_append:
        raise AppendOnlyError(
            "DELTA_CANNOT_MODIFY_APPEND_ONLY",
            table_name=txn.log.store.root_uri,
            config=APPEND_ONLY.key,
        )
    return not is_committed(spark, txn, options)


def check_conserved(operation: str, *, written: Sequence[AddFile], expected: int) -> None:
    """Raise if the written files have more or fewer rows than expected."""
    found = sum(file.num_records or 0 for file in written)
    if found != expected:
        raise InvalidActionsError(
            "DELTA_COMMAND_INVARIANT_VIOLATION", operation=operation, uuid=str(uuid4())
        )


@contextmanager
def typed_failures() -> Iterator[None]:
    """Raise our error for a job that failed because of a row's values.

    Rules of the table fail for some rows, and casts for values that do not fit their column.
    """
    try:
        with typed_violations():
            yield
    except PySparkException as error:
        if error.getCondition() != "CAST_OVERFLOW_IN_TABLE_INSERT":
            raise
        known = error.getMessageParameters() or {}
        facts = {name: known.get(name, "") for name in ("sourceType", "targetType", "columnName")}
        raise SchemaError("DELTA_CAST_OVERFLOW_IN_TABLE_WRITE", **facts, **_CASTING) from error
