"""The builders of a client's `DeltaTable`: MERGE, OPTIMIZE and CREATE TABLE as messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from pyspark_delta.errors import SchemaError
from pyspark_delta.spark.api.arguments import values_argument
from pyspark_delta.spark.api.errors import raises_spark_errors
from pyspark_delta.spark.api.merge_builder import DeltaMergeBuilder
from pyspark_delta.spark.api.optimize_builder import DeltaOptimizeBuilder
from pyspark_delta.spark.api.table import DeltaTableBuilder
from pyspark_delta.spark.api.table_builder import NewColumn, wrong_type
from pyspark_delta.spark.connect.client_session import ClientSession
from pyspark_delta.spark.jvm.plans.merge import Assignments, MergeClause
from pyspark_delta.spark.maintenance.optimize import OptimizeRequest
from pyspark_delta.spark.merge.request import MergeRequest

Message = Mapping[str, Any]
MODES = {"create": 1, "createIfNotExists": 2, "replace": 3, "createOrReplace": 4}
"""What a `CreateDeltaTable` does where a table is, or is not, by the method that makes builders."""


@raises_spark_errors
class ConnectMergeBuilder(DeltaMergeBuilder):
    """The clauses of a MERGE in a client; the server knows the keyword DEFAULT by itself."""

    def _assignments(self, given: object, where: str) -> Assignments:
        return tuple(values_argument(given, where).items())


def merge_message(session: ClientSession, target: bytes, request: MergeRequest) -> Message:
    """The message of a MERGE."""
    clauses: dict[str, list[Message]] = {}
    for clause in request.clauses:
        key = f"{clause.kind.replace(' ', '_')}_actions"
        clauses.setdefault(key, []).append(_action(session, clause))
    return {
        "target": target,
        "source": session.relation(request.source),
        "condition": session.expression(request.condition),
        "with_schema_evolution": request.evolves,
        **clauses,
    }


def assignment_messages(session: ClientSession, values: Mapping[str, Any]) -> list[Message]:
    """The messages of new values by column name."""
    return [
        {"field": session.column_name(name), "value": session.expression(value)}
        for name, value in values.items()
    ]


def _action(session: ClientSession, clause: MergeClause) -> Message:
    where = None if clause.condition is None else session.expression(clause.condition)
    body: Message = {}
    if clause.assignments is None and clause.except_columns:
        kind, body = f"{clause.action}_star_except_action", {"columns": clause.except_columns}
    elif clause.assignments is None:
        kind = f"{clause.action}_star_action"
    else:
        kind = f"{clause.action}_action"
        body = {"assignments": assignment_messages(session, dict(clause.assignments))}
    return {"condition": where, kind: body}


def optimize_builder(session: ClientSession, table: Message) -> DeltaOptimizeBuilder:
    """An OPTIMIZE of the table in a message."""

    def run(request: OptimizeRequest) -> DataFrame:
        body = {
            "table": table,
            "partition_filters": request.where,
            "zorder_columns": [name for (name,) in request.z_order_by],
        }
        return session.result("optimize_table", body)

    return DeltaOptimizeBuilder(run, lambda name: (name,))  # the server parses names


@raises_spark_errors
class ConnectTableBuilder(DeltaTableBuilder):
    """Builds a table call by call, and lets the server create it."""

    def __init__(self, spark: Any, mode: str, open_table: Any) -> None:
        """`open_table` gives the `DeltaTable` of a message when the table exists."""
        super().__init__(spark)
        self._session = ClientSession(spark)
        self._mode = MODES[mode]
        self._open_table = open_table
        self._column_messages: list[Message] = []

    def _add_column(self, new: NewColumn) -> None:
        message = {
            "name": new.name,
            "data_type": self._session.data_type(new.data_type),
            "nullable": new.nullable,
            "comment": new.comment,
        }
        if new.expression is not None:
            message["generated_always_as"] = new.expression
        elif new.generator is not None:
            message["identity_info"] = {
                "start": new.generator.start,
                "step": new.generator.step,
                "allow_explicit_insert": new.allows_explicit_insert,
            }
        self._column_messages.append(message)

    def addColumns(self, cols: StructType | list[StructField]) -> Self:
        for each in cols if isinstance(cols, (list, StructType)) else [cols]:
            if not isinstance(each, StructField):
                wrong_type("cols", "a StructType or a list of StructField", each)
            comment = each.metadata.get("comment")
            self.addColumn(each.name, each.dataType, each.nullable, comment=comment)
        return self

    def execute(self) -> Any:
        if self._identifier is None and self._location is None:
            raise SchemaError("DELTA_CREATE_TABLE_MISSING_TABLE_NAME_OR_LOCATION")
        body = {
            "mode": self._mode,
            "table_name": self._identifier,
            "location": self._location,
            "comment": self._comment,
            "columns": self._column_messages,
            "partitioning_columns": self._partition_by,
            "clustering_columns": self._cluster_by,
            "properties": self._properties,
        }
        self._session.run("create_delta_table", body)
        return self._open_table(self._identifier, self._location)
