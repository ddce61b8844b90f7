"""A session of Spark Connect, as the client's half of Delta's protocol needs it.

It sends Delta's messages, and encodes columns, rows and types as Spark's messages, in bytes.
The classes of Spark Connect need packages that may be missing, so they are imported by name once
there is a session.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import DataType

from pyspark_delta.spark.connect.messages import PACKAGE, encoded

_CONNECT = "pyspark.sql.connect"
_TYPE_URL = f"type.googleapis.com/{PACKAGE}"


class ClientSession:
    """Calls through a session's connection; `spark` is a session of Spark Connect."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark: Any = spark

    def frame(self, operation: str, body: Mapping[str, Any]) -> DataFrame:
        """The rows of a Delta relation, which the server computes again for every action."""
        return self.frame_of(self.plan(operation, body))

    def plan(self, operation: str, body: Mapping[str, Any]) -> Any:
        return _relation_class()(encoded("DeltaRelation", {operation: body}))

    def frame_of(self, plan: Any) -> DataFrame:
        frame: DataFrame = _connect("dataframe").DataFrame(plan, self._spark)
        return frame

    def result(self, operation: str, body: Mapping[str, Any]) -> DataFrame:
        """The rows of a relation that is a command: it runs now, once, and its rows stay here."""
        return self.local(self.frame(operation, body))

    def local(self, frame: Any) -> DataFrame:
        """The rows of a DataFrame, fetched once."""
        rows, schema = frame._to_table()
        # Not by createDataFrame, which takes no null for a struct of required fields.
        return self.frame_of(_connect("plan").LocalRelation(rows, schema.json()))

    def run(self, operation: str, body: Mapping[str, Any]) -> None:
        """Run a Delta command, which has no rows."""
        command = _connect("proto").Command()
        value = encoded("DeltaCommand", {operation: body})
        _fill(command.extension, "DeltaCommand", value)
        self._spark.client.execute_command(command)

    def sql(self, text: str) -> DataFrame:
        """The result of a SQL statement, where the protocol has no message."""
        frame: DataFrame = self._spark.sql(text)
        return frame

    def relation(self, frame: Any) -> bytes:
        message: bytes = frame._plan.plan(self._spark.client).SerializeToString()
        return message

    def expression(self, value: str | Column) -> bytes:
        """The message of a column, or of an expression in SQL."""
        column: Any = value
        if isinstance(value, str):
            column = _connect("functions").expr(value)
        message: bytes = column.to_plan(self._spark.client).SerializeToString()
        return message

    def column_name(self, name: str) -> bytes:
        """The message of a column's name, which may be quoted and nested."""
        return self.expression(_connect("functions").col(name))

    def data_type(self, given: str | DataType) -> bytes:
        """The message of a type, which is SQL text or PySpark's."""
        if isinstance(given, str):
            message = _connect("proto").DataType()
            message.unparsed.data_type_string = given
        else:
            message = _connect("types").pyspark_types_to_proto_types(given)
        data: bytes = message.SerializeToString()
        return data


def _connect(module: str) -> Any:
    return import_module(f"{_CONNECT}.{module}")


def _fill(extension: Any, message: str, value: bytes) -> None:
    """Fill a field of the type `google.protobuf.Any`."""
    extension.type_url = f"{_TYPE_URL}.{message}"
    extension.value = value


@cache
def _relation_class() -> Any:
    """The class of a Delta message in plans of Spark Connect."""
    base = _connect("plan").LogicalPlan

    def __init__(self: Any, value: bytes) -> None:
        base.__init__(self, None)
        self._value = value

    def plan(self: Any, session: Any) -> Any:
        relation = self._create_proto_relation()
        _fill(relation.extension, "DeltaRelation", self._value)
        return relation

    return type("DeltaRelation", (base,), {"__init__": __init__, "plan": plan})
