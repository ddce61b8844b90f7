"""SHOW and DESCRIBE as Spark's own parser reads them, taken out of its plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pyspark_delta.spark.jvm.gateway import JvmSession, items

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
"""What Spark calls the statement."""

_KINDS: tuple[ShowKind, ...] = get_args(ShowKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowStatement:
    """SHOW or DESCRIBE of one table.

    `column` is the path of DESCRIBE t c, `key` that of SHOW TBLPROPERTIES, `database` that of SHOW
    COLUMNS, which is in `name` too unless the two differ; `partition` has None for null, and is
    empty where nothing is said of partitions.
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
    """The statement that `sql` is; None when it is another, or names its table by an expression."""
    plan = jvm.session.sessionState().sqlParser().parsePlan(sql)
    found = plan.getClass().getSimpleName()
    kind = next((each for each in _KINDS if each == found), None)
    if kind is None:
        return None
    child = plan.children().apply(0)
    if child.getClass().getSimpleName() not in ("UnresolvedTable", "UnresolvedTableOrView"):
        return None
    return ShowStatement(
        kind=kind,
        name=tuple(items(child.multipartIdentifier())),
        is_extended=kind.startswith("Describe") and bool(plan.isExtended()),
        as_serde=kind == "ShowCreateTable" and bool(plan.asSerde()),
        column=_column(plan.column()) if kind == "DescribeColumn" else (),
        partition=_partition(jvm, kind, plan),
        key=_option(plan.propertyKey()) if kind == "ShowTableProperties" else None,
        database=_database(plan) if kind == "ShowColumns" else None,
    )


def _column(expression: Any) -> tuple[str, ...]:
    return tuple(items(expression.nameParts()))


def _database(plan: Any) -> tuple[str, ...] | None:
    namespace = plan.namespace()
    return tuple(items(namespace.get())) if namespace.isDefined() else None


def _partition(jvm: JvmSession, kind: ShowKind, plan: Any) -> dict[str, str | None]:
    if kind == "ShowPartitions":
        given = plan.pattern()
        if not given.isDefined():
            return {}
        spec = given.get().spec()
    elif kind == "DescribeTablePartition":
        spec = plan.partitionSpec().spec()
    elif kind == "DescribeRelationJsonCommand":
        spec = plan.partitionSpec()
    else:
        return {}
    found = jvm.static("scala.jdk.javaapi.CollectionConverters", "asJava")(spec)
    return {str(key): None if value is None else str(value) for key, value in found.items()}


def _option(scala_option: Any) -> str | None:
    return str(scala_option.get()) if scala_option.isDefined() else None
