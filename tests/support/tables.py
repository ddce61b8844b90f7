"""Tables with rows: Parquet files written by pyarrow, committed through the kernel.

The kernel decides what a commit holds; this is the engine above it that a test needs, small and
exact: physical names and field ids in the files, Hive's directories, statistics for skipping.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyspark_delta.kernel.log.arrow_types import arrow_type, field_with_ids, kernel_type
from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.machine import system_now_ms
from pyspark_delta.kernel.protocol.actions import Action, AddFile, Metadata
from pyspark_delta.kernel.protocol.column_mapping import (
    MODE_KEY,
    ColumnMappingMode,
    field_ids,
    physical_name,
    physical_schema,
)
from pyspark_delta.kernel.protocol.deletion_vectors import (
    DeletionVector,
    inline_descriptor,
    pack_deletion_vectors,
)
from pyspark_delta.kernel.protocol.operations import operation, write
from pyspark_delta.kernel.protocol.partition_values import (
    format_partition_value,
    partition_directory,
)
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.stats import ColumnStats, format_stats, widen_stats
from pyspark_delta.kernel.protocol.stats_columns import StatsColumn, stats_columns
from pyspark_delta.kernel.protocol.types import (
    DataType,
    DecimalType,
    StructType,
)
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.storage.uris import decode_path, encode_path
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.hooks import HookRunner
from tests.support.hooks import InlineRunner


def table_log(
    path: Path,
    *,
    fsync: bool = False,
    hooks: HookRunner | None = None,
    now_ms: Callable[[], int] = system_now_ms,
) -> DeltaLog:
    """A table's log, from no cache; checkpoints are written before a commit returns."""
    return DeltaLog(LocalStore(path, fsync=fsync), hooks=hooks or InlineRunner(), now_ms=now_ms)


def create_table(
    path: Path,
    schema: pa.Schema | StructType,
    *,
    partition_by: Sequence[str] = (),
    configuration: Mapping[str, str] | None = None,
    log: DeltaLog | None = None,
) -> DeltaLog:
    """An empty table at version 0."""
    log = log or table_log(path)
    columns = schema if isinstance(schema, StructType) else kernel_type(pa.struct(list(schema)))
    transaction = log.start_transaction()
    transaction.update_metadata(
        Metadata(
            id=str(uuid4()),
            schema_string=format_schema(columns),
            partition_columns=tuple(partition_by),
            configuration=dict(configuration or {}),
            created_time=log.now_ms(),
        )
    )
    transaction.commit([], "CREATE TABLE")
    return log


def new_table(path: Path, rows: pa.Table, **options: Any) -> DeltaLog:
    """A table at version 1 that holds `rows`; options as for `create_table`."""
    log = create_table(path, rows.schema, **options)
    append(log, rows)
    return log


def append(log: DeltaLog, rows: pa.Table, *more: Action, with_stats: bool = True) -> int:
    """The version that appends `rows`, one file per partition."""
    transaction = log.start_transaction()
    files = write_files(log.store, transaction.metadata, rows, now_ms=log.now_ms())
    if not with_stats:
        files = [replace(file, stats=None) for file in files]
    return transaction.commit([*files, *more], write("Append")).version


def overwrite(log: DeltaLog, rows: pa.Table) -> int:
    """The version that holds `rows` and nothing else."""
    transaction = log.start_transaction()
    old = list(add_files(transaction.filter_files()))
    transaction.read_whole_table()
    new = write_files(log.store, transaction.metadata, rows, now_ms=log.now_ms())
    removes = [file.remove(deletion_timestamp=log.now_ms()) for file in old]
    return transaction.commit([*removes, *new], write("Overwrite")).version


def change_schema(log: DeltaLog, schema: StructType) -> int:
    """The version with another schema and the same files."""
    transaction = log.start_transaction()
    transaction.update_metadata(replace(transaction.metadata, schema_string=format_schema(schema)))
    return transaction.commit([], "ADD COLUMNS").version


def set_properties(log: DeltaLog, properties: Mapping[str, str]) -> int:
    """The version with more properties."""
    transaction = log.start_transaction()
    configuration = {**transaction.metadata.configuration, **properties}
    transaction.update_metadata(replace(transaction.metadata, configuration=configuration))
    return transaction.commit([], "SET TBLPROPERTIES").version


