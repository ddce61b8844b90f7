"""Aggregates over whole tables, answered from their logs: a plan of Catalyst's in, its row out.

`optimizer_rule` finds the plans; here it is read what they ask, and made what is put in their
place.  Whether the log can tell, and what, is the source's to say.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark_delta.kernel.protocol.schema_json import parse_type
from pyspark_delta.kernel.protocol.types import StructField, StructType
from pyspark_delta.kernel.scan.log_answers import Asked, Question
from pyspark_delta.spark.jvm.file_index import FileIndexProxy, proxy_of
from pyspark_delta.spark.jvm.filters import filters_of
from pyspark_delta.spark.jvm.gateway import JvmSession, items
from pyspark_delta.spark.jvm.partition_directories import catalyst_rows
from pyspark_delta.spark.jvm.unsafe_rows import values_row

ENABLED = "spark.databricks.delta.optimizeMetadataQuery.enabled"
"""delta-spark's switch for the same."""

_PLANS = "org.apache.spark.sql.catalyst.plans.logical"
_OPTIMIZER = "org.apache.spark.sql.catalyst.optimizer"
_AGGREGATE = "AggregateExpression"
_QUESTIONS = {"Count": Question.COUNT, "Min": Question.MIN, "Max": Question.MAX}


@dataclass(slots=True)
class _Questions:
    """What a plan asks, and the columns in which it wants the answers: Catalyst's attributes.

    `below` has the columns that projections name anew: by the id of the new one, the old one.
    """

    below: Mapping[int, Any]
    asked: list[Asked] = field(default_factory=list)
    columns: list[Any] = field(default_factory=list)

    def scanned(self, attribute: Any) -> str:
        """The name that a column has in the scan."""
        while (old := self.below.get(_identity(attribute))) is not None:
            attribute = old
        name: str = attribute.name()
        return name


def answered(aggregate: Any) -> Any:
    """The plan of the one row that an aggregate gives; None when the log does not tell it.

    `aggregate` has no groups, and between it and a scan of ours are only filters and projections.
    """
    filters, renamed, scan = _below(aggregate)
    proxy = proxy_of(scan.relation().location())
    if proxy is None or proxy.jvm.spark.conf.get(ENABLED, "true") != "true":
        return None
    found = _Questions(renamed)
    selected = []
    for each in items(aggregate.aggregateExpressions()):
        made = _with_columns(proxy.jvm, each, found)
        if made is None:
            return None
        selected.append(made)
    if not found.asked:
        return None
    return _answered(proxy, filters, found, selected)


def _answered(
    proxy: FileIndexProxy, filters: list[Any], questions: _Questions, selected: list[Any]
) -> Any:
    jvm = proxy.jvm
    on_partitions = _on_partitions(proxy, filters)
    if on_partitions is None:
        return None
    answers = proxy.source.answers(filters_of(jvm, jvm.seq(on_partitions)), questions.asked)
    if answers is None:
        return None
    schema = StructType(
        tuple(
            StructField(f"c{i}", parse_type(json.loads(column.dataType().json())))
            for i, column in enumerate(questions.columns)
        )
    )
    rows = catalyst_rows(jvm, [values_row(answers.values, schema)], schema)
    columns = jvm.seq(questions.columns)
    one_row = jvm.java_class(f"{_PLANS}.LocalRelation")(columns, rows, False, jvm.none())
    project = jvm.java_class(f"{_PLANS}.Project")(jvm.seq(selected), one_row)
    # Spark's own rule, which ran before: a row that is known needs no job.
    return jvm.java_class(f"{_OPTIMIZER}.ConvertToLocalRelation$").apply(project)


def _below(aggregate: Any) -> tuple[list[Any], dict[int, Any], Any]:
    """The conditions between an aggregate and its scan, columns by other names, and the scan."""
    conditions: list[Any] = []
    renamed: dict[int, Any] = {}
    plan = aggregate.child()
    while (name := _class_name(plan)) != "LogicalRelation":
        if name == "Filter":
            conditions += _conjuncts(plan.condition())
        else:
            columns = items(plan.projectList())
            aliases = [each for each in columns if _class_name(each) == "Alias"]
            renamed |= {_identity(alias): alias.child() for alias in aliases}
        plan = plan.child()
    return conditions, renamed, plan


def _conjuncts(condition: Any) -> Iterator[Any]:
    if _class_name(condition) == "And":
        yield from _conjuncts(condition.left())
        yield from _conjuncts(condition.right())
    else:
        yield condition


def _on_partitions(proxy: FileIndexProxy, filters: list[Any]) -> list[Any] | None:
    """The filters of the query, if all are about partition columns; None if not.

    The one that drops deleted rows is ours, and answers know of them.
    """
    found = []
    for each in filters:
        names = {attribute.name() for attribute in items(each.references().toSeq())}
        if proxy.source.drops_deleted_rows(names):
            continue
        if not names or not names <= set(proxy.source.partition_schema.names):
            return None
        found.append(each)
    return found


def _with_columns(jvm: JvmSession, expression: Any, found: _Questions) -> Any:
    """An expression with a column in place of each aggregate; None if one asks for more."""
    if _class_name(expression) == _AGGREGATE:
        asked = _asked(expression, found)
        if asked is None:
            return None
        found.asked.append(asked)
        found.columns.append(expression.resultAttribute())
        return found.columns[-1]
    children = items(expression.children())
    made = [_with_columns(jvm, child, found) for child in children]
    if None in made:
        return None
    return expression.withNewChildren(jvm.seq(made)) if made else expression


def _asked(expression: Any, found: _Questions) -> Asked | None:
    if expression.isDistinct() or expression.filter().isDefined():
        return None
    function = expression.aggregateFunction()
    question = _QUESTIONS.get(_class_name(function))
    arguments = items(function.children())
    if question is None or len(arguments) != 1:
        return None
    kind = _class_name(arguments[0])
    if kind == "AttributeReference":
        return Asked(question, found.scanned(arguments[0]))
    if kind == "Literal" and question is Question.COUNT and not arguments[0].nullable():
        return Asked(question)
    return None


def _identity(named: Any) -> int:
    identity: int = named.exprId().id()
    return identity


def _class_name(java_object: Any) -> str:
    name: str = java_object.getClass().getSimpleName()
    return name
