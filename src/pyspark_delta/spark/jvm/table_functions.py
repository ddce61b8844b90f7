"""Functions of ours that stand where a table can: `SELECT * FROM table_changes('t', 1)`.

Spark asks for the plan of a call while it looks names up, so joins, views, subqueries and
arguments of the statement are its own affair.  Arguments come computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame

from pyspark_delta.spark.jvm.callback_errors import noted_errors
from pyspark_delta.spark.jvm.catalyst import column_of
from pyspark_delta.spark.jvm.gateway import JvmSession, items

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Argument:
    """A value that a function was called with, None for null, and Spark's name of its type."""

    value: object
    type_name: str


TableFunction = Callable[[Sequence[Argument]], DataFrame | tuple[str, ...]]
"""From arguments to rows, or to the name of a table that Spark is to look up instead."""


def install_table_functions(jvm: JvmSession, functions: Mapping[str, TableFunction]) -> None:
    """Make the functions known to the session; those that it has already are replaced."""
    jvm.accept_callbacks()
    registry = jvm.session.sessionState().tableFunctionRegistry()
    described = jvm.java_class("org.apache.spark.sql.catalyst.expressions.ExpressionInfo")
    for name, function in functions.items():
        info = described("org.apache.spark.sql.catalyst.plans.logical.LeafNode", name)
        identifier = _identifier(jvm, name)
        # A copy of a session has the functions already; Spark warns of one that is replaced.
        registry.dropFunction(identifier)
        registry.registerFunction(identifier, info, _Builder(jvm, function))


def remove_table_functions(jvm: JvmSession, names: Sequence[str]) -> None:
    """Undo `install_table_functions`."""
    registry = jvm.session.sessionState().tableFunctionRegistry()
    for name in names:
        registry.dropFunction(_identifier(jvm, name))


class _Builder:
    """The object that Java calls: a Scala function from expressions to a plan."""

    class Java:
        """Tells Py4J which interface this is."""

        implements = ("scala.Function1",)

    def __init__(self, jvm: JvmSession, function: TableFunction) -> None:
        self._jvm = jvm
        self._function = function

    def apply(self, expressions: Any) -> Any:
        with noted_errors():
            found = self._function([_argument(self._jvm, each) for each in items(expressions)])
        if isinstance(found, DataFrame):
            return found._jdf.queryExecution().analyzed()
        relation = self._jvm.java_class("org.apache.spark.sql.catalyst.analysis.UnresolvedRelation")
        options = "org.apache.spark.sql.util.CaseInsensitiveStringMap"
        no_options = self._jvm.static(options, "empty")()
        return relation(self._jvm.seq(found), no_options, False)

    def toString(self) -> str:
        return "Delta[table function]"


def _identifier(jvm: JvmSession, name: str) -> Any:
    """The whole name: Spark keeps functions that come with a session among its own."""
    identifier = jvm.java_class("org.apache.spark.sql.catalyst.FunctionIdentifier")
    return identifier(name, jvm.some("builtin"), jvm.some("system"))


def _argument(jvm: JvmSession, expression: Any) -> Argument:
    literal = expression
    if expression.nodeName() != "Literal":
        # The optimizer computes constants, the time among them.
        frame = jvm.data_frame(jvm.session.range(1).toDF()).select(column_of(jvm, expression))
        plan = frame._jdf.queryExecution().optimizedPlan()
        literal = plan.expressions().head().child()
    kind = str(expression.dataType().typeName())
    if literal.nodeName() != "Literal":
        return Argument(expression, "expression")
    return Argument(_value(literal.value(), kind), kind)


def _value(value: Any, kind: str) -> object:
    if value is None or isinstance(value, (bool, float, str)):
        return value
    if kind == "timestamp":
        return _EPOCH + timedelta(microseconds=value)
    if kind == "timestamp_ntz":
        return _EPOCH.replace(tzinfo=None) + timedelta(microseconds=value)
    if kind == "date":
        return date(1970, 1, 1) + timedelta(days=value)
    return str(value.toString()) if kind.startswith("string") else value
