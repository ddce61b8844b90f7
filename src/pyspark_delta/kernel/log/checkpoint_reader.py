"""Checkpoints, read column by column: classic, multi-part, V2 by uuid or classic name, sidecars.

Only what somebody asks for is read.  Whatever cannot be read as a checkpoint raises
CorruptLogError with the condition DELTA_MALFORMED_CHECKPOINT: the caller then goes on without it.
PROTOCOL.md, "Checkpoints" and "V2 Spec".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyspark_delta.errors.base import DeltaError
from pyspark_delta.errors.storage import FileMissingError
from pyspark_delta.errors.table import CorruptLogError, UnsafePathError
from pyspark_delta.kernel.log.commit_lines import actions_from_json
from pyspark_delta.kernel.log.frames import (
    ADD_SCHEMA,
    REMOVE_SCHEMA,
    add_table,
    conform,
    file_keys,
    remove_table,
)
from pyspark_delta.kernel.log.replay import ColumnSource, FilePart, TableSource
from pyspark_delta.kernel.log.segment import CheckpointFiles
from pyspark_delta.kernel.log.stats_text import stats_texts
from pyspark_delta.kernel.protocol.actions import (
    ACTIONS,
    Action,
    AddFile,
    CheckpointMetadata,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    SidecarFile,
)
from pyspark_delta.kernel.protocol.codec import MalformedRecordError
from pyspark_delta.kernel.protocol.paths import SIDECAR_DIRECTORY, LogFileKind, sidecar_path
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.storage.uris import resolve_action_path

_STATE_ACTIONS = (Protocol, Metadata, SetTransaction, DomainMetadata)
_TOP_ACTIONS = (*_STATE_ACTIONS, CheckpointMetadata, SidecarFile)
# The shortest row that a file action can take up, with room to spare: more rows than this in a
# file of that size were not written by a table's owner.
_MOST_ROWS_PER_BYTE = 2
# Texts that are in memory at once when their column is read piece by piece.
_STREAMED_ROWS = 8_192
_MANY = 50_000
_MAPS = ("configuration", "options", "tags")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint, opened: its state actions, and the Parquet files with its file actions."""

    version: int
    state_actions: tuple[Action, ...]
    file_paths: tuple[str, ...]
    json_adds: tuple[AddFile, ...] = ()
    json_removes: tuple[RemoveFile, ...] = ()


class CheckpointSource(ColumnSource):
    """The add actions of one Parquet file, a column at a time."""

    def __init__(self, store: LogStore, path: str) -> None:
        self._store = store
        self._path = path
        self._num_rows: int | None = None

    def columns(self, names: Sequence[str]) -> pa.Table:
        table = read_file_actions(self._store, self._path, "add", names, ADD_SCHEMA)
        self._check_rows(table.num_rows)
        return table

    def stats_texts(self) -> Iterator[pa.Array]:
        with _as_malformed(self._path), _opened(self._store, self._path) as file:
            top = file.schema_arrow
            present = {f.name for f in _struct_type(top, "add")} if "add" in top.names else set()
            # Beside typed statistics the text may be missing, which only the whole column tells.
            if "stats" in present and "stats_parsed" not in present:
                yield from self._streamed_stats(file)
                return
        stored = self.columns(["stats"]).column("stats")
        made = self.made_stats() if stored.null_count == len(stored) else None
        yield from (stored if made is None else made).chunks

    def made_stats(self, rows: pa.BooleanArray | None = None) -> pa.ChunkedArray | None:
        """By row groups: all typed statistics of a large table at once are more than its files."""
        with _as_malformed(self._path), _opened(self._store, self._path) as file:
            if not _has_parsed(file.schema_arrow, "stats_parsed"):
                return None
            texts, start = [], 0
            for group in range(file.num_row_groups):
                column = file.read_row_group(group, columns=["add.path"]).column("add")
                num_adds = len(column) - column.null_count
                wanted = None if rows is None else rows.slice(start, num_adds)
                start += num_adds
                if num_adds and (wanted is None or wanted.true_count):
                    texts += self._group_texts(file, group, wanted)
            self._check_rows(start)
            return pa.chunked_array(texts, pa.string())

    def _group_texts(
        self, file: pq.ParquetFile, group: int, wanted: pa.BooleanArray | None
    ) -> list[pa.Array]:
        columns = ["add.path", "add.stats_parsed"]
        adds = _without_nulls(file.read_row_group(group, columns=columns).column("add"))
        parsed = pa.chunked_array([pc.struct_field(chunk, "stats_parsed") for chunk in adds.chunks])
        if wanted is not None:
            parsed = parsed.filter(wanted)
        return [stats_texts(chunk) for chunk in parsed.chunks if len(chunk)]

    def _streamed_stats(self, file: pq.ParquetFile) -> Iterator[pa.Array]:
        num_rows = 0
        for batch in file.iter_batches(_STREAMED_ROWS, columns=["add.stats"], use_threads=False):
            rows = _without_nulls(pa.chunked_array([batch.column("add")]))
            texts = _field(rows, "stats", {"stats"}, ADD_SCHEMA.field("stats").type)
            texts.validate(full=True)
            num_rows += len(texts)
            yield from texts.chunks
        self._check_rows(num_rows)

    def parsed_stats(self, leaves: Sequence[tuple[str, ...]]) -> pa.ChunkedArray | None:
        if any("." in name for leaf in leaves for name in leaf):
            return None  # Arrow would take it for a step into a struct
        kinds = ("minValues", "maxValues", "nullCount")
        wanted = [".".join((kind, *leaf)) for leaf in leaves for kind in kinds]
        parsed = read_parsed(
            self._store, self._path, "stats_parsed", ["numRecords", "tightBounds", *wanted]
        )
        if parsed is not None:
            self._check_rows(len(parsed))
        return parsed

    def _check_rows(self, num_rows: int) -> None:
        if self._num_rows is None:
            self._num_rows = num_rows
        elif num_rows != self._num_rows:
            # Which rows are adds is told by each column anew, and damage may hit one of them.
            raise _malformed(self._path, "its columns do not agree on the number of adds")


