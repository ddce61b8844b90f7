"""Which files are live: frames and checkpoints, reconciled in Arrow.

A state is a few parts, each a column source with a mask of its live rows.  A newer frame knocks
its keys out of every older part and becomes a part itself, so that a refresh costs what the new
commit costs, not what the table costs.  PROTOCOL.md, "Action Reconciliation".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import RLock

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.kernel.log.action_frame import ActionFrame, have_no_key_in_common
from pyspark_delta.kernel.log.frames import ADD_SCHEMA

# Parts this small are merged with their neighbours, and one that is mostly dead is rewritten.
_SMALL_ROWS = 2048


class ColumnSource(ABC):
    """Columns of add actions, fetched when somebody asks.

    1. Every column has one value per row, and rows keep their order for the life of the source.
    2. `columns` gives exactly the names asked for, with the types of `ADD_SCHEMA`.
    3. `stats` is the text that the log has: null where it has statistics in types alone.
    """

    @abstractmethod
    def columns(self, names: Sequence[str]) -> pa.Table:
        """The columns called `names`, every row."""

    def stats_texts(self) -> Iterator[pa.Array]:
        """The column `stats` in pieces, for those who keep what is in it and not the text."""
        yield from self.columns(["stats"]).column("stats").chunks

    def made_stats(self, rows: pa.BooleanArray | None = None) -> pa.ChunkedArray | None:
        """Statistics as text, made of typed ones, for the rows of a mask; None without types."""
        return None

    def parsed_stats(self, leaves: Sequence[tuple[str, ...]]) -> pa.ChunkedArray | None:
        """Typed statistics of every row, of these physical columns at least.

        A struct as checkpoints keep it in `stats_parsed`; None when there is none, and the text
        is all there is.
        """
        return None


class TableSource(ColumnSource):
    """A table that is in memory already."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def columns(self, names: Sequence[str]) -> pa.Table:
        return self._table.select(list(names))


@dataclass(frozen=True)
class FilePart:
    """Rows of one source, the keys of all of them, and which are live (None: all)."""

    source: ColumnSource
    keys: pa.Array
    live: pa.Array | None = None
    _cache: dict[str, pa.ChunkedArray] = field(default_factory=dict, repr=False, compare=False)

    @property
    def num_live(self) -> int:
        """How many rows are live."""
        return len(self.keys) if self.live is None else int(self.live.true_count)

    def live_columns(self, names: Sequence[str]) -> pa.Table:
        """The columns `names` of the live rows."""
        missing = [name for name in names if name not in self._cache]
        if missing:
            table = self.source.columns(missing)
            if self.live is not None:
                table = table.filter(self.live)
            self._cache.update({name: table.column(name) for name in missing})
        return pa.table({name: self._cache[name] for name in names})

    def live_stats(self, rows: pa.BooleanArray | None = None) -> pa.ChunkedArray:
        """Statistics as text of the live rows that a mask selects, made where there is none."""
        stored = self.live_columns(["stats"]).column("stats")
        made = None
        if stored.null_count == len(stored):
            wanted = self.live if rows is None else rows
            if self.live is not None and rows is not None:
                wanted = pc.replace_with_mask(self.live, self.live, rows)
            made = self.source.made_stats(wanted)
        if made is not None:
            return made
        return stored if rows is None else stored.filter(rows)

    def live_keys(self) -> pa.Array:
        """The keys of the live rows."""
        return self.keys if self.live is None else self.keys.filter(self.live)

    def without(self, keys: pa.Array) -> FilePart:
        """The part once `keys` were spoken of again by a newer action."""
        hit = pc.is_in(self.keys, value_set=keys)
        if self.live is not None:
            hit = pc.and_(hit, self.live)
        if not hit.true_count:
            return self
        live = pc.invert(hit) if self.live is None else pc.and_not(self.live, hit)
        return FilePart(self.source, self.keys, live)


