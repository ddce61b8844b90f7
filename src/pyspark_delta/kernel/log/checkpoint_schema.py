"""The columns of a checkpoint: one struct per kind of action, as delta-spark lays them out.

Every column may be null, as in delta-spark's files: a row is one action, and all other structs are
null in it.  Nothing is written here.  PROTOCOL.md, "Checkpoint Schema".

>>> schema = checkpoint_schema(Metadata(id="t"), Protocol())
>>> schema.names
['txn', 'add', 'remove', 'metaData', 'protocol', 'domainMetadata']
"""

from __future__ import annotations

import pyarrow as pa

from pyspark_delta.kernel.log.atomic_types import ARROW_TYPES
from pyspark_delta.kernel.log.frames import DELETION_VECTOR, STRING_MAP
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.column_mapping import ColumnMappingMode, physical_schema
from pyspark_delta.kernel.protocol.features import is_supported
from pyspark_delta.kernel.protocol.properties import (
    CHECKPOINT_STATS_AS_JSON,
    CHECKPOINT_STATS_AS_STRUCT,
    COLUMN_MAPPING_MODE,
    NUM_INDEXED_COLUMNS,
    STATS_COLUMNS,
    property_value,
)
from pyspark_delta.kernel.protocol.stats_columns import stats_columns, stats_schema
from pyspark_delta.kernel.protocol.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

_KERNEL_TYPES = {arrow: kernel for kernel, arrow in ARROW_TYPES.items()}

