"""CREATE TABLE and REPLACE TABLE without a query: a table's definition becomes a commit.

Where a log exists already, CREATE checks that it says the same and only makes the table known: so
it goes on where one was stopped between the commit and the catalog.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import uuid4

from pyspark.sql import SparkSession

from pyspark_delta.errors.table import (
    OperationNotAllowedError,
    SchemaError,
    TableNotFoundError,
)
from pyspark_delta.kernel.log.frames import add_files
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.ops.clustering_columns import clustering_paths
from pyspark_delta.kernel.protocol.actions import Action, Metadata, Protocol
from pyspark_delta.kernel.protocol.column_defaults import (
    current_default,
    default_columns,
    without_exists_defaults,
)
from pyspark_delta.kernel.protocol.column_mapping import physical_path, without_mapping
from pyspark_delta.kernel.protocol.domains import (
    CLUSTERING,
    clustering_columns,
    clustering_domain,
    tombstone,
)
from pyspark_delta.kernel.protocol.feature_upgrade import take_protocol_properties, upgraded
from pyspark_delta.kernel.protocol.features import supported_features
from pyspark_delta.kernel.protocol.operations import create_table, replace_table
from pyspark_delta.kernel.protocol.properties import PROPERTIES
from pyspark_delta.kernel.protocol.schema_checks import check_partition_columns
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.schema_merge import schema_differences
from pyspark_delta.kernel.protocol.types import StructType, column_name
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.catalog import TableName, already_there, not_there
from pyspark_delta.spark.commands.user_metadata import session_user_metadata
from pyspark_delta.spark.jvm.catalog import (
    defined_clustering,
    defined_properties,
    entry_comment,
    entry_partition_schema,
    entry_schema,
)
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.table_layout import check_layout
from pyspark_delta.spark.table_places import (
    TablePlace,
    known_name,
    new_table_properties,
    place_of,
    register,
)
from pyspark_delta.spark.table_sql import TableSql, check_default, check_generated_columns

_MOST_CLUSTERING_COLUMNS = 4
_CLUSTERING_FEATURE = "clustering"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDefinition:
    """What a user says about a table.

    An empty `schema` means that the log at `location` has it, or else that there are no columns.
    With `replaces` an existing table becomes this one, with `creates` one that is missing is made.
    A new table has at least the `protocol`.
    """

    name: TableName
    schema: StructType = field(default_factory=StructType)
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[tuple[str, ...], ...] = ()
    location: str | None = None
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    creates: bool = True
    replaces: bool = False
    if_not_exists: bool = False
    protocol: Protocol | None = None


def run_create_table(spark: SparkSession, definition: TableDefinition) -> None:
    """Make the table, or replace it, and let the catalog know."""
    name = definition.name
    completes = is_definition_only(spark, name)
    if completes and not definition.replaces:
        definition = _completing(spark, definition)
    if name.entry is not None and not (completes or definition.replaces):
        return _check_exists(spark, definition)
    _check_definition(spark, definition)
    place = place_of(spark, name, definition.location)
    snapshot = place.snapshot()
    by_log = name.path is not None or completes
    exists = snapshot is not None if by_log else name.entry is not None
    if exists and not definition.replaces:
        return _check_exists(spark, definition)
    if not exists and not (definition.creates or completes):
        raise not_there(spark, name)
    if exists or (snapshot is not None and definition.replaces):
        _replace(spark, place, definition, snapshot)
    elif snapshot is not None and (not place.is_managed or _is_unfinished(snapshot)):
        _check_same(spark, place, definition, snapshot)
    else:
        _create(spark, place, definition)
    register(spark, place)
    return None


def is_definition_only(spark: SparkSession, name: TableName) -> bool:
    """Whether the catalog has the table's definition, and there is no log of it yet."""
    if name.entry is None or not name.entry.is_sparks_own:
        return False
    return place_of(spark, name, None).is_definition_only()


def completed_table(spark: SparkSession, name: TableName) -> TableName:
    """The table, made as the catalog defines it where nobody has done that before.

    A session that is not enabled leaves the definition alone; the first write makes the table.
    """
    if not is_definition_only(spark, name):
        return name
    run_create_table(spark, TableDefinition(name=name, if_not_exists=True))
    return known_name(spark, name)


def _completing(spark: SparkSession, definition: TableDefinition) -> TableDefinition:
    """The definition that the catalog has, unless the statement brings columns of its own.

    Of IF NOT EXISTS those do not count: the name exists.
    """
    entry = definition.name.entry
    assert entry is not None
    if definition.schema.fields and not definition.if_not_exists:
        return definition
    jvm = JvmSession(spark)
    return replace(
        definition,
        schema=entry_schema(entry),
        partition_by=tuple(entry_partition_schema(entry).names),
        cluster_by=defined_clustering(jvm, entry),
        comment=entry_comment(entry),
        properties=defined_properties(jvm, entry),
    )


