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
    Leaf,
    parse_stats,
    stat_name,
)

_KEPT: WeakKeyDictionary[ColumnSource, dict[Leaf, pa.Table]] = WeakKeyDictionary()
_LOCK = Lock()


def parsed_stats(state: FileState, leaves: Sequence[Leaf]) -> pa.Table:
    """Counts and bounds of `leaves` for every live file, rows as in `state.columns`."""
    tables = [_part_stats(part, leaves) for part in state.parts]
    if not tables:
        return parse_stats(pa.chunked_array([], pa.string()), leaves)
    return pa.concat_tables(tables)


def _part_stats(part: FilePart, leaves: Sequence[Leaf]) -> pa.Table:
    table = _source_stats(part.source, leaves)
    return table if part.live is None else table.filter(part.live)


def _source_stats(source: ColumnSource, leaves: Sequence[Leaf]) -> pa.Table:
    with _LOCK:
        kept = _KEPT.setdefault(source, {})
    # Two threads may parse the same: that is a waste, and no harm.
    missing = [leaf for leaf in leaves if leaf not in kept]
    if missing:
        parsed = parse_stats(source.columns(["stats"]).column("stats"), missing)
        for leaf in missing:
            kept[leaf] = parsed.select(
                [name for name in _names(leaf) if name in parsed.column_names]
            )
    columns = {name: kept[leaf].column(name) for leaf in leaves for name in kept[leaf].column_names}
    return pa.table(columns)


def _names(leaf: Leaf) -> list[str]:
    stats = [NULL_COUNT, *(side.value for side in Side)]
    return [NUM_RECORDS, *(stat_name(stat, leaf.path) for stat in stats)]
