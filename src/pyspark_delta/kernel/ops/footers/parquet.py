"""Read footers of Parquet files of any writer: their layouts, and statistics that can be trusted.

This module runs where the files are.  Spark's executors have no `pyspark_delta`, so it is sent
there by value, imports nothing but the standard library and pyarrow, and returns plain values.

Statistics of unknown writers are trusted only where they must be right:

- Strings, binary decimals and unsigned numbers need a writer that is known to order them as the
format specifies; earlier ones compared signed bytes.
- Most writers leave NaN out of bounds, and to Spark NaN is above all numbers: such a writer's
  greatest float proves nothing.
- INT96 has no order in the format.  Its bounds come from the values themselves, or not at all.

`stats` translates the values into those of a table.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

SPARK_SCHEMA_KEY = b"org.apache.spark.sql.parquet.row.metadata"
TAIL_BYTES = 64 * 1024

_MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"
_END = "<I4s"
# Writers whose bounds of bytes and unsigned numbers have the format's order, by first version.
_ORDERED_WRITERS = {
    "parquet-mr": (1, 10, 0),
    "parquet-cpp": (1, 3, 0),
    "parquet-cpp-arrow": (0, 0, 0),
    "parquet-rs": (20, 0, 0),
    "duckdb": (1, 0, 0),
}
# The writer that orders NaN above all numbers, so that NaN appears in the bounds.
_NAN_IS_GREATEST = "parquet-mr"
_VERSION = re.compile(r"(.*?)\s+version\s+v?(\d+)(?:\.(\d+))?(?:\.(\d+))?", re.IGNORECASE)

TailReader = Callable[[str, int, int], bytes]
"""Reads bytes of a file: path, offset, length."""


class ParquetLeaf(NamedTuple):
    """A column of a Parquet file.

    `path` goes down to the leaf, or to the array or map that it is in (`is_repeated`).  `kind` is
    how its bounds are compared: integer, unsigned, float, text, decimal; None has no bounds.
    `logical` is the format's logical type, as JSON.
    """

    path: tuple[str, ...]
    is_repeated: bool
    physical: str
    logical: str
    kind: str | None
    knows_greatest: bool


class ParquetLayout(NamedTuple):
    """The facts that files of one writer and schema share.

    `spark_schema` is the schema that Spark wrote beside Parquet's own.  `leaves` is None when the
    columns cannot be distinguished.
    """

    spark_schema: str | None
    counts_nulls_in_collections: bool
    leaves: tuple[ParquetLeaf, ...] | None


class FileFooter(NamedTuple):
    """The content of one file's footer; `layout` is an index into the layouts of its block.

    `bounds` has (least, greatest, nulls) of each leaf, None for unknown values.  A footer that
    cannot be read has a `problem` and nothing else: its bytes are wrong (`is_corrupt`), or could
    not be fetched.
    """

    layout: int
    num_records: int
    bounds: tuple[tuple[Any, Any, int | None], ...] | None
    problem: str | None = None
    is_corrupt: bool = False


class FooterBlock(NamedTuple):
    """Footers of several files, in their order, and their distinct layouts."""

    layouts: tuple[ParquetLayout, ...]
    files: tuple[FileFooter, ...]


class StatsRequest(NamedTuple):
    """The statistics to collect: of so many leaves, or of those below columns of these names
    (in lower case); and whether to read INT96 values, whose bounds no footer has: then paths
    must be those of local files.
    """

    most_leaves: int | None = None
    names: frozenset[str] | None = None
    reads_int96: bool = False


def read_local_tail(path: str, start: int, length: int) -> bytes:
    """Bytes of a local file."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.pread(handle, length, start)
    finally:
        os.close(handle)


