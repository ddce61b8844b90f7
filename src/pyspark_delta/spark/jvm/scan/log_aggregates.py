"""Answers aggregates over whole tables from their logs: replaces Catalyst's plan by its row.

The rule in `file_index` finds the plans.  This module reads the aggregates in them, and builds the
replacement.  The source decides whether the log has the answer, and computes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from pyspark_delta.kernel.protocol.types import StructField, StructType
from pyspark_delta.kernel.scan.aggregates import Aggregate, AggregateKind
from pyspark_delta.spark.jvm.expressions.catalyst import filters_of
from pyspark_delta.spark.jvm.gateway import JvmSession, items, simple_name, type_of_json
from pyspark_delta.spark.jvm.scan.catalyst_rows import catalyst_rows, values_row
from pyspark_delta.spark.jvm.scan.file_index import FileIndexProxy, proxy_of

_OPTIMIZER = "org.apache.spark.sql.catalyst.optimizer"
_KINDS = {"Count": AggregateKind.COUNT, "Min": AggregateKind.MIN, "Max": AggregateKind.MAX}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Aggregates:
    """The aggregates of a plan, and their output columns as Catalyst's attributes.

    `below` maps the id of a column that a projection renames to the column's original id.
    """

    below: Mapping[int, Any]
    listed: list[Aggregate] = field(default_factory=list)
    columns: list[Any] = field(default_factory=list)

    def scanned(self, attribute: Any) -> str:
        """The name of a column in the scan."""
        while (old := self.below.get(_identity(attribute))) is not None:
            attribute = old
        return str(attribute.name())


def answered(aggregate: Any, *, may_answer: Callable[[SparkSession], bool]) -> Any:
    """The plan of an aggregate's single row; None if the log does not have it.

    `aggregate` has no groups, and only filters and projections are between it and our scan.
    """
    filters, renamed, scan = _below(aggregate)
    proxy = proxy_of(scan.relation().location())
    if proxy is None or not may_answer(proxy.jvm.spark):
        return None
    found = _Aggregates(below=renamed)
    selected = []
    for each in items(aggregate.aggregateExpressions()):
        made = _with_columns(proxy.jvm, each, found)
        if made is None:
            return None
        selected.append(made)
    if not found.listed:
        return None
    return _answered(proxy, filters, found, selected)


def _answered(
    proxy: FileIndexProxy, filters: list[Any], aggregates: _Aggregates, selected: list[Any]
) -> Any:
    jvm = proxy.jvm
    on_partitions = _on_partitions(proxy, filters)
    if on_partitions is None:
        return None
    answers = proxy.source.answers(filters_of(jvm, jvm.seq(on_partitions)), aggregates.listed)
    if answers is None:
        return None
    types = [type_of_json(json.loads(column.dataType().json())) for column in aggregates.columns]
    fields = [StructField(f"c{i}", each) for i, each in enumerate(types) if each is not None]
    if len(fields) < len(types):
        return None
    schema = StructType(tuple(fields))
    rows = catalyst_rows(jvm, [values_row(answers.values, schema)], schema)
    columns = jvm.seq(aggregates.columns)
    one_row = jvm.plan_class("LocalRelation")(columns, rows, False, jvm.none())
    project = jvm.plan_class("Project")(jvm.seq(selected), one_row)
    # Spark's own rule for this ran before: a known row needs no job.
    return jvm.java_class(f"{_OPTIMIZER}.ConvertToLocalRelation$").apply(project)


def _below(aggregate: Any) -> tuple[list[Any], dict[int, Any], Any]:
    """The conditions between an aggregate and its scan, renamed columns, and the scan."""
    conditions: list[Any] = []
    renamed: dict[int, Any] = {}
    plan = aggregate.child()
    while (name := simple_name(plan)) != "LogicalRelation":
        if name == "Filter":
            conditions += _conjuncts(plan.condition())
        else:
            columns = items(plan.projectList())
            aliases = [each for each in columns if simple_name(each) == "Alias"]
            renamed |= {_identity(alias): alias.child() for alias in aliases}
        plan = plan.child()
    return conditions, renamed, plan


def _conjuncts(condition: Any) -> Iterator[Any]:
    if simple_name(condition) == "And":
        yield from _conjuncts(condition.left())
        yield from _conjuncts(condition.right())
    else:
        yield condition


def _on_partitions(proxy: FileIndexProxy, filters: list[Any]) -> list[Any] | None:
    """The filters of the query, if all are on partition columns; else None.

    The filter that drops deleted rows is ours, and the source considers it.
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


def _with_columns(jvm: JvmSession, expression: Any, found: _Aggregates) -> Any:
    """An expression with columns in place of aggregates; None if an aggregate is not supported."""
    if simple_name(expression) == "AggregateExpression":
        aggregate = _aggregate(expression, found)
        if aggregate is None:
            return None
        found.listed.append(aggregate)
        found.columns.append(expression.resultAttribute())
        return found.columns[-1]
    children = items(expression.children())
    made = [_with_columns(jvm, child, found) for child in children]
    if None in made:
        return None
    return expression.withNewChildren(jvm.seq(made)) if made else expression


def _aggregate(expression: Any, found: _Aggregates) -> Aggregate | None:
    if expression.isDistinct() or expression.filter().isDefined():
        return None
    function = expression.aggregateFunction()
    question = _KINDS.get(simple_name(function))
    arguments = items(function.children())
    if question is None or len(arguments) != 1:
        return None
    kind = simple_name(arguments[0])
    if kind == "AttributeReference":
        return Aggregate(kind=question, column=found.scanned(arguments[0]))
    if kind == "Literal" and question is AggregateKind.COUNT and not arguments[0].nullable():
        return Aggregate(kind=question)
    return None


def _identity(named: Any) -> int:
    return int(named.exprId().id())
