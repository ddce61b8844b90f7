"""What the hooks of the JVM decide: any client's statements, reads and writes of Delta tables.

Spark Connect, JDBC, Scala and classic PySpark come here alike.  Nothing runs while Spark parses or
analyzes: what changes a table becomes a command, which Spark runs once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType as SparkStructType

from pyspark_delta.errors import OperationNotAllowedError, PropertyError, SchemaError
from pyspark_delta.kernel.protocol.types import STRING, StructField, StructType
from pyspark_delta.spark.changes.changelog import ChangelogRequest, changelog_bound, run_changelog
from pyspark_delta.spark.changes.feed import run_read
from pyspark_delta.spark.conf.options import DeltaOptions
from pyspark_delta.spark.conf.settings import DEFAULT_SOURCE
from pyspark_delta.spark.connect.service import find_relation, run_command
from pyspark_delta.spark.datasource.source import OwnNameSource
from pyspark_delta.spark.ddl.create_table import completed_table
from pyspark_delta.spark.jvm.catalog.path_catalog import PATH_CATALOG
from pyspark_delta.spark.jvm.gateway import SESSION_CATALOG_KEY, JvmSession
from pyspark_delta.spark.jvm.hooks.bridge import HookedCommand
from pyspark_delta.spark.jvm.hooks.nodes import (
    ChangesRead,
    SourceRead,
    TableCreation,
    TableInsert,
    TableRead,
    TableSave,
    TravelledTable,
    read_node,
)
from pyspark_delta.spark.jvm.hooks.planner import ConnectPlanner
from pyspark_delta.spark.jvm.parser.changes import ParsedDelete, ParsedMerge, ParsedUpdate
from pyspark_delta.spark.jvm.streaming import BatchSink
from pyspark_delta.spark.results.local_frame import local_frame
from pyspark_delta.spark.session.analyzer import check_set
from pyspark_delta.spark.session.delta_spark_settings import is_delta_spark_catalog, log_dropped
from pyspark_delta.spark.session.enabled import is_enabled, turn_on
from pyspark_delta.spark.sql.dispatch import find_command, with_plain_changes
from pyspark_delta.spark.sql.statement import Command, inserted_table
from pyspark_delta.spark.sql.statements.change import api_change_command
from pyspark_delta.spark.sql.statements.define import statement_command
from pyspark_delta.spark.streaming.sink import DeltaSink
from pyspark_delta.spark.streaming.source import stream_table
from pyspark_delta.spark.tables.locations import open_log
from pyspark_delta.spark.tables.names import is_path_name, look_up, look_up_relation
from pyspark_delta.spark.write.by_name import (
    TableRows,
    insert_rows,
    save_as_table,
)
from pyspark_delta.spark.write.request import SaveMode, WriteRequest
from pyspark_delta.spark.write.run import run_write

Resolved = HookedCommand | DataFrame | tuple[str, ...] | None

_PARTITIONS = "__partition_columns"
# The first has paths, the second names.
_CLUSTERING, _STREAM_CLUSTERING = "clusteringColumns", "__clustering_columns"
_REPLACES_ROWS = ("replaceOn", "replaceUsing")
# Spark's enum of modes.
_MODES: Mapping[str, SaveMode] = {
    "Append": "append",
    "Overwrite": "overwrite",
    "ErrorIfExists": "error",
    "Ignore": "ignore",
}
_VERBS: Mapping[type, str] = {ParsedMerge: "MERGE", ParsedUpdate: "UPDATE", ParsedDelete: "DELETE"}
_NO_COLUMNS = StructType()
_SETTING = StructType((StructField("key", STRING), StructField("value", STRING)))
_SET = re.compile(
    rf"\s*SET\s+{re.escape(SESSION_CATALOG_KEY)}\s*=\s*(?P<value>[\w.]+)\s*;?\s*", re.IGNORECASE
)


class DeltaDoor:
    """The door of this process.  It has no state: everything is the session's or the table's."""

    def open(self, spark: SparkSession) -> None:
        """Make Delta tables visible in the session, if they are not."""
        turn_on(spark)

    def statement(self, spark: SparkSession, sql: str, args: Any) -> HookedCommand | str | None:
        """The command of a Delta statement, or a text with CHANGES as Spark parses them."""
        check_set(sql)
        if SESSION_CATALOG_KEY in sql and (setting := _delta_sparks_catalog(spark, sql)):
            return setting
        text = with_plain_changes(sql, partial(_time_of, spark, args))
        command = find_command(spark, text, args)
        if command is not None:
            return _hooked(_first_line(sql), command)
        return None if text == sql else text

    def node(self, spark: SparkSession, node: Any) -> Resolved:
        """The rows of a read, another name for its table, or the command of a write."""
        found = read_node(JvmSession(spark), node)
        return None if found is None else _RESOLVERS[type(found)](spark, found)

    def write(
        self, spark: SparkSession, rows: DataFrame, mode: str, options: Mapping[str, str]
    ) -> None:
        """Write rows to the path in the options."""
        given, cluster_by = _without_clustering(options)
        partition_by = tuple(json.loads(given.pop(_PARTITIONS, "[]")))
        if not is_enabled(spark):
            spark.dataSource.register(OwnNameSource)
            writer = rows.write.format(OwnNameSource.name()).mode(_MODES[mode]).options(**given)
            (writer.partitionBy(*partition_by) if partition_by else writer).save()
            return
        kept = DeltaOptions(given)
        request = WriteRequest(
            mode=_MODES[mode], partition_by=partition_by, cluster_by=cluster_by, options=kept
        )
        run_write(spark, open_log(spark, _path(kept), kept), rows, request)

    def sink(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        partition_by: tuple[str, ...],
        output_mode: str,
    ) -> BatchSink:
        """The sink of a stream into the path in the options."""
        given, cluster_by = _without_clustering(options)
        path = _path(DeltaOptions(given))
        return DeltaSink(spark, path, partition_by, output_mode, given, cluster_by=cluster_by)

    def relation(
        self, spark: SparkSession, planner: ConnectPlanner, message: bytes
    ) -> HookedCommand | DataFrame | None:
        """The rows or command of a message of Delta's protocol."""
        return find_relation(spark, planner, message)

    def command(self, spark: SparkSession, planner: ConnectPlanner, message: bytes) -> bool:
        """Run a message of Delta's protocol."""
        return run_command(spark, planner, message)


