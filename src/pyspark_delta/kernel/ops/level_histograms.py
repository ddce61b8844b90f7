"""Nulls of arrays and maps, from the level histograms of a Parquet footer.

The null count of a leaf below an array also counts null elements and empty arrays.  A writer that
keeps size statistics (Parquet 1.15 and later, Arrow) counts the entries of each definition level
instead, and those below the level of the column itself are its nulls, one entry a row.  pyarrow
does not give them, so the footer is read as the Thrift that it is.  parquet.thrift,
"SizeStatistics".
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterator, Sequence
from typing import Any

from pyspark_delta.kernel.ops import thrift_compact as thrift

_END = struct.Struct("<I4s")
_OPTIONAL = 1
# Numbers of fields: of FileMetaData, SchemaElement, RowGroup, and from ColumnChunk down.
_SCHEMA, _ROW_GROUPS = 2, 4
_REPETITION, _NUM_CHILDREN = 3, 5
_COLUMNS, _NUM_ROWS = 1, 3
_DEFINITION_LEVELS = (3, 16, 3)  # meta_data, size_statistics, definition_level_histogram


def null_counts(file: Any, leaves: Sequence[tuple[int, int]]) -> list[int | None]:
    """The nulls of columns that are not leaves; None where the file does not tell.

    `file` is one of pyarrow's, or as much of it as the footer takes.  `leaves` are the number of
    a leaf below the column, and how many names lead to the column.
    """
    try:
        footer = _footer(file)
        optional = list(_optional_nodes(footer))
        levels = {leaf: sum(optional[leaf][:depth]) for leaf, depth in leaves}
        counts: dict[int, int | None] = dict.fromkeys(levels, 0)
        for leaf, histogram in _histograms(footer, levels):
            known = counts[leaf]
            if known is None or len(histogram) <= levels[leaf]:
                counts[leaf] = None
            else:
                counts[leaf] = known + sum(histogram[: levels[leaf]])
    except (IndexError, ValueError, RecursionError, struct.error):
        return [None] * len(leaves)
    return [counts[leaf] for leaf, _ in leaves]


def _footer(file: Any) -> bytes:
    end = file.size() - _END.size
    if end < 0:
        raise ValueError("no footer")
    file.seek(end)
    length, _ = _END.unpack(file.read(_END.size))
    if length > end:
        raise ValueError("no footer")
    file.seek(end - length)
    return bytes(file.read(length))


def _optional_nodes(footer: bytes) -> Iterator[tuple[bool, ...]]:
    """For each leaf, which of the nodes on the way to it may be null; the leaf is the last one."""
    above: list[tuple[bool, ...]] = [()]  # of each node that is still to come, the next one last
    for at, node in enumerate(_elements(footer, 0, _SCHEMA)):
        path = above.pop()
        if at:  # the root is no node of a path
            path = (*path, _number(footer, node, _REPETITION) == _OPTIONAL)
        children = _number(footer, node, _NUM_CHILDREN) or 0
        above += [path] * children
        if not children:
            yield path


def _histograms(footer: bytes, leaves: Container[int]) -> Iterator[tuple[int, list[int]]]:
    """The number of entries of each definition level, by row group and leaf."""
    for group in _elements(footer, 0, _ROW_GROUPS):
        if not _number(footer, group, _NUM_ROWS):
            continue
        for leaf, chunk in enumerate(_elements(footer, group, _COLUMNS)):
            if leaf in leaves:
                levels = _elements(footer, chunk, *_DEFINITION_LEVELS)
                yield leaf, [thrift.integer(footer, level) for level in levels]


def _elements(footer: bytes, place: int, *numbers: int) -> list[int]:
    """Where the elements of a list start, which is a field of a struct; none where it is not."""
    start = thrift.field(footer, place, *numbers)
    return [] if start is None else [at for at, _ in thrift.elements(footer, start)]


def _number(footer: bytes, place: int, number: int) -> int | None:
    start = thrift.field(footer, place, number)
    return None if start is None else thrift.integer(footer, start)
