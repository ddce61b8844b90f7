"""Statistics for the log out of footers: each layout's columns matched with those of the table.

A column that a file lacks is all null in it.  Bounds are left out where the file's type is not
plainly the table's, and where readers may take the stored number for another day: dates before
the Gregorian calendar and timestamps before 1900 are rebased, or not, as the reader is configured.
PROTOCOL.md, "Per-file Statistics".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

from pyspark_delta.kernel.ops.parquet_footers import FileFooter, Layout, Leaf
from pyspark_delta.kernel.protocol.codec import RawJson, dumps
from pyspark_delta.kernel.protocol.datetimes import MICROS_PER_DAY, days_from_civil
from pyspark_delta.kernel.protocol.stats import DEFAULT_PREFIX_LENGTH, format_bound
from pyspark_delta.kernel.protocol.stats_columns import StatsColumn
from pyspark_delta.kernel.protocol.types import (
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
)

_EXACT = Context(prec=76)
# Text that is the same in JSON.
_PLAIN = re.compile(r"[ !#-\[\]-~]*")
_BITS = {BYTE: 8, SHORT: 16, INTEGER: 32, LONG: 64}
_FIRST_CERTAIN_DAY = days_from_civil(1582, 10, 15)
_FIRST_CERTAIN_MICROS = days_from_civil(1900, 1, 1) * MICROS_PER_DAY
_MICROS_PER_UNIT = {"microseconds": 1, "milliseconds": 1_000}

_Reading = Callable[[Any], Any]
"""From a bound of a footer to a value of the column; None when it is uncertain."""

_Writing = Callable[[Any], str | None]
"""From a bound of a footer to its JSON text; None when there is none that is certainly true."""


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a column's statistics are in a footer.

    `places` are its leaves: none when files of the layout lack the column.  A collection tells of
    nulls only when there is none below it, and the writer counts them there (`counts_nulls`).
    """

    column: StatsColumn
    places: tuple[int, ...]
    is_collection: bool = False
    counts_nulls: bool = True
    low: _Writing | None = None
    high: _Writing | None = None


class LayoutStats:
    """The statistics of files of one layout in a table with these columns."""

    def __init__(
        self,
        layout: Layout,
        columns: Sequence[StatsColumn],
        *,
        tight_bounds: bool | None = None,
        prefix_length: int = DEFAULT_PREFIX_LENGTH,
    ) -> None:
        self._sources = tuple(_sources(layout, columns, prefix_length))
        paths = [source.column.physical_path for source in self._sources]
        self._nulls = _tree(list(enumerate(paths)))
        self._bounds = _tree(
            [(at, paths[at]) for at, s in enumerate(self._sources) if s.column.has_bounds]
        )
        marks = {None: "", True: ',"tightBounds":true', False: ',"tightBounds":false'}
        self._end = marks[tight_bounds] + "}"

    @property
    def collections(self) -> list[tuple[int, int]]:
        """The columns that are arrays or maps, as `level_histograms.null_counts` takes them."""
        return [
            (source.places[0], len(source.column.physical_path))
            for source in self._sources
            if source.is_collection
        ]

    def text(self, footer: FileFooter, collection_nulls: Sequence[int | None] = ()) -> str:
        """What `add.stats` says of a file: what `format_stats` would, at a fraction of the time.

        `collection_nulls` are the nulls of `collections`, where somebody has counted them.
        """
        counted = iter(collection_nulls)
        lows: list[str | None] = []
        highs: list[str | None] = []
        nulls: list[str | None] = []
        for source in self._sources:
            low, high, count = _column_texts(source, footer)
            known = next(counted, None) if source.is_collection else None
            lows.append(low)
            highs.append(high)
            nulls.append(count if known is None else str(known))
        text = f'{{"numRecords":{footer.num_records}'
        if self._bounds:
            low, high = _joined(self._bounds, lows), _joined(self._bounds, highs)
            text += f',"minValues":{{{low}}},"maxValues":{{{high}}}'
        if self._nulls:
            text += f',"nullCount":{{{_joined(self._nulls, nulls)}}}'
        return text + self._end


_Tree = list[tuple[str, Any]]
"""Keys of a JSON object as text; each with the number of a column, or the tree below it."""


def _tree(numbered: list[tuple[int, tuple[str, ...]]]) -> _Tree:
    below: dict[str, list[tuple[int, tuple[str, ...]]]] = {}
    for number, path in numbered:
        below.setdefault(path[0], []).append((number, path[1:]))
    return [
        (f"{dumps(name)}:", _tree(inner) if inner[0][1] else inner[0][0])
        for name, inner in below.items()
    ]


def _joined(tree: _Tree, texts: list[str | None]) -> str:
    parts = []
    for key, item in tree:
        if isinstance(item, int):
            text = texts[item]
            if text is not None:
                parts.append(key + text)
        else:
            parts.append(f"{key}{{{_joined(item, texts)}}}")
    return ",".join(parts)


def _column_texts(source: _Source, footer: FileFooter) -> tuple[str | None, str | None, str | None]:
    """Minimum, maximum and null count as JSON."""
    if not source.places:
        return None, None, str(footer.num_records)
    if footer.bounds is None:
        return None, None, None
    if source.is_collection:
        # Footers count nulls of the leaves below, among them those of empty collections: only
        # that there is none of them says something about the column.
        counts = {footer.bounds[place][2] for place in source.places}
        return None, None, "0" if source.counts_nulls and counts == {0} else None
    least, greatest, nulls = footer.bounds[source.places[0]]
    return (
        None if least is None or source.low is None else source.low(least),
        None if greatest is None or source.high is None else source.high(greatest),
        None if nulls is None or not 0 <= nulls <= footer.num_records else str(nulls),
    )


