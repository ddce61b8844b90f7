"""Resolves the identifier of CONVERT TO DELTA: a directory, or a table of Spark's catalog.

Nothing here lists or reads files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from pyspark_delta.errors import OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.protocol.column_mapping import ColumnMappingMode
from pyspark_delta.kernel.protocol.types import DataType, StructType
from pyspark_delta.kernel.sql.quoting import quoted_path
from pyspark_delta.spark.conf.setting_table import (
    CONVERT_CATALOG_PARTITIONS,
    CONVERT_CATALOG_SCHEMA,
    CONVERT_ICEBERG,
)
from pyspark_delta.spark.convert.files import CatalogPartition
from pyspark_delta.spark.jvm.catalog.entries import (
    CatalogEntry,
    entry_partitions,
    entry_properties,
    is_temporary_view,
    missing_table,
)
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.tables.names import look_up
from pyspark_delta.spark.tables.registration import new_table_properties

PARQUET = "parquet"
_DELTA_PROVIDERS = ("delta", "tahoe")
_ICEBERG = "iceberg"
# Providers that may precede a relative path; any other name there is a database.
_PATH_PROVIDERS = (PARQUET, _ICEBERG, *_DELTA_PROVIDERS)
_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.\-]+:/")
# Hive stores the time of its last change in the table's properties.
_HIVES_OWN = ("transient_lastDdlTime",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertTarget:
    """A resolved identifier.

    `catalog_table` is None for a path; `target_dir` is the location of the files, and `identifier`
    the name for messages.
    """

    catalog_table: CatalogEntry | None
    provider: str | None
    target_dir: str
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    identifier: str

    @property
    def is_delta(self) -> bool:
        return self.provider in _DELTA_PROVIDERS

    @property
    def catalog_name(self) -> str | None:
        """The catalog's name for the history; None for a path."""
        if self.catalog_table is None:
            return None
        return quoted_path(self.catalog_table.parts)

    @property
    def is_parquet_catalog_table(self) -> bool:
        """Whether it is a table of the catalog that holds Parquet files."""
        entry = self.catalog_table
        return entry is not None and (self.provider == PARQUET or entry.is_hive_parquet)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertTargetTable:
    """The Parquet table to convert.

    `catalog_schema` has all columns, where the catalog's schema is used.  `partitions` are the
    catalog's directories, None where they are listed.  `properties` are those of the new table,
    with the session's defaults.
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
        """The locations of files outside the table's root, which may be `delta_path`."""
        if delta_path is not None:
            yield self.location
        root = f"{self.location.rstrip('/')}/"
        for partition in self.partitions or ():
            if not partition.location.startswith(root):
                yield partition.location


def resolve_convert_target(spark: SparkSession, parts: tuple[str, ...]) -> ConvertTarget:
    """Resolve a name; raises a typed error for a view, a missing table, and a bare path.

    A table of the catalog wins over a path: `parquet` can be the name of a database.
    """
    identifier = quoted_path(parts)
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
    if len(parts) == 2 and (parts[0].lower() in _PATH_PROVIDERS or _ABSOLUTE.match(parts[1])):
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
    """The table of the catalog with this name, None if there is none; raises for a view."""
    if len(parts) == 2 and _ABSOLUTE.match(parts[1]):
        return None  # a name that no catalog can have
    is_view = is_temporary_view(JvmSession(spark), parts)
    table = None if is_view else look_up(spark, parts)
    entry = None if table is None else table.entry
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
    """The table to convert, as the user and the catalog together define it."""
    if target.is_delta:  # more files are added to it
        return ConvertTargetTable(
            location=target.target_dir, partition_schema=partition_schema or StructType()
        )
    if target.is_parquet_catalog_table or target.provider == PARQUET:
        return _parquet_table(spark, target, partition_schema)
    if target.provider is None:
        raise OperationNotAllowedError("DELTA_MISSING_PROVIDER_FOR_CONVERT", path=target.target_dir)
    if target.provider == _ICEBERG and CONVERT_ICEBERG.of(spark):
        if partition_schema is not None:
            raise OperationNotAllowedError("DELTA_PARTITION_SCHEMA_IN_ICEBERG_TABLES")
        raise OperationNotAllowedError("DELTA_MISSING_ICEBERG_CLASS")
    raise OperationNotAllowedError(
        "DELTA_CONVERT_NON_PARQUET_TABLE", sourceName=target.provider, tableId=target.identifier
    )


def check_partition_schema(known: StructType, given: StructType | None) -> None:
    """Raise if the user's partition columns are not the known ones."""
    if given is not None and _columns(known) != _columns(given):
        raise SchemaError(
            "DELTA_UNEXPECTED_PARTITION_SCHEMA_FROM_USER",
            catalogPartitionSchema=_listed(known),
            userPartitionSchema=_listed(given),
        )


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
    known = entry.partition_schema
    check_partition_schema(known, partition_schema)
    uses_catalog = CONVERT_CATALOG_PARTITIONS.of(spark)
    partitions: tuple[CatalogPartition, ...] | None = None
    if uses_catalog and known.fields:
        partitions = tuple(
            CatalogPartition(values=values, location=location)
            for values, location in entry_partitions(JvmSession(spark), entry)
        )
        if not partitions:
            raise OperationNotAllowedError(
                "DELTA_CONVERSION_NO_PARTITION_FOUND", tableName=entry.name
            )
    has_schema = uses_catalog and CONVERT_CATALOG_SCHEMA.of(spark)
    return ConvertTargetTable(
        location=target.target_dir,
        partition_schema=known,
        catalog_schema=entry.schema if has_schema else None,
        partitions=partitions,
        comment=entry.comment,
        properties=properties,
    )


def _listed(schema: StructType) -> str:
    return ", ".join(f"{f.name} {f.data_type.simple_string}" for f in schema)


def _columns(schema: StructType) -> list[tuple[str, DataType]]:
    return [(f.name, f.data_type) for f in schema]
