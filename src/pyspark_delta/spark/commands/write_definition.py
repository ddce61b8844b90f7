"""What a table becomes by a write: made, replaced, given new columns, or left as it is.

Decided on schemas, before a row is looked at.  Data that does not fit is refused here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from uuid import uuid4

from pyspark.sql.types import StructType as SparkStructType

from pyspark_delta.errors.table import OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.ops.clustering_columns import clustering_paths
from pyspark_delta.kernel.protocol.actions import Action, Metadata
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
from pyspark_delta.spark.commands.create_table import check_clustering
from pyspark_delta.spark.commands.write_options import WriteOptions
from pyspark_delta.spark.commands.write_request import WriteRequest
from pyspark_delta.spark.table_rows import filled_columns
from pyspark_delta.spark.types import from_spark

NewProperties = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Spark's mark of CHAR(n) and VARCHAR(n) in a column's metadata."""

# Metadata of a column that says how another table keeps it.
_FOREIGN_METADATA = (
    "delta.",
    "CURRENT_DEFAULT",
    "EXISTS_DEFAULT",
    "parquet.field.",
    CHAR_VARCHAR_KEY,
)
_CLUSTERING_FEATURE = "clustering"
_PREVIEW = "typeWidening-preview"


def data_schema(schema: SparkStructType) -> StructType:
    """What data brings: its columns without what ties them to the table they came from."""

    def own(f: StructField) -> StructField:
        kept = {
            key: value for key, value in f.metadata.items() if not key.startswith(_FOREIGN_METADATA)
        }
        return StructField(f.name, f.data_type, f.nullable, kept)

    found = map_fields(from_spark(schema), own)
    assert isinstance(found, StructType)
    check_no_duplicates(found)
    return found


def define_table(
    txn: OptimisticTransaction,
    data: StructType,
    request: WriteRequest,
    asked: WriteOptions,
    *,
    replaces_some: bool,
    new_properties: NewProperties,
) -> list[Action]:
    """Make the table fit the data as far as the user allows, or raise.

    The actions are those that the commit needs besides metadata and protocol.  `replaces_some`
    says that an overwrite leaves rows as they are, so that the table has to stay one;
    `new_properties` gives those of a new table for those that the user named.
    """
    if not data.fields:
        raise SchemaError("DELTA_EMPTY_DATA")
    is_overwrite = request.mode == "overwrite"
    replaces_all = is_overwrite and not replaces_some
    if txn.snapshot is None:
        return _create(txn, data, request, asked, new_properties)
    check_writable(txn.protocol, txn.log.store.root_uri)
    if request.replaces_definition and replaces_all:
        return _replace(txn, data, request, asked, new_properties)
    if replaces_all and asked.overwrites_schema:
        _overwrite_schema(txn, data, request, asked)
    else:
        # Who names other partition columns is told so, and not that the table's own are missing.
        if not request.partition_by:
            _check_partitions(txn, data, request)
        _merge_schema(txn, data, request, asked, is_overwrite=is_overwrite)
        if request.partition_by:
            _check_partitions(txn, data, request)
    return _clustering(txn, request, asked, replaces_all=replaces_all)


def merge_rules(metadata: Metadata, asked: WriteOptions) -> MergeRules:
    """How far types of the table follow the data's when columns are merged."""
    if not property_value(metadata.configuration, ENABLE_TYPE_WIDENING):
        return STRICT
    return MergeRules(widening=asked.widening, iceberg=(enabled_version(metadata) or 0) >= 1)


def _create(
    txn: OptimisticTransaction,
    data: StructType,
    request: WriteRequest,
    asked: WriteOptions,
    new_properties: NewProperties,
) -> list[Action]:
    if not asked.data_change:
        raise OperationNotAllowedError("DELTA_DATA_CHANGE_FALSE", op="Creating a Delta table")
    txn.update_metadata(_new_metadata(txn, data, request, asked, new_properties))
    return _clustering(txn, request, asked, replaces_all=True)


def _replace(
    txn: OptimisticTransaction,
    data: StructType,
    request: WriteRequest,
    asked: WriteOptions,
    new_properties: NewProperties,
) -> list[Action]:
    if asked.overwrites_schema is False:
        raise OperationNotAllowedError(
            "DELTA_ILLEGAL_USAGE", option="overwriteSchema", operation="replacing"
        )
    if request.partition_by and _CLUSTERING_FEATURE in supported_features(txn.protocol):
        raise OperationNotAllowedError("DELTA_CLUSTERING_REPLACE_TABLE_WITH_PARTITIONED_TABLE")
    txn.update_metadata(
        _new_metadata(txn, data, request, asked, new_properties), replaces_table=True
    )
    return _clustering(txn, request, asked, replaces_all=True)


def _new_metadata(
    txn: OptimisticTransaction,
    data: StructType,
    request: WriteRequest,
    asked: WriteOptions,
    new_properties: NewProperties,
) -> Metadata:
    check_partition_columns(data, request.partition_by)
    check_data_columns(data, request.partition_by)
    check_clustering(data, clustering_names(request.cluster_by, data), request.partition_by)
    table = request.as_table
    own = dict(asked.properties) if table is None else {**table.properties, **asked.properties}
    return Metadata(
        id=str(uuid4()),
        description=None if table is None else table.comment,
        schema_string=format_schema(as_nullable(data)),
        partition_columns=spelled(request.partition_by, data),
        configuration=dict(new_properties(own)),
        created_time=txn.log.now_ms(),
    )


