"""File statistics as columns: counts and bounds of the leaves that a predicate needs.

Statistics come as JSON text, or as the struct of checkpoints.  Both give a table with one row per
file and, for each leaf, its null count and bounds of its values.  Unknown or unreadable values are
null.  `files` evaluates predicates on it.  PROTOCOL.md, "Per-file Statistics".

>>> leaf = StatsLeaf(path=("n",), physical_path=("n",), data_type=types.LONG, is_ordered=True)
>>> text = '{"numRecords":3,"minValues":{"n":1},"maxValues":{"n":7},"nullCount":{"n":0}}'
>>> leaf_stats(pa.chunked_array([[text, None, "?"]]), [leaf]).to_pylist()[0]
{'numRecords': 3, 'tightBounds': None, 'nullCount n': 0, 'minValues n': 1, 'maxValues n': 7}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from pyspark_delta.kernel.log.arrow_types import one_array
from pyspark_delta.kernel.log.checkpoints.parsed_columns import fitted, loaded
from pyspark_delta.kernel.log.replay import ColumnSource, FilePart, FileState
from pyspark_delta.kernel.protocol import types
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.column_mapping import MODE_KEY, ColumnMappingMode, physical_path
from pyspark_delta.kernel.protocol.type_widening import type_changes
from pyspark_delta.kernel.protocol.types import DataType, StructType
from pyspark_delta.kernel.scan.predicates.binding import BoundPredicate, has_binary_order
from pyspark_delta.kernel.scan.predicates.tree import Column, Path, columns_of
from pyspark_delta.kernel.scan.skipping.stats_bounds import (
    Side,
    around_float,
    bound,
    has_usable_bounds,
    json_arrow_type,
    struct_bound,
)

NUM_RECORDS = "numRecords"
NULL_COUNT = "nullCount"
TIGHT_BOUNDS = "tightBounds"
# A slice is read at once; one that Arrow rejects is divided into pieces, whose rows are then read
# one by one if necessary.
_SLICE_ROWS, _SLICE_BYTES = 8_192, 4 * 1024 * 1024
_PIECE_ROWS = 1_024
_BLOCK_BYTES = 1024 * 1024
# No statistics are that long; longer text is not worth its memory.
_LONGEST_ROW = 16 * 1024 * 1024
# The text between two rows: each is in an object of its own, so that no content of a row can
# pass for two rows or extend into the next.
_SEPARATOR = '}\n{"r":'
_ROW_START = len('{"r":')


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsLeaf:
    """A column with statistics.

    `is_ordered` is true if bounds are comparable; `was_float`, if it is a DOUBLE now, but files may
    hold floats, and statistics their digits.
    """

    path: Path
    physical_path: Path
    data_type: DataType
    is_ordered: bool
    was_float: bool = False


ROWS_ALONE = StatsLeaf(path=(), physical_path=(), data_type=types.VARIANT, is_ordered=False)
"""No column: for callers that only need the number of rows of each file."""
# Pruning may leave so few files that parsing the others for later use is not worth it.
_FEW = 0.2
_MANY = 50_000
# Parsing text costs far more than comparing numbers.  The cache belongs to a source of add
# actions, which outlives the version it was read for: a commit adds only its own text to parse.
_KEPT: WeakKeyDictionary[ColumnSource, dict[StatsLeaf, pa.Table]] = WeakKeyDictionary()
_LOCK = Lock()


def stats_leaves(predicate: BoundPredicate, metadata: Metadata) -> tuple[StatsLeaf, ...]:
    """The leaves whose statistics are relevant for `predicate`, each once."""
    return column_leaves(columns_of(predicate.predicate), metadata)


def column_leaves(paths: Iterable[Path], metadata: Metadata) -> tuple[StatsLeaf, ...]:
    """The leaves at these paths that can have statistics."""
    schema = metadata.schema
    mode = ColumnMappingMode.parse(metadata.configuration.get(MODE_KEY))
    partitions = {name.lower() for name in metadata.partition_columns}
    leaves = []
    for path in paths:
        f = schema.find(path)
        if f is None or path[0].lower() in partitions:
            continue
        if isinstance(f.data_type, StructType) or f.data_type == types.VARIANT:
            continue
        leaves.append(
            StatsLeaf(
                path=path,
                physical_path=physical_path(schema, path, mode),
                data_type=f.data_type,
                is_ordered=has_usable_bounds(f.data_type) and has_binary_order(f),
                was_float=any(change.from_type == types.FLOAT for change in type_changes(f)),
            )
        )
    return tuple(leaves)


def stat_name(stat: str, path: Path) -> str:
    """The column of a statistics table that holds a leaf's `nullCount` or one of its bounds."""
    return f"{stat} {Column(path).to_sql()}"


