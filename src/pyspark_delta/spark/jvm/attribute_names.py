"""Names of columns as SQL spells them, and the word that stands for a column's default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column

from pyspark_delta.spark.jvm.catalyst import expression_of
from pyspark_delta.spark.jvm.gateway import JvmSession, items

_UNRESOLVED = "org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute"
_DEFAULT = "default"


def parse_attribute_name(jvm: JvmSession, text: str) -> tuple[str, ...]:
    """The parts of a column's name, `s.a` or `` `a.b` ``; Spark's own error when it is none."""
    if text.isidentifier():
        return (text,)
    return tuple(items(jvm.static(_UNRESOLVED, "parseAttributeName")(text)))


def column_path(jvm: JvmSession, plan: Any, parts: Sequence[str]) -> tuple[str, ...] | None:
    """The column or field of a plan that a name means, without what the plan is called before it.

    None for a name that means nothing there; Spark's own error for a field that is not there.
    """
    resolver = jvm.session.sessionState().conf().resolver()
    found = plan.resolve(jvm.seq(parts), resolver)
    if not found.isDefined():
        return None
    node, num_fields = found.get(), 0
    if node.nodeName() == "Alias":
        node = node.child()
    while node.nodeName() != "AttributeReference":
        node, num_fields = node.children().head(), num_fields + 1
    return tuple(parts[len(parts) - num_fields - 1 :])


def is_default_keyword(jvm: JvmSession, value: Column) -> bool:
    """Whether the value is the bare word DEFAULT, which is no column but an instruction."""
    expression = expression_of(jvm, value)
    if expression.nodeName() != "UnresolvedAttribute":
        return False
    return str(expression.name()).lower() == _DEFAULT
