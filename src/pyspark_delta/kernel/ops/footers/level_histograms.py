"""Null counts of arrays and maps, from the level histograms of a Parquet footer.

The null count of a leaf below an array also counts null elements and empty arrays.  A writer that
keeps size statistics (Parquet 1.15 and later, Arrow) counts the entries of each definition level
instead, and those below the level of the column itself are its nulls, one entry a row.  pyarrow
does not expose them, so the Thrift of the footer is parsed here: its schema, and the needed
columns, which are found by a search for their paths.  To parse all other columns would cost more
than the rest of a small write.  parquet.thrift, "SizeStatistics".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark_delta.kernel.ops.footers import thrift_compact as thrift

_END = struct.Struct("<I4s")
_OPTIONAL = 1
# Numbers of fields: of FileMetaData, SchemaElement, ColumnMetaData and SizeStatistics.
_SCHEMA = 2
_REPETITION, _NAME, _NUM_CHILDREN = 3, 4, 5
_ENCODINGS, _DATA_PAGE_OFFSET, _SIZE_STATISTICS = 2, 9, 16
_DEFINITION_LEVELS = 3
# The header of a column's path: the third field, a list, of fewer than 15 texts.
_PATH_HEADER, _MOST_NAMES = 0x19, 14

_Node = tuple[bytes, bool]
"""A name in the path of a leaf, and whether that node is nullable."""


def null_counts(file: Any, metadata: Any, leaves: Sequence[tuple[int, int]]) -> list[int | None]:
    """The null counts of columns that are not leaves; None where the file does not have them.

    `file` is a pyarrow file, or as much of its end as the footer takes, and `metadata` pyarrow's
    metadata of it.  `leaves` are, for each column, the number of a leaf below it and the length
    of the column's own path.
    """
    try:
        footer = _footer(file)
        paths = list(_paths(footer))
        return [
            _null_count(footer, paths[leaf], depth, _offsets(metadata, leaf))
            for leaf, depth in leaves
        ]
    except (IndexError, ValueError, RecursionError, struct.error):
        return [None] * len(leaves)


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


def _offsets(metadata: Any, leaf: int) -> list[int]:
    """The offset of the leaf's data in each row group with rows, which identifies its columns."""
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    return [group.column(leaf).data_page_offset for group in groups if group.num_rows]


def _paths(footer: bytes) -> Iterator[list[_Node]]:
    above: list[list[_Node]] = [[]]  # of each node to come, the next one last
    place = thrift.field(footer, 0, _SCHEMA) or len(footer)
    for at, (start, _) in enumerate(thrift.elements(footer, place)):
        node = {number: value for number, _, value in thrift.starts(footer, start)}
        path = above.pop()
        if at:  # the root is not part of a path
            is_optional = thrift.integer(footer, node[_REPETITION]) == _OPTIONAL
            path = [*path, (thrift.binary(footer, node[_NAME]), is_optional)]
        children = thrift.integer(footer, node[_NUM_CHILDREN]) if _NUM_CHILDREN in node else 0
        above += [path] * children
        if not children:
            yield path


def _null_count(
    footer: bytes, path: Sequence[_Node], depth: int, offsets: Sequence[int]
) -> int | None:
    level = sum(is_optional for _, is_optional in path[:depth])
    names = [name for name, _ in path]
    if len(names) > _MOST_NAMES:
        return None
    header = bytes([_PATH_HEADER, len(names) << 4 | thrift.BINARY])
    needle = header + b"".join(thrift.varint(len(name)) + name for name in names)
    start = total = 0
    for offset in offsets:
        start = _column(footer, needle, start, offset)
        levels = [] if start < 0 else list(_levels(footer, start))
        if len(levels) <= level:
            return None
        total += sum(levels[:level])
        start += len(needle)
    return total


def _column(footer: bytes, needle: bytes, start: int, offset: int) -> int:
    """The place of the path of the column with its data at `offset`; -1 when there is none."""
    # Values among the statistics may look like a path: a match must be followed by a column.
    while (start := footer.find(needle, start)) >= 0:
        try:
            place = thrift.field(footer, start, _DATA_PAGE_OFFSET, _ENCODINGS)
            if place is not None and thrift.integer(footer, place) == offset:
                return start
        except (IndexError, ValueError):
            pass
        start += 1
    return -1


def _levels(footer: bytes, start: int) -> Iterator[int]:
    """The number of entries of each definition level; empty if the column does not have it."""
    sizes = thrift.field(footer, start, _SIZE_STATISTICS, _ENCODINGS)
    levels = None if sizes is None else thrift.field(footer, sizes, _DEFINITION_LEVELS)
    for place, _ in () if levels is None else thrift.elements(footer, levels):
        yield thrift.integer(footer, place)
