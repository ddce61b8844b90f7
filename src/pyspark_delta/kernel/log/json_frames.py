"""Commits as frames: newline JSON to Arrow, reconciled.

Two ways give the same frame.  Small commits are read line by line; large ones by Arrow's JSON
reader with an explicit schema, which falls back to the first way for whatever it cannot promise
to read the same, so that there is one meaning and one place that explains what is wrong.

PROTOCOL.md, "Action Reconciliation".
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

from pyspark_delta.errors.table import CorruptLogError
from pyspark_delta.kernel.log.frames import (
    ADD_SCHEMA,
    REMOVE_SCHEMA,
    STRING_MAP,
    file_key,
    file_keys,
    table_from_values,
)
from pyspark_delta.kernel.protocol.actions import (
    ACTIONS,
    Action,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from pyspark_delta.kernel.protocol.codec import MalformedRecordError

LARGE_COMMIT_BYTES = 512 * 1024
_STATE_ACTIONS = (Metadata, Protocol, SetTransaction, DomainMetadata)
_STATE_KEYS = tuple(kind.KEY for kind in _STATE_ACTIONS)
_PARTITION_VALUES = re.compile(rb'"partitionValues"\s*:\s*(\{[^{}]*\})')
_ANY_ACTION = re.compile(
    '"(?:' + "|".join(key for key in ACTIONS if key != CommitInfo.KEY) + r')"\s*:'
)
_JSON_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_MOST_KEYS = 256
_SAMPLE_LINES = 64
_SAMPLE_BYTES = 1 << 18
# What must be there in every add, and is null after Arrow's reader when it was not.
_REQUIRED = ("path", "size", "modificationTime", "dataChange")


@dataclass(frozen=True, slots=True)
class ActionFrame:
    """What one commit, or several in a row, say of a table once reconciled.

    No key stands twice, in `adds` and `removes` together; `others` holds protocol, metaData, txn
    and domainMetadata actions, oldest first.
    """

    adds: pa.Table
    removes: pa.Table
    add_keys: pa.Array
    remove_keys: pa.Array
    others: tuple[Action, ...]

    @property
    def num_rows(self) -> int:
        """How many file actions the frame holds."""
        return int(self.adds.num_rows + self.removes.num_rows)


def frames_from_commits(
    commits: Iterable[tuple[str, bytes]], root_uri: str
) -> Iterator[ActionFrame]:
    """Frames of commits given oldest first, as (path, content); small neighbours share one."""
    small: list[tuple[str, bytes]] = []
    pending = 0
    for path, data in commits:
        if len(data) < LARGE_COMMIT_BYTES:
            small.append((path, data))
            pending += len(data)
            if pending >= 16 * LARGE_COMMIT_BYTES:
                yield _frame_by_line(small, root_uri)
                small, pending = [], 0
            continue
        if small:
            yield _frame_by_line(small, root_uri)
            small, pending = [], 0
        yield frame_from_json(path, data, root_uri)
    if small:
        yield _frame_by_line(small, root_uri)


def frame_from_json(path: str, data: bytes, root_uri: str) -> ActionFrame:
    """The frame of one commit."""
    if len(data) >= LARGE_COMMIT_BYTES:
        frame = _frame_by_arrow(path, data, root_uri)
        if frame is not None:
            return frame
    return _frame_by_line([(path, data)], root_uri)


def actions_from_json(path: str, data: bytes) -> Iterator[Action]:
    """Every action of a commit in the order of its lines; unknown ones are left out."""
    for line_number, offset, line in _lines(data):
        value = _json_object(path, line_number, offset, line)
        for key, kind in ACTIONS.items():
            if value.get(key) is not None:
                yield _action(kind, value[key], (path, line_number, offset))


def _lines(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Non-blank lines with their number (from 1) and byte offset; a byte order mark is skipped."""
    offset = 3 if data.startswith(b"\xef\xbb\xbf") else 0
    number = 0
    while offset < len(data):
        end = data.find(b"\n", offset)
        end = len(data) if end < 0 else end
        number += 1
        line = data[offset:end]
        if line.strip():
            yield number, offset, line
        offset = end + 1


