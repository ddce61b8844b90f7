"""Statistics of newly written files, from their Parquet footers, and which of them are recorded.

Spark's Parquet writer keeps minimum, maximum and null count of every column and row group anyway;
reading them back costs milliseconds where a second pass over the rows costs seconds.  Only for
files of our own: the footer of another writer proves nothing.  `kernel.protocol.stats` has the
form for the log.

The high-water marks of identity columns come from statistics too.  PROTOCOL.md, "Identity Columns".
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from typing import Any, TypeVar

import pyarrow.parquet as pq

from pyspark_delta.errors import InvalidActionsError
from pyspark_delta.kernel.ops.footers.level_histograms import null_counts
from pyspark_delta.kernel.protocol.actions import Action, AddFile, Metadata
from pyspark_delta.kernel.protocol.column_mapping import PHYSICAL_NAME_KEY, physical_name
from pyspark_delta.kernel.protocol.features import is_supported
from pyspark_delta.kernel.protocol.iceberg_compat import enabled_version
from pyspark_delta.kernel.protocol.identity_columns import (
    identity_columns,
    identity_info,
    with_high_water_marks,
)
from pyspark_delta.kernel.protocol.properties import ENABLE_ROW_TRACKING, property_value
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.stats import ColumnStats, with_num_records
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
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.conf.setting_table import STATS_COLLECT
from pyspark_delta.spark.conf.settings import Conf

_THREADS = 8
_EXACT_DECIMALS = Context(prec=76)
_FileAction = TypeVar("_FileAction", Action, AddFile)


@dataclass(frozen=True, slots=True, kw_only=True)
class FooterStats:
    """The number of rows in a file, and statistics of its columns, from its footer."""

    num_records: int
    columns: tuple[ColumnStats, ...]


def footer_stats(
    store: LogStore, paths: Sequence[str], columns: Sequence[StatsColumn], written: StructType
) -> list[FooterStats]:
    """Statistics of `columns` for each of the files, in their order.

    `paths` are decoded and relative; `written` is the schema of the files, under physical names
    and in the order of their columns.
    """
    leaves_of: dict[tuple[str, ...], list[int]] = {}
    for place, leaf in enumerate(_leaf_columns(written, ())):
        leaves_of.setdefault(leaf, []).append(place)
    total = sum(map(len, leaves_of.values()))
    wanted = [(c, leaves_of[c.physical_path]) for c in columns if c.physical_path in leaves_of]

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


def with_recorded_stats(
    actions: Iterable[_FileAction], txn: OptimisticTransaction, conf: Conf
) -> list[_FileAction]:
    """`actions` for the commit: new files without statistics where the session wants none.

    For the last moment before the commit, because commands count rows and move identity columns by
    the statistics of the files that they have written.  Statistics that the protocol needs stay.
    """
    found = list(actions)
    if not any(map(_adds_new_file, found)) or STATS_COLLECT.by(conf):
        return found
    keeps_count = _needs_counts(txn)

    def recorded(action: _FileAction) -> _FileAction:
        if not isinstance(action, AddFile) or not _adds_new_file(action):
            return action
        count = action.num_records if keeps_count else None
        return replace(action, stats=None if count is None else with_num_records(None, count))

    return list(map(recorded, found))


def moved_identity(
    metadata: Metadata, adds: Sequence[AddFile], *, given: Iterable[str] = ()
) -> Metadata | None:
    """The metadata with marks of identity columns moved to the numbers in `adds`; None if none is.

    `given` are the columns that the data had itself: a user's own numbers move no mark.
    """
    in_data = {name.lower() for name in given}
    mode = mapping_mode(metadata)
    reached = {}
    for f in identity_columns(metadata.schema):
        if f.name.lower() in in_data:
            continue
        furthest = max if identity_info(f).step > 0 else min
        physical = physical_name(f, mode)
        numbers = [number for file in adds for number in _identity_bounds(file, physical, f.name)]
        if numbers:
            reached[str(f.metadata.get(PHYSICAL_NAME_KEY, f.name))] = furthest(numbers)
    schema = with_high_water_marks(metadata.schema, reached)
    if schema == metadata.schema:
        return None
    return replace(metadata, schema_string=format_schema(schema))


def _column_stats(
    footer: Any, column: StatsColumn, places: Sequence[int], null_count: int | None
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
        # A VARIANT value always has metadata, whatever its other parts are.
        return sum(min(int(each.null_count) for each in group) for group in groups)
    total = sum(count for count in counts if count is not None)
    if isinstance(data_type, ArrayType | MapType):
        # The count includes null elements and empty collections, so only zero is exact.
        return 0 if total == 0 else None
    return total


def _bounds(statistics: Sequence[Any], data_type: DataType) -> tuple[Any, Any]:
    """Least and greatest over all row groups; None where one of them has no bounds."""
    known = [s for s in statistics if s is None or s.num_values != 0]  # 0: only nulls
    if not known or any(s is None or not s.has_min_max for s in known):
        return None, None
    if known[0].physical_type == "INT96":
        return None, None  # readers do not agree on the byte order of this type
    lows = [s.min_raw for s in known]
    highs = [s.max_raw for s in known]
    if data_type == STRING:
        # Compared as bytes, which is Unicode's order too, and also orders bytes that are no text:
        # these become lone surrogates, and `format_stats` leaves such a bound out.
        low, high = (raw.decode("utf-8", "surrogateescape") for raw in (min(lows), max(highs)))
        return low, high
    if isinstance(data_type, DecimalType):
        scale = data_type.scale
        return min(_decimal(raw, scale) for raw in lows), max(_decimal(raw, scale) for raw in highs)
    if data_type in (FLOAT, DOUBLE):
        # Spark's writer orders NaN above all numbers, so it is either the maximum or leaves none;
        # it is the minimum if there is no other value.
        low = None if any(map(math.isnan, lows)) else min(lows)
        high = None if any(map(math.isnan, highs)) else max(highs)
        return low, high
    is_millis = data_type == TIMESTAMP and "milliseconds" in str(known[0].logical_type)
    factor = 1000 if is_millis else 1  # in microseconds
    return min(lows) * factor, max(highs) * factor


def _decimal(raw: int | bytes, scale: int) -> Decimal:
    unscaled = raw if isinstance(raw, int) else int.from_bytes(raw, "big", signed=True)
    return Decimal(unscaled).scaleb(-scale, _EXACT_DECIMALS)


def _leaf_columns(data_type: DataType, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """For each Parquet column of a value of the type: the path to the value, through structs."""
    match data_type:
        case StructType():
            for f in data_type:
                yield from _leaf_columns(f.data_type, (*path, f.name))
        case ArrayType(element_type=element):
            yield from (path for _ in _leaf_columns(element, path))
        case MapType(key_type=key, value_type=value):
            yield from (path for inner in (key, value) for _ in _leaf_columns(inner, path))
        case _:
            yield from [path] * (2 if data_type == VARIANT else 1)


def _adds_new_file(action: Action) -> bool:
    """Whether it adds a new file; one with a deletion vector existed before."""
    return isinstance(action, AddFile) and action.deletion_vector is None


def _needs_counts(txn: OptimisticTransaction) -> bool:
    """Whether row counts must be recorded: row ids are assigned by them, and Iceberg needs them."""
    protocol, metadata = txn.protocol, txn.metadata
    return (
        is_supported(protocol, "rowTracking")
        or bool(property_value(metadata.configuration, ENABLE_ROW_TRACKING))
        or enabled_version(metadata) is not None
    )


def _identity_bounds(file: AddFile, physical: str, name: str) -> Iterator[int]:
    """The minimum and maximum number in a file; none for a file without rows or with only nulls."""
    stats: dict[str, Any] = json.loads(file.stats) if file.stats else {}
    rows = stats.get("numRecords")
    if rows == 0 or (rows is not None and stats.get("nullCount", {}).get(physical) == rows):
        return
    for kind in ("minValues", "maxValues"):
        number = stats.get(kind, {}).get(physical)
        if not isinstance(number, int):
            raise InvalidActionsError("DELTA_IDENTITY_COLUMN_WITHOUT_STATISTICS", colName=name)
        yield number