def read_footer_block(
    files: Sequence[tuple[str, int]], read_tail: TailReader, request: StatsRequest | None
) -> FooterBlock:
    """The footers of files given by path and size; without `request` only their layouts."""
    numbers: dict[tuple[str, bytes | None, str | None], int] = {}
    layouts: list[ParquetLayout] = []
    footers: list[FileFooter] = []
    for path, size in files:
        try:
            tail = _footer_bytes(path, size, read_tail)
        except (OSError, ValueError) as error:
            footers.append(_without_footer(error, isinstance(error, ValueError)))
            continue
        try:
            metadata = pq.read_metadata(pa.BufferReader(tail))
            # The first line of the text is the memory address of an object.
            shape = str(metadata.schema).partition("\n")[2]
            spark_schema = (metadata.metadata or {}).get(SPARK_SCHEMA_KEY)
            key = (shape, spark_schema, metadata.created_by)
            number = numbers.get(key)
            if number is None:
                number = numbers[key] = len(layouts)
                layouts.append(_layout(metadata, spark_schema, request))
            bounds = None
            if request is not None:
                bounds = _bounds(metadata, layouts[number])
                if request.reads_int96:
                    bounds = _with_int96(bounds, layouts[number], path, metadata)
            footers.append(FileFooter(number, metadata.num_rows, bounds))
        except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
            footers.append(_without_footer(error, True))
    return FooterBlock(tuple(layouts), tuple(footers))


def _without_footer(error: Exception, is_corrupt: bool) -> FileFooter:
    return FileFooter(-1, 0, None, f"{type(error).__name__}: {error}"[:500], is_corrupt)


def footer_blocks(
    request: tuple[Any, ...] | None, blocks: Iterable[Sequence[tuple[str, int]]]
) -> Iterator[bytes]:
    """The body of a Spark task: from blocks of local files to their pickled footers.

    Returns plain tuples, because the classes of this module cannot be imported where it runs.
    """
    wanted = None if request is None else StatsRequest(*request)
    for files in blocks:
        yield _pickled_block(read_footer_block(files, read_local_tail, wanted))


def given_footer_blocks(
    request: tuple[Any, ...] | None, rows: Iterable[tuple[int, bytes | None]]
) -> Iterator[tuple[int, bytes]]:
    """As `footer_blocks`, for footers that Java has read: pairs of a block's number and a footer.

    Consecutive files of one block stay together; a block may come in several parts.
    """
    wanted = None if request is None else StatsRequest(*request)
    for number, group in groupby(rows, key=itemgetter(0)):
        tails = [_whole_tail(footer) for _, footer in group]

        def read_tail(place: str, start: int, length: int, tails: list[bytes] = tails) -> bytes:
            return tails[int(place)][start : start + length]

        files = [(str(place), len(tail)) for place, tail in enumerate(tails)]
        yield number, _pickled_block(read_footer_block(files, read_tail, wanted))


def _whole_tail(footer: bytes | None) -> bytes:
    """A footer in its form at the end of a file; empty, which is no valid footer, for None."""
    if footer is None:
        return b""
    return _MAGIC + bytes(footer) + struct.pack(_END, len(footer), _MAGIC)


def _pickled_block(block: FooterBlock) -> bytes:
    layouts = [
        (*layout[:2], None if layout.leaves is None else tuple(map(tuple, layout.leaves)))
        for layout in block.layouts
    ]
    return pickle.dumps((layouts, tuple(map(tuple, block.files))), pickle.HIGHEST_PROTOCOL)


def unpickled_block(data: bytes) -> FooterBlock:
    """The block that `footer_blocks` pickled."""
    layouts, files = pickle.loads(data)
    return FooterBlock(
        tuple(
            ParquetLayout(
                text,
                counts,
                None if leaves is None else tuple(ParquetLeaf(*leaf) for leaf in leaves),
            )
            for text, counts, leaves in layouts
        ),
        tuple(FileFooter(*footer) for footer in files),
    )


def joined_blocks(blocks: Sequence[FooterBlock]) -> FooterBlock:
    """Several blocks concatenated to one."""
    numbers: dict[ParquetLayout, int] = {}
    files: list[FileFooter] = []
    for block in blocks:
        for footer in block.files:
            if footer.problem is None:
                number = numbers.setdefault(block.layouts[footer.layout], len(numbers))
                footer = footer._replace(layout=number)
            files.append(footer)
    return FooterBlock(tuple(numbers), tuple(files))


