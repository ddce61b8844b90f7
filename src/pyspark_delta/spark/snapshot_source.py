"""The files of one version as a scan's source: which a query needs, and what comes with them.

Pruning and skipping happen here, on Arrow; no Python object is made for a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors.table import SchemaError, UnsafePathError
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.column_mapping import (
    ColumnMappingMode,
    logical_path,
    physical_schema,
)
from pyspark_delta.kernel.protocol.features import supported_features
from pyspark_delta.kernel.protocol.row_tracking import is_enabled as has_row_tracking
from pyspark_delta.kernel.protocol.types import BINARY, LONG, StructField, StructType
from pyspark_delta.kernel.scan.binding import BoundPredicate, bind, bound_conjunction
from pyspark_delta.kernel.scan.evaluation import evaluate
from pyspark_delta.kernel.scan.generated_filters import implied_partition_filter
from pyspark_delta.kernel.scan.locations import IS_ABSOLUTE, Locations
from pyspark_delta.kernel.scan.log_answers import Answers, Asked, answers_from_log
from pyspark_delta.kernel.scan.plan import ScanPlan, mapping_mode, plan_scan
from pyspark_delta.kernel.scan.predicates import Path, Predicate, rename_columns
from pyspark_delta.kernel.scan.vectors import VectorReader, descriptor_of
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.spark.deleted_rows import RowBits
from pyspark_delta.spark.expressions import predicate_of
from pyspark_delta.spark.jvm.file_index import ScanSource
from pyspark_delta.spark.jvm.filters import Filter
from pyspark_delta.spark.jvm.partition_directories import FileGroups
from pyspark_delta.spark.jvm.scan_rule import VECTOR
from pyspark_delta.spark.scan_columns import shown_schema
from pyspark_delta.spark.table_access import hadoop_location, scan_options

BASE_ROW_ID = "__delta_base_row_id"
ROW_VERSION = "__delta_default_row_commit_version"
"""Columns that come with a file and are none of the table's."""

# No column has that name, so what is below it is no column of the table.
_NO_COLUMN = "\0"
# A frame may be asked for as long as a session lives; what was read last is what counts.
_MOST_READS = 1_000
_OWN_COLUMNS = {BASE_ROW_ID: "baseRowId", ROW_VERSION: "defaultRowCommitVersion"}


@dataclass(frozen=True, slots=True)
class ScanRead:
    """What one query read of a source: the files that may hold a row for which `filter` is true."""

    filter: Predicate
    num_files: int


