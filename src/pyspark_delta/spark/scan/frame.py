"""Files of a table as a DataFrame: read by Spark's own scan, with the table's columns.

Values of a file that are only in the log (partition values, its deletion vector, its row ids) come
as partition columns; a filter in the JVM then drops deleted rows by their position.  Columns have
other names in files where columns are mapped, and void columns are not in files.

DML commands need rows with their position in a file, and positions as bitmaps (`LocatedRows`).
Where rows are tracked these have their id and version too.  Rows can be left out by position, as if
they were in a deletion vector: then the other rows of a file need no join, and no second evaluation
of a condition.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.log.table_files import ChosenFiles, TableFiles
from pyspark_delta.kernel.protocol.actions import AddFile, Metadata
from pyspark_delta.kernel.protocol.column_mapping import (
    PARQUET_FIELD_ID_KEY,
    ColumnMappingMode,
    column_id,
    physical_name,
    physical_schema,
)
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector
from pyspark_delta.kernel.protocol.row_tracking import materialized_columns
from pyspark_delta.kernel.protocol.schema_merge import as_nullable
from pyspark_delta.kernel.protocol.types import (
    LONG,
    VOID,
    DataType,
    StructField,
    StructType,
    map_fields,
    walk_types,
)
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.kernel.sql.quoting import quoted_name
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.kernel.txn.vector_files import vector_of_bitmaps
from pyspark_delta.spark.conf.settings import READ_FIELD_IDS
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans.frames import (
    TableColumn,
    metadata_name,
    plan_frame,
    with_columns,
    with_hidden_struct,
    without_deleted_rows,
)
from pyspark_delta.spark.jvm.scan.file_index import VECTOR, scan_plan
from pyspark_delta.spark.scan.source import (
    BASE_ROW_ID,
    ROW_VERSION,
    ChosenSource,
    ScanSettings,
    SnapshotSource,
    reader_metadata,
    reader_schema,
    row_bits,
)
from pyspark_delta.spark.scan.versions import NewestSource, follow_tables

FILE, ROW = "__delta_file", "__delta_row"
"""The columns with the number of a row's file, and the row's position in it, from 0."""
_NO_ROWS: Mapping[str, DeletionVector] = {}
_BUCKET, _BITS, _NUM_ROWS = "__delta_bucket", "__delta_bits", "__delta_num_rows"
# Spark counts positions from 1; bits after the last set one are not sent.
_POSITION = f"bitmap_bit_position({ROW} + 1)"
_BITMAP = (
    f"substring(bitmap_construct_agg({_POSITION}), 1, cast(max({_POSITION}) div 8 + 1 as int))"
)
_FILE_FIELDS = (
    *("file_path", "file_name", "file_size", "file_block_start", "file_block_length"),
    *("file_modification_time", "row_index"),
)


def read_snapshot(
    spark: SparkSession, snapshot: TableFiles, *, is_time_travel: bool = False
) -> DataFrame:
    """The rows of this version; a query over it chooses files when it is planned.

    `is_time_travel` means that the version was chosen by its number or time.
    """
    settings = ScanSettings.of(spark)
    source = SnapshotSource(snapshot, settings, is_time_travel=is_time_travel)
    return _read_source(JvmSession(spark), source)


def read_newest(spark: SparkSession, log: DeltaLog, snapshot: Snapshot) -> DataFrame:
    """The rows of the version that is the newest at planning, with the columns of `snapshot`."""
    jvm = JvmSession(spark)
    follow_tables(jvm)
    return _read_source(jvm, NewestSource(log, snapshot, ScanSettings.of(spark)))


def chosen_rows(
    jvm: JvmSession,
    txn: OptimisticTransaction,
    files: pa.Table,
    *,
    metadata: Metadata | None = None,
) -> DataFrame:
    """The rows of `files`, a table of add actions, with the columns that the transaction leaves.

    Each row has its file (`_metadata.file_path`) and, where rows are tracked, its id.  Columns may
    be those of other `metadata`.
    """
    metadata = metadata or txn.metadata
    chosen = ChosenFiles(txn.log.store, files, protocol=txn.protocol, metadata=metadata)
    return _read_source(jvm, ChosenSource(chosen, ScanSettings.of(jvm.spark)))


def source_plan(jvm: JvmSession, source: SnapshotSource, *, is_stream: bool = False) -> Any:
    """The logical plan of the rows of a source's files; `is_stream` for a batch of a stream."""
    metadata = source.snapshot.metadata
    plan, hidden = file_scan(jvm, source, reads_ids=source.tracks_rows, is_stream=is_stream)
    if source.tracks_rows:
        row_id, row_version = row_id_expressions(source, hidden, BASE_ROW_ID, ROW_VERSION)
        # Spark's own fields, and those of PROTOCOL.md, "Row Tracking".
        fields = [
            *((name, f"{hidden}.{name}") for name in _FILE_FIELDS),
            ("base_row_id", BASE_ROW_ID),
            ("default_row_commit_version", ROW_VERSION),
            ("row_id", row_id),
            ("row_commit_version", row_version),
        ]
        return with_hidden_struct(jvm, plan, table_columns(metadata), fields)
    is_mapped = mapping_mode(metadata) is not ColumnMappingMode.NONE
    if source.has_vectors or is_mapped or _has_void(metadata.schema):
        return with_columns(jvm, plan, table_columns(metadata))
    return plan


