"""Writes Arrow rows to data files of a table, and makes the `AddFile` actions for them.

For workers that have rows in Python; the native writer is `files.stage`.  A file is written to a
temporary file first, and appears at its final path complete.  Schemas are checked before; only NOT
NULL is checked here, because that needs the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from tempfile import TemporaryFile
from typing import IO, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyspark_delta.errors import ConstraintError, SchemaError
from pyspark_delta.kernel.log.arrow_types import arrow_type, field_with_ids
from pyspark_delta.kernel.protocol.actions import AddFile, Metadata, Protocol
from pyspark_delta.kernel.protocol.column_mapping import (
    ColumnMappingMode,
    field_ids,
    physical_name,
    physical_schema,
)
from pyspark_delta.kernel.protocol.constraints import not_null_fields
from pyspark_delta.kernel.protocol.features import supported_features
from pyspark_delta.kernel.protocol.iceberg_compat import keeps_partition_columns
from pyspark_delta.kernel.protocol.partition_values import (
    format_partition_value,
    partition_directory,
)
from pyspark_delta.kernel.protocol.property_kinds import FLAG
from pyspark_delta.kernel.protocol.schema_checks import without_void
from pyspark_delta.kernel.protocol.schema_merge import as_nullable
from pyspark_delta.kernel.protocol.stats import (
    format_stats,
    string_prefix_length,
    table_stats_columns,
)
from pyspark_delta.kernel.protocol.stats_columns import StatsColumn
from pyspark_delta.kernel.protocol.types import DOUBLE, FLOAT, StructField, StructType, column_name
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.kernel.scan.projection import Projection, ProjectionError, file_projection
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.storage.uris import encode_path
from pyspark_delta.spark.files.stage import discard
from pyspark_delta.spark.files.stats import FooterStats, footer_stats
from pyspark_delta.spark.files.write_options import FileOptions, file_tags, random_prefix

CODECS: Mapping[str, tuple[str, str]] = {
    "none": ("NONE", ""),
    "uncompressed": ("NONE", ""),
    "snappy": ("SNAPPY", ".snappy"),
    "gzip": ("GZIP", ".gz"),
    "lz4": ("LZ4", ".lz4raw"),
    "lz4_raw": ("LZ4", ".lz4raw"),
    "brotli": ("BROTLI", ".br"),
    "zstd": ("ZSTD", ".zstd"),
}
"""Maps Spark's option `compression` to pyarrow's codec and a marker in file names."""

# Options of Parquet's own writer, and the arguments and values that pyarrow has for them.
_ARROW_ARGUMENTS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "parquet.page.size": ("data_page_size", int),
    "parquet.page.row.count.limit": ("max_rows_per_page", int),
    "parquet.dictionary.page.size": ("dictionary_pagesize_limit", int),
    "parquet.enable.dictionary": ("use_dictionary", FLAG.parse),
    "parquet.writer.version": ("data_page_version", lambda text: "2.0" if "2" in text else "1.0"),
}
_BLOOM_ARGUMENTS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "ndv": ("parquet.bloom.filter.expected.ndv", int),
    "fpp": ("parquet.bloom.filter.fpp", float),
}
_DEFAULTS = FileOptions()
_GROUP_ROWS = 1 << 20
_GROUP_BYTES = 64 << 20
_BUFFERED_BYTES = 256 << 20
_OPEN_FILES = 64
_CHUNK_BYTES = 4 << 20

# The partition values of a file, as the log spells them.
_Key = tuple[str | None, ...]


@dataclass(slots=True, kw_only=True)
class _File:
    """A file: while it is open, its first rows are in a temporary file, the last ones in memory."""

    key: _Key
    path: str = ""
    batches: list[pa.RecordBatch] = field(default_factory=list)
    num_bytes: int = 0
    num_rows: int = 0
    content: IO[bytes] | None = None
    parquet: Any = None
    with_nan: set[tuple[str, ...]] = field(default_factory=set)


class ArrowWriter:
    """Writes the rows of one task into files of a table, a directory per combination of partitions.

    `columns` are the columns of the batches.  Call `write` for each batch, then `finish`.
    """

    def __init__(
        self,
        store: LogStore,
        metadata: Metadata,
        protocol: Protocol,
        columns: pa.Schema,
        *,
        task: int = 0,
        options: FileOptions = _DEFAULTS,
        data_change: bool = True,
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._protocol = protocol
        self._task = task
        own = options.of_table(metadata)
        codec = own.spark.get("compression", "snappy").lower()
        self._codec, self._mark = CODECS[codec]
        self._max_records = int(own.spark.get("maxRecordsPerFile", 0)) or None
        self._arguments = _arrow_arguments(own.parquet)
        self._group_bytes = min(
            int(own.parquet.get("parquet.block.size", _GROUP_BYTES)), _GROUP_BYTES
        )
        self._data_change = data_change
        self._mode = mapping_mode(metadata)
        self._required = not_null_fields(metadata.schema)
        # NOT NULL is checked on the rows; in files every column is nullable, as Spark writes them.
        stored = as_nullable(without_void(metadata.schema))
        self._places, self._projection = _projection(stored, columns)
        self._aligned = pa.schema([pa.field(f.name, arrow_type(f.data_type)) for f in stored])
        self._in_file = stored
        if not keeps_partition_columns(protocol, metadata):
            self._in_file = as_nullable(without_void(metadata.data_schema))
        self._physical = physical_schema(self._in_file, self._mode)
        ids = {} if self._mode is ColumnMappingMode.NONE else field_ids(self._in_file)
        self._schema = pa.schema([field_with_ids(f, ids) for f in self._physical])
        self._stats = table_stats_columns(metadata, self._mode)
        self._files: dict[_Key, _File] = {}
        self._written: list[_File] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows; ConstraintError for a null in a column that is NOT NULL."""
        columns = self._projection.columns(batch.select(self._places))
        rows = pa.RecordBatch.from_arrays(columns, schema=self._aligned)
        for rule in self._required:
            if _leaf(rows, rule.path).null_count:
                raise ConstraintError(
                    "DELTA_NOT_NULL_CONSTRAINT_VIOLATED", columnName=column_name(rule.path)
                )
        for key, group in self._by_partition(rows):
            self._add(key, self._as_physical(group))
        while sum(file.num_bytes for file in self._files.values()) > _BUFFERED_BYTES:
            self._flush(max(self._files.values(), key=lambda file: file.num_bytes))

    def finish(self) -> list[AddFile]:
        """Close all files; returns the actions that add them to the table."""
        for key in list(self._files):
            self._close(self._files.pop(key))
        paths = [file.path for file in self._written]
        footers = footer_stats(self._store, paths, self._stats, self._physical)
        return [
            self._action(file, footer) for file, footer in zip(self._written, footers, strict=True)
        ]

    def discard(self) -> None:
        """Delete finished files of a failed task, which no action will refer to."""
        discard(self._store, [file.path for file in self._written])

    def _by_partition(self, rows: pa.RecordBatch) -> Iterator[tuple[_Key, pa.RecordBatch]]:
        fields = self._metadata.partition_schema.fields
        if not fields:
            yield (), rows
            return
        names = [str(place) for place in range(len(fields))]
        keys = [_log_values(rows.column(f.name), f) for f in fields]
        places = pa.array(range(rows.num_rows), pa.int64())
        groups = (
            pa.table([*keys, places], names=[*names, "row"])
            .group_by(names, use_threads=False)
            .aggregate([("row", "list")])
        )
        if groups.num_rows == 1:
            yield tuple(groups.column(name)[0].as_py() for name in names), rows
            return
        listed = groups.column("row_list")
        for group, key in enumerate(groups.select(names).to_pylist()):
            yield tuple(key[name] for name in names), rows.take(listed[group].values)

    def _as_physical(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            _viewed(rows.column(f.name), target.type)
            for f, target in zip(self._in_file, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _add(self, key: _Key, rows: pa.RecordBatch) -> None:
        while rows.num_rows:
            file = self._files.pop(key, None) or _File(key=key)
            self._files[key] = file  # the last one is the one used last
            taken = rows
            if self._max_records is not None:
                taken = rows.slice(0, self._max_records - file.num_rows)
            rows = rows.slice(taken.num_rows)
            file.batches.append(taken)
            file.num_rows += taken.num_rows
            file.num_bytes += taken.nbytes
            if file.num_rows == self._max_records:
                self._close(self._files.pop(key))
            elif (
                file.num_bytes >= self._group_bytes
                or sum(batch.num_rows for batch in file.batches) >= _GROUP_ROWS
            ):
                self._flush(file)

    def _flush(self, file: _File) -> None:
        """Write the rows in memory to the temporary file, as one row group."""
        if file.parquet is None:
            opened = [key for key, each in self._files.items() if each.parquet is not None]
            if len(opened) >= _OPEN_FILES:
                self._close(self._files.pop(opened[0]))
            # Closed when the file is; pyarrow writes to it until then.
            file.content = TemporaryFile()  # noqa: SIM115
            file.parquet = pq.ParquetWriter(
                file.content,
                self._schema,
                compression=self._codec,
                store_schema=False,
                store_decimal_as_integer=True,
                **self._arguments,
            )
        rows = pa.Table.from_batches(file.batches, self._schema)
        file.batches, file.num_bytes = [], 0
        file.with_nan.update(_columns_with_nan(rows, self._stats))
        file.parquet.write_table(rows, row_group_size=max(rows.num_rows, 1))

    def _close(self, file: _File) -> None:
        if file.batches:
            self._flush(file)
        if file.content is None:
            return
        with file.content as content:
            file.parquet.close()
            file.path = self._new_path(file.key)
            content.seek(0)
            self._store.create_from(file.path, iter(partial(content.read, _CHUNK_BYTES), b""))
        file.content = file.parquet = None
        self._written.append(file)

    def _new_path(self, key: _Key) -> str:
        name = f"part-{self._task:05}-{uuid4()}.c000{self._mark}.parquet"
        if prefix := random_prefix(self._metadata):
            return prefix + name
        values = self._partition_values(key)
        directory = partition_directory(list(values), values)
        return f"{directory}/{name}" if directory else name

    def _partition_values(self, key: _Key) -> dict[str, str | None]:
        fields = self._metadata.partition_schema
        return {physical_name(f, self._mode): v for f, v in zip(fields, key, strict=True)}

    def _action(self, file: _File, footer: FooterStats) -> AddFile:
        info = self._store.stat(file.path)
        # pyarrow's statistics leave NaN out, which Spark orders above all numbers.
        columns = [
            replace(column, maximum=None) if column.path in file.with_nan else column
            for column in footer.columns
        ]
        has_vectors = "deletionVectors" in supported_features(self._protocol)
        return AddFile(
            path=encode_path(file.path),
            partition_values=self._partition_values(file.key),
            size=info.size,
            modification_time=info.modified_ms,
            data_change=self._data_change,
            tags=file_tags(self._metadata),
            stats=format_stats(
                footer.num_records,
                columns,
                tight_bounds=True if has_vectors else None,
                prefix_length=string_prefix_length(self._metadata),
            ),
        )


def _projection(stored: StructType, columns: pa.Schema) -> tuple[list[int], Projection]:
    """Which of the data's columns the table has, by name ignoring case, and how to convert them."""
    places = [
        place
        for place, f in enumerate(columns)
        # A column of type null has no usable type, and counts as absent.
        if stored.get(f.name) is not None and not pa.types.is_null(f.type)
    ]
    try:
        return places, file_projection(
            stored, pa.schema([columns.field(place) for place in places])
        )
    except ProjectionError as error:
        raise SchemaError("DELTA_UNSUPPORTED_DATA_TYPES", dataTypeList=str(error)) from error


def _log_values(column: pa.Array, f: StructField) -> pa.Array:
    """The values of a column as the log spells them."""
    if pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    encoded = column.dictionary_encode()
    texts = [
        format_partition_value(value, f.data_type, column=f.name)
        for value in encoded.dictionary.to_pylist()
    ]
    return pa.array(texts, pa.string()).take(encoded.indices)


def _columns_with_nan(rows: pa.Table, columns: Sequence[StatsColumn]) -> Iterator[tuple[str, ...]]:
    for column in columns:
        if column.has_bounds and column.data_type in (FLOAT, DOUBLE):
            values = _leaf(rows, column.physical_path)
            if pc.any(pc.is_nan(values)).as_py():
                yield column.physical_path


def _leaf(rows: pa.RecordBatch | pa.Table, path: Sequence[str]) -> pa.Array | pa.ChunkedArray:
    found = rows.column(path[0])
    return pc.struct_field(found, list(path[1:])) if len(path) > 1 else found


def _viewed(column: pa.Array, target: pa.DataType) -> pa.Array:
    """The same values, with the names that nested fields have in files."""
    return column if column.type.equals(target, check_metadata=True) else column.view(target)


def _arrow_arguments(parquet: Mapping[str, str]) -> dict[str, Any]:
    """Options of Parquet's own writer as arguments of pyarrow's, as far as pyarrow has them."""
    found: dict[str, Any] = {
        argument: read(parquet[key])
        for key, (argument, read) in _ARROW_ARGUMENTS.items()
        if key in parquet
    }
    marked = [key for key in parquet if key.startswith("parquet.bloom.filter.enabled#")]
    columns = [key.partition("#")[2] for key in marked if FLAG.parse(parquet[key])]
    if columns:
        found["bloom_filter_options"] = {name: _bloom_arguments(parquet, name) for name in columns}
    return found


def _bloom_arguments(parquet: Mapping[str, str], column: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for argument, (key, read) in _BLOOM_ARGUMENTS.items():
        text = parquet.get(f"{key}#{column}", parquet.get(key))
        if text is not None:
            found[argument] = read(text)
    return found
