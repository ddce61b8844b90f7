"""Catalyst expressions and types: names, casts, store assignment, the current time, Java calls.

Spark makes such expressions for its own statements and tasks; PySpark has no functions for them.
A query's filters are read as JSON trees, in one call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.types import StructType as SparkStructType

from pyspark_delta.kernel.protocol.types import INTEGER, DataType, StructType
from pyspark_delta.spark.jvm.failures import JAVA_FAILURES
from pyspark_delta.spark.jvm.gateway import JvmSession, from_spark, items, java_interfaces

# Null arguments make null, and the result may be null.
_NULL_FLAGS = (True, True)
_EXPRESSION_UTILS = "org.apache.spark.sql.classic.ExpressionUtils$"
_WRONG_DEFAULT = "INVALID_DEFAULT_VALUE.DATA_TYPE"
_UNRESOLVED = "org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute"
_SQL_TYPES = "org.apache.spark.sql.types"
# Expressions of the current time, and the types of their results.
_CURRENT = {
    "CurrentTimestamp": "TimestampType",
    "Now": "TimestampType",
    "CurrentDate": "DateType",
    "LocalTimestamp": "TimestampNTZType",
}

NodeChange = Callable[[Any], Any]
"""Returns the replacement of a node, or the node itself."""
Renaming = Callable[[tuple[str, ...]], tuple[str, ...]]
"""Maps the parts of a name to those of another, or the same."""


class StorePolicy(Enum):
    """How a value is cast to its column's type: Spark's `spark.sql.storeAssignmentPolicy`.

    `ANSI_CAST` is not Spark's: it is ANSI with the errors of an explicit CAST.
    """

    ANSI = "ANSI"
    STRICT = "STRICT"
    LEGACY = "LEGACY"
    ANSI_CAST = "ANSI_CAST"


def column_of(jvm: JvmSession, expression: Any) -> Column:
    """A Catalyst expression, resolved or not, as a column."""
    return ClassicColumn(jvm.java_class(_EXPRESSION_UTILS).column(expression))


def expression_of(jvm: JvmSession, column: Column) -> Any:
    """The unresolved Catalyst expression of a column."""
    return jvm.session.expression(column._jc)


def alias_of(jvm: JvmSession, child: Any, name: str, metadata: str | None = None) -> Any:
    """An expression under a name; with `metadata`, JSON, in place of its own."""
    explicit = jvm.none()
    if metadata is not None:
        explicit = jvm.some(jvm.static(f"{_SQL_TYPES}.Metadata", "fromJson")(metadata))
    identity = jvm.expression_class("NamedExpression$").newExprId()
    nothing = jvm.seq([])
    alias = jvm.expression_class("Alias")
    return alias(child, name, identity, nothing, explicit, nothing)


def transformed(jvm: JvmSession, expression: Any, change: NodeChange) -> Any:
    """An expression with `change` applied to each node."""
    jvm.accept_callbacks()
    return expression.transform(_EachNode(change))


def parse_attribute_name(jvm: JvmSession, text: str) -> tuple[str, ...]:
    """The parts of a column's name, `s.a` or `` `a.b` ``; Spark's error for an invalid name."""
    if text.isidentifier():
        return (text,)
    return tuple(items(jvm.static(_UNRESOLVED, "parseAttributeName")(text)))


def column_path(jvm: JvmSession, plan: Any, parts: Sequence[str]) -> tuple[str, ...] | None:
    """The column or field of a plan that a name refers to, without the plan's name in front.

    None for an unknown name; Spark's own error for a missing field of a known column.
    """
    found = plan.resolve(jvm.seq(parts), jvm.state.conf().resolver())
    if not found.isDefined():
        return None
    node, num_fields = found.get(), 0
    if node.nodeName() == "Alias":
        node = node.child()
    while node.nodeName() != "AttributeReference":
        node, num_fields = node.children().head(), num_fields + 1
    return tuple(parts[len(parts) - num_fields - 1 :])


def is_default_keyword(jvm: JvmSession, value: Column) -> bool:
    """Whether the value is the bare keyword DEFAULT."""
    expression = expression_of(jvm, value)
    if expression.nodeName() != "UnresolvedAttribute":
        return False
    return str(expression.name()).lower() == "default"


def without_alias(jvm: JvmSession, condition: Column, alias: str) -> Column:
    """Replace `alias.name` by `name` everywhere in a condition."""

    def renaming(parts: tuple[str, ...]) -> tuple[str, ...]:
        return parts[1:] if len(parts) > 1 and parts[0].lower() == alias.lower() else parts

    return with_renamed_columns(jvm, condition, renaming)


def with_renamed_columns(jvm: JvmSession, expression: Column, renaming: Renaming) -> Column:
    """Rename columns in an expression; those in subqueries stay."""
    unresolved = jvm.java_class(_UNRESOLVED)

    def with_new_name(node: Any) -> Any:
        if node.nodeName() != "UnresolvedAttribute":
            return node
        parts = tuple(map(str, items(node.nameParts())))
        found = renaming(parts)
        return node if found == parts else unresolved(jvm.seq(found))

    return column_of(jvm, transformed(jvm, expression_of(jvm, expression), with_new_name))


class Moment:
    """The current time for all expressions of a command, taken at the first that needs it.

    Spark takes the time once per query, and a command may run several queries.  Without this, rows
    that one command writes could have different times, and a condition on the time could be true in
    one query and false in the next.
    """

    def __init__(self, jvm: JvmSession) -> None:
        self._jvm = jvm
        self._literal: Any = None

    def fixed(self, plan: Any) -> Any:
        """A plan with this time in place of its current-time expressions, which are resolved.

        Child plans stay as they are.
        """
        pattern = self._jvm.java_class("org.apache.spark.sql.catalyst.trees.TreePattern$")
        current = self._jvm.remembered(f"{__name__} current", pattern.CURRENT_LIKE)
        if not plan.containsPattern(current):
            return plan
        self._jvm.accept_callbacks()
        return plan.transformExpressions(_EachNode(self._value))

    def _value(self, node: Any) -> Any:
        wanted = _CURRENT.get(str(node.nodeName()))
        if wanted is None:
            return node
        if wanted == "TimestampType":
            return self._time
        kind = self._jvm.java_class(f"{_SQL_TYPES}.{wanted}$")
        legacy = self._jvm.expression_class("EvalMode$").LEGACY()
        cast = self._jvm.expression_class("Cast")
        return cast(self._time, kind, node.timeZoneId(), legacy)

    @property
    def _time(self) -> Any:
        if self._literal is None:
            now = self._jvm.expression_class("CurrentTimestamp")()
            literal = self._jvm.expression_class("Literal")
            self._literal = literal(now.eval(None), now.dataType())
        return self._literal


def object_type(jvm: JvmSession, java_class: Any) -> Any:
    """Catalyst's type for objects of a Java class."""
    return jvm.java_class(f"{_SQL_TYPES}.ObjectType")(java_class)