def _footer_bytes(path: str, size: int, read_tail: TailReader) -> bytes:
    """The end of a file, with its whole footer: one read, two when the footer is large."""
    if size < 12:
        raise ValueError("the file is too short to be a Parquet file")
    length = min(size, TAIL_BYTES)
    tail = read_tail(path, size - length, length)
    if len(tail) != length:
        raise ValueError("the file is shorter than it was when it was listed")
    footer_length, magic = struct.unpack(_END, tail[-8:])
    if magic == _ENCRYPTED_MAGIC:
        raise ValueError("the footer is encrypted")
    if magic != _MAGIC or footer_length + 8 > size:
        raise ValueError("it does not end as a Parquet file does")
    if footer_length + 8 > length:
        tail = read_tail(path, size - footer_length - 8, footer_length + 8)
    return tail


def _layout(
    metadata: Any, spark_schema: bytes | None, request: StatsRequest | None
) -> ParquetLayout:
    writer, version = _writer(metadata.created_by)
    least = _ORDERED_WRITERS.get(writer)
    ordered = least is not None and version >= least
    from_mr = ordered and writer == _NAN_IS_GREATEST
    text = None if spark_schema is None else spark_schema.decode("utf-8", "replace")
    try:
        paths = list(_leaf_paths(metadata.schema.to_arrow_schema()))
    except (pa.ArrowException, ValueError, RecursionError):
        paths = []
    if len(paths) != metadata.num_columns:
        return ParquetLayout(text, from_mr, None)
    leaves = []
    for place, (path, is_repeated) in enumerate(paths):
        column = metadata.schema.column(place)
        physical, logical = column.physical_type, column.logical_type.to_json()
        kind = None if is_repeated else _kind(physical, json.loads(logical), ordered, from_mr)
        knows_greatest = kind != "float" or from_mr
        if request is not None and not _is_wanted(place, path, request):
            kind = "skipped"
        leaves.append(ParquetLeaf(path, is_repeated, physical, logical, kind, knows_greatest))
    return ParquetLayout(text, from_mr, tuple(leaves))


def _is_wanted(place: int, path: tuple[str, ...], request: StatsRequest) -> bool:
    if request.names is not None:
        return path[0].lower() in request.names
    return request.most_leaves is None or place < request.most_leaves


def _writer(created_by: str | None) -> tuple[str, tuple[int, int, int]]:
    """The name and version in `created_by`; an empty name when it has another shape."""
    match = _VERSION.match(created_by or "")
    if match is None:
        return "", (0, 0, 0)
    return match[1].lower(), (int(match[2]), int(match[3] or 0), int(match[4] or 0))


def _leaf_paths(schema: Any) -> Iterator[tuple[tuple[str, ...], bool]]:
    """The path of each column in the nested schema; in a collection, the path of the collection."""
    # From Arrow's schema: Parquet joins the names of a path by dots, which names may contain.
    for f in schema:
        yield from _type_paths(f.type, (f.name,), False)


def _type_paths(
    data_type: Any, path: tuple[str, ...], is_repeated: bool
) -> Iterator[tuple[tuple[str, ...], bool]]:
    if isinstance(data_type, pa.BaseExtensionType):
        data_type = data_type.storage_type
    if pa.types.is_struct(data_type):
        for f in data_type:
            yield from _type_paths(f.type, path if is_repeated else (*path, f.name), is_repeated)
    elif pa.types.is_map(data_type):
        yield from _type_paths(data_type.key_type, path, True)
        yield from _type_paths(data_type.item_type, path, True)
    elif pa.types.is_nested(data_type):
        yield from _type_paths(data_type.value_type, path, True)
    else:
        yield path, is_repeated


def _kind(physical: str, logical: dict[str, Any], ordered: bool, from_mr: bool) -> str | None:
    name = logical.get("Type")
    if physical in ("INT32", "INT64"):
        if name == "Int" and not logical.get("isSigned", True):
            return "unsigned" if ordered else None
        return "integer"
    if physical in ("FLOAT", "DOUBLE"):
        return "float"
    if physical == "INT96":
        # Others keep local time in it, and a setting makes Spark shift their values.
        return "int96" if from_mr else None
    if physical in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY") and ordered:
        if name == "Decimal":
            return "decimal"
        if physical == "BYTE_ARRAY" and name in ("String", "Enum", "JSON", "None"):
            return "text"
    return None


