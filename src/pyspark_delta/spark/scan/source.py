"""The files of one version as a scan's source: prunes them, and adds their per-file values.

Pruning and skipping use Arrow; no Python object is made for a file.  A deletion vector becomes a
plain bitmap, in the form that the JVM tests (`jvm/plans/frames.py`).

>>> row_bits(DeletionVector([0, 9])).hex()
'0102000000000000'
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import accumulate
from threading import Lock
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from pyspark_delta.errors import SchemaError, UnsafePathError
from pyspark_delta.kernel.log.table_files import ChosenFiles, TableFiles
from pyspark_delta.kernel.protocol.action_parts import DeletionVectorDescriptor
from pyspark_delta.kernel.protocol.column_defaults import EXISTS_DEFAULT
from pyspark_delta.kernel.protocol.column_mapping import (
    ColumnMappingMode,
    logical_path,
    physical_schema,
)
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector
from pyspark_delta.kernel.protocol.features import supported_features
from pyspark_delta.kernel.protocol.row_tracking import is_row_tracking_enabled as has_row_tracking
from pyspark_delta.kernel.protocol.types import BINARY, LONG, StructField, StructType, map_fields
from pyspark_delta.kernel.scan.aggregates import Aggregate, AggregateValues, aggregates_from_log
from pyspark_delta.kernel.scan.locations import IS_ABSOLUTE, Locations, VectorReader, descriptor_of
from pyspark_delta.kernel.scan.plan import ScanPlan, mapping_mode, plan_scan
from pyspark_delta.kernel.scan.predicates.binding import BoundPredicate, bind, bound_conjunction
from pyspark_delta.kernel.scan.predicates.evaluation import evaluate
from pyspark_delta.kernel.scan.predicates.tree import Path, Predicate, rename_columns
from pyspark_delta.kernel.scan.skipping.generated_filters import implied_partition_filter
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.spark.conf.setting_table import STATS_SKIPPING
from pyspark_delta.spark.conf.settings import session_zone
from pyspark_delta.spark.jvm.expressions.catalyst import Filter
from pyspark_delta.spark.jvm.scan.catalyst_rows import FileGroups
from pyspark_delta.spark.jvm.scan.file_index import VECTOR, ScanSource
from pyspark_delta.spark.scan.filters import predicate_of
from pyspark_delta.spark.tables.locations import allowed_stores, hadoop_location, scan_options

BASE_ROW_ID = "__delta_base_row_id"
ROW_VERSION = "__delta_default_row_commit_version"
"""Columns that come with a file and are not columns of the table."""

# No column has that name, so a field of it is no column of the table.
_NO_COLUMN = "\0"
# A frame may be used as long as a session lives; only the latest reads matter.
_MOST_READS = 1_000
_FOR_WRITERS = frozenset({"delta.generationExpression", "delta.typeChanges", EXISTS_DEFAULT})
_PREFIXES_FOR_WRITERS = ("delta.columnMapping.", "delta.identity.", "parquet.field.")
# Bits of deleted rows are read in words of 64.
_WORD = 8
_OWN_COLUMNS = {BASE_ROW_ID: "baseRowId", ROW_VERSION: "defaultRowCommitVersion"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRead:
    """The read of one query: the files that may have a row for which `filter` is true."""

    filter: Predicate
    num_files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanSettings:
    """The settings of a session that scans depend on.

    `allowed` returns the places outside the table that its log may refer to; `skips_by_stats`
    allows statistics to prune files.  Both are called when a query is planned, if needed.
    """

    time_zone: str
    allowed: Callable[[], Sequence[LogStore]] = field(default=tuple, hash=False)
    skips_by_stats: Callable[[], bool] = field(default=lambda: True, hash=False)

    @classmethod
    def of(cls, spark: SparkSession) -> ScanSettings:
        """The settings of a session."""
        return cls(
            time_zone=session_zone(spark),
            allowed=lambda: allowed_stores(spark),
            skips_by_stats=lambda: STATS_SKIPPING.of(spark),
        )


class SnapshotSource(ScanSource):
    """The files of one version.

    `reads` has what queries over it were planned to read.  A transaction that writes rows from here
    depends on it, unless the version was chosen by time travel (`is_time_travel`).  A plan made for
    another version has `tracks_rows` if it has columns for row ids.
    """

    keeps_files_apart = False
    """Whether each file is a group of its own, with its own values."""

    checks_every_link = False
    """Whether each file, not only its directory, is checked for being a link out of the table.

    Set where rows are written to a table.
    """

    def __init__(
        self,
        snapshot: TableFiles,
        settings: ScanSettings,
        *,
        is_time_travel: bool = False,
        tracks_rows: bool | None = None,
        reads: list[ScanRead] | None = None,
    ) -> None:
        self.snapshot = snapshot
        self._settings = settings
        self._time_zone = settings.time_zone
        self.is_time_travel = is_time_travel
        self.reads: list[ScanRead] = [] if reads is None else reads
        metadata = snapshot.metadata
        self._mode = mapping_mode(metadata)
        self._root = hadoop_location(snapshot.store.root_uri)
        self.has_vectors = self._may_hide_rows()
        if tracks_rows is None:
            tracks_rows = has_row_tracking(snapshot.protocol, metadata)
        self.tracks_rows = tracks_rows
        # Spark reports its partition columns with all their metadata, even after a later alias.
        own = reader_schema(physical_schema(metadata.partition_schema, self._mode))
        if self.tracks_rows:
            own = own.add(StructField(BASE_ROW_ID, LONG), StructField(ROW_VERSION, LONG))
        if self.has_vectors:
            own = own.add(StructField(VECTOR, BINARY))
        self._partition_schema = own

    @property
    def root(self) -> str:
        return self._root

    @property
    def partition_schema(self) -> StructType:
        return self._partition_schema

    @property
    def size_in_bytes(self) -> int:
        return self.snapshot.size_in_bytes

    @property
    def options(self) -> Mapping[str, str]:
        return scan_options(self.snapshot.store)

    @property
    def identity(self) -> tuple[str, ...]:
        snapshot = self.snapshot
        return (snapshot.store.root_uri, snapshot.metadata.id, f"version {snapshot.version}")

    def groups(
        self, partition_filters: Sequence[Filter], data_filters: Sequence[Filter]
    ) -> tuple[FileGroups, list[int]]:
        on_partitions = [self._predicate(each) for each in partition_filters]
        left = [i for i, predicate in enumerate(on_partitions) if predicate.has_unknown]
        exact = self._all_of(p for p in on_partitions if not p.has_unknown)
        whole = self._all_of([*on_partitions, *map(self._predicate, data_filters)])
        implied = implied_partition_filter(whole, self.snapshot.metadata)
        chosen = self._all_of([whole, implied])
        plan = self._planned(chosen)
        files, partitions = plan.files, plan.partitions
        if not exact.is_true:
            passed = pc.fill_null(evaluate(exact, partitions), False)
            files, partitions = files.filter(passed), partitions.filter(passed)
        self._check_links(files)
        self._note(whole, files.num_rows)
        return self._grouped(files, partitions), left

    def answers(
        self, partition_filters: Sequence[Filter], requested: Sequence[Aggregate]
    ) -> AggregateValues | None:
        where = self._all_of(map(self._predicate, partition_filters))
        if where.has_unknown:
            return None
        # A table that a scan would reject, such as for paths that lead out of it, raises here too.
        self._planned(where)
        if self._mode is not ColumnMappingMode.NONE:
            requested = [self._logical(each) for each in requested]
        found = aggregates_from_log(self.snapshot, where, requested)
        if found is not None:
            self._note(where, found.num_files)
        return found

    def drops_deleted_rows(self, columns: Set[str]) -> bool:
        return VECTOR in columns

    def _note(self, read: BoundPredicate, num_files: int) -> None:
        self.reads.append(ScanRead(filter=read.predicate, num_files=num_files))
        del self.reads[:-_MOST_READS]

    def _logical(self, requested: Aggregate) -> Aggregate:
        if requested.column is None:
            return requested
        return replace(requested, column=self._logical_path((requested.column,))[0])

    def _planned(self, predicate: BoundPredicate) -> ScanPlan:
        def planned(allowed: Sequence[LogStore]) -> ScanPlan:
            return plan_scan(
                self.snapshot,
                self.snapshot.metadata.partition_columns or None,
                predicate,
                allowed_roots=allowed,
                time_zone=self._time_zone,
                by_stats=predicate.is_true or self._settings.skips_by_stats(),
            )

        try:
            return planned(())
        except UnsafePathError:
            # Few tables have files elsewhere: only for them is the session's setting read.
            allowed = self._settings.allowed()
            if not allowed:
                raise
            return planned(allowed)

    def _check_links(self, files: pa.Table) -> None:
        """Hadoop follows every link, so links that a store would reject are rejected before."""
        allowed = self._settings.allowed() if pc.any(files.column(IS_ABSOLUTE)).as_py() else ()
        locations = Locations(self.snapshot.store, allowed)
        locations.check_links(files, every_file=self.checks_every_link)

    def _predicate(self, one: Filter) -> BoundPredicate:
        predicate = predicate_of(one, time_zone=self._time_zone)
        schema = self.snapshot.metadata.schema
        if self._mode is not ColumnMappingMode.NONE:
            predicate = rename_columns(predicate, self._logical_path)
        # Names that are not columns of the table, such as `_metadata`, are left to Spark.
        return bind(predicate, schema, time_zone=self._time_zone, lenient=True)

    def _all_of(self, predicates: Iterable[BoundPredicate]) -> BoundPredicate:
        schema = self.snapshot.metadata.schema
        return bound_conjunction(predicates, schema, time_zone=self._time_zone)

    def _logical_path(self, path: Path) -> Path:
        try:
            return logical_path(self.snapshot.metadata.schema, path, self._mode)
        except SchemaError:
            return (_NO_COLUMN, *path)

    def _grouped(self, files: pa.Table, partitions: pa.Table) -> FileGroups:
        """Files by their partition values; a file with values of its own is a group of its own."""
        columns = [_stored(partitions.column(name)) for name in partitions.schema.names]
        vectors = _one_chunk(files.column("deletionVector"))
        groups = _group_numbers(columns, files.num_rows)
        if self.tracks_rows or self.keeps_files_apart:
            groups = _all_apart(files.num_rows)
        elif self.has_vectors and vectors.null_count < len(vectors):
            apart = pc.add(_all_apart(files.num_rows), pc.add(pc.max(groups), 1))
            groups = pc.if_else(pc.is_valid(vectors), apart, groups)
        order = pc.sort_indices(groups)
        counts = pc.value_counts(groups.take(order)).field("counts").to_pylist()
        starts = pa.array([0, *accumulate(counts[:-1])][: len(counts)], pa.int64())
        first = order.take(starts)
        values: list[list[Any]] = [column.take(first).to_pylist() for column in columns]
        leading = files.take(first)
        if self.tracks_rows:
            values += (leading.column(key).to_pylist() for key in _OWN_COLUMNS.values())
        if self.has_vectors:
            values.append(self._bits_of_files(leading))
        values += self._more_values(leading)
        ordered = files.select(["location", "isAbsolute", "size", "modificationTime"]).take(order)
        prefix, names = self._located(ordered)
        return FileGroups(
            prefix=prefix,
            names=names,
            sizes=_one_chunk(ordered.column("size")),
            modified_ms=_one_chunk(ordered.column("modificationTime")),
            counts=counts,
            values=list(zip(*values, strict=True)) if values else [()] * len(counts),
        )

    def _located(self, files: pa.Table) -> tuple[str, pa.Array]:
        """The common prefix of the locations, and the rest of each."""
        names = _one_chunk(files.column("location"))
        if not pc.any(files.column("isAbsolute")).as_py():
            return f"{self._root}/", names
        # A clone has files elsewhere, so all files have their full locations.
        absolute = files.column("isAbsolute").to_pylist()
        whole = [
            hadoop_location(name) if elsewhere else f"{self._root}/{name}"
            for name, elsewhere in zip(names.to_pylist(), absolute, strict=True)
        ]
        return "", pa.array(whole, pa.string())

    def _may_hide_rows(self) -> bool:
        """Whether some file has deleted rows; without the table feature the scan raises."""
        if "deletionVectors" not in supported_features(self.snapshot.protocol):
            return False
        vectors = self.snapshot.files_with(["deletionVector"]).column("deletionVector")
        return bool(vectors.null_count < len(vectors))

    def _bits_of_files(self, files: pa.Table) -> list[bytes | None]:
        """The bits of deleted rows, for the first file of each group."""
        store = self.snapshot.store
        reader = VectorReader(Locations(store, self._settings.allowed()))
        return [
            None if each is None else ROW_BITS.of(store.root_uri, reader, each)
            for each in map(descriptor_of, files.column("deletionVector").to_pylist())
        ]

    def _more_values(self, files: pa.Table) -> list[list[Any]]:
        """The values of a source's additional columns, for the first file of each group."""
        return []


