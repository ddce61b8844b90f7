"""Choose the files, and the row groups of a file, that may hold a row that a predicate selects.

A file is kept unless its statistics or partition values prove that no row of it can make the
predicate true.  For every part of a predicate two masks exist: whether some row may make it true,
and whether some row may make it false, so NOT is simple.  A column's nulls, and missing
statistics, keep a file.

A footer has counts and bounds for every row group, which are evaluated like the statistics of
files.  Deleted rows are in these bounds too, which makes them wide and never wrong.

Partition values are text in the log; every distinct text is parsed once, however many files share
it.  A text that is not a value of its column's type is an error, and so is a file without a value
for a column: the rows of such a file are undefined.
PROTOCOL.md, "Per-file Statistics", "Partition Value Serialization".

>>> from pyspark_delta.kernel.protocol.types import LONG
>>> from pyspark_delta.kernel.scan.predicates.tree import compare
>>> schema = StructType((StructField("n", LONG),))
>>> stats = pa.table({"numRecords": [3, 3], "minValues n": [1, 5], "maxValues n": [4, 9]})
>>> skipping_mask(bind(compare("n", ">", 4), schema), stats).to_pylist()
[False, True]
>>> values = pa.array([[("p", "1")], [("p", None)]], pa.map_(pa.string(), pa.string()))
>>> files = pa.table({"path": ["a", "b"], "partitionValues": values})
>>> typed_partitions(files, StructType((StructField("p", LONG),)), {"p": "p"}).to_pylist()
[{'p': 1}, {'p': None}]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, tzinfo
from decimal import Context, Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyspark_delta.errors import CorruptLogError
from pyspark_delta.kernel.log.arrow_types import arrow_type, caster, one_array
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.column_mapping import MODE_KEY, ColumnMappingMode, physical_name
from pyspark_delta.kernel.protocol.partition_values import parse_partition_value
from pyspark_delta.kernel.protocol.types import StructField, StructType, is_atomic
from pyspark_delta.kernel.scan.predicates import tree
from pyspark_delta.kernel.scan.predicates.binding import BoundPredicate, bind, has_binary_order
from pyspark_delta.kernel.scan.predicates.evaluation import (
    comparable,
    comparable_scalar,
    compare_arrays,
    evaluate,
    widened,
)
from pyspark_delta.kernel.scan.predicates.literals import zone_named
from pyspark_delta.kernel.scan.projection import find_leaf
from pyspark_delta.kernel.scan.skipping.stats_bounds import Side, has_usable_bounds
from pyspark_delta.kernel.scan.skipping.stats_table import NULL_COUNT, NUM_RECORDS, stat_name

# Operator -> its negation.
_CONTRARY = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
# Longer lists are evaluated as this number of ranges of neighbouring values.
_MOST_RANGES = 16
_EXACT = Context(prec=76)


def skipping_mask(
    predicate: BoundPredicate, stats: pa.Table, *, partitions: pa.Table | None = None
) -> pa.BooleanArray:
    """Whether each file must be read: false only where no row of it can satisfy `predicate`.

    `stats` is the result of `parse_stats` or `struct_stats` for the leaves of the predicate;
    `partitions`, if given, the files' partition values under the columns' own names.  A column
    that is in neither excludes no file.
    """
    return _Files(stats, predicate, partitions).may_be(predicate.predicate, True)


class _Files:
    """Files as rows of statistics and partition values, on which predicates are evaluated."""

    def __init__(self, stats: pa.Table, whole: BoundPredicate, partitions: pa.Table | None) -> None:
        self._stats = stats
        self._whole = whole
        self._partitions = partitions
        self._partition_names = set() if partitions is None else set(partitions.schema.names)
        self._columns: dict[str, pa.Array | None] = {}

    def may_be(self, predicate: tree.Predicate, wanted: bool) -> pa.BooleanArray:
        """Mask of files in which `predicate` may have the value `wanted` for some row."""
        match predicate:
            case tree.Not(operand=operand):
                return self.may_be(operand, not wanted)
            case tree.And(all_of=parts) | tree.Or(any_of=parts):
                is_and = isinstance(predicate, tree.And)
                kernel = pc.and_ if is_and is wanted else pc.or_
                return reduce(kernel, (self.may_be(part, wanted) for part in parts))
            case tree.Constant(value=value):
                return self._all(value is wanted)
        if self._is_on_partitions(predicate):
            judged = evaluate(replace(self._whole, predicate=predicate), self._partitions)
            return pc.fill_null(judged if wanted else pc.invert(judged), False)
        return self._leaf_may_be(predicate, wanted)

    def _leaf_may_be(self, predicate: tree.Predicate, wanted: bool) -> pa.BooleanArray:
        match predicate:
            case tree.IsNull(column=column):
                return self._null_may_be(column.path, wanted)
            case tree.Comparison(
                op="<=>", left=tree.Column() as left, right=tree.Literal() as right
            ):
                same = self._compared("=" if wanted else "!=", left.path, right)
                return same if wanted else pc.or_(same, self._null_may_be(left.path, True))
            case tree.Comparison(op=op, left=tree.Column() as left, right=tree.Literal() as right):
                return self._compared(op if wanted else _CONTRARY[op], left.path, right)
            case tree.In(column=column, values=values):
                return self._in(column.path, values, wanted)
            case tree.StartsWith(column=column, prefix=prefix):
                return self._starts_with(column.path, prefix, wanted)
            case _:
                return self._all(True)

    def _null_may_be(self, path: tree.Path, wanted: bool) -> pa.BooleanArray:
        # Two null counts mean the same whether the bounds are tight or not: none, and all.
        nulls = self._stat(NULL_COUNT, path)
        records = self._column(NUM_RECORDS)
        if nulls is None or (not wanted and records is None):
            return self._all(True)
        mask = pc.greater(nulls, 0) if wanted else pc.not_equal(nulls, records)
        return pc.fill_null(mask, True)

    def _compared(self, op: str, path: tree.Path, value: tree.Literal) -> pa.BooleanArray:
        lower, upper = (self._stat(side.value, path) for side in Side)
        has_value = self._null_may_be(path, False)
        if lower is None or upper is None:
            return has_value
        scalar = comparable_scalar(value.value, value.data_type)
        is_float = pa.types.is_floating(lower.type)
        lower, upper = widened(lower, scalar.type), widened(upper, scalar.type)
        mask = _may_compare(op, lower, upper, scalar, hides_nan=is_float)
        return has_value if mask is None else pc.and_(has_value, pc.fill_null(mask, True))

    def _in(
        self, path: tree.Path, values: tuple[tree.Literal, ...], wanted: bool
    ) -> pa.BooleanArray:
        given = sorted((value for value in values if value.value is not None), key=_sort_key)
        if not wanted:
            if len(given) < len(values):
                return self._all(False)  # NOT IN a list with a null is never true
            return self._not_in(path, given)
        size = -(-len(given) // _MOST_RANGES)
        ranges = [given[at : at + size] for at in range(0, len(given), size)]
        if any(value.value != value.value for value in given):
            return self._compared("=", path, given[-1])  # NaN, for which bounds prove nothing
        return reduce(pc.or_, (self._overlaps(path, each[0], each[-1]) for each in ranges))

    def _overlaps(
        self, path: tree.Path, first: tree.Literal, last: tree.Literal
    ) -> pa.BooleanArray:
        """Mask of files that may have a value between two others."""
        if first == last:
            return self._compared("=", path, first)
        upper = self._stat(Side.UPPER.value, path)
        found = self._compared("<=", path, last)
        if upper is None:
            return found
        # No NaN is between two numbers, so the upper bound is valid for floats as well.
        scalar = comparable_scalar(first.value, first.data_type)
        reached = compare_arrays(">=", widened(upper, scalar.type), scalar)
        return pc.and_(found, pc.fill_null(reached, True))

    def _not_in(self, path: tree.Path, values: list[tree.Literal]) -> pa.BooleanArray:
        """Mask of NOT IN, which excludes only files with a single value that is in the list."""
        lower, upper = (self._stat(side.value, path) for side in Side)
        has_value = self._null_may_be(path, False)
        if lower is None or upper is None or pa.types.is_floating(lower.type):
            return has_value
        scalars = [comparable_scalar(value.value, value.data_type) for value in values]
        lower, upper = widened(lower, scalars[0].type), widened(upper, scalars[0].type)
        listed = pc.is_in(lower, value_set=pa.array([s.as_py() for s in scalars], lower.type))
        single = pc.fill_null(compare_arrays("=", lower, upper), False)
        return pc.and_(has_value, pc.invert(pc.and_(single, listed)))

    def _starts_with(self, path: tree.Path, prefix: str, wanted: bool) -> pa.BooleanArray:
        lower, upper = (self._stat(side.value, path) for side in Side)
        has_value = self._null_may_be(path, False)
        if lower is None or upper is None:
            return has_value
        if wanted:
            mask = pc.greater_equal(upper, prefix)
            if prefix:
                first = pc.utf8_slice_codeunits(lower, 0, len(prefix))
                mask = pc.and_kleene(mask, pc.less_equal(first, prefix))
        else:
            # Every text between two texts with a common prefix has that prefix.
            both = (pc.starts_with(side, pattern=prefix) for side in (lower, upper))
            mask = pc.invert(pc.and_kleene(*both))
        return pc.and_(has_value, pc.fill_null(mask, True))

    def _is_on_partitions(self, predicate: tree.Predicate) -> bool:
        names = {path[0] for path in tree.columns_of(predicate)}
        return bool(names) and names <= self._partition_names

    def _stat(self, stat: str, path: tree.Path) -> pa.Array | None:
        return self._column(stat_name(stat, path))

    def _column(self, name: str) -> pa.Array | None:
        if name not in self._columns:
            is_present = name in self._stats.schema.names
            self._columns[name] = self._stats.column(name).combine_chunks() if is_present else None
        return self._columns[name]

    def _all(self, value: bool) -> pa.BooleanArray:
        return pa.repeat(pa.scalar(value), self._stats.num_rows)


def _may_compare(
    op: str, lower: pa.Array, upper: pa.Array, value: pa.Scalar, *, hides_nan: bool
) -> pa.BooleanArray | None:
    """Mask of files with a value that may compare so; None when bounds prove nothing."""
    # Parquet leaves NaN out of its statistics, and some writers copy them from there. NaN is
    # larger than every other number, so an upper bound of floats proves nothing about it.
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


def _sort_key(value: tree.Literal) -> Any:
    inner = value.value
    return (inner != inner, inner)  # NaN last


def partition_columns_table(files: pa.Table, metadata: Metadata, *, zone: tzinfo = UTC) -> pa.Table:
    """The partition columns of `files`, in the table's order, under their logical names.

    `files` needs the columns `path` and `partitionValues`; `zone` is that of timestamps without
    a zone.
    """
    mode = ColumnMappingMode.parse(metadata.configuration.get(MODE_KEY))
    schema = metadata.partition_schema
    keys = {f.name: physical_name(f, mode) for f in schema}
    return typed_partitions(files, schema, keys, zone=zone)


def partition_mask(
    predicate: tree.Predicate, files: pa.Table, metadata: Metadata, *, time_zone: str = "UTC"
) -> pa.BooleanArray:
    """Whether each file may hold a row that `predicate` selects, by its partition values alone.

    `time_zone` is the zone of days, and of timestamps without a zone.
    """
    partitions = partition_columns_table(files, metadata, zone=zone_named(time_zone))
    nothing = pa.table({"path": files.column("path")})
    bound = bind(predicate, metadata.schema, time_zone=time_zone, lenient=True)
    return skipping_mask(bound, nothing, partitions=partitions)


def typed_partitions(
    files: pa.Table, schema: StructType, keys: Mapping[str, str], *, zone: tzinfo = UTC
) -> pa.Table:
    """A column for each field of `schema`; `keys` gives the name each has in the log."""
    columns: dict[str, pa.Array] = {}
    for f in schema:
        texts, start = [], 0
        for maps in files.column("partitionValues").chunks:
            texts.append(_values_of(maps, keys[f.name], f, files.slice(start, len(maps))))
            start += len(maps)
        columns[f.name] = _typed(pa.chunked_array(texts, pa.string()), f, zone)
    return pa.table(columns) if columns else files.select([])


def _values_of(maps: pa.MapArray, key: str, f: StructField, files: pa.Table) -> pa.Array:
    if not len(maps):
        return pa.array([], pa.string())
    found = pc.indices_nonzero(pc.equal(maps.keys, key)).cast(pa.int64())
    offsets = maps.offsets.cast(pa.int64())
    first, end = offsets.slice(0, len(maps)), offsets.slice(1)
    # Usually each map has the key once, so its n-th occurrence belongs to the n-th map.
    window = found
    if len(found) != len(maps):
        inside = pc.and_(pc.greater_equal(found, offsets[0]), pc.less(found, offsets[-1]))
        window = found.filter(inside)
    if len(window) == len(maps) and not maps.null_count:
        fits = pc.and_(pc.greater_equal(window, first), pc.less(window, end))
        if pc.all(fits).as_py():
            return maps.items.take(window).cast(pa.string())
    return _values_one_by_one(maps, key, f, files)


def _values_one_by_one(maps: pa.MapArray, key: str, f: StructField, files: pa.Table) -> pa.Array:
    texts = []
    for number, entries in enumerate(maps.to_pylist()):
        values = dict(entries or ())
        if key not in values:
            # Names compare ignoring case; a writer may write keys in any case.
            others = [name for name in values if name.lower() == key.lower()]
            if len(others) != 1:
                path = files.column("path")[number].as_py()
                raise CorruptLogError("DELTA_MISSING_PARTITION_VALUE", path=path, column=f.name)
            values[key] = values[others[0]]
        texts.append(values[key])
    return pa.array(texts, pa.string())


def _typed(texts: pa.ChunkedArray, f: StructField, zone: tzinfo) -> pa.Array:
    encoded = one_array(texts).dictionary_encode()
    values = [
        parse_partition_value(text, f.data_type, column=f.name, zone=zone)
        for text in encoded.dictionary.to_pylist()
    ]
    return pa.array(values, arrow_type(f.data_type)).take(encoded.indices)


def row_groups_to_read(
    file: pq.ParquetFile,
    predicate: BoundPredicate,
    mode: ColumnMappingMode = ColumnMappingMode.NONE,
) -> list[bool]:
    """For each row group, whether it must be read.

    Columns of the predicate that are not in the file, such as partition columns, exclude nothing.
    """
    schema, footer = predicate.schema, file.metadata
    groups = [footer.row_group(place) for place in range(footer.num_row_groups)]
    stats: dict[str, pa.Array] = {
        NUM_RECORDS: pa.array([group.num_rows for group in groups], pa.int64())
    }
    for path in tree.columns_of(predicate.predicate):
        f = schema.find(path)
        if f is None or not is_atomic(f.data_type):
            continue
        if leaf := find_leaf(path, schema, file.schema_arrow, mode):
            place, present = leaf
            chunks = [group.column(place).statistics for group in groups]
            stats.update(_leaf_stats(path, f, present, chunks))
    mask = skipping_mask(predicate, pa.table(stats))
    found: list[bool] = mask.to_pylist()
    return found


def _leaf_stats(
    path: tree.Path, f: StructField, present: pa.DataType, chunks: Sequence[Any]
) -> Iterator[tuple[str, pa.Array]]:
    counts = [None if s is None or not s.has_null_count else s.null_count for s in chunks]
    yield stat_name(NULL_COUNT, path), pa.array(counts, pa.int64())
    bounded = has_usable_bounds(f.data_type) and has_binary_order(f)
    reads = _reader(present) if bounded else None
    convert = caster(present, f.data_type)
    if reads is None or convert is None:
        return
    known = [s if s is not None and s.has_min_max else None for s in chunks]
    raws = {
        Side.LOWER: [None if s is None else s.min_raw for s in known],
        Side.UPPER: [None if s is None else s.max_raw for s in known],
    }
    try:
        bounds = {
            side: comparable(convert(reads(values)), f.data_type) for side, values in raws.items()
        }
    except (pa.ArrowException, ValueError, TypeError, ArithmeticError):
        return  # not of the column's type, so it proves nothing
    for side, array in bounds.items():
        yield stat_name(side.value, path), array


def _reader(present: pa.DataType) -> Callable[[list[Any]], pa.Array] | None:
    """The conversion of a column's raw bounds to an array of a type; None for unreliable ones."""
    if pa.types.is_signed_integer(present) or pa.types.is_floating(present):
        return lambda raws: pa.array(raws, present)
    if pa.types.is_string(present):
        return lambda raws: pa.array(raws, pa.binary()).cast(present)
    if pa.types.is_date32(present):
        return lambda raws: pa.array(raws, pa.int32()).view(present)
    if pa.types.is_timestamp(present):
        return lambda raws: pa.array(raws, pa.int64()).view(present)
    if pa.types.is_decimal(present):
        scale = present.scale
        return lambda raws: pa.array([_unscaled(raw, scale) for raw in raws], present)
    return None


def _unscaled(raw: int | bytes | None, scale: int) -> Decimal | None:
    if raw is None:
        return None
    unscaled = raw if isinstance(raw, int) else int.from_bytes(raw, "big", signed=True)
    return Decimal(unscaled).scaleb(-scale, _EXACT)