def held_object(jvm: JvmSession, value: Any) -> Any:
    """A Java object as a constant, which is sent along with the task."""
    return jvm.expression_class("Literal")(value, object_type(jvm, value.getClass()))


def new_object(
    jvm: JvmSession, class_name: str, arguments: Sequence[Any], *, propagates_null: bool = True
) -> Any:
    """A call of a Java constructor, compiled into the task's code."""
    java_class = jvm.class_named(class_name)
    return jvm.expression_class("objects.NewInstance")(
        java_class,
        jvm.seq(arguments),
        jvm.seq([]),
        propagates_null,
        object_type(jvm, java_class),
        jvm.none(),
    )


def static_call(
    jvm: JvmSession,
    class_name: str,
    method: str,
    returns: Any,
    arguments: Sequence[Any] = (),
    *,
    is_deterministic: bool = True,
) -> Any:
    """A call of a static Java method; null if an argument is null."""
    call = jvm.expression_class("objects.StaticInvoke")
    owner, flags = jvm.class_named(class_name), (*_NULL_FLAGS, is_deterministic)
    return call(owner, returns, method, jvm.seq(arguments), jvm.seq([]), *flags, jvm.none())


def method_call(
    jvm: JvmSession,
    target: Any,
    method: str,
    returns: Any,
    arguments: Sequence[Any] = (),
    *,
    is_deterministic: bool = True,
) -> Any:
    """A call of a method of a Java object; null if the object or an argument is null."""
    call = jvm.expression_class("objects.Invoke")
    flags = (*_NULL_FLAGS, is_deterministic)
    return call(target, method, returns, jvm.seq(arguments), jvm.seq([]), *flags)


def null_safe_equal(jvm: JvmSession, left: Column, right: Column) -> Column:
    """SQL's `<=>`, as the parser makes it, so that it prints as it was written."""
    equal = jvm.expression_class("EqualNullSafe")
    return column_of(jvm, equal(expression_of(jvm, left), expression_of(jvm, right)))


def constant(jvm: JvmSession, value: Column) -> Column:
    """The value of an expression without columns, computed now; Spark's error if that fails."""
    frame = jvm.data_frame(jvm.session.range(1).toDF()).drop("id").select(value)
    plan = frame._jdf.queryExecution().optimizedPlan()
    return column_of(jvm, plan.expressions().head().child())


def store_policy(jvm: JvmSession) -> StorePolicy:
    """The policy of the session."""
    return StorePolicy(str(jvm.state.conf().storeAssignmentPolicy().toString()))


def assignment_policy(jvm: JvmSession, *, follows_ansi: bool) -> StorePolicy:
    """The policy of the session for values that UPDATE and MERGE set.

    With `follows_ansi` it follows `spark.sql.ansi.enabled` instead, as delta-spark once did.
    """
    if not follows_ansi:
        return store_policy(jvm)
    return StorePolicy.ANSI_CAST if jvm.state.conf().ansiEnabled() else StorePolicy.LEGACY


