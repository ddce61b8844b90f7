"""File statistics as columns: counts and bounds of the leaves that a predicate needs.

Statistics come as JSON text, or as the struct that checkpoints keep.  Either way the result is a
table with one row per file and, for each leaf, how many nulls it has and two values between which
all others lie.  What is not known, or not readable, is null.  What follows from it is in
`skipping`.  PROTOCOL.md, "Per-file Statistics".

>>> leaf = Leaf(path=("n",), physical_path=("n",), data_type=LONG, is_ordered=True)
>>> text = '{"numRecords":3,"minValues":{"n":1},"maxValues":{"n":7},"nullCount":{"n":0}}'
>>> parse_stats(pa.chunked_array([[text, None, "?"]]), [leaf]).to_pylist()[0]
{'numRecords': 3, 'tightBounds': None, 'nullCount n': 0, 'minValues n': 1, 'maxValues n': 7}
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.column_mapping import (
    MODE_KEY,
    ColumnMappingMode,
    physical_path,
)
from pyspark_delta.kernel.protocol.type_widening import type_changes
from pyspark_delta.kernel.protocol.types import (
    BOOLEAN,
    FLOAT,
    LONG,
    VARIANT,
    DataType,
    DecimalType,
    StructType,
)
from pyspark_delta.kernel.scan.binding import BoundPredicate, has_binary_order
from pyspark_delta.kernel.scan.literals import FRACTIONAL, INTEGRAL, MAX_LONG, MIN_LONG
from pyspark_delta.kernel.scan.predicates import Column, Path, columns_of
from pyspark_delta.kernel.scan.stats_bounds import (
    Side,
    around_float,
    bound,
    has_bounds,
    raw_type,
    struct_bound,
)

NUM_RECORDS = "numRecords"
NULL_COUNT = "nullCount"
TIGHT_BOUNDS = "tightBounds"

# A slice is read at once; one that Arrow refuses is cut into pieces, whose rows are then read by
# themselves if need be.
_SLICE_ROWS, _SLICE_BYTES = 8_192, 4 * 1024 * 1024
_PIECE_ROWS = 1_024
_BLOCK_BYTES = 1024 * 1024
# No statistics are that long; what is, is not worth its memory.
_LONGEST_ROW = 16 * 1024 * 1024
_EXACT = Context(prec=200)
_BEYOND_DOUBLES = Decimal("1.7976931348623158e308")
_FLOAT_NAMES = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
# Between two rows: each stands in an object of its own, so that whatever a row holds, it cannot
# pass for two rows or take in a part of the next.
_SEPARATOR = '}\n{"r":'
_ROW_START = len('{"r":')


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A column with statistics.

    `is_ordered` says that its bounds can be compared with; `was_float`, that it is a DOUBLE now,
    but that files may hold floats, and statistics their digits.
    """

    path: Path
    physical_path: Path
    data_type: DataType
    is_ordered: bool
    was_float: bool = False


ROWS_ALONE = Leaf(path=(), physical_path=(), data_type=VARIANT, is_ordered=False)
"""No column: for who wants to know how many rows the files have, and nothing else."""


def stats_leaves(predicate: BoundPredicate, metadata: Metadata) -> tuple[Leaf, ...]:
    """The leaves whose statistics may tell something about `predicate`, each once."""
    return column_leaves(columns_of(predicate.predicate), metadata)


def column_leaves(paths: Iterable[Path], metadata: Metadata) -> tuple[Leaf, ...]:
    """The leaves at these paths: those that statistics may tell something of."""
    schema = metadata.schema
    mode = ColumnMappingMode.parse(metadata.configuration.get(MODE_KEY))
    partitions = {name.lower() for name in metadata.partition_columns}
    leaves = []
    for path in paths:
        f = schema.find(path)
        if f is None or path[0].lower() in partitions:
            continue
        if isinstance(f.data_type, StructType) or f.data_type == VARIANT:
            continue
        leaves.append(
            Leaf(
                path=path,
                physical_path=physical_path(schema, path, mode),
                data_type=f.data_type,
                is_ordered=has_bounds(f.data_type) and has_binary_order(f),
                was_float=any(change.from_type == FLOAT for change in type_changes(f)),
            )
        )
    return tuple(leaves)


def stat_name(stat: str, path: Path) -> str:
    """The column of a statistics table that holds a leaf's `nullCount` or one of its bounds."""
    return f"{stat} {Column(path).to_sql()}"


def parse_stats(stats: pa.ChunkedArray | pa.Array, leaves: Sequence[Leaf]) -> pa.Table:
    """Counts and bounds out of JSON texts, one row each.

    A text that is null, or is not the JSON it should be, gives nulls, and disturbs no other.
    """
    return parse_pieces(stats.chunks if isinstance(stats, pa.ChunkedArray) else [stats], leaves)


