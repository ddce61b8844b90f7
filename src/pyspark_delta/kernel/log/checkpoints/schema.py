"""The Arrow schema of a checkpoint: one struct per kind of action, in delta-spark's layout.

Every column is nullable, as in delta-spark's files: a row is one action, and all other structs are
null in it.  Nothing is written here.  PROTOCOL.md, "Checkpoint Schema".

>>> schema = checkpoint_schema(Metadata(id="t"), Protocol())
>>> schema.names
['txn', 'add', 'remove', 'metaData', 'protocol', 'domainMetadata']
"""

from __future__ import annotations

import pyarrow as pa

from pyspark_delta.kernel.log.arrow_types import kernel_type, log_arrow_type
from pyspark_delta.kernel.log.frames.file_actions import action_type
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.column_mapping import ColumnMappingMode, physical_schema
from pyspark_delta.kernel.protocol.features import is_supported
from pyspark_delta.kernel.protocol.properties import (
    CHECKPOINT_STATS_AS_JSON,
    CHECKPOINT_STATS_AS_STRUCT,
    COLUMN_MAPPING_MODE,
    property_value,
)
from pyspark_delta.kernel.protocol.stats import table_stats_columns
from pyspark_delta.kernel.protocol.stats_columns import stats_schema
from pyspark_delta.kernel.protocol.types import StructField, StructType

# Tombstones are written without statistics and tags, which no reader uses.
_REMOVE = action_type("remove", without=("stats", "tags"))
STATS = "stats"
STATS_PARSED = "stats_parsed"
PARTITION_VALUES_PARSED = "partitionValues_parsed"


def checkpoint_schema(metadata: Metadata, protocol: Protocol) -> pa.Schema:
    """The columns of a classic checkpoint."""
    return pa.schema(
        [
            ("txn", action_type("txn")),
            ("add", add_type(metadata, protocol)),
            ("remove", _REMOVE),
            *((kind, action_type(kind)) for kind in ("metaData", "protocol", "domainMetadata")),
        ]
    )


def sidecar_schema(metadata: Metadata, protocol: Protocol) -> pa.Schema:
    """The columns of a sidecar: file actions alone."""
    return pa.schema([("add", add_type(metadata, protocol)), ("remove", _REMOVE)])


def top_level_schema(metadata: Metadata, protocol: Protocol) -> pa.Schema:
    """The columns of a V2 checkpoint's own file, when it is Parquet."""
    schema = checkpoint_schema(metadata, protocol)
    own = [pa.field(kind, action_type(kind)) for kind in ("checkpointMetadata", "sidecar")]
    return pa.schema([*schema, *own])


def add_type(metadata: Metadata, protocol: Protocol) -> pa.StructType:
    """The struct of an add action, with the statistics that the table's properties require."""
    fields = [(f.name, f.type) for f in action_type("add", without=(STATS,))]
    if property_value(metadata.configuration, CHECKPOINT_STATS_AS_JSON):
        fields.append((STATS, pa.string()))
    if property_value(metadata.configuration, CHECKPOINT_STATS_AS_STRUCT):
        if metadata.partition_columns:
            partitions = log_arrow_type(physical_partition_schema(metadata))
            fields.append((PARTITION_VALUES_PARSED, partitions))
        fields.append((STATS_PARSED, stats_type(metadata, protocol)))
    return pa.struct(fields)


def physical_partition_schema(metadata: Metadata) -> StructType:
    """The partition columns under the names that `partitionValues` has for them."""
    return physical_schema(metadata.partition_schema, _mode(metadata))


def stats_type(metadata: Metadata, protocol: Protocol) -> pa.StructType:
    """The struct of typed statistics, under physical names."""
    columns = table_stats_columns(metadata, _mode(metadata))
    tight_bounds = is_supported(protocol, "deletionVectors")
    return log_arrow_type(stats_schema(columns, tight_bounds=tight_bounds))


def spark_schema(schema: pa.Schema) -> StructType:
    """The same columns as Spark's schema, which the hint `_last_checkpoint` repeats."""
    return StructType(tuple(StructField(f.name, kernel_type(f.type)) for f in schema))


def _mode(metadata: Metadata) -> ColumnMappingMode:
    return ColumnMappingMode.parse(metadata.configuration.get(COLUMN_MAPPING_MODE.key))
