"""What the log alone says of a version's rows: how many there are, a column's least and greatest.

An answer is exact or there is none: statistics may be missing, and their bounds may be wider than
the rows, or cut.  So only whole numbers and dates are answered, and partition values; and where a
deletion vector hides rows, only how many are left.
PROTOCOL.md, "Per-file Statistics".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.kernel.log.replay import FileState
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.types import DATE, STRING, DataType
from pyspark_delta.kernel.scan.binding import BoundPredicate, has_binary_order
from pyspark_delta.kernel.scan.evaluation import evaluate
from pyspark_delta.kernel.scan.literals import INTEGRAL, zone_named
from pyspark_delta.kernel.scan.partitions import partition_columns_table
from pyspark_delta.kernel.scan.plan import of_files
from pyspark_delta.kernel.scan.stats_bounds import Side
from pyspark_delta.kernel.scan.stats_cache import parsed_stats
from pyspark_delta.kernel.scan.stats_columns import (
    NULL_COUNT,
    NUM_RECORDS,
    ROWS_ALONE,
    TIGHT_BOUNDS,
    column_leaves,
    stat_name,
)

_COLUMNS = ("path", "partitionValues", "deletionVector")
_BITS: dict[DataType, int] = dict([*INTEGRAL.items(), (DATE, 32)])


class Question(Enum):
    """What can be asked; a column's nulls count for none of it."""

    COUNT = "count"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class Asked:
    """A question about a top-level column, under its logical name; without one, about rows."""

    question: Question
    column: str | None = None


@dataclass(frozen=True, slots=True)
class Answers:
    """A value for each question: a number, days since 1970, a text, or None where there is none.

    `num_files` is how many files the rows are in.
    """

    values: Sequence[object]
    num_files: int


def answers_from_log(
    snapshot: Snapshot, where: BoundPredicate, asked: Sequence[Asked]
) -> Answers | None:
    """What the log says of the rows for which `where` is true; None when it does not say it all.

    `where` is about partition columns alone.
    """
    return of_files(
        snapshot,
        _COLUMNS,
        lambda files, state: _answers(files, state, snapshot.metadata, where, asked),
    )


def _answers(
    files: pa.Table,
    state: FileState,
    metadata: Metadata,
    where: BoundPredicate,
    asked: Sequence[Asked],
) -> Answers | None:
    partitions = partition_columns_table(files, metadata, zone=zone_named(where.time_zone))
    wanted = pa.repeat(pa.scalar(True), files.num_rows)
    if not where.is_true:
        wanted = pc.fill_null(evaluate(where, partitions), False)
    paths = dict.fromkeys((each.column,) for each in asked if each.column is not None)
    leaves = column_leaves(paths, metadata)
    stats = parsed_stats(state, wanted, [ROWS_ALONE, *leaves])
    vectors = files.column("deletionVector").filter(wanted)
    told = _Files(stats, partitions.filter(wanted), vectors, metadata)
    if not told.are_counted:
        return None
    values = []
    for each in asked:
        value = told.answer(each)
        if value is _UNKNOWN:
            return None
        values.append(value)
    return Answers(values, stats.num_rows)


# Other than None, which is the least value of no rows.
_UNKNOWN = object()


class _Files:
    """Files as rows of statistics, partition values and vectors."""

    def __init__(
        self, stats: pa.Table, partitions: pa.Table, vectors: pa.ChunkedArray, metadata: Metadata
    ) -> None:
        records = stats.column(NUM_RECORDS)
        hidden = pc.fill_null(pc.struct_field(vectors, "cardinality"), 0)
        rows = pc.subtract(records, hidden)
        self.are_counted = not records.null_count and not pc.any(pc.less(rows, 0)).as_py()
        self._metadata = metadata
        if not self.are_counted:
            return
        has_rows = pc.greater(rows, 0)
        self._rows = rows.filter(has_rows)
        self._stats = stats.filter(has_rows)
        self._partitions = partitions.filter(has_rows)
        is_tight = pc.fill_null(self._stats.column(TIGHT_BOUNDS), True)
        self._are_tight = (
            not pc.any(pc.is_valid(vectors.filter(has_rows))).as_py()
            and pc.all(is_tight, min_count=0).as_py()
        )

    def answer(self, asked: Asked) -> object:
        """The value, or `_UNKNOWN`."""
        if asked.column is None:
            return _total(self._rows)
        f = self._metadata.schema.get(asked.column)
        if f is None:
            return _UNKNOWN
        if f.name in self._metadata.partition_columns:
            values = self._partitions.column(f.name)
            if asked.question is Question.COUNT:
                return _total(self._rows.filter(pc.is_valid(values)))
            is_ordered = f.data_type == STRING and has_binary_order(f)
            if not (is_ordered or f.data_type in _BITS):
                return _UNKNOWN
            return _extreme(values, asked.question)
        if not self._are_tight:
            return _UNKNOWN
        if asked.question is Question.COUNT:
            nulls = self._stat(NULL_COUNT, f.name)
            if nulls is None or nulls.null_count:
                return _UNKNOWN
            left = pc.subtract(self._rows, nulls)
            return _UNKNOWN if pc.any(pc.less(left, 0)).as_py() else _total(left)
        if f.data_type not in _BITS:
            return _UNKNOWN
        return self._bound(f.name, f.data_type, asked.question)

    def _bound(self, name: str, data_type: DataType, question: Question) -> object:
        side = Side.LOWER if question is Question.MIN else Side.UPPER
        bounds, nulls = self._stat(side.value, name), self._stat(NULL_COUNT, name)
        if bounds is None or nulls is None:
            return _UNKNOWN
        is_known = pc.or_kleene(pc.is_valid(bounds), pc.equal(nulls, self._rows))
        if not pc.all(pc.fill_null(is_known, False), min_count=0).as_py():
            return _UNKNOWN
        value = _extreme(bounds, question)
        most = 2 ** (_BITS[data_type] - 1)
        fits = value is None or (isinstance(value, int) and -most <= value < most)
        return value if fits else _UNKNOWN

    def _stat(self, stat: str, name: str) -> pa.ChunkedArray | None:
        column = stat_name(stat, (name,))
        return self._stats.column(column) if column in self._stats.schema.names else None


def _total(numbers: pa.ChunkedArray) -> object:
    return pc.sum(numbers).as_py() or 0


def _extreme(values: pa.ChunkedArray, question: Question) -> object:
    if pa.types.is_date(values.type):
        values = values.cast(pa.int32())
    found: object = pc.min_max(values)[question.value].as_py()
    return found
