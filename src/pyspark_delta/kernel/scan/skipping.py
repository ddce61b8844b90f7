"""Which files may hold a row that a predicate selects.

A file is kept unless its statistics or partition values prove that no row of it can make the
predicate true.  A proof needs three values: for every part of a predicate it is asked whether some
row may make it true and whether some row may make it false, so NOT costs nothing.  A column's
nulls, and what the statistics do not say, speak for keeping.
PROTOCOL.md, "Per-file Statistics".

>>> from pyspark_delta.kernel.protocol.types import LONG, StructField, StructType
>>> from pyspark_delta.kernel.scan.binding import bind
>>> from pyspark_delta.kernel.scan.predicates import compare
>>> schema = StructType((StructField("n", LONG),))
>>> stats = pa.table({"numRecords": [3, 3], "minValues n": [1, 5], "maxValues n": [4, 9]})
>>> skipping_mask(bind(compare("n", ">", 4), schema), stats).to_pylist()
[False, True]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.kernel.scan.arrow_values import comparable_scalar, compare_arrays, widened
from pyspark_delta.kernel.scan.binding import BoundPredicate
from pyspark_delta.kernel.scan.evaluation import evaluate
from pyspark_delta.kernel.scan.predicates import (
    And,
    Column,
    Comparison,
    Constant,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    Path,
    Predicate,
    StartsWith,
    columns_of,
)
from pyspark_delta.kernel.scan.stats_bounds import Side
from pyspark_delta.kernel.scan.stats_columns import NULL_COUNT, NUM_RECORDS, stat_name

# Operator -> the one that holds where it does not.
_CONTRARY = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
# Longer lists are judged as so many ranges of neighbouring values.
_MOST_RANGES = 16


def skipping_mask(
    predicate: BoundPredicate, stats: pa.Table, *, partitions: pa.Table | None = None
) -> pa.BooleanArray:
    """Whether each file must be read: false only where no row of it can satisfy `predicate`.

    `stats` is what `parse_stats` or `struct_stats` gave for the leaves of the predicate;
    `partitions`, if given, the files' partition values under the columns' own names.  A column
    that is in neither is not judged.
    """
    return _Files(stats, predicate, partitions).may_be(predicate.predicate, True)


class _Files:
    """Files as rows of statistics and partition values, judged by what may be in them."""

    def __init__(self, stats: pa.Table, whole: BoundPredicate, partitions: pa.Table | None) -> None:
        self._stats = stats
        self._whole = whole
        self._partitions = partitions
        self._names = set(stats.schema.names)
        self._partition_names = set() if partitions is None else set(partitions.schema.names)
        self._columns: dict[str, pa.Array | None] = {}

    def may_be(self, predicate: Predicate, wanted: bool) -> pa.BooleanArray:
        """Where some row may make `predicate` the value `wanted`."""
        match predicate:
            case Not(operand=operand):
                return self.may_be(operand, not wanted)
            case And(all_of=parts) | Or(any_of=parts):
                is_and = isinstance(predicate, And)
                kernel = pc.and_ if is_and is wanted else pc.or_
                found = self.may_be(parts[0], wanted)
                for part in parts[1:]:
                    found = kernel(found, self.may_be(part, wanted))
                return found
            case Constant(value=value):
                return self._all(value is wanted)
        if self._is_on_partitions(predicate):
            judged = evaluate(replace(self._whole, predicate=predicate), self._partitions)
            return pc.fill_null(judged if wanted else pc.invert(judged), False)
        return self._leaf_may_be(predicate, wanted)

    def _leaf_may_be(self, predicate: Predicate, wanted: bool) -> pa.BooleanArray:
        match predicate:
            case IsNull(column=column):
                return self._null_may_be(column.path, wanted)
            case Comparison(op="<=>", left=Column() as left, right=Literal() as right):
                same = self._compared("=" if wanted else "!=", left.path, right)
                return same if wanted else pc.or_(same, self._null_may_be(left.path, True))
            case Comparison(op=op, left=Column() as left, right=Literal() as right):
                return self._compared(op if wanted else _CONTRARY[op], left.path, right)
            case In(column=column, values=values):
                return self._in(column.path, values, wanted)
            case StartsWith(column=column, prefix=prefix):
                return self._starts_with(column.path, prefix, wanted)
            case _:
                return self._all(True)

    def _null_may_be(self, path: Path, wanted: bool) -> pa.BooleanArray:
        # Two counts mean the same whether the bounds are tight or not: none, and all.
        nulls = self._stat(NULL_COUNT, path)
        records = self._column(NUM_RECORDS)
        if nulls is None or (not wanted and records is None):
            return self._all(True)
        mask = pc.greater(nulls, 0) if wanted else pc.not_equal(nulls, records)
        return pc.fill_null(mask, True)

    def _compared(self, op: str, path: Path, value: Literal) -> pa.BooleanArray:
        lower, upper = (self._stat(side.value, path) for side in Side)
        has_value = self._null_may_be(path, False)
        if lower is None or upper is None:
            return has_value
        scalar = comparable_scalar(value.value, value.data_type)
        is_float = pa.types.is_floating(lower.type)
        lower, upper = widened(lower, scalar.type), widened(upper, scalar.type)
        mask = _may_compare(op, lower, upper, scalar, hides_nan=is_float)
        return has_value if mask is None else pc.and_(has_value, pc.fill_null(mask, True))

    def _in(self, path: Path, values: tuple[Literal, ...], wanted: bool) -> pa.BooleanArray:
        given = sorted((value for value in values if value.value is not None), key=_sort_key)
        if not wanted:
            if len(given) < len(values):
                return self._all(False)  # NOT IN a list with a null is never true
            return self._not_in(path, given)
        size = -(-len(given) // _MOST_RANGES)
        ranges = [given[at : at + size] for at in range(0, len(given), size)]
        if any(value.value != value.value for value in given):
            return self._compared("=", path, given[-1])  # NaN, for which bounds are no proof
        return _folded(pc.or_, [self._overlaps(path, each[0], each[-1]) for each in ranges])

    def _overlaps(self, path: Path, first: Literal, last: Literal) -> pa.BooleanArray:
        """Where a value between two others may be."""
        if first == last:
            return self._compared("=", path, first)
        upper = self._stat(Side.UPPER.value, path)
        found = self._compared("<=", path, last)
        if upper is None:
            return found
        # Between two numbers there is no NaN, so the upper bound counts for floats as well.
        scalar = comparable_scalar(first.value, first.data_type)
        reached = compare_arrays(">=", widened(upper, scalar.type), scalar)
        return pc.and_(found, pc.fill_null(reached, True))

    def _not_in(self, path: Path, values: list[Literal]) -> pa.BooleanArray:
        """Only a file that holds one single value can have nothing but values of a list."""
        lower, upper = (self._stat(side.value, path) for side in Side)
        has_value = self._null_may_be(path, False)
        if lower is None or upper is None or pa.types.is_floating(lower.type):
            return has_value
        scalars = [comparable_scalar(value.value, value.data_type) for value in values]
        lower, upper = widened(lower, scalars[0].type), widened(upper, scalars[0].type)
        listed = pc.is_in(lower, value_set=pa.array([s.as_py() for s in scalars], lower.type))
        single = pc.fill_null(compare_arrays("=", lower, upper), False)
        return pc.and_(has_value, pc.invert(pc.and_(single, listed)))

    def _starts_with(self, path: Path, prefix: str, wanted: bool) -> pa.BooleanArray:
        lower, upper = (self._stat(side.value, path) for side in Side)
        has_value = self._null_may_be(path, False)
        if lower is None or upper is None:
            return has_value
        if wanted:
            first = pc.utf8_slice_codeunits(lower, 0, len(prefix)) if prefix else lower
            mask = pc.greater_equal(upper, prefix)
            if prefix:
                mask = pc.and_kleene(mask, pc.less_equal(first, prefix))
        else:
            # All that lies between two texts with one beginning has that beginning.
            both = (pc.starts_with(side, pattern=prefix) for side in (lower, upper))
            mask = pc.invert(pc.and_kleene(*both))
        return pc.and_(has_value, pc.fill_null(mask, True))

    def _is_on_partitions(self, predicate: Predicate) -> bool:
        names = {path[0] for path in columns_of(predicate)}
        return bool(names) and names <= self._partition_names

    def _stat(self, stat: str, path: Path) -> pa.Array | None:
        return self._column(stat_name(stat, path))

    def _column(self, name: str) -> pa.Array | None:
        if name not in self._columns:
            column = None
            if name in self._names:
                column = self._stats.column(name).combine_chunks()
            self._columns[name] = column
        return self._columns[name]

    def _all(self, value: bool) -> pa.BooleanArray:
        return pa.repeat(pa.scalar(value), self._stats.num_rows)


def _may_compare(
    op: str, lower: pa.Array, upper: pa.Array, value: pa.Scalar, *, hides_nan: bool
) -> pa.BooleanArray | None:
    """Where a value between the bounds may compare so; None when bounds cannot tell.

    Parquet leaves NaN out of its statistics, and some writers take theirs from there.  NaN is
    larger than every other number, so an upper bound of floats proves nothing about it.
    """
    is_nan = hides_nan and pc.is_nan(value).as_py()
    match op:
        case "<" | "<=":
            return compare_arrays(op, lower, value)
        case ">" | ">=" if not hides_nan:
            return compare_arrays(op, upper, value)
        case "=" if not is_nan:
            return pc.and_kleene(
                compare_arrays("<=", lower, value), compare_arrays(">=", upper, value)
            )
        case "!=" if not hides_nan:
            return pc.or_kleene(
                compare_arrays("!=", lower, value), compare_arrays("!=", upper, value)
            )
        case _:
            return None


def _folded(kernel: Callable[[Any, Any], Any], masks: list[pa.BooleanArray]) -> pa.BooleanArray:
    found = masks[0]
    for mask in masks[1:]:
        found = kernel(found, mask)
    return found


def _sort_key(value: Literal) -> Any:
    inner = value.value
    return (inner != inner, inner)  # NaN last
