"""CREATE TABLE and REPLACE TABLE without a query: a table's definition becomes a commit.

Where a log exists already, CREATE checks that it has the same definition, and only updates the
catalog.  So it completes a statement that was stopped between the commit and the catalog.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from uuid import uuid4

from pyspark.sql import SparkSession

from pyspark_delta.errors import OperationNotAllowedError, SchemaError, TableNotFoundError
from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.actions import Action, Metadata
from pyspark_delta.kernel.protocol.column_defaults import (
    current_default,
    default_columns,
    without_exists_defaults,
)
from pyspark_delta.kernel.protocol.column_mapping import physical_path, without_mapping
from pyspark_delta.kernel.protocol.domains import CLUSTERING, clustering_columns, tombstone
from pyspark_delta.kernel.protocol.feature_upgrade import take_protocol_properties
from pyspark_delta.kernel.protocol.features import supported_features
from pyspark_delta.kernel.protocol.operations import Operation, define_table
from pyspark_delta.kernel.protocol.properties import PROPERTIES
from pyspark_delta.kernel.protocol.schema_checks import check_partition_columns
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.schema_merge import schema_differences
from pyspark_delta.kernel.protocol.types import column_name
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.conf.setting_table import USER_METADATA
from pyspark_delta.spark.jvm.catalog.entries import (
    CatalogEntry,
    defined_clustering,
    defined_properties,
)
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parser.plans import TableDefinition
from pyspark_delta.spark.rules.expressions import TableSql, check_default, check_generated_columns
from pyspark_delta.spark.tables.column_checks import check_clustering, check_layout
from pyspark_delta.spark.tables.names import TableName, missing_table_error, table_exists_error
from pyspark_delta.spark.tables.registration import (
    TablePlace,
    is_definition_only,
    known_name,
    new_table_properties,
    place_of,
    register,
)
from pyspark_delta.spark.write.schema import clustered_by

_CLUSTERING_FEATURE = "clustering"


def run_create_table(spark: SparkSession, name: TableName, definition: TableDefinition) -> None:
    """Create or replace the table of that name, and update the catalog."""
    completes = is_definition_only(spark, name)
    if completes and not definition.replaces:
        definition = _completing(spark, name.entry, definition)
    if name.entry is not None and not (completes or definition.replaces):
        return _check_exists(spark, name, definition)
    _check_definition(spark, definition)
    place = place_of(spark, name, definition.location)
    snapshot = place.snapshot()
    by_log = name.path is not None or completes
    exists = snapshot is not None if by_log else name.entry is not None
    if exists and not definition.replaces:
        return _check_exists(spark, name, definition)
    if not exists and not (definition.creates or completes):
        raise missing_table_error(spark, name)
    if exists or (snapshot is not None and definition.replaces):
        _replace(spark, place, definition, snapshot)
    elif snapshot is not None and (not place.is_managed or _is_unfinished(snapshot)):
        _check_same(spark, place, definition, snapshot)
    else:
        _create(spark, place, definition)
    register(spark, place)
    return None


def completed_table(spark: SparkSession, name: TableName) -> TableName:
    """The table; it is created by the catalog's definition if it has no log yet.

    A session that is not enabled writes only the definition to the catalog; the first write creates
    the table.
    """
    if not is_definition_only(spark, name):
        return name
    run_create_table(spark, name, TableDefinition(if_not_exists=True))
    return known_name(spark, name)


def _completing(
    spark: SparkSession, entry: CatalogEntry | None, definition: TableDefinition
) -> TableDefinition:
    """The definition in the catalog, unless the statement has columns of its own.

    IF NOT EXISTS ignores the statement's columns, because the name exists.
    """
    assert entry is not None
    if definition.schema.fields and not definition.if_not_exists:
        return definition
    jvm = JvmSession(spark)
    return replace(
        definition,
        schema=entry.schema,
        partition_by=tuple(entry.partition_schema.names),
        cluster_by=defined_clustering(jvm, entry),
        comment=entry.comment,
        properties=defined_properties(jvm, entry),
    )


def _is_unfinished(snapshot: Snapshot) -> bool:
    """Whether a statement made the table, and was stopped before it updated the catalog.

    A log with later commits is an independent table, and no managed table takes it over.
    """
    return snapshot.version == 0 and not snapshot.files.num_rows


def _check_exists(spark: SparkSession, name: TableName, definition: TableDefinition) -> None:
    if not definition.if_not_exists:
        raise table_exists_error(spark, name)


def _check_definition(spark: SparkSession, definition: TableDefinition) -> None:
    schema = definition.schema
    if schema.fields:
        check_layout(spark, schema, definition.partition_by, definition.cluster_by)
        check_partition_columns(schema, definition.partition_by)
        check_clustering(schema, definition.cluster_by, definition.partition_by)
        check_generated_columns(JvmSession(spark), schema)
        for f in default_columns(schema):
            default = TableSql(name=f.name, text=current_default(f) or "")
            check_default(JvmSession(spark), default, f.data_type)
    elif definition.replaces:
        raise SchemaError("DELTA_SCHEMA_NOT_PROVIDED")


def _create(spark: SparkSession, place: TablePlace, definition: TableDefinition) -> None:
    if not definition.schema.fields and not place.is_managed and place.has_files():
        raise SchemaError(  # a table without a log has no columns
            "DELTA_CREATE_EXTERNAL_TABLE_WITHOUT_TXN_LOG",
            tableName=place.name.label,
            path=place.location,
            logPath=f"{place.location.rstrip('/')}/_delta_log",
        )
    place.check_empty()
    txn = place.log.start_transaction()
    if definition.protocol is not None:
        txn.update_protocol(definition.protocol)
    txn.update_metadata(_metadata(spark, txn, definition))
    actions = _clustering_actions(txn, definition)
    operation = _operation(txn, place, definition, or_create=True)
    txn.commit(actions, operation, user_metadata=USER_METADATA.of(spark))


def _replace(
    spark: SparkSession, place: TablePlace, definition: TableDefinition, snapshot: Snapshot | None
) -> None:
    if snapshot is None:
        raise TableNotFoundError(
            "DELTA_METADATA_ABSENT_EXISTING_CATALOG_TABLE",
            tableName=place.name.label,
            tablePath=place.location,
            tableNameForDropCmd=place.name.label,
        )
    if definition.partition_by and _CLUSTERING_FEATURE in supported_features(snapshot.protocol):
        raise OperationNotAllowedError("DELTA_CLUSTERING_REPLACE_TABLE_WITH_PARTITIONED_TABLE")
    txn = place.log.start_transaction()
    removed = place.log.now_ms()
    txn.update_metadata(_metadata(spark, txn, definition), replaces_table=True)
    actions: list[Action] = [file.remove(removed) for file in add_files(txn.filter_files())]
    clustering = _clustering_actions(txn, definition)
    former = snapshot.domains.get(CLUSTERING)
    if former is not None and not clustering:
        clustering = [tombstone(former)]
    operation = _operation(txn, place, definition, or_create=definition.creates)
    txn.commit([*actions, *clustering], operation, user_metadata=USER_METADATA.of(spark))


def _operation(
    txn: OptimisticTransaction, place: TablePlace, definition: TableDefinition, *, or_create: bool
) -> Operation:
    is_managed, columns = place.is_managed, [column_name(path) for path in definition.cluster_by]
    verb = "create"
    if definition.replaces:
        verb = "create or replace" if or_create else "replace"
    return define_table(verb, txn.metadata, is_managed=is_managed, cluster_by=columns)


def _metadata(
    spark: SparkSession, txn: OptimisticTransaction, definition: TableDefinition
) -> Metadata:
    schema = without_exists_defaults(definition.schema)
    return Metadata(
        id=str(uuid4()),
        description=definition.comment,
        schema_string=format_schema(schema),
        partition_columns=tuple(schema[name].name for name in definition.partition_by),
        configuration=dict(new_table_properties(spark, definition.properties)),
        created_time=txn.log.now_ms(),
    )


def _clustering_actions(txn: OptimisticTransaction, definition: TableDefinition) -> list[Action]:
    return [clustered_by(txn, definition.cluster_by)] if definition.cluster_by else []


def _check_same(
    spark: SparkSession, place: TablePlace, definition: TableDefinition, snapshot: Snapshot
) -> None:
    metadata = snapshot.metadata
    if definition.schema.fields:
        specified = without_exists_defaults(definition.schema)
        differences = schema_differences(without_mapping(metadata.schema), specified)
        if differences:
            raise SchemaError(
                "DELTA_CREATE_TABLE_SCHEME_MISMATCH",
                path=place.location,
                specifiedSchema=specified,
                existingSchema=metadata.schema,
                schemaDifferences="; ".join(differences),
            )
        if definition.partition_by != metadata.partition_columns:
            raise SchemaError(
                "DELTA_CREATE_TABLE_WITH_DIFFERENT_PARTITIONING",
                path=place.location,
                specifiedColumns=", ".join(definition.partition_by),
                existingColumns=", ".join(metadata.partition_columns),
            )
        _check_same_clustering(place, definition, snapshot)
    if definition.properties:
        specified_properties = _comparable(definition.properties)
        existing = _comparable(metadata.configuration)
        # A table that the same statement just made also has the session's defaults, and whatever
        # some properties imply.
        made = _comparable(new_table_properties(spark, definition.properties))
        is_made = _is_unfinished(snapshot) and made.items() <= existing.items()
        if specified_properties != existing and not is_made:
            raise SchemaError(
                "DELTA_CREATE_TABLE_WITH_DIFFERENT_PROPERTY",
                path=place.location,
                specifiedProperties=specified_properties,
                existingProperties=existing,
            )


def _check_same_clustering(
    place: TablePlace, definition: TableDefinition, snapshot: Snapshot
) -> None:
    schema, mode = snapshot.metadata.schema, mapping_mode(snapshot.metadata)
    existing = clustering_columns(snapshot.domains) or ()
    specified = tuple(tuple(physical_path(schema, path, mode)) for path in definition.cluster_by)
    if specified != existing:
        raise SchemaError(
            "DELTA_CREATE_TABLE_WITH_DIFFERENT_CLUSTERING",
            path=place.location,
            specifiedColumns=", ".join(column_name(path) for path in definition.cluster_by),
            existingColumns=", ".join(column_name(path) for path in existing),
        )


def _comparable(properties: Mapping[str, str | None]) -> dict[str, str | None]:
    """Properties without those that Delta writes itself, and those about the protocol."""
    own, _ = take_protocol_properties(properties)
    return {
        key: value
        for key, value in own.items()
        if key not in PROPERTIES or PROPERTIES[key].settable
    }
