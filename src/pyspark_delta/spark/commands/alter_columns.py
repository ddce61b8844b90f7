"""ALTER TABLE on columns: ADD, DROP, RENAME, ALTER, CHANGE, REPLACE.

No file is touched: rows that are there have nulls in a new column, keep their values under another
name, and are read with a wider type.  SET NOT NULL alone looks at the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

from pyspark.sql import Column, SparkSession

from pyspark_delta.errors.table import ConstraintError, OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.ops.alter_schema import (
    AddedColumn,
    ColumnChange,
    Position,
    add_columns,
    change_columns,
    drop_columns,
    is_below,
    lost_columns,
    rename_column,
    replace_columns,
    spelled_changes,
    spelled_columns,
)
from pyspark_delta.kernel.ops.column_paths import FoundColumn, find_column, find_struct, unresolved
from pyspark_delta.kernel.ops.column_types import as_declared
from pyspark_delta.kernel.protocol.column_defaults import FEATURE as DEFAULTS_FEATURE
from pyspark_delta.kernel.protocol.column_mapping import logical_path
from pyspark_delta.kernel.protocol.domains import clustering_columns
from pyspark_delta.kernel.protocol.operations import Operation, change_column, changed_columns
from pyspark_delta.kernel.protocol.operations import add_columns as columns_added
from pyspark_delta.kernel.protocol.operations import change_columns as columns_changed
from pyspark_delta.kernel.protocol.operations import drop_columns as columns_dropped
from pyspark_delta.kernel.protocol.operations import rename_column as column_renamed
from pyspark_delta.kernel.protocol.properties import STATS_COLUMNS
from pyspark_delta.kernel.protocol.stats_columns import (
    drop_from_column_list,
    rename_in_column_list,
)
from pyspark_delta.kernel.protocol.types import StructType, column_name
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.spark.catalog import TableName
from pyspark_delta.spark.column_alignment import column
from pyspark_delta.spark.commands.alter_table import Alteration
from pyspark_delta.spark.exact_names import check_spelled, is_exact, is_spelled
from pyspark_delta.spark.reader import read_snapshot
from pyspark_delta.spark.table_sql import TableSql, check_default


def run_add_columns(spark: SparkSession, table: TableName, added: Sequence[AddedColumn]) -> None:
    """Add columns, of which the rows that are there have nulls."""
    alteration = Alteration.start(spark, table)
    if is_exact(spark):
        _check_added_names(alteration.schema, added)
    schema = add_columns(alteration.schema, added)
    told = [
        (each.path[:-1], as_declared(each.field), _shown(each.position))
        for each in spelled_columns(alteration.schema, added)
    ]
    alteration.commit_schema(schema, columns_added(told))


def run_drop_columns(
    spark: SparkSession,
    table: TableName,
    paths: Sequence[Sequence[str]],
    *,
    if_exists: bool = False,
) -> None:
    """Drop columns; their values stay in files that nobody reads them from."""
    alteration = Alteration.start(spark, table)
    if is_exact(spark) and if_exists:
        paths = [path for path in paths if is_spelled(alteration.schema, path)]
    elif is_exact(spark):
        _check_names(alteration.schema, paths)
    schema, dropped = drop_columns(alteration.schema, paths, alteration.rules, if_exists=if_exists)
    if not dropped:
        return
    _check_droppable(alteration, dropped)
    configuration = _without_statistics(alteration, dropped)
    alteration.commit_schema(schema, columns_dropped(dropped), configuration=configuration)


def run_rename_column(
    spark: SparkSession, table: TableName, path: Sequence[str], name: str
) -> None:
    """Give a column another name; in files it keeps the one it has."""
    alteration = Alteration.start(spark, table)
    if is_exact(spark):
        _check_renamed(alteration.schema, path, name)
    schema, old = rename_column(alteration.schema, path, name, alteration.rules)
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
        column_renamed(old, new),
        partition_columns=partitions,
        configuration=configuration,
    )


def run_alter_columns(
    spark: SparkSession, table: TableName, changes: Sequence[ColumnChange]
) -> None:
    """Change types, comments, positions, defaults, and whether columns may be null."""
    alteration = Alteration.start(spark, table)
    if is_exact(spark):
        _check_changed_names(alteration.schema, changes)
    needed = spelled_changes(alteration.schema, changes, alteration.rules)
    if not needed:
        return
    schema, changed = change_columns(alteration.schema, needed, alteration.rules)
    _check_defaults(alteration, needed)
    for new in changed:
        old = find_column(alteration.schema, new.path)
        if old.field.data_type != new.field.data_type:
            alteration.check_dependents(old.path)
        if old.field.nullable and not new.field.nullable:
            _check_no_nulls(alteration, old)
    alteration.commit_schema(schema, _change_operation(needed, changed))


def run_replace_columns(spark: SparkSession, table: TableName, columns: StructType) -> None:
    """Give the table these columns; those of the same name stay the same."""
    alteration = Alteration.start(spark, table)
    schema = replace_columns(alteration.schema, columns, alteration.rules)
    lost = lost_columns(alteration.schema, schema)
    _check_droppable(alteration, lost)
    configuration = _without_statistics(alteration, lost)
    operation = changed_columns("REPLACE COLUMNS", [((), as_declared(f)) for f in columns])
    alteration.commit_schema(schema, operation, configuration=configuration)


def _check_names(schema: StructType, paths: Iterable[Sequence[str]]) -> None:
    """Refuse columns that the table spells otherwise, for a session that tells cases apart."""
    for path in paths:
        check_spelled(schema, path)


def _check_added_names(schema: StructType, added: Sequence[AddedColumn]) -> None:
    _check_names(schema, (each.path[:-1] for each in added if len(each.path) > 1))
    for each in added:
        if not is_spelled(schema, each.path):
            # Found in another case, which is no reason for Spark to refuse it, but one for Delta.
            raise SchemaError(
                "DELTA_DUPLICATE_COLUMNS_FOUND.ADDING_COLUMNS",
                duplicateCols=column_name(each.path),
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
    _check_names(schema, (each.path for each in changes))
    for each in changes:
        after = None if each.position is None else each.position.after
        if after is not None and not is_spelled(schema, (*each.path[:-1], after)):
            raise unresolved(schema, (*each.path[:-1], after))


def _without_statistics(
    alteration: Alteration, dropped: Sequence[Sequence[str]]
) -> dict[str, str | None]:
    """The table's properties, in which columns that are gone are listed for nothing."""
    configuration = dict(alteration.metadata.configuration)
    listed = configuration.get(STATS_COLUMNS.key)
    if listed is not None:
        # An empty list stays one: without it the first columns would have statistics again.
        configuration[STATS_COLUMNS.key] = drop_from_column_list(listed, dropped)
    return configuration


