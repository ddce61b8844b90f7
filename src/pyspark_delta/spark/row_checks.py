"""Rules that rows must keep, as part of the plan that makes them; what a broken one tells the user.

A rule is a Catalyst condition.  Where it is not true the plan raises an error whose message is a
small JSON text with the facts; `typed_violations` makes one of ours of it.  No row enters Python.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_delta.errors.base import DeltaError
from pyspark_delta.errors.table import ConstraintError, SchemaError
from pyspark_delta.kernel.protocol.types import column_name
from pyspark_delta.spark.column_alignment import column
from pyspark_delta.spark.jvm.failures import JAVA_FAILURES, innermost, messages
from pyspark_delta.spark.jvm.sql_text import Expression

_MARK = "pyspark-delta-violation:"
_LINES = "values"  # the parameter with a line for each column
_LONGEST_VALUE = 1000
# What a plan may raise, and as which class.
_CLASSES: Mapping[str, type[DeltaError]] = {
    "DELTA_NOT_NULL_CONSTRAINT_VIOLATED": ConstraintError,
    "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES": ConstraintError,
    "DELTA_EXCEED_CHAR_VARCHAR_LIMIT": ConstraintError,
    "DELTA_IDENTITY_COLUMN_OVERFLOW": SchemaError,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCheck:
    """A condition that every written row must make true; null is not true.

    `condition` is over the table's logical columns.  `name` is the `constraintName` of the
    DELTA_VIOLATE_CONSTRAINT_WITH_VALUES that a row without it raises.
    """

    name: str
    condition: str | Column


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A condition, and the expression that raises the error of a row for which it is not true."""

    condition: Column
    violation: Column


def not_null_rule(path: Sequence[str]) -> Rule:
    """A field must have a value, and so must every struct around it."""
    found = reduce(lambda parent, name: parent.getField(name), path[1:], column(path[0]))
    return Rule(
        condition=found.isNotNull(),
        violation=raised("DELTA_NOT_NULL_CONSTRAINT_VIOLATED", columnName=column_name(path)),
    )


def check_rule(name: str, condition: Expression) -> Rule:
    """A condition must be true; the error shows the row's values of the columns it names."""
    return Rule(
        condition=condition.column,
        violation=raised(
            "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES",
            constraintName=name,
            expression=condition.sql,
            values=_struct(condition.columns),
        ),
    )


def length_rule(name: str, condition: Expression) -> Rule:
    """A text must fit into its CHAR or VARCHAR; the error shows the column's value."""
    return Rule(
        condition=condition.column,
        violation=raised(
            "DELTA_EXCEED_CHAR_VARCHAR_LIMIT",
            value=column(name),
            expr=condition.sql,
        ),
    )


def raised(condition: str, **parameters: str | Column) -> Column:
    """An expression that fails with an error of ours; parameters may be values of the row."""
    texts = {name: value for name, value in parameters.items() if isinstance(value, str)}
    values = [value.alias(name) for name, value in parameters.items() if not isinstance(value, str)]
    facts = F.lit(json.dumps({"condition": condition, **texts}))
    shown = F.to_json(F.struct(*values), {"ignoreNullFields": "false"}) if values else F.lit("{}")
    # Spark moves what gives the same each time below joins and filters, where rows are that nobody
    # writes, and a rule that no row can keep is this error alone; asking for the partition, of
    # which nothing is told, it stays where it is.
    nothing = F.left(F.spark_partition_id().cast("string"), F.lit(0))
    return F.raise_error(
        F.concat(F.lit(f"{_MARK}["), facts, F.lit(","), shown, F.lit("]"), nothing)
    )


def checked(data: DataFrame, rules: Sequence[Rule], where: Column | None = None) -> DataFrame:
    """`data` as it is, in a plan that fails at the first row that breaks one of `rules`.

    Rows for which `where` is not true may break them.
    """
    if not rules:
        return data
    # A condition that asks for the partition stays where it is, as errors do (`raised`).
    outcome = F.spark_partition_id() >= 0
    for rule in reversed(rules):
        broken = rule.violation.cast("boolean")
        outcome = F.when(rule.condition, outcome).otherwise(broken)
    if where is not None:
        outcome = F.when(where, outcome).otherwise(F.lit(True))
    return data.where(outcome)


@contextmanager
def typed_violations(
    translate: Callable[[DeltaError], DeltaError] | None = None,
) -> Iterator[None]:
    """Raise our error for a job that failed because a row breaks a rule.

    `translate` may give another error for it, as replaceWhere does.  What failed for another
    reason comes out as Spark's own error of that reason, and not of the task it happened in.
    """
    try:
        yield
    except JAVA_FAILURES as error:
        for message in messages(error):
            if (found := _violation(message)) is not None:
                raise (translate(found) if translate else found) from error
        inner = innermost(error)
        if inner is error:
            raise
        raise inner from error


def _violation(text: str) -> DeltaError | None:
    start = text.find(_MARK)
    if start < 0:
        return None
    decoder = json.JSONDecoder(parse_float=Decimal)  # a float would lose digits
    try:
        (facts, values), _ = decoder.raw_decode(text, start + len(_MARK))
        condition = facts.pop("condition")
        shown = {
            name: _lines(value) if name == _LINES else _text(value)
            for name, value in values.items()
        }
        return _CLASSES[condition](condition, **facts, **shown)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _struct(columns: Sequence[tuple[str, Column]]) -> Column | str:
    return F.struct(*[value.alias(name) for name, value in columns]) if columns else ""


def _lines(values: Mapping[str, Any]) -> str:
    return "\n".join(f" - {name} : {_text(value)}" for name, value in values.items())


def _text(value: Any) -> str:
    if isinstance(value, str | Decimal):
        text = str(value)
    else:
        text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."
