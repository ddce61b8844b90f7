"""Read checkpoints by column: classic, multi-part, V2 by uuid or classic name, sidecars.

Only requested columns are read.  A file that cannot be read as a checkpoint raises CorruptLogError
with the condition DELTA_MALFORMED_CHECKPOINT, and the caller continues without that checkpoint.
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

from pyspark_delta.errors import CorruptLogError, DeltaError, FileMissingError, UnsafePathError
from pyspark_delta.kernel.log.checkpoints.stats_text import stats_texts
from pyspark_delta.kernel.log.frames.commit_lines import actions_from_json
from pyspark_delta.kernel.log.frames.file_actions import (
    ADD_SCHEMA,
    REMOVE_SCHEMA,
    add_table,
    conform,
    file_keys,
    remove_table,
)
from pyspark_delta.kernel.log.replay import ColumnSource, FilePart, TableSource
from pyspark_delta.kernel.log.segment import CheckpointFiles
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
# Rows in memory at once when the column of statistics text is read in pieces.
_STREAMED_ROWS = 8_192
_MANY = 50_000
_MAPS = ("configuration", "options", "tags")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """An open checkpoint: its non-file actions, and the Parquet files with its file actions."""

    state_actions: tuple[Action, ...]
    file_paths: tuple[str, ...]
    json_adds: tuple[AddFile, ...] = ()
    json_removes: tuple[RemoveFile, ...] = ()


class CheckpointSource(ColumnSource):
    """The add actions of one Parquet file, read by column."""

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
            present = _names_in(file.schema_arrow, "add")
            # Beside typed statistics the text may be missing; only the whole column shows whether.
            if "stats" in present and "stats_parsed" not in present:
                yield from self._streamed_stats(file)
                return
        stored = self.columns(["stats"]).column("stats")
        formatted = self.formatted_stats() if stored.null_count == len(stored) else None
        yield from (stored if formatted is None else formatted).chunks

    def formatted_stats(self, rows: pa.BooleanArray | None = None) -> pa.ChunkedArray | None:
        """Read by row groups, because all typed statistics at once may exceed the file list."""
        with _as_malformed(self._path), _opened(self._store, self._path) as file:
            if "stats_parsed" not in _names_in(file.schema_arrow, "add"):
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
        parts = [".".join((kind, *leaf)) for leaf in leaves for kind in kinds]
        columns = [f"add.stats_parsed.{part}" for part in ("numRecords", "tightBounds", *parts)]
        with _as_malformed(self._path), _opened(self._store, self._path) as file:
            if "stats_parsed" not in _names_in(file.schema_arrow, "add"):
                return None
            adds = _without_nulls(file.read(columns=["add.path", *columns]).column("add"))
            if adds.type.get_field_index("stats_parsed") < 0:
                return None  # it has none of the parts
            chunks = [pc.struct_field(chunk, "stats_parsed") for chunk in adds.chunks]
            parsed = pa.chunked_array(chunks, adds.type.field("stats_parsed").type)
        self._check_rows(len(parsed))
        return parsed

    def _check_rows(self, num_rows: int) -> None:
        if self._num_rows is None:
            self._num_rows = num_rows
        elif num_rows != self._num_rows:
            # Each column determines by itself which rows are adds, and one of them may be damaged.
            raise _malformed(self._path, "its columns do not agree on the number of adds")


def open_checkpoint(store: LogStore, files: CheckpointFiles) -> Checkpoint:
    """Read the checkpoint's non-file actions, and find the files with its file actions."""
    paths = tuple(file.info.path for file in files.files)
    is_json = files.kind is LogFileKind.UUID_CHECKPOINT and files.files[0].name.format == "json"
    if is_json:
        with _as_malformed(paths[0]):
            actions = list(actions_from_json(paths[0], store.read(paths[0])))
    else:
        actions = [action for path in paths for action in _top_actions(store, path)]
    # Without one of these it was not finished.
    required = (CheckpointMetadata, Protocol, Metadata) if is_json else (Protocol, Metadata)
    for kind in required:
        if not any(isinstance(action, kind) for action in actions):
            raise _malformed(paths[0], f"it has no {kind.KEY}")
    sidecars = [action for action in actions if isinstance(action, SidecarFile)]
    has_file_rows = not is_json and not sidecars
    return Checkpoint(
        state_actions=tuple(a for a in actions if isinstance(a, _STATE_ACTIONS)),
        file_paths=paths if has_file_rows else _sidecar_paths(store, paths[0], sidecars),
        json_adds=tuple(a for a in actions if isinstance(a, AddFile)),
        json_removes=tuple(a for a in actions if isinstance(a, RemoveFile)),
    )