def file_scan(
    jvm: JvmSession,
    source: SnapshotSource,
    *,
    reads_ids: bool,
    more: Sequence[StructField] = (),
    kept_from: str | None = None,
    is_stream: bool = False,
) -> tuple[Any, str]:
    """The plan of a scan of the files without deleted rows, and its name for `_metadata`.

    Its columns are those of the files, with the columns that `more` names; with `reads_ids` the
    materialized columns of row tracking too.
    """
    metadata = source.snapshot.metadata
    mode = mapping_mode(metadata)
    if mode is ColumnMappingMode.ID:
        jvm.spark.conf.set(READ_FIELD_IDS, "true")
    scanned = _files_schema(metadata.schema, mode).add(*more)
    if reads_ids:
        names = materialized_columns(metadata, source.snapshot.store.root_uri)
        scanned = scanned.add(*(StructField(name, LONG) for name in names))
    plan = scan_plan(jvm, source, scanned, is_stream=is_stream)
    hidden = metadata_name(scanned.names)
    if source.has_vectors:
        plan = without_deleted_rows(jvm, plan, VECTOR, hidden, kept_from=kept_from)
    return plan, hidden


def row_id_expressions(
    source: SnapshotSource, hidden: str, base: str, version: str
) -> tuple[str, str]:
    """SQL over a scan for the id and the version of a row: its own, or those of its file.

    `base` and `version` are the columns with the values of the file.
    """
    snapshot = source.snapshot
    own = map(quoted_name, materialized_columns(snapshot.metadata, snapshot.store.root_uri))
    own_id, own_version = own
    return (
        f"coalesce({own_id}, {base} + {hidden}.row_index)",
        f"coalesce({own_version}, {version})",
    )


def table_columns(metadata: Metadata) -> list[TableColumn]:
    """The table's columns as expressions over those of its files."""
    schema, mode = metadata.schema, mapping_mode(metadata)
    columns = []
    for f, read_as in zip(schema, reader_schema(schema), strict=True):
        scanned = quoted_name(physical_name(f, mode))
        cast_to: DataType | None = None
        if _has_void(f.data_type):
            # Rebuilt from its fields, the value is nullable, and its fields are.
            cast_to = as_nullable(StructType((read_as,))).fields[0].data_type
        elif mode is not ColumnMappingMode.NONE and any(
            isinstance(each, StructType) for _, each in walk_types(f.data_type)
        ):
            cast_to = read_as.data_type
        # Other columns keep the metadata of the scan's, which differs only in ids.
        is_other = cast_to is not None or mode is ColumnMappingMode.ID
        columns.append(
            TableColumn(
                name=f.name,
                expression=_value_text(scanned, f.data_type, mode),
                cast_to=cast_to,
                metadata=json.dumps(dict(read_as.metadata)) if is_other else None,
            )
        )
    return columns


