"""The rows of a MERGE: one join that gives each row its clause and its new values, and its layout.

A row has the number of its clause (`ACTION`), the new values of the table's columns, its position
(`FILE`, `ROW`), its id where rows are tracked, and its old values if the change feed needs them.
Rules of the table are part of the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_delta.kernel.ops.rewrite_plan import FileChanges
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
from pyspark_delta.kernel.sql.quoting import quoted_name
from pyspark_delta.spark.conf.setting_table import MERGE_REPARTITION
from pyspark_delta.spark.jvm.expressions.catalyst import expression_of
from pyspark_delta.spark.jvm.plans.merge import JoinedRows
from pyspark_delta.spark.jvm.write.file_writer import rebalanced
from pyspark_delta.spark.merge.columns import ClauseValues, target_names
from pyspark_delta.spark.merge.names import MergeNames, Resolution
from pyspark_delta.spark.rules.alignment import column
from pyspark_delta.spark.rules.rows import generated_values, identity_value, table_rows
from pyspark_delta.spark.scan.frame import FILE, ROW

ACTION = "__delta_action"
"""The number of the clause for a row; below zero when the row matched and no clause applies."""
_NO_CLAUSE = -1
# At most so many matching pairs are broadcast.
_FEW_PAIRS = 100_000
# The least work for a task: less is written before a second task has started.
_TASK_BYTES = 16 << 20
_PARTITION_BYTES = 128 << 20
# At most so many rows go into their partitions without a shuffle.
_FEW_ROWS = 50_000
_ROW_BYTES = 64
_FEW_FILES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRows:
    """Frames over the join of one MERGE.

    `hidden` are the columns that keep the ids of tracked rows.
    """

    names: MergeNames = field(hash=False)
    resolution: Resolution = field(hash=False)
    hidden: StructType

    def old_name(self, f: StructField) -> str:
        """The name of the column with the old values of `f`."""
        return f"__delta_old_{self.resolution.schema.names.index(f.name)}"

    def joined(self, num_files: int) -> DataFrame:
        """Every matching pair, and with clauses that insert, each source row without a match.

        Pairs without a clause have the number of their file plus `num_files`.
        """
        resolution = self.resolution
        matched, new = resolution.of_kind("matched"), resolution.of_kind("not matched")
        if not new:
            return self.matching(num_files, is_small=False)
        chosen = _clause_number(matched, str(_NO_CLAUSE))
        chosen = (
            f"CASE WHEN {FILE} IS NOT NULL THEN {chosen} ELSE {_clause_number(new, 'NULL')} END"
        )
        clauses = {**matched, **new}
        texts = self._texts(clauses)
        texts[FILE] = _numbered_file(matched, num_files)
        made = self._join("LeftOuter").select(chosen, ACTION, texts)
        return self._finished(made, clauses)

    def matching(self, num_files: int, *, is_small: bool) -> DataFrame:
        """Every matching pair; a source that `is_small` is broadcast.

        With clauses that insert, a row has the columns of the target that the condition names.
        """
        resolution = self.resolution
        clauses = resolution.of_kind("matched")
        texts = self._texts(clauses)
        texts[FILE] = _numbered_file(clauses, num_files)
        if resolution.of_kind("not matched"):
            names = target_names(self.names.snapshot.metadata.schema)
            texts |= {key: f"IF(TRUE, {names[name]}, NULL)" for name, key in self.keys.items()}
        rows = self._join("Inner", broadcasts_source=is_small)
        made = rows.select(_clause_number(clauses, str(_NO_CLAUSE)), ACTION, texts)
        return self._finished(made, clauses)

    @property
    def keys(self) -> dict[str, str]:
        """The columns of the target that the condition names, and their names in pairs."""
        named = self.resolution.condition_columns
        own = self.names.snapshot.metadata.schema
        return {f.name: f"__delta_key_{i}" for i, f in enumerate(own) if f.name in named}

    def alone(self, resolution: Resolution) -> DataFrame:
        """The rows with a clause of a target's frame in which no row matches."""
        clauses = resolution.of_kind("not matched by source")
        found = [resolution.at_target, resolution.resolved["not matched by source"]]
        rows = JoinedRows.of(self.names.jvm, resolution.target, found)
        made = rows.with_values(resolution.values, resolution.moment).select(
            _clause_number(clauses, "NULL"), ACTION, self._texts(clauses, resolution)
        )
        return self._finished(made, clauses)

    def inserted(
        self,
        resolution: Resolution | None = None,
        *,
        num_pairs: int | None = None,
        is_small: bool = False,
    ) -> DataFrame:
        """The source rows without a match that a clause inserts.

        `resolution` may be over another frame of the target's, of `num_pairs` rows, None when
        unknown.  A source that `is_small` is broadcast.
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
            rows = JoinedRows.of(
                self.names.jvm, resolution.source, [resolution.resolved["not matched"]]
            )
            rows = rows.with_values(resolution.values, resolution.moment)
        texts = self._texts(clauses, resolution)
        for name in (FILE, ROW, *self.hidden.names):
            texts[name] = "CAST(NULL AS BIGINT)"
        return self._finished(rows.select(_clause_number(clauses, "NULL"), ACTION, texts), clauses)

    def written(self, clauses: Mapping[int, ClauseValues] | None = None) -> list[int]:
        """The numbers of the clauses that write rows."""
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
        found = [resolution.resolved["not matched"]]
        if kind != "LeftAnti":
            found += [resolution.at_target, resolution.resolved["matched"]]
        rows = JoinedRows.join(
            self.names.jvm,
            resolution.source,
            resolution.target,
            kind,
            expression_of(self.names.jvm, resolution.condition),
            found,
            broadcasts_source=broadcasts_source,
            broadcasts_target=broadcasts_target,
        )
        return rows.with_values(resolution.values, resolution.moment)

    def _texts(
        self, clauses: Mapping[int, ClauseValues], resolution: Resolution | None = None
    ) -> dict[str, str]:
        """The SQL of every column of a row, by name and in order."""
        resolution = resolution or self.resolution
        texts: dict[str, str] = {}
        if self.written(clauses):
            for f in resolution.schema:
                text = _by_action(f, clauses)
                if text is not None:
                    texts[f.name] = text
        # Casts, so that no metadata of these columns gets into a table.
        texts |= {ACTION: ACTION, FILE: f"CAST({FILE} AS BIGINT)", ROW: f"CAST({ROW} AS BIGINT)"}
        if self.hidden.fields:
            row_id, version = self.hidden.names
            # A changed row gets the version of this commit; its id stays.
            texts |= {row_id: quoted_name(row_id), version: "CAST(NULL AS BIGINT)"}
        if self.names.has_old_values:
            changes = any(each.clause.action != "insert" for each in clauses.values())
            for f in resolution.schema:
                text = resolution.before[f.name] if changes else "NULL"
                null = f"CAST(NULL AS {_sql_type(f.data_type)})"
                texts[self.old_name(f)] = null if text == "NULL" else f"IF(TRUE, {text}, NULL)"
        return texts

    def _finished(self, rows: DataFrame, clauses: Mapping[int, ClauseValues]) -> DataFrame:
        """The rows with computed columns, and with the table's rules in the plan."""
        written = self.written(clauses)
        if not written:
            return rows
        rows = self._computed(rows, clauses)
        return table_rows(
            self.names.jvm,
            rows,
            self.names.txn.metadata,
            self.names.txn.protocol,
            hidden=self._extra_of(rows),
            keeps_identity=True,
            where=F.expr(is_one_of(written)),
        )

    def _extra_of(self, rows: DataFrame) -> StructType:
        """The columns of `rows` besides the table's; some frames lack those of the condition."""
        extra = [StructField(ACTION, INTEGER), StructField(FILE, LONG), StructField(ROW, LONG)]
        extra += self.hidden
        if self.names.has_old_values:
            extra += [StructField(self.old_name(f), f.data_type) for f in self.resolution.schema]
        own = self.names.snapshot.metadata.schema
        for name, key in self.keys.items():
            if key in rows.columns:
                extra.append(StructField(key, own[name].data_type))
        return StructType(tuple(extra))

    def _computed(self, rows: DataFrame, clauses: Mapping[int, ClauseValues]) -> DataFrame:
        """The rows with generated and identity values where a clause sets none."""
        features = supported_features(self.names.txn.protocol)
        made: dict[str, Column] = {}
        for f in self.resolution.schema:
            texts = {number: each.columns.get(f.name) for number, each in clauses.items()}
            open_ones = [
                number for number, text in texts.items() if text is None and clauses[number].writes
            ]
            if open_ones and f.name in rows.columns:
                made[f.name] = self._table_value(f, open_ones, features)
        return rows.withColumns(made) if made else rows

    def _table_value(
        self, f: StructField, numbers: Sequence[int], features: Iterable[str]
    ) -> Column:
        is_open = F.expr(is_one_of(numbers))
        if "delta.generationExpression" in f.metadata and "generatedColumns" in features:
            value = generated_values(self.names.jvm, self.resolution.schema)[f.name]
        else:
            value = identity_value(self.names.jvm, f)
        return F.when(is_open, value).otherwise(column(f.name))


