"""Catalyst's filters as JSON trees, read in one call, and values that the JSON does not have."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JError

from pyspark_delta.spark.jvm.gateway import JvmSession, items


class Filter:
    """One filter of a query.

    `nodes` is its tree, as `TreeNode.toJSON` lists it: a node, then each child with its own tree.
    It is None when Spark cannot write it as JSON.
    """

    def __init__(self, expression: Any, nodes: Sequence[dict[str, Any]] | None, start: int) -> None:
        self._root = expression
        self.nodes = nodes
        self._start = start

    def literal_value(self, position: int) -> Any:
        """The value of the literal at that position of `nodes`, in Catalyst's form."""
        return self._node(position).value()

    def set_values(self, position: int) -> tuple[list[str], bool]:
        """The values of the set at that position, as Java prints them, and whether it has null."""
        values = self._node(position).hset()
        has_null = bool(values.contains(None))
        if has_null:
            values = getattr(values, "$minus")(None)
        between = uuid4().hex
        text: str = values.mkString(between)
        return (text.split(between) if text or values.size() else []), has_null

    def _node(self, position: int) -> Any:
        return self._root.apply(self._start + position)


def filters_of(jvm: JvmSession, expressions: Any) -> list[Filter]:
    """The filters in a Scala sequence."""
    if expressions.isEmpty():
        return []
    together = jvm.expression_class("CreateArray")(expressions, False)
    try:
        nodes = json.loads(together.toJSON())
        spans = _spans(nodes)
    except (Py4JError, ValueError, KeyError, IndexError, TypeError, RecursionError):
        return [Filter(each, None, 0) for each in items(expressions)]
    return [Filter(together, nodes[start:end], start) for start, end in spans]


def _spans(nodes: Sequence[dict[str, Any]]) -> list[tuple[int, int]]:
    """The start and end of the tree of each child of the first node."""
    spans = []
    at = 1
    for _ in range(nodes[0]["num-children"]):
        start, open_nodes = at, 1
        while open_nodes:
            open_nodes += nodes[at]["num-children"] - 1
            at += 1
        spans.append((start, at))
    if at != len(nodes):
        raise ValueError("there is more than the filters")
    return spans
