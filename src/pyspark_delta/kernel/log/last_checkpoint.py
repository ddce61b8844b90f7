"""The hint `_last_checkpoint`: the version at which a reader may begin to list the log.

A hint can be stale, torn or absent, and is never needed: an unusable one is read as None, and the
reader lists the whole log.  PROTOCOL.md, "Last Checkpoint File" and "JSON checksum".

>>> json_checksum({"k0": "'v 0'", "checksum": "x"}) == json_checksum({"k0": "'v 0'"})
True
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from hashlib import md5
from typing import Any
from urllib.parse import quote

from pyspark_delta.errors import StorageError
from pyspark_delta.kernel.protocol.action_parts import StringMap
from pyspark_delta.kernel.protocol.actions import Action, SidecarFile, SingleAction
from pyspark_delta.kernel.protocol.codec import (
    Json,
    MalformedRecordError,
    Record,
    count,
    dumps,
    form,
    integer,
    raw_list,
    text,
)
from pyspark_delta.kernel.protocol.paths import LAST_CHECKPOINT
from pyspark_delta.kernel.storage.base import LogStore

# delta-spark leaves out a schema longer than this, to keep the hint small.
LONGEST_CHECKPOINT_SCHEMA = 20_000
MOST_HINTED_ACTIONS = 30

_LARGEST_HINT_BYTES = 1 << 26
_MOST_PARTS = 2**31 - 1


def _count_or_unknown(value: Any, key: str) -> int:
    """A count, or -1, which some writers use for an unknown count."""
    return -1 if value == -1 else count(value, key)


def _parts(value: Any, key: str) -> int:
    number = integer(value, key)
    if not 1 <= number <= _MOST_PARTS:
        raise MalformedRecordError(f"{key} is not a number of parts")
    return number


def _file_name(value: Any, key: str) -> str:
    name = text(value, key)
    if not name or "/" in name:
        raise MalformedRecordError(f"{key} is not a file name")
    return name


def _actions(value: Any, key: str) -> tuple[Action, ...]:
    actions = (SingleAction.from_json_value(item).unwrap() for item in raw_list(value, key))
    return tuple(action for action in actions if action is not None)


def _write_actions(actions: tuple[Action, ...]) -> list[Json]:
    return [{action.KEY: action.to_json_value()} for action in actions]


@dataclass(frozen=True, slots=True, kw_only=True)
class V2CheckpointHint(Record):
    """The V2 checkpoint of a hint: its file name, and its actions if they are few."""

    path: str = field(metadata=form(read=_file_name))
    size_in_bytes: int = field(metadata=form(read=count))
    modification_time: int
    # None: not recorded, never "none"
    non_file_actions: tuple[Action, ...] | None = field(
        default=None, metadata=form("", _actions, _write_actions)
    )
    sidecar_files: tuple[SidecarFile, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCheckpoint(Record):
    """The facts about the newest checkpoint that need no look into its files.

    `size` counts its actions, -1 when unknown; `parts` is None unless it is a multi-part one.
    """

    # delta-spark keeps the first three together, for readers that may see half of the file.
    version: int = field(metadata=form(read=count))
    size: int = field(default=-1, metadata=form(read=_count_or_unknown))
    parts: int | None = field(default=None, metadata=form(read=_parts))
    size_in_bytes: int | None = field(default=None, metadata=form(read=_count_or_unknown))
    num_of_add_files: int | None = field(default=None, metadata=form(read=_count_or_unknown))
    checkpoint_schema: Json | None = field(default=None, hash=False)
    tags: StringMap | None = field(default=None, hash=False)
    v2_checkpoint: V2CheckpointHint | None = None
    checksum: str | None = None
    extra: Json = field(default_factory=dict, repr=False, hash=False)


def read_last_checkpoint(store: LogStore) -> LastCheckpoint | None:
    """The hint, or None when there is none that can be trusted; it never raises."""
    # A torn read does not last: the writer that overwrites the file is done a moment later.
    for _ in range(2):
        try:
            data = store.read(LAST_CHECKPOINT)
        except StorageError:
            # A store that is down raises again when the log is listed.
            return None
        hint = parse_last_checkpoint(data)
        if hint is not None:
            return hint
    return None


def write_last_checkpoint(store: LogStore, last_checkpoint: LastCheckpoint) -> None:
    """Replace the hint."""
    store.overwrite(LAST_CHECKPOINT, format_last_checkpoint(last_checkpoint).encode())


def parse_last_checkpoint(data: bytes) -> LastCheckpoint | None:
    """The hint in `data`; None if it is malformed or its checksum is wrong."""
    if len(data) > _LARGEST_HINT_BYTES:
        return None
    try:
        value = json.loads(
            data,
            object_pairs_hook=_object_without_duplicates,
            parse_float=_Literal,
            parse_constant=_reject_constant,
        )
        stored = value.get("checksum") if isinstance(value, dict) else None
        if stored is not None and stored not in _checksums(value):
            return None
        return LastCheckpoint.from_json_value(value)
    except (ValueError, RecursionError):
        return None


def format_last_checkpoint(last_checkpoint: LastCheckpoint) -> str:
    """The hint as JSON with its checksum, oversized parts left out."""
    value = _trimmed(last_checkpoint).to_json_value()
    value.pop("checksum", None)
    return dumps({**value, "checksum": json_checksum(value)})


def json_checksum(value: Json) -> str:
    """The MD5 of an object's canonical text, as delta-spark computes it."""
    return _checksums(value)[0]


