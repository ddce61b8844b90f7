"""A predicate as Spark's parser reads it, before any name in it is looked up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column

from pyspark_delta.spark.jvm.catalyst import column_of
from pyspark_delta.spark.jvm.gateway import JvmSession, items

_SUBQUERIES = "org.apache.spark.sql.catalyst.expressions.SubqueryExpression$"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedPredicate:
    """A predicate; `text` is how a plan shows it, `columns` the names that it has in it."""

    column: Column = field(hash=False, compare=False)
    text: str
    columns: tuple[tuple[str, ...], ...]
    has_subquery: bool


def parse_predicate(jvm: JvmSession, text: str) -> ParsedPredicate | None:
    """The predicate that a text is; None when Spark's parser cannot read it."""
    try:
        parsed = jvm.session.sessionState().sqlParser().parseExpression(text)
    except (PySparkException, Py4JJavaError):
        return None
    named = _each(parsed.references().iterator())
    return ParsedPredicate(
        column=column_of(jvm, parsed),
        text=str(parsed.toString()),
        # As a set they have no order, and asking for one asks them for ids.
        columns=tuple(sorted(tuple(map(str, items(each.nameParts()))) for each in named)),
        has_subquery=bool(jvm.java_class(_SUBQUERIES).hasSubquery(parsed)),
    )


def _each(scala_iterator: Any) -> Iterator[Any]:
    while scala_iterator.hasNext():
        yield scala_iterator.next()
