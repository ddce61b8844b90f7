"""Reads the nodes that the analyzer's hook passes on: reads and writes, not resolved yet."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from pyspark.sql import Column, DataFrame

from pyspark_delta.spark.jvm.catalog.path_catalog import PATH_CATALOG, PATH_DATABASE
from pyspark_delta.spark.jvm.expressions.catalyst import column_of
from pyspark_delta.spark.jvm.gateway import JvmSession, items
from pyspark_delta.spark.jvm.parser.changes import ParsedChange, read_change
from pyspark_delta.spark.jvm.parser.plans import TableStatement, read_table_statement
from pyspark_delta.spark.jvm.plans.frames import plan_frame

_RELATION = "org.apache.spark.sql.catalyst.analysis.UnresolvedRelation"
_TIME_TRAVEL = "org.apache.spark.sql.catalyst.analysis.RelationTimeTravel"
_CREATE_OF_V1 = "org.apache.spark.sql.execution.datasources.CreateTable"
_CATALOG, _CLUSTERING = "org.apache.spark.sql.catalyst.catalog", "clusteringColumns"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRead:
    """`spark.read.format("delta")`, or of a stream; the schema is the user's, as JSON."""

    paths: tuple[str, ...]
    options: Mapping[str, str] = field(hash=False)
    schema: str | None
    is_stream: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRead:
    """A table by its name, with the options of the read."""

    name: tuple[str, ...]
    options: Mapping[str, str] = field(hash=False)
    is_stream: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TravelledTable:
    """A table at a version or time in SQL; which one, Spark knows."""

    name: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesRead:
    """`t CHANGES FROM ...` and `spark.read.changes`; `start` is None for a range without bounds.

    Versions are texts, times are datetimes; `leaves_out` has the name of Spark's enum.
    """

    name: tuple[str, ...]
    start: str | datetime | None
    end: str | datetime | None = None
    start_inclusive: bool = True
    end_inclusive: bool = True
    computes_updates: bool
    leaves_out: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCreation:
    """A table made of rows, or of columns alone; `options` are the writer's."""

    statement: TableStatement
    options: Mapping[str, str] = field(hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSave:
    """`df.write.saveAsTable`; the mode has the name of Spark's enum."""

    name: tuple[str, ...]
    provider: str | None
    mode: str
    partition_by: tuple[str, ...]
    cluster_by: tuple[str, ...]
    has_buckets: bool
    options: Mapping[str, str] = field(hash=False)
    rows: DataFrame = field(repr=False, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableInsert:
    """Rows for a table that exists; `where` is the condition of `overwrite`."""

    name: tuple[str, ...]
    options: Mapping[str, str] = field(hash=False)
    rows: DataFrame = field(repr=False, hash=False)
    kind: Literal["append", "overwrite", "partitions", "where"]
    by_position: bool = False
    where: Column | None = field(default=None, hash=False)


Node = (
    SourceRead
    | TableRead
    | TravelledTable
    | ChangesRead
    | TableCreation
    | TableSave
    | TableInsert
    | ParsedChange
)


def read_node(jvm: JvmSession, node: Any) -> Node | None:
    """What a node asks for; None for one that is left to Spark."""
    reader = _READERS.get(node.getClass().getSimpleName())
    return None if reader is None else reader(jvm, node)


def _source_read(jvm: JvmSession, node: Any) -> Node:
    schema = node.userSpecifiedSchema()
    return SourceRead(
        paths=tuple(map(str, items(node.paths()))),
        options=jvm.python_dict(node.options().originalMap()),
        schema=str(schema.get().json()) if schema.isDefined() else None,
        is_stream=bool(node.isStreaming()),
    )


def _table_read(jvm: JvmSession, node: Any) -> Node:
    return TableRead(
        name=_name(node.multipartIdentifier()),
        options=jvm.java_dict(node.options().asCaseSensitiveMap()),
        is_stream=bool(node.isStreaming()),
    )


def renamed(jvm: JvmSession, node: Any, name: tuple[str, ...]) -> Any:
    """The node of a `TravelledTable` with another name for the table."""
    below = node.relation()
    relation = jvm.java_class(_RELATION)(jvm.seq(name), below.options(), below.isStreaming())
    return jvm.java_class(_TIME_TRAVEL)(relation, node.timestamp(), node.version())


def _table_at(jvm: JvmSession, node: Any) -> Node | None:
    name = _relation_name(node)
    return None if name is None or name[0] == PATH_CATALOG else TravelledTable(name=name)


def _changes(jvm: JvmSession, node: Any) -> Node | None:
    name, context = _relation_name(node), node.changelogContext()
    if name is None or node.relation().isStreaming():
        return None
    found, bounds = context.range(), {}
    kind = found.getClass().getSimpleName()
    if kind == "VersionRange":
        bounds = {"start": found.startingVersion(), "end": found.endingVersion().orElse(None)}
    elif kind == "TimestampRange":
        bounds = {"start": found.startingTimestamp(), "end": found.endingTimestamp().orElse(None)}
    is_bounded = bool(bounds)
    return ChangesRead(
        name=name,
        start=_bound(bounds.get("start")),
        end=_bound(bounds.get("end")),
        start_inclusive=not is_bounded or bool(found.startingBoundInclusive()),
        end_inclusive=not is_bounded or bool(found.endingBoundInclusive()),
        computes_updates=bool(context.computeUpdates()),
        leaves_out=str(context.deduplicationMode().name()).replace("_", ""),
    )


def _bound(found: Any) -> str | datetime | None:
    """A version as it is, and microseconds as a time."""
    return _EPOCH + timedelta(microseconds=found) if isinstance(found, int) else found


def _relation_name(node: Any) -> tuple[str, ...] | None:
    """The name of the table that a node is about; None if it is about something else."""
    below = node.relation()
    if below.getClass().getSimpleName() != "UnresolvedRelation":
        return None
    return _name(below.multipartIdentifier())


def _creation(jvm: JvmSession, node: Any) -> Node | None:
    if node.getClass().getName() == _CREATE_OF_V1:
        return _save(jvm, node)
    statement = read_table_statement(jvm, node)
    if statement is None:
        return None
    options = jvm.python_dict(node.writeOptions()) if statement.query is not None else {}
    return TableCreation(statement=statement, options=options)


def _save(jvm: JvmSession, node: Any) -> Node | None:
    table, query = node.tableDesc(), node.query()
    if node.getClass().getName() == _CREATE_OF_V1:
        if not query.isDefined():
            return None
        query = query.get()
    name = table.identifier()
    database = name.database()
    provider = table.provider()
    properties = jvm.python_dict(table.storage().properties())
    location = table.storage().locationUri()
    if location.isDefined():
        as_text = jvm.static(f"{_CATALOG}.CatalogUtils", "URIToString")
        properties.setdefault("path", str(as_text(location.get())))
    clustering = jvm.python_dict(table.properties()).get(_CLUSTERING)
    return TableSave(
        name=(*((str(database.get()),) if database.isDefined() else ()), str(name.table())),
        provider=str(provider.get()) if provider.isDefined() else None,
        mode=str(node.mode().name()),
        partition_by=tuple(map(str, items(table.partitionColumnNames()))),
        cluster_by=tuple(map(".".join, json.loads(clustering))) if clustering else (),
        has_buckets=bool(table.bucketSpec().isDefined()),
        options=properties,
        rows=plan_frame(jvm, query),
    )


def _insert(jvm: JvmSession, node: Any) -> Node | None:
    target = node.table()
    if target.getClass().getSimpleName() != "UnresolvedRelation":
        return None
    kind = node.getClass().getSimpleName()
    is_statement = kind == "InsertIntoStatement"
    kinds: Mapping[str, Literal["append", "overwrite", "partitions", "where"]] = {
        "AppendData": "append",
        "InsertIntoStatement": "overwrite" if is_statement and node.overwrite() else "append",
        "OverwriteByExpression": "where",
        "OverwritePartitionsDynamic": "partitions",
    }
    return TableInsert(
        name=_name(target.multipartIdentifier()),
        options={} if is_statement else jvm.python_dict(node.writeOptions()),
        rows=plan_frame(jvm, node.query()),
        kind=kinds[kind],
        by_position=is_statement or not node.isByName(),
        where=column_of(jvm, node.deleteExpr()) if kind == "OverwriteByExpression" else None,
    )


def _name(parts: Any) -> tuple[str, ...]:
    """A table's name as users write it: a path has another one in Spark's plans."""
    name = tuple(map(str, items(parts)))
    return (PATH_DATABASE, name[1]) if len(name) == 2 and name[0] == PATH_CATALOG else name


_READERS: Mapping[str, Callable[[JvmSession, Any], Node | None]] = {
    "UnresolvedDataSource": _source_read,
    "UnresolvedRelation": _table_read,
    "RelationTimeTravel": _table_at,
    "RelationChanges": _changes,
    "CreateTable": _creation,
    "CreateTableAsSelect": _creation,
    "ReplaceTable": _creation,
    "ReplaceTableAsSelect": _creation,
    "SaveAsV1TableCommand": _save,
    "InsertIntoStatement": _insert,
    "AppendData": _insert,
    "OverwriteByExpression": _insert,
    "OverwritePartitionsDynamic": _insert,
    "MergeIntoTable": read_change,
    "UpdateTable": read_change,
    "DeleteFromTable": read_change,
}
