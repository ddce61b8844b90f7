"""A condition that calls the table by a name, as one that does not."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column

from pyspark_delta.spark.jvm.catalyst import column_of, expression_of
from pyspark_delta.spark.jvm.gateway import JvmSession


def without_alias(jvm: JvmSession, condition: Column, alias: str) -> Column:
    """`alias.name` becomes `name` wherever it stands."""
    jvm.accept_callbacks()
    return column_of(jvm, expression_of(jvm, condition).transform(_Unqualified(jvm, alias)))


class _Unqualified:
    """Scala's partial function from an expression to another, which Catalyst asks for each node."""

    def __init__(self, jvm: JvmSession, alias: str) -> None:
        self._jvm = jvm
        self._alias = alias.lower()

    def isDefinedAt(self, node: Any) -> bool:
        return True

    def applyOrElse(self, node: Any, default: Any) -> Any:
        if node.nodeName() != "UnresolvedAttribute":
            return node
        parts = node.nameParts()
        if parts.size() < 2 or str(parts.head()).lower() != self._alias:
            return node
        unresolved = "org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute"
        return self._jvm.java_class(unresolved)(parts.tail())

    class Java:
        """What Py4J asks for."""

        implements = ("scala.PartialFunction",)
