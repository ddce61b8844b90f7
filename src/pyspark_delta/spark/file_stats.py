"""Statistics of files just written, from their Parquet footers.

Spark's Parquet writer keeps minimum, maximum and null count of every column and row group anyway;
reading them back costs milliseconds where a second pass over the rows costs seconds.  Only for
files of our own: a stranger's footer proves nothing.  What goes into the log is `protocol.stats`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import pyarrow.parquet as pq

from pyspark_delta.kernel.ops.level_histograms import null_counts
from pyspark_delta.kernel.protocol.stats import ColumnStats
from pyspark_delta.kernel.protocol.stats_columns import StatsColumn
from pyspark_delta.kernel.protocol.types import (
    DOUBLE,
    FLOAT,
    STRING,
    TIMESTAMP,
    VARIANT,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructType,
)
from pyspark_delta.kernel.storage.base import LogStore

_THREADS = 8
_EXACT = Context(prec=76)


@dataclass(frozen=True, slots=True, kw_only=True)
class FooterStats:
    """What a file's footer says: its rows, and what is known of its columns."""

    num_records: int
    columns: tuple[ColumnStats, ...]


def footer_stats(
    store: LogStore,
    paths: Sequence[str],
    columns: Sequence[StatsColumn],
    written: StructType,
) -> list[FooterStats]:
    """Statistics of `columns` for each of the files, in their order.

    `paths` are decoded and relative; `written` is the schema of the files, under physical names
    and in the order of their columns.
    """
    wanted = [(column, places) for column, places in _places(columns, written)]
    total = sum(_leaf_count(f.data_type) for f in written)

    # Most tables have no such column, and their footers are read once.
    collections = [each for each in wanted if isinstance(each[0].data_type, ArrayType | MapType)]
    leaves = [(places[0], len(column.physical_path)) for column, places in collections]

    def read(path: str) -> FooterStats:
        with store.arrow_file(path) as file:
            footer = pq.read_metadata(file)
            # A name with a dot cannot be looked up in a footer, so columns are found by place.
            known = wanted if footer.num_columns == total else []
            nulls = null_counts(file, footer, leaves) if leaves and known else []
        counted = dict(zip((column.path for column, _ in collections), nulls, strict=False))
        return FooterStats(
            num_records=footer.num_rows,
            columns=tuple(
                _column_stats(footer, column, places, counted.get(column.path))
                for column, places in known
            ),
        )

    if len(paths) < 2:
        return [read(path) for path in paths]
    with ThreadPoolExecutor(min(_THREADS, len(paths))) as pool:
        return list(pool.map(read, paths))


def _column_stats(
    footer: Any, column: StatsColumn, places: range, null_count: int | None
) -> ColumnStats:
    groups = [
        [footer.row_group(group).column(place).statistics for place in places]
        for group in range(footer.num_row_groups)
        if footer.row_group(group).num_rows
    ]
    minimum = maximum = None
    if column.has_bounds:
        minimum, maximum = _bounds([group[0] for group in groups], column.data_type)
    return ColumnStats(
        path=column.physical_path,
        data_type=column.data_type,
        minimum=minimum,
        maximum=maximum,
        null_count=_null_count(groups, column.data_type) if null_count is None else null_count,
    )


def _null_count(groups: Sequence[Sequence[Any]], data_type: DataType) -> int | None:
    counts: list[int | None] = [
        None if s is None or not s.has_null_count else s.null_count for g in groups for s in g
    ]
    if any(count is None for count in counts):
        return None
    if data_type == VARIANT:
        # A value of it has metadata always, whatever else it is made of.
        return sum(min(int(each.null_count) for each in group) for group in groups)
    total = sum(count for count in counts if count is not None)
    if isinstance(data_type, ArrayType | MapType):
        # This counts null elements and empty collections too: only that there is none of them
        # says something about the column.
        return 0 if total == 0 else None
    return total


def _bounds(statistics: Sequence[Any], data_type: DataType) -> tuple[Any, Any]:
    """Least and greatest over all row groups; None where one of them does not say."""
    known = [s for s in statistics if not _is_all_null(s)]
    if not known or any(s is None or not s.has_min_max for s in known):
        return None, None
    if known[0].physical_type == "INT96":
        return None, None  # readers do not agree on the order of its bytes
    lows = [s.min_raw for s in known]
    highs = [s.max_raw for s in known]
    if data_type == STRING:
        # Compared as bytes, which is Unicode's order too and has a place for what is no text.
        return _text(min(lows)), _text(max(highs))
    if isinstance(data_type, DecimalType):
        scale = data_type.scale
        return (
            min(_decimal(raw, scale) for raw in lows),
            max(_decimal(raw, scale) for raw in highs),
        )
    if data_type in (FLOAT, DOUBLE):
        # To Spark's writer NaN is above all numbers, so it either is the maximum or leaves none;
        # the minimum is NaN when there is nothing else.
        low = None if any(map(math.isnan, lows)) else min(lows)
        high = None if any(map(math.isnan, highs)) else max(highs)
        return low, high
    factor = _micros(known[0]) if data_type == TIMESTAMP else 1
    return min(lows) * factor, max(highs) * factor


def _micros(statistics: Any) -> int:
    """How many microseconds a file counts in."""
    return 1000 if "milliseconds" in str(statistics.logical_type) else 1


def _is_all_null(statistics: Any) -> bool:
    return statistics is not None and statistics.num_values == 0


def _text(raw: bytes) -> str:
    # What is no text becomes a lone surrogate, and `format_stats` leaves such a bound out.
    return raw.decode("utf-8", "surrogateescape")


def _decimal(raw: int | bytes, scale: int) -> Decimal:
    unscaled = raw if isinstance(raw, int) else int.from_bytes(raw, "big", signed=True)
    return Decimal(unscaled).scaleb(-scale, _EXACT)


def _places(
    columns: Iterable[StatsColumn], written: StructType
) -> Iterator[tuple[StatsColumn, range]]:
    """Each column that is in the files, with the places of its leaves."""
    places: Mapping[tuple[str, ...], range] = dict(_leaf_places(written, (), 0))
    for column in columns:
        if column.physical_path in places:
            yield column, places[column.physical_path]


def _leaf_places(
    struct: StructType, path: tuple[str, ...], start: int
) -> Iterator[tuple[tuple[str, ...], range]]:
    for f in struct:
        here = (*path, f.name)
        count = _leaf_count(f.data_type)
        if isinstance(f.data_type, StructType):
            yield from _leaf_places(f.data_type, here, start)
        else:
            yield here, range(start, start + count)
        start += count


def _leaf_count(data_type: DataType) -> int:
    """How many columns of a Parquet file hold a value of the type."""
    match data_type:
        case StructType(fields=fields):
            return sum(_leaf_count(f.data_type) for f in fields)
        case ArrayType(element_type=element):
            return _leaf_count(element)
        case MapType(key_type=key, value_type=value):
            return _leaf_count(key) + _leaf_count(value)
        case _:
            return 2 if data_type == VARIANT else 1
