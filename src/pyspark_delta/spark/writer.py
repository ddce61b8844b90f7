"""DataFrame to staged files to `AddFile` actions: what a commit then makes part of the table.

The data must have the table's columns already, in the table's order; which rows may be written is
decided before.  Files that no commit names stay invisible.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame

from pyspark_delta.errors.table import PartitionValueError
from pyspark_delta.kernel.protocol.actions import AddFile, Metadata, Protocol
from pyspark_delta.kernel.protocol.column_mapping import (
    ColumnMappingMode,
    column_id,
    physical_name,
    physical_schema,
)
from pyspark_delta.kernel.protocol.features import supported_features
from pyspark_delta.kernel.protocol.partition_values import (
    format_partition_value,
    parse_partition_value,
)
from pyspark_delta.kernel.protocol.properties import (
    NUM_INDEXED_COLUMNS,
    STATS_COLUMNS,
    STRING_PREFIX_LENGTH,
    WRITE_PARTITION_COLUMNS,
    property_value,
)
from pyspark_delta.kernel.protocol.schema_checks import check_writable, without_void
from pyspark_delta.kernel.protocol.stats import DEFAULT_PREFIX_LENGTH, format_stats
from pyspark_delta.kernel.protocol.stats_columns import StatsColumn, stats_columns
from pyspark_delta.kernel.protocol.types import (
    BINARY,
    DataType,
    StructField,
    StructType,
    map_fields,
)
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.kernel.storage.uris import encode_path
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.column_alignment import aligned, column
from pyspark_delta.spark.file_stats import FooterStats, footer_stats
from pyspark_delta.spark.jvm.file_writer import WrittenFile, write_files
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.table_access import hadoop_location
from pyspark_delta.spark.types import to_spark_type

_PARQUET_ID = "parquet.field.id"


def stage(
    jvm: JvmSession,
    log: DeltaLog,
    data: DataFrame,
    metadata: Metadata,
    protocol: Protocol,
    *,
    options: Mapping[str, str] | None = None,
    data_change: bool = True,
) -> list[AddFile]:
    """Write `data` into files of the table and give the actions that would add them.

    `data` has the columns of `metadata.schema`, by name; `options` are Spark's Parquet options.
    Files without a row are left out.
    """
    check_writable(metadata.schema)
    mode = mapping_mode(metadata)
    stored = without_void(metadata.schema)
    if stored != metadata.schema:
        data = aligned(data, stored)
    partitions = [physical_name(f, mode) for f in metadata.partition_schema]
    keeps = property_value(metadata.configuration, WRITE_PARTITION_COLUMNS) is not False
    written = physical_schema(stored, mode)
    selected = [_physical(f, mode) for f in stored]
    if keeps:
        # Of two columns with one name the last makes the directories; metadata keeps the
        # optimizer from taking it for the first.
        selected += [
            column(f.name).alias(physical_name(f, mode), metadata={"delta.partition": True})
            for f in metadata.partition_schema
        ]
    else:
        written = StructType(tuple(f for f in written if f.name not in partitions))
    # A projection that changes nothing still costs an analysis, which small appends feel.
    is_ready = mode is ColumnMappingMode.NONE and len(selected) == len(stored)
    if not (is_ready and data.columns == list(stored.names)):
        data = data.select(*selected)
    files = write_files(jvm, data, hadoop_location(log.store.root_uri), partitions, options)
    columns = _stats_columns(metadata, mode)
    footers = footer_stats(log.store, [file.path for file in files], columns, written)
    types = {physical_name(f, mode): f.data_type for f in metadata.partition_schema}
    has_vectors = "deletionVectors" in supported_features(protocol)
    prefix = property_value(metadata.configuration, STRING_PREFIX_LENGTH)
    return [
        AddFile(
            path=encode_path(file.path),
            partition_values=_partition_values(file, types),
            size=file.size,
            modification_time=file.modified_ms,
            data_change=data_change,
            stats=_stats(footer, has_vectors, prefix),
        )
        for file, footer in zip(files, footers, strict=True)
        if footer.num_records
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
    return stats_columns(
        metadata.schema,
        metadata.partition_columns,
        mode=mode,
        num_indexed=property_value(configuration, NUM_INDEXED_COLUMNS),
        listed=configuration.get(STATS_COLUMNS.key),
    )


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
        value = parse_partition_value(text, data_type, column=name)
        values[name] = format_partition_value(value, data_type, column=name)
    return values


def _physical(f: StructField, mode: ColumnMappingMode) -> Column:
    """A column under the name, and with the id, that it has in files."""
    found = column(f.name)
    if mode is ColumnMappingMode.NONE:
        return found
    renamed = map_fields(f.data_type, lambda inner: _with_parquet_id(inner, mode))
    if renamed != f.data_type:
        found = found.cast(to_spark_type(renamed))  # struct to struct goes by position
    return found.alias(physical_name(f, mode), metadata={_PARQUET_ID: column_id(f)})


def _with_parquet_id(f: StructField, mode: ColumnMappingMode) -> StructField:
    return StructField(physical_name(f, mode), f.data_type, f.nullable, {_PARQUET_ID: column_id(f)})