def _bounds(metadata: Any, layout: ParquetLayout) -> tuple[tuple[Any, Any, int | None], ...] | None:
    if layout.leaves is None:
        return None
    groups = [
        group for group in map(metadata.row_group, range(metadata.num_row_groups)) if group.num_rows
    ]
    return tuple(
        _NOTHING
        if leaf.kind == "skipped"
        else _leaf_bounds([group.column(place).statistics for group in groups], leaf)
        for place, leaf in enumerate(layout.leaves)
    )


_NOTHING = (None, None, None)


def _leaf_bounds(statistics: list[Any], leaf: ParquetLeaf) -> tuple[Any, Any, int | None]:
    """Bounds and nulls over all row groups; None for a value that one of them lacks."""
    nulls: int | None = 0
    lows: list[Any] = []
    highs: list[Any] = []
    kind: str | None = leaf.kind
    for group in statistics:
        if group is None:
            return _NOTHING
        if nulls is not None:
            nulls = nulls + group.null_count if group.has_null_count else None
        if kind is None or kind == "int96" or (group.has_null_count and group.num_values == 0):
            continue
        if not group.has_min_max:
            kind = None
            continue
        lows.append(group.min_raw)
        highs.append(group.max_raw)
    if kind is None or not lows:
        return None, None, nulls
    low, high = _COMPARISONS[kind](lows, highs, leaf)
    return low, high if leaf.knows_greatest else None, nulls


def _plain_bounds(lows: list[Any], highs: list[Any], leaf: ParquetLeaf) -> tuple[Any, Any]:
    low, high = min(lows), max(highs)
    return (low, high) if low <= high else (None, None)


def _unsigned_bounds(lows: list[int], highs: list[int], leaf: ParquetLeaf) -> tuple[Any, Any]:
    mask = 2**32 - 1 if leaf.physical == "INT32" else 2**64 - 1
    return _plain_bounds([low & mask for low in lows], [high & mask for high in highs], leaf)


def _float_bounds(lows: list[float], highs: list[float], leaf: ParquetLeaf) -> tuple[Any, Any]:
    low = None if any(map(math.isnan, lows)) else min(lows)
    high = None if any(map(math.isnan, highs)) else max(highs)
    is_inverted = low is not None and high is not None and low > high
    return (None, None) if is_inverted else (low, high)


def _decimal_bounds(lows: list[bytes], highs: list[bytes], leaf: ParquetLeaf) -> tuple[Any, Any]:
    def unscaled(raw: bytes) -> int:
        return int.from_bytes(raw, "big", signed=True)

    return _plain_bounds([*map(unscaled, lows)], [*map(unscaled, highs)], leaf)


def _with_int96(bounds: Any, layout: ParquetLayout, path: str, metadata: Any) -> Any:
    """The bounds, completed by those of INT96 columns, whose values are read."""
    if layout.leaves is None or all(leaf.kind != "int96" for leaf in layout.leaves):
        return bounds
    known = list(bounds)
    for place, leaf in enumerate(layout.leaves):
        # Columns are chosen by names joined with dots, so a dot in a name chooses wrongly.
        if leaf.kind == "int96" and not any("." in name for name in leaf.path):
            # Damaged rows are not an error here: a reader of the rows will report them.
            with suppress(pa.ArrowException, OSError):
                known[place] = _int96_bounds(path, metadata, leaf.path)
    return tuple(known)


def _int96_bounds(path: str, metadata: Any, names: tuple[str, ...]) -> tuple[Any, Any, int | None]:
    low = high = None
    nulls = 0
    with pq.ParquetFile(
        path, metadata=metadata, coerce_int96_timestamp_unit="us", pre_buffer=False
    ) as file:
        for batch in file.iter_batches(columns=[".".join(names)], use_threads=False):
            column = batch.column(names[0])
            for name in names[1:]:
                column = pc.struct_field(column, name)
            nulls += column.null_count
            ends = pc.min_max(column.cast(pa.int64()))
            least, greatest = ends["min"].as_py(), ends["max"].as_py()
            if least is not None:
                low = least if low is None else min(low, least)
                high = greatest if high is None else max(high, greatest)
    return low, high, nulls


_COMPARISONS: dict[str, Callable[[list[Any], list[Any], ParquetLeaf], tuple[Any, Any]]] = {
    "integer": _plain_bounds,
    "unsigned": _unsigned_bounds,
    "float": _float_bounds,
    "text": _plain_bounds,
    "decimal": _decimal_bounds,
}
