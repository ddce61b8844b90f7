"""ALTER TABLE and COMMENT ON, where the table is Delta's.

Spark's parser reads them, but for the words that Delta alone has: SYNC IDENTITY, DROP FEATURE.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.errors.table import OperationNotAllowedError
from pyspark_delta.kernel.ops.alter_schema import ColumnChange
from pyspark_delta.spark.catalog import TableName, look_up_relation
from pyspark_delta.spark.commands.alter_clustering import run_cluster_by
from pyspark_delta.spark.commands.alter_columns import (
    run_add_columns,
    run_alter_columns,
    run_drop_columns,
    run_rename_column,
    run_replace_columns,
)
from pyspark_delta.spark.commands.alter_constraints import run_add_constraint, run_drop_constraint
from pyspark_delta.spark.commands.alter_location import run_set_location
from pyspark_delta.spark.commands.alter_properties import (
    run_comment,
    run_set_properties,
    run_unset_properties,
)
from pyspark_delta.spark.commands.rename_table import undo_move
from pyspark_delta.spark.commands.sync_identity import run_sync_identity
from pyspark_delta.spark.jvm.analysis_errors import analysis_error
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parsed_alters import (
    AddColumns,
    AddConstraint,
    AlterColumns,
    Change,
    ClusterBy,
    CommentOnTable,
    DropColumns,
    DropConstraint,
    OtherAlter,
    RenameColumn,
    ReplaceColumns,
    SetLocation,
    SetProperties,
    UnsetProperties,
    parse_alter,
)
from pyspark_delta.spark.jvm.plans import empty_frame
from pyspark_delta.spark.sql.check_text import check_text
from pyspark_delta.spark.sql.drop_feature import is_drop_feature, run_drop_feature
from pyspark_delta.spark.sql.grammar import StatementReader, StatementSyntaxError
from pyspark_delta.spark.sql.requests import Request, delta_target
from pyspark_delta.spark.sql.targets import existing_table

# Spark's classes for statements, as users know them.
_RENAME = "RenameTable"
_DROP_FEATURE = "ALTER TABLE ... DROP FEATURE"
_PARTITIONS = frozenset({"AddPartitions", "DropPartitions", "RenamePartitions"})
_FOR_HIVE = {
    "RecoverPartitions": "ALTER TABLE ... RECOVER PARTITIONS",
    "SetTableSerDeProperties": "ALTER TABLE ... SET [SERDE|SERDEPROPERTIES]",
}


def run_alter(request: Request) -> DataFrame | None:
    """ALTER TABLE, and COMMENT ON TABLE; None when the table is not Delta's."""
    spark = request.spark
    jvm = JvmSession(spark)
    name = delta_target(request)
    if name is None and request.head.target:
        _check_own(request)
        return None
    if name is not None and request.head.verb == "ALTER TABLE":
        dropped = run_drop_feature(request, name)
        if dropped is not None:
            return dropped
        if (column := _synced_column(request.sql)) is not None:
            run_sync_identity(spark, name, column)
            return empty_frame(jvm)
    statement = parse_alter(jvm, request.sql, request.args)
    if name is None and statement.table is not None:
        name = _delta_table(spark, statement.table)
    if name is None:
        return None
    if _is_sparks(statement.change, name):
        if (new_name := _new_name(request.sql)) is not None:
            undo_move(spark, name, new_name)
        return None
    _run(spark, name, statement.change)
    return empty_frame(jvm)


def run_comment_on_column(request: Request) -> DataFrame | None:
    """COMMENT ON COLUMN table.column IS ..., in which only the catalog tells where a table ends."""
    read = StatementReader(request.sql)
    read.expect("COMMENT", "ON", "COLUMN")
    parts = read.name()
    for split in range(len(parts) - 1, 0, -1):
        name = _delta_table(request.spark, parts[:split])
        if name is not None:
            read.expect("IS")
            comment = None if read.takes("NULL") else read.text()
            read.end()
            change = ColumnChange(
                path=parts[split:], comment=comment, drops_comment=comment is None
            )
            run_alter_columns(request.spark, name, [change])
            return empty_frame(JvmSession(request.spark))
    return None


def _check_own(request: Request) -> None:
    """Refuse statements that Delta alone has, for what is no Delta table."""
    spark, table = request.spark, request.head.target
    if is_drop_feature(request.sql):
        existing_table(spark, table, _DROP_FEATURE)
        raise OperationNotAllowedError("DELTA_ONLY_OPERATION", operation=_DROP_FEATURE)
    if _synced_column(request.sql) is not None:
        existing_table(spark, table, "ALTER TABLE ... ALTER COLUMN")
        raise OperationNotAllowedError("DELTA_IDENTITY_COLUMNS_ALTER_NON_DELTA_FORMAT")


