"""Parse commits from newline-delimited JSON into Arrow frames.

Two parsers give the same frame.  Small commits are read line by line; large ones by Arrow's JSON
reader with an explicit schema, which falls back to reading lines for input that it may read
differently.  So the meaning is defined once, and malformed input is reported in one place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from pyspark_delta.kernel.log.frames.action_frame import ActionFrame
from pyspark_delta.kernel.log.frames.by_arrow import frame_by_arrow
from pyspark_delta.kernel.log.frames.commit_lines import (
    action_at,
    json_object,
    lines,
    state_actions,
)
from pyspark_delta.kernel.log.frames.file_actions import (
    ADD_SCHEMA,
    REMOVE_SCHEMA,
    action_key,
    table_from_values,
)
from pyspark_delta.kernel.protocol.actions import Action, AddFile, RemoveFile

LARGE_COMMIT_BYTES = 512 * 1024


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
                adds.pop(key, None)  # the newest stands last
                adds[key] = add.to_json_value()
                removes.pop(key, None)
            elif value.get("remove") is not None:
                remove = action_at(RemoveFile, value["remove"], place)
                key = action_key(remove, root_uri)
                removed_here.pop(key, None)
                removed_here[key] = remove.to_json_value()
            else:
                others.extend(state_actions(value, place))
        # An add and a remove of one key in one commit: the remove wins, wherever it stands.
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
