"""The server's side of Delta's protocol for Spark Connect: calls of `DeltaTable`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession

from pyspark_delta.errors import OperationNotAllowedError
from pyspark_delta.kernel.protocol.types import BOOLEAN, STRING
from pyspark_delta.kernel.sql.quoting import quoted_path
from pyspark_delta.spark.api.merge_builder import DeltaMergeBuilder
from pyspark_delta.spark.api.table import DeltaTable
from pyspark_delta.spark.api.table_builder import IdentityGenerator
from pyspark_delta.spark.conf.options import illegal_option
from pyspark_delta.spark.connect.messages import PACKAGE, decoded
from pyspark_delta.spark.jvm.hooks.bridge import HookedCommand
from pyspark_delta.spark.jvm.hooks.planner import ConnectPlanner
from pyspark_delta.spark.maintenance.restore import RESTORE_COLUMNS
from pyspark_delta.spark.merge.request import MERGE_SCHEMA
from pyspark_delta.spark.results.local_frame import columns, local_frame
from pyspark_delta.spark.results.optimize import OPTIMIZE_SCHEMA
from pyspark_delta.spark.sql.statement import counts_schema

Message = Mapping[str, Any]
_RELATION, _COMMAND = f"{PACKAGE}.DeltaRelation", f"{PACKAGE}.DeltaCommand"
_AFFECTED = counts_schema("num_affected_rows")
_YES_OR_NO, _TEXT = columns(value=BOOLEAN), columns(value=STRING)
_MODES: Mapping[int, Callable[[SparkSession], Any]] = {
    1: DeltaTable.create,
    2: DeltaTable.createIfNotExists,
    3: DeltaTable.replace,
    4: DeltaTable.createOrReplace,
}
_BUILDER_METHODS = {"table_name": "tableName", "location": "location", "comment": "comment"}
_CLAUSES = {
    "matched_actions": "whenMatched",
    "not_matched_actions": "whenNotMatched",
    "not_matched_by_source_actions": "whenNotMatchedBySource",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """A message of a client, and what reads Spark's messages inside of it."""

    spark: SparkSession
    planner: ConnectPlanner
    body: Message

    @property
    def table(self) -> DeltaTable:
        return _table(self.spark, self.body.get("table"))

    @property
    def target(self) -> DeltaTable:
        return _target(self.spark, self.body.get("target", b""))

    @property
    def condition(self) -> Column | None:
        return _condition(self.planner, self.body)


def find_relation(
    spark: SparkSession, planner: ConnectPlanner, data: bytes
) -> HookedCommand | DataFrame | None:
    """The rows, or the command, of a Delta relation; None for another extension."""
    found = _opened(data, _RELATION)
    if found is None:
        return None
    kind, body = found
    return _RELATIONS[kind](_Call(spark=spark, planner=planner, body=body))


def run_command(spark: SparkSession, planner: ConnectPlanner, data: bytes) -> bool:
    """Run a Delta command; False for another extension."""
    found = _opened(data, _COMMAND)
    if found is None:
        return False
    kind, body = found
    _COMMANDS[kind](_Call(spark=spark, planner=planner, body=body))
    return True


def _opened(data: bytes, name: str) -> tuple[str, Message] | None:
    """The kind and body of a message in an envelope with that type."""
    envelope = decoded("Any", data)
    if not str(envelope.get("type_url", "")).endswith(f"/{name}"):
        return None
    message = decoded(name.rpartition(".")[2], envelope.get("value", b""))
    if len(message) != 1:
        raise illegal_option(name, "", "has no operation that is known")
    return next(iter(message.items()))


def _table(spark: SparkSession, message: Message | None) -> DeltaTable:
    found = message or {}
    if "path" in found:
        path = found["path"]
        return DeltaTable.forPath(spark, path.get("path", ""), path.get("hadoop_conf", {}))
    return DeltaTable.forName(spark, found.get("table_or_view_name", ""))


