"""Parsed statistics, kept: parsing text costs far more than comparing numbers.

What is kept belongs to a source of add actions, which outlives the version it was read for, so
that after a commit only what the commit added is parsed.  It goes when its source goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from weakref import WeakKeyDictionary

import pyarrow as pa

from pyspark_delta.kernel.log.replay import ColumnSource, FilePart, FileState
from pyspark_delta.kernel.scan.stats_bounds import Side
from pyspark_delta.kernel.scan.stats_columns import (
    NULL_COUNT,
    NUM_RECORDS,
    ROWS_ALONE,
    TIGHT_BOUNDS,
    Leaf,
    parse_pieces,
    parse_stats,
    stat_name,
    struct_stats,
)

# Partition values may leave so few files that parsing the others for later does not pay.
_FEW = 0.2
_MANY = 50_000

_KEPT: WeakKeyDictionary[ColumnSource, dict[Leaf, pa.Table]] = WeakKeyDictionary()
_LOCK = Lock()


def parsed_stats(state: FileState, wanted: pa.BooleanArray, leaves: Sequence[Leaf]) -> pa.Table:
    """Counts and bounds of `leaves`, for the live files that are `wanted`.

    `wanted` has a row for each row of `state.columns`, and the result one for each that is true.
    """
    tables = [parse_stats(pa.chunked_array([], pa.string()), leaves)]
    start = 0
    for part in state.parts:
        tables.append(_part_stats(part, wanted.slice(start, part.num_live), leaves))
        start += part.num_live
    return pa.concat_tables(tables)


def _part_stats(part: FilePart, wanted: pa.BooleanArray, leaves: Sequence[Leaf]) -> pa.Table:
    if not wanted.true_count:
        return parse_stats(pa.chunked_array([], pa.string()), leaves)
    with _LOCK:
        kept = _KEPT.setdefault(part.source, {})
    # Two threads may parse the same: that is a waste, and no harm.
    missing = [leaf for leaf in leaves if leaf not in kept]
    if missing:
        paths = [leaf.physical_path for leaf in missing if leaf != ROWS_ALONE]
        typed = part.source.parsed_stats(paths)
        if typed is not None:
            _keep(kept, struct_stats(typed, missing), missing)
    missing = [leaf for leaf in leaves if leaf not in kept]
    if missing:
        if wanted.true_count < _FEW * len(part.keys):
            return parse_stats(part.live_stats(wanted), leaves)
        _keep(kept, parse_pieces(part.source.stats_texts(), missing), missing)
        if len(part.keys) > _MANY:
            # Parsing took several times the memory of what it gave, and Arrow's pool keeps it.
            pa.default_memory_pool().release_unused()
    columns = {name: kept[leaf].column(name) for leaf in leaves for name in kept[leaf].schema.names}
    return _live(part, pa.table(columns)).filter(wanted)


def _live(part: FilePart, table: pa.Table) -> pa.Table:
    return table if part.live is None else table.filter(part.live)


def _keep(kept: dict[Leaf, pa.Table], parsed: pa.Table, leaves: Sequence[Leaf]) -> None:
    stats = (NULL_COUNT, *(side.value for side in Side))
    present = set(parsed.schema.names)
    for leaf in leaves:
        names = [stat_name(stat, leaf.path) for stat in stats]
        found = (name for name in names if name in present)
        kept[leaf] = parsed.select([NUM_RECORDS, TIGHT_BOUNDS, *found])
