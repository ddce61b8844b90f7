"""The jobs of an append, and the base of all writes: rows to files, and their commit's history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from pyspark_delta.errors import ConstraintError, DeltaError
from pyspark_delta.kernel.ops.rewrite_plan import num_live_rows
from pyspark_delta.kernel.protocol.actions import Action, AddCDCFile, AddFile
from pyspark_delta.kernel.protocol.identity_columns import identity_columns
from pyspark_delta.kernel.protocol.operations import Operation, define_table, write
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.files.stage import (
    StagedFiles,
    StageRequest,
    hidden_columns,
    optimized_rows,
    stage,
)
from pyspark_delta.spark.files.stats import moved_identity
from pyspark_delta.spark.files.write_options import WriteOptions
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.rules.rows import RowCheck, table_rows, typed_violations
from pyspark_delta.spark.write.request import Scope, WriteRequest

_MODES: Mapping[str, str] = {
    "append": "Append",
    "overwrite": "Overwrite",
    "error": "ErrorIfExists",
    "ignore": "Ignore",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """The replaced rows of an overwrite.

    `files` are removed, with all of their rows or some; `kept` are the rows of the latter that
    stay, None if there are none.  `vectors` are the actions for other files, which stay with new
    vectors.
    `deleted` are the replaced rows, None if files and vectors suffice for the change feed.
    `num_rows` counts them, None if not known; `num_kept` counts those of `kept`.
    """

    files: tuple[AddFile, ...] = ()
    vectors: tuple[Action, ...] = ()
    kept: DataFrame | None = field(default=None, hash=False)
    deleted: DataFrame | None = field(default=None, hash=False)
    num_rows: int | None = 0
    num_kept: int = 0

    @property
    def marked(self) -> list[AddFile]:
        """The files that stay and lose rows, with their new vectors."""
        return [action for action in self.vectors if isinstance(action, AddFile)]

    def actions(self, now_ms: int, *, data_change: bool) -> list[Action]:
        """The actions that remove the rows from the table."""
        gone = [file.remove(now_ms, data_change=data_change) for file in self.files]
        return [*gone, *self.vectors]


_NOTHING = Replaced()


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """The result of the jobs: new files, and the replaced rows."""

    written: list[AddFile]
    predicate: str | None
    copied: Sequence[AddFile] = ()
    changes: Sequence[AddCDCFile] = ()
    replaced: Replaced = _NOTHING

    def keeps_ids(self, txn: OptimisticTransaction) -> bool:
        """Whether files lose only some rows, and the remaining rows keep their ids."""
        loses_some = bool(self.copied or self.replaced.vectors)
        return loses_some and bool(hidden_columns(txn).fields)

    def actions(self, txn: OptimisticTransaction, options: WriteOptions) -> list[Action]:
        """The actions of the commit, except those for the table's definition."""
        now_ms = txn.log.now_ms()
        return [
            *([] if options.txn is None else [options.txn.action(now_ms)]),
            *self.replaced.actions(now_ms, data_change=options.data_change),
            *self.written,
            *self.copied,
            *self.changes,
        ]

    @property
    def metrics(self) -> dict[str, object]:
        """All metrics of a write; its operation selects those that it records.

        As in delta-spark, a file that only got a vector counts as written, and its other rows as
        copied.
        """
        marked, removed = self.replaced.marked, self.replaced.files
        files = [*self.written, *self.copied, *marked]
        num_written = sum(file.num_records or 0 for file in self.written)
        num_copied = sum(file.num_records or 0 for file in self.copied)
        num_copied += num_live_rows(marked) or 0
        return {
            "numFiles": len(files),
            "numOutputBytes": sum(file.size for file in files),
            "numOutputRows": num_written + num_copied,
            "numRemovedFiles": len(removed),
            "numRemovedBytes": sum(file.size for file in removed),
            "numAddedChangeFiles": len(self.changes),
            "numDeletedRows": self.replaced.num_rows,
            "numCopiedRows": num_copied,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteJobs:
    """The jobs of an append, after the table's definition is settled.

    `source` is the data with the user's column names.
    """

    jvm: JvmSession
    txn: OptimisticTransaction
    request: WriteRequest
    options: WriteOptions
    staged: StagedFiles
    scope: Scope
    source: DataFrame

    def run(self, data: DataFrame) -> WriteResult:
        """Write `data`, which has the table's columns."""
        predicate = self.options.replace_where
        written = self._stage_rows(data, [], predicate)
        self._move_identity(written, data)
        return WriteResult(written=written, predicate=predicate)

    def operation(self, predicate: str | None) -> Operation:
        """The operation for the history, after the jobs."""
        request, options, metadata = self.request, self.options, self.txn.metadata
        is_dynamic = options.is_dynamic or None
        can_overwrite = options.overwrites_schema or None
        can_merge = options.merges_schema or None
        table = request.as_table
        if table is None:
            return write(
                _MODES[request.mode],
                partition_by=request.partition_by,
                predicate=predicate,
                is_dynamic_partition_overwrite=is_dynamic,
                can_overwrite_schema=can_overwrite,
                can_merge_schema=can_merge,
                replace_on=options.replace_on,
                replace_using=options.replace_using,
                user_metadata=options.user_metadata,
            )
        if table.verb == "create":
            return define_table(
                table.verb,
                metadata,
                is_managed=table.is_managed,
                as_select=True,
                cluster_by=request.cluster_by,
            )
        return define_table(
            table.verb,
            metadata,
            is_managed=table.is_managed,
            as_select=True,
            cluster_by=request.cluster_by,
            user_metadata=options.user_metadata,
            predicate=predicate,
            isDynamicPartitionOverwrite=is_dynamic,
            canOverwriteSchema=can_overwrite,
            canMergeSchema=can_merge,
            isV1SaveAsTableOverwrite=table.is_v1_overwrite or None,
        )

    def _move_identity(self, written: list[AddFile], data: DataFrame) -> None:
        """Move the high-water marks of identity columns past the written numbers."""
        if identity_columns(self.txn.schema):
            moved = moved_identity(self.txn.metadata, written, given=data.columns)
            if moved is not None:
                self.txn.move_identity_marks(moved)

    def _stage_rows(
        self, data: DataFrame, checks: list[RowCheck], predicate: str | None
    ) -> list[AddFile]:
        metadata = self.txn.metadata
        rows = table_rows(self.jvm, data, metadata, self.txn.protocol, checks=checks)
        rows, planning = optimized_rows(self.jvm, rows, metadata, self.options)
        with typed_violations(lambda error: self._violation(error, predicate)):
            return self._stage(rows, StructType(), planning)

    def _stage(
        self, rows: DataFrame, hidden: StructType, planning: Mapping[str, str] | None = None
    ) -> list[AddFile]:
        request = StageRequest(
            log=self.txn.log,
            data=rows,
            metadata=self.txn.metadata,
            protocol=self.txn.protocol,
            extra=hidden,
            options=self.options.files,
            planning=planning,
            data_change=self.options.data_change,
        )
        files = stage(self.jvm, request)
        self.staged.add(files)
        return files

    def _violation(self, error: DeltaError, predicate: str | None) -> DeltaError:
        """The error for a row that breaks a rule; overwrites of some rows have their own."""
        is_overwrite = self.request.mode == "overwrite" and self.txn.snapshot is not None
        if not is_overwrite or not isinstance(error, ConstraintError):
            return error
        if predicate is not None:
            return ConstraintError(
                "DELTA_REPLACE_WHERE_MISMATCH", replaceWhere=predicate, message=str(error)
            )
        if self.options.matches is not None:
            return ConstraintError(
                "DELTA_REPLACE_ON_OR_USING_TABLE_CONSTRAINT_VIOLATION",
                replaceExpression=self.options.matches,
                invariantViolationMessage=str(error),
            )
        return error