class ChosenSource(SnapshotSource):
    """The files that a command replaces, or has just written; no two such sources are equal."""

    checks_every_link = True

    def __init__(self, files: ChosenFiles, settings: ScanSettings) -> None:
        super().__init__(files, settings)
        self._key = uuid4().hex

    @property
    def identity(self) -> tuple[str, ...]:
        return (self.snapshot.store.root_uri, self.snapshot.metadata.id, f"files {self._key}")

    def answers(
        self, partition_filters: Sequence[Filter], requested: Sequence[Aggregate]
    ) -> AggregateValues | None:
        return None  # a caller that chose files needs to read them


def reader_schema(schema: StructType) -> StructType:
    """The schema for readers, without metadata for writers."""
    return map_fields(
        schema, lambda f: StructField(f.name, f.data_type, f.nullable, reader_metadata(f))
    )


def reader_metadata(f: StructField) -> dict[str, Any]:
    """The metadata of a field for readers.

    Defaults stay, as in delta-spark, except an EXISTS_DEFAULT, which Spark's scans would fill in.
    """
    return {
        key: value
        for key, value in f.metadata.items()
        if key not in _FOR_WRITERS and not key.startswith(_PREFIXES_FOR_WRITERS)
    }


def row_bits(vector: DeletionVector) -> bytes:
    """A bit for each row up to the last deleted one, lowest bit first, in whole words."""
    last = vector.max_row
    return b"" if last is None else _bits(vector, 0, last)


