"""An overwrite of some rows: those of a condition, or those that the data matches, are taken away.

As DELETE does it.  With deletion vectors one job finds positions, and nothing of the table is
written anew: a change feed then reads the rows that went off the vectors, and those that came off
the new files.  Without vectors rows are counted, and what is asked again tells which they are; but
what asks for the time, or runs code that Spark does not know, may say something else then, and a
row would be lost or the feed be wrong.  So positions are found for these too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import Column, DataFrame

from pyspark_delta.kernel.log.frames import add_files
from pyspark_delta.spark.commands.dml_files import DmlFiles, FileChanges
from pyspark_delta.spark.commands.dml_rows import DmlCondition, files_by_partition
from pyspark_delta.spark.commands.replaced_rows import Replaced, num_live_rows
from pyspark_delta.spark.jvm.conditions import is_repeatable
from pyspark_delta.spark.located_rows import located_rows
from pyspark_delta.spark.touched_rows import counted_rows, touched_rows

_Part = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True, slots=True)
class _Choice:
    """Which of some rows go, and which stay."""

    matching: _Part = field(hash=False)
    others: _Part = field(hash=False)


def rows_where(files: DmlFiles, condition: DmlCondition) -> Replaced:
    """The rows for which the condition is true."""
    txn = files.txn
    candidates = txn.filter_files(condition.where.bound, by_row=_has_vectors(files))
    whole = files_by_partition(files.jvm, txn, condition, candidates)
    if whole is not None:
        gone = tuple(add_files(whole))
        return Replaced(files=gone, num_rows=num_live_rows(gone))
    return _taken(files, candidates, _Choice(condition.matching, condition.others))


def rows_matching(files: DmlFiles, source: DataFrame, condition: Column, alias: str) -> Replaced:
    """The rows that a row of `source` matches; `alias` is what the condition calls the table."""

    def joined(kind: str) -> _Part:
        return lambda rows: rows.alias(alias).join(source, condition, kind)

    candidates = files.txn.filter_files(by_row=_has_vectors(files))
    return _taken(files, candidates, _Choice(joined("left_semi"), joined("left_anti")))


def _taken(files: DmlFiles, candidates: pa.Table, choice: _Choice) -> Replaced:
    """Find the rows that go, by one job, and what is to be told and written of them."""
    if not candidates.num_rows:
        return Replaced()
    with_vectors = _has_vectors(files)
    rows = located_rows(files.jvm, files.txn, candidates, metadata=files.metadata)
    matching = choice.matching(rows.frame)
    if not with_vectors and is_repeatable(files.jvm, matching):
        return _asked_again(files, files.count(counted_rows(matching, rows.files)), choice)
    touched = touched_rows(matching, rows.files)
    changes = files.plan(touched.files, with_vectors=with_vectors, can_rewrite=False)
    marked = FileChanges(files=changes.of("vector"))
    return Replaced(
        files=tuple(changes.removed),
        vectors=tuple(files.actions(marked)),
        kept=files.copied_rows(changes),
        deleted=None if with_vectors else files.touched_rows(changes.files),
        num_rows=changes.num_rows,
        num_kept=changes.num_copied,
    )


def _asked_again(files: DmlFiles, changes: FileChanges, choice: _Choice) -> Replaced:
    """What becomes of files whose rows were counted only."""
    gone = changes.removed
    partial = [each.file for each in changes.counted if each.num_left]
    return Replaced(
        files=tuple(gone),
        kept=choice.others(files.live_rows(partial)) if partial else None,
        deleted=choice.matching(files.live_rows(gone)) if gone else None,
        num_rows=changes.num_rows,
        num_kept=changes.num_copied,
    )


def _has_vectors(files: DmlFiles) -> bool:
    return files.uses_vectors("delete")
