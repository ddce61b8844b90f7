"""ALTER TABLE on columns: ADD, DROP, RENAME, ALTER, CHANGE, REPLACE.

No file is rewritten: existing rows have nulls in a new column, keep their values under a new name,
and are read with a wider type.  Only SET NOT NULL reads the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, SparkSession

from pyspark_delta.errors import ConstraintError, OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.ops.schema import alter
from pyspark_delta.kernel.ops.schema.alter import AddedColumn, ColumnChange, Position, is_below
from pyspark_delta.kernel.ops.schema.columns import (
    ResolvedColumn,
    as_declared,
    find_column,
    find_struct,
    unresolved,
)
from pyspark_delta.kernel.protocol import operations
from pyspark_delta.kernel.protocol.column_defaults import DEFAULTS_FEATURE
from pyspark_delta.kernel.protocol.properties import STATS_COLUMNS
from pyspark_delta.kernel.protocol.stats_columns import drop_from_column_list, rename_in_column_list
from pyspark_delta.kernel.protocol.types import StructType, column_name
from pyspark_delta.spark.ddl.alteration import Alteration
from pyspark_delta.spark.jvm.failures import typed_jobs
from pyspark_delta.spark.rules.alignment import column
from pyspark_delta.spark.rules.expressions import TableSql, check_default
from pyspark_delta.spark.scan.frame import read_snapshot
from pyspark_delta.spark.tables.column_checks import check_spelled, is_exact, is_spelled
from pyspark_delta.spark.tables.names import TableName


def run_add_columns(spark: SparkSession, table: TableName, added: Sequence[AddedColumn]) -> None:
    """Add columns; existing rows have nulls in them."""
    alteration = Alteration.start(spark, table)
    if is_exact(spark):
        _check_added_names(alteration.schema, added)
    schema = alter.add_columns(alteration.schema, added)
    recorded = [
        (each.path[:-1], as_declared(each.field), _position_text(each.position))
        for each in alter.spelled_columns(alteration.schema, added)
    ]
    alteration.commit_schema(schema, operations.added_columns(recorded))


def run_drop_columns(
    spark: SparkSession,
    table: TableName,
    paths: Sequence[Sequence[str]],
    *,
    if_exists: bool = False,
) -> None:
    """Drop columns; their values remain in the files, where no reader uses them."""
    alteration = Alteration.start(spark, table)
    if is_exact(spark) and if_exists:
        paths = [path for path in paths if is_spelled(alteration.schema, path)]
    elif is_exact(spark):
        for path in paths:
            check_spelled(alteration.schema, path)
    schema, dropped = alter.drop_columns(
        alteration.schema, paths, alteration.rules, if_exists=if_exists
    )
    if not dropped:
        return
    _check_droppable(alteration, dropped)
    configuration = _without_statistics(alteration, dropped)
    recorded = operations.operation("DROP COLUMNS", columns=[column_name(path) for path in dropped])
    alteration.commit_schema(schema, recorded, configuration=configuration)


def run_rename_column(
    spark: SparkSession, table: TableName, path: Sequence[str], name: str
) -> None:
    """Rename a column; its physical name in files stays."""
    alteration = Alteration.start(spark, table)
    if is_exact(spark):
        _check_renamed(alteration.schema, path, name)
    schema, old = alter.rename_column(alteration.schema, path, name, alteration.rules)
    alteration.check_dependents(old)
    new = (*old[:-1], name)
    metadata = alteration.metadata
    partitions = metadata.partition_columns
    if len(old) == 1:
        partitions = tuple(name if each == old[0] else each for each in partitions)
    configuration = dict(metadata.configuration)
    listed = configuration.get(STATS_COLUMNS.key)
    if listed is not None:
        configuration[STATS_COLUMNS.key] = rename_in_column_list(listed, old, new)
    alteration.commit_schema(
        schema,
        operations.operation(
            "RENAME COLUMN", oldColumnPath=column_name(old), newColumnPath=column_name(new)
        ),
        partition_columns=partitions,
        configuration=configuration,
    )


@typed_jobs
def run_alter_columns(
    spark: SparkSession, table: TableName, changes: Sequence[ColumnChange]
) -> None:
    """Change types, comments, positions, defaults, and nullability."""
    alteration = Alteration.start(spark, table)
    if is_exact(spark):
        _check_changed_names(alteration.schema, changes)
    needed = alter.spelled_changes(alteration.schema, changes, alteration.rules)
    if not needed:
        return
    schema, changed = alter.change_columns(alteration.schema, needed, alteration.rules)
    _check_defaults(alteration, needed)
    for new in changed:
        old = find_column(alteration.schema, new.path)
        if old.field.data_type != new.field.data_type:
            alteration.check_dependents(old.path)
        if old.field.nullable and not new.field.nullable:
            _check_no_nulls(alteration, old)
    alteration.commit_schema(schema, _change_operation(needed, changed))


def run_replace_columns(spark: SparkSession, table: TableName, columns: StructType) -> None:
    """Replace the table's columns; columns of the same name are kept."""
    alteration = Alteration.start(spark, table)
    schema = alter.replace_columns(alteration.schema, columns, alteration.rules)
    lost = alter.lost_columns(alteration.schema, schema)
    _check_droppable(alteration, lost)
    configuration = _without_statistics(alteration, lost)
    operation = operations.changed_columns(
        "REPLACE COLUMNS", [((), as_declared(f)) for f in columns]
    )
    alteration.commit_schema(schema, operation, configuration=configuration)


