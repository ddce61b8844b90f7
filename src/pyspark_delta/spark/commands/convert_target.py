"""What CONVERT TO DELTA is asked to convert: a directory, or a table of Spark's catalog.

Found out before any file is looked at.  Nothing here lists or reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from pyspark_delta.errors.table import (
    OperationNotAllowedError,
    SchemaError,
)
from pyspark_delta.kernel.protocol.column_mapping import ColumnMappingMode
from pyspark_delta.kernel.protocol.types import DataType, StructType
from pyspark_delta.spark.catalog import look_up
from pyspark_delta.spark.convert.manifest import CatalogPartition
from pyspark_delta.spark.jvm.catalog import (
    CatalogEntry,
    entry_comment,
    entry_partition_schema,
    entry_partitions,
    entry_properties,
    entry_schema,
    is_hive_parquet,
    is_temporary_view,
)
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.missing_tables import missing_table
from pyspark_delta.spark.table_places import new_table_properties

CONVERT_CONF = "spark.databricks.delta.convert."
"""How the names of CONVERT's settings begin."""

PARQUET = "parquet"
_DELTA_PROVIDERS = ("delta", "tahoe")
_ICEBERG = "iceberg"
# What may stand before a path that is not absolute; before any other it is a database.
_PATH_PROVIDERS = (PARQUET, _ICEBERG, *_DELTA_PROVIDERS)
_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.\-]+:/")
# Hive writes the time of its last change among the table's properties.
_HIVES_OWN = ("transient_lastDdlTime",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertTarget:
    """What an identifier means.

    `catalog_table` is None for a path; `target_dir` is where the files are, `identifier` the name
    as messages show it.
    """

    catalog_table: CatalogEntry | None
    provider: str | None
    target_dir: str
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    identifier: str

    @property
    def is_delta(self) -> bool:
        """Whether it says of itself that it is a Delta table."""
        return self.provider in _DELTA_PROVIDERS

    @property
    def catalog_name(self) -> str | None:
        """The name in the catalog as the history has it; None for a path."""
        if self.catalog_table is None:
            return None
        return ".".join(quoted(part) for part in self.catalog_table.parts)

    @property
    def is_parquet_catalog_table(self) -> bool:
        """Whether it is a table of the catalog that holds Parquet files."""
        entry = self.catalog_table
        return entry is not None and (self.provider == PARQUET or is_hive_parquet(entry))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertTargetTable:
    """The Parquet table that becomes a Delta table.

    `catalog_schema` are all columns, where the catalog is believed; `partitions` what the catalog
    says of directories, None where they are looked for.  `properties` are those of the new table,
    the session's defaults among them.
    """

    location: str
    partition_schema: StructType
    catalog_schema: StructType | None = None
    partitions: tuple[CatalogPartition, ...] | None = None
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    required_column_mapping_mode: ColumnMappingMode = ColumnMappingMode.NONE
    format: str = PARQUET

    def places_outside(self, delta_path: str | None) -> Iterator[str]:
        """Where files lie that are not below the table's root, which `delta_path` may be."""
        if delta_path is not None:
            yield self.location
        root = f"{self.location.rstrip('/')}/"
        for partition in self.partitions or ():
            if not partition.location.startswith(root):
                yield partition.location


def is_path(parts: tuple[str, ...]) -> bool:
    """Whether a name is a provider and a path."""
    return len(parts) == 2 and bool(
        parts[0].lower() in _PATH_PROVIDERS or _ABSOLUTE.match(parts[1])
    )


def resolve_convert_target(spark: SparkSession, parts: tuple[str, ...]) -> ConvertTarget:
    """What a name means; a typed error for a view, for nothing, and for a path alone.

    A table of the catalog stands before a path: `parquet` can be the name of a database.
    """
    identifier = ".".join(quoted(part) for part in parts)
    entry = find_catalog_table(spark, parts)
    if entry is not None:
        return ConvertTarget(
            catalog_table=entry,
            provider=entry.provider,
            target_dir=entry.location or "",
            properties={
                key: value
                for key, value in entry_properties(JvmSession(spark), entry).items()
                if key not in _HIVES_OWN
            },
            identifier=identifier,
        )
    if is_path(parts):
        return ConvertTarget(
            catalog_table=None,
            provider=parts[0].lower(),
            target_dir=parts[1],
            identifier=identifier,
        )
    if len(parts) == 1 and _ABSOLUTE.match(parts[0]):
        raise OperationNotAllowedError("DELTA_MISSING_PROVIDER_FOR_CONVERT", path=parts[0])
    raise missing_table(JvmSession(spark), parts)


def find_catalog_table(spark: SparkSession, parts: tuple[str, ...]) -> CatalogEntry | None:
    """The table of the catalog that a name means, None for none; views are refused."""
    if len(parts) == 2 and _ABSOLUTE.match(parts[1]):
        return None  # no catalog has tables of such a name
    is_view = is_temporary_view(JvmSession(spark), parts)
    found = None if is_view else look_up(spark, parts)
    entry = None if found is None else found.entry
    if is_view or (entry is not None and entry.is_view):
        raise OperationNotAllowedError(
            "DELTA_OPERATION_NOT_ALLOWED_DETAIL",
            operation="Converting a view to a Delta table",
            tableName=".".join(parts),
        )
    return entry


def target_table(
    spark: SparkSession, target: ConvertTarget, partition_schema: StructType | None
) -> ConvertTargetTable:
    """The table to convert, as the user and the catalog describe it together."""
    if target.is_delta:  # of which more files are to become a part
        return ConvertTargetTable(
            location=target.target_dir, partition_schema=partition_schema or StructType()
        )
    if target.is_parquet_catalog_table or target.provider == PARQUET:
        return _parquet_table(spark, target, partition_schema)
    if target.provider is None:
        raise OperationNotAllowedError("DELTA_MISSING_PROVIDER_FOR_CONVERT", path=target.target_dir)
    if target.provider == _ICEBERG and is_on(spark, f"{CONVERT_CONF}iceberg.enabled"):
        if partition_schema is not None:
            raise OperationNotAllowedError("DELTA_PARTITION_SCHEMA_IN_ICEBERG_TABLES")
        raise OperationNotAllowedError("DELTA_MISSING_ICEBERG_CLASS")
    raise OperationNotAllowedError(
        "DELTA_CONVERT_NON_PARQUET_TABLE", sourceName=target.provider, tableId=target.identifier
    )


def check_partition_schema(known: StructType, given: StructType | None) -> None:
    """Refuse partition columns of the user that are not those which are known."""
    if given is None or _columns(known) == _columns(given):
        return
    raise SchemaError(
        "DELTA_UNEXPECTED_PARTITION_SCHEMA_FROM_USER",
        catalogPartitionSchema=_listed(known),
        userPartitionSchema=_listed(given),
    )


def quoted(part: str) -> str:
    """A part of a name in backticks."""
    return "`" + part.replace("`", "``") + "`"


def is_on(spark: SparkSession, key: str, default: bool = True) -> bool:
    """A setting of the session that is true or false."""
    return (spark.conf.get(key, str(default)) or "").lower() == "true"


def _parquet_table(
    spark: SparkSession, target: ConvertTarget, partition_schema: StructType | None
) -> ConvertTargetTable:
    entry = target.catalog_table
    properties = new_table_properties(spark, target.properties)
    if entry is None:
        return ConvertTargetTable(
            location=target.target_dir,
            partition_schema=partition_schema or StructType(),
            properties=properties,
        )
    known = entry_partition_schema(entry)
    check_partition_schema(known, partition_schema)
    asks_catalog = is_on(spark, f"{CONVERT_CONF}useCatalogPartitions")
    partitions: tuple[CatalogPartition, ...] | None = None
    if asks_catalog and known.fields:
        partitions = tuple(
            CatalogPartition(values=values, location=location)
            for values, location in entry_partitions(JvmSession(spark), entry)
        )
        if not partitions:
            raise OperationNotAllowedError(
                "DELTA_CONVERSION_NO_PARTITION_FOUND", tableName=entry.name
            )
    believes_schema = asks_catalog and is_on(spark, f"{CONVERT_CONF}useCatalogSchema")
    return ConvertTargetTable(
        location=target.target_dir,
        partition_schema=known,
        catalog_schema=entry_schema(entry) if believes_schema else None,
        partitions=partitions,
        comment=entry_comment(entry),
        properties=properties,
    )


def _listed(schema: StructType) -> str:
    return ", ".join(f"{f.name} {f.data_type.simple_string}" for f in schema)


def _columns(schema: StructType) -> list[tuple[str, DataType]]:
    return [(f.name, f.data_type) for f in schema]
