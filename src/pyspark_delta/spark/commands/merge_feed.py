"""Rows of a MERGE for the change feed: as they were, and as they are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame

from pyspark_delta.spark.commands.dml_files import CHANGE_TYPE
from pyspark_delta.spark.commands.merge_clauses import ClauseKind
from pyspark_delta.spark.commands.merge_join import MergeRows, is_one_of
from pyspark_delta.spark.jvm.table_plan import quoted_name
from pyspark_delta.spark.located_rows import FILE, ROW


def change_rows(
    rows: MergeRows,
    frames: Sequence[tuple[DataFrame, Sequence[ClauseKind]]],
    has_duplicates: bool,
) -> DataFrame:
    """The changes in frames of a MERGE, each for clauses of some kinds.

    With `has_duplicates` a row that goes may be there more than once, and is told once.
    """
    schema = rows.resolution.schema
    new = [quoted_name(f.name) for f in schema]
    old = [f"{rows.old_name(f)} AS {quoted_name(f.name)}" for f in schema]
    parts = []
    for frame, kinds in frames:
        clauses = rows.resolution.of_kind(*kinds)
        numbers = {
            action: [n for n, each in clauses.items() if each.clause.action == action]
            for action in ("update", "delete", "insert")
        }
        if gone := [*numbers["update"], *numbers["delete"]]:
            before = frame.where(is_one_of(gone))
            if has_duplicates:
                before = before.dropDuplicates([FILE, ROW])
            is_deleted = is_one_of(numbers["delete"])
            kind = f"IF({is_deleted}, 'delete', 'update_preimage') AS {CHANGE_TYPE}"
            parts.append(before.selectExpr(*old, kind))
        if come := [*numbers["update"], *numbers["insert"]]:
            after = frame.where(is_one_of(come))
            is_new = is_one_of(numbers["insert"])
            kind = f"IF({is_new}, 'insert', 'update_postimage') AS {CHANGE_TYPE}"
            parts.append(after.selectExpr(*new, kind))
    return reduce(DataFrame.union, parts)