def open_checkpoint(store: LogStore, files: CheckpointFiles) -> Checkpoint:
    """The checkpoint's actions that are not about files, and where those that are can be read."""
    if files.kind is LogFileKind.UUID_CHECKPOINT and files.files[0].name.format == "json":
        return _open_json(store, files)
    paths = [file.info.path for file in files.files]
    actions = [action for path in paths for action in _top_actions(store, path)]
    sidecars = [action for action in actions if isinstance(action, SidecarFile)]
    state = tuple(action for action in actions if isinstance(action, _STATE_ACTIONS))
    _check_state(paths[0], state)
    if sidecars:
        return Checkpoint(files.version, state, _sidecar_paths(store, paths[0], sidecars))
    return Checkpoint(files.version, state, tuple(paths))


def is_v2(store: LogStore, files: CheckpointFiles) -> bool:
    """Whether only clients that know V2 checkpoints can read it: by its name, or by its content."""
    if files.kind is not LogFileKind.CLASSIC_CHECKPOINT:
        return files.kind is LogFileKind.UUID_CHECKPOINT
    actions = _top_actions(store, files.files[0].info.path)
    return any(isinstance(action, CheckpointMetadata | SidecarFile) for action in actions)


def _check_state(path: str, state: Sequence[Action]) -> None:
    """A checkpoint holds the whole state: one without these was not finished."""
    for kind in (Protocol, Metadata):
        if not any(isinstance(action, kind) for action in state):
            raise _malformed(path, f"it has no {kind.KEY}")


def checkpoint_parts(store: LogStore, checkpoint: Checkpoint) -> list[FilePart]:
    """The checkpoint's add actions as parts of a state; only their keys are read now."""
    parts = []
    if checkpoint.json_adds:
        table = add_table(checkpoint.json_adds)
        parts.append(FilePart(TableSource(table), file_keys(table, store.root_uri)))
    for path in checkpoint.file_paths:
        source = CheckpointSource(store, path)
        table = source.columns(["path", "deletionVector"])
        keys = file_keys(table, store.root_uri)
        if len(keys):
            # Most paths are their own keys: kept, they are in memory once.
            parts.append(FilePart(source, keys, None, {"path": table.column("path")}))
    if sum(len(part.keys) for part in parts) > _MANY:
        # Reading took several times the memory of the keys, and Arrow's pool keeps it.
        pa.default_memory_pool().release_unused()
    return parts


