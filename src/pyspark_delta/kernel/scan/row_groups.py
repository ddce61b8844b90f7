"""Which row groups of a Parquet file may hold a row that a predicate selects.

A footer keeps counts and bounds for every row group; they are judged as the statistics of files
are, by `skipping`.  What a footer does not say, or says in a form that is not certain, speaks for
reading.  Deleted rows are in the bounds too, which makes them wide and never wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_delta.kernel.protocol.column_mapping import ColumnMappingMode
from pyspark_delta.kernel.protocol.types import (
    StructField,
    is_atomic,
)
from pyspark_delta.kernel.scan.arrow_casts import caster
from pyspark_delta.kernel.scan.arrow_values import comparable
from pyspark_delta.kernel.scan.binding import BoundPredicate, has_binary_order
from pyspark_delta.kernel.scan.predicates import Path, columns_of
from pyspark_delta.kernel.scan.projection import find_leaf
from pyspark_delta.kernel.scan.skipping import skipping_mask
from pyspark_delta.kernel.scan.stats_bounds import Side, has_bounds
from pyspark_delta.kernel.scan.stats_columns import NULL_COUNT, NUM_RECORDS, stat_name

_EXACT = Context(prec=76)


def row_groups_to_read(
    file: pq.ParquetFile,
    predicate: BoundPredicate,
    mode: ColumnMappingMode = ColumnMappingMode.NONE,
) -> list[bool]:
    """For each row group, whether it must be read.

    Columns of the predicate that are not in the file, partition columns among them, are not
    judged.
    """
    schema, footer = predicate.schema, file.metadata
    groups = [footer.row_group(place) for place in range(footer.num_row_groups)]
    stats: dict[str, pa.Array] = {
        NUM_RECORDS: pa.array([group.num_rows for group in groups], pa.int64())
    }
    for path in columns_of(predicate.predicate):
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
    path: Path, f: StructField, present: pa.DataType, chunks: Sequence[Any]
) -> Iterator[tuple[str, pa.Array]]:
    counts = [None if s is None or not s.has_null_count else s.null_count for s in chunks]
    yield stat_name(NULL_COUNT, path), pa.array(counts, pa.int64())
    bounded = has_bounds(f.data_type) and has_binary_order(f)
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
        return  # not what the column's type says, so it proves nothing
    for side, array in bounds.items():
        yield stat_name(side.value, path), array


def _reader(present: pa.DataType) -> Callable[[list[Any]], pa.Array] | None:
    """What makes an array of a type of the raw bounds of a column; None where they mean little."""
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
        return lambda raws: pa.array([_decimal(raw, scale) for raw in raws], present)
    return None


def _decimal(raw: int | bytes | None, scale: int) -> Decimal | None:
    if raw is None:
        return None
    unscaled = raw if isinstance(raw, int) else int.from_bytes(raw, "big", signed=True)
    return Decimal(unscaled).scaleb(-scale, _EXACT)
