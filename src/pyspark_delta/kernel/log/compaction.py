"""Log compactions: one file with the reconciled actions of commits x to y, for a shorter replay.

Tombstones stay, because they must hide files of older checkpoints; provenance and change files are
left out, because they are not state.  PROTOCOL.md, "Log Compaction Files".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from pyspark_delta.errors import FileAlreadyExistsError
from pyspark_delta.kernel.log.frames.commit_lines import actions_from_json
from pyspark_delta.kernel.log.frames.file_actions import action_key
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
    """Write the compaction of versions `start` to `end`, both included, and return its path.

    An existing one is kept: it has the same content.  A commit that is missing or malformed
    raises, and nothing is written.
    """
    if not 0 <= start < end:
        raise ValueError(f"a log compaction spans two versions or more, not {start} to {end}")
    path = compacted_path(start, end)
    with suppress(FileAlreadyExistsError):
        store.create_from(path, _chunks(reconciled(store, start, end)))
    return path


def reconciled(store: LogStore, start: int, end: int) -> Iterator[Action]:
    """The reconciled actions of versions `start` to `end`, newest first.

    One commit is in memory at a time, and the key of every file in the actions so far.
    """
    seen: set[str] = set()
    for version in range(end, start - 1, -1):
        path = commit_path(version)
        actions = list(actions_from_json(path, store.read(path)))
        # Within a commit the last of two contradicting actions counts, and removes before adds.
        actions.reverse()
        actions.sort(key=lambda action: not isinstance(action, RemoveFile))
        for action in actions:
            key = _key(action, store.root_uri)
            if key is not None and key not in seen:
                seen.add(key)
                if isinstance(action, AddFile | RemoveFile):
                    # It repeats what a commit did, and changes no data.
                    action = replace(action, data_change=False)
                yield action


def _key(action: Action, root_uri: str) -> str | None:
    """The action's key for reconciliation; None if it is not part of the state."""
    match action:
        case AddFile() | RemoveFile():
            return f"file {action_key(action, root_uri)}"
        case SetTransaction():
            return f"txn {action.app_id}"
        case DomainMetadata():
            return f"domain {action.domain}"
        case Metadata() | Protocol():
            return action.KEY
        case _:
            return None


def _chunks(actions: Iterator[Action]) -> Iterator[bytes]:
    lines: list[str] = []
    for action in actions:
        lines.append(f"{action.json}\n")
        if len(lines) >= _LINES_PER_CHUNK:
            yield "".join(lines).encode()
            lines = []
    yield "".join(lines).encode()