class SnapshotSource(ScanSource):
    """The files of one version.

    `reads` says what queries over it were planned to read; a transaction that writes what was
    read here depends on it, unless the version was asked for by itself (`is_time_travel`).
    `allowed` gives the places outside of the table that its log may name, `skips_by_stats` says
    whether statistics may rule files out.  A plan that was made for another version says with
    `tracks_rows` whether it has a place for row ids.
    """

    keeps_files_apart = False
    """Whether no two files share what comes with them."""

    checks_every_link = False
    """Whether each file is checked for being a symbolic link out of the table, and not only its
    directory; set where rows are written to a table."""

    def __init__(
        self,
        snapshot: Snapshot,
        time_zone: str,
        *,
        is_time_travel: bool = False,
        allowed: Callable[[], Sequence[LogStore]] = tuple,
        skips_by_stats: Callable[[], bool] = lambda: True,
        tracks_rows: bool | None = None,
        reads: list[ScanRead] | None = None,
    ) -> None:
        self.snapshot = snapshot
        self._allowed = allowed
        self._skips_by_stats = skips_by_stats
        self.is_time_travel = is_time_travel
        self.reads: list[ScanRead] = [] if reads is None else reads
        self._time_zone = time_zone
        metadata = snapshot.metadata
        self._mode = mapping_mode(metadata)
        self._root = hadoop_location(snapshot.store.root_uri)
        self.has_vectors = self._may_hide_rows()
        if tracks_rows is None:
            tracks_rows = has_row_tracking(snapshot.protocol, metadata)
        self.tracks_rows = tracks_rows
        # Spark shows its partition columns with all that is said of them, past a later alias.
        own = shown_schema(physical_schema(metadata.partition_schema, self._mode))
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
        if not chosen.is_true and not self._skips_by_stats():
            chosen, _ = chosen.split(self.snapshot.metadata.partition_columns)
        plan = self._planned(chosen)
        files, partitions = plan.files, plan.partitions
        if not exact.is_true:
            passed = pc.fill_null(evaluate(exact, partitions), False)
            files, partitions = files.filter(passed), partitions.filter(passed)
        self._check_links(files)
        self._note(whole, files.num_rows)
        return self._grouped(files, partitions), left

    def answers(
        self, partition_filters: Sequence[Filter], asked: Sequence[Asked]
    ) -> Answers | None:
        where = self._all_of(map(self._predicate, partition_filters))
        if where.has_unknown:
            return None
        # A table that no scan may read, for paths that lead out of it say, is not counted either.
        self._planned(where)
        if self._mode is not ColumnMappingMode.NONE:
            asked = [self._logical(each) for each in asked]
        found = answers_from_log(self.snapshot, where, asked)
        if found is not None:
            self._note(where, found.num_files)
        return found

    def drops_deleted_rows(self, columns: Set[str]) -> bool:
        return VECTOR in columns

    def _note(self, read: BoundPredicate, num_files: int) -> None:
        self.reads.append(ScanRead(read.predicate, num_files))
        del self.reads[:-_MOST_READS]

    def _logical(self, asked: Asked) -> Asked:
        if asked.column is None:
            return asked
        return replace(asked, column=self._logical_path((asked.column,))[0])

    def _planned(self, predicate: BoundPredicate) -> ScanPlan:
        def planned(allowed: Sequence[LogStore]) -> ScanPlan:
            return plan_scan(
                self.snapshot,
                self.snapshot.metadata.partition_columns or None,
                predicate,
                allowed_roots=allowed,
                time_zone=self._time_zone,
            )

        try:
            return planned(())
        except UnsafePathError:
            # Few tables have files elsewhere: only for them is the session asked.
            allowed = self._allowed()
            if not allowed:
                raise
            return planned(allowed)

    def _check_links(self, files: pa.Table) -> None:
        """Hadoop follows every link, so that what a store would refuse is refused before."""
        allowed = self._allowed() if pc.any(files.column(IS_ABSOLUTE)).as_py() else ()
        locations = Locations(self.snapshot.store, allowed)
        locations.check_links(files, every_file=self.checks_every_link)

    def _predicate(self, one: Filter) -> BoundPredicate:
        predicate = predicate_of(one, time_zone=self._time_zone)
        schema = self.snapshot.metadata.schema
        if self._mode is not ColumnMappingMode.NONE:
            predicate = rename_columns(predicate, self._logical_path)
        # What is no column of the table, `_metadata` say, is Spark's to judge.
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
        """Files by their partition values; what is a file's own makes it a group of its own."""
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
        starts = pa.array([0, *_running(counts)][: len(counts)], pa.int64())
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
        """What is before all names, and the names."""
        names = _one_chunk(files.column("location"))
        if not pc.any(files.column("isAbsolute")).as_py():
            return f"{self._root}/", names
        # A clone: some files are elsewhere, so all are told with their whole location.
        absolute = files.column("isAbsolute").to_pylist()
        whole = [
            hadoop_location(name) if elsewhere else f"{self._root}/{name}"
            for name, elsewhere in zip(names.to_pylist(), absolute, strict=True)
        ]
        return "", pa.array(whole, pa.string())

    def _may_hide_rows(self) -> bool:
        """Whether rows of some file are gone; without the feature that is an error of the scan."""
        if "deletionVectors" not in supported_features(self.snapshot.protocol):
            return False
        vectors = self.snapshot.files_with(["deletionVector"]).column("deletionVector")
        return bool(vectors.null_count < len(vectors))

    def _bits_of_files(self, files: pa.Table) -> list[bytes | None]:
        """The bits of the rows that are gone, for the first file of each group."""
        store = self.snapshot.store
        bits = RowBits(store.root_uri, VectorReader(Locations(store, self._allowed())))
        found = map(descriptor_of, files.column("deletionVector").to_pylist())
        return [None if descriptor is None else bits.of(descriptor) for descriptor in found]

    def _more_values(self, files: pa.Table) -> list[list[Any]]:
        """Values of further columns that a source has, for the first file of each group."""
        return []


def _stored(column: pa.ChunkedArray) -> pa.Array:
    """Partition values as Catalyst keeps them: dates are days, timestamps microseconds."""
    values = _one_chunk(column)
    if pa.types.is_date(values.type):
        return values.cast(pa.int32())
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
    return values


def _group_numbers(columns: Sequence[pa.Array], num_rows: int) -> pa.Array:
    """A number for each row, the same for rows with the same values."""
    numbers = pa.repeat(pa.scalar(0, pa.int64()), num_rows)
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        size = max(len(encoded.dictionary), 1)
        numbers = pc.add(pc.multiply(numbers, size), encoded.indices.cast(pa.int64()))
        # Numbered anew each time, so that they stay small however many columns there are.
        numbers = numbers.dictionary_encode().indices.cast(pa.int64())
    return numbers


def _all_apart(num_rows: int) -> pa.Array:
    return pa.array(range(num_rows), pa.int64())


def _running(counts: Sequence[int]) -> list[int]:
    total, found = 0, []
    for count in counts:
        total += count
        found.append(total)
    return found


def _one_chunk(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)