def _check_added_names(schema: StructType, added: Sequence[AddedColumn]) -> None:
    for each in added:
        if len(each.path) > 1:
            check_spelled(schema, each.path[:-1])
    for each in added:
        if not is_spelled(schema, each.path):
            # Spark accepts a name in another case, but delta-spark does not.
            raise SchemaError(
                "DELTA_DUPLICATE_COLUMNS_FOUND.ADDING_COLUMNS", duplicateCols=column_name(each.path)
            )
        after = None if each.position is None else each.position.after
        _, struct = find_struct(schema, each.path[:-1])
        if after is not None and not is_spelled(struct, (after,)):
            raise SchemaError("FIELD_NOT_FOUND", fieldName=after, fields=", ".join(struct.names))


def _check_renamed(schema: StructType, path: Sequence[str], name: str) -> None:
    check_spelled(schema, path)
    _, struct = find_struct(schema, path[:-1])
    if name.lower() != path[-1].lower() and not is_spelled(struct, (name,)):
        raise SchemaError("DELTA_DUPLICATE_COLUMNS_FOUND.METADATA_UPDATE", duplicateCols=name)


def _check_changed_names(schema: StructType, changes: Sequence[ColumnChange]) -> None:
    for each in changes:
        check_spelled(schema, each.path)
    for each in changes:
        after = None if each.position is None else each.position.after
        if after is not None and not is_spelled(schema, (*each.path[:-1], after)):
            raise unresolved(schema, (*each.path[:-1], after))


def _without_statistics(
    alteration: Alteration, dropped: Sequence[Sequence[str]]
) -> dict[str, str | None]:
    """The table's properties, without dropped columns in the list of statistics columns."""
    configuration = dict(alteration.metadata.configuration)
    listed = configuration.get(STATS_COLUMNS.key)
    if listed is not None:
        # An empty list is kept: without it the first columns would have statistics again.
        configuration[STATS_COLUMNS.key] = drop_from_column_list(listed, dropped)
    return configuration


def _check_droppable(alteration: Alteration, paths: Sequence[tuple[str, ...]]) -> None:
    """Raise for columns that partitioning, clustering or SQL stored in the table uses."""
    partitions = [
        name
        for name in alteration.metadata.partition_columns
        if any(is_below((name,), path) for path in paths)
    ]
    if partitions:
        raise SchemaError(
            "DELTA_UNSUPPORTED_DROP_PARTITION_COLUMN", columnList=", ".join(partitions)
        )
    used = [each for each in alteration.clustering if any(is_below(each, path) for path in paths)]
    if used:
        raise SchemaError(
            "DELTA_UNSUPPORTED_DROP_CLUSTERING_COLUMN",
            columnList=", ".join(column_name(each) for each in used),
        )
    for path in paths:
        alteration.check_dependents(path)


def _check_defaults(alteration: Alteration, changes: Sequence[ColumnChange]) -> None:
    """Raise for a default that the table does not allow, or its column cannot store."""
    for change in changes:
        if change.default is None:
            continue
        if DEFAULTS_FEATURE not in alteration.features:
            raise OperationNotAllowedError(
                "WRONG_COLUMN_DEFAULTS_FOR_DELTA_FEATURE_NOT_ENABLED", commandType="ALTER TABLE"
            )
        resolved = find_column(alteration.schema, change.path)
        name = column_name(resolved.path)
        if len(resolved.path) > 1:
            raise SchemaError(
                "DELTA_INVALID_COLUMN_DEFAULT", columnName=name, reason="it is a nested field"
            )
        f = resolved.field if change.new_type is None else change.new_type
        check_default(alteration.jvm, TableSql(name=name, text=change.default), f.data_type)


def _check_no_nulls(alteration: Alteration, resolved: ResolvedColumn) -> None:
    """Raise for NOT NULL if a row has a null; the commit conflicts with writers that add one."""
    alteration.txn.filter_files()
    rows = read_snapshot(alteration.spark, alteration.snapshot)
    top, *fields = resolved.path
    count = rows.where(reduce(Column.getField, fields, column(top)).isNull()).count()
    if count:
        raise ConstraintError(
            "DELTA_NEW_NOT_NULL_VIOLATION",
            numRows=count,
            tableName=alteration.table.label,
            colName=column_name(resolved.path),
        )


def _change_operation(
    changes: Sequence[ColumnChange], changed: Sequence[ResolvedColumn]
) -> operations.Operation:
    recorded = [
        (new.parent, new.field, _position_text(change.position))
        for change, new in zip(changes, changed, strict=True)
    ]
    if len(recorded) > 1:
        return operations.altered_columns(recorded)
    parent, f, position = recorded[0]
    return operations.change_column(parent, f, position=position)


def _position_text(position: Position | None) -> str | None:
    return None if position is None else str(position)