def delete_positions(
    log: DeltaLog, positions: Callable[[AddFile], Iterable[int]], *, inline: bool = False
) -> int:
    """The version whose deletion vectors take these rows away, besides those gone already.

    Rows of a file are counted from 0; a file for which there are none stays as it is.
    """
    transaction = log.start_transaction()
    touched = []
    for file in add_files(transaction.filter_files()):
        vector = DeletionVector(positions(file))
        if vector.cardinality:
            touched.append((file, vector))
    vectors = [vector for _, vector in touched]
    if inline:
        descriptors = [inline_descriptor(vector) for vector in vectors]
    else:
        packed = pack_deletion_vectors(vectors, next_id=uuid4, prefix="ab")
        for one in packed:
            log.store.create(one.path, one.data)
        descriptors = [descriptor for one in packed for descriptor in one.descriptors]
    actions: list[Action] = []
    for (file, _), descriptor in zip(touched, descriptors, strict=True):
        actions.append(file.remove(deletion_timestamp=log.now_ms()))
        actions.append(
            replace(file, deletion_vector=descriptor, stats=widen_stats(file.stats), tags=None)
        )
    return transaction.commit(actions, operation("DELETE", predicate=["true"])).version


def write_files(
    store: LogStore, metadata: Metadata, rows: pa.Table, *, now_ms: int
) -> list[AddFile]:
    """Files that hold `rows` (logical names, any order), one per partition, and their actions."""
    partitions = metadata.partition_schema
    mode = _mode(metadata)
    groups: dict[tuple[str | None, ...], list[int]] = {}
    keys = [
        [format_partition_value(value, f.data_type) for value in rows.column(f.name).to_pylist()]
        for f in partitions
    ]
    for index in range(rows.num_rows):
        groups.setdefault(tuple(column[index] for column in keys), []).append(index)
    names = [physical_name(f, mode) for f in partitions]
    files = []
    for key, indices in groups.items():
        values = dict(zip(names, key, strict=True))
        files.append(_write_file(store, metadata, rows.take(indices), values, now_ms))
    return files


def _write_file(
    store: LogStore,
    metadata: Metadata,
    rows: pa.Table,
    values: Mapping[str, str | None],
    now_ms: int,
) -> AddFile:
    physical = physical_rows(rows, metadata)
    sink = io.BytesIO()
    # Nothing but the values: the reader must not find its types in a copy of the Arrow schema.
    pq.write_table(physical, sink, store_schema=False)
    data = sink.getvalue()
    directory = partition_directory(list(values), values)
    name = f"part-00000-{uuid4()}.c000.snappy.parquet"
    path = f"{directory}/{name}" if directory else name
    store.create(path, data)
    return AddFile(
        path=encode_path(path),
        partition_values=dict(values),
        size=len(data),
        modification_time=now_ms,
        data_change=True,
        stats=stats_of(physical, metadata),
    )


def physical_rows(rows: pa.Table, metadata: Metadata) -> pa.Table:
    """The data columns of `rows` as a file has them: physical names, and ids where there are."""
    mode = _mode(metadata)
    schema = metadata.data_schema
    ids = {} if mode is ColumnMappingMode.NONE else field_ids(schema)
    columns, fields = [], []
    for f, physical in zip(schema, physical_schema(schema, mode), strict=True):
        target = field_with_ids(physical, ids)
        column = rows.column(f.name).cast(arrow_type(f.data_type)).combine_chunks()
        columns.append(column.view(target.type))
        fields.append(target)
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def stats_of(physical: pa.Table, metadata: Metadata) -> str:
    """The statistics of a file's rows."""
    leaves = stats_columns(metadata.schema, metadata.partition_columns, mode=_mode(metadata))
    return format_stats(physical.num_rows, [_leaf_stats(physical, leaf) for leaf in leaves])


def data_path(file: AddFile) -> str:
    """Where a file is below the table's root, decoded."""
    return decode_path(file.path)


def _leaf_stats(physical: pa.Table, leaf: StatsColumn) -> ColumnStats:
    column = physical.column(leaf.physical_path[0])
    for step in leaf.physical_path[1:]:
        column = pc.struct_field(column, step)
    low = high = None
    if leaf.has_bounds and column.null_count < len(column):
        bounds = pc.min_max(_comparable(column, leaf.data_type)).as_py()
        low, high = bounds["min"], bounds["max"]
        if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
            high = None  # NaN is above all numbers, and has no spelling
            low = None if low is None or math.isnan(low) else low
    return ColumnStats(
        path=leaf.physical_path,
        data_type=leaf.data_type,
        minimum=low,
        maximum=high,
        null_count=column.null_count,
    )


def _comparable(column: pa.ChunkedArray, data_type: DataType) -> pa.ChunkedArray:
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())
    if pa.types.is_date(column.type):
        return column.cast(pa.int32())
    assert not isinstance(data_type, DecimalType) or pa.types.is_decimal(column.type)
    return column


def _mode(metadata: Metadata) -> ColumnMappingMode:
    return ColumnMappingMode.parse(metadata.configuration.get(MODE_KEY))
