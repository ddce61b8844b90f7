"""`ScanPlan`: the files that a read of a table needs, their columns, and the filter to apply.

Files are pruned by partition values and skipped by statistics; the plan has every other file with
its deletion vector and location.  Nothing but the log is read.
PROTOCOL.md, "Reader Version Requirements", "Per-file Statistics".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors import CorruptLogError, DeletionVectorError, SchemaError
from pyspark_delta.kernel.log.frames.file_actions import ADD_SCHEMA
from pyspark_delta.kernel.log.replay import FileState
from pyspark_delta.kernel.log.table_files import TableFiles
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.column_mapping import MODE_KEY, ColumnMappingMode, physical_name
from pyspark_delta.kernel.protocol.features import supported_features
from pyspark_delta.kernel.protocol.type_widening import check_type_changes
from pyspark_delta.kernel.protocol.types import StructField, StructType
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.scan.predicates.binding import BoundPredicate, bind
from pyspark_delta.kernel.scan.predicates.literals import zone_named
from pyspark_delta.kernel.scan.predicates.sql import parse_predicate
from pyspark_delta.kernel.scan.predicates.tree import TRUE, Predicate, columns_of
from pyspark_delta.kernel.scan.skipping.files import (
    partition_columns_table,
    skipping_mask,
    typed_partitions,
)
from pyspark_delta.kernel.scan.skipping.stats_table import parsed_stats, stats_leaves
from pyspark_delta.kernel.storage.base import LogStore

PLANNED_COLUMNS = (
    "path",
    "partitionValues",
    "size",
    "modificationTime",
    "deletionVector",
    "baseRowId",
    "defaultRowCommitVersion",
)
"""A plan's columns of a file from the log; `location` and `isAbsolute` follow them."""

