"""Reads CREATE TABLE LIKE, SHOW, DESCRIBE, TBLPROPERTIES and predicates with Spark's parser."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from py4j.protocol import Py4JJavaError
from pyspark.errors import ParseException, PySparkException
from pyspark.errors.exceptions.captured import convert_exception
from pyspark.sql import Column

from pyspark_delta.spark.jvm.expressions.catalyst import column_of
from pyspark_delta.spark.jvm.gateway import JvmSession, items, option_value, simple_name
from pyspark_delta.spark.jvm.parser.plans import TableDefinition, parse_table_statement

_NAMED_NODES = ("UnresolvedIdentifier", "UnresolvedTable", "UnresolvedTableOrView")
_SUBQUERIES = "org.apache.spark.sql.catalyst.expressions.SubqueryExpression$"
_PROPERTIES_PREFIX = "CREATE TABLE t USING delta TBLPROPERTIES ("
ShowKind = Literal[
    "ShowColumns",
    "ShowPartitions",
    "ShowTableProperties",
    "ShowCreateTable",
    "DescribeRelation",
    "DescribeTablePartition",
    "DescribeColumn",
    "DescribeRelationJsonCommand",
]
"""The class of the statement's plan."""
_SHOW_KINDS: tuple[ShowKind, ...] = get_args(ShowKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class LikeStatement(TableDefinition):
    """CREATE TABLE name LIKE source; `stored_as` is true if it has a file format of Hive's."""

    name: tuple[str, ...]
    source: tuple[str, ...]
    provider: str | None
    stored_as: bool


def parse_like(jvm: JvmSession, sql: str) -> LikeStatement | None:
    """CREATE TABLE LIKE; None for another statement, or a table named by an expression."""
    plan = jvm.parser.parsePlan(sql)
    if simple_name(plan) != "CreateTableLike":
        return None
    name, source = _name_parts(plan.name()), _name_parts(plan.source())
    if name is None or source is None:
        return None
    return LikeStatement(
        name=name,
        source=source,
        provider=option_value(plan.provider()),
        location=option_value(plan.location()),
        stored_as=bool(plan.serdeInfo().isDefined()),
        properties=jvm.python_dict(plan.properties()),
        if_not_exists=bool(plan.ifNotExists()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedPredicate:
    """A predicate before its names are resolved: its text in a plan, the column names in it."""

    column: Column = field(hash=False, compare=False)
    text: str
    columns: tuple[tuple[str, ...], ...]
    has_subquery: bool


def parse_spark_predicate(jvm: JvmSession, text: str) -> ParsedPredicate | None:
    """Parse a predicate; None when Spark's parser cannot."""
    try:
        parsed = jvm.parser.parseExpression(text)
    except (PySparkException, Py4JJavaError):
        return None
    named = _elements(parsed.references().iterator())
    return ParsedPredicate(
        column=column_of(jvm, parsed),
        text=str(parsed.toString()),
        # Spark's set has no order, and sorting it there would need ids, which unresolved names
        # lack.
        columns=tuple(sorted(tuple(map(str, items(each.nameParts()))) for each in named)),
        has_subquery=bool(jvm.java_class(_SUBQUERIES).hasSubquery(parsed)),
    )


def parse_properties(jvm: JvmSession, text: str, *, statement: str, start: int) -> dict[str, str]:
    """The properties in `text`, which is in parentheses at `start` in a statement.

    For statements that Spark's parser does not know: the properties are parsed as part of one that
    it knows.  A syntax error has the position in the original statement, where line breaks allow
    it.
    """
    before = re.sub(r"[^\n]", " ", statement[:start])
    is_placed = (
        len(before) >= len(_PROPERTIES_PREFIX) and "\n" not in before[-len(_PROPERTIES_PREFIX) :]
    )
    before = (
        before[: -len(_PROPERTIES_PREFIX)] + _PROPERTIES_PREFIX if is_placed else _PROPERTIES_PREFIX
    )
    try:
        parsed = parse_table_statement(jvm, f"{before}{text})")
    except ParseException as error:
        if not is_placed:
            raise
        origin: Any = error._origin  # type: ignore[attr-defined]
        raise convert_exception(origin.withCommand(statement)) from None
    assert parsed is not None  # the text begins with CREATE TABLE
    return dict(parsed.properties)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowStatement:
    """SHOW or DESCRIBE of one table.

    `column` is the path of DESCRIBE t c, `key` that of SHOW TBLPROPERTIES, and `database` that of
    SHOW COLUMNS, which is in `name` too unless the two differ.  `partition` has None for null, and
    is empty without a PARTITION clause.
    """

    kind: ShowKind
    name: tuple[str, ...]
    is_extended: bool = False
    as_serde: bool = False
    column: tuple[str, ...] = ()
    partition: Mapping[str, str | None] = field(default_factory=dict, hash=False)
    key: str | None = None
    database: tuple[str, ...] | None = None


def parse_show(jvm: JvmSession, sql: str) -> ShowStatement | None:
    """SHOW or DESCRIBE; None for another statement, or a table named by an expression."""
    plan = jvm.parser.parsePlan(sql)
    found = simple_name(plan)
    kind = next((each for each in _SHOW_KINDS if each == found), None)
    if kind is None:
        return None
    child = plan.children().apply(0)
    if simple_name(child) not in ("UnresolvedTable", "UnresolvedTableOrView"):
        return None
    return ShowStatement(
        kind=kind,
        name=tuple(items(child.multipartIdentifier())),
        is_extended=kind.startswith("Describe") and bool(plan.isExtended()),
        as_serde=kind == "ShowCreateTable" and bool(plan.asSerde()),
        column=tuple(items(plan.column().nameParts())) if kind == "DescribeColumn" else (),
        partition=_show_partition(jvm, kind, plan),
        key=option_value(plan.propertyKey()) if kind == "ShowTableProperties" else None,
        database=_show_database(plan) if kind == "ShowColumns" else None,
    )


def _name_parts(named: Any) -> tuple[str, ...] | None:
    kind = simple_name(named)
    if kind not in _NAMED_NODES:
        return None
    parts = named.nameParts() if kind == "UnresolvedIdentifier" else named.multipartIdentifier()
    return tuple(items(parts))


def _elements(scala_iterator: Any) -> Iterator[Any]:
    while scala_iterator.hasNext():
        yield scala_iterator.next()


def _show_database(plan: Any) -> tuple[str, ...] | None:
    namespace = option_value(plan.namespace())
    return None if namespace is None else tuple(items(namespace))


def _show_partition(jvm: JvmSession, kind: ShowKind, plan: Any) -> Mapping[str, str | None]:
    if kind == "ShowPartitions":
        pattern = option_value(plan.pattern())
        if pattern is None:
            return {}
        spec = pattern.spec()
    elif kind == "DescribeTablePartition":
        spec = plan.partitionSpec().spec()
    elif kind == "DescribeRelationJsonCommand":
        spec = plan.partitionSpec()
    else:
        return {}
    return jvm.python_dict(spec)
