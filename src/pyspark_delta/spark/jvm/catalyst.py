"""Catalyst expressions that PySpark has no functions for, as ordinary columns.

Spark makes them for its own INSERT and for its own tasks; here they are called by name.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql.classic.column import Column as ClassicColumn

from pyspark_delta.kernel.protocol.types import INTEGER, DataType
from pyspark_delta.spark.jvm.failures import JAVA_FAILURES
from pyspark_delta.spark.jvm.gateway import JvmSession

_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions"
_COLUMNS = "org.apache.spark.sql.classic.ExpressionUtils$"
_WRONG_DEFAULT = "INVALID_DEFAULT_VALUE.DATA_TYPE"
FOLLOWS_ANSI = "spark.databricks.delta.updateAndMergeCastingFollowsAnsiEnabledFlag"
"""The setting by which UPDATE and MERGE cast as Spark does, and not as INSERT."""


class StorePolicy(Enum):
    """How a value becomes one of its column's type: Spark's `spark.sql.storeAssignmentPolicy`.

    Spark knows no `ANSI_CAST`: it is ANSI with the errors of a CAST that somebody wrote.
    """

    ANSI = "ANSI"
    STRICT = "STRICT"
    LEGACY = "LEGACY"
    ANSI_CAST = "ANSI_CAST"


def column_of(jvm: JvmSession, expression: Any) -> Column:
    """A Catalyst expression, resolved or not, as a column."""
    return ClassicColumn(jvm.java_class(_COLUMNS).column(expression))


def expression_of(jvm: JvmSession, column: Column) -> Any:
    """The Catalyst expression that a column stands for; it is not resolved."""
    return jvm.session.expression(column._jc)


def null_safe_equal(jvm: JvmSession, left: Column, right: Column) -> Column:
    """SQL's `<=>`, as the parser makes it: it prints as it is written."""
    equal = jvm.java_class(f"{_EXPRESSIONS}.EqualNullSafe")
    return column_of(jvm, equal(expression_of(jvm, left), expression_of(jvm, right)))


def constant(jvm: JvmSession, value: Column) -> Column:
    """The value of an expression without columns, computed now; Spark's error when it has none."""
    frame = jvm.data_frame(jvm.session.range(1).toDF()).drop("id").select(value)
    plan = frame._jdf.queryExecution().optimizedPlan()
    return column_of(jvm, plan.expressions().head().child())


def store_policy(jvm: JvmSession) -> StorePolicy:
    """The policy of the session."""
    return StorePolicy(str(jvm.session.sessionState().conf().storeAssignmentPolicy().toString()))


def assignment_policy(jvm: JvmSession) -> StorePolicy:
    """The policy of the session for values that UPDATE and MERGE set.

    It can be told to follow `spark.sql.ansi.enabled` instead, as delta-spark once did.
    """
    if str(jvm.spark.conf.get(FOLLOWS_ANSI, "false")).lower() != "true":
        return store_policy(jvm)
    is_ansi = jvm.session.sessionState().conf().ansiEnabled()
    return StorePolicy.ANSI_CAST if is_ansi else StorePolicy.LEGACY


def can_store(jvm: JvmSession, own: DataType, wanted: DataType) -> bool:
    """Whether a column of the type `wanted` takes values of `own` under the ANSI policy."""
    cast = jvm.java_class(f"{_EXPRESSIONS}.Cast$")
    return bool(cast.canANSIStoreAssign(jvm.data_type(own), jvm.data_type(wanted)))


def can_cast(jvm: JvmSession, own: DataType, wanted: DataType) -> bool:
    """Whether Spark casts between these types, and can tell that no key of a map becomes null."""
    cast = jvm.java_class(f"{_EXPRESSIONS}.Cast$")
    return bool(cast.canCast(jvm.data_type(own), jvm.data_type(wanted)))


def can_up_cast(jvm: JvmSession, own: DataType, wanted: DataType) -> bool:
    """Whether every value of the type `own` is one of `wanted` too, a text at the worst."""
    cast = jvm.java_class(f"{_EXPRESSIONS}.Cast$")
    return bool(cast.canUpCast(jvm.data_type(own), jvm.data_type(wanted)))


def can_default(jvm: JvmSession, text: str, own: DataType, wanted: DataType) -> bool:
    """Whether a column of the type `wanted` may have a default of the type `own`.

    By Spark's rule, which looks at values as well: a number that fits, the text of a date.
    """
    resolver = jvm.java_class("org.apache.spark.sql.catalyst.util.ResolveDefaultColumns$")
    try:
        resolver.analyze("c", jvm.data_type(wanted), text, "CREATE TABLE")
    except JAVA_FAILURES as error:
        # What else it has to say, of a value that cannot be computed say, is for others to judge.
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

    ANSI fails on what does not fit, and names the column when a number is too large
    (`can_overflow`), which ANSI_CAST does not; STRICT refuses types that could lose anything, when
    the plan is analysed; LEGACY stores null or wraps.
    """
    child, wanted = expression_of(jvm, value), jvm.data_type(data_type)
    if policy is StorePolicy.STRICT:
        upcast = jvm.java_class(f"{_EXPRESSIONS}.UpCast")
        return column_of(jvm, upcast(child, wanted, jvm.seq([])))
    modes = jvm.java_class(f"{_EXPRESSIONS}.EvalMode$")
    mode = modes.LEGACY() if policy is StorePolicy.LEGACY else modes.ANSI()
    cast = jvm.java_class(f"{_EXPRESSIONS}.Cast")(child, wanted, jvm.none(), mode)
    if policy is StorePolicy.ANSI and can_overflow:
        cast = jvm.java_class(f"{_EXPRESSIONS}.CheckOverflowInTableInsert")(cast, name)
    return column_of(jvm, cast)


def num_partitions(jvm: JvmSession) -> Column:
    """How many partitions the stage has that the row is made in; null outside of a task.

    Asked of the task itself, so it holds whatever the planner made of the data.
    """
    objects = f"{_EXPRESSIONS}.objects"
    task_context = jvm.static("java.lang.Class", "forName")("org.apache.spark.TaskContext")
    object_type = jvm.java_class("org.apache.spark.sql.types.ObjectType")(task_context)
    nothing = jvm.seq([])
    propagates_null, is_nullable, is_deterministic = True, True, False
    flags = (propagates_null, is_nullable, is_deterministic)
    context = jvm.java_class(f"{objects}.StaticInvoke")(
        task_context, object_type, "get", nothing, nothing, *flags, jvm.none()
    )
    number = jvm.java_class(f"{objects}.Invoke")(
        context, "numPartitions", jvm.data_type(INTEGER), nothing, nothing, *flags
    )
    return column_of(jvm, number)
