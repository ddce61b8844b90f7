"""The table's definition after a write: created, replaced, extended by new columns, or unchanged.

It is decided on schemas, before a row is read.  Data that does not fit raises here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

from pyspark.sql.types import StructType as SparkStructType

from pyspark_delta.errors import OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.ops.schema.columns import checked_clustering_paths
from pyspark_delta.kernel.protocol.actions import Action, DomainMetadata, Metadata
from pyspark_delta.kernel.protocol.column_mapping import logical_path, physical_path
from pyspark_delta.kernel.protocol.domains import (
    CLUSTERING,
    clustering_columns,
    clustering_domain,
    tombstone,
)
from pyspark_delta.kernel.protocol.feature_upgrade import upgraded
from pyspark_delta.kernel.protocol.features import check_writable, supported_features
from pyspark_delta.kernel.protocol.iceberg_compat import enabled_version
from pyspark_delta.kernel.protocol.properties import ENABLE_TYPE_WIDENING, property_value
from pyspark_delta.kernel.protocol.schema_checks import check_data_columns, check_partition_columns
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.schema_merge import (
    STRICT,
    MergeRules,
    as_nullable,
    check_no_duplicates,
    check_write_compatible,
    evolve_schema,
)
from pyspark_delta.kernel.protocol.type_widening import record_type_changes
from pyspark_delta.kernel.protocol.types import (
    CHAR_VARCHAR_KEY,
    VOID,
    StructField,
    StructType,
    column_name,
    map_fields,
)
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.files.write_options import WriteOptions
from pyspark_delta.spark.jvm.gateway import from_spark
from pyspark_delta.spark.rules.rows import filled_columns
from pyspark_delta.spark.tables.column_checks import check_clustering
from pyspark_delta.spark.write.request import WriteRequest

NewProperties = Callable[[Mapping[str, str]], Mapping[str, str]]

# Column metadata that belongs to the table from which the data was read.
_FOREIGN_METADATA = (
    *("delta.", "CURRENT_DEFAULT", "EXISTS_DEFAULT", "parquet.field."),
    CHAR_VARCHAR_KEY,
)
_CLUSTERING_FEATURE = "clustering"
_PREVIEW = "typeWidening-preview"


def data_schema(schema: SparkStructType) -> StructType:
    """The columns of data, without metadata of the table from which they were read."""

    def own(f: StructField) -> StructField:
        kept = {k: v for k, v in f.metadata.items() if not k.startswith(_FOREIGN_METADATA)}
        return StructField(f.name, f.data_type, f.nullable, kept)

    found = map_fields(from_spark(schema), own)
    assert isinstance(found, StructType)
    check_no_duplicates(found)
    return found


def define_table(
    txn: OptimisticTransaction,
    data: StructType,
    request: WriteRequest,
    options: WriteOptions,
    *,
    replaces_some: bool,
    new_properties: NewProperties,
) -> list[Action]:
    """Change the table's definition to fit the data as far as the user allows, or raise.

    The result has the actions of the commit besides metadata and protocol.  `replaces_some` means
    that an overwrite leaves some rows, so that the table must keep its definition.
    `new_properties` returns all properties of a new table for those of the user.
    """
    if not data.fields:
        raise SchemaError("DELTA_EMPTY_DATA")
    new = _Definition(
        txn=txn, data=data, request=request, options=options, new_properties=new_properties
    )
    replaces_all = request.mode == "overwrite" and not replaces_some
    if txn.snapshot is None:
        new.create_table()
        return new.clustering(replaces_all=True)
    check_writable(txn.protocol, txn.log.store.root_uri)
    if request.replaces_definition and replaces_all:
        new.replace_table()
    elif replaces_all and options.overwrites_schema:
        new.overwrite_schema()
    else:
        # Other partition columns get their own error, rather than one for missing columns.
        if not request.partition_by:
            new.check_partitions()
        new.merge_schema()
        if request.partition_by:
            new.check_partitions()
    return new.clustering(replaces_all=replaces_all)


def merge_rules(metadata: Metadata, options: WriteOptions) -> MergeRules:
    """How far the table's types may be widened to the data's; only a merge of columns widens."""
    if not options.merges_schema:
        return STRICT
    if not property_value(metadata.configuration, ENABLE_TYPE_WIDENING):
        return STRICT
    return MergeRules(widening=options.widening, iceberg=(enabled_version(metadata) or 0) >= 1)


def metadata_with(txn: OptimisticTransaction, schema: StructType) -> Metadata:
    """The table's metadata with other columns, which record how their types changed."""
    old, is_preview = txn.metadata, _PREVIEW in supported_features(txn.protocol)
    version = txn.read_version + 1 if is_preview else None
    recorded = record_type_changes(old.schema, schema, table_version=version)
    return replace(old, schema_string=format_schema(recorded))


def clustered_by(txn: OptimisticTransaction, paths: Sequence[Sequence[str]]) -> DomainMetadata:
    """The action that clusters the table by these columns, whose feature the protocol then has.

    Raises for columns without statistics.
    """
    checked_clustering_paths(txn.metadata, paths)
    txn.update_protocol(upgraded(txn.protocol, [_CLUSTERING_FEATURE]))
    mode = mapping_mode(txn.metadata)
    return clustering_domain(physical_path(txn.schema, path, mode) for path in paths)


