"""The rows of a MERGE: one join that says of each row which clause is for it, and what it becomes.

A row has the number of its clause (`ACTION`), the table's columns as they will be, where it is now
(`FILE`, `ROW`), its id where rows are tracked, and its columns as they were where a change feed
wants them.  Rules of the table are part of the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_delta.kernel.protocol.features import supported_features
from pyspark_delta.kernel.protocol.types import (
    INTEGER,
    LONG,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.column_alignment import column
from pyspark_delta.spark.commands.merge_columns import ClauseValues, target_names
from pyspark_delta.spark.commands.merge_resolution import Resolution
from pyspark_delta.spark.identity_values import identity_value
from pyspark_delta.spark.jvm.catalyst import expression_of
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.merge_plan import JoinedRows
from pyspark_delta.spark.jvm.table_plan import quoted_name
from pyspark_delta.spark.located_rows import FILE, ROW
from pyspark_delta.spark.table_rows import generated_values, table_rows

ACTION = "__delta_action"
"""The number of the clause that is for a row; below zero when it matched and none is."""

_NONE = -1
# So many pairs' keys are sent to every task.
_FEW_PAIRS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRows:
    """Frames over the join of one MERGE.

    `hidden` are the columns that keep the ids of tracked rows; `tells_before` says that columns as
    they were are wanted.
    """

    jvm: JvmSession
    txn: OptimisticTransaction
    resolution: Resolution = field(hash=False)
    hidden: StructType
    tells_before: bool

    def old_name(self, f: StructField) -> str:
        """Under which name a row has a column as it was."""
        return f"__delta_old_{self.resolution.schema.names.index(f.name)}"

    def joined(self, num_files: int) -> DataFrame:
        """Every pair that matches, and with clauses that insert each source row that does not.

        Pairs that no clause is for have the number of their file plus `num_files`.
        """
        resolution = self.resolution
        matched, new = resolution.of_kind("matched"), resolution.of_kind("not matched")
        if not new:
            return self.matching(num_files, is_small=False)
        chosen = _chosen(matched, str(_NONE))
        chosen = f"CASE WHEN {FILE} IS NOT NULL THEN {chosen} ELSE {_chosen(new, 'NULL')} END"
        clauses = {**matched, **new}
        texts = self._texts(clauses)
        texts[FILE] = _numbered_file(matched, num_files)
        made = self._join("LeftOuter").select(chosen, ACTION, texts)
        return self._finished(made, clauses)

    def matching(self, num_files: int, *, is_small: bool) -> DataFrame:
        """Every pair that matches; a source that `is_small` is sent to every task.

        With clauses that insert, a row has the columns of the target that the condition names.
        """
        resolution = self.resolution
        clauses = resolution.of_kind("matched")
        texts = self._texts(clauses)
        texts[FILE] = _numbered_file(clauses, num_files)
        if resolution.of_kind("not matched"):
            names = target_names(_own_schema(self.txn))
            texts |= {key: f"IF(TRUE, {names[name]}, NULL)" for name, key in self.keys.items()}
        rows = self._join("Inner", broadcasts_source=is_small)
        made = rows.select(_chosen(clauses, str(_NONE)), ACTION, texts)
        return self._finished(made, clauses)

    @property
    def keys(self) -> dict[str, str]:
        """The columns of the target that the condition names, and what pairs call them."""
        named = self.resolution.condition_columns
        own = _own_schema(self.txn)
        return {f.name: f"__delta_key_{i}" for i, f in enumerate(own) if f.name in named}

    def alone(self, resolution: Resolution) -> DataFrame:
        """The rows of a target's frame, of which none matches, that a clause is for."""
        clauses = resolution.of_kind("not matched by source")
        found = [resolution.at_target, resolution.at_both]
        rows = JoinedRows.of(self.jvm, resolution.target, found)
        made = rows.with_values(resolution.values, resolution.moment).select(
            _chosen(clauses, "NULL"), ACTION, self._texts(clauses, resolution)
        )
        return self._finished(made, clauses)

    def inserted(
        self,
        resolution: Resolution | None = None,
        *,
        num_pairs: int | None = None,
        is_small: bool = False,
    ) -> DataFrame:
        """The source rows that match nothing and that a clause inserts.

        `resolution` may be over another frame of the target's, of `num_pairs` rows, None when
        nobody knows.  A source that `is_small` is sent to every task.
        """
        resolution = resolution or self.resolution
        clauses = resolution.of_kind("not matched")
        if num_pairs != 0:
            rows = self._join(
                "LeftAnti",
                resolution,
                broadcasts_source=is_small,
                broadcasts_target=num_pairs is not None and num_pairs <= _FEW_PAIRS,
            )
        else:
            rows = JoinedRows.of(self.jvm, resolution.source, [resolution.at_source])
            rows = rows.with_values(resolution.values, resolution.moment)
        texts = self._texts(clauses, resolution)
        for name in (FILE, ROW, *self.hidden.names):
            texts[name] = "CAST(NULL AS BIGINT)"
        return self._finished(rows.select(_chosen(clauses, "NULL"), ACTION, texts), clauses)

    def written(self, clauses: Mapping[int, ClauseValues] | None = None) -> list[int]:
        """The numbers of the clauses whose rows are written."""
        chosen = dict(enumerate(self.resolution.clauses)) if clauses is None else clauses
        return [number for number, each in chosen.items() if each.writes]

    def _join(
        self,
        kind: str,
        resolution: Resolution | None = None,
        *,
        broadcasts_source: bool = False,
        broadcasts_target: bool = False,
    ) -> JoinedRows:
        resolution = resolution or self.resolution
        found = [resolution.at_source]
        if kind != "LeftAnti":
            found += [resolution.at_target, resolution.at_both]
        rows = JoinedRows.join(
            self.jvm,
            resolution.source,
            resolution.target,
            kind,
            expression_of(self.jvm, resolution.condition),
            found,
            broadcasts_source=broadcasts_source,
            broadcasts_target=broadcasts_target,
        )
        return rows.with_values(resolution.values, resolution.moment)

    def _texts(
        self, clauses: Mapping[int, ClauseValues], resolution: Resolution | None = None
    ) -> dict[str, str]:
        """The SQL of every column that a row has, by name and in order."""
        resolution = resolution or self.resolution
        texts: dict[str, str] = {}
        if self.written(clauses):
            for f in resolution.schema:
                text = _by_action(f, clauses)
                if text is not None:
                    texts[f.name] = text
        # Whatever Spark knows of these columns beside their values is not a table's.
        texts |= {ACTION: ACTION, FILE: f"CAST({FILE} AS BIGINT)", ROW: f"CAST({ROW} AS BIGINT)"}
        if self.hidden.fields:
            row_id, version = self.hidden.names
            # A row that changes has the version of the change; its id stays.
            texts |= {row_id: quoted_name(row_id), version: "CAST(NULL AS BIGINT)"}
        if self.tells_before and any(
            each.clause.action in ("update", "delete") for each in clauses.values()
        ):
            for f in resolution.schema:
                text = resolution.before[f.name]
                if text == "NULL":
                    text = f"CAST(NULL AS {_sql_type(f.data_type)})"
                texts[self.old_name(f)] = f"IF(TRUE, {text}, NULL)"
        elif self.tells_before:
            for f in resolution.schema:
                texts[self.old_name(f)] = f"CAST(NULL AS {_sql_type(f.data_type)})"
        return texts

    def _finished(self, rows: DataFrame, clauses: Mapping[int, ClauseValues]) -> DataFrame:
        """The rows with what the table computes, and its rules."""
        written = self.written(clauses)
        if not written:
            return rows
        rows = self._computed(rows, clauses)
        return table_rows(
            self.jvm,
            rows,
            self.txn.metadata,
            self.txn.protocol,
            hidden=self._extra_of(rows),
            keeps_identity=True,
            where=F.expr(is_one_of(written)),
        )

    @property
    def extra(self) -> StructType:
        """The columns that a row has beside the table's."""
        old = (
            StructField(self.old_name(f), f.data_type)
            for f in self.resolution.schema
            if self.tells_before
        )
        own = (StructField(ACTION, INTEGER), StructField(FILE, LONG), StructField(ROW, LONG))
        return StructType((*own, *self.hidden, *old))

    def _extra_of(self, rows: DataFrame) -> StructType:
        """The further columns of a frame: those of the condition are not in all of them."""
        keys = [
            StructField(key, _own_schema(self.txn)[name].data_type)
            for name, key in self.keys.items()
            if key in rows.columns
        ]
        return self.extra.add(*keys)

    def _computed(self, rows: DataFrame, clauses: Mapping[int, ClauseValues]) -> DataFrame:
        """Values that the table gives where a clause does not: generated ones, and numbers."""
        features = supported_features(self.txn.protocol)
        made: dict[str, Column] = {}
        for f in self.resolution.schema:
            texts = {number: each.columns.get(f.name) for number, each in clauses.items()}
            open_ones = [
                number for number, text in texts.items() if text is None and clauses[number].writes
            ]
            if open_ones and f.name in rows.columns:
                made[f.name] = self._value(f, open_ones, features)
        return rows.withColumns(made) if made else rows

    def _value(self, f: StructField, numbers: Sequence[int], features: Iterable[str]) -> Column:
        is_open = F.expr(is_one_of(numbers))
        if "delta.generationExpression" in f.metadata and "generatedColumns" in features:
            value = generated_values(self.jvm, self.resolution.schema)[f.name]
        else:
            value = identity_value(self.jvm, f)
        return F.when(is_open, value).otherwise(column(f.name))


