"""SHALLOW CLONE and CONVERT TO DELTA: make Delta tables from existing files.

CREATE or REPLACE TABLE t SHALLOW CLONE s [AS OF x] [TBLPROPERTIES (...)] [LOCATION 'l']
CONVERT TO DELTA t [NO STATISTICS] [PARTITIONED BY (column type, ...)]
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from pyspark_delta.spark.convert.command import ConvertToDeltaCommand
from pyspark_delta.spark.ddl.clone import (
    CLONE_SCHEMA,
    find_clone_place,
    no_clone,
    opened_source,
    run_clone,
)
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parser.plans import TableDefinition, parse_columns
from pyspark_delta.spark.jvm.parser.tables import parse_properties
from pyspark_delta.spark.scan.load import AsOf
from pyspark_delta.spark.sql.grammar import Piece, StatementReader, StatementSyntaxError, read_as_of
from pyspark_delta.spark.sql.statement import Command, Request, command
from pyspark_delta.spark.tables.names import look_up

_LIKELY_CLONE = re.compile(r"\bCLONE\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneStatement(TableDefinition):
    """SHALLOW CLONE, parsed, except `property_list`, which Spark's parser reads."""

    target: tuple[str, ...]
    source: tuple[str, ...]
    as_of: AsOf | None = None
    property_list: Piece | None = None


def clone_command(request: Request) -> Command | None:
    """SHALLOW CLONE; None for another statement that creates a table."""
    clone = parse_clone(request.sql)
    if clone is None:
        return None
    spark = request.spark
    name = look_up(spark, clone.target)
    if name is None:
        return None  # another catalog's
    if (piece := clone.property_list) is not None:
        given = parse_properties(
            JvmSession(spark), piece.text, statement=request.sql, start=piece.start
        )
        clone = replace(clone, properties=given)

    def run() -> DataFrame:
        place = find_clone_place(spark, name, clone)
        if place is None:
            return no_clone(spark)
        with opened_source(spark, clone.source, clone.as_of) as source:
            return run_clone(spark, place, clone, source)

    return Command(run=run, schema=CLONE_SCHEMA)


def parse_clone(sql: str) -> CloneStatement | None:
    """Parse SHALLOW CLONE; None for another statement, StatementSyntaxError after these words.

    >>> clone = parse_clone("CREATE TABLE IF NOT EXISTS a.b SHALLOW CLONE c VERSION AS OF 2")
    >>> clone.target, clone.source, clone.as_of.version, clone.if_not_exists
    (('a', 'b'), ('c',), 2, True)
    >>> parse_clone("CREATE TABLE t (shallow INT, clone INT)") is None
    True
    """
    if _LIKELY_CLONE.search(sql) is None:
        return None
    read = StatementReader(sql)
    creates = read.takes("CREATE")
    replaces = read.takes("OR", "REPLACE") if creates else read.takes("REPLACE")
    if not read.takes("TABLE"):
        return None
    if_not_exists = creates and not replaces and read.takes("IF", "NOT", "EXISTS")
    try:
        target = read.name()
    except StatementSyntaxError:
        return None  # Spark has a better error
    if not read.takes("SHALLOW", "CLONE"):
        return None
    source = read.name()
    as_of = read_as_of(read)
    property_list = read.bracketed() if read.takes("TBLPROPERTIES") else None
    location = read.text() if read.takes("LOCATION") else None
    read.end()
    return CloneStatement(
        target=target,
        source=source,
        as_of=as_of,
        property_list=property_list,
        location=location,
        creates=creates,
        replaces=replaces,
        if_not_exists=if_not_exists,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertStatement:
    """CONVERT TO DELTA, parsed, except the partition columns, which Spark's parser reads."""

    table: tuple[str, ...]
    collect_stats: bool = True
    partition_columns: Piece | None = None


def parse_convert(sql: str) -> ConvertStatement:
    """Parse CONVERT TO DELTA; StatementSyntaxError for any other text.

    >>> statement = parse_convert("CONVERT TO DELTA db.t PARTITIONED BY (day DATE, n INT)")
    >>> statement.table, statement.collect_stats, statement.partition_columns
    (('db', 't'), True, Piece(text='day DATE, n INT', start=38))
    """
    read = StatementReader(sql)
    read.expect("CONVERT", "TO", "DELTA")
    table = read.name()
    collect_stats = not read.takes("NO", "STATISTICS")
    columns = read.bracketed() if read.takes("PARTITIONED", "BY") else None
    read.end()
    return ConvertStatement(table=table, collect_stats=collect_stats, partition_columns=columns)


def convert_command(request: Request) -> Command:
    """CONVERT TO DELTA."""
    spark, sql = request.spark, request.sql
    statement = parse_convert(sql)
    columns = statement.partition_columns
    schema = None
    if columns is not None:
        schema = parse_columns(JvmSession(spark), columns.text, statement=sql, start=columns.start)

    convert = ConvertToDeltaCommand(statement.table, schema, statement.collect_stats)
    return command(spark, lambda: convert.run(spark))