def stretch_bits(vector: DeletionVector) -> tuple[int, bytes]:
    r"""The row of the first bit, and bits from the first row of the vector to its last.

    >>> stretch_bits(DeletionVector([1000, 1001]))
    (960, b'\x00\x00\x00\x00\x00\x03\x00\x00')
    """
    first, last = vector.min_row, vector.max_row
    if first is None or last is None:
        return 0, b""
    start = first // (8 * _WORD) * (8 * _WORD)
    return start, _bits(vector, start, last - start)


class RowBits:
    """The bits of vectors, with a cache of the most recently used up to a total size."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._kept: OrderedDict[tuple[str, DeletionVectorDescriptor], bytes] = OrderedDict()
        self._size = 0
        self._lock = Lock()

    def of(
        self, table_uri: str, reader: VectorReader, descriptor: DeletionVectorDescriptor
    ) -> bytes:
        """The bits of one vector of a table."""
        key = (table_uri, descriptor)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        bits = row_bits(reader.read(descriptor))
        with self._lock:
            self._size += len(bits) - len(self._kept.pop(key, b""))
            self._kept[key] = bits
            while self._size > self._most_bytes:
                _, gone = self._kept.popitem(last=False)
                self._size -= len(gone)
        return bits


ROW_BITS = RowBits(most_bytes=64 * 1024 * 1024)
"""The cache of this process: the next query often needs the same bits again."""


def _bits(vector: DeletionVector, start: int, last: int) -> bytes:
    """The bits of the rows from `start` on; the last bit that is set is for row `start + last`."""
    rows = vector.rows_between(start, start + last + 1)
    found = pa.Array.from_buffers(pa.uint64(), len(rows), [None, pa.py_buffer(rows)])
    indices = pc.subtract(found.cast(pa.int64()), start)
    # Arrow's validity bitmap has just this form.
    scattered = pc.scatter(pa.repeat(pa.scalar(True), len(rows)), indices, max_index=last)
    marks = scattered.buffers()[0]
    size = -(-(last + 1) // (8 * _WORD)) * _WORD
    if marks is None:  # every row is deleted
        bits = ((1 << (last + 1)) - 1).to_bytes(size, "little")
    else:
        bits = marks.to_pybytes()[: last // 8 + 1].ljust(size, b"\0")
    return bits


def _stored(column: pa.ChunkedArray) -> pa.Array:
    """Partition values in Catalyst's form: dates as days, timestamps as microseconds."""
    values = _one_chunk(column)
    if pa.types.is_date(values.type):
        return values.cast(pa.int32())
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
    return values


def _group_numbers(columns: Sequence[pa.Array], num_rows: int) -> pa.Array:
    """A number for each row; rows with equal values have equal numbers."""
    numbers = pa.repeat(pa.scalar(0, pa.int64()), num_rows)
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        size = max(len(encoded.dictionary), 1)
        numbers = pc.add(pc.multiply(numbers, size), encoded.indices.cast(pa.int64()))
        # Renumbered for each column, so that they stay small for any number of columns.
        numbers = numbers.dictionary_encode().indices.cast(pa.int64())
    return numbers


def _all_apart(num_rows: int) -> pa.Array:
    return pa.array(range(num_rows), pa.int64())


def _one_chunk(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)
