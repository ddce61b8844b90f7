"""Filters that Spark pushes to a Python data source, as predicates.

>>> from pyspark.sql.datasource import EqualTo, Not as NotFilter
>>> predicate_of_filter(NotFilter(EqualTo(("a", "b"), 5))).to_sql()
'NOT (a.b = 5)'
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import datasource as spark

from pyspark_delta.kernel.scan.predicates import (
    Column,
    In,
    IsNull,
    Literal,
    Not,
    Predicate,
    StartsWith,
    Unknown,
    compare,
    literal,
)

_OPERATORS: dict[type[spark.Filter], str] = {
    spark.EqualTo: "=",
    spark.EqualNullSafe: "<=>",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
}


def predicate_of_filter(filter: spark.Filter) -> Predicate:
    """What a filter asks of a row; `Unknown`, which rules nothing out, where there are no words."""
    rule = _RULES.get(type(filter))
    try:
        return Unknown(repr(filter)) if rule is None else rule(filter)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return Unknown(repr(filter))


def _comparison(filter: Any) -> Predicate:
    # Refuses lists and maps, which columns can be compared with too.
    _literal(filter.value)
    return compare(filter.attribute, _OPERATORS[type(filter)], filter.value)


def _literal(value: Any) -> Literal:
    found: Literal | None = literal(value)
    if found is None:
        raise ValueError(f"{value!r} is not a literal")
    return found


_RULES: dict[type[spark.Filter], Callable[[Any], Predicate]] = {
    **dict.fromkeys(_OPERATORS, _comparison),
    spark.In: lambda f: In(Column(f.attribute), tuple(_literal(value) for value in f.value)),
    spark.IsNull: lambda f: IsNull(Column(f.attribute)),
    spark.IsNotNull: lambda f: Not(IsNull(Column(f.attribute))),
    spark.StringStartsWith: lambda f: StartsWith(Column(f.attribute), f.value),
    spark.Not: lambda f: Not(predicate_of_filter(f.child)),
}