def leaf_stats(stats: pa.ChunkedArray | pa.Array, leaves: Sequence[StatsLeaf]) -> pa.Table:
    """Counts and bounds from JSON texts, one row each.

    A null or malformed text gives nulls, and does not affect other rows.
    """
    return parse_pieces(stats.chunks if isinstance(stats, pa.ChunkedArray) else [stats], leaves)


def parse_pieces(pieces_of_text: Iterable[pa.Array], leaves: Sequence[StatsLeaf]) -> pa.Table:
    """As `leaf_stats`, from pieces of text that are released as soon as they are parsed."""
    fields = _raw_fields(leaves)
    pieces = [_raw_rows(piece, fields) for chunk in pieces_of_text for piece in _slices(chunk)]
    raw = pa.concat_tables([_raw_schema(fields).empty_table(), *pieces]).combine_chunks()
    return _table(leaves, lambda f: one_array(raw.column(f.name)), bound)


def struct_stats(stats: pa.ChunkedArray | pa.Array, leaves: Sequence[StatsLeaf]) -> pa.Table:
    """As `leaf_stats`, from the column `stats_parsed` of checkpoints."""
    array = one_array(stats)

    def values(f: _RawField) -> pa.Array:
        found = array
        for name in f.path:
            if not pa.types.is_struct(found.type) or found.type.get_field_index(name) < 0:
                return pa.nulls(len(array), f.kind)
            found = pc.struct_field(found, name)
        if f.side is not None:
            return found
        try:
            return found.cast(f.kind)
        except pa.ArrowException:
            return pa.nulls(len(array), f.kind)

    return _table(leaves, values, struct_bound)


def parsed_stats(
    state: FileState, wanted: pa.BooleanArray, leaves: Sequence[StatsLeaf]
) -> pa.Table:
    """Counts and bounds of `leaves`, for the live files that are `wanted`.

    `wanted` has a row for each row of `state.columns`, and the result one for each that is true.
    """
    tables = [parse_pieces([], leaves)]
    start = 0
    for part in state.parts:
        tables.append(_part_stats(part, wanted.slice(start, part.num_live), leaves))
        start += part.num_live
    return pa.concat_tables(tables)


class _RawField(NamedTuple):
    """A value of the statistics: its path in the JSON, and its type there."""

    name: str
    path: Path
    kind: pa.DataType
    data_type: DataType
    side: Side | None = None
    was_float: bool = False


def _raw_fields(leaves: Sequence[StatsLeaf]) -> list[_RawField]:
    fields = [
        _RawField(NUM_RECORDS, (NUM_RECORDS,), pa.int64(), types.LONG),
        _RawField(TIGHT_BOUNDS, (TIGHT_BOUNDS,), pa.bool_(), types.BOOLEAN),
    ]
    for leaf in leaves:
        if leaf == ROWS_ALONE:
            continue
        name, path = stat_name(NULL_COUNT, leaf.path), (NULL_COUNT, *leaf.physical_path)
        fields.append(_RawField(name, path, pa.int64(), types.LONG))
        kind = json_arrow_type(leaf.data_type)
        if not leaf.is_ordered or kind is None:
            continue
        for side in Side:
            name, path = stat_name(side.value, leaf.path), (side.value, *leaf.physical_path)
            fields.append(_RawField(name, path, kind, leaf.data_type, side, leaf.was_float))
    return fields


def _raw_schema(fields: Sequence[_RawField]) -> pa.Schema:
    return pa.schema([(f.name, f.kind) for f in fields])


def _table(
    leaves: Sequence[StatsLeaf],
    values: Callable[[_RawField], pa.Array],
    made: Callable[[pa.Array, DataType, Side], pa.Array],
) -> pa.Table:
    columns = {}
    for f in _raw_fields(leaves):
        array = values(f)
        if f.side is not None:
            array = made(array, f.data_type, f.side)
        if f.side is not None and f.was_float:
            array = around_float(array, f.side)
        columns[f.name] = array
    return pa.table(columns)


