"""RESTORE [TABLE] t [TO] VERSION | TIMESTAMP AS OF x.

>>> parse_restore("RESTORE TABLE db.t TO FOR TIMESTAMP AS OF '2024-01-01'")
(('db', 't'), AsOf(version=None, timestamp='2024-01-01'))
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from pyspark_delta.spark.catalog import log_of, show_columns
from pyspark_delta.spark.commands.restore import run_restore
from pyspark_delta.spark.sql.grammar import StatementReader
from pyspark_delta.spark.sql.requests import Request
from pyspark_delta.spark.sql.targets import only_delta
from pyspark_delta.spark.sql.temporal import read_as_of
from pyspark_delta.spark.time_travel import AsOf


def run_restore_statement(request: Request) -> DataFrame:
    """Run the statement."""
    table, as_of = parse_restore(request.sql)
    name = only_delta(request.spark, table, "RESTORE")
    told = run_restore(request.spark, log_of(request.spark, name), as_of)
    show_columns(request.spark, name)
    return told


def parse_restore(sql: str) -> tuple[tuple[str, ...], AsOf]:
    """The table and what it becomes; StatementSyntaxError where `sql` does not say it."""
    read = StatementReader(sql)
    read.expect("RESTORE")
    read.takes("TABLE")
    table = read.name()
    read.takes("TO")
    as_of = read_as_of(read)
    if as_of is None:
        raise read.error()
    read.end()
    return table, as_of
