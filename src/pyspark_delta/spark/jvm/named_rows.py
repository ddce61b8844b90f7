"""Rows under the name of their table, which expressions may put before a column's."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans import plan_frame

Called = str | tuple[str, ...] | None
"""What expressions call a table: an alias, all parts of its name, or nothing."""


def named_rows(rows: DataFrame, called: Called) -> DataFrame:
    """`rows` as the table of that name: `t`, or `db.t` and `t` where the name has two parts."""
    if not called:
        return rows
    if isinstance(called, str) or len(called) == 1:
        return rows.alias(called if isinstance(called, str) else called[0])
    jvm = JvmSession(rows.sparkSession)
    identifier = jvm.java_class("org.apache.spark.sql.catalyst.AliasIdentifier")
    alias = jvm.java_class("org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias$")
    name = identifier(called[-1], jvm.seq(called[:-1]))
    return plan_frame(jvm, alias.apply(name, rows._jdf.queryExecution().analyzed()))


def without_name(
    path: Sequence[str], called: Called, *, exact: bool = False
) -> tuple[tuple[str, ...], ...]:
    """What a path may mean besides itself: without each ending of the table's name before it.

    `exact` says that the name must be spelled as it is.

    >>> without_name(("db", "t", "x"), ("cat", "db", "t"))
    (('x',),)
    >>> without_name(("t", "x"), "t"), without_name(("x",), "x"), without_name(("a", "b"), None)
    ((('x',),), (), ())
    """
    names = (called,) if isinstance(called, str) else tuple(called or ())
    whole = [part if exact else part.lower() for part in names]
    steps = [step if exact else step.lower() for step in path]
    return tuple(
        tuple(path[size:])
        for size in range(len(whole), 0, -1)
        if len(path) > size and steps[:size] == whole[-size:]
    )