def _target(spark: SparkSession, data: bytes) -> DeltaTable:
    """The table of one of Spark's relations: a Delta scan, with an alias or without."""
    relation, alias = decoded("Relation", data), None
    if "subquery_alias" in relation:
        alias = relation["subquery_alias"].get("alias")
        relation = relation["subquery_alias"].get("input", {})
    extension = relation.get("extension", {})
    scan = decoded("DeltaRelation", extension.get("value", b"")).get("scan")
    if scan is None:
        raise OperationNotAllowedError("DELTA_UNSUPPORTED_SOURCE", operation="this command")
    table = _table(spark, scan.get("table"))
    return table if alias is None else table.alias(alias)


def _scan(call: _Call) -> DataFrame:
    table = call.table
    # Not `toDF`, whose columns are known: the server keeps plans, and analyzes this one each time.
    return call.spark.read.format("delta").options(**table._options).load(table._path)


def _is_delta_table(call: _Call) -> DataFrame:
    found = DeltaTable.isDeltaTable(call.spark, call.body.get("path", ""))
    return local_frame(call.spark, _YES_OR_NO, [(found,)])


def _convert(call: _Call) -> HookedCommand:
    identifier = str(call.body.get("identifier", ""))
    schema: Any = call.body.get("partition_schema_string")
    if "partition_schema_struct" in call.body:
        schema = call.planner.data_type(call.body["partition_schema_struct"])

    def run() -> DataFrame:
        DeltaTable.convertToDelta(call.spark, identifier, schema)
        format_name, dot, path = identifier.partition(".")
        is_path = format_name.lower() == "parquet" and path.startswith("`")
        converted = f"delta{dot}{path}" if is_path else identifier
        return local_frame(call.spark, _TEXT, [(converted,)])

    return HookedCommand(text="ConvertToDelta", schema=_TEXT, run=run)


def _restore(call: _Call) -> HookedCommand:
    def run() -> DataFrame:
        if "timestamp" in call.body:
            return call.table.restoreToTimestamp(call.body["timestamp"])
        return call.table.restoreToVersion(call.body.get("version", 0))

    return HookedCommand(text="RestoreTable", schema=counts_schema(*RESTORE_COLUMNS), run=run)


def _delete(call: _Call) -> HookedCommand:
    table, where = call.target, call.condition
    return HookedCommand(text="DeleteFromTable", schema=_AFFECTED, run=lambda: table.delete(where))


def _update(call: _Call) -> HookedCommand:
    table, where = call.target, call.condition
    values = _assignments(call.planner, call.body)
    return HookedCommand(
        text="UpdateTable", schema=_AFFECTED, run=lambda: table.update(where, values)
    )


def _merge(call: _Call) -> HookedCommand:
    table, body = call.target, call.body
    source = call.planner.rows(body.get("source", b""))
    condition = call.condition
    assert condition is not None
    builder = table.merge(source, condition)
    for name, method in _CLAUSES.items():
        for action in body.get(name, ()):
            builder = _with_clause(call.planner, builder, method, action)
    if body.get("with_schema_evolution"):
        builder = builder.withSchemaEvolution()
    return HookedCommand(text="MergeIntoTable", schema=MERGE_SCHEMA, run=builder.execute)


def _with_clause(
    planner: ConnectPlanner, builder: DeltaMergeBuilder, method: str, action: Message
) -> DeltaMergeBuilder:
    """The builder with one clause; the message has the kind of its action as a field."""
    kind = next((name for name in action if name.endswith("_action")), "")
    verb = kind.partition("_")[0].capitalize()
    where = _condition(planner, action)
    if "_star_" in kind:
        names = action[kind].get("columns", ())
        made = getattr(builder, f"{method}{verb}All")(where, except_cols=names)
    elif verb == "Delete":
        made = getattr(builder, f"{method}Delete")(where)
    else:
        made = getattr(builder, f"{method}{verb}")(where, _assignments(planner, action[kind]))
    assert isinstance(made, DeltaMergeBuilder)
    return made


def _condition(planner: ConnectPlanner, body: Message) -> Column | None:
    return planner.column(body["condition"]) if "condition" in body else None


