"""Parquet files of a checkpoint, encoded one row group at a time.

A file is an iterator of its bytes, so that storing it needs memory for one row group, not for the
file.  `writer` decides which rows go into which file.  PROTOCOL.md, "Checkpoint Schema".
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_delta.errors import StorageError
from pyspark_delta.kernel.log.checkpoints.parsed_columns import parse_partition_values, typed_stats
from pyspark_delta.kernel.log.checkpoints.schema import (
    PARTITION_VALUES_PARSED,
    STATS_PARSED,
    physical_partition_schema,
)
from pyspark_delta.kernel.log.frames.file_actions import combined
from pyspark_delta.kernel.protocol.actions import Action, Metadata
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.kernel.storage.base import LogStore

ROWS_PER_GROUP = 25_000
# Statistics of wide tables are long: the size of its text also limits a row group.
_BYTES_PER_GROUP = 64 << 20
# Values that repeat from file to file.  Paths, bounds and statistics do not, and a dictionary of
# them costs more than all the rest of the writing.
_REPEATING = (
    ".partitionValues.",
    f".{PARTITION_VALUES_PARSED}.",
    ".tags.",
    ".deletionVector.storageType",
    ".deletionVector.pathOrInlineDv",
    ".clusteringProvider",
    f".{STATS_PARSED}.nullCount.",
    ".options.",
    ".configuration.",
)
# Nothing reads a footer's smallest and largest statistics text.
_WITHOUT_FOOTER = ("add.stats", f"add.{STATS_PARSED}.")


def parquet_bytes(schema: pa.Schema, groups: Iterable[pa.Table]) -> Iterator[bytes]:
    """A Parquet file of these row groups, as chunks of its bytes."""
    sink = _Sink()
    leaves = _leaf_columns(schema)
    writer = pq.ParquetWriter(
        sink,
        schema,
        compression="snappy",
        use_dictionary=[leaf for leaf in leaves if any(part in leaf for part in _REPEATING)],
        write_statistics=[leaf for leaf in leaves if not leaf.startswith(_WITHOUT_FOOTER)],
        store_schema=False,
    )
    with writer:
        for group in groups:
            if group.num_rows:
                writer.write_table(group, row_group_size=group.num_rows)
                yield sink.take()
    yield sink.take()


def action_group(schema: pa.Schema, actions: Sequence[Action]) -> pa.Table:
    """State actions as rows, each in the column of its kind."""
    tables = []
    for kind in dict.fromkeys(action.KEY for action in actions):
        wanted = schema.field(kind).type
        values = [_row(a.to_json_value(), wanted) for a in actions if kind == a.KEY]
        tables.append(_widened(schema, kind, pa.array(values, wanted)))
    return pa.concat_tables(tables).combine_chunks() if tables else schema.empty_table()


def remove_groups(schema: pa.Schema, removes: pa.Table) -> Iterator[pa.Table]:
    """Tombstones as rows of the column `remove`."""
    fields = list(schema.field("remove").type)
    for part in _slices(removes):
        columns = [_column(part, f.name) for f in fields]
        yield _widened(schema, "remove", pa.StructArray.from_arrays(columns, fields=fields))


def add_groups(schema: pa.Schema, adds: pa.Table, metadata: Metadata) -> Iterator[pa.Table]:
    """Files as rows of the column `add`, with the typed columns that `schema` has."""
    fields = list(schema.field("add").type)
    partitions = physical_partition_schema(metadata)

    def group(part: pa.Table) -> pa.Table:
        columns = [_add_column(part, f, partitions) for f in fields]
        return _widened(schema, "add", pa.StructArray.from_arrays(columns, fields=fields))

    slices = list(_slices(adds))
    if len(slices) < 2:
        yield from map(group, slices)
        return
    # Reading statistics and writing Parquet take about as long: the next group is read meanwhile.
    with ThreadPoolExecutor(max_workers=1) as pool:
        pending = pool.submit(group, slices[0])
        for part in slices[1:]:
            done, pending = pending, pool.submit(group, part)
            yield done.result()
        yield pending.result()


def is_readable_parquet(store: LogStore, path: str) -> bool:
    """Whether the file is there and its footer can be read."""
    try:
        with store.arrow_file(path) as source, pq.ParquetFile(source) as file:
            return bool(file.metadata.num_columns)
    except (StorageError, pa.ArrowException, OSError):
        return False


class _Sink(io.RawIOBase):
    """A file object that keeps the bytes written since they were last taken."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        chunk = bytes(data)
        self._chunks.append(chunk)
        self._position += len(chunk)
        return len(chunk)

    def take(self) -> bytes:
        chunks, self._chunks = self._chunks, []
        return b"".join(chunks)


def _leaf_columns(schema: pa.Schema) -> list[str]:
    paths: list[str] = []

    def walk(path: str, data_type: pa.DataType) -> None:
        if pa.types.is_struct(data_type):
            for f in data_type:
                walk(f"{path}.{f.name}", f.type)
        elif pa.types.is_map(data_type):
            walk(f"{path}.key_value.key", data_type.key_type)
            walk(f"{path}.key_value.value", data_type.item_type)
        elif pa.types.is_list(data_type):
            walk(f"{path}.list.element", data_type.value_type)
        else:
            paths.append(path)

    for f in schema:
        walk(f.name, f.type)
    return paths


def _row(value: Any, wanted: pa.DataType) -> Any:
    """A JSON value as Arrow takes it: maps as pairs, keys that have no column left out."""
    if value is None:
        return None
    if pa.types.is_struct(wanted):
        return {f.name: _row(value.get(f.name), f.type) for f in wanted}
    return list(value.items()) if pa.types.is_map(wanted) else value


def _widened(schema: pa.Schema, kind: str, column: pa.Array) -> pa.Table:
    rows = len(column)
    columns = [column if f.name == kind else pa.nulls(rows, f.type) for f in schema]
    return pa.table(columns, schema=schema)


def _add_column(part: pa.Table, wanted: pa.Field, partitions: StructType) -> pa.Array:
    if wanted.name == STATS_PARSED:
        return typed_stats(combined(part.column("stats")), wanted.type)
    if wanted.name == PARTITION_VALUES_PARSED:
        values = combined(part.column("partitionValues"))
        return parse_partition_values(values, partitions, wanted.type)
    column = _column(part, wanted.name)
    if wanted.name == "partitionValues" and column.null_count:
        # The protocol requires the map, if only an empty one; some writers leave it out.
        return pa.MapArray.from_arrays(column.offsets, column.keys, column.items)
    return column


def _column(part: pa.Table, name: str) -> pa.Array:
    # A checkpoint changes no data: it repeats what commits did.
    if name == "dataChange":
        return pa.repeat(pa.scalar(False), part.num_rows)
    return combined(part.column(name))


def _slices(table: pa.Table) -> Iterator[pa.Table]:
    rows = table.num_rows
    fitting = _BYTES_PER_GROUP * rows // max(table.nbytes, 1)
    step = max(1, min(ROWS_PER_GROUP, fitting))
    for start in range(0, rows, step):
        yield table.slice(start, step)
