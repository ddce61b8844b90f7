"""A version of a table as a DataFrame: the files that the log names, read by Spark's own scan.

What the log knows of a file and the file does not (partition values, its deletion vector) comes
with it as partition columns; a filter in the JVM then drops deleted rows by their position.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession, functions

from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.column_mapping import (
    ColumnMappingMode,
    logical_path,
    physical_name,
    physical_schema,
)
from pyspark_delta.kernel.protocol.types import BINARY, StructField, StructType
from pyspark_delta.kernel.scan.evaluation import evaluate
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.scan.plan import ScanPlan, mapping_mode, plan_scan
from pyspark_delta.kernel.scan.predicates import (
    TRUE,
    Predicate,
    conjunction,
    has_unknown,
    rename_columns,
)
from pyspark_delta.kernel.scan.vectors import VectorReader, descriptor_of
from pyspark_delta.spark.deleted_rows import without_deleted_rows
from pyspark_delta.spark.expressions import predicate_of
from pyspark_delta.spark.jvm.file_index import FileGroup, ScanSource, scan
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.types import to_spark

_VECTOR = "__delta_deletion_vector"


def read_snapshot(spark: SparkSession, snapshot: Snapshot) -> DataFrame:
    """The rows of a version; the files to open are chosen when a query over it is planned."""
    metadata = snapshot.metadata
    mode = mapping_mode(metadata)
    source = SnapshotSource(snapshot, spark.conf.get("spark.sql.session.timeZone") or "UTC")
    jvm = JvmSession(spark)
    frame = scan(jvm, source, physical_schema(metadata.data_schema, mode), {})
    if source.has_vectors:
        frame = without_deleted_rows(frame, _VECTOR)
    return frame.select(_columns(frame, metadata.schema, mode))


class SnapshotSource(ScanSource):
    """The files of one version."""

    def __init__(self, snapshot: Snapshot, time_zone: str) -> None:
        self._snapshot = snapshot
        self._mode = mapping_mode(snapshot.metadata)
        self._in_utc = time_zone in ("UTC", "Etc/UTC", "Z", "GMT")
        self._time_zone = time_zone if self._in_utc else "UTC"
        vectors = snapshot.files_with(["deletionVector"]).column("deletionVector")
        self.has_vectors = vectors.null_count < len(vectors)
        self._reader = VectorReader(Locations(snapshot.store))

    @property
    def root(self) -> str:
        return _decoded(self._snapshot.store.root_uri)

    @property
    def partition_schema(self) -> StructType:
        own = physical_schema(self._snapshot.metadata.partition_schema, self._mode)
        return own.add(StructField(_VECTOR, BINARY)) if self.has_vectors else own

    @property
    def size_in_bytes(self) -> int:
        return self._snapshot.size_in_bytes

    @property
    def identity(self) -> tuple[str, ...]:
        snapshot = self._snapshot
        return (snapshot.store.root_uri, snapshot.metadata.id, f"version {snapshot.version}")

    def groups(
        self, partition_filters: Sequence[str], data_filters: Sequence[str]
    ) -> tuple[list[FileGroup], list[int]]:
        partition_parts = [self._predicate(text) for text in partition_filters]
        left = [i for i, predicate in enumerate(partition_parts) if has_unknown(predicate)]
        exact = conjunction(p for p in partition_parts if not has_unknown(p))
        everything = [*partition_parts, *(self._predicate(text) for text in data_filters)]
        plan = plan_scan(self._snapshot, filter=conjunction(everything), time_zone=self._time_zone)
        files = plan.files
        if exact != TRUE:
            files = files.filter(_is_true(exact, plan))
        return self._grouped(files), left

    def _predicate(self, text: str) -> Predicate:
        predicate = predicate_of(text, in_utc=self._in_utc)
        schema = self._snapshot.metadata.schema
        if self._mode is ColumnMappingMode.NONE:
            return predicate
        return rename_columns(predicate, lambda path: logical_path(schema, path, self._mode))

    def _grouped(self, files: pa.Table) -> list[FileGroup]:
        """Files by their partition values; one with a vector is a group of its own."""
        names = [physical_name(f, self._mode) for f in self._snapshot.metadata.partition_schema]
        root = self._snapshot.store.root_uri
        found: dict[tuple[object, ...], list[tuple[str, int, int]]] = {}
        columns = ("location", "isAbsolute", "size", "modificationTime")
        rows = zip(
            *(files.column(name).to_pylist() for name in columns),
            _lookups(files, names),
            files.column("deletionVector").to_pylist(),
            strict=True,
        )
        for location, is_absolute, size, modified, values, vector in rows:
            key: tuple[object, ...] = values
            if self.has_vectors:
                key = (*values, self._bits(vector))
            uri = location if is_absolute else f"{root}/{location}"
            shown = _decoded(uri) if is_absolute else f"{_decoded(root)}/{location}"
            found.setdefault(key, []).append((shown, size, modified))
        return [FileGroup(key, tuple(group)) for key, group in found.items()]  # type: ignore[arg-type]

    def _bits(self, vector: dict[str, object] | None) -> bytes | None:
        """A vector as one bit per row, the first row in the lowest bit of the first byte."""
        descriptor = descriptor_of(vector)
        if descriptor is None:
            return None
        deleted = self._reader.read(descriptor)
        last = deleted.max_row
        bits = bytearray(0 if last is None else last // 8 + 1)
        for row in deleted.rows_between(0, len(bits) * 8):
            bits[row >> 3] |= 1 << (row & 7)
        return bytes(bits)


def _is_true(predicate: Predicate, plan: ScanPlan) -> pa.Array:
    partitions = plan.partitions
    passed = evaluate(predicate, partitions, plan.metadata.schema, time_zone=plan.time_zone)
    return pc.fill_null(passed, False)


def _lookups(files: pa.Table, names: Sequence[str]) -> list[tuple[str | None, ...]]:
    """The partition values of each file, in the order of `names`; an empty text is a null."""
    maps = files.column("partitionValues").to_pylist()
    return [tuple(dict(values).get(name) or None for name in names) for values in maps]


def _columns(frame: DataFrame, schema: StructType, mode: ColumnMappingMode) -> list[Column]:
    """The table's columns in their order and under their names, nested ones too."""
    columns: list[Column] = []
    for f, spark_field in zip(schema, to_spark(schema), strict=True):
        column = functions.col(f"`{physical_name(f, mode).replace('`', '``')}`")
        if mode is not ColumnMappingMode.NONE:
            column = column.cast(spark_field.dataType)
        columns.append(column.alias(f.name))
    return columns


def _decoded(uri: str) -> str:
    """A URI as Hadoop's Path takes it: not escaped."""
    return unquote(uri).replace("file:///", "file:/", 1)
