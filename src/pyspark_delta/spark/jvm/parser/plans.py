"""Reads CREATE and REPLACE TABLE, column lists and queries from plans of Spark's own parser.

It reads only what is needed to run them; clauses that Spark handles itself are left to Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import ParseException
from pyspark.errors.exceptions.captured import convert_exception
from pyspark.sql import DataFrame

from pyspark_delta.kernel.protocol.actions import Protocol
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.spark.jvm.expressions.catalyst import stored_schema
from pyspark_delta.spark.jvm.gateway import (
    JvmSession,
    default_arguments,
    items,
    option_value,
    simple_name,
)
from pyspark_delta.spark.jvm.parser.alters import ConstraintClause, read_constraint
from pyspark_delta.spark.jvm.plans.frames import plan_frame
from pyspark_delta.spark.jvm.write.file_writer import check_columns_differ

_DELTA = "delta"
_CREATES = ("CreateTable", "CreateTableAsSelect")
_REPLACES = ("ReplaceTable", "ReplaceTableAsSelect")
_BUCKETS = ("bucket(", "sorted_bucket(")
_PLAIN_PARTITION, _CLUSTERING = "IdentityTransform", "ClusterByTransform"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """The query of a statement, as Spark's plan of it."""

    handle: Any = field(repr=False, compare=False)

    def frame(self, jvm: JvmSession) -> DataFrame:
        """The rows of the query; its names are resolved by this call."""
        return plan_frame(jvm, self.handle)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDefinition:
    """The definition of a table in a statement or builder.

    An empty `schema` means that the log at `location` has it, or else that there are no columns.
    With `replaces` an existing table is replaced, with `creates` a missing one is made.
    A new table has at least the `protocol`.
    """

    schema: StructType = field(default_factory=StructType)
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[tuple[str, ...], ...] = ()
    location: str | None = None
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    creates: bool = True
    replaces: bool = False
    if_not_exists: bool = False
    protocol: Protocol | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatement(TableDefinition):
    """CREATE [OR REPLACE] TABLE or REPLACE TABLE, with or without AS SELECT.

    `schema` has Spark's metadata for generated, identity and default columns.  It is empty where a
    query or another provider defines the columns.  `transforms` are partition transforms other than
    plain columns, as Spark prints them, without buckets.
    """

    name: tuple[str, ...]
    provider: str | None
    transforms: tuple[str, ...]
    has_buckets: bool
    constraints: tuple[ConstraintClause, ...]
    options: Mapping[str, str] = field(default_factory=dict, hash=False)
    query: Query | None = None


def parse_table_statement(jvm: JvmSession, sql: str) -> TableStatement | None:
    """Parse the statement in `sql`; None if it makes no table, or an expression names the table."""
    return read_table_statement(jvm, jvm.parser.parsePlan(sql))


def read_table_statement(jvm: JvmSession, plan: Any) -> TableStatement | None:
    """The statement of a plan that is not resolved; None as in `parse_table_statement`."""
    kind = simple_name(plan)
    if kind not in (*_CREATES, *_REPLACES):
        return None
    if simple_name(plan.name()) != "UnresolvedIdentifier":
        return None
    spec = plan.tableSpec()
    provider = option_value(spec.provider())
    has_query = kind.endswith("AsSelect")
    # The columns of other providers are not checked here.
    has_columns = not has_query and (provider or _DELTA).lower() == _DELTA
    if has_columns:
        check_columns_differ(jvm, plan.tableSchema())
    partitions, clusters, others = _partitioning(plan.partitioning())
    return TableStatement(
        creates=kind in _CREATES or bool(plan.orCreate()),
        replaces=kind in _REPLACES,
        if_not_exists=kind in _CREATES and bool(plan.ignoreIfExists()),
        name=tuple(items(plan.name().nameParts())),
        provider=provider,
        schema=stored_schema(jvm, plan.tableSchema()) if has_columns else StructType(),
        partition_by=partitions,
        cluster_by=clusters,
        transforms=tuple(each for each in others if not each.startswith(_BUCKETS)),
        has_buckets=any(each.startswith(_BUCKETS) for each in others),
        constraints=tuple(map(read_constraint, items(spec.constraints()))),
        location=option_value(spec.location()),
        comment=option_value(spec.comment()),
        properties=jvm.python_dict(spec.properties()),
        options={each._1(): str(each._2()) for each in items(spec.optionExpression().options())},
        query=Query(handle=plan.query()) if has_query else None,
    )


def parse_columns(
    jvm: JvmSession, text: str, *, statement: str | None = None, start: int = 0
) -> StructType:
    """Parse columns and their types, as in `a INT, b STRING`; Spark's own error for invalid text.

    `text` may be at `start` in a statement; the error then has this statement and position.
    """
    blank = "" if statement is None else re.sub(r"[^\n]", " ", statement[:start])
    try:
        schema = jvm.parser.parseTableSchema(blank + text)
    except ParseException as error:
        if statement is None:
            raise
        origin: Any = error._origin  # type: ignore[attr-defined]
        raise convert_exception(origin.withCommand(statement)) from None
    return stored_schema(jvm, schema)


def syntax_error(jvm: JvmSession, sql: str, start: int, found: str | None) -> Exception:
    """Spark's syntax error for an unexpected word, or end, at `start` in a statement."""
    word = "end of input" if found is None else f"'{found}'"
    return statement_error(jvm, sql, start, "PARSE_SYNTAX_ERROR", {"error": word, "hint": ""})


def statement_error(
    jvm: JvmSession, sql: str, start: int, condition: str, parameters: Mapping[str, str]
) -> Exception:
    """A Spark error with the given condition, about the text at `start` in a statement."""
    before = sql[:start]
    line, position = before.count("\n") + 1, start - (before.rfind("\n") + 1)
    origins = "org.apache.spark.sql.catalyst.trees.Origin"
    rest = default_arguments(jvm, f"{origins}$", "apply", 2)
    error = jvm.java_class("org.apache.spark.sql.catalyst.parser.ParseException")(
        jvm.some(sql),
        jvm.java_class(origins)(jvm.some(line), jvm.some(position), *rest),
        condition,
        jvm.scala_map(dict(parameters)),
    )
    made: Exception = convert_exception(error)
    return made


def _partitioning(
    transforms: Any,
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...], tuple[str, ...]]:
    """The partition columns, the paths of clustering columns, and other transforms."""
    partitions: list[str] = []
    clusters: list[tuple[str, ...]] = []
    others: list[str] = []
    for transform in items(transforms):
        kind = simple_name(transform)
        paths = [tuple(reference.fieldNames()) for reference in transform.references()]
        if kind == _CLUSTERING:
            clusters += paths
        elif kind == _PLAIN_PARTITION and len(paths[0]) == 1:
            partitions.append(paths[0][0])
        else:
            others.append(transform.toString())
    return tuple(partitions), tuple(clusters), tuple(others)
