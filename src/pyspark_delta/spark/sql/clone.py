"""CREATE or REPLACE TABLE t SHALLOW CLONE s [AS OF x] [TBLPROPERTIES (...)] [LOCATION 'l'].

>>> found = parse_clone("CREATE TABLE IF NOT EXISTS a.b SHALLOW CLONE c VERSION AS OF 2")
>>> found.target, found.source, found.as_of.version, found.if_not_exists
(('a', 'b'), ('c',), 2, True)
>>> parse_clone("CREATE TABLE t (shallow INT, clone INT)") is None
True
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyspark.sql import DataFrame

from pyspark_delta.spark.catalog import look_up
from pyspark_delta.spark.commands.clone import (
    CloneTarget,
    find_clone_place,
    no_clone,
    run_clone,
)
from pyspark_delta.spark.commands.clone_sources import opened_source
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parsed_properties import parse_properties
from pyspark_delta.spark.sql.grammar import Piece, StatementReader, StatementSyntaxError
from pyspark_delta.spark.sql.requests import Request
from pyspark_delta.spark.sql.temporal import read_as_of
from pyspark_delta.spark.time_travel import AsOf

_LIKELY = re.compile(r"\bCLONE\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneStatement:
    """What a statement says; the properties are Spark's parser's to read."""

    target: tuple[str, ...]
    source: tuple[str, ...]
    as_of: AsOf | None = None
    properties: Piece | None = None
    location: str | None = None
    creates: bool = True
    replaces: bool = False
    if_not_exists: bool = False


def run_clone_statement(request: Request) -> DataFrame | None:
    """Run the statement; None for one that makes a table in another way."""
    statement = parse_clone(request.sql)
    if statement is None:
        return None
    spark = request.spark
    name = look_up(spark, statement.target)
    if name is None:
        return None  # another catalog's
    piece = statement.properties
    target = CloneTarget(
        name=name,
        location=statement.location,
        properties={}
        if piece is None
        else parse_properties(
            JvmSession(spark), piece.text, statement=request.sql, start=piece.start
        ),
        creates=statement.creates,
        replaces=statement.replaces,
        if_not_exists=statement.if_not_exists,
    )
    place = find_clone_place(spark, target)
    if place is None:
        return no_clone(spark)
    with opened_source(spark, statement.source, statement.as_of) as source:
        return run_clone(spark, place, target, source)


def parse_clone(sql: str) -> CloneStatement | None:
    """The statement; None when it is no SHALLOW CLONE, StatementSyntaxError behind these words."""
    if _LIKELY.search(sql) is None:
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
        return None  # Spark says better what is wrong with it
    if not read.takes("SHALLOW", "CLONE"):
        return None
    source = read.name()
    as_of = read_as_of(read)
    properties = read.bracketed() if read.takes("TBLPROPERTIES") else None
    location = read.text() if read.takes("LOCATION") else None
    read.end()
    return CloneStatement(
        target=target,
        source=source,
        as_of=as_of,
        properties=properties,
        location=location,
        creates=creates,
        replaces=replaces,
        if_not_exists=if_not_exists,
    )