class FileState:
    """The live files of one version.  Immutable, but for columns it has fetched."""

    def __init__(self, parts: Sequence[FilePart]) -> None:
        self._parts = tuple(parts)
        self._lock = RLock()

    @property
    def parts(self) -> tuple[FilePart, ...]:
        """The parts, oldest first."""
        return self._parts

    @property
    def num_files(self) -> int:
        """How many files are live."""
        return sum(part.num_live for part in self._parts)

    @property
    def size_in_bytes(self) -> int:
        """The sum of their sizes."""
        return pc.sum(self.columns(["size"]).column("size")).as_py() or 0

    def columns(self, names: Sequence[str]) -> pa.Table:
        """The columns `names` of every live file, in `ADD_SCHEMA`'s types.

        Statistics are null where the log has them in types alone: `complete` makes their text.
        """
        schema = pa.schema([ADD_SCHEMA.field(name) for name in names])
        with self._lock:
            tables = [part.live_columns(names).cast(schema) for part in self._parts]
        return pa.concat_tables(tables) if tables else schema.empty_table()

    def complete(self, names: Sequence[str], rows: pa.BooleanArray | None = None) -> pa.Table:
        """As `columns`, of the live files that a mask selects, with all statistics as text."""
        schema = pa.schema([ADD_SCHEMA.field(name) for name in names])
        if isinstance(rows, pa.ChunkedArray):
            rows = rows.combine_chunks()
        tables, start = [schema.empty_table()], 0
        with self._lock:
            for part in self._parts:
                wanted = None if rows is None else rows.slice(start, part.num_live)
                start += part.num_live
                table = part.live_columns(names)
                if wanted is not None:
                    table = table.filter(wanted)
                if "stats" in names and table.num_rows:
                    stats = part.live_stats(wanted)
                    table = table.set_column(names.index("stats"), "stats", stats)
                tables.append(table.cast(schema))
        return pa.concat_tables(tables)

    def keys(self) -> list[pa.Array]:
        """The live keys, an array for each part."""
        return [part.live_keys() for part in self._parts]

    def apply(self, frame: ActionFrame) -> FileState:
        """The state once a newer frame has been heard."""
        if not frame.num_rows:
            return self
        frame = frame.reconciled()
        touched = frame.keys
        parts = [part.without(touched) for part in self._parts]
        if frame.adds.num_rows:
            parts.append(FilePart(TableSource(frame.adds), frame.add_keys))
        return FileState(_merged(parts))


def replay(base: Iterable[FilePart], frames: Iterable[ActionFrame]) -> FileState:
    """The live files of a checkpoint (its parts) and the frames after it, oldest first."""
    parts, heard = list(base), list(frames)
    if len(heard) > 1 and have_no_key_in_common(heard):
        if parts:
            touched = pa.concat_arrays([frame.keys for frame in heard])
            parts = [part.without(touched) for part in parts]
        added = [FilePart(TableSource(f.adds), f.add_keys) for f in heard if f.adds.num_rows]
        return FileState([*parts, *added])
    state = FileState(parts)
    for frame in heard:
        state = state.apply(frame)
    return state


def _merged(parts: list[FilePart]) -> list[FilePart]:
    """Neighbours of like size become one, so that there are few parts however many commits."""
    while len(parts) > 1 and _should_merge(parts[-2], parts[-1]):
        newer, older = parts.pop(), parts.pop()
        names = ADD_SCHEMA.names
        table = pa.concat_tables([older.live_columns(names), newer.live_columns(names)])
        keys = pa.concat_arrays([older.live_keys(), newer.live_keys()])
        parts.append(FilePart(TableSource(table.combine_chunks()), keys))
    return [part for part in parts if part.num_live]


def _should_merge(older: FilePart, newer: FilePart) -> bool:
    if not isinstance(older.source, TableSource):
        return False
    rows = len(older.keys)
    return rows <= _SMALL_ROWS and rows <= 2 * len(newer.keys)