def _hooked(text: str, command: Command) -> HookedCommand:
    return HookedCommand(text=text, schema=command.schema, run=command.run)


def _delta_sparks_catalog(spark: SparkSession, sql: str) -> HookedCommand | None:
    """SET of delta-spark's catalog, in programs for it, which would break Spark's own tables."""
    found = _SET.fullmatch(sql)
    if found is None or not is_delta_spark_catalog(SESSION_CATALOG_KEY, found["value"]):
        return None
    row = (SESSION_CATALOG_KEY, found["value"])

    def run() -> DataFrame:
        log_dropped(*row)
        return local_frame(spark, _SETTING, [row])

    return HookedCommand(text=_first_line(sql), schema=_SETTING, run=run)


def _first_line(sql: str) -> str:
    return sql.strip().splitlines()[0]


def _time_of(spark: SparkSession, args: Any, expression: str) -> str:
    """The text of a time that an expression without columns has."""
    named = args if isinstance(args, dict) else None
    found = spark.sql(f"SELECT string(CAST({expression} AS TIMESTAMP))", named).collect()
    return str(found[0][0])


def _table_name(parts: tuple[str, ...]) -> tuple[str, ...]:
    """A name as users write it: Spark may drop the first part of a path's."""
    if len(parts) == 1 and is_path_name(("delta", parts[0])):
        return ("delta", parts[0])
    return ("delta", parts[1]) if len(parts) == 2 and parts[0] == PATH_CATALOG else parts


