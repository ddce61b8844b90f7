"""From rows that a command touches to what becomes of their files: shared by DELETE, UPDATE, MERGE.

A touched file keeps its place and gets a larger deletion vector, or it goes: as a whole when no
row of it is left, else its other rows are written anew.  Which of these is decided for each file
by what it costs.  Nothing here knows conditions or clauses; it starts from positions of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.errors.table import AppendOnlyError, InvalidActionsError, SchemaError
from pyspark_delta.kernel.log.frames import add_files, add_table
from pyspark_delta.kernel.machine import random_uuid
from pyspark_delta.kernel.ops.row_vectors import changed_vector, write_vectors
from pyspark_delta.kernel.protocol.actions import (
    Action,
    AddCDCFile,
    AddFile,
    Metadata,
    SetTransaction,
)
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector, check_rows_exist
from pyspark_delta.kernel.protocol.features import is_supported
from pyspark_delta.kernel.protocol.operations import Operation
from pyspark_delta.kernel.protocol.properties import (
    APPEND_ONLY,
    ENABLE_CHANGE_DATA_FEED,
    ENABLE_DELETION_VECTORS,
    property_value,
)
from pyspark_delta.kernel.protocol.row_tracking import PRESERVED_TAG
from pyspark_delta.kernel.protocol.stats import with_num_records
from pyspark_delta.kernel.protocol.types import STRING, StructField, StructType
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.scan.vectors import VectorReader
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.allowed_places import allowed_stores
from pyspark_delta.spark.column_alignment import column
from pyspark_delta.spark.commands.auto_compact import is_auto_compacted, run_auto_compaction
from pyspark_delta.spark.commands.optimized_rows import optimized_rows
from pyspark_delta.spark.commands.overwrite_scope import forget_session_version
from pyspark_delta.spark.commands.replaced_rows import hidden_columns, num_live_rows
from pyspark_delta.spark.commands.write_options import WriteOptions
from pyspark_delta.spark.file_options import random_prefix
from pyspark_delta.spark.jvm.catalyst import FOLLOWS_ANSI
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.located_rows import FILE, ROW, located_rows
from pyspark_delta.spark.recorded_stats import with_recorded_stats
from pyspark_delta.spark.staged_files import StagedFiles
from pyspark_delta.spark.table_rows import typed_violations
from pyspark_delta.spark.touched_rows import TouchedFile
from pyspark_delta.spark.writer import stage, stage_changes

CHANGE_TYPE = "_change_type"
"""The column of change files that says what happened to a row."""

FileMode = Literal["vector", "remove", "rewrite"]
"""What becomes of a touched file: a larger vector, gone as a whole, or its other rows anew."""

# Above this share of rows that are gone, what is left is copied: every later scan reads the rest.
_REWRITTEN_ABOVE = 0.95
# Below so many rows a scan of what is gone costs nothing that anybody could feel.
_SMALL_FILE_ROWS = 10_000
# Which settings decide how values are cast, as an error about one tells them.
_CASTING = {
    "storeAssignmentPolicyFlag": "spark.sql.storeAssignmentPolicy",
    "updateAndMergeCastingFollowsAnsiEnabledFlag": FOLLOWS_ANSI,
    "ansiEnabledFlag": "spark.sql.ansi.enabled",
}
_CHANGE_COLUMNS = StructType((StructField(CHANGE_TYPE, STRING),))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedFile:
    """A file that loses rows.  `rows` are those that go now, `gone` those gone before as well.

    `file` is as the log has it, but that its number of records is always known.
    """

    file: AddFile
    rows: DeletionVector = field(hash=False)
    gone: DeletionVector = field(hash=False)
    mode: FileMode

    @property
    def num_left(self) -> int:
        """How many live rows are left of it."""
        return (self.file.num_records or 0) - self.gone.cardinality


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedFile:
    """A file that goes, and how many live rows of it are touched and how many are left.

    Which rows they are nobody noted: a condition tells again.
    """

    file: AddFile
    num_rows: int
    num_left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChanges:
    """Every file that a command touches, and what becomes of it.

    `counted` are files that go and whose touched rows a condition finds again.
    """

    files: tuple[ChangedFile, ...] = ()
    counted: tuple[CountedFile, ...] = ()

    def of(self, *modes: FileMode) -> tuple[ChangedFile, ...]:
        """The files of these modes."""
        return tuple(each for each in self.files if each.mode in modes)

    @property
    def num_rows(self) -> int:
        """How many rows go."""
        noted = sum(each.rows.cardinality for each in self.files)
        return noted + sum(each.num_rows for each in self.counted)

    @property
    def removed(self) -> list[AddFile]:
        """The files that go, their other rows being written anew or there being none."""
        noted = [each.file for each in self.of("remove", "rewrite")]
        return noted + [each.file for each in self.counted]

    @property
    def num_copied(self) -> int:
        """How many rows stay, and are written anew."""
        noted = sum(each.num_left for each in self.of("rewrite"))
        return noted + sum(each.num_left for each in self.counted)

    def metrics(
        self, written: Sequence[AddFile], changes: Sequence[AddCDCFile]
    ) -> dict[str, object]:
        """What was done to files, under the names that DELETE and UPDATE record.

        A file that only gets a vector was neither added nor removed.  As delta-spark counts, a
        vector that another takes the place of is added, removed and updated.
        """
        removed, vectored = self.removed, self.of("vector")
        updated = sum(each.file.deletion_vector is not None for each in vectored)
        gone = sum(file.deletion_vector is not None for file in removed)
        return {
            "numAddedFiles": len(written),
            "numRemovedFiles": len(removed),
            "numAddedBytes": sum(file.size for file in written),
            "numRemovedBytes": sum(file.size for file in removed),
            "numAddedChangeFiles": len(changes),
            "numCopiedRows": self.num_copied,
            "numDeletionVectorsAdded": len(vectored),
            "numDeletionVectorsRemoved": gone + updated,
            "numDeletionVectorsUpdated": updated,
        }


class DmlFiles:
    """The files of one command: what it reads of them, writes, and says in its commit.

    `hidden` are the columns that rows bring beside the table's where these are tracked: the id and
    the version of a copied row are its own, an updated one has a null version, a new one two.
    Rows are read with the columns of `metadata`, by default the table's before the transaction.
    """

    def __init__(
        self,
        jvm: JvmSession,
        txn: OptimisticTransaction,
        staged: StagedFiles,
        asked: WriteOptions,
        *,
        metadata: Metadata | None = None,
    ) -> None:
        self.jvm = jvm
        self.txn = txn
        self.metadata = metadata
        self.hidden = hidden_columns(txn)
        self._staged = staged
        self._asked = asked

    @property
    def writes_changes(self) -> bool:
        """Whether the table has a change data feed."""
        return bool(property_value(self.txn.metadata.configuration, ENABLE_CHANGE_DATA_FEED))

    def uses_vectors(self, command: Literal["delete", "update", "merge"]) -> bool:
        """Whether files may get vectors: the table allows it, and the session does not forbid."""
        metadata, protocol = self.txn.metadata, self.txn.protocol
        if not property_value(metadata.configuration, ENABLE_DELETION_VECTORS):
            return False
        if not is_supported(protocol, "deletionVectors"):
            return False
        said = self._asked.conf(f"spark.databricks.delta.{command}.deletionVectors.persistent")
        return said is None or said.lower() != "false"

    def plan(
        self,
        touched: Iterable[TouchedFile],
        *,
        with_vectors: bool,
        can_rewrite: bool = True,
    ) -> FileChanges:
        """Decide what becomes of each file.

        Without `can_rewrite` a file gets a vector even where writing it anew would be cheaper.
        """
        return FileChanges(
            files=tuple(self._changed(each, with_vectors, can_rewrite) for each in touched)
        )

    def count(self, counts: Iterable[tuple[AddFile, int]]) -> FileChanges:
        """The changes of a command that gives no vectors, by the numbers of rows it touches."""
        return FileChanges(counted=tuple(self._counted(*each) for each in counts))

    def all_rows(self, files: pa.Table) -> FileChanges:
        """The changes of a command that touches every row of files, which nobody had to find."""
        found = [self._with_num_records(file) for file in add_files(files)]
        return FileChanges(
            counted=tuple(
                CountedFile(file=file, num_rows=_num_live(file), num_left=0) for file in found
            )
        )

    def known_rows(self, files: Sequence[AddFile]) -> int | None:
        """How many rows files have by the log; None where it must not be asked, or is silent."""
        return num_live_rows(files) if not files or self._asked.counts_by_log else None

    def live_rows(self, files: Iterable[AddFile]) -> DataFrame:
        """All rows of files, with the hidden columns."""
        return self._located(add_table(files), {})

    def copied_rows(self, changes: FileChanges) -> DataFrame | None:
        """The rows of rewritten files that stay, with the hidden columns; None for none.

        They are read through the positions of those that go: no condition is looked at again.
        """
        return self._rows(changes.of("rewrite"), lambda each: each.gone)

    def touched_rows(self, changes: Iterable[ChangedFile]) -> DataFrame | None:
        """The rows that go, as they were before, with the hidden columns; None for none."""
        return self._rows(tuple(changes), _all_but_touched)

    def write(self, rows: DataFrame) -> list[AddFile]:
        """Write rows, which have the table's columns and the hidden ones, into files of the table.

        Rules are in their plan already (`table_rows`); a row that breaks one gives its own error.
        """
        metadata = self.txn.metadata
        rows, planning = optimized_rows(self.jvm, rows, metadata, self._asked)
        with typed_failures():
            files = stage(
                self.jvm,
                self.txn.log,
                rows,
                metadata,
                self.txn.protocol,
                hidden=self.hidden,
                options=self._asked.files,
                planning=planning,
            )
        self._staged.add(files)
        return files

    def write_changes(self, rows: DataFrame) -> list[AddCDCFile]:
        """Write rows for the change feed; they have the table's columns and `CHANGE_TYPE`."""
        names = [*self.txn.schema.names, CHANGE_TYPE]
        with typed_failures():
            files = stage_changes(
                self.jvm,
                self.txn.log,
                rows.select(*map(column, names)),
                self.txn.metadata,
                self.txn.protocol,
                _CHANGE_COLUMNS,
                options=self._asked.files,
            )
        self._staged.add(files)
        return files

    def actions(self, changes: FileChanges) -> list[Action]:
        """Write the vectors, and give all that the commit says of touched files.

        The transaction knows the touched rows from here on: a commit that takes others out of the
        same file is no conflict.
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
        """Whether a command makes a commit: by its actions, or although it changes nothing.

        Then it is to name the application that has got so far, or the session wants the history to
        tell of everything.
        """
        if actions or (names_application and self._asked.txn is not None):
            return True
        return self._asked.records_empty

    def commit(
        self,
        actions: Sequence[Action],
        operation: Operation,
        metrics: Mapping[str, object],
        *,
        names_application: bool = True,
    ) -> int:
        """Commit, and compact after it where that is asked for; the version that it made.

        Without `names_application` the session's application may run the command again.
        """
        txn, asked = self.txn, self._asked
        compacts = is_auto_compacted(txn.metadata, asked.conf)
        first: list[Action] = []
        if asked.txn is not None and names_application:
            now_ms = txn.log.now_ms()
            app_id, version = asked.txn.app_id, asked.txn.version
            first.append(SetTransaction(app_id=app_id, version=version, last_updated=now_ms))
        self._staged.offer()
        committed = txn.commit(
            [*first, *with_recorded_stats(actions, txn, asked.conf)],
            operation,
            tags={PRESERVED_TAG: "true"} if self.hidden.fields else None,
            user_metadata=asked.user_metadata,
            metrics=metrics,
        )
        if first:
            forget_session_version(self.jvm.spark, asked)
        added = [action for action in actions if isinstance(action, AddFile)]
        if compacts and added:
            log: DeltaLog = txn.log  # type: ignore[assignment]
            run_auto_compaction(self.jvm.spark, log, added, asked.conf)
        return committed.version

    def _changed(self, touched: TouchedFile, with_vectors: bool, can_rewrite: bool) -> ChangedFile:
        file = self._with_num_records(touched.file)
        gone = touched.rows
        if file.deletion_vector is not None:
            gone = gone.union(self._vectors.read(file.deletion_vector))
        num_records = file.num_records or 0
        check_rows_exist(gone, num_records)
        share = gone.cardinality / max(num_records, 1)
        is_costly = num_records >= _SMALL_FILE_ROWS and share > _REWRITTEN_ABOVE
        mode: FileMode = "vector"
        if share >= 1:
            mode = "remove"
        elif not with_vectors or (can_rewrite and is_costly):
            mode = "rewrite"
        return ChangedFile(file=file, rows=touched.rows, gone=gone, mode=mode)

    def _counted(self, file: AddFile, num_rows: int) -> CountedFile:
        known = self._with_num_records(file)
        return CountedFile(file=known, num_rows=num_rows, num_left=_num_live(known) - num_rows)

    def _rows(
        self,
        files: tuple[ChangedFile, ...],
        without: Callable[[ChangedFile], DeletionVector],
    ) -> DataFrame | None:
        if not files:
            return None
        hidden_rows = {each.file.path: without(each) for each in files}
        return self._located(add_table(each.file for each in files), hidden_rows)

    def _located(self, files: pa.Table, without: Mapping[str, DeletionVector]) -> DataFrame:
        found = located_rows(self.jvm, self.txn, files, without=without, metadata=self.metadata)
        return found.frame.drop(FILE, ROW)

    @cached_property
    def _locations(self) -> Locations:
        return Locations(self.txn.log.store, allowed_stores(self.jvm.spark))

    @cached_property
    def _vectors(self) -> VectorReader:
        return VectorReader(self._locations)

    def _with_num_records(self, file: AddFile) -> AddFile:
        """The file with its number of records, from its footer where the log does not know it."""
        if file.num_records is not None:
            return file
        store, path = self._locations.open(file.path)
        with store.arrow_file(path) as opened:
            num_records = pq.read_metadata(opened).num_rows
        return replace(file, stats=with_num_records(file.stats, num_records))


def must_change(
    spark: SparkSession,
    txn: OptimisticTransaction,
    asked: WriteOptions,
    *,
    may_append: bool = False,
) -> bool:
    """Whether a command that changes rows has anything to do; a typed error when it must not.

    It has nothing to do when its application has committed this version already.  One that
    `may_append` is for the commit to judge, which refuses to remove rows that must stay.
    """
    if property_value(txn.metadata.configuration, APPEND_ONLY) and not may_append:
        raise AppendOnlyError(
            "DELTA_CANNOT_MODIFY_APPEND_ONLY",
            table_name=txn.log.store.root_uri,
            config=APPEND_ONLY.key,
        )
    once = asked.txn
    if once is not None and txn.txn_version(once.app_id) >= once.version:
        forget_session_version(spark, asked)
        return False
    return True


def removed_metrics(files: Sequence[AddFile]) -> dict[str, object]:
    """The metrics of files that go as a whole, and of nothing else."""
    return {
        **FileChanges().metrics([], []),
        "numRemovedFiles": len(files),
        "numRemovedBytes": sum(file.size for file in files),
        "numDeletionVectorsRemoved": sum(file.deletion_vector is not None for file in files),
    }


def check_conserved(operation: str, *, written: Sequence[AddFile], expected: int) -> None:
    """Refuse to commit files that hold more or fewer rows than were to be written."""
    found = sum(file.num_records or 0 for file in written)
    if found != expected:
        raise InvalidActionsError(
            "DELTA_COMMAND_INVARIANT_VIOLATION", operation=operation, uuid=str(uuid4())
        )


@contextmanager
def typed_failures() -> Iterator[None]:
    """Raise our error for a job that failed because of a row's values.

    Rules of the table refuse rows, and columns values that do not fit.
    """
    try:
        with typed_violations():
            yield
    except PySparkException as error:
        if error.getCondition() != "CAST_OVERFLOW_IN_TABLE_INSERT":
            raise
        told = error.getMessageParameters() or {}
        facts = {name: told.get(name, "") for name in ("sourceType", "targetType", "columnName")}
        raise SchemaError("DELTA_CAST_OVERFLOW_IN_TABLE_WRITE", **facts, **_CASTING) from error


def _num_live(file: AddFile) -> int:
    gone = 0 if file.deletion_vector is None else file.deletion_vector.cardinality
    return (file.num_records or 0) - gone


def _all_but_touched(each: ChangedFile) -> DeletionVector:
    return DeletionVector(range(each.file.num_records or 0)).difference(each.rows)
