"""Reads INSERT in all its forms from the plans of Spark's own parser.

Nothing is resolved here: conditions come as unresolved columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame

from pyspark_delta.spark.jvm.expressions.catalyst import column_of, expression_of
from pyspark_delta.spark.jvm.gateway import JvmSession, items, option_value, simple_name
from pyspark_delta.spark.jvm.parser.changes import (
    ParsedTarget,
    is_default,
    parsed_plan,
    target_of,
    with_queries,
)
from pyspark_delta.spark.jvm.plans.frames import plan_frame

_INSERT, _REPLACE_WHERE = "InsertIntoStatement", "OverwriteByExpression"
_DEFAULT_TEXT = "'default"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedInsert:
    """INSERT INTO or OVERWRITE.

    `fixed` are the columns of PARTITION (...) with a value, as text, and `open` those without.
    At most one of three fields selects the replaced rows: a condition, a condition that joins the
    data (as text, with the table's alias), or columns to match by.
    """

    target: ParsedTarget
    overwrite: bool
    by_name: bool
    columns: tuple[str, ...] = ()
    fixed: Mapping[str, str | None] = field(default_factory=dict, hash=False)
    open: tuple[str, ...] = ()
    if_not_exists: bool = False
    evolves: bool = False
    replace_where: Column | None = field(default=None, hash=False)
    replace_on: str | None = None
    replace_alias: str | None = None
    replace_using: tuple[str, ...] = ()
    query: InsertedQuery
    statement: Any = field(default=None, repr=False, hash=False, compare=False)

    def run_by_spark(self, jvm: JvmSession) -> None:
        """Let Spark run the INSERT, whose table is Spark's."""
        plan_frame(jvm, self.statement)


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertedQuery:
    """The query whose rows are inserted."""

    plan: Any = field(repr=False, hash=False, compare=False)

    def frame(self, jvm: JvmSession) -> DataFrame:
        """The rows of the query; its names are resolved by this call."""
        return plan_frame(jvm, self.plan)

    def defaults(self) -> dict[int, bool]:
        """The columns in which DEFAULT is a value, and whether it is in all rows."""
        if simple_name(self.plan) == "UnresolvedInlineTable":
            rows = items(self.plan.rows())
            marked = [
                {i for i, value in enumerate(items(row)) if is_default(value)}
                if _DEFAULT_TEXT in str(row.toString()).lower()
                else set()
                for row in rows
            ]
            places = set().union(*marked)
            return {place: all(place in row for row in marked) for place in sorted(places)}
        if simple_name(self.plan) == "Project":
            listed = items(self.plan.projectList())
            return {i: True for i, value in enumerate(listed) if is_default(_bare(value))}
        return {}

    def with_defaults(self, jvm: JvmSession, values: Mapping[int, Column]) -> InsertedQuery:
        """The query with values in place of DEFAULT, by column."""
        made = {place: expression_of(jvm, value) for place, value in values.items()}

        def filled(values: Sequence[Any]) -> list[Any]:
            return [
                made[i] if i in made and is_default(value) else value
                for i, value in enumerate(values)
            ]

        if simple_name(self.plan) == "UnresolvedInlineTable":
            rows = [
                jvm.seq(filled(items(row))) if _DEFAULT_TEXT in str(row.toString()).lower() else row
                for row in items(self.plan.rows())
            ]
            return InsertedQuery(plan=self.plan.copy(self.plan.names(), jvm.seq(rows)))
        listed = [
            _unnamed(jvm, made[i]) if i in made else value
            for i, value in enumerate(items(self.plan.projectList()))
        ]
        return InsertedQuery(plan=self.plan.copy(jvm.seq(listed), self.plan.child()))


def parse_inserts(jvm: JvmSession, sql: str, args: Any = None) -> list[ParsedInsert] | None:
    """Parse the INSERTs in `sql`, several for one FROM; None for another statement.

    Also None where a table has no plain name.
    """
    plan = parsed_plan(jvm, sql, args)
    queries = None
    if simple_name(plan) == "UnresolvedWith":
        queries, plan = plan, plan.child()
    plans = items(plan.children()) if simple_name(plan) == "Union" else [plan]
    found = [_insert(jvm, each, queries) for each in plans]
    parsed = [each for each in found if each is not None]
    return parsed if len(parsed) == len(found) else None


def writes_directory(jvm: JvmSession, sql: str, args: Any = None) -> bool:
    """Whether it is INSERT OVERWRITE DIRECTORY in Delta's format."""
    plan = parsed_plan(jvm, sql, args)
    if simple_name(plan) != "InsertIntoDir":
        return False
    return str(option_value(plan.provider())).lower() == "delta"


def _insert(jvm: JvmSession, plan: Any, queries: Any) -> ParsedInsert | None:
    if simple_name(plan) not in (_INSERT, _REPLACE_WHERE):
        return None
    target = target_of(plan.table())
    if target is None:
        return None
    query = InsertedQuery(plan=with_queries(jvm, queries, plan.query()))
    statement = with_queries(jvm, queries, plan)
    if simple_name(plan) == _REPLACE_WHERE:
        return ParsedInsert(
            target=target,
            overwrite=True,
            by_name=bool(plan.isByName()),
            replace_where=column_of(jvm, plan.deleteExpr()),
            query=query,
            statement=statement,
        )
    spec = {str(each._1()): each._2() for each in items(plan.partitionSpec().toSeq())}
    return ParsedInsert(
        target=target,
        overwrite=bool(plan.overwrite()),
        by_name=bool(plan.byName()),
        columns=tuple(map(str, items(plan.userSpecifiedCols()))),
        fixed={key: value.get() for key, value in spec.items() if value.isDefined()},
        open=tuple(key for key, value in spec.items() if not value.isDefined()),
        if_not_exists=bool(plan.ifPartitionNotExists()),
        evolves=bool(plan.withSchemaEvolution()),
        query=query,
        statement=statement,
        **_criteria(jvm, plan.replaceCriteriaOpt()),
    )


def _criteria(jvm: JvmSession, option: Any) -> dict[str, Any]:
    """The replaced rows, as fields of a ParsedInsert."""
    criteria = option_value(option)
    if criteria is None:
        return {}
    kind = simple_name(criteria)
    if kind == "InsertReplaceUsing":
        return {"replace_using": tuple(map(str, items(criteria.cols())))}
    if kind == "InsertReplaceOn":
        alias = option_value(criteria.tableAliasOpt())
        return {"replace_on": str(criteria.cond().sql()), "replace_alias": alias}
    return {"replace_where": column_of(jvm, criteria.cond())}


def _bare(value: Any) -> Any:
    """The expression of a projection, without its alias if it has one."""
    return value.child() if simple_name(value) == "UnresolvedAlias" else value


def _unnamed(jvm: JvmSession, value: Any) -> Any:
    unresolved = "org.apache.spark.sql.catalyst.analysis.UnresolvedAlias"
    return jvm.java_class(unresolved)(value, jvm.none())
