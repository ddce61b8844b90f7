"""`detail()` as a DataFrame: one row about a table, with delta-spark's columns and types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.features import supported_features
from pyspark_delta.kernel.protocol.types import INTEGER, LONG, STRING, TIMESTAMP, ArrayType, MapType
from pyspark_delta.spark.results.local_frame import columns, local_frame
from pyspark_delta.spark.tables.locations import hadoop_location
from pyspark_delta.spark.tables.names import logical_clustering

_NAMES = ArrayType(STRING)
DETAIL_SCHEMA = columns(
    format=STRING,
    id=STRING,
    name=STRING,
    description=STRING,
    location=STRING,
    createdAt=TIMESTAMP,
    lastModified=TIMESTAMP,
    partitionColumns=_NAMES,
    clusteringColumns=_NAMES,
    numFiles=LONG,
    sizeInBytes=LONG,
    properties=MapType(STRING, STRING),
    minReaderVersion=INTEGER,
    minWriterVersion=INTEGER,
    tableFeatures=_NAMES,
)
"""The columns of `detail()`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignTable:
    """Facts about a table of another format, or about a plain path."""

    location: str | None
    provider: str | None = None
    name: str | None = None
    description: str | None = None
    created_ms: int | None = None
    partition_columns: tuple[str, ...] | None = None
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)


def detail_frame(spark: SparkSession, snapshot: Snapshot, name: str | None) -> DataFrame:
    """The detail of a version; `name` is the catalog's, if it has one."""
    metadata, protocol = snapshot.metadata, snapshot.protocol
    created = metadata.created_time
    row = (
        "delta",
        metadata.id,
        metadata.name if name is None else name,
        metadata.description,
        hadoop_location(snapshot.store.root_uri),
        None if created is None else created * 1000,
        # The modification time of the file, as in delta-spark, even with in-commit timestamps.
        snapshot.last_commit.info.modified_ms * 1000,
        list(metadata.partition_columns),
        [".".join(path) for path in logical_clustering(snapshot)],
        snapshot.num_files,
        snapshot.size_in_bytes,
        list(metadata.configuration.items()),
        protocol.min_reader_version,
        protocol.min_writer_version,
        sorted(supported_features(protocol)),
    )
    return local_frame(spark, DETAIL_SCHEMA, [row])


def foreign_detail_frame(spark: SparkSession, table: ForeignTable) -> DataFrame:
    """The same columns, null where only a Delta table has values."""
    partitions = table.partition_columns
    known: dict[str, object] = {
        "format": table.provider,
        "name": table.name,
        "description": table.description,
        "location": table.location,
        "createdAt": None if table.created_ms is None else table.created_ms * 1000,
        "partitionColumns": None if partitions is None else list(partitions),
        "properties": list(table.properties.items()),
    }
    row = [known.get(name) for name in DETAIL_SCHEMA.names]
    return local_frame(spark, DETAIL_SCHEMA, [row])
