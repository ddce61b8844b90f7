"""The one time that all of a command's expressions see.

Spark asks for the time once for each query, and a command may need several: without this, rows
that one command writes would tell different times, and a condition that asks for the time could
hold in one of its queries and not in the next.
"""

from __future__ import annotations

from typing import Any

from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.tree_functions import with_expressions

_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions"
_TYPES = "org.apache.spark.sql.types"
# What asks for the time, and the type of the answer.
_ASKING = {
    "CurrentTimestamp": "TimestampType",
    "Now": "TimestampType",
    "CurrentDate": "DateType",
    "LocalTimestamp": "TimestampNTZType",
}


class Moment:
    """A time that begins with the first expression that asks for it."""

    def __init__(self, jvm: JvmSession) -> None:
        self._jvm = jvm
        self._literal: Any = None

    def fixed(self, plan: Any) -> Any:
        """A plan whose own expressions, looked up already, have this time in place of asking."""
        pattern = self._jvm.java_class("org.apache.spark.sql.catalyst.trees.TreePattern$")
        asking = self._jvm.remembered(f"{__name__} asking", pattern.CURRENT_LIKE)
        if not plan.containsPattern(asking):
            return plan
        return with_expressions(self._jvm, plan, self._answer)

    def _answer(self, node: Any) -> Any:
        wanted = _ASKING.get(str(node.nodeName()))
        if wanted is None:
            return node
        if wanted == "TimestampType":
            return self._time
        kind = self._jvm.java_class(f"{_TYPES}.{wanted}$")
        legacy = self._jvm.java_class(f"{_EXPRESSIONS}.EvalMode$").LEGACY()
        cast = self._jvm.java_class(f"{_EXPRESSIONS}.Cast")
        return cast(self._time, kind, node.timeZoneId(), legacy)

    @property
    def _time(self) -> Any:
        if self._literal is None:
            asking = self._jvm.java_class(f"{_EXPRESSIONS}.CurrentTimestamp")()
            literal = self._jvm.java_class(f"{_EXPRESSIONS}.Literal")
            self._literal = literal(asking.eval(None), asking.dataType())
        return self._literal
