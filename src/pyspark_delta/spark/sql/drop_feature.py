"""ALTER TABLE ... DROP FEATURE: the statement, and the command that it asks for.

>>> parse_drop_feature("ALTER TABLE db.t DROP FEATURE deletionVectors TRUNCATE HISTORY")
DropFeatureStatement(table=('db', 't'), feature='deletionVectors', truncate_history=True)
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from pyspark_delta.errors.table import TableNotFoundError
from pyspark_delta.spark.catalog import TableName, log_of
from pyspark_delta.spark.commands.drop_feature import run_drop
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans import empty_frame
from pyspark_delta.spark.sql.grammar import StatementReader, StatementSyntaxError
from pyspark_delta.spark.sql.requests import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class DropFeatureStatement:
    """What a statement says."""

    table: tuple[str, ...]
    feature: str
    truncate_history: bool = False


def parse_drop_feature(sql: str) -> DropFeatureStatement | None:
    """The statement that `sql` is, None for another one; StatementSyntaxError inside of it."""
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
    """Whether a statement that begins with ALTER TABLE is one of these."""
    try:
        return parse_drop_feature(sql) is not None
    except StatementSyntaxError:
        return False


def run_drop_feature(request: Request, name: TableName) -> DataFrame | None:
    """Run the statement on the Delta table of that name; None when it is another statement."""
    statement = parse_drop_feature(request.sql)
    if statement is None:
        return None
    log = log_of(request.spark, name)
    if not log.table_exists:
        raise TableNotFoundError("DELTA_MISSING_DELTA_TABLE", tableName=name.shown)
    run_drop(
        request.spark,
        log,
        statement.feature,
        truncate_history=statement.truncate_history,
    )
    return empty_frame(JvmSession(request.spark))