def _sources(
    layout: Layout, columns: Sequence[StatsColumn], prefix_length: int
) -> Iterator[_Source]:
    """The columns of which files of the layout say something."""
    if layout.leaves is None:
        return
    by_path: dict[tuple[str, ...], list[int]] = {}
    inner: set[tuple[str, ...]] = set()
    for place, leaf in enumerate(layout.leaves):
        path = tuple(name.lower() for name in leaf.path)
        by_path.setdefault(path, []).append(place)
        inner.update(path[:depth] for depth in range(1, len(path)))
    for column in columns:
        path = tuple(name.lower() for name in column.physical_path)
        places = by_path.get(path)
        if places is None:
            above = (path[:depth] for depth in range(1, len(path)))
            if path not in inner and not any(prefix in by_path for prefix in above):
                yield _Source(column, ())
            continue
        leaf = layout.leaves[places[0]]
        if leaf.is_repeated:
            counts = layout.counts_nulls_in_collections
            yield _Source(column, tuple(places), is_collection=True, counts_nulls=counts)
        elif len(places) == 1:
            low, high = _writings(leaf, column.data_type, prefix_length)
            yield _Source(column, tuple(places), low=low, high=high)


def _writings(
    leaf: Leaf, data_type: DataType, prefix_length: int
) -> tuple[_Writing | None, _Writing | None]:
    """How the bounds of a leaf are written as values of the table's type."""
    if data_type == STRING:
        if leaf.kind != "text":
            return None, None
        readings: tuple[_Reading, _Reading] = (_text_below, _text)
    else:
        reading = _number_reading(leaf, data_type)
        if reading is None:
            return None, None
        readings = (reading, reading)
    return (
        _writing(readings[0], data_type, False, prefix_length),
        _writing(readings[1], data_type, True, prefix_length),
    )


def _writing(reading: _Reading, data_type: DataType, is_max: bool, prefix_length: int) -> _Writing:
    is_text = data_type == STRING

    def written(raw: Any) -> str | None:
        value = reading(raw)
        if value is None:
            return None
        if is_text and len(value) <= prefix_length and _PLAIN.fullmatch(value):
            return f'"{value}"'
        bound = format_bound(value, data_type, is_max=is_max, prefix_length=prefix_length)
        if bound is None or isinstance(bound, RawJson):
            return bound
        return dumps(bound)

    def number(raw: Any) -> str | None:
        value = reading(raw)
        return None if value is None else str(value)

    return number if data_type in _BITS else written


def _number_reading(leaf: Leaf, data_type: DataType) -> _Reading | None:
    logical = json.loads(leaf.logical)
    name = logical.get("Type", "None")
    if isinstance(data_type, DecimalType):
        return _decimal_reading(leaf, logical, data_type)
    if data_type in _BITS:
        nanos_as_long = data_type == LONG and logical.get("timeUnit") == "nanoseconds"
        if leaf.kind in ("integer", "unsigned") and (name in ("None", "Int") or nanos_as_long):
            limit = 1 << (_BITS[data_type] - 1)
            return lambda raw: raw if -limit <= raw < limit else None
    elif data_type in (FLOAT, DOUBLE):
        if leaf.physical == ("FLOAT" if data_type == FLOAT else "DOUBLE"):
            return _same
    elif data_type == DATE:
        if leaf.physical == "INT32" and name == "Date":
            return lambda raw: raw if raw >= _FIRST_CERTAIN_DAY else None
    elif data_type in (TIMESTAMP, TIMESTAMP_NTZ):
        return _timestamp_reading(leaf, logical, is_utc=data_type == TIMESTAMP)
    return None


def _decimal_reading(
    leaf: Leaf, logical: Mapping[str, Any], data_type: DecimalType
) -> _Reading | None:
    scale = data_type.scale
    if leaf.kind in ("integer", "decimal") and logical.get("Type") == "Decimal":
        if logical.get("scale") != scale:
            return None
        return lambda raw: Decimal(raw).scaleb(-scale, _EXACT)
    # An unsigned number of 64 bits is a decimal to Spark.
    return Decimal if leaf.kind == "unsigned" and scale == 0 else None


def _timestamp_reading(leaf: Leaf, logical: Mapping[str, Any], *, is_utc: bool) -> _Reading | None:
    if leaf.kind == "int96":
        factor = 1 if is_utc else None
    elif leaf.physical == "INT64" and logical.get("isAdjustedToUTC") is is_utc:
        factor = _MICROS_PER_UNIT.get(logical.get("timeUnit", ""))
    else:
        factor = None
    if factor is None:
        return None
    known = factor
    if not is_utc:
        return lambda raw: raw * known
    return lambda raw: raw * known if raw * known >= _FIRST_CERTAIN_MICROS else None


def _same(raw: Any) -> Any:
    return raw


def _text(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _text_below(raw: bytes) -> str | None:
    """The text, or what of it is text: a writer may have cut it inside of a character."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        return raw[: error.start].decode() or None