def _slices(chunk: pa.Array) -> Iterator[pa.Array]:
    if not len(chunk):
        return
    rows = max(1, min(_SLICE_ROWS, _SLICE_BYTES * len(chunk) // max(1, chunk.nbytes)))
    for start in range(0, len(chunk), rows):
        yield chunk.slice(start, rows)


def _raw_rows(rows: pa.Array, fields: Sequence[_RawField]) -> pa.Table:
    try:
        return _read_by_arrow(rows, fields)
    except pa.ArrowException:
        pass
    if len(rows) <= _PIECE_ROWS:
        return _read_one_by_one(rows, fields)
    starts = range(0, len(rows), _PIECE_ROWS)
    return pa.concat_tables([_raw_rows(rows.slice(at, _PIECE_ROWS), fields) for at in starts])


def _read_by_arrow(rows: pa.Array, fields: Sequence[_RawField]) -> pa.Table:
    edge = pa.array([""], rows.type)
    values = pa.concat_arrays([edge, rows.fill_null("{}"), edge])
    everything = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    joined = pc.binary_join(everything, _SEPARATOR)
    text = joined.buffers()[2]
    # The empty texts at both ends leave half a superfluous separator at each.
    text = text.slice(len("}\n"), text.size - len("}\n") - len("\n") - _ROW_START)
    read = pj.read_json(
        pa.BufferReader(text),
        read_options=pj.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
        parse_options=pj.ParseOptions(
            explicit_schema=pa.schema([("r", _nested_type(fields))]),
            unexpected_field_behavior="ignore",
        ),
    )
    if read.num_rows != len(rows):
        raise pa.ArrowInvalid("a text holds more than one object")
    found = read.column("r")
    columns = [pc.struct_field(found, list(f.path)) for f in fields]
    return pa.table(columns, schema=_raw_schema(fields))


def _nested_type(fields: Sequence[_RawField]) -> pa.DataType:
    tree: dict[str, Any] = {}
    for f in fields:
        place = tree
        for name in f.path[:-1]:
            place = place.setdefault(name, {})
        place[f.path[-1]] = f.kind

    def struct(node: Mapping[str, Any]) -> pa.DataType:
        children = ((k, struct(v) if isinstance(v, dict) else v) for k, v in node.items())
        return pa.struct(list(children))

    return struct(tree)


def _read_one_by_one(rows: pa.Array, fields: Sequence[_RawField]) -> pa.Table:
    columns: list[list[object]] = [[] for _ in fields]
    for text in rows:
        is_read = text.is_valid and text.as_buffer().size <= _LONGEST_ROW
        stats = loaded(text.as_py()) if is_read else None
        for f, column in zip(fields, columns, strict=True):
            value = stats
            for name in f.path:
                value = value.get(name) if isinstance(value, dict) else None
            rounding = ROUND_FLOOR if f.side is Side.LOWER else ROUND_CEILING
            column.append(fitted(value, f.kind, rounding))
    arrays = [pa.array(column, f.kind) for f, column in zip(fields, columns, strict=True)]
    return pa.table(arrays, schema=_raw_schema(fields))


def _part_stats(part: FilePart, wanted: pa.BooleanArray, leaves: Sequence[StatsLeaf]) -> pa.Table:
    if not wanted.true_count:
        return parse_pieces([], leaves)
    with _LOCK:
        kept = _KEPT.setdefault(part.source, {})
    # Two threads may parse the same text, which is harmless.
    missing = [leaf for leaf in leaves if leaf not in kept]
    if missing:
        paths = [leaf.physical_path for leaf in missing if leaf != ROWS_ALONE]
        typed = part.source.parsed_stats(paths)
        if typed is not None:
            _keep(kept, struct_stats(typed, missing), missing)
    missing = [leaf for leaf in leaves if leaf not in kept]
    if missing:
        if wanted.true_count < _FEW * len(part.keys):
            return leaf_stats(part.live_stats(wanted), leaves)
        _keep(kept, parse_pieces(part.source.stats_texts(), missing), missing)
        if len(part.keys) > _MANY:
            # Parsing took several times the memory of its result, and Arrow's pool keeps it.
            pa.default_memory_pool().release_unused()
    columns = {name: kept[leaf].column(name) for leaf in leaves for name in kept[leaf].schema.names}
    table = pa.table(columns)
    return (table if part.live is None else table.filter(part.live)).filter(wanted)


def _keep(kept: dict[StatsLeaf, pa.Table], parsed: pa.Table, leaves: Sequence[StatsLeaf]) -> None:
    for leaf in leaves:
        kept[leaf] = parsed.select([f.name for f in _raw_fields([leaf])])