T = TypeVar("T")
_TYPE_WIDENING = frozenset({"typeWidening", "typeWidening-preview"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlan:
    """The plan of one read of one version.

    `files` has `PLANNED_COLUMNS`, `location` (a decoded path below the table's root, or a URI) and
    `isAbsolute` (which of the two).  `filter` is the whole condition, bound to the table's types;
    `partition_filter` holds for every row of `files`, `data_filter` has to be applied.
    """

    version: int
    metadata: Metadata
    schema: StructType
    """The requested columns, in their order, under logical names."""
    data_schema: StructType
    """The columns to read from the files: the requested ones and those of `data_filter`."""
    partition_schema: StructType
    """The partition columns among them; their values come from the log, never from a file."""
    filter: BoundPredicate
    partition_filter: BoundPredicate
    data_filter: BoundPredicate
    files: pa.Table
    num_files: int
    """The number of files of the version; `files` are those to read."""
    time_zone: str
    """The zone of days in the filter, and of partition values without a zone."""

    @property
    def partitions(self) -> pa.Table:
        """The values of `partition_schema` for each of `files`, typed, under logical names."""
        keys = {f.name: physical_name(f, self.mode) for f in self.partition_schema}
        zone = zone_named(self.time_zone)
        return typed_partitions(self.files, self.partition_schema, keys, zone=zone)

    @property
    def mode(self) -> ColumnMappingMode:
        """The column mapping mode, by which columns are found in the files."""
        return mapping_mode(self.metadata)


def plan_scan(
    snapshot: TableFiles,
    columns: Iterable[str] | None = None,
    filter: str | Predicate | BoundPredicate | None = None,
    *,
    allowed_roots: Sequence[LogStore] = (),
    time_zone: str = "UTC",
    by_stats: bool = True,
) -> ScanPlan:
    """Plan a read of `columns` (by default all) of the rows for which `filter` is true.

    A filter in text is SQL and must parse; in a tree `Unknown` parts exclude no file, and are left
    in `data_filter`.  Files outside of the table raise unless they are below one of
    `allowed_roots`.  `time_zone` is the zone of days in the filter, and of timestamps without a
    zone among partition values.  Without `by_stats` only partition values exclude files.
    """
    metadata = snapshot.metadata
    _check_schema(snapshot)
    schema = _requested_columns(metadata.schema, columns)
    predicate = bound_filter(filter, metadata.schema, time_zone=time_zone)
    partition_filter, data_filter = predicate.split(metadata.partition_columns)
    wanted = {f.name for f in schema} | {path[0] for path in columns_of(data_filter.predicate)}
    files = select_files(snapshot, predicate, PLANNED_COLUMNS, by_stats=by_stats)
    _check_vectors(snapshot, files)
    located = Locations(snapshot.store, allowed_roots).resolve(files.column("path"))
    for name in located.schema.names:
        files = files.append_column(name, located.column(name))
    return ScanPlan(
        version=snapshot.version,
        metadata=metadata,
        schema=schema,
        data_schema=_among(metadata.data_schema, wanted),
        partition_schema=_among(metadata.partition_schema, wanted),
        filter=predicate,
        partition_filter=partition_filter,
        data_filter=data_filter,
        files=files,
        num_files=snapshot.num_files,
        time_zone=time_zone,
    )


def select_files(
    snapshot: TableFiles,
    predicate: Predicate | BoundPredicate,
    columns: Sequence[str] = tuple(ADD_SCHEMA.names),
    *,
    time_zone: str = "UTC",
    by_stats: bool = True,
) -> pa.Table:
    """The live files that may hold a row for which `predicate` is true, with the given add columns.

    Parts with unknown names or incompatible types, and `Unknown` parts, exclude no file; without
    `by_stats` only partition values do.
    """
    metadata = snapshot.metadata
    if isinstance(predicate, Predicate):
        predicate = bind(predicate, metadata.schema, time_zone=time_zone, lenient=True)
    bound = predicate if by_stats else predicate.split(metadata.partition_columns)[0]
    if bound.is_true:
        return snapshot.files_with(columns)
    return of_files(
        snapshot,
        ["path", "partitionValues"],
        lambda files, state: state.complete(columns, _mask(files, state, metadata, bound)),
    )


def chosen_adds(
    snapshot: TableFiles, columns: Sequence[str], choose: Callable[[pa.Table], pa.BooleanArray]
) -> pa.Table:
    """The live files for which `choose` is true of these columns, as complete add actions."""
    names = ADD_SCHEMA.names
    return of_files(snapshot, columns, lambda files, state: state.complete(names, choose(files)))


def of_files(
    snapshot: TableFiles, columns: Sequence[str], make: Callable[[pa.Table, FileState], T]
) -> T:
    """The result of `make` for all live files and their state, with a value for each row.

    `make` is called again after a broken checkpoint that an older one can replace.
    """
    while True:
        state = snapshot.file_state
        files = snapshot.files_with(columns)
        if snapshot.file_state is not state:
            continue  # a broken checkpoint was replaced, and with it the order of the files
        try:
            return make(files, state)
        except CorruptLogError as error:
            if error.condition != "DELTA_MALFORMED_CHECKPOINT":
                raise
            snapshot.files_with(["stats"])  # skips the checkpoint, if it can
            if snapshot.file_state is state:
                raise


def _mask(
    files: pa.Table, state: FileState, metadata: Metadata, predicate: BoundPredicate
) -> pa.BooleanArray:
    """Whether `predicate` may select rows of each of `files`, which are all files of `state`."""
    partition_part, data_part = predicate.split(metadata.partition_columns)
    partitions = None
    if metadata.partition_columns:
        partitions = partition_columns_table(files, metadata, zone=zone_named(predicate.time_zone))
    mask = skipping_mask(partition_part, files.select(["path"]), partitions=partitions)
    if data_part.is_true:
        return mask
    leaves = stats_leaves(data_part, metadata)
    left = skipping_mask(
        data_part,
        parsed_stats(state, mask, leaves) if leaves else files.select(["path"]).filter(mask),
        partitions=None if partitions is None else partitions.filter(mask),
    )
    return pc.replace_with_mask(mask, mask, left)


def bound_filter(
    filter: str | Predicate | BoundPredicate | None, schema: StructType, *, time_zone: str = "UTC"
) -> BoundPredicate:
    """A filter bound to `schema`; TRUE for none; a bound one is returned unchanged.

    InvalidPredicateError when it cannot be parsed, or names an unknown column.
    """
    if isinstance(filter, BoundPredicate):
        return filter
    if isinstance(filter, str):
        filter = parse_predicate(filter, time_zone=time_zone)
    return bind(filter or TRUE, schema, time_zone=time_zone)


def mapping_mode(metadata: Metadata) -> ColumnMappingMode:
    """The column mapping mode in a table's properties."""
    return ColumnMappingMode.parse(metadata.configuration.get(MODE_KEY))


def _check_schema(snapshot: TableFiles) -> None:
    schema = snapshot.metadata.schema
    if not len(schema):
        raise SchemaError("DELTA_READ_TABLE_WITHOUT_COLUMNS", tableName=snapshot.store.root_uri)
    seen: set[str] = set()
    for name in snapshot.metadata.partition_columns:
        if name not in schema:
            raise SchemaError(
                "DELTA_PARTITION_COLUMN_NOT_FOUND",
                columnName=name,
                schemaMap=", ".join(schema.names),
            )
        if name.lower() in seen:
            raise SchemaError("DELTA_DUPLICATE_COLUMNS_FOUND.PARTITION_COLUMNS", duplicateCols=name)
        seen.add(name.lower())
    if _TYPE_WIDENING & supported_features(snapshot.protocol):
        check_type_changes(schema)


def _requested_columns(schema: StructType, columns: Iterable[str] | None) -> StructType:
    if columns is None:
        return schema
    if isinstance(columns, str):
        raise TypeError("columns are given as several names, not as one text")
    found: dict[str, StructField] = {}
    for name in columns:
        f = schema.get(name)
        if f is None:
            raise SchemaError(
                "DELTA_COLUMN_NOT_FOUND", columnName=name, columnList=", ".join(schema.names)
            )
        if f.name in found:
            raise SchemaError("DELTA_DUPLICATE_COLUMNS_FOUND.READ_SCHEMA", duplicateCols=f.name)
        found[f.name] = f
    return StructType(tuple(found.values()))


def _among(schema: StructType, names: set[str]) -> StructType:
    return StructType(tuple(f for f in schema if f.name in names))


def _check_vectors(snapshot: TableFiles, files: pa.Table) -> None:
    vectors = files.column("deletionVector")
    if vectors.null_count == len(vectors):
        return
    if "deletionVectors" not in supported_features(snapshot.protocol):
        first = pc.index(pc.is_valid(vectors), True).as_py()
        raise DeletionVectorError(
            "DELTA_DELETION_VECTOR_FEATURE_NOT_SUPPORTED", path=files.column("path")[first].as_py()
        )
