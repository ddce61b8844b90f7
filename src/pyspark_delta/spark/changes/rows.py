"""Changed rows as a DataFrame, with the type, version and time of each change.

These columns are the same for all rows of a file, so the file brings them as partition values.  All
commits are therefore one scan, with a second one for commits that have change files; and filters on
version, time or type skip files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from pyspark_delta.kernel.log.table_files import ChosenFiles
from pyspark_delta.kernel.ops.changes.files import MARK, ChangedFiles, ChangeMark
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector, read_deletion_vector
from pyspark_delta.kernel.protocol.types import LONG, STRING, TIMESTAMP, DataType, StructField
from pyspark_delta.kernel.scan.locations import descriptor_of
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans.frames import (
    TableColumn,
    coalesced_plan,
    plan_frame,
    union_plan,
    with_columns,
)
from pyspark_delta.spark.scan.frame import file_scan, row_id_expressions, table_columns
from pyspark_delta.spark.scan.source import ChosenSource, ScanSettings, stretch_bits

CHANGE_TYPE = "_change_type"
COMMIT_VERSION = "_commit_version"
COMMIT_TIMESTAMP = "_commit_timestamp"
"""These three are the columns that a change has beside the table's."""

ROW_ID, ROW_VERSION = "__delta_row_id", "__delta_row_commit_version"
"""The row tracking columns, before those, where files have row ids."""

_TYPE = "__delta_change_type"
_VERSION = "__delta_commit_version"
_TIME = "__delta_commit_timestamp"
_KEPT_FROM = "__delta_kept_from"
_FIRST_ID, _OWN_VERSION = "__delta_first_row_id", "__delta_row_version"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesOf:
    """The table whose changes are read, with the metadata that they are read with.

    Reads with equal `key` give the same changes; None when a read equals no other.
    """

    store: LogStore
    metadata: Metadata
    protocol: Protocol
    key: str | None = None


class ChangeSource(ChosenSource):
    """Files of changes; the mark of a file has the values of its change columns."""

    keeps_files_apart = True

    def __init__(
        self,
        files: ChosenFiles,
        settings: ScanSettings,
        marks: Sequence[ChangeMark],
        *,
        is_recorded: bool,
        has_ids: bool,
        key: str | None,
    ) -> None:
        self._marks = marks
        self._of = key
        super().__init__(files, settings)
        # Later commits do not alter the changes of a version.
        self.is_time_travel = True
        self.keeps_rows = self.has_vectors and any(mark.keeps_rows for mark in marks)
        self._columns: list[tuple[str, DataType, Callable[[ChangeMark], object]]] = [
            (_VERSION, LONG, lambda mark: mark.version),
            (_TIME, TIMESTAMP, lambda mark: 1000 * mark.timestamp_ms),
        ]
        if not is_recorded:
            self._columns.append((_TYPE, STRING, lambda mark: mark.change_type))
        if has_ids:
            self._columns.append((_FIRST_ID, LONG, lambda mark: mark.base_row_id))
            self._columns.append((_OWN_VERSION, LONG, lambda mark: mark.row_version))
        fields = [StructField(name, data_type) for name, data_type, _ in self._columns]
        if self.keeps_rows:
            fields.append(StructField(_KEPT_FROM, LONG))
        self._partition_schema = self._partition_schema.add(*fields)

    @property
    def options(self) -> Mapping[str, str]:
        own = super().options
        # A tiny file is one read: asking for its parts at once takes longer than getting them.
        is_tiny = self.size_in_bytes < _TINY_BYTES * self.snapshot.num_files
        return {_READS_AT_ONCE: "false", **own} if is_tiny else own

    @property
    def identity(self) -> tuple[str, ...]:
        root_uri, table_id, _ = own = super().identity
        return own if self._of is None else (root_uri, table_id, self._of)

    def _bits_of_files(self, files: pa.Table) -> list[bytes | None]:
        kept = self._kept_rows(files)
        own = super()._bits_of_files(files)
        return [
            bits if vector is None else stretch_bits(vector)[1]
            for bits, vector in zip(own, kept, strict=True)
        ]

    def _more_values(self, files: pa.Table) -> list[list[Any]]:
        marks = self._marks_of(files)
        values: list[list[Any]] = [[value(mark) for mark in marks] for _, _, value in self._columns]
        if self.keeps_rows:
            kept = self._kept_rows(files)
            values.append([None if vector is None else stretch_bits(vector)[0] for vector in kept])
        return values

    def _marks_of(self, files: pa.Table) -> list[ChangeMark]:
        return [self._marks[number] for number in files.column(MARK).to_pylist()]

    def _kept_rows(self, files: pa.Table) -> list[DeletionVector | None]:
        """The rows of each file that are changes; None where its deletion vector is ordinary."""
        found = map(descriptor_of, files.column("deletionVector").to_pylist())
        return [
            read_deletion_vector(descriptor) if mark.keeps_rows and descriptor is not None else None
            for mark, descriptor in zip(self._marks_of(files), found, strict=True)
        ]


