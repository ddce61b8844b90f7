"""ALTER TABLE, COMMENT ON TABLE and COMMENT ON COLUMN of a Delta table.

Spark's parser reads all but three: SYNC IDENTITY and DROP FEATURE, which are Delta's own, and
COMMENT ON COLUMN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.errors import OperationNotAllowedError, TableNotFoundError
from pyspark_delta.kernel.ops.schema.alter import ColumnChange
from pyspark_delta.kernel.protocol.constraints import constraint_text
from pyspark_delta.spark.ddl.columns import (
    run_add_columns,
    run_alter_columns,
    run_drop_columns,
    run_rename_column,
    run_replace_columns,
)
from pyspark_delta.spark.ddl.table import (
    run_add_constraint,
    run_cluster_by,
    run_comment,
    run_drop_constraint,
    run_set_location,
    run_set_properties,
    run_sync_identity,
    run_unset_properties,
    undo_move,
)
from pyspark_delta.spark.jvm.failures import analysis_error
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parser.alters import AlterStatement, ConstraintClause, parse_alter
from pyspark_delta.spark.maintenance.features import run_drop
from pyspark_delta.spark.sql.grammar import StatementReader, StatementSyntaxError
from pyspark_delta.spark.sql.statement import (
    Command,
    Request,
    command,
    delta_target,
    existing_table,
)
from pyspark_delta.spark.tables.names import TableName, log_of, look_up_relation

# Names of Spark's plan classes, with the names that error messages give their statements.
_RENAME_TABLE = "RenameTable"
_DROP_FEATURE = "ALTER TABLE ... DROP FEATURE"
_PARTITION_CHANGES = frozenset({"AddPartitions", "DropPartitions", "RenamePartitions"})
_HIVE_CHANGES = {
    "RecoverPartitions": "ALTER TABLE ... RECOVER PARTITIONS",
    "SetTableSerDeProperties": "ALTER TABLE ... SET [SERDE|SERDEPROPERTIES]",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DropFeatureStatement:
    """ALTER TABLE ... DROP FEATURE, parsed."""

    table: tuple[str, ...]
    feature: str
    truncate_history: bool = False


def parse_drop_feature(sql: str) -> DropFeatureStatement | None:
    """Parse DROP FEATURE; None for another ALTER TABLE, StatementSyntaxError after DROP FEATURE.

    >>> parse_drop_feature("ALTER TABLE db.t DROP FEATURE deletionVectors TRUNCATE HISTORY")
    DropFeatureStatement(table=('db', 't'), feature='deletionVectors', truncate_history=True)
    """
    read = StatementReader(sql)
    read.expect("ALTER", "TABLE")
    table = read.name()
    if not read.takes("DROP", "FEATURE"):
        return None
    feature = read.place()
    truncates = read.takes("TRUNCATE", "HISTORY")
    read.end()
    name = feature if isinstance(feature, str) else ".".join(feature)
    return DropFeatureStatement(table=table, feature=name, truncate_history=truncates)


def is_drop_feature(sql: str) -> bool:
    """Whether a statement that begins with ALTER TABLE is a DROP FEATURE."""
    try:
        return parse_drop_feature(sql) is not None
    except StatementSyntaxError:
        return False


def drop_feature_command(request: Request, name: TableName) -> Command | None:
    """DROP FEATURE on the Delta table of that name; None for another ALTER TABLE."""
    statement = parse_drop_feature(request.sql)
    if statement is None:
        return None
    log = log_of(request.spark, name)
    if not log.table_exists:
        raise TableNotFoundError("DELTA_MISSING_DELTA_TABLE", tableName=name.label)
    return command(
        request.spark,
        lambda: run_drop(
            request.spark, log, statement.feature, truncate_history=statement.truncate_history
        ),
    )


def alter_command(request: Request) -> Command | None:
    """ALTER TABLE or COMMENT ON TABLE; None if the table is not a Delta table."""
    spark = request.spark
    jvm = JvmSession(spark)
    name = delta_target(request)
    if name is None and request.head.target:
        _refuse_delta_only(request)
        return None
    if name is not None and request.head.verb == "ALTER TABLE":
        dropped = drop_feature_command(request, name)
        if dropped is not None:
            return dropped
        if (column := _synced_column(request.sql)) is not None:
            return command(request.spark, partial(run_sync_identity, spark, name, column))
    statement = parse_alter(jvm, request.sql, request.args)
    if name is None and statement.table is not None:
        name = _delta_table(spark, statement.table)
    if name is None:
        return None
    if statement.kind == _RENAME_TABLE and name.entry is not None:
        return Command(run=partial(_rename, request, name))  # only the catalog changes
    return command(request.spark, partial(_run, spark, name, statement))


def _rename(request: Request, name: TableName) -> DataFrame:
    if (new_name := _new_name(request.sql)) is not None:
        undo_move(request.spark, name, new_name)
    return request.run(request.sql)


def column_comment_command(request: Request) -> Command | None:
    """COMMENT ON COLUMN table.column IS ...; a lookup finds where the table's name ends."""
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
            return command(request.spark, partial(run_alter_columns, request.spark, name, [change]))
    return None


