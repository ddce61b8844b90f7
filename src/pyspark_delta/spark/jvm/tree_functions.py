"""Functions of ours that Catalyst asks for each node of a tree, to look at it or replace it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark_delta.spark.jvm.gateway import JvmSession

NodeChange = Callable[[Any], Any]
"""What becomes of a node; the node itself where it stays."""


def transformed(jvm: JvmSession, expression: Any, change: NodeChange) -> Any:
    """An expression with each of its nodes changed."""
    jvm.accept_callbacks()
    return expression.transform(_EachNode(change))


def with_expressions(jvm: JvmSession, plan: Any, change: NodeChange) -> Any:
    """A plan with each node of its own expressions changed; those of plans below stay."""
    jvm.accept_callbacks()
    return plan.transformExpressions(_EachNode(change))


class _EachNode:
    """Scala's partial function from a node to another."""

    def __init__(self, change: NodeChange) -> None:
        self._change = change

    def isDefinedAt(self, node: Any) -> bool:
        return True

    def applyOrElse(self, node: Any, default: Any) -> Any:
        return self._change(node)

    class Java:
        """What Py4J asks for."""

        implements = ("scala.PartialFunction",)