def _json_object(path: str, number: int, offset: int, line: bytes) -> dict[str, Any]:
    try:
        # Given bytes, `json` would guess the encoding; the protocol says UTF-8.
        text = line.decode("utf-8")
        value = json.loads(text)
        is_text = not (b"\\ud" in line or b"\\uD" in line) or _is_text(value)
    except RecursionError:
        if _is_of_no_interest(text):
            return {}
        raise _malformed(path, number, offset, "it is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise _malformed(path, number, offset + error.start, "it is not UTF-8") from None
    except ValueError as error:
        at = len(text[: getattr(error, "pos", 0)].encode())
        raise _malformed(path, number, offset + at, f"it is not JSON ({error})") from None
    if not isinstance(value, dict):
        raise _malformed(path, number, offset, "it is not a JSON object")
    if not is_text and not value.keys().isdisjoint(ACTIONS.keys() - {CommitInfo.KEY}):
        raise _malformed(path, number, offset, "it holds half of a surrogate pair")
    return value


def _is_text(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_of_no_interest(text: str) -> bool:
    """Whether a line too deep for the parser is whole and holds no action that we would miss.

    Writers put anything into commitInfo, and a future action may be of any shape.
    """
    if _ANY_ACTION.search(text):
        return False
    bare = _JSON_STRING.sub("", text).strip()
    is_whole = all(bare.count(a) == bare.count(b) for a, b in ("{}", "[]"))
    return is_whole and bare.startswith("{") and bare.endswith("}")


def _action(kind: type[Action], value: Any, place: tuple[str, int, int]) -> Action:
    try:
        return kind.from_json_value(value)
    except MalformedRecordError as error:
        raise _malformed(*place, str(error)) from None
    except RecursionError:
        raise _malformed(*place, "it is nested too deeply") from None


def _malformed(path: str, line: int, byte: int, reason: str) -> CorruptLogError:
    return CorruptLogError(
        "DELTA_MALFORMED_LOG_ENTRY", path=path, line=line, byte=byte, reason=reason
    )


# By line.


def _frame_by_line(commits: Sequence[tuple[str, bytes]], root_uri: str) -> ActionFrame:
    adds: dict[str, dict[str, Any]] = {}
    removes: dict[str, dict[str, Any]] = {}
    others: list[Action] = []
    for path, data in commits:
        removed_here: dict[str, dict[str, Any]] = {}
        for number, offset, line in _lines(data):
            value = _json_object(path, number, offset, line)
            place = (path, number, offset)
            if value.get("add") is not None:
                add = _action(AddFile, value["add"], place)
                key = _key(add, root_uri)
                adds.pop(key, None)  # the newest stands last
                adds[key] = add.to_json_value()
                removes.pop(key, None)
            elif value.get("remove") is not None:
                remove = _action(RemoveFile, value["remove"], place)
                key = _key(remove, root_uri)
                removed_here.pop(key, None)
                removed_here[key] = remove.to_json_value()
            else:
                others.extend(_state_actions(value, place))
        # An add and a remove of one key in one commit: the remove wins, wherever it stands.
        for key, item in removed_here.items():
            adds.pop(key, None)
            removes.pop(key, None)
            removes[key] = item
    return ActionFrame(
        table_from_values(list(adds.values()), ADD_SCHEMA),
        table_from_values(list(removes.values()), REMOVE_SCHEMA),
        pa.array(adds, pa.string()),
        pa.array(removes, pa.string()),
        tuple(others),
    )


def _key(action: Any, root_uri: str) -> str:
    vector = action.deletion_vector
    return file_key(action.path, None if vector is None else vector.unique_id, root_uri)


def _state_actions(value: dict[str, Any], place: tuple[str, int, int]) -> Iterator[Action]:
    for key in _STATE_KEYS:
        if value.get(key) is not None:
            yield _action(ACTIONS[key], value[key], place)


# By Arrow.


@dataclass(frozen=True, slots=True)
class _Shape:
    """Which keys the file actions of a commit have, so that only those are looked for."""

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


def _frame_by_arrow(path: str, data: bytes, root_uri: str) -> ActionFrame | None:
    """The frame, or None when only the other way can be trusted with this commit."""
    if not data.isascii() and not _is_utf8(data):
        return None
    others, start = _leading_others(path, data)
    stop = _body_end(data, start)
    shape = _sampled_shape(data, start, stop)
    if shape is None:
        return None
    body = pa.py_buffer(data)[start:stop]
    try:
        # Keys that the sample did not show are errors, not silence.
        table = _read(body, shape.read_schema())
    except pa.ArrowException:
        return None
    lines = data.count(b"\n", start, stop) + (data[stop - 1 : stop] != b"\n")
    if lines != table.num_rows:
        return None
    adds = _file_table(table, "add", ADD_SCHEMA, shape)
    removes = _file_table(table, "remove", REMOVE_SCHEMA, shape)
    if adds is None or removes is None or adds.num_rows + removes.num_rows != lines:
        return None
    if any(adds.column(name).null_count for name in _REQUIRED):
        return None
    if removes.column("path").null_count or _has_empty_path(adds):
        return None
    if shape.partition_keys and not _keys_are_certain(data[start:stop], adds, removes):
        return None
    others += tuple(_trailing_others(path, data, stop))
    return _reconciled(adds, _with_default_data_change(removes), others, root_uri)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _leading_others(path: str, data: bytes) -> tuple[tuple[Action, ...], int]:
    """The state actions before the first file action, and where that begins."""
    others: list[Action] = []
    for number, offset, line in _lines(data):
        if line.startswith((b'{"add":', b'{"remove":')):
            return tuple(others), offset
        value = _json_object(path, number, offset, line)
        if value.get("add") is not None or value.get("remove") is not None:
            return tuple(others), offset
        others.extend(_state_actions(value, (path, number, offset)))
    return tuple(others), len(data)


def _body_end(data: bytes, start: int) -> int:
    """Where the last file action ends; some writers put other actions behind them."""
    stop = len(data)
    for _ in range(_SAMPLE_LINES):
        begin = data.rfind(b"\n", start, max(stop - 1, start)) + 1
        if data.startswith((b'{"add":', b'{"remove":'), begin):
            break
        stop = max(begin, start)
    return stop


def _trailing_others(path: str, data: bytes, stop: int) -> Iterator[Action]:
    number = data.count(b"\n", 0, stop)
    for line_number, offset, line in _lines(data[stop:]):
        place = (path, number + line_number, stop + offset)
        yield from _state_actions(_json_object(*place, line), place)


def _sampled_shape(data: bytes, start: int, stop: int) -> _Shape | None:
    """The keys that the first and the last lines of the body show; None when they are odd."""
    first = data[start : min(start + _SAMPLE_BYTES, stop)].splitlines()[:_SAMPLE_LINES]
    last = data[max(start, stop - _SAMPLE_BYTES) : stop].splitlines()[1:][-_SAMPLE_LINES:]
    found: dict[str, dict[str, None]] = {"add": {}, "remove": {}, "partitionValues": {}, "tags": {}}
    for line in (*first, *last):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        for kind in ("add", "remove"):
            action = value.get(kind) if isinstance(value, dict) else None
            if not isinstance(action, dict):
                continue
            found[kind].update(dict.fromkeys(action))
            for name in ("partitionValues", "tags"):
                if isinstance(action.get(name), dict):
                    found[name].update(dict.fromkeys(action[name]))
    known = {"add": set(ADD_SCHEMA.names), "remove": set(REMOVE_SCHEMA.names)}
    if any(not known[kind].issuperset(found[kind]) for kind in known):
        return None
    if len(found["tags"]) > _MOST_KEYS or len(found["partitionValues"]) > _MOST_KEYS:
        return None
    adds = {**dict.fromkeys(_REQUIRED), **found["add"]}
    return _Shape(*(tuple(names) for names in (adds, *list(found.values())[1:])))


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
        if f.name in keys:
            keep_nulls = f.name == "partitionValues"
            child = _map_from_struct(child.combine_chunks(), keys[f.name], keep_nulls=keep_nulls)
        arrays.append(child)
    return pa.table(arrays, schema=schema)


def _map_from_struct(
    array: pa.StructArray, keys: tuple[str, ...], *, keep_nulls: bool
) -> pa.MapArray:
    rows, width = len(array), len(keys)
    if array.null_count == rows:
        return pa.nulls(rows, STRING_MAP)
    if not keep_nulls:
        # A tag that is not there must not come back as a tag that is null.
        items = [
            None if row is None else [(k, v) for k, v in row.items() if v is not None]
            for row in array.to_pylist()
        ]
        return pa.array(items, STRING_MAP)
    offsets = pa.array(range(0, rows * width + 1, width) if width else [0] * (rows + 1), pa.int32())
    names, values = _interleaved(array, keys)
    mask = pc.is_null(array) if array.null_count else None
    return pa.MapArray.from_arrays(offsets, names, values, mask=mask)


def _interleaved(array: pa.StructArray, keys: tuple[str, ...]) -> tuple[pa.Array, pa.Array]:
    """The struct's field names and values, row after row."""
    rows, width = len(array), len(keys)
    if not width:
        return pa.array([], pa.string()), pa.array([], pa.string())
    names = pa.concat_arrays([pa.repeat(pa.scalar(key), rows) for key in keys])
    values = pa.concat_arrays([pc.struct_field(array, key) for key in keys])
    if width == 1:
        return names, values
    order = pa.array([row + rows * i for row in range(rows) for i in range(width)], pa.int64())
    return names.take(order), values.take(order)


def _has_empty_path(adds: pa.Table) -> bool:
    return bool(pc.any(pc.equal(pc.binary_length(adds.column("path")), 0)).as_py())


def _with_default_data_change(removes: pa.Table) -> pa.Table:
    index = removes.schema.get_field_index("dataChange")
    filled = pc.fill_null(removes.column(index), True)
    return removes.set_column(index, removes.schema.field(index), filled)


def _reconciled(
    adds: pa.Table, removes: pa.Table, others: tuple[Action, ...], root_uri: str
) -> ActionFrame:
    add_keys, adds = _unique(file_keys(adds, root_uri), adds)
    remove_keys, removes = _unique(file_keys(removes, root_uri), removes)
    if len(remove_keys) and len(add_keys):
        removed = pc.is_in(add_keys, value_set=remove_keys)
        if pc.any(removed).as_py():
            keep = pc.invert(removed)
            add_keys, adds = add_keys.filter(keep), adds.filter(keep)
    return ActionFrame(adds, removes, add_keys, remove_keys, others)


def _unique(keys: pa.Array, table: pa.Table) -> tuple[pa.Array, pa.Table]:
    """The last row of each key, in the order of the rows."""
    if pc.count_distinct(keys).as_py() == len(keys):
        return keys, table
    rows = pa.table({"key": keys, "row": pa.array(range(len(keys)), pa.int64())})
    last = rows.group_by("key", use_threads=False).aggregate([("row", "max")])
    order = last.column("row_max").combine_chunks().sort()
    return keys.take(order), table.take(order)