def _is_unfinished(snapshot: Snapshot) -> bool:
    """Whether somebody made the table, and was stopped before the catalog knew of it.

    A log that anybody wrote to since is a table of its own, and no managed one takes it over.
    """
    return snapshot.version == 0 and not snapshot.files.num_rows


def check_clustering(
    schema: StructType, cluster_by: Sequence[Sequence[str]], partition_by: Sequence[str]
) -> None:
    """Refuse clustering columns that are too many, missing, or beside partition columns."""
    if cluster_by and partition_by:
        raise OperationNotAllowedError("DELTA_CLUSTER_BY_WITH_PARTITIONED_BY")
    if len(cluster_by) > _MOST_CLUSTERING_COLUMNS:
        raise OperationNotAllowedError(
            "DELTA_CLUSTER_BY_INVALID_NUM_COLUMNS",
            numColumnsLimit=_MOST_CLUSTERING_COLUMNS,
            actualNumColumns=len(cluster_by),
        )
    for path in cluster_by:
        if schema.find(tuple(path)) is None:
            raise SchemaError(
                "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA",
                columnName=column_name(path),
                tableSchema=", ".join(schema.names),
            )


def _check_exists(spark: SparkSession, definition: TableDefinition) -> None:
    """There is such a table: fine if the user said so."""
    if not definition.if_not_exists:
        raise already_there(spark, definition.name)


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
    if not definition.schema.fields and not place.is_managed:
        _check_has_log(place)
    place.check_empty()
    txn = place.log.start_transaction()
    if definition.protocol is not None:
        txn.update_protocol(definition.protocol)
    txn.update_metadata(_metadata(spark, txn, definition))
    actions = _clustering_actions(txn, definition)
    clustered = [column_name(path) for path in definition.cluster_by]
    if definition.replaces:
        operation = replace_table(
            txn.metadata, is_managed=place.is_managed, or_create=True, cluster_by=clustered
        )
    else:
        operation = create_table(txn.metadata, is_managed=place.is_managed, cluster_by=clustered)
    txn.commit(actions, operation, user_metadata=session_user_metadata(spark))


def _replace(
    spark: SparkSession,
    place: TablePlace,
    definition: TableDefinition,
    snapshot: Snapshot | None,
) -> None:
    if snapshot is None:
        raise TableNotFoundError(
            "DELTA_METADATA_ABSENT_EXISTING_CATALOG_TABLE",
            tableName=place.name.shown,
            tablePath=place.location,
            tableNameForDropCmd=place.name.shown,
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
    operation = replace_table(
        txn.metadata,
        is_managed=place.is_managed,
        or_create=definition.creates,
        cluster_by=[column_name(path) for path in definition.cluster_by],
    )
    txn.commit([*actions, *clustering], operation, user_metadata=session_user_metadata(spark))


def _metadata(
    spark: SparkSession, txn: OptimisticTransaction, definition: TableDefinition
) -> Metadata:
    schema = without_exists_defaults(definition.schema)
    spelled = tuple(schema[name].name for name in definition.partition_by)
    return Metadata(
        id=str(uuid4()),
        description=definition.comment,
        schema_string=format_schema(schema),
        partition_columns=spelled,
        configuration=dict(new_table_properties(spark, definition.properties)),
        created_time=txn.log.now_ms(),
    )


def _clustering_actions(txn: OptimisticTransaction, definition: TableDefinition) -> list[Action]:
    if not definition.cluster_by:
        return []
    clustering_paths(txn.metadata, definition.cluster_by)  # refuses what cannot be
    txn.update_protocol(upgraded(txn.protocol, [_CLUSTERING_FEATURE]))
    mode = mapping_mode(txn.metadata)
    return [
        clustering_domain(physical_path(txn.schema, path, mode) for path in definition.cluster_by)
    ]


def _check_has_log(place: TablePlace) -> None:
    """Refuse files that no log tells of: a table without columns can have none."""
    if place.has_files():
        raise SchemaError(
            "DELTA_CREATE_EXTERNAL_TABLE_WITHOUT_TXN_LOG",
            tableName=place.name.shown,
            path=place.location,
            logPath=f"{place.location.rstrip('/')}/_delta_log",
        )


def _check_same(
    spark: SparkSession, place: TablePlace, definition: TableDefinition, snapshot: Snapshot
) -> None:
    """Refuse a definition that says anything else than the log does."""
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
        # A table that was just made by these words has the session's defaults besides, and what
        # some properties bring with them.
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
    """Without what Delta writes by itself, and without what is said of the protocol."""
    own, _ = take_protocol_properties(properties)
    return {
        key: value
        for key, value in own.items()
        if key not in PROPERTIES or PROPERTIES[key].settable
    }
