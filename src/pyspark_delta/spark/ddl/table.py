"""ALTER TABLE for a whole table: clustering, constraints, location, properties, name, identity.

COMMENT ON TABLE sets a property here too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_delta.errors import (
    ConstraintError,
    OperationNotAllowedError,
    SchemaError,
    TableNotFoundError,
)
from pyspark_delta.kernel.ops.features.row_tracking import (
    check_all_numbered,
    enablement_tags,
    enables_row_tracking,
)
from pyspark_delta.kernel.ops.schema.columns import checked_clustering_paths, find_column
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.constraints import (
    table_checks,
    with_constraint,
    without_constraint,
)
from pyspark_delta.kernel.protocol.identity_columns import identity_info, is_identity, synced
from pyspark_delta.kernel.protocol.operations import change_column, operation
from pyspark_delta.kernel.protocol.properties import (
    COLUMN_MAPPING_MODE,
    canonical_key,
    validate_properties,
)
from pyspark_delta.kernel.protocol.types import StructType, column_name
from pyspark_delta.kernel.sql.quoting import quoted_name
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.conf.setting_table import (
    ALLOW_ARBITRARY_PROPERTIES,
    ALLOW_REMOVING_MAPPING,
    BYPASS_LOCATION_CHECK,
    DROP_CONSTRAINT_IF_EXISTS,
    LOWER_HIGH_WATER_MARK,
)
from pyspark_delta.spark.ddl.alteration import Alteration
from pyspark_delta.spark.jvm.catalog.entries import (
    default_location,
    location_in_database,
    move_directory,
    move_entry,
)
from pyspark_delta.spark.jvm.failures import typed_jobs
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.maintenance.features import (
    enable_row_tracking,
    is_mapped,
    run_remove_column_mapping,
)
from pyspark_delta.spark.rules.alignment import column
from pyspark_delta.spark.rules.expressions import TableSql, new_check
from pyspark_delta.spark.scan.frame import read_snapshot
from pyspark_delta.spark.tables.column_checks import check_layout_names
from pyspark_delta.spark.tables.locations import open_log
from pyspark_delta.spark.tables.names import (
    TableName,
    log_of,
    look_up,
    schema_for_catalog,
    update_entry,
)
from pyspark_delta.spark.write.schema import clustered_by

_CLUSTERING_FEATURE = "clustering"
_COMMENT = "comment"


def run_cluster_by(spark: SparkSession, table: TableName, columns: Sequence[Sequence[str]]) -> None:
    """Cluster the table by these columns; no columns end its clustering.

    OPTIMIZE lays out rows by them from now on; files stay as they are until then.  PROTOCOL.md,
    "Clustered Table".
    """
    alteration = Alteration.start(spark, table)
    snapshot, schema = alteration.snapshot, alteration.schema
    if snapshot.metadata.partition_columns:
        raise OperationNotAllowedError(
            "DELTA_ALTER_TABLE_CLUSTER_BY_ON_PARTITIONED_TABLE_NOT_ALLOWED"
        )
    if not columns and _CLUSTERING_FEATURE not in alteration.features:
        return  # the table is not clustered, and needs no clustering feature
    check_layout_names(spark, schema, columns)
    paths = checked_clustering_paths(snapshot.metadata, columns)
    recorded = operation(
        "CLUSTER BY",
        oldClusteringColumns=",".join(column_name(path) for path in alteration.clustering),
        newClusteringColumns=",".join(column_name(path) for path in paths),
    )
    alteration.commit(None, recorded, [clustered_by(alteration.txn, paths)])


@typed_jobs
def run_add_constraint(spark: SparkSession, table: TableName, name: str, text: str) -> None:
    """Add a CHECK constraint, if it is true for every row of the table."""
    alteration = Alteration.start(spark, table)
    metadata = alteration.metadata
    configuration = with_constraint(metadata.configuration, name, text)
    condition = new_check(alteration.jvm, alteration.schema, TableSql(name=name, text=text))
    alteration.txn.filter_files()
    rows = read_snapshot(spark, alteration.snapshot)
    is_kept = condition.column
    count = rows.where(~is_kept | is_kept.isNull()).count()
    if count:
        raise ConstraintError(
            "DELTA_NEW_CHECK_CONSTRAINT_VIOLATION",
            numRows=count,
            tableName=table.label,
            checkConstraint=text,
        )
    new = replace(metadata, configuration=configuration)
    alteration.commit(new, operation("ADD CONSTRAINT", name=name, expr=text))


def run_drop_constraint(
    spark: SparkSession, table: TableName, name: str, *, if_exists: bool = False
) -> None:
    """Drop a CHECK constraint."""
    alteration = Alteration.start(spark, table)
    metadata = alteration.metadata
    known = {c.name.lower(): c.expression for c in table_checks(metadata.configuration)}
    configuration = without_constraint(
        metadata.configuration,
        name,
        if_exists=if_exists or DROP_CONSTRAINT_IF_EXISTS.of(spark),
        table=table.label,
    )
    new = replace(metadata, configuration=configuration)
    expression = known.get(name.lower())
    existed = "false" if expression is None else "true"
    recorded = operation("DROP CONSTRAINT", name=name, expr=expression, existed=existed)
    alteration.commit(new, recorded)


def run_set_location(spark: SparkSession, table: TableName, location: str) -> None:
    """Set the location of the catalog's name to the existing Delta table at `location`.

    That table must have the same columns.
    """
    if table.entry is None:
        raise OperationNotAllowedError("DELTA_CANNOT_SET_LOCATION_ON_PATH_IDENTIFIER")
    jvm = JvmSession(spark)
    old = log_of(spark, table).update().metadata
    place = location_in_database(jvm, table.entry.database, location)
    try:
        new = open_log(spark, place).update().metadata
    except TableNotFoundError:
        raise TableNotFoundError(
            "DELTA_MISSING_DELTA_TABLE", tableName=quoted_name(location)
        ) from None
    if not BYPASS_LOCATION_CHECK.of(spark) and _table_columns(old) != _table_columns(new):
        raise SchemaError(
            "DELTA_SET_LOCATION_SCHEMA_MISMATCH",
            original=old.schema.simple_string,
            destination=new.schema.simple_string,
        )
    move_entry(jvm, table.entry, place)
    moved = look_up(spark, table.entry.parts)
    assert moved is not None
    update_entry(spark, moved)


def run_set_properties(
    spark: SparkSession,
    table: TableName,
    properties: Mapping[str, str],
    log: DeltaLog | None = None,
    *,
    keeps_spelling: bool = False,
) -> None:
    """Set properties; those of the protocol change it, and a comment becomes the description.

    Some properties need more than new metadata: ids for every row (`delta.enableRowTracking`), or
    files without column mapping (`delta.columnMapping.mode`).  `log` is the table's when it was
    opened with options of its own.  With `keeps_spelling` the history has the keys as given.
    """
    log = log_of(spark, table) if log is None else log
    checking = Alteration.start(spark, table, log)
    given = {key: value for key, value in properties.items() if key != _COMMENT}
    changes = validate_properties(
        given,
        existing=checking.metadata.configuration,
        altering=True,
        allow_arbitrary=ALLOW_ARBITRARY_PROPERTIES.of(spark),
    )
    enable_row_tracking(spark, log, changes)
    removes = (changes.get(COLUMN_MAPPING_MODE.key) or "").lower() == "none"
    if removes and is_mapped(checking.metadata) and ALLOW_REMOVING_MAPPING.of(spark):
        run_remove_column_mapping(spark, log, keeps_property=True)
        if len(properties) == 1:
            return
    alteration = Alteration.start(spark, table, log)
    if enables_row_tracking(changes):
        check_all_numbered(alteration.snapshot)
    old = alteration.metadata
    new = replace(
        old,
        description=properties.get(_COMMENT, old.description),
        configuration={**old.configuration, **changes},
    )
    recorded = {**changes, **{key: properties[key] for key in properties if key == _COMMENT}}
    if keeps_spelling:
        recorded = dict(properties)
    changed = operation("SET TBLPROPERTIES", properties=recorded)
    alteration.commit(new, changed, tags=enablement_tags(changes))


def run_unset_properties(spark: SparkSession, table: TableName, keys: Sequence[str]) -> None:
    """Remove properties; those that are not set are ignored."""
    spelled = [canonical_key(key) for key in keys]
    alteration = Alteration.start(spark, table)
    if COLUMN_MAPPING_MODE.key in spelled and is_mapped(alteration.metadata):
        if ALLOW_REMOVING_MAPPING.of(spark):
            run_remove_column_mapping(spark, log_of(spark, table), keeps_property=False)
            if len(spelled) == 1:
                return
        alteration = Alteration.start(spark, table)
    old = alteration.metadata
    left = {key: value for key, value in old.configuration.items() if key not in spelled}
    description = None if _COMMENT in spelled else old.description
    new = replace(old, description=description, configuration=left)
    # Spark's second catalog interface always treats UNSET as IF EXISTS.
    recorded = operation("UNSET TBLPROPERTIES", properties=spelled, ifExists=True)
    alteration.commit(new, recorded)


def run_comment(spark: SparkSession, table: TableName, comment: str) -> None:
    """Set the description of the table."""
    run_set_properties(spark, table, {_COMMENT: comment})


def undo_move(spark: SparkSession, table: TableName, new_name: Sequence[str]) -> None:
    """Move a table's directory back, where a rename to `new_name` stopped after it moved it.

    ALTER TABLE RENAME TO is Spark's to run.  A catalog moves the directory of a managed table, and
    then changes the name.  A process that dies in between leaves a name without files, and a
    directory that keeps the catalog from trying again.  Nothing happens when the files are at the
    entry's location, when the new name is taken, or when a table with other columns is there.
    """
    entry = table.entry
    if entry is None or not entry.is_managed or entry.location is None:
        return
    if _columns_at(spark, entry.location) is not None:
        return
    parts = tuple(new_name) if len(new_name) > 1 else (entry.database, *new_name)
    target = look_up(spark, parts)
    if target is None or target.path is not None or target.entry is not None:
        return
    jvm = JvmSession(spark)
    moved = default_location(jvm, target.database, target.table)
    if _columns_at(spark, moved) == entry.schema:
        move_directory(jvm, moved, entry.location)


@typed_jobs
def run_sync_identity(spark: SparkSession, table: TableName, path: Sequence[str]) -> None:
    """Move the high-water mark of an identity column to the values that rows have.

    That is the largest value, or the smallest for a negative step.
    """
    alteration = Alteration.start(spark, table)
    resolved = find_column(alteration.schema, path)
    if len(resolved.path) > 1 or not is_identity(resolved.field):
        raise OperationNotAllowedError("DELTA_IDENTITY_COLUMNS_ALTER_NON_IDENTITY_COLUMN")
    alteration.txn.read_whole_table()
    rows = read_snapshot(spark, alteration.snapshot)
    furthest = F.max if identity_info(resolved.field).step > 0 else F.min
    row = rows.agg(furthest(column(resolved.field.name))).head()
    extreme = None if row is None else row[0]
    new = synced(resolved.field, extreme, allow_lowering=LOWER_HIGH_WATER_MARK.of(spark))
    schema = StructType(tuple(new if f.name == new.name else f for f in alteration.schema))
    alteration.commit_schema(schema, change_column((), resolved.field))


def _table_columns(metadata: Metadata) -> tuple[StructType, tuple[str, ...]]:
    return schema_for_catalog(metadata.schema), metadata.partition_columns


def _columns_at(spark: SparkSession, location: str) -> StructType | None:
    """The columns of the table at a location, in a catalog's form; None if there is no table."""
    try:
        return schema_for_catalog(open_log(spark, location).update().metadata.schema)
    except TableNotFoundError:
        return None