class _Literal(str):
    """A JSON number that keeps its spelling."""

    __slots__ = ()


def _reject_constant(name: str) -> Any:
    raise MalformedRecordError(f"{name} is not JSON")


def _object_without_duplicates(pairs: list[tuple[str, Any]]) -> Json:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise MalformedRecordError("an object has the same key twice")
    return value


def _checksums(value: Json) -> tuple[str, str]:
    """The checksums of delta-spark and of PROTOCOL.md's letter."""
    # delta-spark sorts the lines `path=value`, the protocol requires sorting by path: with more
    # than ten elements in an array, `10` comes before or after `1`.
    pairs = [pair for pair in _leaves(value, "") if pair[0] != '"checksum"']
    lines = sorted(f"{path}={leaf}" for path, leaf in pairs)
    by_path = [f"{path}={leaf}" for path, leaf in sorted(pairs)]
    return _digest(lines), _digest(by_path)


def _digest(lines: list[str]) -> str:
    return md5(",".join(lines).encode("ascii"), usedforsecurity=False).hexdigest()


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, _step(path, _quoted(key)))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(item, _step(path, str(index)))
    elif isinstance(value, str) and not isinstance(value, _Literal):
        yield path, _quoted(value)
    else:
        yield path, value if isinstance(value, str) else dumps(value)


def _step(path: str, step: str) -> str:
    return f"{path}+{step}" if path else step


def _quoted(value: str) -> str:
    # `quote` leaves exactly the octets unchanged that the protocol calls not reserved.
    return f'"{quote(value, safe="")}"'


def _trimmed(hint: LastCheckpoint) -> LastCheckpoint:
    schema, v2 = hint.checkpoint_schema, hint.v2_checkpoint
    if schema is not None and len(dumps(schema)) > LONGEST_CHECKPOINT_SCHEMA:
        schema = None
    if v2 is not None:
        actions, sidecars = v2.non_file_actions, v2.sidecar_files
        v2 = replace(
            v2,
            non_file_actions=actions if len(actions or ()) <= MOST_HINTED_ACTIONS else None,
            sidecar_files=sidecars if len(sidecars or ()) <= MOST_HINTED_ACTIONS else None,
        )
    return replace(hint, checkpoint_schema=schema, v2_checkpoint=v2)
