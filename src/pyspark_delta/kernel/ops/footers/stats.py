"""Make a file's statistics for the log from its footer, and collect those of a table again.

Columns are matched once per layout.  A column that a file lacks is all null in it.  Bounds are left
out where the file's type is not plainly the table's, and where readers may take the stored number
for another day: dates before the Gregorian calendar and timestamps before 1900 are rebased, or
not, as the reader is configured.

Statistics are collected again for files without them, and for tables whose statistics columns
changed.  Files are committed again unchanged; beside a deletion vector the bounds are those of all
rows, deleted ones included.
PROTOCOL.md, "Per-file Statistics".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_delta.errors import DataFileError
from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.ops.footers.level_histograms import null_counts
from pyspark_delta.kernel.ops.footers.parquet import (
    FileFooter,
    FooterBlock,
    ParquetLayout,
    ParquetLeaf,
    StatsRequest,
    read_footer_block,
)
from pyspark_delta.kernel.protocol import types
from pyspark_delta.kernel.protocol.actions import AddFile
from pyspark_delta.kernel.protocol.codec import RawJson, dumps
from pyspark_delta.kernel.protocol.datetimes import MICROS_PER_DAY, days_from_civil
from pyspark_delta.kernel.protocol.features import is_supported
from pyspark_delta.kernel.protocol.operations import operation
from pyspark_delta.kernel.protocol.stats import (
    DEFAULT_PREFIX_LENGTH,
    format_bound,
    string_prefix_length,
    table_stats_columns,
)
from pyspark_delta.kernel.protocol.stats_columns import StatsColumn
from pyspark_delta.kernel.protocol.types import DataType, DecimalType
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction

_FILES_AT_ONCE = 64
_THREADS = 16
_EXACT = Context(prec=76)
# Text that is the same in JSON.
_PLAIN = re.compile(r"[ !#-\[\]-~]*")
_BITS = {types.BYTE: 8, types.SHORT: 16, types.INTEGER: 32, types.LONG: 64}
_FIRST_CERTAIN_DAY = days_from_civil(1582, 10, 15)
_FIRST_CERTAIN_MICROS = days_from_civil(1900, 1, 1) * MICROS_PER_DAY
_MICROS_PER_UNIT = {"microseconds": 1, "milliseconds": 1_000}

_Reading = Callable[[Any], Any]
"""From a bound of a footer to a value of the column; None when it is uncertain."""

_Writing = Callable[[Any], str | None]
"""From a bound of a footer to its JSON text; None when none is certainly correct."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """The place of a column's statistics in a footer.

    `places` are its leaves: none when files of the layout lack the column.  The nulls of a
    collection are known only when there are none below it and the writer counts them
    (`counts_nulls`).
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
        layout: ParquetLayout,
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
        """The text of `add.stats`, as `format_stats` writes it, at a fraction of the time.

        `collection_nulls` are the null counts of `collections`, where they are known.
        """
        counted = iter(collection_nulls)
        texts = [_column_texts(source, footer) for source in self._sources]
        nulls: list[str | None] = []
        for source, (_, _, count) in zip(self._sources, texts, strict=True):
            known = next(counted, None) if source.is_collection else None
            nulls.append(count if known is None else str(known))
        text = f'{{"numRecords":{footer.num_records}'
        if self._bounds:
            low, high = (_joined(self._bounds, [each[at] for each in texts]) for at in (0, 1))
            text += f',"minValues":{{{low}}},"maxValues":{{{high}}}'
        if self._nulls:
            text += f',"nullCount":{{{_joined(self._nulls, nulls)}}}'
        return text + self._end


def run_compute_stats(log: DeltaLog, locations: Locations | None = None) -> int | None:
    """Collect the statistics of every file; returns the new version, None if nothing changed."""
    txn = log.start_transaction()
    files = list(add_files(txn.filter_files()))
    collected = _with_new_stats(txn, files, locations or Locations(log.store))
    changed = [
        replace(new, data_change=False)
        for old, new in zip(files, collected, strict=True)
        if old.stats != new.stats
    ]
    recorded = operation("COMPUTE STATS", predicate=["true"])
    return txn.commit(changed, recorded).version if changed else None


def _with_new_stats(
    txn: OptimisticTransaction, files: Sequence[AddFile], locations: Locations
) -> Iterator[AddFile]:
    """The files, in their order, with statistics from their footers."""
    blocks = [files[at : at + _FILES_AT_ONCE] for at in range(0, len(files), _FILES_AT_ONCE)]
    with ThreadPoolExecutor(_THREADS) as pool:
        footers = pool.map(lambda block: _footers(block, locations), blocks)
        for block, (read, tails) in zip(blocks, footers, strict=True):
            yield from _with_stats(txn, block, read, tails)


def _footers(files: Sequence[AddFile], locations: Locations) -> tuple[FooterBlock, list[bytes]]:
    tails: dict[str, bytes] = {}

    def read_tail(path: str, start: int, length: int) -> bytes:
        store, name = locations.open(path)
        tails[path] = store.read_range(name, start, length)
        return tails[path]

    block = read_footer_block([(file.path, file.size) for file in files], read_tail, StatsRequest())
    return block, [tails.get(file.path, b"") for file in files]


