"""DataFrame to staged files to actions: what a commit then makes part of the table.

The data must have the table's columns already, in the table's order; which rows may be written is
decided before.  Files that no commit names stay invisible (`staged_files` takes them back).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from pyspark.sql import DataFrame

from pyspark_delta.errors.table import PartitionValueError
from pyspark_delta.kernel.log.table_log import TableLog
from pyspark_delta.kernel.protocol.actions import AddCDCFile, AddFile, Metadata, Protocol
from pyspark_delta.kernel.protocol.column_mapping import (
    ColumnMappingMode,
    column_id,
    physical_name,
    physical_schema,
)
from pyspark_delta.kernel.protocol.features import supported_features
from pyspark_delta.kernel.protocol.iceberg_compat import keeps_partition_columns
from pyspark_delta.kernel.protocol.identity_columns import identity_columns
from pyspark_delta.kernel.protocol.partition_values import (
    HIVE_DEFAULT_PARTITION,
    format_partition_value,
    parse_partition_value,
)
from pyspark_delta.kernel.protocol.properties import (
    NUM_INDEXED_COLUMNS,
    STATS_COLUMNS,
    STRING_PREFIX_LENGTH,
    property_value,
)
from pyspark_delta.kernel.protocol.schema_checks import check_writable, without_void
from pyspark_delta.kernel.protocol.stats import DEFAULT_PREFIX_LENGTH, format_stats
from pyspark_delta.kernel.protocol.stats_columns import StatsColumn, stats_columns
from pyspark_delta.kernel.protocol.types import (
    BINARY,
    STRING,
    DataType,
    StructField,
    StructType,
    map_fields,
)
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.kernel.storage.uris import encode_path
from pyspark_delta.spark.column_alignment import aligned
from pyspark_delta.spark.file_options import (
    OUTPUT_TIMESTAMP_TYPE,
    FileOptions,
    file_tags,
    random_prefix,
)
from pyspark_delta.spark.file_stats import FooterStats, footer_stats
from pyspark_delta.spark.jvm.file_writer import WrittenFile, write_files
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.projection import Projected, project
from pyspark_delta.spark.parquet_field_ids import needs_nested_ids, with_nested_ids
from pyspark_delta.spark.settings import STRING_PREFIX
from pyspark_delta.spark.staged_files import discard
from pyspark_delta.spark.table_access import hadoop_location

CHANGE_DIRECTORY = "_change_data"
"""Where files of changed rows go, below the table's root."""

T = TypeVar("T")
_PARQUET_ID = "parquet.field.id"
_NOTHING = StructType()
_DEFAULTS = FileOptions()


def stage(
    jvm: JvmSession,
    log: TableLog,
    data: DataFrame,
    metadata: Metadata,
    protocol: Protocol,
    *,
    hidden: StructType = _NOTHING,
    options: FileOptions = _DEFAULTS,
    planning: Mapping[str, str] | None = None,
    data_change: bool = True,
    in_query: bool = False,
    one_partition_each: bool = False,
) -> list[AddFile]:
    """Write `data` into files of the table and give the actions that would add them.

    `data` has the columns of `metadata.schema`, by name, and those of `hidden`, which go into the
    files as they are; `planning` are settings with which the data is planned, `in_query` says that
    a query runs already and `one_partition_each` that no task has rows of two partitions
    (`write_files`).  Files without a row are left out.
    """
    types = _partition_types(metadata)
    has_vectors = "deletionVectors" in supported_features(protocol)
    prefix = property_value(metadata.configuration, STRING_PREFIX_LENGTH)
    if prefix is None:
        prefix = STRING_PREFIX.value(jvm.spark)
    tags = file_tags(metadata)

    def add(file: WrittenFile, footer: FooterStats) -> AddFile:
        return AddFile(
            path=encode_path(file.path),
            partition_values=_partition_values(file, types),
            size=file.size,
            modification_time=file.modified_ms,
            data_change=data_change,
            stats=_stats(footer, has_vectors, prefix),
            tags=tags,
        )

    place = random_prefix(metadata)
    return _written(
        jvm,
        log,
        data,
        metadata,
        protocol,
        hidden,
        place,
        options,
        planning,
        add,
        in_query=in_query,
        one_partition_each=one_partition_each,
    )


def stage_changes(
    jvm: JvmSession,
    log: TableLog,
    data: DataFrame,
    metadata: Metadata,
    protocol: Protocol,
    change_columns: StructType,
    *,
    options: FileOptions = _DEFAULTS,
) -> list[AddCDCFile]:
    """Write rows that changed, whose `change_columns` say how, for the change data feed."""
    types = _partition_types(metadata)

    def change(file: WrittenFile, footer: FooterStats) -> AddCDCFile:
        return AddCDCFile(
            path=encode_path(file.path),
            partition_values=_partition_values(file, types),
            size=file.size,
        )

    place = f"{CHANGE_DIRECTORY}/{random_prefix(metadata)}"
    return _written(
        jvm, log, data, metadata, protocol, change_columns, place, options, None, change
    )


