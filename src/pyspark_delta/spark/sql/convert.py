"""CONVERT TO DELTA: the statement, and the command that it asks for.

>>> statement = parse_convert("CONVERT TO DELTA db.t PARTITIONED BY (day DATE, n INT)")
>>> statement.table, statement.collect_stats, statement.partition_columns
(('db', 't'), True, Piece(text='day DATE, n INT', start=38))
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from pyspark_delta.spark.commands.convert import ConvertToDeltaCommand
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parser import parse_columns
from pyspark_delta.spark.sql.grammar import Piece, StatementReader


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertStatement:
    """What a statement says; the partition columns are Spark's parser's to read."""

    table: tuple[str, ...]
    collect_stats: bool = True
    partition_columns: Piece | None = None


def parse_convert(sql: str) -> ConvertStatement:
    """The statement that `sql` is; StatementSyntaxError where it is none."""
    read = StatementReader(sql)
    read.expect("CONVERT", "TO", "DELTA")
    table = read.name()
    collect_stats = not read.takes("NO", "STATISTICS")
    columns = read.bracketed() if read.takes("PARTITIONED", "BY") else None
    read.end()
    return ConvertStatement(table=table, collect_stats=collect_stats, partition_columns=columns)


def run_convert(spark: SparkSession, sql: str) -> None:
    """Run the statement."""
    statement = parse_convert(sql)
    columns = statement.partition_columns
    schema = None
    if columns is not None:
        schema = parse_columns(JvmSession(spark), columns.text, statement=sql, start=columns.start)
    ConvertToDeltaCommand(statement.table, schema, statement.collect_stats).run(spark)