def _with_stats(
    txn: OptimisticTransaction, files: Sequence[AddFile], block: FooterBlock, tails: list[bytes]
) -> Iterator[AddFile]:
    columns = table_stats_columns(txn.metadata, mapping_mode(txn.metadata))
    has_vectors = is_supported(txn.protocol, "deletionVectors")
    known: dict[tuple[int, bool | None], LayoutStats] = {}
    for file, footer, tail in zip(files, block.files, tails, strict=True):
        if footer.problem is not None:
            raise DataFileError("DELTA_FAILED_READ_FILE_FOOTER", currentFile=file.path)
        tight = (file.deletion_vector is None) if has_vectors else None
        key = (footer.layout, tight)
        if key not in known:
            known[key] = LayoutStats(
                block.layouts[footer.layout],
                columns,
                tight_bounds=tight,
                prefix_length=string_prefix_length(txn.metadata),
            )
        nulls: Sequence[int | None] = ()
        if leaves := known[key].collections:
            end = pa.BufferReader(tail)
            nulls = null_counts(end, pq.read_metadata(end), leaves)
        yield replace(file, stats=known[key].text(footer, nulls))


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
    if not source.places:
        return None, None, str(footer.num_records)
    if footer.bounds is None:
        return None, None, None
    if source.is_collection:
        # Footers count nulls of the leaves below, among them those of empty collections: only a
        # count of zero proves something about the column.
        counts = {footer.bounds[place][2] for place in source.places}
        return None, None, "0" if source.counts_nulls and counts == {0} else None
    least, greatest, nulls = footer.bounds[source.places[0]]
    return (
        None if least is None or source.low is None else source.low(least),
        None if greatest is None or source.high is None else source.high(greatest),
        None if nulls is None or not 0 <= nulls <= footer.num_records else str(nulls),
    )


def _sources(
    layout: ParquetLayout, columns: Sequence[StatsColumn], prefix_length: int
) -> Iterator[_Source]:
    """The columns for which files of the layout have statistics."""
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
                yield _Source(column=column, places=())
            continue
        leaf = layout.leaves[places[0]]
        if leaf.is_repeated:
            counts = layout.counts_nulls_in_collections
            yield _Source(
                column=column, places=tuple(places), is_collection=True, counts_nulls=counts
            )
        elif len(places) == 1:
            low, high = _writings(leaf, column.data_type, prefix_length)
            yield _Source(column=column, places=tuple(places), low=low, high=high)


def _writings(
    leaf: ParquetLeaf, data_type: DataType, prefix_length: int
) -> tuple[_Writing | None, _Writing | None]:
    """The conversion of a leaf's bounds to values of the table's type; None for no bounds."""
    low: _Reading | None
    high: _Reading | None
    if data_type == types.STRING:
        low, high = (_text_below, _text) if leaf.kind == "text" else (None, None)
    else:
        low = high = _number_reading(leaf, data_type)
    if low is None or high is None:
        return None, None
    return (
        _writing(low, data_type, False, prefix_length),
        _writing(high, data_type, True, prefix_length),
    )


def _writing(reading: _Reading, data_type: DataType, is_max: bool, prefix_length: int) -> _Writing:
    is_text = data_type == types.STRING

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


def _number_reading(leaf: ParquetLeaf, data_type: DataType) -> _Reading | None:
    logical = json.loads(leaf.logical)
    name = logical.get("Type", "None")
    if isinstance(data_type, DecimalType):
        return _decimal_reading(leaf, logical, data_type)
    if data_type in _BITS:
        nanos_as_long = data_type == types.LONG and logical.get("timeUnit") == "nanoseconds"
        if leaf.kind in ("integer", "unsigned") and (name in ("None", "Int") or nanos_as_long):
            limit = 1 << (_BITS[data_type] - 1)
            return lambda raw: raw if -limit <= raw < limit else None
    elif data_type in (types.FLOAT, types.DOUBLE):
        if leaf.physical == ("FLOAT" if data_type == types.FLOAT else "DOUBLE"):
            return lambda raw: raw
    elif data_type == types.DATE:
        if leaf.physical == "INT32" and name == "Date":
            return lambda raw: raw if raw >= _FIRST_CERTAIN_DAY else None
    elif data_type in (types.TIMESTAMP, types.TIMESTAMP_NTZ):
        return _timestamp_reading(leaf, logical, is_utc=data_type == types.TIMESTAMP)
    return None


def _decimal_reading(
    leaf: ParquetLeaf, logical: Mapping[str, Any], data_type: DecimalType
) -> _Reading | None:
    scale = data_type.scale
    if leaf.kind in ("integer", "decimal") and logical.get("Type") == "Decimal":
        if logical.get("scale") != scale:
            return None
        return lambda raw: Decimal(raw).scaleb(-scale, _EXACT)
    # An unsigned number of 64 bits is a decimal to Spark.
    return Decimal if leaf.kind == "unsigned" and scale == 0 else None


def _timestamp_reading(
    leaf: ParquetLeaf, logical: Mapping[str, Any], *, is_utc: bool
) -> _Reading | None:
    factor = 0
    if leaf.kind == "int96":
        factor = int(is_utc)
    elif leaf.physical == "INT64" and logical.get("isAdjustedToUTC") is is_utc:
        factor = _MICROS_PER_UNIT.get(logical.get("timeUnit", ""), 0)
    if not factor:
        return None
    if not is_utc:
        return lambda raw: raw * factor
    return lambda raw: raw * factor if raw * factor >= _FIRST_CERTAIN_MICROS else None


def _text(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _text_below(raw: bytes) -> str | None:
    """The text up to the last whole character: a writer may have cut it inside of one."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        return raw[: error.start].decode() or None