_FEW_FILES = 32
_TASK_BYTES = 32 << 20
_TINY_BYTES = 1 << 20
_READS_AT_ONCE = "parquet.hadoop.vectored.io.enabled"


def change_frame(
    jvm: JvmSession, table: ChangesOf, changed: ChangedFiles, *, is_stream: bool = False
) -> DataFrame:
    """The rows of the files; `is_stream` for a batch of a stream."""
    data_files, change_files = changed.data_files, changed.change_files
    plans = []
    if data_files.num_rows or not change_files.num_rows:
        plans.append(_plan(jvm, table, changed, is_recorded=False, is_stream=is_stream))
    if change_files.num_rows:
        plans.append(_plan(jvm, table, changed, is_recorded=True, is_stream=is_stream))
    # One plan, so that Spark analyzes it once.
    plan = plans[0] if len(plans) == 1 else union_plan(jvm, plans)
    return plan_frame(jvm, plan if is_stream else _packed(jvm, plan, data_files, change_files))


def _packed(jvm: JvmSession, plan: Any, *tables: pa.Table) -> Any:
    """The same plan with fewer tasks, where files are many and small.

    Spark counts the opening of a file like reading four megabytes, and so gives a task at most 32
    files: with a thousand commits, starting tasks takes longer than reading.
    """
    num_files = sum(table.num_rows for table in tables)
    if num_files <= _FEW_FILES:
        return plan
    num_bytes = sum(pc.sum(table.column("size")).as_py() or 0 for table in tables)
    tasks = max(jvm.spark.sparkContext.defaultParallelism, -(-num_bytes // _TASK_BYTES))
    return coalesced_plan(jvm, plan, tasks) if num_files > _FEW_FILES * tasks else plan


def _plan(
    jvm: JvmSession, table: ChangesOf, changed: ChangedFiles, *, is_recorded: bool, is_stream: bool
) -> Any:
    """The changes that change files record, or those that follow from adds, removes and vectors."""
    files = changed.change_files if is_recorded else changed.data_files
    how = "change files" if is_recorded else "data files"
    has_ids = changed.has_ids and not is_recorded
    source = ChangeSource(
        ChosenFiles(table.store, files, protocol=table.protocol, metadata=table.metadata),
        ScanSettings.of(jvm.spark),
        changed.marks,
        is_recorded=is_recorded,
        has_ids=has_ids,
        key=None if table.key is None else f"{table.key}, {how}",
    )
    plan, hidden = file_scan(
        jvm,
        source,
        reads_ids=has_ids,
        more=[StructField(CHANGE_TYPE, STRING)] if is_recorded else [],
        kept_from=_KEPT_FROM if source.keeps_rows else None,
        is_stream=is_stream,
    )
    expressions = {}
    if has_ids:
        ids = row_id_expressions(source, hidden, _FIRST_ID, _OWN_VERSION)
        expressions = dict(zip((ROW_ID, ROW_VERSION), ids, strict=True))
    expressions |= {
        CHANGE_TYPE: CHANGE_TYPE if is_recorded else _TYPE,
        COMMIT_VERSION: _VERSION,
        COMMIT_TIMESTAMP: _TIME,
    }
    more = [TableColumn(name=name, expression=text) for name, text in expressions.items()]
    return with_columns(jvm, plan, [*table_columns(table.metadata), *more])
