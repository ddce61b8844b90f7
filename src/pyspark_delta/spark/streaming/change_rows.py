"""The changes of a batch of a stream: which rows came, which went, in which version and when.

A commit that holds change files tells its changes itself; of any other the added files are
inserts and the removed ones deletes.  Version and time come with each file, as partition values
do, so all commits of a batch are one scan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from pyspark_delta.kernel.log.chosen_files import ChosenFiles
from pyspark_delta.kernel.log.frames import ADD_SCHEMA, table_from_values
from pyspark_delta.kernel.ops.stream_commits import FileRun
from pyspark_delta.kernel.ops.stream_definitions import StreamDefinition
from pyspark_delta.kernel.ops.stream_vectors import with_changed_rows
from pyspark_delta.kernel.protocol.column_mapping import PHYSICAL_NAME_KEY
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.types import LONG, STRING, StructField
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.kernel.scan.vectors import VectorReader
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.spark.allowed_places import allowed_stores
from pyspark_delta.spark.chosen_rows import ChosenSource
from pyspark_delta.spark.jvm.file_index import scan_plan
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.table_plan import (
    TableColumn,
    data_frame,
    metadata_name,
    with_columns,
    without_deleted_rows,
)
from pyspark_delta.spark.reader import prepare_for
from pyspark_delta.spark.scan_columns import files_schema, table_columns
from pyspark_delta.spark.snapshot_source import BASE_ROW_ID, ROW_VERSION, VECTOR

CHANGE_TYPE = "_change_type"
_OWN_COLUMNS = (
    TableColumn(name="_commit_version", expression=ROW_VERSION),
    TableColumn(name="_commit_timestamp", expression=f"timestamp_millis({BASE_ROW_ID} div 2)"),
)


class ChangedFiles(ChosenSource):
    """Files that come with the version and time of their commit, and whether they went in it.

    Both take the places that row ids have in a scan of rows: they are numbers of a file, too.
    """

    def __init__(
        self, files: ChosenFiles, zone: str, *, allowed: Callable[[], Sequence[LogStore]]
    ) -> None:
        super().__init__(files, zone, allowed=allowed)
        if not self.tracks_rows:
            self.tracks_rows = True
            self._partition_schema = self._partition_schema.add(
                StructField(BASE_ROW_ID, LONG), StructField(ROW_VERSION, LONG)
            )


def change_rows(
    jvm: JvmSession,
    store: LogStore,
    runs: Sequence[FileRun],
    definition: StreamDefinition,
    zone: str,
) -> DataFrame:
    """The changed rows of the files, as a batch of a stream."""
    vectors = VectorReader(Locations(store, allowed_stores(jvm.spark)))
    runs = [with_changed_rows(run, vectors.read) for run in runs]
    changed, told = _changed_table(runs), _told_table(runs)
    plan = _plan(jvm, store, changed, definition, zone, is_told=False)
    frame = data_frame(jvm, plan)
    if told.num_rows:
        with_type = definition.schema.add(
            StructField(CHANGE_TYPE, STRING, metadata={PHYSICAL_NAME_KEY: CHANGE_TYPE})
        )
        metadata = replace(definition.metadata, schema_string=format_schema(with_type))
        told_by = replace(definition, metadata=metadata)
        frame = frame.union(data_frame(jvm, _plan(jvm, store, told, told_by, zone, is_told=True)))
    return frame


def _plan(
    jvm: JvmSession,
    store: LogStore,
    files: pa.Table,
    definition: StreamDefinition,
    zone: str,
    *,
    is_told: bool,
) -> Any:
    metadata = definition.metadata
    chosen = ChosenFiles(store, files, protocol=definition.protocol, metadata=metadata)
    source = ChangedFiles(chosen, zone, allowed=lambda: allowed_stores(jvm.spark))
    mode = mapping_mode(metadata)
    prepare_for(jvm, mode)
    scanned = files_schema(metadata.schema, mode)
    plan = scan_plan(jvm, source, scanned, is_stream=True)
    if source.has_vectors:
        plan = without_deleted_rows(jvm, plan, VECTOR, metadata_name(scanned.names))
    columns = list(table_columns(metadata.schema, mode))
    if not is_told:
        kind = f"if({BASE_ROW_ID} % 2 = 1, 'delete', 'insert')"
        columns.append(TableColumn(name=CHANGE_TYPE, expression=kind))
    return with_columns(jvm, plan, [*columns, *_OWN_COLUMNS])


def _changed_table(runs: Sequence[FileRun]) -> pa.Table:
    tables, values = [], []
    for run in runs:
        if isinstance(run.rows, pa.Table):
            tables.append(_stamped_table(run))
            continue
        for row, kind in zip(run.rows, run.kinds or ("add",) * len(run.rows), strict=True):
            if kind != "cdc":
                values.append(_stamped(row, run, is_removed=kind == "remove"))
    tables.append(table_from_values(values, ADD_SCHEMA))
    return pa.concat_tables(tables)


def _told_table(runs: Sequence[FileRun]) -> pa.Table:
    values = [
        _stamped(row, run, is_removed=False)
        for run in runs
        if not isinstance(run.rows, pa.Table) and run.kinds is not None
        for row, kind in zip(run.rows, run.kinds, strict=True)
        if kind == "cdc"
    ]
    return table_from_values(values, ADD_SCHEMA)


def _stamped(row: dict[str, Any], run: FileRun, *, is_removed: bool) -> dict[str, Any]:
    # A removed file need not say its size or partition values; those are asked for all the same.
    return {
        "size": 0,
        "modificationTime": 0,
        "partitionValues": {},
        **{key: value for key, value in row.items() if value is not None and key != "stats"},
        "baseRowId": 2 * run.timestamp_ms + is_removed,
        "defaultRowCommitVersion": run.version,
    }


def _stamped_table(run: FileRun) -> pa.Table:
    table = run.rows
    assert isinstance(table, pa.Table)
    numbers = {"baseRowId": 2 * run.timestamp_ms, "defaultRowCommitVersion": run.version}
    for name, number in numbers.items():
        at = table.schema.get_field_index(name)
        column = pa.repeat(pa.scalar(number, pa.int64()), table.num_rows)
        table = table.set_column(at, ADD_SCHEMA.field(name), column)
    return table