def is_one_of(numbers: Sequence[int]) -> str:
    """The condition that a row is for one of some clauses, as SQL."""
    return f"{ACTION} IN ({', '.join(map(str, numbers))})" if numbers else "FALSE"


def _own_schema(txn: OptimisticTransaction) -> StructType:
    """The table's schema before the MERGE."""
    assert txn.snapshot is not None
    return txn.snapshot.metadata.schema


def _numbered_file(clauses: Mapping[int, ClauseValues], num_files: int) -> str:
    """The number of a row's file, behind all others for a pair that no clause is for."""
    if _takes_all(clauses):
        return f"CAST({FILE} AS BIGINT)"
    return f"IF({ACTION} < 0, {FILE} + {num_files}L, {FILE})"


def _takes_all(clauses: Mapping[int, ClauseValues]) -> bool:
    """Whether one of the clauses is for every row."""
    return any(each.condition is None for each in clauses.values())


def _chosen(clauses: Mapping[int, ClauseValues], otherwise: str) -> str:
    """The number of the first clause whose condition holds."""
    branches, last = [], otherwise
    for number, each in clauses.items():
        if each.condition is None:
            last = str(number)
            break
        branches.append(f"WHEN CAST({each.condition} AS BOOLEAN) THEN {number}")
    if not branches:
        return f"CAST({last} AS INT)"
    return f"CASE {' '.join(branches)} ELSE {last} END"


def _by_action(f: StructField, clauses: Mapping[int, ClauseValues]) -> str | None:
    """A column by the clause that is for a row; None when no clause makes it."""
    texts = {number: each.columns[f.name] for number, each in clauses.items() if each.writes}
    given = {number: text for number, text in texts.items() if text is not None}
    if not given and "delta.generationExpression" in f.metadata:
        return None
    if all(text == "NULL" for text in given.values()):
        return f"CAST(NULL AS {_sql_type(f.data_type)})"
    branches = " ".join(f"WHEN {number} THEN {text}" for number, text in given.items())
    return f"CASE {ACTION} {branches} END"


def _sql_type(data_type: DataType) -> str:
    """A type as SQL spells it, whatever characters its names have."""
    match data_type:
        case StructType(fields=fields):
            inner = ", ".join(f"{quoted_name(f.name)}: {_sql_type(f.data_type)}" for f in fields)
            return f"STRUCT<{inner}>"
        case ArrayType(element_type=element):
            return f"ARRAY<{_sql_type(element)}>"
        case MapType(key_type=key, value_type=value):
            return f"MAP<{_sql_type(key)}, {_sql_type(value)}>"
    return data_type.simple_string