def parse_pieces(pieces_of_text: Iterable[pa.Array], leaves: Sequence[Leaf]) -> pa.Table:
    """As `parse_stats`; no piece of text is held longer than it takes to parse it."""
    fields = _raw_fields(leaves)
    pieces = [_raw_rows(piece, fields) for chunk in pieces_of_text for piece in _slices(chunk)]
    raw = pa.concat_tables([_raw_schema(fields).empty_table(), *pieces]).combine_chunks()
    return _table(leaves, lambda f: _only_chunk(raw.column(f.name)), bound)


def struct_stats(stats: pa.ChunkedArray | pa.Array, leaves: Sequence[Leaf]) -> pa.Table:
    """As `parse_stats`, out of the column `stats_parsed` of checkpoints."""
    array = _only_chunk(stats)

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


def num_records(parsed: pa.Table) -> pa.Int64Array:
    """Rows in each file, deleted ones included; null where the statistics do not say."""
    return _only_chunk(parsed.column(NUM_RECORDS))


@dataclass(frozen=True, slots=True)
class _RawField:
    """A value of the statistics: its place in the JSON, and its type there."""

    name: str
    path: Path
    kind: pa.DataType
    data_type: DataType
    side: Side | None = None
    was_float: bool = False


def _raw_fields(leaves: Sequence[Leaf]) -> list[_RawField]:
    fields = [
        _RawField(NUM_RECORDS, (NUM_RECORDS,), pa.int64(), LONG),
        _RawField(TIGHT_BOUNDS, (TIGHT_BOUNDS,), pa.bool_(), BOOLEAN),
    ]
    for leaf in leaves:
        if leaf == ROWS_ALONE:
            continue
        name = stat_name(NULL_COUNT, leaf.path)
        fields.append(_RawField(name, (NULL_COUNT, *leaf.physical_path), pa.int64(), LONG))
        kind = raw_type(leaf.data_type)
        if not leaf.is_ordered or kind is None:
            continue
        for side in Side:
            place = (side.value, *leaf.physical_path)
            name = stat_name(side.value, leaf.path)
            fields.append(_RawField(name, place, kind, leaf.data_type, side, leaf.was_float))
    return fields


def _raw_schema(fields: Sequence[_RawField]) -> pa.Schema:
    return pa.schema([(f.name, f.kind) for f in fields])


def _table(
    leaves: Sequence[Leaf],
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
    # The empty texts at both ends leave half a separator too much at each.
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
        return pa.struct(
            [
                (name, struct(kind) if isinstance(kind, dict) else kind)
                for name, kind in node.items()
            ]
        )

    return struct(tree)


def _read_one_by_one(rows: pa.Array, fields: Sequence[_RawField]) -> pa.Table:
    columns: list[list[object]] = [[] for _ in fields]
    for text in rows:
        stats = _loaded(text)
        for f, column in zip(fields, columns, strict=True):
            value = stats
            for name in f.path:
                value = value.get(name) if isinstance(value, dict) else None
            column.append(_checked(value, f))
    arrays = [pa.array(column, f.kind) for f, column in zip(fields, columns, strict=True)]
    return pa.table(arrays, schema=_raw_schema(fields))


def _loaded(text: pa.StringScalar) -> Any:
    if not text.is_valid or text.as_buffer().size > _LONGEST_ROW:
        return None
    try:
        return json.loads(text.as_py(), parse_float=Decimal)
    except (ValueError, RecursionError, InvalidOperation):
        return None


def _checked(value: object, f: _RawField) -> object:
    """`value` as a column of its field can hold it, rounded outwards; None if it cannot."""
    kind = f.data_type
    if isinstance(value, str) and value in _FLOAT_NAMES and kind in FRACTIONAL:
        return _FLOAT_NAMES[value]
    if isinstance(value, bool):
        return value if kind == BOOLEAN else None
    if isinstance(value, str):
        return value if f.kind == pa.string() and _is_text(value) else None
    if isinstance(value, float) and kind in FRACTIONAL:  # NaN without quotes
        return value
    if not isinstance(value, int | Decimal):
        return None
    if kind in FRACTIONAL:
        is_finite = abs(Decimal(value)) < _BEYOND_DOUBLES
        return float(value) if is_finite else None
    if kind in INTEGRAL:
        return int(value) if MIN_LONG <= value <= MAX_LONG and value == int(value) else None
    if isinstance(kind, DecimalType):
        rounding = ROUND_FLOOR if f.side is Side.LOWER else ROUND_CEILING
        try:
            scaled = Decimal(value).quantize(Decimal(1).scaleb(-kind.scale), rounding, _EXACT)
        except InvalidOperation:
            return None
        return scaled if abs(scaled) < Decimal(10) ** (38 - kind.scale) else None
    return None


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _only_chunk(array: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(array, pa.ChunkedArray):
        return (
            array.chunk(0)
            if array.num_chunks == 1
            else pa.concat_arrays([pa.array([], array.type), *array.chunks])
        )
    return array