def _read_source(jvm: JvmSession, source: SnapshotSource) -> DataFrame:
    return plan_frame(jvm, source_plan(jvm, source))


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedRows:
    """The rows of `files`, a table of add actions; a row's file is a position in that table.

    `frame` has the columns of the table, `FILE` and `ROW`, and where rows are tracked the two
    materialized columns of PROTOCOL.md, "Row Tracking", under their names in files.
    """

    files: pa.Table = field(hash=False)
    frame: DataFrame = field(hash=False)
    source: _LocatedSource = field(hash=False)

    def narrow(self, files: pa.Table) -> None:
        """Let later queries over `frame` read these files only; all numbers stay."""
        old = self.source.snapshot
        self.source.snapshot = ChosenFiles(
            old.store, files, protocol=old.protocol, metadata=old.metadata
        )


def located_rows(
    jvm: JvmSession,
    txn: OptimisticTransaction,
    files: pa.Table,
    *,
    without: Mapping[str, DeletionVector] = _NO_ROWS,
    metadata: Metadata | None = None,
) -> LocatedRows:
    """The live rows of `files`, except those in `without`, which has vectors by a file's path.

    The vectors of `without` hold all unwanted rows of their file, rows that are deleted already
    included.  The columns are those of `metadata`, by default the table's before the transaction.
    """
    snapshot = txn.snapshot
    assert snapshot is not None
    metadata = metadata or snapshot.metadata
    chosen = ChosenFiles(snapshot.store, files, protocol=snapshot.protocol, metadata=metadata)
    source = _LocatedSource(chosen, ScanSettings.of(jvm.spark), files.column("path"), without)
    plan, hidden = file_scan(jvm, source, reads_ids=source.tracks_rows)
    columns = [
        *table_columns(metadata),
        TableColumn(name=FILE, expression=FILE),
        TableColumn(name=ROW, expression=f"{hidden}.row_index"),
    ]
    if source.tracks_rows:
        names = materialized_columns(metadata, snapshot.store.root_uri)
        values = row_id_expressions(source, hidden, BASE_ROW_ID, ROW_VERSION)
        columns += [
            TableColumn(name=name, expression=value)
            for name, value in zip(names, values, strict=True)
        ]
    frame = plan_frame(jvm, with_columns(jvm, plan, columns))
    return LocatedRows(files=files, frame=frame, source=source)


