"""GENERATE symlink_format_manifest FOR TABLE t.

>>> parse_generate("GENERATE symlink_format_manifest FOR TABLE db.t")
('symlink_format_manifest', ('db', 't'))
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from pyspark_delta.spark.commands.generate import run_generate
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans import empty_frame
from pyspark_delta.spark.sql.grammar import StatementReader
from pyspark_delta.spark.sql.optimized_table import optimized_table
from pyspark_delta.spark.sql.requests import Request


def run_generate_statement(request: Request) -> DataFrame:
    """Run the statement."""
    mode, table = parse_generate(request.sql)
    run_generate(optimized_table(request.spark, table, "GENERATE"), mode)
    return empty_frame(JvmSession(request.spark))


def parse_generate(sql: str) -> tuple[str, tuple[str, ...]]:
    """The mode and the table; StatementSyntaxError where `sql` does not say them."""
    read = StatementReader(sql)
    read.expect("GENERATE")
    mode = read.word()
    read.expect("FOR", "TABLE")
    table = read.name()
    read.end()
    return mode, table