def _written(
    jvm: JvmSession,
    log: TableLog,
    data: DataFrame,
    metadata: Metadata,
    protocol: Protocol,
    extra: StructType,
    place: str,
    options: FileOptions,
    planning: Mapping[str, str] | None,
    make: Callable[[WrittenFile, FooterStats], T],
    *,
    in_query: bool = False,
    one_partition_each: bool = False,
) -> list[T]:
    """Run the job, and make something of each file that has rows; the others are deleted."""
    check_writable(metadata.schema)
    mode = mapping_mode(metadata)
    stored = without_void(metadata.schema)
    if stored != metadata.schema:
        data = aligned(data, StructType((*stored, *extra)))
    partitions = [physical_name(f, mode) for f in metadata.partition_schema]
    keeps = keeps_partition_columns(protocol, metadata)
    written = physical_schema(stored, mode)
    if not keeps:
        written = StructType(tuple(f for f in written if f.name not in partitions))
    # A projection that changes nothing still costs an analysis, which small appends feel.
    if mode is not ColumnMappingMode.NONE or partitions:
        kept = stored if keeps else StructType(tuple(metadata.data_schema))
        held = StructType(tuple(f for f in kept if f.name in stored))
        data = project(jvm, data, _as_in_files(metadata, mode, held, extra))
    own = options.of_table(metadata)
    files = write_files(
        jvm,
        data,
        f"{hadoop_location(log.store.root_uri)}/{place}".rstrip("/"),
        partitions,
        {**own.parquet, **own.spark},
        hadoop=own.hadoop,
        settings={} if own.timestamps is None else {OUTPUT_TIMESTAMP_TYPE: own.timestamps},
        planning=planning,
        in_query=in_query,
        one_partition_each=one_partition_each,
    )
    files = [file.below(place) for file in files]
    in_files = StructType((*written, *extra))
    try:
        if needs_nested_ids(metadata, written):
            files = with_nested_ids(log.store, files, metadata.schema, in_files)
        paths = [file.path for file in files]
        columns = _stats_columns(metadata, mode)
        footers = footer_stats(log.store, paths, columns, in_files)
        found = list(zip(files, footers, strict=True))
        made = [make(file, footer) for file, footer in found if footer.num_records]
    except BaseException:
        discard(log.store, [file.path for file in files])
        raise
    discard(log.store, [file.path for file, footer in found if not footer.num_records])
    return made


def _as_in_files(
    metadata: Metadata, mode: ColumnMappingMode, held: StructType, extra: StructType
) -> list[Projected]:
    """The columns of files, `held` and `extra`, and behind them those that make directories."""
    return [
        *(_physical(f, mode) for f in held),
        *(Projected(expression=_quoted(f.name), name=f.name) for f in extra),
        *(_directory(f, mode) for f in metadata.partition_schema),
    ]


def _stats(footer: FooterStats, has_vectors: bool, prefix: int | None) -> str:
    return format_stats(
        footer.num_records,
        footer.columns,
        tight_bounds=True if has_vectors else None,
        prefix_length=DEFAULT_PREFIX_LENGTH if prefix is None else prefix,
    )


def _stats_columns(metadata: Metadata, mode: ColumnMappingMode) -> tuple[StatsColumn, ...]:
    configuration = metadata.configuration
    schema, partitions = metadata.schema, metadata.partition_columns
    asked = stats_columns(
        schema,
        partitions,
        mode=mode,
        num_indexed=property_value(configuration, NUM_INDEXED_COLUMNS),
        listed=configuration.get(STATS_COLUMNS.key),
    )
    # How far the numbers of an identity column have gone is read from the files.
    numbered = {(f.name,) for f in identity_columns(schema)} - {found.path for found in asked}
    if not numbered:
        return asked
    every = stats_columns(schema, partitions, mode=mode, num_indexed=-1)
    return (*asked, *(found for found in every if found.path in numbered))


def _partition_types(metadata: Metadata) -> dict[str, DataType]:
    mode = mapping_mode(metadata)
    return {physical_name(f, mode): f.data_type for f in metadata.partition_schema}


def _partition_values(file: WrittenFile, types: Mapping[str, DataType]) -> dict[str, str | None]:
    """The values of the log: what the directories spell, in the log's form of each type."""
    values = {}
    for name, data_type in types.items():
        text = file.partition_values.get(name)
        if data_type == BINARY and text is not None and "\N{REPLACEMENT CHARACTER}" in text:
            # Spark made text of bytes that are none: the value cannot be known any more.
            raise PartitionValueError(
                "DELTA_INVALID_PARTITION_VALUE", value=text, dataType="text", column=name
            )
        if data_type == STRING and text is not None and text.startswith(HIVE_DEFAULT_PARTITION):
            text = text[:-1]
        value = parse_partition_value(text, data_type, column=name)
        values[name] = format_partition_value(value, data_type, column=name)
    return values


def _physical(f: StructField, mode: ColumnMappingMode) -> Projected:
    """A column under the name, and with the id, that it has in files."""
    if mode is ColumnMappingMode.NONE:
        return Projected(expression=_quoted(f.name), name=f.name)
    renamed = map_fields(f.data_type, lambda inner: _with_parquet_id(inner, mode))
    return Projected(
        expression=_quoted(f.name),
        name=physical_name(f, mode),
        data_type=renamed if renamed != f.data_type else None,  # struct to struct is by position
        metadata={_PARQUET_ID: column_id(f)},
    )


def _with_parquet_id(f: StructField, mode: ColumnMappingMode) -> StructField:
    return StructField(physical_name(f, mode), f.data_type, f.nullable, {_PARQUET_ID: column_id(f)})


def _directory(f: StructField, mode: ColumnMappingMode) -> Projected:
    """A partition column as the directories have it.

    Of two columns with one name the last makes the directories, so it is kept apart from the
    first.  Text that looks like the name of null gets one letter more.
    """
    expression = _quoted(f.name)
    if f.data_type == STRING:
        null = HIVE_DEFAULT_PARTITION
        expression = (
            f"CASE WHEN startswith({expression}, '{null}') THEN concat({expression}, '_') "
            f"ELSE {expression} END"
        )
    return Projected(expression=expression, name=physical_name(f, mode), is_apart=True)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
