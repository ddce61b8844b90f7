"""Write a DataFrame into new files of a table, and make the actions for their commit.

The data must have the table's columns already, in the table's order, and rows that the table's
rules allow.  Files that no commit names stay invisible.  `StagedFiles` deletes them, but only when
that is certain: after a commit is offered, they are deleted if it was refused or lost a race, and
kept if its outcome is unknown.

A hook runs after a commit of rows, in the session that committed.  Every command that writes rows
runs the hooks, and knows none by name: rooms above register them.  Hooks that need no Spark are
the kernel's (`kernel.txn.hooks`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from types import TracebackType
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_delta.errors import PartitionValueError, StorageError
from pyspark_delta.kernel.log.table_log import TableLog
from pyspark_delta.kernel.ops.vacuum.candidates import CHANGE_DIRECTORY
from pyspark_delta.kernel.protocol.actions import AddCDCFile, AddFile, Metadata, Protocol
from pyspark_delta.kernel.protocol.column_mapping import (
    ColumnMappingMode,
    column_id,
    physical_name,
    physical_schema,
)
from pyspark_delta.kernel.protocol.features import supported_features
from pyspark_delta.kernel.protocol.iceberg_compat import enabled_version, keeps_partition_columns
from pyspark_delta.kernel.protocol.identity_columns import identity_columns
from pyspark_delta.kernel.protocol.partition_values import (
    HIVE_DEFAULT_PARTITION,
    format_partition_value,
    parse_partition_value,
)
from pyspark_delta.kernel.protocol.properties import (
    STRING_PREFIX_LENGTH,
    TARGET_FILE_SIZE,
    check_universal_formats,
    property_value,
)
from pyspark_delta.kernel.protocol.row_tracking import is_row_tracking_enabled, materialized_columns
from pyspark_delta.kernel.protocol.schema_checks import check_writable_schema, without_void
from pyspark_delta.kernel.protocol.stats import (
    format_stats,
    table_stats_columns,
)
from pyspark_delta.kernel.protocol.stats_columns import StatsColumn, stats_columns
from pyspark_delta.kernel.protocol.types import (
    BINARY,
    LONG,
    STRING,
    ArrayType,
    MapType,
    StructField,
    StructType,
    map_fields,
    walk_fields,
)
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.kernel.sql.quoting import quoted_name
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.storage.uris import decode_path, encode_path
from pyspark_delta.kernel.txn.commit import is_certain_refusal
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.conf.setting_table import OPTIMIZE_WRITE_BIN_SIZE, STRING_PREFIX
from pyspark_delta.spark.conf.settings import Conf
from pyspark_delta.spark.files.nested_field_ids import with_nested_ids
from pyspark_delta.spark.files.stats import FooterStats, footer_stats
from pyspark_delta.spark.files.write_options import (
    FileOptions,
    WriteOptions,
    file_tags,
    random_prefix,
)
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.write.file_writer import (
    OUTPUT_TIMESTAMP_TYPE,
    Projected,
    WrittenFile,
    project,
    rebalance_settings,
    rebalanced,
    write_files,
)
from pyspark_delta.spark.rules.alignment import aligned
from pyspark_delta.spark.tables.locations import hadoop_location

logger = logging.getLogger(__name__)
_HOOKS: dict[str, WriteHook] = {}
_LOCK = Lock()
_MadeAction = TypeVar("_MadeAction")
_Values = dict[str, str | None]
_BIN_SIZE = 512 << 20
_PARQUET_ID = "parquet.field.id"
_NO_COLUMNS = StructType()
_DEFAULT_OPTIONS = FileOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteHook:
    """A hook, with two promises.

    1. `is_due` decides by the table and the settings alone, before any job: an invalid setting
      raises while nothing is written.
    2. `run` gets the files that the commit added, at least one, and raises nothing, because the
      commit is done.
    """

    name: str
    is_due: Callable[[Metadata, Conf], bool]
    run: Callable[[SparkSession, DeltaLog, Sequence[AddFile], Conf], object]


class StagedFiles:
    """The files of one transaction, written and committed inside the `with` block.

    If the block fails, the files are deleted, except those that a commit may refer to.
    """

    def __init__(self, txn: OptimisticTransaction) -> None:
        self._txn = txn
        self._paths: list[str] = []
        self._is_offered = False

    def add(self, files: Iterable[AddFile | AddCDCFile]) -> None:
        self._paths += [decode_path(file.path) for file in files]

    def add_paths(self, paths: Iterable[str]) -> None:
        """Track other files, by their decoded paths."""
        self._paths += paths

    def move(self, txn: OptimisticTransaction) -> None:
        """Let another transaction commit the files, after the first one was refused for certain."""
        self._txn = txn

    def offer(self) -> None:
        """Mark that a commit with these files begins."""
        self._is_offered = True

    def __enter__(self) -> StagedFiles:
        # The commit would raise for it, but only after the job.
        check_universal_formats(self._txn.metadata.configuration)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None or self._txn.committed_version is not None:
            return
        # After a store failure that is no refusal, or an interrupt, an offered commit may exist.
        if not self._is_offered or is_certain_refusal(error):
            discard(self._txn.log.store, self._paths)


def discard(store: LogStore, paths: Sequence[str]) -> None:
    """Delete files that nothing refers to; VACUUM deletes those for which this fails."""
    if not paths:
        return
    try:
        store.delete_many(paths)
    except StorageError as error:
        logger.warning("%d files of a write that failed are left behind: %s", len(paths), error)


def add_write_hook(hook: WriteHook) -> None:
    """Register a hook for the writes of this process; it replaces one of the same name."""
    with _LOCK:
        _HOOKS[hook.name] = hook


def due_hooks(metadata: Metadata, conf: Conf) -> tuple[WriteHook, ...]:
    """The hooks for a table, in the order of registration."""
    return tuple(hook for hook in list(_HOOKS.values()) if hook.is_due(metadata, conf))


def run_hooks(
    hooks: Sequence[WriteHook],
    spark: SparkSession,
    log: DeltaLog,
    added: Sequence[AddFile],
    conf: Conf,
) -> None:
    """Run due hooks, if the commit added files."""
    if added:
        for hook in hooks:
            hook.run(spark, log, added, conf)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRequest:
    """Rows to write into files of the table in `log`, which `metadata` and `protocol` define.

    `data` has the columns of `metadata.schema`, by name, and those of `extra`, which go into the
    files as they are.  `planning` are settings with which the data is planned.  With `in_query` a
    query runs already, and with `one_partition_each` no task has rows of two partitions, see
    `write_files`.
    """

    log: TableLog
    data: DataFrame = field(hash=False)
    metadata: Metadata
    protocol: Protocol
    extra: StructType = _NO_COLUMNS
    options: FileOptions = _DEFAULT_OPTIONS
    planning: Mapping[str, str] | None = field(default=None, hash=False)
    data_change: bool = True
    in_query: bool = False
    one_partition_each: bool = False


def stage(jvm: JvmSession, request: StageRequest) -> list[AddFile]:
    """Write the rows and give the actions that would add their files; files without a row go."""
    metadata = request.metadata
    has_vectors = "deletionVectors" in supported_features(request.protocol)
    prefix = property_value(metadata.configuration, STRING_PREFIX_LENGTH)
    if prefix is None:
        prefix = STRING_PREFIX.of(jvm.spark)
    tags = file_tags(metadata)

    def add(file: WrittenFile, values: _Values, footer: FooterStats) -> AddFile:
        return AddFile(
            path=encode_path(file.path),
            partition_values=values,
            size=file.size,
            modification_time=file.modified_ms,
            data_change=request.data_change,
            stats=format_stats(
                footer.num_records,
                footer.columns,
                tight_bounds=True if has_vectors else None,
                prefix_length=prefix,
            ),
            tags=tags,
        )

    return _written(jvm, request, random_prefix(metadata), add)


def stage_changes(jvm: JvmSession, request: StageRequest) -> list[AddCDCFile]:
    """Write changed rows for the change data feed; `extra` has the kind of change."""

    def change(file: WrittenFile, values: _Values, footer: FooterStats) -> AddCDCFile:
        return AddCDCFile(path=encode_path(file.path), partition_values=values, size=file.size)

    return _written(jvm, request, f"{CHANGE_DIRECTORY}/{random_prefix(request.metadata)}", change)


def optimized_rows(
    jvm: JvmSession, rows: DataFrame, metadata: Metadata, options: WriteOptions
) -> tuple[DataFrame, Mapping[str, str] | None]:
    """`rows` for the writer, and the settings to plan them with, if any.

    Where options, session or table turn optimized writes on, rows are shuffled into large parts.
    """
    configuration = metadata.configuration
    if not options.optimizes_files(configuration):
        return rows, None
    size = OPTIMIZE_WRITE_BIN_SIZE.by(options.conf)
    size = size or property_value(configuration, TARGET_FILE_SIZE) or _BIN_SIZE
    moved = rebalanced(jvm, rows, metadata.partition_columns, size)
    return moved, rebalance_settings(size)


def hidden_columns(txn: OptimisticTransaction) -> StructType:
    """The columns that keep the ids of rows which are rewritten, where the table tracks rows.

    Files hold them besides the table's columns.  PROTOCOL.md, "Row Tracking".
    """
    if not is_row_tracking_enabled(txn.protocol, txn.metadata):
        return StructType()
    names = materialized_columns(txn.metadata, txn.log.store.root_uri)
    return StructType(tuple(StructField(name, LONG) for name in names))


def with_row_ids(txn: OptimisticTransaction, rows: DataFrame) -> DataFrame:
    """`rows` of the table with the hidden columns that keep their ids."""
    hidden = hidden_columns(txn)
    if not hidden.fields:
        return rows
    row_id, version = hidden.names
    return rows.withColumns(
        {row_id: F.col("_metadata.row_id"), version: F.col("_metadata.row_commit_version")}
    )


def _written(
    jvm: JvmSession,
    request: StageRequest,
    place: str,
    make: Callable[[WrittenFile, _Values, FooterStats], _MadeAction],
) -> list[_MadeAction]:
    """Run the job, and make something of each file that has rows; the others are deleted."""
    metadata, store = request.metadata, request.log.store
    check_writable_schema(metadata.schema)
    mode = mapping_mode(metadata)
    stored = without_void(metadata.schema)
    partitions = [physical_name(f, mode) for f in metadata.partition_schema]
    keeps = keeps_partition_columns(request.protocol, metadata)
    written = physical_schema(stored, mode)
    if not keeps:
        written = StructType(tuple(f for f in written if f.name not in partitions))
    data = _as_in_files(jvm, request, stored, keeps=keeps)
    own = request.options.of_table(metadata)
    files = write_files(
        jvm,
        data,
        f"{hadoop_location(store.root_uri)}/{place}".rstrip("/"),
        partitions,
        {**own.parquet, **own.spark},
        hadoop=own.hadoop,
        settings={} if own.timestamps is None else {OUTPUT_TIMESTAMP_TYPE: own.timestamps},
        planning=request.planning,
        in_query=request.in_query,
        one_partition_each=request.one_partition_each,
    )
    files = [file.below(place) for file in files]
    in_files = StructType((*written, *request.extra))
    try:
        nests = any(isinstance(f.data_type, ArrayType | MapType) for _, f in walk_fields(written))
        if nests and (enabled_version(metadata) or 0) >= 2:
            files = with_nested_ids(store, files, metadata.schema, in_files)
        paths = [file.path for file in files]
        columns = _stats_columns(metadata, mode)
        footers = footer_stats(store, paths, columns, in_files)
        found = list(zip(files, footers, strict=True))
        made = [
            make(file, _partition_values(file, metadata), footer)
            for file, footer in found
            if footer.num_records
        ]
    except BaseException:
        discard(store, [file.path for file in files])
        raise
    discard(store, [file.path for file, footer in found if not footer.num_records])
    return made


def _as_in_files(
    jvm: JvmSession, request: StageRequest, stored: StructType, *, keeps: bool
) -> DataFrame:
    """The rows with the columns of files, and behind them those for directories.

    `keeps` means that files have the partition columns too.
    """
    data, metadata, extra = request.data, request.metadata, request.extra
    mode = mapping_mode(metadata)
    if stored != metadata.schema:
        data = aligned(data, StructType((*stored, *extra)))
    # A projection that changes nothing still costs an analysis, which slows small appends down.
    if mode is ColumnMappingMode.NONE and not metadata.partition_columns:
        return data
    kept = stored if keeps else metadata.data_schema
    columns = [
        *(_file_column(f, mode) for f in kept if f.name in stored),
        *(Projected(expression=quoted_name(f.name), name=f.name) for f in extra),
        *(_directory_column(f, mode) for f in metadata.partition_schema),
    ]
    return project(jvm, data, columns)


def _stats_columns(metadata: Metadata, mode: ColumnMappingMode) -> tuple[StatsColumn, ...]:
    chosen = table_stats_columns(metadata, mode)
    # The high-water mark of an identity column is read from the statistics of its files.
    numbered = {(f.name,) for f in identity_columns(metadata.schema)} - {
        found.path for found in chosen
    }
    if not numbered:
        return chosen
    every = stats_columns(metadata.schema, metadata.partition_columns, mode=mode, num_indexed=-1)
    return (*chosen, *(found for found in every if found.path in numbered))


def _partition_values(file: WrittenFile, metadata: Metadata) -> _Values:
    """The values in the names of directories, in the log's form of each type."""
    values = {}
    for f in metadata.partition_schema:
        name, data_type = physical_name(f, mapping_mode(metadata)), f.data_type
        text = file.partition_values.get(name)
        if data_type == BINARY and text is not None and "\N{REPLACEMENT CHARACTER}" in text:
            # Spark decoded bytes that are no text, so the value is lost.
            raise PartitionValueError(
                "DELTA_INVALID_PARTITION_VALUE", value=text, dataType="text", column=name
            )
        if data_type == STRING and text is not None and text.startswith(HIVE_DEFAULT_PARTITION):
            text = text[:-1]
        value = parse_partition_value(text, data_type, column=name)
        values[name] = format_partition_value(value, data_type, column=name)
    return values