def _check_droppable(alteration: Alteration, paths: Sequence[tuple[str, ...]]) -> None:
    """Refuse to drop what the table is laid out by, or what its own SQL refers to."""
    partitions = [
        name
        for name in alteration.metadata.partition_columns
        if any(is_below((name,), path) for path in paths)
    ]
    if partitions:
        raise SchemaError(
            "DELTA_UNSUPPORTED_DROP_PARTITION_COLUMN", columnList=", ".join(partitions)
        )
    mode = mapping_mode(alteration.metadata)
    clustered = [
        logical_path(alteration.schema, physical, mode)
        for physical in clustering_columns(alteration.snapshot.domains) or ()
    ]
    used = [each for each in clustered if any(is_below(each, path) for path in paths)]
    if used:
        raise SchemaError(
            "DELTA_UNSUPPORTED_DROP_CLUSTERING_COLUMN",
            columnList=", ".join(column_name(each) for each in used),
        )
    for path in paths:
        alteration.check_dependents(path)


def _check_defaults(alteration: Alteration, changes: Sequence[ColumnChange]) -> None:
    """Refuse a default where the table has none, and one that its column cannot store."""
    for change in changes:
        if change.default is None:
            continue
        if DEFAULTS_FEATURE not in alteration.features:
            raise OperationNotAllowedError(
                "WRONG_COLUMN_DEFAULTS_FOR_DELTA_FEATURE_NOT_ENABLED", commandType="ALTER TABLE"
            )
        found = find_column(alteration.schema, change.path)
        name = column_name(found.path)
        if len(found.path) > 1:
            raise SchemaError(
                "DELTA_INVALID_COLUMN_DEFAULT", columnName=name, reason="it is a nested field"
            )
        wanted = found.field if change.new_type is None else change.new_type
        sql = TableSql(name=name, text=change.default)
        check_default(alteration.jvm, sql, wanted.data_type)


def _check_no_nulls(alteration: Alteration, found: FoundColumn) -> None:
    """Refuse NOT NULL while a row has none; no other writer may add one meanwhile."""
    alteration.txn.filter_files()
    rows = read_snapshot(alteration.spark, alteration.snapshot)
    count = rows.where(_value(found.path).isNull()).count()
    if count:
        raise ConstraintError(
            "DELTA_NEW_NOT_NULL_VIOLATION",
            numRows=count,
            tableName=alteration.table.shown,
            colName=column_name(found.path),
        )


def _value(path: Sequence[str]) -> Column:
    return reduce(lambda parent, name: parent.getField(name), path[1:], column(path[0]))


def _change_operation(changes: Sequence[ColumnChange], changed: Sequence[FoundColumn]) -> Operation:
    told = [
        (new.parent, new.field, _shown(change.position))
        for change, new in zip(changes, changed, strict=True)
    ]
    if len(told) > 1:
        return columns_changed(told)
    parent, f, position = told[0]
    return change_column(parent, f, position=position)


def _shown(position: Position | None) -> str | None:
    return None if position is None else str(position)