def _assignments(planner: ConnectPlanner, body: Message) -> dict[str, str | Column]:
    return {
        _field_name(planner, each.get("field", b"")): planner.column(each.get("value", b""))
        for each in body.get("assignments", ())
    }


def _field_name(planner: ConnectPlanner, message: bytes) -> str:
    path = planner.name(message)
    if path is None:
        raise illegal_option("set", "expression", "is no column's name")
    return quoted_path(path)


def _optimize(call: _Call) -> HookedCommand:
    def run() -> DataFrame:
        builder = call.table.optimize()
        for each in call.body.get("partition_filters", ()):
            builder = builder.where(each)
        names = call.body.get("zorder_columns")
        return builder.executeZOrderBy(*names) if names else builder.executeCompaction()

    return HookedCommand(text="OptimizeTable", schema=OPTIMIZE_SCHEMA, run=run)


def _clone(call: _Call) -> None:
    table, body = call.table, call.body
    target = body.get("target", "")
    given = (body.get("is_shallow", False), body.get("replace", False), body.get("properties"))
    if "timestamp" in body:
        table.cloneAtTimestamp(body["timestamp"], target, *given)
    elif "version" in body:
        table.cloneAtVersion(body["version"], target, *given)
    else:
        table.clone(target, *given)


def _create(call: _Call) -> None:
    body = call.body
    make = _MODES.get(body.get("mode", 0))
    if make is None:
        raise illegal_option("mode", str(body.get("mode")), "is unknown")
    builder = make(call.spark)
    for key, name in _BUILDER_METHODS.items():
        if key in body:
            builder = getattr(builder, name)(body[key])
    for each in body.get("columns", ()):
        builder = builder.addColumn(each.get("name", ""), **_column(call.planner, each))
    if "partitioning_columns" in body:
        builder = builder.partitionedBy(*body["partitioning_columns"])
    if "clustering_columns" in body:
        builder = builder.clusterBy(*body["clustering_columns"])
    for key, value in body.get("properties", {}).items():
        builder = builder.property(key, value)
    builder.execute()


def _column(planner: ConnectPlanner, message: Message) -> dict[str, Any]:
    """The arguments of `addColumn`."""
    given = {
        "dataType": planner.data_type(message.get("data_type", b"")),
        "nullable": message.get("nullable", False),
        "generatedAlwaysAs": message.get("generated_always_as"),
        "comment": message.get("comment"),
    }
    identity = message.get("identity_info")
    if identity is not None:
        generator = IdentityGenerator(start=identity.get("start", 0), step=identity.get("step", 0))
        by_default = identity.get("allow_explicit_insert", False)
        given["generatedByDefaultAs" if by_default else "generatedAlwaysAs"] = generator
    return given


_RELATIONS: Mapping[str, Callable[[_Call], HookedCommand | DataFrame]] = {
    "scan": _scan,
    "describe_history": lambda call: call.table.history(),
    "describe_detail": lambda call: call.table.detail(),
    "convert_to_delta": _convert,
    "restore_table": _restore,
    "is_delta_table": _is_delta_table,
    "delete_from_table": _delete,
    "update_table": _update,
    "merge_into_table": _merge,
    "optimize_table": _optimize,
}
_COMMANDS: Mapping[str, Callable[[_Call], object]] = {
    "clone_table": _clone,
    "vacuum_table": lambda call: call.table.vacuum(call.body.get("retention_hours")),
    "upgrade_table_protocol": lambda call: call.table.upgradeTableProtocol(
        call.body.get("reader_version", 0), call.body.get("writer_version", 0)
    ),
    "generate": lambda call: call.table.generate(call.body.get("mode", "")),
    "create_delta_table": _create,
    "add_feature_support": lambda call: call.table.addFeatureSupport(
        call.body.get("feature_name", "")
    ),
    "drop_feature_support": lambda call: call.table.dropFeatureSupport(
        call.body.get("feature_name", ""), call.body.get("truncate_history")
    ),
}