_STRINGS = pa.list_(pa.string())
TXN = pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])
# Tombstones lose their statistics and tags here: nobody reads them again.
REMOVE = pa.struct(
    [
        ("path", pa.string()),
        ("deletionTimestamp", pa.int64()),
        ("dataChange", pa.bool_()),
        ("extendedFileMetadata", pa.bool_()),
        ("partitionValues", STRING_MAP),
        ("size", pa.int64()),
        ("deletionVector", DELETION_VECTOR),
        ("baseRowId", pa.int64()),
        ("defaultRowCommitVersion", pa.int64()),
    ]
)
METADATA = pa.struct(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", STRING_MAP)])),
        ("schemaString", pa.string()),
        ("partitionColumns", _STRINGS),
        ("configuration", STRING_MAP),
        ("createdTime", pa.int64()),
    ]
)
PROTOCOL = pa.struct(
    [
        ("minReaderVersion", pa.int32()),
        ("minWriterVersion", pa.int32()),
        ("readerFeatures", _STRINGS),
        ("writerFeatures", _STRINGS),
    ]
)
DOMAIN_METADATA = pa.struct(
    [("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]
)
CHECKPOINT_METADATA = pa.struct([("version", pa.int64()), ("tags", STRING_MAP)])
SIDECAR = pa.struct(
    [
        ("path", pa.string()),
        ("sizeInBytes", pa.int64()),
        ("modificationTime", pa.int64()),
        ("tags", STRING_MAP),
    ]
)
_ADD_FIELDS: tuple[tuple[str, pa.DataType], ...] = (
    ("path", pa.string()),
    ("partitionValues", STRING_MAP),
    ("size", pa.int64()),
    ("modificationTime", pa.int64()),
    ("dataChange", pa.bool_()),
    ("tags", STRING_MAP),
    ("deletionVector", DELETION_VECTOR),
    ("baseRowId", pa.int64()),
    ("defaultRowCommitVersion", pa.int64()),
    ("clusteringProvider", pa.string()),
)
STATS = "stats"
STATS_PARSED = "stats_parsed"
PARTITION_VALUES_PARSED = "partitionValues_parsed"


def checkpoint_schema(metadata: Metadata, protocol: Protocol) -> pa.Schema:
    """The columns of a classic checkpoint."""
    return pa.schema(
        [
            ("txn", TXN),
            ("add", add_type(metadata, protocol)),
            ("remove", REMOVE),
            ("metaData", METADATA),
            ("protocol", PROTOCOL),
            ("domainMetadata", DOMAIN_METADATA),
        ]
    )


def sidecar_schema(metadata: Metadata, protocol: Protocol) -> pa.Schema:
    """The columns of a sidecar: file actions alone."""
    return pa.schema([("add", add_type(metadata, protocol)), ("remove", REMOVE)])


def top_level_schema(metadata: Metadata, protocol: Protocol) -> pa.Schema:
    """The columns of a V2 checkpoint's own file, when it is Parquet."""
    schema = checkpoint_schema(metadata, protocol)
    return schema.append(pa.field("checkpointMetadata", CHECKPOINT_METADATA)).append(
        pa.field("sidecar", SIDECAR)
    )


def add_type(metadata: Metadata, protocol: Protocol) -> pa.StructType:
    """The struct of an add action, with the statistics that the table's properties ask for."""
    fields = list(_ADD_FIELDS)
    if property_value(metadata.configuration, CHECKPOINT_STATS_AS_JSON):
        fields.append((STATS, pa.string()))
    if property_value(metadata.configuration, CHECKPOINT_STATS_AS_STRUCT):
        if metadata.partition_columns:
            fields.append((PARTITION_VALUES_PARSED, partition_values_type(metadata)))
        fields.append((STATS_PARSED, stats_type(metadata, protocol)))
    return pa.struct(fields)


def partition_values_type(metadata: Metadata) -> pa.StructType:
    """The struct of typed partition values, under physical names."""
    return arrow_struct(physical_partition_schema(metadata))


def physical_partition_schema(metadata: Metadata) -> StructType:
    """The partition columns under the names that `partitionValues` has for them."""
    return physical_schema(metadata.partition_schema, _mode(metadata))


def stats_type(metadata: Metadata, protocol: Protocol) -> pa.StructType:
    """The struct of typed statistics, under physical names."""
    columns = stats_columns(
        metadata.schema,
        metadata.partition_columns,
        mode=_mode(metadata),
        num_indexed=property_value(metadata.configuration, NUM_INDEXED_COLUMNS),
        listed=metadata.configuration.get(STATS_COLUMNS.key),
    )
    tight_bounds = is_supported(protocol, "deletionVectors")
    return arrow_struct(stats_schema(columns, tight_bounds=tight_bounds))


def arrow_struct(struct: StructType) -> pa.StructType:
    """A struct of atomic types and structs of them, as Arrow has it; other types are text."""
    return pa.struct([(f.name, _arrow(f.data_type)) for f in struct])


def spark_schema(schema: pa.Schema) -> StructType:
    """The same columns as Spark's schema, which the hint `_last_checkpoint` repeats."""
    return StructType(tuple(StructField(f.name, _spark_type(f.type)) for f in schema))


def _mode(metadata: Metadata) -> ColumnMappingMode:
    return ColumnMappingMode.parse(metadata.configuration.get(COLUMN_MAPPING_MODE.key))


def _arrow(data_type: DataType) -> pa.DataType:
    match data_type:
        case StructType():
            return arrow_struct(data_type)
        case DecimalType(precision=precision, scale=scale):
            return pa.decimal128(precision, scale)
        case PrimitiveType():
            return ARROW_TYPES.get(data_type, pa.string())
        case _:
            return pa.string()


def _spark_type(arrow: pa.DataType) -> DataType:
    if pa.types.is_struct(arrow):
        return StructType(tuple(StructField(f.name, _spark_type(f.type)) for f in arrow))
    if pa.types.is_map(arrow):
        return MapType(_spark_type(arrow.key_type), _spark_type(arrow.item_type))
    if pa.types.is_list(arrow):
        return ArrayType(_spark_type(arrow.value_type))
    if pa.types.is_decimal(arrow):
        return DecimalType(arrow.precision, arrow.scale)
    return _KERNEL_TYPES[arrow]