def is_one_of(numbers: Sequence[int]) -> str:
    """SQL that is true for rows of these clauses."""
    return f"{ACTION} IN ({', '.join(map(str, numbers))})" if numbers else "FALSE"


def gathered(names: MergeNames, rows: DataFrame, *, scans: bool) -> DataFrame:
    """Rows to be counted by position: a few by one task, which needs no shuffle.

    With `scans` the task would also read the files of the target.
    """
    target = names.snapshot
    is_few = target.size_in_bytes <= _TASK_BYTES // 2
    if scans:
        is_few = is_few and target.num_files <= _FEW_FILES
    return rows.coalesce(1) if is_few else rows


def arranged(
    names: MergeNames, rows: DataFrame, num_rows: int | None, changes: FileChanges | None = None
) -> DataFrame:
    """Rows for the writer, spread over tasks and files; `num_rows` is None when unknown.

    A MERGE of a few rows writes one file, not one for each task; a large one keeps its tasks busy.
    """
    partitions = names.snapshot.metadata.partition_columns
    if partitions and not MERGE_REPARTITION.by(names.options.conf):
        return rows
    if num_rows is not None and (not partitions or num_rows <= _FEW_ROWS):
        size = num_rows * _bytes_of_row(changes)
        return rows.coalesce(max(1, -(-size // _TASK_BYTES)))
    return rebalanced(names.jvm, rows, partitions, _PARTITION_BYTES) if partitions else rows


def _numbered_file(clauses: Mapping[int, ClauseValues], num_files: int) -> str:
    """The number of a row's file, plus `num_files` for a pair without a clause."""
    if any(each.condition is None for each in clauses.values()):
        return f"CAST({FILE} AS BIGINT)"
    return f"IF({ACTION} < 0, {FILE} + {num_files}L, {FILE})"


def _clause_number(clauses: Mapping[int, ClauseValues], otherwise: str) -> str:
    """The number of the first clause whose condition is true."""
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
    """A column's value by the clause of a row; None when no clause sets it."""
    texts = {number: each.columns[f.name] for number, each in clauses.items() if each.writes}
    given = {number: text for number, text in texts.items() if text is not None}
    if not given and "delta.generationExpression" in f.metadata:
        return None
    if all(text == "NULL" for text in given.values()):
        return f"CAST(NULL AS {_sql_type(f.data_type)})"
    branches = " ".join(f"WHEN {number} THEN {text}" for number, text in given.items())
    return f"CASE {ACTION} {branches} END"


def _sql_type(data_type: DataType) -> str:
    """A type in SQL, for names with any characters."""
    match data_type:
        case StructType(fields=fields):
            inner = ", ".join(f"{quoted_name(f.name)}: {_sql_type(f.data_type)}" for f in fields)
            return f"STRUCT<{inner}>"
        case ArrayType(element_type=element):
            return f"ARRAY<{_sql_type(element)}>"
        case MapType(key_type=key, value_type=value):
            return f"MAP<{_sql_type(key)}, {_sql_type(value)}>"
    return data_type.simple_string


def _bytes_of_row(changes: FileChanges | None) -> int:
    """About how large a row is in a file, from the files that change."""
    files = () if changes is None else changes.files
    records = sum(each.file.num_records or 0 for each in files)
    if not records:
        return _ROW_BYTES
    return max(1, sum(each.file.size for each in files) // records)
