"""Reconcile frames and checkpoints into the state of a version: its files, in Arrow, and the rest.

The files are a few parts, each a column source with a mask of its live rows.  A newer frame masks
its keys in every older part and becomes a part itself, so that the cost of a refresh depends on
the new commit and not on the size of the table.  PROTOCOL.md, "Action Reconciliation".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from threading import RLock

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors import CorruptLogError
from pyspark_delta.kernel.log.frames.action_frame import ActionFrame, have_no_key_in_common
from pyspark_delta.kernel.log.frames.file_actions import ADD_SCHEMA
from pyspark_delta.kernel.protocol.actions import (
    Action,
    DomainMetadata,
    Metadata,
    Protocol,
    SetTransaction,
)

# Parts this small are merged with their neighbours, and one that is mostly dead is rewritten.
_SMALL_ROWS = 2048


class ColumnSource(ABC):
    """Columns of add actions, fetched on demand.

    1. Every column has one value per row, and rows keep their order for the life of the source.
    2. `columns` returns exactly the requested names, with the types of `ADD_SCHEMA`.
    3. `stats` is the text that the log has: null where the log has only typed statistics.
    """

    @abstractmethod
    def columns(self, names: Sequence[str]) -> pa.Table:
        """The columns called `names`, every row."""

    def stats_texts(self) -> Iterator[pa.Array]:
        """The column `stats` in pieces, for callers that parse it and do not keep the text."""
        yield from self.columns(["stats"]).column("stats").chunks

    def formatted_stats(self, rows: pa.BooleanArray | None = None) -> pa.ChunkedArray | None:
        """Text formatted from typed statistics, for the rows of a mask; None without them."""
        return None

    def parsed_stats(self, leaves: Sequence[tuple[str, ...]]) -> pa.ChunkedArray | None:
        """Typed statistics of every row, of these physical columns at least.

        A struct as in the checkpoint column `stats_parsed`; None when there is only the text.
        """
        return None


class TableSource(ColumnSource):
    """A table that is in memory already."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def columns(self, names: Sequence[str]) -> pa.Table:
        return self._table.select(list(names))


@dataclass(frozen=True, kw_only=True)
class FilePart:
    """Rows of one source, the keys of all of them, and which are live (None: all)."""

    source: ColumnSource
    keys: pa.Array
    live: pa.Array | None = None
    _cache: dict[str, pa.ChunkedArray] = field(default_factory=dict, repr=False, compare=False)

    @property
    def num_live(self) -> int:
        return len(self.keys) if self.live is None else int(self.live.true_count)

    def live_columns(self, names: Sequence[str]) -> pa.Table:
        missing = [name for name in names if name not in self._cache]
        if missing:
            table = self.source.columns(missing)
            if self.live is not None:
                table = table.filter(self.live)
            self._cache.update({name: table.column(name) for name in missing})
        return pa.table({name: self._cache[name] for name in names})

    def live_stats(self, rows: pa.BooleanArray | None = None) -> pa.ChunkedArray:
        """Statistics text of the live rows that a mask selects, formatted from types if need be."""
        stored = self.live_columns(["stats"]).column("stats")
        if stored.null_count == len(stored):
            wanted = self.live if rows is None else rows
            if self.live is not None and rows is not None:
                wanted = pc.replace_with_mask(self.live, self.live, rows)
            formatted = self.source.formatted_stats(wanted)
            if formatted is not None:
                return formatted
        return stored if rows is None else stored.filter(rows)

    def live_keys(self) -> pa.Array:
        return self.keys if self.live is None else self.keys.filter(self.live)

    def without(self, keys: pa.Array) -> FilePart:
        """The part without the rows of `keys`, which newer actions replace."""
        replaced = pc.is_in(self.keys, value_set=keys)
        if self.live is not None:
            replaced = pc.and_(replaced, self.live)
        if not replaced.true_count:
            return self
        live = pc.invert(replaced) if self.live is None else pc.and_not(self.live, replaced)
        return FilePart(source=self.source, keys=self.keys, live=live)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """The reconciled state apart from files: the newest action of each kind, application, domain.

    `domains` keeps removed ones, so that they can hide older ones.
    """

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: dict[str, SetTransaction] = field(default_factory=dict)
    domains: dict[str, DomainMetadata] = field(default_factory=dict)

    def apply(self, actions: Iterable[Action]) -> TableState:
        """The state after newer actions, given oldest first."""
        protocol, metadata = self.protocol, self.metadata
        transactions: dict[str, SetTransaction] = {}
        domains: dict[str, DomainMetadata] = {}
        for action in actions:
            match action:
                case Protocol():
                    protocol = action
                case Metadata():
                    metadata = action
                case SetTransaction():
                    transactions[action.app_id] = action
                case DomainMetadata():
                    domains[action.domain] = action
        return TableState(
            protocol=protocol,
            metadata=metadata,
            transactions=self.transactions | transactions if transactions else self.transactions,
            domains=self.domains | domains if domains else self.domains,
        )

    def checked(self, version: int) -> tuple[Protocol, Metadata]:
        """Protocol and metadata, which every table has; CorruptLogError if one is missing."""
        if self.protocol is None or self.metadata is None:
            missing = "protocol" if self.protocol is None else "metadata"
            raise CorruptLogError("DELTA_STATE_RECOVER_ERROR", operation=missing, version=version)
        return self.protocol, self.metadata

    @property
    def live_domains(self) -> dict[str, DomainMetadata]:
        return {name: action for name, action in self.domains.items() if not action.removed}


