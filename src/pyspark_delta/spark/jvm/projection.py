"""A projection in few calls: PySpark's own columns take a dozen each, which small writes feel."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame

from pyspark_delta.kernel.protocol.types import DataType
from pyspark_delta.spark.jvm.catalyst import column_of
from pyspark_delta.spark.jvm.gateway import JvmSession

_FUNCTIONS = "org.apache.spark.sql.functions"
_KNOWN_NULLABLE = "org.apache.spark.sql.catalyst.expressions.KnownNullable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Projected:
    """A column of a result: a SQL expression, cast to a type if there is one, under a name.

    `metadata` becomes the column's; without any it has that of the expression.  One that `is_apart`
    is never taken for another column with its name and values.
    """

    expression: str
    name: str
    data_type: DataType | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    is_apart: bool = False


def project(jvm: JvmSession, data: DataFrame, columns: Sequence[Projected]) -> DataFrame:
    """`data` with these columns and no others."""
    selected = [_column(jvm, column) for column in columns]
    return jvm.data_frame(data._jdf.select(jvm.seq(selected)))


def _column(jvm: JvmSession, column: Projected) -> Any:
    if column.is_apart:
        found = _kept_apart(jvm, column.expression)
    else:
        found = jvm.static(_FUNCTIONS, "expr")(column.expression)
    if column.data_type is not None:
        found = found.cast(jvm.data_type(column.data_type))
    if not column.metadata:
        return getattr(found, "as")(column.name)
    text = json.dumps(column.metadata)
    metadata = jvm.static("org.apache.spark.sql.types.Metadata", "fromJson")(text)
    return getattr(found, "as")(column.name, metadata)


def _kept_apart(jvm: JvmSession, expression: str) -> Any:
    """The column with a mark around it that costs nothing, and that no optimizer takes away.

    An alias with metadata of its own is no such mark: below a union it loses them.
    """
    parsed = jvm.session.sessionState().sqlParser().parseExpression(expression)
    return column_of(jvm, jvm.java_class(_KNOWN_NULLABLE)(parsed))._jc
