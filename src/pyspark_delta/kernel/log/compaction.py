"""Log compactions: what commits x to y come to together, in one file that replaces them on replay.

Tombstones stay, for they must hide files of older checkpoints; provenance and change files go, for
they are no state.  PROTOCOL.md, "Log Compaction Files".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from pyspark_delta.errors.storage import FileAlreadyExistsError
from pyspark_delta.kernel.log.commit_lines import actions_from_json
from pyspark_delta.kernel.log.frames import file_key
from pyspark_delta.kernel.protocol.actions import (
    Action,
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from pyspark_delta.kernel.protocol.paths import commit_path, compacted_path
from pyspark_delta.kernel.storage.base import LogStore

_LINES_PER_CHUNK = 4096


def write_compaction(store: LogStore, start: int, end: int) -> str:
    """Write the compaction of versions `start` to `end`, both included, and give its path.

    One that is there already is kept: it says the same.  A commit that is missing or malformed
    raises, and nothing is written.
    """
    if not 0 <= start < end:
        raise ValueError(f"a log compaction spans two versions or more, not {start} to {end}")
    path = compacted_path(start, end)
    with suppress(FileAlreadyExistsError):
        store.create_from(path, _chunks(reconciled(store, start, end)))
    return path


def reconciled(store: LogStore, start: int, end: int) -> Iterator[Action]:
    """The actions of versions `start` to `end` that no later one of them overrules, newest first.

    One commit is in memory at a time, and the key of every file that was spoken of.
    """
    seen: set[str] = set()
    for version in range(end, start - 1, -1):
        path = commit_path(version)
        actions = list(actions_from_json(path, store.read(path)))
        # Within a commit the last of two that say different things counts, and removes before adds.
        actions.reverse()
        actions.sort(key=lambda action: not isinstance(action, RemoveFile))
        for action in actions:
            key = _key(action, store.root_uri)
            if key is not None and key not in seen:
                seen.add(key)
                yield _as_state(action)


def _key(action: Action, root_uri: str) -> str | None:
    """What an action speaks of; None for those that are no state."""
    match action:
        case AddFile() | RemoveFile():
            vector = action.deletion_vector
            vector_id = None if vector is None else vector.unique_id
            return "file " + file_key(action.path, vector_id, root_uri)
        case SetTransaction():
            return f"txn {action.app_id}"
        case DomainMetadata():
            return f"domain {action.domain}"
        case Metadata() | Protocol():
            return action.KEY
        case _:
            return None


def _as_state(action: Action) -> Action:
    """The action as a part of the state, which repeats what commits did and changes no data."""
    if isinstance(action, AddFile | RemoveFile):
        return replace(action, data_change=False)
    return action


def _chunks(actions: Iterator[Action]) -> Iterator[bytes]:
    lines: list[str] = []
    for action in actions:
        lines.append(f"{action.json}\n")
        if len(lines) >= _LINES_PER_CHUNK:
            yield "".join(lines).encode()
            lines = []
    yield "".join(lines).encode()
