"""Parse commits from newline-delimited JSON into Arrow frames.

Two parsers give the same frame.  Small commits are read line by line; large ones by Arrow's JSON
reader.  That reader needs the keys in advance, and reads an absent key and a null alike: input
that it may read differently is left to the line parser.  So the meaning is defined once, and
malformed input is reported in one place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from pyspark_delta.kernel.log.frames.action_frame import ActionFrame
from pyspark_delta.kernel.log.frames.commit_lines import (
    action_at,
    json_object,
    lines,
    state_actions,
)
from pyspark_delta.kernel.log.frames.file_actions import (
    ADD_SCHEMA,
    REMOVE_SCHEMA,
    STRING_MAP,
    action_key,
    file_keys,
    table_from_values,
)
from pyspark_delta.kernel.protocol.actions import Action, AddFile, RemoveFile

LARGE_COMMIT_BYTES = 512 * 1024

_PARTITION_VALUES = re.compile(rb'"partitionValues"\s*:\s*(\{[^{}]*\})')
_MOST_KEYS = 256
_SAMPLE_LINES = 64
_SAMPLE_BYTES = 1 << 18
# Out of bytes: to make an array of a list, pyarrow imports pandas where it is installed.
_FIRST_OFFSET = pa.Array.from_buffers(pa.int32(), 1, [None, pa.py_buffer(bytes(4))])
# Required fields of an add, which are null after Arrow's reader if they were absent.
_REQUIRED = ("path", "size", "modificationTime", "dataChange")


def frames_from_commits(
    commits: Iterable[tuple[str, bytes]], root_uri: str
) -> Iterator[ActionFrame]:
    """Frames of commits given oldest first, as (path, content); small neighbours share one."""
    small: list[tuple[str, bytes]] = []
    pending = 0
    for path, data in commits:
        is_large = len(data) >= LARGE_COMMIT_BYTES
        if small and (is_large or pending >= 16 * LARGE_COMMIT_BYTES):
            yield frame_by_line(small, root_uri)
            small, pending = [], 0
        if is_large:
            yield frame_from_json(path, data, root_uri)
        else:
            small.append((path, data))
            pending += len(data)
    if small:
        yield frame_by_line(small, root_uri)


def frame_from_json(path: str, data: bytes, root_uri: str) -> ActionFrame:
    """The frame of one commit."""
    if len(data) >= LARGE_COMMIT_BYTES:
        frame = frame_by_arrow(path, data, root_uri)
        if frame is not None:
            return frame
    return frame_by_line([(path, data)], root_uri)


def frame_by_line(commits: Sequence[tuple[str, bytes]], root_uri: str) -> ActionFrame:
    """The frame of several commits, oldest first, read line by line."""
    adds: dict[str, dict[str, Any]] = {}
    removes: dict[str, dict[str, Any]] = {}
    others: list[Action] = []
    for path, data in commits:
        removed_here: dict[str, dict[str, Any]] = {}
        for number, offset, line in lines(data):
            value = json_object(path, number, offset, line)
            place = (path, number, offset)
            if value.get("add") is not None:
                add = action_at(AddFile, value["add"], place)
                key = action_key(add, root_uri)
                adds.pop(key, None)  # the newest comes last
                adds[key] = add.to_json_value()
                removes.pop(key, None)
            elif value.get("remove") is not None:
                remove = action_at(RemoveFile, value["remove"], place)
                key = action_key(remove, root_uri)
                removed_here.pop(key, None)
                removed_here[key] = remove.to_json_value()
            else:
                others.extend(state_actions(value, place))
        # An add and a remove of one key in one commit: the remove counts, in any order.
        for key, item in removed_here.items():
            adds.pop(key, None)
            removes.pop(key, None)
            removes[key] = item
    return ActionFrame(
        adds=table_from_values(list(adds.values()), ADD_SCHEMA),
        removes=table_from_values(list(removes.values()), REMOVE_SCHEMA),
        add_keys=pa.array(adds, pa.string()),
        remove_keys=pa.array(removes, pa.string()),
        others=tuple(others),
    )


def frame_by_arrow(path: str, data: bytes, root_uri: str) -> ActionFrame | None:
    """The frame, or None when only the line parser reads this commit reliably."""
    if not data.isascii() and not _is_utf8(data):
        return None
    others, start = _leading_others(path, data)
    stop = _body_end(data, start)
    shape = _sampled_shape(data, start, stop)
    if shape is None:
        return None
    body = pa.py_buffer(data)[start:stop]
    try:
        # Keys that the sample did not have raise; they are not dropped.
        table = _read(body, shape.read_schema())
    except pa.ArrowException:
        return None
    num_lines = data.count(b"\n", start, stop) + (data[stop - 1 : stop] != b"\n")
    if num_lines != table.num_rows:
        return None
    adds = _file_table(table, "add", ADD_SCHEMA, shape)
    removes = _file_table(table, "remove", REMOVE_SCHEMA, shape)
    if adds is None or removes is None or adds.num_rows + removes.num_rows != num_lines:
        return None
    if any(adds.column(name).null_count for name in _REQUIRED):
        return None
    shortest_path = pc.min(pc.binary_length(adds.column("path"))).as_py()
    if removes.column("path").null_count or shortest_path == 0:
        return None
    if shape.partition_keys and not _keys_are_certain(data[start:stop], adds, removes):
        return None
    others += tuple(_trailing_others(path, data, stop))
    return ActionFrame(
        adds=adds,
        removes=_with_default_data_change(removes),
        add_keys=file_keys(adds, root_uri),
        remove_keys=file_keys(removes, root_uri),
        others=others,
        is_reconciled=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """The keys that the file actions of a commit have, so that only those are parsed."""

    adds: tuple[str, ...]
    removes: tuple[str, ...]
    partition_keys: tuple[str, ...]
    tag_keys: tuple[str, ...]

    def read_schema(self) -> pa.Schema:
        fields = [("add", self._read_type(ADD_SCHEMA, self.adds))]
        if self.removes:
            fields.append(("remove", self._read_type(REMOVE_SCHEMA, self.removes)))
        return pa.schema(fields)

    def _read_type(self, schema: pa.Schema, names: tuple[str, ...]) -> pa.DataType:
        """The struct that Arrow reads: it has no maps, so each known key becomes a field."""
        keys = {"partitionValues": self.partition_keys, "tags": self.tag_keys}
        return pa.struct(
            [
                (name, pa.struct([(key, pa.string()) for key in keys[name]]))
                if name in keys
                else (name, schema.field(name).type)
                for name in names
            ]
        )


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _leading_others(path: str, data: bytes) -> tuple[tuple[Action, ...], int]:
    """The state actions before the first file action, and where that begins."""
    others: list[Action] = []
    for number, offset, line in lines(data):
        if line.startswith((b'{"add":', b'{"remove":')):
            return tuple(others), offset
        value = json_object(path, number, offset, line)
        if value.get("add") is not None or value.get("remove") is not None:
            return tuple(others), offset
        others.extend(state_actions(value, (path, number, offset)))
    return tuple(others), len(data)


def _body_end(data: bytes, start: int) -> int:
    """The end of the last file action; some writers put other actions after it."""
    stop = len(data)
    for _ in range(_SAMPLE_LINES):
        begin = data.rfind(b"\n", start, max(stop - 1, start)) + 1
        if data.startswith((b'{"add":', b'{"remove":'), begin):
            break
        stop = max(begin, start)
    return stop


def _trailing_others(path: str, data: bytes, stop: int) -> Iterator[Action]:
    if stop == len(data):
        return
    number = data.count(b"\n", 0, stop)
    for line_number, offset, line in lines(data[stop:]):
        place = (path, number + line_number, stop + offset)
        yield from state_actions(json_object(*place, line), place)


def _sampled_shape(data: bytes, start: int, stop: int) -> _Shape | None:
    """The keys in the first and the last lines of the body; None when they are unusual."""
    first = data[start : min(start + _SAMPLE_BYTES, stop)].splitlines()[:_SAMPLE_LINES]
    last = data[max(start, stop - _SAMPLE_BYTES) : stop].splitlines()[1:][-_SAMPLE_LINES:]
    keys: dict[str, dict[str, None]] = {"add": {}, "remove": {}, "partitionValues": {}, "tags": {}}
    for line in (*first, *last):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        for kind in ("add", "remove"):
            action = value.get(kind) if isinstance(value, dict) else None
            if not isinstance(action, dict):
                continue
            keys[kind].update(dict.fromkeys(action))
            for name in ("partitionValues", "tags"):
                if isinstance(action.get(name), dict):
                    keys[name].update(dict.fromkeys(action[name]))
    known = {"add": set(ADD_SCHEMA.names), "remove": set(REMOVE_SCHEMA.names)}
    if any(not known[kind].issuperset(keys[kind]) for kind in known):
        return None
    if len(keys["tags"]) > _MOST_KEYS or len(keys["partitionValues"]) > _MOST_KEYS:
        return None
    return _Shape(
        adds=tuple({**dict.fromkeys(_REQUIRED), **keys["add"]}),
        removes=tuple(keys["remove"]),
        partition_keys=tuple(keys["partitionValues"]),
        tag_keys=tuple(keys["tags"]),
    )


def _read(body: pa.Buffer, schema: pa.Schema) -> pa.Table:
    return pa_json.read_json(
        pa.BufferReader(body),
        # Cores parse blocks side by side; a line must fit its block.
        read_options=pa_json.ReadOptions(block_size=min(max(1 << 20, len(body) // 64), 1 << 25)),
        parse_options=pa_json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="error"
        ),
    )


def _keys_are_certain(body: bytes, *tables: pa.Table) -> bool:
    """Whether every file names every partition column: Arrow reads an absent key as null too."""
    for table in tables:
        maps = table.column("partitionValues").combine_chunks()
        if maps.null_count or maps.items.null_count:
            texts = set(_PARTITION_VALUES.findall(body))
            return len({_names(text) for text in texts}) == 1
    return True


def _names(text: bytes) -> tuple[str, ...] | None:
    try:
        return tuple(sorted(json.loads(text)))
    except ValueError:
        return None


def _file_table(table: pa.Table, kind: str, schema: pa.Schema, shape: _Shape) -> pa.Table | None:
    """The rows that are adds, or removes, in the frame's schema."""
    if kind not in table.column_names:
        return schema.empty_table()
    column = table.column(kind)
    rows = column.drop_null() if column.null_count else column
    keys = {"partitionValues": shape.partition_keys, "tags": shape.tag_keys}
    present = {f.name for f in column.type}
    arrays: list[pa.Array | pa.ChunkedArray] = []
    for f in schema:
        if f.name not in present:
            arrays.append(pa.nulls(len(rows), f.type))
            continue
        child = pa.chunked_array(
            [chunk.field(f.name) for chunk in rows.chunks], column.type.field(f.name).type
        )
        if f.name == "path":
            child = child.combine_chunks()  # its keys are the same array, unless one is escaped
        if f.name in keys:
            keep_nulls = f.name == "partitionValues"
            child = _map_from_struct(child.combine_chunks(), keys[f.name], keep_nulls=keep_nulls)
        arrays.append(child)
    return pa.table(arrays, schema=schema)


