"""Aggregates from the log alone: the number of rows, and minimum and maximum of columns.

A value is exact or there is none: statistics may be missing, and their bounds may be wider than
the rows, or truncated.  So only whole numbers, dates and partition values have minimum and maximum;
and where a deletion vector hides rows, only their number is known.
PROTOCOL.md, "Per-file Statistics".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.kernel.log.replay import FileState
from pyspark_delta.kernel.log.table_files import TableFiles
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.types import DATE, STRING, DataType
from pyspark_delta.kernel.scan.plan import of_files
from pyspark_delta.kernel.scan.predicates.binding import BoundPredicate, has_binary_order
from pyspark_delta.kernel.scan.predicates.evaluation import evaluate
from pyspark_delta.kernel.scan.predicates.literals import INTEGRAL, zone_named
from pyspark_delta.kernel.scan.skipping.files import partition_columns_table
from pyspark_delta.kernel.scan.skipping.stats_bounds import Side
from pyspark_delta.kernel.scan.skipping.stats_table import (
    NULL_COUNT,
    NUM_RECORDS,
    ROWS_ALONE,
    TIGHT_BOUNDS,
    column_leaves,
    parsed_stats,
    stat_name,
)

_COLUMNS = ("path", "partitionValues", "deletionVector")
_BITS: dict[DataType, int] = dict([*INTEGRAL.items(), (DATE, 32)])


class AggregateKind(Enum):
    """The kinds of aggregates; a column's nulls do not count for any of them."""

    COUNT = "count"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """An aggregate of a top-level column, by its logical name; without one, of rows."""

    kind: AggregateKind
    column: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateValues:
    """A value for each aggregate: a number, days since 1970, a text, or None where there is none.

    `num_files` is the number of files of the rows.
    """

    values: Sequence[object]
    num_files: int


def aggregates_from_log(
    snapshot: TableFiles, where: BoundPredicate, aggregates: Sequence[Aggregate]
) -> AggregateValues | None:
    """Aggregates of the rows for which `where` is true; None unless the log has all of them.

    `where` has partition columns alone.
    """

    def values(files: pa.Table, state: FileState) -> AggregateValues | None:
        try:
            return _values(files, state, snapshot.metadata, where, aggregates)
        except _NotInLogError:
            return None

    return of_files(snapshot, _COLUMNS, values)


class _NotInLogError(Exception):
    pass


def _values(
    files: pa.Table,
    state: FileState,
    metadata: Metadata,
    where: BoundPredicate,
    aggregates: Sequence[Aggregate],
) -> AggregateValues:
    partitions = partition_columns_table(files, metadata, zone=zone_named(where.time_zone))
    selected = pa.repeat(pa.scalar(True), files.num_rows)
    if not where.is_true:
        selected = pc.fill_null(evaluate(where, partitions), False)
    paths = dict.fromkeys((each.column,) for each in aggregates if each.column is not None)
    stats = parsed_stats(state, selected, [ROWS_ALONE, *column_leaves(paths, metadata)])
    vectors = files.column("deletionVector").filter(selected)
    counted = _Files(stats, partitions.filter(selected), vectors, metadata)
    values = [counted.value(each) for each in aggregates]
    return AggregateValues(values=values, num_files=stats.num_rows)


class _Files:
    def __init__(
        self, stats: pa.Table, partitions: pa.Table, vectors: pa.ChunkedArray, metadata: Metadata
    ) -> None:
        records = stats.column(NUM_RECORDS)
        rows = pc.subtract(records, pc.fill_null(pc.struct_field(vectors, "cardinality"), 0))
        if records.null_count or pc.any(pc.less(rows, 0)).as_py():
            raise _NotInLogError
        has_rows = pc.greater(rows, 0)
        self._metadata = metadata
        self._rows = rows.filter(has_rows)
        self._stats = stats.filter(has_rows)
        self._partitions = partitions.filter(has_rows)
        is_tight = pc.fill_null(self._stats.column(TIGHT_BOUNDS), True)
        self._are_tight = (
            not pc.any(pc.is_valid(vectors.filter(has_rows))).as_py()
            and pc.all(is_tight, min_count=0).as_py()
        )

    def value(self, aggregate: Aggregate) -> object:
        kind = aggregate.kind
        if aggregate.column is None:
            return _total(self._rows)
        f = self._metadata.schema.get(aggregate.column)
        if f is None:
            raise _NotInLogError
        if f.name in self._metadata.partition_columns:
            values = self._partitions.column(f.name)
            if kind is AggregateKind.COUNT:
                return _total(self._rows.filter(pc.is_valid(values)))
            is_ordered = f.data_type == STRING and has_binary_order(f)
            if not (is_ordered or f.data_type in _BITS):
                raise _NotInLogError
            return _extreme(values, kind)
        if not self._are_tight:
            raise _NotInLogError
        if kind is AggregateKind.COUNT:
            nulls = self._stat(NULL_COUNT, f.name)
            left = pc.subtract(self._rows, nulls)
            if nulls.null_count or pc.any(pc.less(left, 0)).as_py():
                raise _NotInLogError
            return _total(left)
        if f.data_type not in _BITS:
            raise _NotInLogError
        return self._bound(f.name, f.data_type, kind)

    def _bound(self, name: str, data_type: DataType, kind: AggregateKind) -> object:
        side = Side.LOWER if kind is AggregateKind.MIN else Side.UPPER
        bounds, nulls = self._stat(side.value, name), self._stat(NULL_COUNT, name)
        is_known = pc.or_kleene(pc.is_valid(bounds), pc.equal(nulls, self._rows))
        value = _extreme(bounds, kind)
        most = 2 ** (_BITS[data_type] - 1)
        fits = value is None or (isinstance(value, int) and -most <= value < most)
        if not fits or not pc.all(pc.fill_null(is_known, False), min_count=0).as_py():
            raise _NotInLogError
        return value

    def _stat(self, stat: str, name: str) -> pa.ChunkedArray:
        column = stat_name(stat, (name,))
        if column not in self._stats.schema.names:
            raise _NotInLogError
        return self._stats.column(column)


def _total(numbers: pa.ChunkedArray) -> object:
    return pc.sum(numbers).as_py() or 0


def _extreme(values: pa.ChunkedArray, kind: AggregateKind) -> object:
    if pa.types.is_date(values.type):
        values = values.cast(pa.int32())
    found: object = pc.min_max(values)[kind.value].as_py()
    return found
