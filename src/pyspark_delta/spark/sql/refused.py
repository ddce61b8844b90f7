"""Statements that Spark would run on a catalog entry or on files, past the log: refused for Delta.

With the error that Spark has for delta-spark's tables, to which it says the same.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from pyspark_delta.spark.catalog import look_up_relation
from pyspark_delta.spark.jvm.analysis_errors import analysis_error
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.sql.grammar import StatementReader, StatementSyntaxError
from pyspark_delta.spark.sql.requests import Request


def run_refused(request: Request) -> DataFrame | None:
    """None for a table that is not Delta's."""
    verb = request.head.verb
    target = _loaded(request.sql) if verb == "LOAD DATA" else request.head.target
    table = look_up_relation(request.spark, target) if target else None
    if table is None or not table.is_delta:
        return None
    raise analysis_error(JvmSession(request.spark), "NOT_SUPPORTED_COMMAND_FOR_V2_TABLE", cmd=verb)


def _loaded(sql: str) -> tuple[str, ...]:
    """The table of LOAD DATA [LOCAL] INPATH 'place' [OVERWRITE] INTO TABLE t; empty for none."""
    read = StatementReader(sql)
    try:
        read.expect("LOAD", "DATA")
        read.takes("LOCAL")
        read.expect("INPATH")
        read.text()
        read.takes("OVERWRITE")
        read.expect("INTO", "TABLE")
        return read.name()
    except StatementSyntaxError:
        return ()  # Spark says what is wrong with it