def is_v2(store: LogStore, files: CheckpointFiles) -> bool:
    """Whether it is a V2 checkpoint, by its name or by its content."""
    if files.kind is not LogFileKind.CLASSIC_CHECKPOINT:
        return files.kind is LogFileKind.UUID_CHECKPOINT
    actions = _top_actions(store, files.files[0].info.path)
    return any(isinstance(action, CheckpointMetadata | SidecarFile) for action in actions)


def checkpoint_parts(store: LogStore, checkpoint: Checkpoint) -> list[FilePart]:
    """The checkpoint's add actions as parts of a state; only their keys are read now."""
    parts = []
    if checkpoint.json_adds:
        table = add_table(checkpoint.json_adds)
        parts.append(FilePart(source=TableSource(table), keys=file_keys(table, store.root_uri)))
    for path in checkpoint.file_paths:
        source = CheckpointSource(store, path)
        table = source.columns(["path", "deletionVector"])
        keys = file_keys(table, store.root_uri)
        if len(keys):
            # Most paths are their own keys: kept, they are in memory once.
            parts.append(
                FilePart(source=source, keys=keys, live=None, _cache={"path": table.column("path")})
            )
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
        wanted = pa.schema([schema.field(name) for name in names])
        if file.schema_arrow.get_field_index(kind) < 0:
            return wanted.empty_table()
        present = _names_in(file.schema_arrow, kind)
        # `path` identifies the rows that are actions of this kind: it is never null in one.
        if "path" not in present:
            raise MalformedRecordError(f"its {kind} column has no path")
        requested = present.intersection(names) or {"path"}
        table = file.read(columns=[f"{kind}.{name}" for name in sorted(requested)])
        rows = _without_nulls(table.column(kind))
        arrays = [_field(rows, name, present, wanted.field(name).type) for name in names]
        read = pa.table(arrays, schema=wanted)
        # The columns are used long after this, where invalid UTF-8 would do harm.
        read.validate(full=True)
        if "path" in names and read.column("path").null_count:
            raise MalformedRecordError(f"a row of its {kind} column has no path")
        return read


def _names_in(top: pa.Schema, kind: str) -> set[str]:
    """The columns of a kind of action; none where the file has no such actions."""
    return {f.name for f in _struct_type(top, kind)} if top.get_field_index(kind) >= 0 else set()


def _without_nulls(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The rows that are not null.  Writers put them side by side, and a slice copies nothing."""
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
    # No row is null any more, so a child array is its column without changes.
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
        # By batches: these actions are few among as many rows as the table has files.
        for batch in file.iter_batches(_STREAMED_ROWS, columns=keys, use_threads=False):
            for key in keys:
                for row in batch.column(key).drop_null().to_pylist():
                    actions.append(ACTIONS[key].from_json_value(_json_value(row)))
        return actions


def _struct_type(schema: pa.Schema, name: str) -> pa.StructType:
    column_type = schema.field(name).type
    if not pa.types.is_struct(column_type):
        raise MalformedRecordError(f"its {name} column is no struct")
    return column_type


def _json_value(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a state action as the JSON object it came from: no nulls, maps as objects."""
    value: dict[str, Any] = {}
    for name, item in row.items():
        if isinstance(item, dict):
            value[name] = _json_value(item)
        elif item is not None:
            value[name] = dict(item) if name in _MAPS and isinstance(item, list) else item
    return value


def _sidecar_paths(
    store: LogStore, checkpoint: str, sidecars: Sequence[SidecarFile]
) -> tuple[str, ...]:
    paths = tuple(_sidecar_location(store, sidecar.path) for sidecar in sidecars)
    if len(set(paths)) != len(paths):
        raise _malformed(checkpoint, "it names a sidecar twice")
    return paths


def _sidecar_location(store: LogStore, path: str) -> str:
    """The location of a sidecar: always in the table's own sidecar directory."""
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
    with store.arrow_file(path) as source:
        size = source.size()
        # Reading ahead holds whole columns in memory beside the decoded ones: worth it only where
        # every read is a round trip.
        ahead = not store.probes_cheaply
        buffer_size = 0 if ahead else 1 << 20
        with pq.ParquetFile(source, pre_buffer=ahead, buffer_size=buffer_size) as file:
            _check_counts(file.metadata, size)
            yield file


def _check_counts(footer: pq.FileMetaData, size: int) -> None:
    """Raise if a file claims far more rows than its bytes can hold."""
    # Checks row groups, not their columns: pyarrow aborts on a damaged column's metadata.
    rows = [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]
    if min(rows, default=0) < 0 or sum(rows) != footer.num_rows:
        raise MalformedRecordError("its footer does not agree on the number of rows")
    if footer.num_rows > _MOST_ROWS_PER_BYTE * size:
        raise MalformedRecordError(f"{footer.num_rows} rows cannot be in {size} bytes")


@contextmanager
def _as_malformed(path: str) -> Iterator[None]:
    """Raise CorruptLogError for a missing file or an Arrow error: readers skip the checkpoint."""
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
