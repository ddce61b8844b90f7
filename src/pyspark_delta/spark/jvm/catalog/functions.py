"""Table-valued functions of ours: `SELECT * FROM table_changes('t', 1)`.

Spark calls for a function's plan while it resolves names, so Spark handles joins, views, subqueries
and parameters of the statement.  Arguments arrive as values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame

from pyspark_delta.spark.jvm.callbacks import noted_errors, thrown_in_java
from pyspark_delta.spark.jvm.catalog.session_objects import session_object
from pyspark_delta.spark.jvm.expressions.catalyst import column_of
from pyspark_delta.spark.jvm.gateway import JvmSession, items

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """An argument of a call: its value, None for null, and Spark's name of its type."""

    value: object
    type_name: str


TableFunction = Callable[[Sequence[Argument]], DataFrame | tuple[str, ...]]
"""Returns the rows for arguments, or the name of a table for Spark to resolve instead."""


def install_table_functions(jvm: JvmSession, functions: Mapping[str, TableFunction]) -> None:
    """Register the functions in the session, in place of earlier ones."""
    jvm.accept_callbacks()
    registry = jvm.session.sessionState().tableFunctionRegistry()
    described = jvm.java_class("org.apache.spark.sql.catalyst.expressions.ExpressionInfo")
    for name, function in functions.items():
        info = described("org.apache.spark.sql.catalyst.plans.logical.LeafNode", name)
        identifier = _identifier(jvm, name)
        # A copy of a session has the functions already, and Spark warns when one is replaced.
        registry.dropFunction(identifier)
        kind = f"function {name}"
        builder = session_object(jvm, kind, "scala.Function1", _Builder(jvm, function))
        registry.registerFunction(identifier, info, builder)


def remove_table_functions(jvm: JvmSession, names: Sequence[str]) -> None:
    """Undo `install_table_functions`."""
    registry = jvm.session.sessionState().tableFunctionRegistry()
    for name in names:
        registry.dropFunction(_identifier(jvm, name))


class _Builder:
    """What Java calls: a Scala function from expressions to a plan."""

    def __init__(self, jvm: JvmSession, function: TableFunction) -> None:
        self._jvm = jvm
        self._function = function

    def apply(self, expressions: Any) -> Any:
        with thrown_in_java(self._jvm), noted_errors():
            found = self._function([_argument(self._jvm, each) for each in items(expressions)])
        if isinstance(found, DataFrame):
            return found._jdf.queryExecution().analyzed()
        relation = self._jvm.java_class("org.apache.spark.sql.catalyst.analysis.UnresolvedRelation")
        options = "org.apache.spark.sql.util.CaseInsensitiveStringMap"
        no_options = self._jvm.static(options, "empty")()
        return relation(self._jvm.seq(found), no_options, False)


def _identifier(jvm: JvmSession, name: str) -> Any:
    """The full name: Spark keeps functions that come with a session among its builtins."""
    identifier = jvm.java_class("org.apache.spark.sql.catalyst.FunctionIdentifier")
    return identifier(name, jvm.some("builtin"), jvm.some("system"))


def _argument(jvm: JvmSession, expression: Any) -> Argument:
    literal = expression
    if expression.nodeName() != "Literal":
        # The optimizer evaluates constants, such as the current time.
        frame = jvm.data_frame(jvm.session.range(1).toDF()).select(column_of(jvm, expression))
        plan = frame._jdf.queryExecution().optimizedPlan()
        literal = plan.expressions().head().child()
    kind = str(expression.dataType().typeName())
    if literal.nodeName() != "Literal":
        return Argument(value=expression, type_name="expression")
    return Argument(value=_value(literal.value(), kind), type_name=kind)


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