def checkpoint_removes(store: LogStore, checkpoint: Checkpoint) -> pa.Table:
    """The checkpoint's tombstones."""
    names = REMOVE_SCHEMA.names
    tables = [
        read_file_actions(store, path, "remove", names, REMOVE_SCHEMA)
        for path in checkpoint.file_paths
    ]
    return pa.concat_tables([remove_table(checkpoint.json_removes), *tables])


def read_file_actions(
    store: LogStore, path: str, kind: str, names: Sequence[str], schema: pa.Schema
) -> pa.Table:
    """Columns of the rows that are adds, or removes; absent columns are null."""
    with _as_malformed(path), _opened(store, path) as file:
        top = file.schema_arrow
        wanted = pa.schema([schema.field(name) for name in names])
        index = top.get_field_index(kind)
        if index < 0:
            return wanted.empty_table()
        present = {f.name for f in _struct_type(top, kind)}
        # `path` tells which rows are actions of this kind: it is never null in one.
        if "path" not in present:
            raise MalformedRecordError(f"its {kind} column has no path")
        asked = {name for name in names if name in present} or {"path"}
        table = file.read(columns=[f"{kind}.{name}" for name in sorted(asked)])
        rows = _without_nulls(table.column(kind))
        arrays = [_field(rows, name, present, wanted.field(name).type) for name in names]
        read = pa.table(arrays, schema=wanted)
        # What is read is used long after this, where bytes that are no text would do harm.
        read.validate(full=True)
        if "path" in names and read.column("path").null_count:
            raise MalformedRecordError(f"a row of its {kind} column has no path")
        return read


def read_parsed(
    store: LogStore, path: str, name: str, parts: Sequence[str] | None = None
) -> pa.ChunkedArray | None:
    """The struct `add.name` (stats_parsed, partitionValues_parsed) of every add; None if absent.

    `parts` are the dotted paths below it that matter, all of them when there are none.
    """
    with _as_malformed(path), _opened(store, path) as file:
        top = file.schema_arrow
        if not _has_parsed(top, name):
            return None
        below = [f".{part}" for part in parts] if parts is not None else [""]
        columns = ["add.path", *(f"add.{name}{part}" for part in below)]
        column = _without_nulls(file.read(columns=columns).column("add"))
        if column.type.get_field_index(name) < 0:
            return None  # it has none of the parts
        chunks = [pc.struct_field(chunk, name) for chunk in column.chunks]
        return pa.chunked_array(chunks, column.type.field(name).type)


def _has_parsed(top: pa.Schema, name: str) -> bool:
    return top.get_field_index("add") >= 0 and name in {f.name for f in _struct_type(top, "add")}