@dataclass(frozen=True, slots=True, kw_only=True)
class TouchedFile:
    """A file and its touched rows; `num_met` counts a row as often as it was touched.

    `counts` are the numbers of rows for each counted condition, by name.
    """

    file: AddFile
    rows: DeletionVector = field(hash=False)
    num_met: int
    counts: Mapping[str, int] = field(hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TouchedRows:
    """The files with touched rows; `elsewhere` counts rows that are in no file yet."""

    files: tuple[TouchedFile, ...]
    elsewhere: Mapping[str, int] = field(hash=False)

    def total(self, name: str) -> int:
        """How many rows meet the condition of that name, in files and elsewhere."""
        return self.elsewhere.get(name, 0) + sum(file.counts[name] for file in self.files)


def touched_rows(
    rows: DataFrame, files: pa.Table, counted: Mapping[str, str] | None = None
) -> TouchedRows:
    """The touched rows of each file, by one job that returns bitmaps and no rows.

    `rows` have the columns `FILE` and `ROW` of `files`.  The job groups them by file and by ranges
    of positions, and makes a bitmap of each range in the JVM: a few kilobytes for 32,768 rows.  As
    a bitmap holds a row once, more rows than bits mean that some row was touched twice.

    `counted` are SQL conditions by name, whose rows are counted for each file.  Rows with a null
    `FILE` are in no file, and counted as elsewhere.
    """
    conditions = dict(counted or {})
    listed = [f"count_if({condition})" for condition in conditions.values()]
    grouped = rows.groupBy(F.col(FILE), F.expr(f"bitmap_bucket_number({ROW} + 1)").alias(_BUCKET))
    made = grouped.agg(
        F.expr(_BITMAP).alias(_BITS),
        F.expr("count(1)").alias(_NUM_ROWS),
        *[F.expr(each).alias(f"__delta_count_{i}") for i, each in enumerate(listed)],
    ).collect()
    by_file: dict[int | None, list[Row]] = defaultdict(list)
    for row in made:
        by_file[row[0]].append(row)
    elsewhere = _summed_counts(by_file.pop(None, []), conditions)
    numbers = sorted(number for number in by_file if number is not None)
    actions = add_files(files.take(pa.array(numbers, pa.int64())))
    found = (
        TouchedFile(
            file=file,
            rows=vector_of_bitmaps((row[1], bytes(row[2])) for row in by_file[number]),
            num_met=sum(row[3] for row in by_file[number]),
            counts=_summed_counts(by_file[number], conditions),
        )
        for number, file in zip(numbers, actions, strict=True)
    )
    return TouchedRows(files=tuple(found), elsewhere=elsewhere)


def counted_rows(rows: DataFrame, files: pa.Table) -> list[tuple[AddFile, int]]:
    """How many of `rows`, which have the column `FILE` of `files`, are in each file.

    Cheaper than `touched_rows`, for a command that needs no positions: it rewrites whole files, and
    can find the same rows again by its condition.
    """
    counted = sorted((row[0], row[1]) for row in rows.groupBy(FILE).count().collect())
    found = add_files(files.take(pa.array([number for number, _ in counted], pa.int64())))
    return list(zip(found, (count for _, count in counted), strict=True))


class _LocatedSource(ChosenSource):
    """Files with a number each, and perhaps with more deleted rows than in the log."""

    keeps_files_apart = True

    def __init__(
        self,
        files: ChosenFiles,
        settings: ScanSettings,
        paths: pa.ChunkedArray,
        without: Mapping[str, DeletionVector],
    ) -> None:
        self._without = without
        self._paths = paths.combine_chunks()
        self.snapshot = files
        super().__init__(files, settings)
        self._partition_schema = self._partition_schema.add(StructField(FILE, LONG))

    def _may_hide_rows(self) -> bool:
        return bool(self._without) or super()._may_hide_rows()

    def _bits_of_files(self, files: pa.Table) -> list[bytes | None]:
        found = super()._bits_of_files(files)
        given = map(self._without.get, files.column("path").to_pylist())
        return [
            own if vector is None else row_bits(vector)
            for own, vector in zip(found, given, strict=True)
        ]

    def _more_values(self, files: pa.Table) -> list[list[Any]]:
        numbers = pc.index_in(files.column("path"), value_set=self._paths)
        return [numbers.to_pylist()]


def _summed_counts(rows: list[Row], names: Mapping[str, str]) -> dict[str, int]:
    return {name: sum(row[4 + i] for row in rows) for i, name in enumerate(names)}


def _files_schema(schema: StructType, mode: ColumnMappingMode) -> StructType:
    """The columns as in files: by physical name, or by id where ids are used, without void ones."""
    physical = physical_schema(_stored_fields(schema), mode)
    if mode is not ColumnMappingMode.ID:
        return reader_schema(physical)
    return map_fields(
        physical,
        lambda f: StructField(
            f.name,
            f.data_type,
            f.nullable,
            {**reader_metadata(f), PARQUET_FIELD_ID_KEY: column_id(f)},
        ),
    )


def _value_text(scanned: str, data_type: DataType, mode: ColumnMappingMode) -> str:
    """SQL for a value of the type, with its void fields."""
    if not _has_void(data_type):
        return scanned
    if not isinstance(data_type, StructType) or not _stored_fields(data_type).fields:
        return "NULL"
    fields = ", ".join(
        f"{_value_text(f'{scanned}.{quoted_name(physical_name(f, mode))}', f.data_type, mode)}"
        f" AS {quoted_name(f.name)}"
        for f in data_type
    )
    return f"IF({scanned} IS NULL, NULL, struct({fields}))"


def _stored_fields(schema: StructType) -> StructType:
    """The fields in files; a struct with only void fields is in none of them."""
    return StructType(tuple(kept for f in schema if (kept := _stored_field(f)) is not None))


def _stored_field(f: StructField) -> StructField | None:
    if f.data_type == VOID:
        return None
    if not isinstance(f.data_type, StructType) or not f.data_type.fields:
        return f
    stored = _stored_fields(f.data_type)
    return f.with_type(stored) if stored.fields else None


def _has_void(data_type: DataType) -> bool:
    """Whether it is void or has void fields, except in arrays and maps, where files have them."""
    if isinstance(data_type, StructType):
        return any(_has_void(f.data_type) for f in data_type)
    return data_type == VOID
