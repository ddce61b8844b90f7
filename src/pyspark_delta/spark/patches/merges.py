"""`df.mergeInto(table, condition)`: Spark's own words for a MERGE, into Delta tables as well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql.merge import MergeIntoWriter

from pyspark_delta.spark.catalog import look_up_relation
from pyspark_delta.spark.commands.merge_clauses import ClauseAction, ClauseKind, MergeClause
from pyspark_delta.spark.commands.merge_request import MergeRequest
from pyspark_delta.spark.enabled_sessions import is_enabled
from pyspark_delta.spark.patches.said import Method, Wrap
from pyspark_delta.spark.table_merges import merge_into

_ATTRIBUTE = "_delta_merge"
_CONDITION = "_delta_condition"


@dataclass(slots=True)
class _Said:
    """What was said to a writer before `merge`."""

    source: DataFrame
    table: str
    condition: Column
    evolves: bool = False
    clauses: list[MergeClause] = field(default_factory=list)


def _init(original: Method) -> Method:
    def __init__(self: Any, df: Any, table: str, condition: Column) -> None:
        original(self, df, table, condition)
        self.__dict__[_ATTRIBUTE] = _Said(df, table, condition)

    return __init__


def _when(original: Method) -> Method:
    def __init__(self: Any, writer: Any, condition: Column | None) -> None:
        original(self, writer, condition)
        self.__dict__[_CONDITION] = condition

    return __init__


def _does(kind: ClauseKind, action: ClauseAction, *, is_star: bool = False) -> Wrap:
    """A clause is said; `is_star` when it is for all columns."""

    def wrap(original: Method) -> Method:
        def act(self: Any, *given: Mapping[str, Column], **named: Mapping[str, Column]) -> Any:
            writer = original(self, *given, **named)
            said: _Said | None = writer.__dict__.get(_ATTRIBUTE)
            if said is not None:
                values: Mapping[str, Column] = next(iter((*given, *named.values())), {})
                said.clauses.append(
                    MergeClause(
                        kind=kind,
                        action=action,
                        condition=self.__dict__.get(_CONDITION),
                        assignments=None if is_star else tuple(values.items()),
                    )
                )
            return writer

        return act

    return wrap


def _with_schema_evolution(original: Method) -> Method:
    def withSchemaEvolution(self: Any) -> Any:
        said: _Said | None = self.__dict__.get(_ATTRIBUTE)
        if said is not None:
            said.evolves = True
        return original(self)

    return withSchemaEvolution


def _merge(original: Method) -> Method:
    def merge(self: Any) -> None:
        said: _Said | None = self.__dict__.get(_ATTRIBUTE)
        if said is None or not is_enabled(self._spark):
            original(self)
            return
        table = look_up_relation(self._spark, said.table)
        if table is None or not table.is_delta:
            original(self)
            return
        request = MergeRequest(
            source=said.source,
            condition=said.condition,
            clauses=tuple(said.clauses),
            evolves=said.evolves,
        )
        merge_into(self._spark, table, request)

    return merge


_MATCHED = MergeIntoWriter.WhenMatched
_NOT_MATCHED = MergeIntoWriter.WhenNotMatched
_BY_SOURCE = MergeIntoWriter.WhenNotMatchedBySource

CHANGED: dict[tuple[type, str], Wrap] = {
    (MergeIntoWriter, "__init__"): _init,
    (MergeIntoWriter, "withSchemaEvolution"): _with_schema_evolution,
    (MergeIntoWriter, "merge"): _merge,
    **{(each, "__init__"): _when for each in (_MATCHED, _NOT_MATCHED, _BY_SOURCE)},
    (_MATCHED, "update"): _does("matched", "update"),
    (_MATCHED, "updateAll"): _does("matched", "update", is_star=True),
    (_MATCHED, "delete"): _does("matched", "delete"),
    (_NOT_MATCHED, "insert"): _does("not matched", "insert"),
    (_NOT_MATCHED, "insertAll"): _does("not matched", "insert", is_star=True),
    (_BY_SOURCE, "update"): _does("not matched by source", "update"),
    (_BY_SOURCE, "updateAll"): _does("not matched by source", "update", is_star=True),
    (_BY_SOURCE, "delete"): _does("not matched by source", "delete"),
}