def _map_from_struct(
    structs: pa.StructArray, keys: tuple[str, ...], *, keep_nulls: bool
) -> pa.MapArray:
    rows, width = len(structs), len(keys)
    if structs.null_count == rows:
        return pa.nulls(rows, STRING_MAP)
    if not keep_nulls:
        # An absent tag must not come back as a null tag.
        items = [
            None if row is None else [(k, v) for k, v in row.items() if v is not None]
            for row in structs.to_pylist()
        ]
        return pa.array(items, STRING_MAP)
    widths = pa.concat_arrays([_FIRST_OFFSET, pa.repeat(pa.scalar(width, pa.int32()), rows)])
    offsets = pc.cumulative_sum(widths)
    names, values = _interleaved(structs, keys)
    mask = pc.is_null(structs) if structs.null_count else None
    return pa.MapArray.from_arrays(offsets, names, values, mask=mask)


def _interleaved(structs: pa.StructArray, keys: tuple[str, ...]) -> tuple[pa.Array, pa.Array]:
    rows, width = len(structs), len(keys)
    if not width:
        return pa.array([], pa.string()), pa.array([], pa.string())
    names = pa.concat_arrays([pa.repeat(pa.scalar(key), rows) for key in keys])
    values = pa.concat_arrays([pc.struct_field(structs, key) for key in keys])
    if width == 1:
        return names, values
    order = pa.array([row + rows * i for row in range(rows) for i in range(width)], pa.int64())
    return names.take(order), values.take(order)


def _with_default_data_change(removes: pa.Table) -> pa.Table:
    index = removes.schema.get_field_index("dataChange")
    filled = pc.fill_null(removes.column(index), True)
    return removes.set_column(index, removes.schema.field(index), filled)