def can_store(jvm: JvmSession, own: DataType, wanted: DataType) -> bool:
    """Whether a column of the type `wanted` takes values of `own` under the ANSI policy."""
    cast = jvm.expression_class("Cast$")
    return bool(cast.canANSIStoreAssign(jvm.data_type(own), jvm.data_type(wanted)))


def can_cast(jvm: JvmSession, own: DataType, wanted: DataType) -> bool:
    """Whether Spark casts between these types, and no key of a map can become null."""
    cast = jvm.expression_class("Cast$")
    return bool(cast.canCast(jvm.data_type(own), jvm.data_type(wanted)))


def can_up_cast(jvm: JvmSession, own: DataType, wanted: DataType) -> bool:
    """Whether every value of type `own` fits `wanted`, at the worst as text."""
    cast = jvm.expression_class("Cast$")
    return bool(cast.canUpCast(jvm.data_type(own), jvm.data_type(wanted)))


def can_default(jvm: JvmSession, text: str, own: DataType, wanted: DataType) -> bool:
    """Whether a column of type `wanted` may have a default of type `own`.

    Spark's rule also considers values: a number that fits, the text of a date.
    """
    resolver = jvm.java_class("org.apache.spark.sql.catalyst.util.ResolveDefaultColumns$")
    try:
        resolver.analyze("c", jvm.data_type(wanted), text, "CREATE TABLE")
    except JAVA_FAILURES as error:
        # Other errors, such as a value that cannot be computed, are raised elsewhere.
        if isinstance(error, AnalysisException) and error.getCondition() == _WRONG_DEFAULT:
            return False
        return can_store(jvm, own, wanted)
    return True


def stored_as(
    jvm: JvmSession,
    value: Column,
    data_type: DataType,
    policy: StorePolicy,
    *,
    name: str,
    can_overflow: bool,
) -> Column:
    """`value` cast for a column of that type and name, whatever the session's ANSI mode.

    ANSI fails for values that do not fit, and names the column if a number is too large
    (`can_overflow`), which ANSI_CAST does not.  STRICT fails during analysis for types that could
    lose anything.  LEGACY stores null or wraps.
    """
    child, wanted = expression_of(jvm, value), jvm.data_type(data_type)
    if policy is StorePolicy.STRICT:
        upcast = jvm.expression_class("UpCast")
        return column_of(jvm, upcast(child, wanted, jvm.seq([])))
    modes = jvm.expression_class("EvalMode$")
    mode = modes.LEGACY() if policy is StorePolicy.LEGACY else modes.ANSI()
    cast = jvm.expression_class("Cast")(child, wanted, jvm.none(), mode)
    if policy is StorePolicy.ANSI and can_overflow:
        cast = jvm.expression_class("CheckOverflowInTableInsert")(cast, name)
    return column_of(jvm, cast)


def num_partitions(jvm: JvmSession) -> Column:
    """The number of partitions in the stage that makes the row; null outside a task.

    It comes from the task itself, so it is right whatever the planner does.
    """
    name = "org.apache.spark.TaskContext"
    returns = object_type(jvm, jvm.class_named(name))
    context = static_call(jvm, name, "get", returns, is_deterministic=False)
    number = jvm.data_type(INTEGER)
    call = method_call(jvm, context, "numPartitions", number, is_deterministic=False)
    return column_of(jvm, call)


def stored_columns(jvm: JvmSession, schema: SparkStructType) -> StructType:
    """As `stored_schema`, for a PySpark schema."""
    found = jvm.static(f"{_SQL_TYPES}.DataType", "fromJson")(schema.json())
    return stored_schema(jvm, found)


def stored_column_type(jvm: JvmSession, name: str, text: str) -> StructType:
    """As `stored_schema`, for one column with the type in `text`; Spark's error for no type."""
    kind = jvm.parser.parseDataType(text)
    metadata = jvm.java_class(f"{_SQL_TYPES}.Metadata$").empty()
    field = jvm.java_class(f"{_SQL_TYPES}.StructField")
    columns = jvm.array(field, [field(name, kind, True, metadata)])
    return stored_schema(jvm, jvm.java_class(f"{_SQL_TYPES}.StructType")(columns))


def stored_schema(jvm: JvmSession, schema: Any) -> StructType:
    """A Java schema as tables store it: CHAR(n) and VARCHAR(n) are STRING with Spark's metadata."""
    plain = jvm.static(
        "org.apache.spark.sql.catalyst.util.CharVarcharUtils",
        "replaceCharVarcharWithStringInSchema",
    )(schema)
    return from_spark(plain)


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


class _EachNode:
    """Scala's partial function from a node to another node."""

    def __init__(self, change: NodeChange) -> None:
        self._change = change

    def isDefinedAt(self, node: Any) -> bool:
        return True

    def applyOrElse(self, node: Any, default: Any) -> Any:
        return self._change(node)

    Java = java_interfaces("scala.PartialFunction")


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