def clustering_names(names: Sequence[str], schema: StructType) -> list[tuple[str, ...]]:
    """Columns to cluster by: one of exactly that name, or else a field, with dots in its path."""
    return [(name,) if name in schema else tuple(name.split(".")) for name in names]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Definition:
    """Sets the definition of a transaction's table for data with these columns."""

    txn: OptimisticTransaction
    data: StructType
    request: WriteRequest
    options: WriteOptions
    new_properties: NewProperties

    def create_table(self) -> None:
        self._check_changes_data("Creating a Delta table")
        self.txn.update_metadata(self._new_metadata())

    def replace_table(self) -> None:
        if self.options.overwrites_schema is False:
            raise OperationNotAllowedError(
                "DELTA_ILLEGAL_USAGE", option="overwriteSchema", operation="replacing"
            )
        is_clustered = _CLUSTERING_FEATURE in supported_features(self.txn.protocol)
        if self.request.partition_by and is_clustered:
            raise OperationNotAllowedError("DELTA_CLUSTERING_REPLACE_TABLE_WITH_PARTITIONED_TABLE")
        self.txn.update_metadata(self._new_metadata(), replaces_table=True)

    def overwrite_schema(self) -> None:
        self._check_columns()
        old, schema, columns = self.txn.metadata, as_nullable(self.data), self._partition_columns()
        if schema == old.schema and columns == old.partition_columns:
            return
        self._check_changes_data("Overwriting the schema or the partitioning")
        new = replace(old, schema_string=format_schema(schema), partition_columns=columns)
        self.txn.update_metadata(new, replaces_table=True)

    def merge_schema(self) -> None:
        old = self.txn.metadata
        rules, merges = merge_rules(old, self.options), self.options.merges_schema
        merged = evolve_schema(old.schema, self.data, rules) if merges else old.schema
        check_write_compatible(
            merged,
            self.data,
            table_id=old.id,
            table_partitions=old.partition_columns,
            data_partitions=self.request.partition_by,
            rules=rules,
        )
        if merged == old.schema:
            return
        self._check_changes_data("Changing the schema")
        self.txn.update_metadata(metadata_with(self.txn, merged))

    def check_partitions(self) -> None:
        """Check that data has the partition columns.

        For a write by the table's name a missing column is null, and so may all others be; `save`
        and `overwritePartitions` raise for a missing one, as delta-spark does.
        """
        table = self.txn.metadata
        if not table.partition_columns:
            return
        computed = filled_columns(table, self.txn.protocol)
        may_be_null = self.request.casts and not self.request.dynamic_partitions
        for f in table.partition_schema:
            found = self.data.get(f.name)
            if found is None and (f.name in computed or (may_be_null and f.nullable)):
                continue
            if found is None or found.data_type == VOID:
                raise SchemaError(
                    "DELTA_PARTITION_COLUMN_NOT_FOUND",
                    columnName=f.name,
                    schemaMap=", ".join(self.data.names),
                )
        if not may_be_null:
            check_data_columns(self.data, table.partition_columns)

    def clustering(self, *, replaces_all: bool) -> list[Action]:
        """The table's clustering by the request; other writes may only repeat the existing one."""
        txn, request = self.txn, self.request
        former = None if txn.snapshot is None else txn.snapshot.domains.get(CLUSTERING)
        if not request.cluster_by:
            if former is None or not replaces_all:
                return []
            # A replaced table without a clustering of its own is not clustered.
            if request.replaces_definition:
                return [tombstone(former)]
            # With its columns the table loses its clustering, as it loses its partitioning: the new
            # columns may not include the old ones or have statistics, and partitions exclude
            # clustering.
            unclustered = clustering_domain(())
            is_lost = self.options.overwrites_schema and former != unclustered
            return [unclustered] if is_lost else []
        paths = clustering_names(request.cluster_by, txn.schema)
        check_clustering(txn.schema, paths, request.partition_by)
        mode = mapping_mode(txn.metadata)
        columns = tuple(physical_path(txn.schema, path, mode) for path in paths)
        if not replaces_all:
            self._check_same_clustering(columns)
            return []
        wanted = clustered_by(txn, paths)
        return [] if former == wanted else [wanted]

    def _check_same_clustering(self, columns: tuple[tuple[str, ...], ...]) -> None:
        txn = self.txn
        existing = () if txn.snapshot is None else clustering_columns(txn.snapshot.domains) or ()
        if columns == existing:
            return
        mode = mapping_mode(txn.metadata)
        names = [column_name(logical_path(txn.schema, path, mode)) for path in existing]
        raise SchemaError(
            "DELTA_CLUSTERING_COLUMNS_MISMATCH",
            providedClusteringColumns=", ".join(self.request.cluster_by),
            existingClusteringColumns=", ".join(names),
        )

    def _new_metadata(self) -> Metadata:
        self._check_columns()
        data, table = self.data, self.request.as_table
        paths = clustering_names(self.request.cluster_by, data)
        check_clustering(data, paths, self.request.partition_by)
        own = {} if table is None else table.properties
        return Metadata(
            id=str(uuid4()),
            description=None if table is None else table.comment,
            schema_string=format_schema(as_nullable(data)),
            partition_columns=self._partition_columns(),
            configuration=dict(self.new_properties({**own, **self.options.properties})),
            created_time=self.txn.log.now_ms(),
        )

    def _partition_columns(self) -> tuple[str, ...]:
        """The requested partition columns in the data's spelling."""
        data, names = self.data, self.request.partition_by
        return tuple(f.name if (f := data.get(name)) else name for name in names)

    def _check_columns(self) -> None:
        check_partition_columns(self.data, self.request.partition_by)
        check_data_columns(self.data, self.request.partition_by)

    def _check_changes_data(self, operation: str) -> None:
        if not self.options.data_change:
            raise OperationNotAllowedError("DELTA_DATA_CHANGE_FALSE", op=operation)
