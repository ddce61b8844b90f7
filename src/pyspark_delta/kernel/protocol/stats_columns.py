"""Choose the columns with statistics, by default or by the property that lists them.

Statistics are kept for leaves: a struct counts as its leaves, an array or map as one.  The default
is the first 32 leaves in schema order; partition columns never count.  The property
`delta.dataSkippingStatsColumns` names columns instead (logical names; a struct means all
below it).  `stats` formats the statistics.  PROTOCOL.md, "Per-file Statistics".

>>> parse_column_list("a, `b.c`.d")
(('a',), ('b.c', 'd'))
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from pyspark_delta.errors import PropertyError, SchemaError
from pyspark_delta.kernel.protocol.column_mapping import ColumnMappingMode, physical_name
from pyspark_delta.kernel.protocol.types import (
    BOOLEAN,
    DATETIME_TYPES,
    LONG,
    NUMBER_TYPES,
    STRING,
    DataType,
    DecimalType,
    StructField,
    StructType,
    column_name,
)
from pyspark_delta.kernel.sql.quoting import quoted_name

STATS_COLUMNS_KEY = "delta.dataSkippingStatsColumns"
DEFAULT_NUM_INDEXED = 32

_BOUNDED = NUMBER_TYPES | DATETIME_TYPES | {STRING}
_PART = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s`.,]+))\s*")
_PLAIN = re.compile(r"[A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsColumn:
    """A leaf with statistics, with its logical and its physical path."""

    path: tuple[str, ...]
    physical_path: tuple[str, ...]
    data_type: DataType

    @property
    def has_bounds(self) -> bool:
        """Whether minimum and maximum are collected; nulls are counted for every leaf."""
        return has_bounds(self.data_type)


def has_bounds(data_type: DataType) -> bool:
    """Whether values of the type have a minimum and a maximum for data skipping."""
    return data_type in _BOUNDED or isinstance(data_type, DecimalType)


def stats_columns(
    schema: StructType,
    partition_columns: Sequence[str] = (),
    *,
    mode: ColumnMappingMode = ColumnMappingMode.NONE,
    num_indexed: int = DEFAULT_NUM_INDEXED,
    listed: str | None = None,
) -> tuple[StatsColumn, ...]:
    """The leaves to collect statistics for, in schema order.

    `num_indexed` is `delta.dataSkippingNumIndexedCols` (negative: all of them); `listed` is
    `delta.dataSkippingStatsColumns`, which takes precedence.
    """
    partitions = {name.lower() for name in partition_columns}
    data_columns = StructType(tuple(f for f in schema if f.name.lower() not in partitions))
    leaves = _leaves(data_columns, (), (), mode)
    if listed is None:
        return tuple(leaves if num_indexed < 0 else islice(leaves, num_indexed))
    prefixes = [_lower(path) for path in parse_column_list(listed)]
    return tuple(
        leaf for leaf in leaves if any(_lower(leaf.path)[: len(path)] == path for path in prefixes)
    )


def stats_schema(columns: Sequence[StatsColumn], *, tight_bounds: bool) -> StructType:
    """The struct of `stats_parsed` in a checkpoint, with physical names, all nullable.

    `tight_bounds` when the table supports deletion vectors.
    """
    bounds = _nested([(c.physical_path, c.data_type) for c in columns if c.has_bounds])
    nulls = _nested([(c.physical_path, LONG) for c in columns])
    fields = [StructField("numRecords", LONG)]
    if bounds.fields:
        fields += [StructField("minValues", bounds), StructField("maxValues", bounds)]
    if nulls.fields:
        fields.append(StructField("nullCount", nulls))
    if tight_bounds:
        fields.append(StructField("tightBounds", BOOLEAN))
    return StructType(tuple(fields))


def parse_column_list(text: str) -> tuple[tuple[str, ...], ...]:
    """The paths in a comma-separated list of column names; dots go into structs."""
    if not text.strip():
        return ()
    paths: list[tuple[str, ...]] = []
    parts: list[str] = []
    at, separator = 0, ","
    while separator:
        match = _PART.match(text, at)
        at = match.end() if match else 0
        separator = text[at : at + 1]
        if match is None or separator not in ("", ".", ","):
            raise PropertyError(
                "DELTA_INVALID_TABLE_PROPERTY",
                key=STATS_COLUMNS_KEY,
                value=text,
                reason="it must be a comma-separated list of column names",
            )
        parts.append(match[2] or match[1].replace("``", "`"))
        at += 1
        if separator != ".":
            paths.append(tuple(parts))
            parts = []
    return tuple(paths)


def format_column_list(paths: Sequence[Sequence[str]]) -> str:
    """The text of a list of paths; names that are not plain words are in backquotes."""
    return ",".join(
        ".".join(part if _PLAIN.fullmatch(part) else quoted_name(part) for part in path)
        for path in paths
    )


def check_stats_columns(schema: StructType, partition_columns: Sequence[str], listed: str) -> None:
    """Raise unless `delta.dataSkippingStatsColumns` can be `listed` for this table."""
    partitions = {name.lower() for name in partition_columns}
    seen: set[tuple[str, ...]] = set()
    duplicates: list[str] = []
    for path in parse_column_list(listed):
        if len(path) == 1 and path[0].lower() in partitions:
            raise SchemaError(
                "DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_PARTITIONED_COLUMN",
                column=column_name(path),
            )
        f = schema.find(path)
        if f is None:
            raise SchemaError(
                "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA",
                columnName=column_name(path),
                tableSchema=schema.simple_string,
            )
        for leaf in _field_leaves(f, path[:-1], path[:-1], ColumnMappingMode.NONE):
            # For leaves below a listed struct, nulls are counted at least.
            if len(leaf.path) == len(path) and not leaf.has_bounds:
                raise SchemaError(
                    "DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_TYPE",
                    column=column_name(leaf.path),
                    type=leaf.data_type.simple_string,
                )
            key = _lower(leaf.path)
            if key in seen:
                duplicates.append(column_name(leaf.path))
            seen.add(key)
    if duplicates:
        raise SchemaError("DELTA_DUPLICATE_DATA_SKIPPING_COLUMNS", columns=",".join(duplicates))


def rename_in_column_list(listed: str, old: Sequence[str], new: Sequence[str]) -> str:
    """The list with the column `old`, and all below it, renamed to `new`."""
    prefix = _lower(old)
    return format_column_list(
        [
            (*new, *path[len(prefix) :]) if _lower(path)[: len(prefix)] == prefix else path
            for path in parse_column_list(listed)
        ]
    )


def drop_from_column_list(listed: str, dropped: Sequence[Sequence[str]]) -> str:
    """The list without the columns `dropped` and all below them."""
    prefixes = [_lower(path) for path in dropped]
    return format_column_list(
        [
            path
            for path in parse_column_list(listed)
            if not any(_lower(path)[: len(prefix)] == prefix for prefix in prefixes)
        ]
    )


def _lower(path: Sequence[str]) -> tuple[str, ...]:
    return tuple(part.lower() for part in path)


def _leaves(
    struct: StructType, path: tuple[str, ...], physical: tuple[str, ...], mode: ColumnMappingMode
) -> Iterator[StatsColumn]:
    for f in struct:
        yield from _field_leaves(f, path, physical, mode)


def _field_leaves(
    f: StructField, path: tuple[str, ...], physical: tuple[str, ...], mode: ColumnMappingMode
) -> Iterator[StatsColumn]:
    here, there = (*path, f.name), (*physical, physical_name(f, mode))
    if isinstance(f.data_type, StructType):
        yield from _leaves(f.data_type, here, there, mode)
    else:
        yield StatsColumn(path=here, physical_path=there, data_type=f.data_type)


def _nested(leaves: Sequence[tuple[tuple[str, ...], DataType]]) -> StructType:
    """A struct of leaves given by their paths, in their order."""
    children: dict[str, list[tuple[tuple[str, ...], DataType]]] = {}
    for path, data_type in leaves:
        children.setdefault(path[0], []).append((path[1:], data_type))
    return StructType(
        tuple(
            StructField(name, below[0][1] if not below[0][0] else _nested(below))
            for name, below in children.items()
        )
    )
