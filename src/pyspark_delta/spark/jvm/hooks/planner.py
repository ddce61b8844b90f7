"""Spark Connect's planner: Spark's own messages inside of Delta's, as columns, rows and types."""

from __future__ import annotations

import json
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import DataType, StructType

from pyspark_delta.errors import PropertyError
from pyspark_delta.spark.jvm.expressions.catalyst import column_of
from pyspark_delta.spark.jvm.gateway import JvmSession, items
from pyspark_delta.spark.jvm.plans.frames import plan_frame

_PROTO = "org.apache.spark.connect.proto"
_CONVERTER = "org.apache.spark.sql.connect.common.DataTypeProtoConverter"


class ConnectPlanner:
    """Reads messages of one request of a client."""

    def __init__(self, jvm: JvmSession, planner: Any) -> None:
        self._jvm = jvm
        self._planner = planner

    @property
    def executes(self) -> bool:
        """Whether the client runs the plan; false where it only looks at its columns."""
        return bool(self._planner.executeHolderOpt().isDefined())

    def column(self, message: bytes) -> Column:
        """An expression."""
        return column_of(
            self._jvm, self._planner.transformExpression(self._parsed("Expression", message))
        )

    def name(self, message: bytes) -> tuple[str, ...] | None:
        """The name in an expression that is only a column's name; None for another one."""
        found = self._planner.transformExpression(self._parsed("Expression", message))
        if found.nodeName() != "UnresolvedAttribute":
            return None
        return tuple(map(str, items(found.nameParts())))

    def rows(self, message: bytes) -> DataFrame:
        """A relation, as a DataFrame of the server's."""
        return plan_frame(
            self._jvm, self._planner.transformRelation(self._parsed("Relation", message))
        )

    def data_type(self, message: bytes) -> DataType:
        """A data type."""
        parsed = self._parsed("DataType", message)
        if parsed.hasUnparsed():
            text = parsed.getUnparsed().getDataTypeString()
            java_type = self._jvm.parser.parseDataType(text)
        else:
            java_type = self._jvm.static(_CONVERTER, "toCatalystType")(parsed)
        column = {
            "name": "c",
            "type": json.loads(java_type.json()),
            "nullable": True,
            "metadata": {},
        }
        return StructType.fromJson({"type": "struct", "fields": [column]}).fields[0].dataType

    def _parsed(self, name: str, message: bytes) -> Any:
        try:
            return self._jvm.static(f"{_PROTO}.{name}", "parseFrom")(bytearray(message))
        except Py4JJavaError as error:
            raise PropertyError(
                "DELTA_ILLEGAL_OPTION",
                input=f"{len(message)} bytes",
                name=name,
                explain="is not a message of Spark Connect",
            ) from error
