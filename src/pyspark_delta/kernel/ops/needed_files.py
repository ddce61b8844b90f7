"""The files that a table still needs: those of its versions, of vectors, and of change feeds.

As decoded paths below the table's root; files elsewhere are left out.  A file too many here stays
on disk, one too few is lost, so a path that has two readings counts with both.  PROTOCOL.md, "Add
File and Remove File", "Deletion Vectors", "Add CDC File".
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors.table import DeletionVectorError
from pyspark_delta.kernel.log.commit_lines import action_at, json_object, lines
from pyspark_delta.kernel.log.frames import canonical_paths
from pyspark_delta.kernel.log.segment import LogFile
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.action_parts import DeletionVectorDescriptor
from pyspark_delta.kernel.protocol.actions import ACTIONS, AddCDCFile, AddFile, RemoveFile
from pyspark_delta.kernel.protocol.deletion_vectors import ABSOLUTE, IN_TABLE, INLINE
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.txn.vector_files import path_in_table

LoggedFile = AddFile | RemoveFile | AddCDCFile
"""An action about a file."""

REMOVE, CHANGE = "remove", "cdc"
"""The keys of actions that name files which no later version has."""

_PATH, _VECTOR, _DELETED_AT = "path", "deletionVector", "deletionTimestamp"
# What may be spelled in more than one way, of it what climbs or stands still, and what is absolute.
_ODD = r"[%:\\]|^/|(^|/)\.{0,2}(/|$)"
_CLIMBS = r"(^|/|\\)\.{0,2}(/|\\|$)"
_ABSOLUTE = r"^/|^[A-Za-z][A-Za-z0-9+.\-]*:"
_BATCH = 256


def needed_paths(snapshot: Snapshot, cutoff_ms: int) -> set[str]:
    """What the version needs, and those before it that were the newest at `cutoff_ms` or later."""
    removed = snapshot.tombstones([_PATH, _DELETED_AT, _VECTOR])
    deleted_at = pc.fill_null(removed.column(_DELETED_AT), 0)
    recent = removed.filter(pc.greater_equal(deleted_at, cutoff_ms))
    return live_paths(snapshot) | _paths(recent, snapshot.store)


def live_paths(snapshot: Snapshot) -> set[str]:
    """What reading the version needs: its files and their vectors."""
    return _paths(snapshot.files_with([_PATH, _VECTOR]), snapshot.store)


def logged_paths(store: LogStore, commits: Sequence[LogFile], keys: Collection[str]) -> set[str]:
    """What the actions of `keys` in these commits name, and the vectors beside it."""
    actions = list(logged_actions(store, commits, keys))
    columns = {
        _PATH: pa.array([action.path for action in actions], pa.string()),
        _VECTOR: pa.array([_vector_value(action) for action in actions], _VECTOR_TYPE),
    }
    return _paths(pa.table(columns), store)


def logged_actions(
    store: LogStore, commits: Sequence[LogFile], keys: Collection[str]
) -> Iterator[LoggedFile]:
    """The actions of `keys` in these commits, in their order; other lines are not looked at."""
    marks = [f'"{key}"'.encode() for key in keys]
    for start in range(0, len(commits), _BATCH):
        paths = [file.info.path for file in commits[start : start + _BATCH]]
        for path, data in zip(paths, store.read_many(paths), strict=True):
            for number, offset, line in lines(data):
                if not any(mark in line for mark in marks):
                    continue
                value = json_object(path, number, offset, line)
                for key in keys:
                    if value.get(key) is not None:
                        action = action_at(ACTIONS[key], value[key], (path, number, offset))
                        assert isinstance(action, LoggedFile)
                        yield action


def _paths(table: pa.Table, store: LogStore) -> set[str]:
    """What the columns `path` and `deletionVector` name below the root, in every reading."""
    written = _combined(table.column(_PATH))
    vectors = _combined(table.column(_VECTOR))
    uris, in_table = _vector_files(vectors.filter(pc.is_valid(vectors)))
    written = pa.concat_arrays([written, uris])
    found = set(canonical_paths(written, store.root_uri).to_pylist())
    odd = written.filter(pc.match_substring_regex(written, _ODD))
    # A writer that forgot to encode meant the path as it stands.
    found.update(odd.to_pylist())
    climbing = odd.filter(pc.match_substring_regex(odd, _CLIMBS)).to_pylist()
    for path in climbing:
        found.update(posixpath.normpath(each).lstrip("/") for each in (path, unquote(path)))
    if isinstance(store, LocalStore):
        absolute = odd.filter(pc.match_substring_regex(odd, _ABSOLUTE)).to_pylist()
        found.update(_behind_links(store.root_path, absolute))
    found.update(in_table)
    return found


def _vector_files(vectors: pa.Array) -> tuple[pa.Array, list[str]]:
    """Addresses of vectors that are elsewhere, and the table's own files that hold some."""
    if not len(vectors):
        return pa.array([], pa.string()), []
    kinds, where = (pc.struct_field(vectors, name) for name in ("storageType", "pathOrInlineDv"))
    unknown = pc.unique(kinds).filter(
        pc.invert(pc.is_in(pc.unique(kinds), value_set=pa.array([IN_TABLE, ABSOLUTE, INLINE])))
    )
    if len(unknown):  # what it needs is not known, so nothing is free to go
        reason = f"there is no storage type {unknown[0].as_py()!r}"
        raise DeletionVectorError("DELTA_DELETION_VECTOR_INVALID_DESCRIPTOR", reason=reason)
    own = pc.unique(where.filter(pc.equal(kinds, IN_TABLE))).to_pylist()
    paths = [path_in_table(_descriptor(each)) for each in own]
    uris = pc.unique(where.filter(pc.equal(kinds, ABSOLUTE)))
    return uris, [path for path in paths if path is not None]


def _descriptor(where: str) -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor(
        storage_type=IN_TABLE, path_or_inline_dv=where, offset=0, size_in_bytes=1, cardinality=1
    )


def _behind_links(root: str, uris: Iterable[str]) -> Iterator[str]:
    """Files that lie below the root once symbolic links are followed, on either side."""
    real_root = os.path.realpath(root) + "/"
    known: dict[str, str] = {}
    for uri in uris:
        path = uri.partition(":")[2] if not uri.startswith("/") else uri
        for spelled in {path, unquote(path)}:
            directory, _, name = spelled.rpartition("/")
            if directory not in known:
                known[directory] = os.path.realpath(f"/{directory.lstrip('/')}")
            whole = f"{known[directory]}/{name}"
            if whole.startswith(real_root):
                yield whole[len(real_root) :]


def _vector_value(action: LoggedFile) -> dict[str, Any] | None:
    vector: DeletionVectorDescriptor | None = getattr(action, "deletion_vector", None)
    if vector is None:
        return None
    return {"storageType": vector.storage_type, "pathOrInlineDv": vector.path_or_inline_dv}


_VECTOR_TYPE = pa.struct([("storageType", pa.string()), ("pathOrInlineDv", pa.string())])


def _combined(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    # Beyond 2 GB of text Arrow keeps chunks, which no list of files has to be.
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)
