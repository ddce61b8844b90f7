"""Orders rows along a curve, so that rows with similar values in some columns share a file.

A sample of the rows gives the bounds of ranges and files.  Each row's file is then computed in the
JVM, with code that Spark compiles, and one shuffle moves the row there.  The curves themselves are
in `kernel.ops.layout.curves`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import count

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_delta.kernel.ops.layout.curves import (
    KEY_BITS,
    NOISE_BITS,
    FileBounds,
    bits_per_column,
    can_be_hilbert,
    file_bounds,
    hilbert_keys,
    hilbert_table,
    range_bounds,
    range_numbers,
    z_keys,
    z_spread,
)
from pyspark_delta.kernel.protocol.types import (
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
)
from pyspark_delta.kernel.sql.quoting import quoted_name
from pyspark_delta.spark.jvm.expressions.lookups import looked_up, range_number
from pyspark_delta.spark.jvm.gateway import JvmSession

_WHOLE = frozenset({BOOLEAN, BYTE, SHORT, INTEGER, LONG})
_FRACTION = frozenset({FLOAT, DOUBLE})
_NUMBERS = _WHOLE | _FRACTION | {DATE, TIMESTAMP, TIMESTAMP_NTZ}
_KEY = "__delta_curve"
# Spark's sample size per partition for a sort.
_SAMPLED_PER_PART = 60
# A prefix of a text is enough for a bound.
_LONGEST_BOUND = 128
_NOISE = 1 << NOISE_BITS


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveColumn:
    """A column to order by: its path and type."""

    path: tuple[str, ...]
    data_type: DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """How rows are ordered: the columns, the number of ranges of each, and the curve.

    Without `can_be_noisy`, rows in the same range of all columns are in one file, however many they
    are.
    """

    columns: tuple[CurveColumn, ...]
    is_hilbert: bool
    num_ranges: int = 1000
    can_be_noisy: bool = True


def along_curve(
    jvm: JvmSession, rows: DataFrame, curve: Curve, *, num_files: int, num_rows: int
) -> DataFrame:
    """`rows` in one partition per file, each a section of the curve; a job reads a sample.

    `num_rows` is approximate.
    """
    if num_files < 2:
        return rows.coalesce(1)
    # More columns do not fit a key, and would hardly make a difference.
    columns = curve.columns[: KEY_BITS - NOISE_BITS]
    values = [_value(column) for column in columns]
    sample = _sample(rows, columns, max(curve.num_ranges, num_files), num_rows)
    if not sample.num_rows:
        return rows.coalesce(1)
    bits = bits_per_column(len(columns), curve.num_ranges)
    num_ranges = 1 << bits  # not fewer: the first bit divides the rows into halves
    is_hilbert = curve.is_hilbert and can_be_hilbert(len(columns))
    taken = [column.combine_chunks() for column in sample.columns]
    bounds = [_short(range_bounds(column, num_ranges)) for column in taken]
    numbers = [range_numbers(*pair) for pair in zip(taken, bounds, strict=True)]
    keys = (hilbert_keys if is_hilbert else z_keys)(numbers, bits)
    ends = file_bounds(keys, num_files, allow_noise=curve.can_be_noisy, noise=_noise())
    ranges = [
        range_number(jvm, value, each.to_pylist())
        for value, each in zip(values, bounds, strict=True)
    ]
    if is_hilbert:
        rows, key = _hilbert(jvm, rows, ranges, bits)
    else:
        key = _z_order(jvm, ranges, bits)
    part = _part(jvm, key, ends)
    names = [name for name in rows.columns if not name.startswith(_KEY)]
    moved = rows.repartitionById(num_files, part)
    return moved.select(*map(quoted_name, names)) if is_hilbert else moved


def _value(column: CurveColumn) -> Column:
    """The column as a long, a double or a text of the same order, or nearly so."""
    value = F.col(".".join(map(quoted_name, column.path)))
    kind = column.data_type
    if _is_text(kind):
        return value.cast("string")
    if kind in _WHOLE:
        return value.cast("bigint")
    if kind in _FRACTION or isinstance(kind, DecimalType):
        return value.cast("double")
    if kind == DATE:
        return F.unix_date(value).cast("bigint")
    # The repeated hour of a clock change is out of order, which only costs a little clustering.
    return F.unix_micros(value.cast("timestamp"))


def _is_text(kind: DataType) -> bool:
    """Whether values compare as text: texts, bytes, and all types without an order."""
    return kind not in _NUMBERS and not isinstance(kind, DecimalType)


def _sample(
    rows: DataFrame, columns: Sequence[CurveColumn], num_parts: int, num_rows: int
) -> pa.Table:
    sampled = []
    for place, column in enumerate(columns):
        value = _value(column)
        if _is_text(column.data_type):  # Arrow takes valid UTF-8 only
            value = F.make_valid_utf8(value)
        sampled.append(value.alias(f"c{place}"))
    share = _SAMPLED_PER_PART * num_parts / max(num_rows, 1)
    chosen = rows.select(*sampled)
    if share < 1:
        chosen = chosen.where(F.rand(seed=0) < share)
    return chosen.toArrow()


def _hilbert(
    jvm: JvmSession, rows: DataFrame, ranges: Sequence[Column], bits: int
) -> tuple[DataFrame, Column]:
    """The position on Hilbert's curve, and the rows with the columns that it is computed from.

    A projection for each bit: an expression that uses the previous step twice would double each
    time.
    """
    table = hilbert_table(len(ranges))
    places = [f"{_KEY}_{place}" for place in range(len(ranges))]
    step, key = f"{_KEY}_step", f"{_KEY}_key"
    start = {name: value.cast("bigint") for name, value in zip(places, ranges, strict=True)}
    rows = rows.withColumns({**start, step: F.lit(0).cast("bigint"), key: F.lit(0).cast("bigint")})
    for bit in reversed(range(bits)):
        shifted = F.shiftleft(F.shiftright(step, len(ranges)), len(ranges))
        bits_read = (
            F.shiftleft(F.shiftright(name, bit).bitwiseAND(F.lit(1)), place)
            for place, name in enumerate(reversed(places))
        )
        at = reduce(Column.bitwiseOR, bits_read, shifted)
        rows = rows.withColumn(step, looked_up(jvm, table.entries, at))
        given = F.col(step).bitwiseAND(F.lit(table.mask))
        rows = rows.withColumn(key, F.shiftleft(key, len(ranges)).bitwiseOR(given))
    return rows, F.col(key)


def _z_order(jvm: JvmSession, ranges: Sequence[Column], bits: int) -> Column:
    """The bits of all ranges interleaved, those of the first column highest."""
    spread = z_spread(len(ranges), bits)
    spaced = (
        F.shiftleft(looked_up(jvm, spread, number), place)
        for place, number in enumerate(reversed(ranges))
    )
    return reduce(Column.bitwiseOR, spaced)


def _part(jvm: JvmSession, key: Column, ends: FileBounds) -> Column:
    """The number of the file that a key belongs to."""
    if ends.has_noise:
        noise = F.floor(F.rand(seed=1) * _NOISE).cast("bigint")
        key = F.shiftleft(key, NOISE_BITS).bitwiseOR(noise)
    return range_number(jvm, key, ends.bounds.to_pylist())


def _noise() -> Iterator[int]:
    source = random.Random(1)
    return (source.randrange(_NOISE) for _ in count())


def _short(bounds: pa.Array) -> pa.Array:
    """Bounds shortened to about the length that still separates texts."""
    if not pa.types.is_string(bounds.type) and not pa.types.is_large_string(bounds.type):
        return bounds
    cut = {text[:_LONGEST_BOUND] for text in bounds.to_pylist()}
    return pa.array(sorted(cut), bounds.type)