class FileState:
    """The live files of one version.  Immutable, but for columns it has fetched."""

    def __init__(self, parts: Sequence[FilePart]) -> None:
        self.parts = tuple(parts)
        """The parts, oldest first."""
        self._lock = RLock()

    @property
    def num_files(self) -> int:
        return sum(part.num_live for part in self.parts)

    @property
    def size_in_bytes(self) -> int:
        return pc.sum(self.columns(["size"]).column("size")).as_py() or 0

    def columns(self, names: Sequence[str]) -> pa.Table:
        """The columns `names` of every live file, in `ADD_SCHEMA`'s types.

        Statistics are null where the log has only typed ones: `complete` formats their text.
        """
        schema = pa.schema([ADD_SCHEMA.field(name) for name in names])
        with self._lock:
            tables = [part.live_columns(names).cast(schema) for part in self.parts]
        return pa.concat_tables(tables) if tables else schema.empty_table()

    def complete(self, names: Sequence[str], rows: pa.BooleanArray | None = None) -> pa.Table:
        """As `columns`, of the live files that a mask selects, with all statistics as text."""
        schema = pa.schema([ADD_SCHEMA.field(name) for name in names])
        if isinstance(rows, pa.ChunkedArray):
            rows = rows.combine_chunks()
        tables, start = [schema.empty_table()], 0
        with self._lock:
            for part in self.parts:
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
        return [part.live_keys() for part in self.parts]

    def apply(self, frame: ActionFrame) -> FileState:
        if not frame.num_rows:
            return self
        frame = frame.reconciled()
        touched = frame.keys
        parts = [part.without(touched) for part in self.parts]
        if frame.adds.num_rows:
            parts.append(FilePart(source=TableSource(frame.adds), keys=frame.add_keys))
        return FileState(_merged(parts))


def replay(base: Iterable[FilePart], frames: Iterable[ActionFrame]) -> FileState:
    """The live files of a checkpoint (its parts) and the frames after it, oldest first."""
    parts, newer = list(base), list(frames)
    if len(newer) > 1 and have_no_key_in_common(newer):
        if parts:
            touched = pa.concat_arrays([frame.keys for frame in newer])
            parts = [part.without(touched) for part in parts]
        added = [
            FilePart(source=TableSource(f.adds), keys=f.add_keys) for f in newer if f.adds.num_rows
        ]
        return FileState([*parts, *added])
    return reduce(FileState.apply, newer, FileState(parts))


def _merged(parts: list[FilePart]) -> list[FilePart]:
    """Neighbours of like size become one, so that there are few parts however many commits."""
    while len(parts) > 1 and _should_merge(parts[-2], parts[-1]):
        newer, older = parts.pop(), parts.pop()
        names = ADD_SCHEMA.names
        table = pa.concat_tables([older.live_columns(names), newer.live_columns(names)])
        keys = pa.concat_arrays([older.live_keys(), newer.live_keys()])
        parts.append(FilePart(source=TableSource(table.combine_chunks()), keys=keys))
    return [part for part in parts if part.num_live]


def _should_merge(older: FilePart, newer: FilePart) -> bool:
    if not isinstance(older.source, TableSource):
        return False
    rows = len(older.keys)
    return rows <= _SMALL_ROWS and rows <= 2 * len(newer.keys)