def _without_nulls(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The rows that are there.  Writers put them side by side, and a slice copies nothing."""
    if not column.null_count:
        return column
    rows = len(column) - column.null_count
    first = pc.index(column.is_valid(), True).as_py() if rows else 0
    together = column.slice(first, rows)
    return column.drop_null() if together.null_count else together


def _field(
    rows: pa.ChunkedArray, name: str, present: set[str], wanted: pa.DataType
) -> pa.ChunkedArray:
    if name not in present:
        return pa.chunked_array([pa.nulls(len(rows), wanted)])
    # No row is null any more, so a child array is its column as it stands.
    chunks = [chunk.field(name) for chunk in rows.chunks]
    return conform(pa.chunked_array(chunks, rows.type.field(name).type), wanted)


def _top_actions(store: LogStore, path: str) -> list[Action]:
    """Every action of a Parquet file that is not about a data file."""
    with _as_malformed(path), _opened(store, path) as file:
        top = set(file.schema_arrow.names)
        keys = [kind.KEY for kind in _TOP_ACTIONS if kind.KEY in top]
        for key in keys:
            _struct_type(file.schema_arrow, key)
        actions = []
        # By batches: they are few among as many rows as the table has files.
        for batch in file.iter_batches(_STREAMED_ROWS, columns=keys, use_threads=False):
            for key in keys:
                for row in batch.column(key).drop_null().to_pylist():
                    actions.append(ACTIONS[key].from_json_value(_json_value(row)))
        return actions


def _struct_type(schema: pa.Schema, name: str) -> pa.StructType:
    found = schema.field(name).type
    if not pa.types.is_struct(found):
        raise MalformedRecordError(f"its {name} column is no struct")
    return found


def _json_value(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a state action as the JSON object it came from: no nulls, maps as objects."""
    value: dict[str, Any] = {}
    for name, item in row.items():
        if item is None:
            continue
        if isinstance(item, dict):
            value[name] = _json_value(item)
        elif name in _MAPS and isinstance(item, list):
            value[name] = dict(item)
        else:
            value[name] = item
    return value


def _open_json(store: LogStore, files: CheckpointFiles) -> Checkpoint:
    path = files.files[0].info.path
    with _as_malformed(path):
        actions = list(actions_from_json(path, store.read(path)))
    if not any(isinstance(action, CheckpointMetadata) for action in actions):
        raise _malformed(path, "it has no checkpointMetadata")
    sidecars = [action for action in actions if isinstance(action, SidecarFile)]
    state = tuple(action for action in actions if isinstance(action, _STATE_ACTIONS))
    _check_state(path, state)
    return Checkpoint(
        version=files.version,
        state_actions=state,
        file_paths=_sidecar_paths(store, path, sidecars),
        json_adds=tuple(a for a in actions if isinstance(a, AddFile)),
        json_removes=tuple(a for a in actions if isinstance(a, RemoveFile)),
    )


def _sidecar_paths(
    store: LogStore, checkpoint: str, sidecars: Sequence[SidecarFile]
) -> tuple[str, ...]:
    paths = tuple(_sidecar_location(store, sidecar.path) for sidecar in sidecars)
    if len(set(paths)) != len(paths):
        raise _malformed(checkpoint, "it names a sidecar twice")
    return paths


def _sidecar_location(store: LogStore, path: str) -> str:
    """Where a sidecar is: always in the table's own sidecar directory, however it is spelled."""
    bare = "/" not in path and ":" not in path
    resolved = resolve_action_path(
        sidecar_path(path) if bare else path.removeprefix("./"), store.root_uri
    )
    parent, _, name = resolved.path.rpartition("/")
    if resolved.is_absolute or parent != SIDECAR_DIRECTORY or not name:
        raise UnsafePathError(
            "DELTA_UNSAFE_PATH",
            path=path,
            table=store.root_uri,
            reason="a sidecar lives in _delta_log/_sidecars",
        )
    return resolved.path


@contextmanager
def _opened(store: LogStore, path: str) -> Iterator[pq.ParquetFile]:
    source = store.arrow_file(path)
    try:
        size = source.size()
        # Reading ahead holds whole columns in memory beside the decoded ones: worth it only where
        # every read is a round trip.
        ahead = not store.probes_cheaply
        buffer_size = 0 if ahead else 1 << 20
        with pq.ParquetFile(source, pre_buffer=ahead, buffer_size=buffer_size) as file:
            _check_counts(file.metadata, size)
            yield file
    finally:
        source.close()


def _check_counts(footer: pq.FileMetaData, size: int) -> None:
    """Refuse a file that claims far more rows than its bytes can be meant for.

    Row groups, not their columns: pyarrow ends the process for a damaged column's metadata.
    """
    rows = [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]
    if min(rows, default=0) < 0 or sum(rows) != footer.num_rows:
        raise MalformedRecordError("its footer does not agree on the number of rows")
    if footer.num_rows > _MOST_ROWS_PER_BYTE * size:
        raise MalformedRecordError(f"{footer.num_rows} rows cannot be in {size} bytes")


@contextmanager
def _as_malformed(path: str) -> Iterator[None]:
    """Arrow's errors, and a missing file, as the one error that makes a reader do without."""
    try:
        yield
    except CorruptLogError as error:
        raise _malformed(
            path, f"line {error.parameters['line']}: {error.parameters['reason']}"
        ) from error
    except FileMissingError as error:
        raise _malformed(path, "it is not there") from error
    except DeltaError:
        raise
    except Exception as error:  # a damaged file can cause any kind in pyarrow
        raise _malformed(path, f"it cannot be read ({error})") from error


def _malformed(path: str, reason: str) -> CorruptLogError:
    return CorruptLogError("DELTA_MALFORMED_CHECKPOINT", path=path, reason=reason)