def _delta_table(spark: SparkSession, parts: Sequence[str]) -> TableName | None:
    found = look_up_relation(spark, parts)
    return found if found is not None and found.is_delta else None


def _synced_column(sql: str) -> tuple[str, ...] | None:
    """The column of ALTER TABLE ... ALTER COLUMN ... SYNC IDENTITY; None for other statements."""
    read = StatementReader(sql)
    try:
        read.expect("ALTER", "TABLE")
        read.name()
        if not (read.takes("ALTER") or read.takes("CHANGE")):
            return None
        read.takes("COLUMN")
        column = read.name()
        if not read.takes("SYNC", "IDENTITY"):
            return None
    except StatementSyntaxError:
        return None  # Spark's parser says better what is wrong with it
    read.end()
    return column


def _new_name(sql: str) -> tuple[str, ...] | None:
    """What ALTER TABLE ... RENAME TO makes of a name; None where an expression tells it."""
    read = StatementReader(sql)
    try:
        read.expect("ALTER", "TABLE")
        read.name()
        read.expect("RENAME", "TO")
        return read.name()
    except StatementSyntaxError:
        return None


def _is_sparks(change: Change, name: TableName) -> bool:
    """Whether only the catalog is concerned, which is Spark's to change."""
    return isinstance(change, OtherAlter) and change.kind == _RENAME and name.entry is not None


def _run(spark: SparkSession, name: TableName, change: Change) -> None:
    match change:
        case AddColumns(columns=columns):
            run_add_columns(spark, name, columns)
        case DropColumns(paths=paths, if_exists=if_exists):
            run_drop_columns(spark, name, paths, if_exists=if_exists)
        case RenameColumn(path=path, name=new_name):
            run_rename_column(spark, name, path, new_name)
        case AlterColumns(changes=changes):
            run_alter_columns(spark, name, changes)
        case ReplaceColumns(columns=columns):
            run_replace_columns(spark, name, columns)
        case SetProperties(properties=properties):
            run_set_properties(spark, name, properties)
        case UnsetProperties(keys=keys):
            run_unset_properties(spark, name, keys)
        case CommentOnTable(comment=comment):
            run_comment(spark, name, comment)
        case SetLocation(is_of_partition=True):
            raise _no_partitions(spark, name)
        case SetLocation(location=location):
            run_set_location(spark, name, location)
        case ClusterBy(columns=paths):
            run_cluster_by(spark, name, paths)
        case AddConstraint():
            _add_constraint(spark, name, change)
        case DropConstraint(cascade=True):
            raise _unsupported(spark, name, "DROP CONSTRAINT CASCADE")
        case DropConstraint(name=constraint, if_exists=if_exists):
            run_drop_constraint(spark, name, constraint, if_exists=if_exists)
        case OtherAlter(kind=kind):
            raise _refusal(spark, kind, name)


def _add_constraint(spark: SparkSession, name: TableName, change: AddConstraint) -> None:
    if change.text is None or change.name is None or change.characteristic:
        raise _unsupported(spark, name, "ADD CONSTRAINT")
    run_add_constraint(spark, name, change.name, check_text(change.text))


def _refusal(spark: SparkSession, kind: str, name: TableName) -> Exception:
    if kind in _PARTITIONS:
        return _no_partitions(spark, name)
    if kind in _FOR_HIVE:
        return analysis_error(
            JvmSession(spark), "NOT_SUPPORTED_COMMAND_FOR_V2_TABLE", cmd=_FOR_HIVE[kind]
        )
    return OperationNotAllowedError(
        "DELTA_OPERATION_NOT_ALLOWED_DETAIL", operation="ALTER TABLE", tableName=name.shown
    )


def _no_partitions(spark: SparkSession, name: TableName) -> Exception:
    condition = "INVALID_PARTITION_OPERATION.PARTITION_MANAGEMENT_IS_UNSUPPORTED"
    return analysis_error(JvmSession(spark), condition, name=name.shown)


def _unsupported(spark: SparkSession, name: TableName, operation: str) -> Exception:
    condition = "UNSUPPORTED_FEATURE.TABLE_OPERATION"
    return analysis_error(JvmSession(spark), condition, tableName=name.shown, operation=operation)