def _refuse_delta_only(request: Request) -> None:
    """Raise for Delta's own statements on a table that is not a Delta table."""
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
        return None  # Spark's parser has a better error
    read.end()
    return column


def _new_name(sql: str) -> tuple[str, ...] | None:
    """The new name of ALTER TABLE ... RENAME TO; None where it is an expression."""
    read = StatementReader(sql)
    try:
        read.expect("ALTER", "TABLE")
        read.name()
        read.expect("RENAME", "TO")
        return read.name()
    except StatementSyntaxError:
        return None


def _run(spark: SparkSession, name: TableName, statement: AlterStatement) -> None:
    run = _RUNNERS.get(statement.kind)
    if run is None:
        raise _refusal(spark, statement.kind, name)
    run(spark, name, **statement.arguments)


def _set_location(
    spark: SparkSession, name: TableName, location: str, *, is_of_partition: bool
) -> None:
    if is_of_partition:
        raise _no_partitions(spark, name)
    run_set_location(spark, name, location)


def _add_constraint(spark: SparkSession, name: TableName, clause: ConstraintClause) -> None:
    if clause.text is None or clause.name is None or clause.characteristic:
        raise _unsupported(spark, name, "ADD CONSTRAINT")
    run_add_constraint(spark, name, clause.name, constraint_text(clause.text))


def _drop_constraint(
    spark: SparkSession, table: TableName, name: str, *, if_exists: bool, cascade: bool
) -> None:
    if cascade:
        raise _unsupported(spark, table, "DROP CONSTRAINT CASCADE")
    run_drop_constraint(spark, table, name, if_exists=if_exists)


# By the name of Spark's class for a clause; the parameters are those of `AlterStatement.arguments`.
_RUNNERS: Mapping[str, Callable[..., None]] = {
    "AddColumns": run_add_columns,
    "DropColumns": run_drop_columns,
    "RenameColumn": run_rename_column,
    "AlterColumns": run_alter_columns,
    "ReplaceColumns": run_replace_columns,
    "SetTableProperties": run_set_properties,
    "AlterTableCollation": run_set_properties,
    "UnsetTableProperties": run_unset_properties,
    "CommentOnTable": run_comment,
    "SetTableLocation": _set_location,
    "AlterTableClusterBy": run_cluster_by,
    "AddCheckConstraint": _add_constraint,
    "AddConstraint": _add_constraint,
    "DropConstraint": _drop_constraint,
}


def _refusal(spark: SparkSession, kind: str, name: TableName) -> Exception:
    if kind in _PARTITION_CHANGES:
        return _no_partitions(spark, name)
    if kind in _HIVE_CHANGES:
        return analysis_error(
            JvmSession(spark), "NOT_SUPPORTED_COMMAND_FOR_V2_TABLE", cmd=_HIVE_CHANGES[kind]
        )
    return OperationNotAllowedError(
        "DELTA_OPERATION_NOT_ALLOWED_DETAIL", operation="ALTER TABLE", tableName=name.label
    )


def _no_partitions(spark: SparkSession, name: TableName) -> Exception:
    condition = "INVALID_PARTITION_OPERATION.PARTITION_MANAGEMENT_IS_UNSUPPORTED"
    return analysis_error(JvmSession(spark), condition, name=name.label)


def _unsupported(spark: SparkSession, name: TableName, operation: str) -> Exception:
    condition = "UNSUPPORTED_FEATURE.TABLE_OPERATION"
    return analysis_error(JvmSession(spark), condition, tableName=name.label, operation=operation)
