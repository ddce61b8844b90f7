"""Changed rows as a DataFrame: which came, which went, in which version and when.

What the rows of a file have in common as changes comes with the file, as partition values do.  So
all commits are one scan, and a second one where commits tell their changes in files of their own;
and a filter on version, time or kind leaves files unopened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from pyspark_delta.kernel.log.chosen_files import ChosenFiles
from pyspark_delta.kernel.ops.changed_files import MARK, ChangedFiles, ChangeMark
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector, read_deletion_vector
from pyspark_delta.kernel.protocol.row_tracking import materialized_columns
from pyspark_delta.kernel.protocol.types import LONG, STRING, TIMESTAMP, StructField
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.kernel.scan.vectors import descriptor_of
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.spark.allowed_places import allowed_stores
from pyspark_delta.spark.chosen_rows import ChosenSource
from pyspark_delta.spark.deleted_rows import stretch_bits
from pyspark_delta.spark.jvm.file_index import scan_plan
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans import plan_frame
from pyspark_delta.spark.jvm.scan_rule import VECTOR
from pyspark_delta.spark.jvm.table_plan import (
    TableColumn,
    metadata_name,
    quoted_name,
    with_columns,
    without_deleted_rows,
)
from pyspark_delta.spark.jvm.unions import coalesced_plan, union_plan
from pyspark_delta.spark.reader import prepare_for, session_zone
from pyspark_delta.spark.scan_columns import files_schema, table_columns

CHANGE_TYPE = "_change_type"
COMMIT_VERSION = "_commit_version"
COMMIT_TIMESTAMP = "_commit_timestamp"
"""What a change has beside the columns of the table."""

ROW_ID, ROW_VERSION = "__delta_row_id", "__delta_row_commit_version"
"""What it has, before these, where files tell of rows' ids."""

_TYPE = "__delta_change_type"
_VERSION = "__delta_commit_version"
_TIME = "__delta_commit_timestamp"
_KEPT_FROM = "__delta_kept_from"
_FIRST_ID, _OWN_VERSION = "__delta_first_row_id", "__delta_row_version"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesOf:
    """The table whose changes are read, by the definition they are read with.

    `key` is what two reads of the same changes have in common; None when there is no such other.
    """

    store: LogStore
    metadata: Metadata
    protocol: Protocol
    key: str | None = None


class ChangeSource(ChosenSource):
    """Files of changes; each comes with what its mark says."""

    keeps_files_apart = True

    def __init__(
        self,
        files: ChosenFiles,
        marks: Sequence[ChangeMark],
        zone: str,
        *,
        is_told: bool,
        has_ids: bool = False,
        key: str | None,
        allowed: Callable[[], Sequence[LogStore]],
    ) -> None:
        self._marks = marks
        self._has_ids = has_ids
        self._of = key
        super().__init__(files, zone, allowed=allowed)
        # What was changed in a version stays so, whatever is written now.
        self.is_time_travel = True
        self._is_told = is_told
        self.keeps_rows = self.has_vectors and any(mark.keeps_rows for mark in marks)
        fields = [StructField(_VERSION, LONG), StructField(_TIME, TIMESTAMP)]
        if not is_told:
            fields.append(StructField(_TYPE, STRING))
        if self.keeps_rows:
            fields.append(StructField(_KEPT_FROM, LONG))
        if has_ids:
            fields += (StructField(_FIRST_ID, LONG), StructField(_OWN_VERSION, LONG))
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
        values: list[list[Any]] = [
            [mark.version for mark in marks],
            [1000 * mark.timestamp_ms for mark in marks],
        ]
        if not self._is_told:
            values.append([mark.change_type for mark in marks])
        if self.keeps_rows:
            kept = self._kept_rows(files)
            values.append([None if vector is None else stretch_bits(vector)[0] for vector in kept])
        if self._has_ids:
            values.append([mark.base_row_id for mark in marks])
            values.append([mark.row_version for mark in marks])
        return values

    def _marks_of(self, files: pa.Table) -> list[ChangeMark]:
        return [self._marks[number] for number in files.column(MARK).to_pylist()]

    def _kept_rows(self, files: pa.Table) -> list[DeletionVector | None]:
        """The rows of each file that are the changes; None where its vector is an ordinary one."""
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
    inferred, told = changed.inferred, changed.told
    plans = []
    if inferred.num_rows or not told.num_rows:
        has_ids = changed.has_ids
        plans.append(
            _plan(jvm, table, inferred, changed.marks, "inferred", is_stream, has_ids=has_ids)
        )
    if told.num_rows:
        plans.append(_plan(jvm, table, told, changed.marks, "told", is_stream))
    # One plan, so that Spark analyses it once.
    plan = plans[0] if len(plans) == 1 else union_plan(jvm, plans)
    return plan_frame(jvm, plan if is_stream else _packed(jvm, plan, inferred, told))


def _packed(jvm: JvmSession, plan: Any, *tables: pa.Table) -> Any:
    """The same rows by fewer tasks, where files are many and small.

    Spark takes opening a file for as dear as reading four megabytes, so that it gives a task 32 of
    them at most: with a thousand commits, starting tasks takes longer than reading.
    """
    num_files = sum(table.num_rows for table in tables)
    if num_files <= _FEW_FILES:
        return plan
    num_bytes = sum(pc.sum(table.column("size")).as_py() or 0 for table in tables)
    tasks = max(jvm.spark.sparkContext.defaultParallelism, -(-num_bytes // _TASK_BYTES))
    return coalesced_plan(jvm, plan, tasks) if num_files > _FEW_FILES * tasks else plan


def _plan(
    jvm: JvmSession,
    table: ChangesOf,
    files: pa.Table,
    marks: Sequence[ChangeMark],
    how: str,
    is_stream: bool,
    *,
    has_ids: bool = False,
) -> Any:
    metadata, is_told = table.metadata, how == "told"
    source = ChangeSource(
        ChosenFiles(table.store, files, protocol=table.protocol, metadata=metadata),
        marks,
        session_zone(jvm.spark),
        is_told=is_told,
        has_ids=has_ids,
        key=None if table.key is None else f"{table.key} {how}",
        allowed=lambda: allowed_stores(jvm.spark),
    )
    mode = mapping_mode(metadata)
    prepare_for(jvm, mode)
    scanned = files_schema(metadata.schema, mode)
    if is_told:
        scanned = scanned.add(StructField(CHANGE_TYPE, STRING))
    columns = list(table_columns(metadata.schema, mode))
    hidden = metadata_name(scanned.names)
    if has_ids:
        row_id, version = materialized_columns(metadata, table.store.root_uri)
        scanned = scanned.add(StructField(row_id, LONG), StructField(version, LONG))
        own_id = f"coalesce({quoted_name(row_id)}, {_FIRST_ID} + {hidden}.row_index)"
        own_version = f"coalesce({quoted_name(version)}, {_OWN_VERSION})"
        columns.append(TableColumn(name=ROW_ID, expression=own_id))
        columns.append(TableColumn(name=ROW_VERSION, expression=own_version))
    plan = scan_plan(jvm, source, scanned, is_stream=is_stream)
    if source.has_vectors:
        kept_from = _KEPT_FROM if source.keeps_rows else None
        plan = without_deleted_rows(jvm, plan, VECTOR, hidden, kept_from=kept_from)
    columns += [
        TableColumn(name=CHANGE_TYPE, expression=CHANGE_TYPE if is_told else _TYPE),
        TableColumn(name=COMMIT_VERSION, expression=_VERSION),
        TableColumn(name=COMMIT_TIMESTAMP, expression=_TIME),
    ]
    return with_columns(jvm, plan, columns)
