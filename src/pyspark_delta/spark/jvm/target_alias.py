"""Expressions about a table that call it, or its columns, by other names than its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import Column

from pyspark_delta.spark.jvm.catalyst import column_of, expression_of
from pyspark_delta.spark.jvm.gateway import JvmSession, items

Renaming = Callable[[tuple[str, ...]], tuple[str, ...]]
"""From the parts of a name to those of another, or the same."""


def without_alias(jvm: JvmSession, condition: Column, alias: str) -> Column:
    """`alias.name` becomes `name` wherever it stands."""

    def renaming(parts: tuple[str, ...]) -> tuple[str, ...]:
        return parts[1:] if len(parts) > 1 and parts[0].lower() == alias.lower() else parts

    return renamed(jvm, condition, renaming)


def renamed(jvm: JvmSession, expression: Column, renaming: Renaming) -> Column:
    """An expression with other names for columns; those inside of queries stay."""
    jvm.accept_callbacks()
    return column_of(jvm, expression_of(jvm, expression).transform(_Renamed(jvm, renaming)))


class _Renamed:
    """Scala's partial function from an expression to another, which Catalyst asks for each node."""

    def __init__(self, jvm: JvmSession, renaming: Renaming) -> None:
        self._jvm = jvm
        self._renaming = renaming

    def isDefinedAt(self, node: Any) -> bool:
        return True

    def applyOrElse(self, node: Any, default: Any) -> Any:
        if node.nodeName() != "UnresolvedAttribute":
            return node
        parts = tuple(map(str, items(node.nameParts())))
        found = self._renaming(parts)
        if found == parts:
            return node
        unresolved = "org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute"
        return self._jvm.java_class(unresolved)(self._jvm.seq(found))

    class Java:
        """What Py4J asks for."""

        implements = ("scala.PartialFunction",)