def _without_clustering(options: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Options without those of the writer's `clusterBy`, and its columns."""
    given = dict(options)
    paths = json.loads(given.pop(_CLUSTERING, "[]"))
    names = json.loads(given.pop(_STREAM_CLUSTERING, "[]"))
    return given, (*(".".join(path) for path in paths), *names)


def _path(options: Mapping[str, str]) -> str:
    path = DeltaOptions(options).get("path")
    if path is None:
        raise PropertyError("DELTA_ILLEGAL_OPTION", input="", name="path", explain="needs one path")
    return path


def _read_source(spark: SparkSession, read: SourceRead) -> DataFrame:
    options = DeltaOptions(read.options)
    if len(read.paths) > 1:
        raise PropertyError(
            "DELTA_ILLEGAL_OPTION",
            input=", ".join(read.paths),
            name="path",
            explain="needs one path",
        )
    path = read.paths[0] if read.paths else _path(options)
    if read.is_stream:
        schema = None if read.schema is None else SparkStructType.fromJson(json.loads(read.schema))
        return stream_table(spark, path, options, schema)
    if read.schema is not None:
        raise SchemaError("DELTA_UNSUPPORTED_SCHEMA_DURING_READ")
    return run_read(spark, path, options)


def _read_table(spark: SparkSession, read: TableRead) -> DataFrame | None:
    """A table by its path, or with options or a version; other names are the catalog's."""
    *database, last = _table_name(read.name)
    name, mark, at = last.partition("@")
    if database != ["delta"] and mark:
        read_name: tuple[str, ...] = (*database, name)
    else:
        read_name, mark, at = (*database, last), "", ""
    table = look_up_relation(spark, read_name)
    if table is None or not table.is_delta or table.location is None:
        return None
    if not (mark or read.options or table.path is not None or read.is_stream):
        return None
    options = DeltaOptions(read.options)
    if read.is_stream:
        frame = stream_table(spark, table.location, options)
    else:
        frame = run_read(spark, f"{table.location}{mark}{at}", options)
    return frame.alias(table.table) if table.path is None else frame


def _travel(spark: SparkSession, table: TravelledTable) -> tuple[str, ...] | None:
    """A table by its name in the catalog of paths, whose tables have versions."""
    name = _table_name(table.name)
    if is_path_name(name):
        return (PATH_CATALOG, name[-1])
    found = look_up_relation(spark, name)
    if found is None or found.entry is None or not found.is_delta:
        return None
    return (PATH_CATALOG, found.entry.database, found.entry.table)


def _read_changes(spark: SparkSession, read: ChangesRead) -> DataFrame | None:
    table = look_up_relation(spark, _table_name(read.name))
    if table is None or not table.is_delta or table.location is None:
        return None
    request = ChangelogRequest(
        start=changelog_bound(read.start),
        end=None if read.end is None else changelog_bound(read.end),
        start_inclusive=read.start_inclusive,
        end_inclusive=read.end_inclusive,
        computes_updates=read.computes_updates,
        leaves_out=read.leaves_out,
    )
    frame = run_changelog(spark, table.location, ".".join(read.name), request)
    return frame.alias(table.table) if table.path is None else frame


def _create(spark: SparkSession, creation: TableCreation) -> HookedCommand | None:
    statement = creation.statement
    default = (spark.conf.get(DEFAULT_SOURCE) or "").lower()
    name = look_up(spark, _table_name(statement.name))
    if name is None:
        return None
    is_delta = (statement.provider or default).lower() == "delta"
    if not is_delta and not (statement.provider is None and name.is_delta):
        return None
    options = DeltaOptions(creation.options)
    if statement.query is not None and any(option in options for option in _REPLACES_ROWS):
        raise OperationNotAllowedError("DELTA_DFV2_CREATE_REPLACE_INCOMPATIBLE_REPLACE_ON_OR_USING")
    if statement.query is not None and statement.has_buckets:
        raise OperationNotAllowedError("DELTA_OPERATION_NOT_ALLOWED", operation="Bucketing")
    verb = "REPLACE" if statement.replaces else "CREATE"
    return _hooked(f"{verb} {name.label}", statement_command(spark, name, statement, options))


def _save(spark: SparkSession, save: TableSave) -> HookedCommand | None:
    name = look_up(spark, _table_name(save.name))
    is_delta = (save.provider or "").lower() == "delta"
    if name is None or not (is_delta or (save.mode == "Append" and name.is_delta)):
        return None
    if save.has_buckets:
        raise OperationNotAllowedError("DELTA_OPERATION_NOT_ALLOWED", operation="Bucketing")
    rows = TableRows(
        data=save.rows,
        options=DeltaOptions(save.options),
        partition_by=save.partition_by,
        cluster_by=save.cluster_by,
    )
    mode = _MODES[save.mode]

    def run() -> None:
        table = completed_table(spark, name) if mode == "append" else name
        save_as_table(spark, table, rows, mode)

    return _command(f"SaveAsTable {name.label}", run)


def _insert(spark: SparkSession, insert: TableInsert) -> HookedCommand | None:
    name = inserted_table(spark, _table_name(insert.name))
    if name is None or not name.is_delta:
        return None
    options = DeltaOptions(insert.options)
    if insert.kind == "where" and "replaceWhere" in options:
        raise OperationNotAllowedError("DELTA_REPLACE_WHERE_IN_OVERWRITE")

    def run() -> None:
        insert_rows(
            spark,
            completed_table(spark, name),
            TableRows(data=insert.rows, options=options),
            overwrite=insert.kind != "append",
            by_position=insert.by_position,
            replace_where=insert.where,
            dynamic_partitions=insert.kind == "partitions",
        )

    return _command(f"Insert {name.label}", run)


def _change(spark: SparkSession, parsed: Any) -> HookedCommand | None:
    verb = _VERBS[type(parsed)]
    command = api_change_command(spark, parsed, verb)
    name = ".".join(parsed.target.name)
    return None if command is None else _hooked(f"{verb} {name}", command)


def _command(text: str, run: Callable[[], object]) -> HookedCommand:
    def run_all() -> None:
        run()

    return HookedCommand(text=text, schema=_NO_COLUMNS, run=run_all)


_RESOLVERS: Mapping[type, Callable[[SparkSession, Any], Resolved]] = {
    SourceRead: _read_source,
    TableRead: _read_table,
    TravelledTable: _travel,
    ChangesRead: _read_changes,
    TableCreation: _create,
    TableSave: _save,
    TableInsert: _insert,
    ParsedMerge: _change,
    ParsedUpdate: _change,
    ParsedDelete: _change,
}