def _file_column(f: StructField, mode: ColumnMappingMode) -> Projected:
    if mode is ColumnMappingMode.NONE:
        return Projected(expression=quoted_name(f.name), name=f.name)

    def in_file(inner: StructField) -> StructField:
        metadata = {_PARQUET_ID: column_id(inner)}
        return StructField(physical_name(inner, mode), inner.data_type, inner.nullable, metadata)

    renamed = map_fields(f.data_type, in_file)
    return Projected(
        expression=quoted_name(f.name),
        name=physical_name(f, mode),
        data_type=renamed if renamed != f.data_type else None,  # struct to struct is by position
        metadata={_PARQUET_ID: column_id(f)},
    )


def _directory_column(f: StructField, mode: ColumnMappingMode) -> Projected:
    """A partition column for the names of directories.

    Of two columns with one name Spark takes the last for the directories, so it is kept apart from
    the first.  Text that looks like the name of null gets one letter more.
    """
    expression = quoted_name(f.name)
    if f.data_type == STRING:
        null = HIVE_DEFAULT_PARTITION
        expression = (
            f"CASE WHEN startswith({expression}, '{null}') THEN concat({expression}, '_') "
            f"ELSE {expression} END"
        )
    return Projected(expression=expression, name=physical_name(f, mode), is_apart=True)