def _overwrite_schema(
    txn: OptimisticTransaction, data: StructType, request: WriteRequest, asked: WriteOptions
) -> None:
    check_partition_columns(data, request.partition_by)
    check_data_columns(data, request.partition_by)
    old = txn.metadata
    columns = spelled(request.partition_by, data)
    if as_nullable(data) == old.schema and columns == old.partition_columns:
        return
    if not asked.data_change:
        raise OperationNotAllowedError(
            "DELTA_DATA_CHANGE_FALSE", op="Overwriting the schema or the partitioning"
        )
    schema_string = format_schema(as_nullable(data))
    txn.update_metadata(
        replace(old, schema_string=schema_string, partition_columns=columns), replaces_table=True
    )


def _merge_schema(
    txn: OptimisticTransaction,
    data: StructType,
    request: WriteRequest,
    asked: WriteOptions,
    *,
    is_overwrite: bool,
) -> None:
    old = txn.metadata
    rules = merge_rules(old, asked) if asked.merges_schema else STRICT
    merged = evolve_schema(old.schema, data, rules) if asked.merges_schema else old.schema
    check_write_compatible(
        merged,
        data,
        table_id=old.id,
        table_partitions=old.partition_columns,
        data_partitions=request.partition_by,
        rules=rules,
    )
    if merged == old.schema:
        return
    if not asked.data_change:
        raise OperationNotAllowedError("DELTA_DATA_CHANGE_FALSE", op="Changing the schema")
    version = txn.read_version + 1 if _PREVIEW in supported_features(txn.protocol) else None
    recorded = record_type_changes(old.schema, merged, table_version=version)
    txn.update_metadata(replace(old, schema_string=format_schema(recorded)))


def _clustering(
    txn: OptimisticTransaction, request: WriteRequest, asked: WriteOptions, *, replaces_all: bool
) -> list[Action]:
    """The table's clustering as the request says; other writes may only name what is there."""
    former = None if txn.snapshot is None else txn.snapshot.domains.get(CLUSTERING)
    if not request.cluster_by:
        if former is None or not replaces_all:
            return []
        # Whoever replaces a table and does not cluster it has one that is not clustered.
        if request.replaces_definition:
            return [tombstone(former)]
        # With its columns go those it was clustered by, as those it was partitioned by do: the
        # new ones need not be there, nor have statistics, and partitions exclude them.
        unclustered = clustering_domain(())
        return [unclustered] if asked.overwrites_schema and former != unclustered else []
    paths = clustering_names(request.cluster_by, txn.schema)
    check_clustering(txn.schema, paths, request.partition_by)
    mode = mapping_mode(txn.metadata)
    columns = [physical_path(txn.schema, path, mode) for path in paths]
    wanted = clustering_domain(columns)
    if not replaces_all:
        _check_same_clustering(txn, request, columns)
        return []
    clustering_paths(txn.metadata, paths)  # refuses what has no statistics to cluster by
    txn.update_protocol(upgraded(txn.protocol, [_CLUSTERING_FEATURE]))
    return [] if former == wanted else [wanted]


def _check_same_clustering(
    txn: OptimisticTransaction, request: WriteRequest, columns: Sequence[tuple[str, ...]]
) -> None:
    snapshot = txn.snapshot
    existing = () if snapshot is None else clustering_columns(snapshot.domains) or ()
    if tuple(columns) == existing:
        return
    mode = mapping_mode(txn.metadata)
    names = [column_name(logical_path(txn.schema, path, mode)) for path in existing]
    raise SchemaError(
        "DELTA_CLUSTERING_COLUMNS_MISMATCH",
        providedClusteringColumns=", ".join(request.cluster_by),
        existingClusteringColumns=", ".join(names),
    )


def spelled(names: Sequence[str], schema: StructType) -> tuple[str, ...]:
    """Column names as the schema spells them."""
    return tuple(f.name if (f := schema.get(name)) else name for name in names)


def clustering_names(names: Sequence[str], schema: StructType) -> list[tuple[str, ...]]:
    """Columns to cluster by: one of that very name, or else a field, steps with dots between."""
    return [(name,) if name in schema else tuple(name.split(".")) for name in names]


def _check_partitions(txn: OptimisticTransaction, data: StructType, request: WriteRequest) -> None:
    """Every row needs a value to be put by.

    Null is one.  For a write by the table's name a column that is not there is null, and so may
    all others be; `save` and `overwritePartitions` refuse it, as delta-spark does.
    """
    table = txn.metadata
    computed = filled_columns(table, txn.protocol) if table.partition_columns else ()
    may_be_null = request.casts and not request.dynamic_partitions
    for f in table.partition_schema:
        found = data.get(f.name)
        if found is None and (f.name in computed or (may_be_null and f.nullable)):
            continue
        if found is None or found.data_type == VOID:
            raise SchemaError(
                "DELTA_PARTITION_COLUMN_NOT_FOUND",
                columnName=f.name,
                schemaMap=", ".join(data.names),
            )
    if table.partition_columns and not may_be_null:
        check_data_columns(data, table.partition_columns)
