"""Find candidates for VACUUM, by a listing, an inventory or the log, and the files a table needs.

A name that begins with `_` or `.` is hidden, and all below it, unless it is a partition's
(`_day=1`), a change feed's or an index's.  From every source, a file is a candidate only if it
exists plainly below the root and behind no symbolic link.

A table needs the files of its versions, of vectors, and of change feeds.  A superfluous path only
keeps a file on disk, a missing one loses it, so a path with two readings counts as both.
PROTOCOL.md, "Add File and Remove File", "Deletion Vectors", "Add CDC File".

>>> is_hidden = hidden_names(Metadata(id="1", partition_columns=("_day",)))
>>> [is_hidden(name) for name in ("_delta_log", "_change_data", "_day=1", ".f.crc", "f")]
[True, False, False, True, False]
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors import (
    DeletionVectorError,
    FileMissingError,
    OperationNotAllowedError,
    UnsafePathError,
)
from pyspark_delta.kernel.log.frames.commit_lines import action_at, json_object, lines
from pyspark_delta.kernel.log.frames.file_actions import canonical_paths
from pyspark_delta.kernel.log.history import with_contents
from pyspark_delta.kernel.log.segment import LogFile, list_log
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.ops.notes import read_last_vacuum
from pyspark_delta.kernel.protocol.action_parts import DeletionVectorDescriptor
from pyspark_delta.kernel.protocol.actions import ACTIONS, AddCDCFile, AddFile, Metadata, RemoveFile
from pyspark_delta.kernel.protocol.column_mapping import PHYSICAL_NAME_KEY
from pyspark_delta.kernel.protocol.deletion_vectors import ABSOLUTE, IN_TABLE, INLINE
from pyspark_delta.kernel.protocol.paths import LOG_DIRECTORY
from pyspark_delta.kernel.protocol.properties import UNIVERSAL_FORMATS, property_value
from pyspark_delta.kernel.storage.base import FileInfo, LogStore
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.storage.uris import check_relative, resolve_action_path
from pyspark_delta.kernel.txn.vector_files import path_in_table

Progress = Callable[[str, int, int | None], None]
"""A progress callback: stage, number of processed files, and total number if known."""
LoggedFile = AddFile | RemoveFile | AddCDCFile
"""An action about a file."""
REMOVE, CHANGE = "remove", "cdc"
"""The keys of actions with files that no later version has."""
CHANGE_DIRECTORY = "_change_data"

_INDEX_DIRECTORY = "_delta_index"
_ICEBERG_DIRECTORY = "metadata"
_REPORT_EVERY = 256
_WORTH_SPLITTING = 4000
_SAMPLE = 1024
_RANGES = 16
_PATH, _VECTOR, _DELETED_AT = "path", "deletionVector", "deletionTimestamp"
_VECTOR_TYPE = pa.struct([("storageType", pa.string()), ("pathOrInlineDv", pa.string())])
# Paths that can be spelled in several ways: escapes, `.` and `..` steps, absolute paths.
_ODD = r"[%:\\]|^/|(^|/)\.{0,2}(/|$)"
_CLIMBS = r"(^|/|\\)\.{0,2}(/|\\|$)"
_ABSOLUTE = r"^/|^[A-Za-z][A-Za-z0-9+.\-]*:"


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryEntry:
    """A row of an inventory; `path` is decoded and relative to the root."""

    path: str
    size: int
    is_directory: bool
    modified_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What every search for candidates goes by: names, the files to keep, and the age of others."""

    store: LogStore
    is_hidden: Callable[[str], bool]
    needed: set[str]
    cutoff_ms: int
    threads: int
    report: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Files old enough to delete, and empty directories, the deepest first.

    `num_directories` counts all visited directories, the root included.
    """

    files: list[FileInfo] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)
    num_directories: int = 1

    def without(self, paths: Collection[str]) -> Candidates:
        return replace(self, files=[info for info in self.files if info.path not in paths])


def hidden_names(metadata: Metadata) -> Callable[[str], bool]:
    """A function that tests whether VACUUM ignores a name, and all that is below it."""
    columns = dict.fromkeys(metadata.partition_columns)
    for f in metadata.schema:
        if f.name in metadata.partition_columns:  # mapped columns: by either name
            columns[str(f.metadata.get(PHYSICAL_NAME_KEY, f.name))] = None
    visible = (CHANGE_DIRECTORY, _INDEX_DIRECTORY, *(f"{column}=" for column in columns))
    has_iceberg = "iceberg" in property_value(metadata.configuration, UNIVERSAL_FORMATS)

    def is_hidden(name: str) -> bool:
        if name[0] in "_.":
            return not name.startswith(visible)
        return has_iceberg and name == _ICEBERG_DIRECTORY

    return is_hidden


def listed_candidates(search: Search) -> Candidates:
    """The candidates in a listing of the whole table."""
    files: list[FileInfo] = []
    listed: list[str] = []
    full: set[str] = set()
    num_files = 0
    for directory in search.store.list_tree(search.is_hidden, _splits(search.needed)):
        listed.append(directory.path)
        if directory.files or directory.has_others:
            _mark_full(full, directory.path)
        files += (
            info
            for info in directory.files
            if info.path not in search.needed
            and info.modified_ms < search.cutoff_ms
            and _is_plain(info.path)
        )
        num_files += len(directory.files)
        if len(listed) % _REPORT_EVERY == 0:
            search.report("listing", num_files, None)
    search.report("listing", num_files, None)
    directories = _empty(listed, full, search.needed)
    return Candidates(files=files, directories=directories, num_directories=max(len(listed), 1))


def inventory_candidates(search: Search, entries: Iterable[InventoryEntry]) -> Candidates:
    """The candidates in an inventory: only files that still exist and are old."""
    chosen: dict[str, FileInfo] = {}
    directories: set[str] = set()
    full: set[str] = set()
    for entry in entries:
        path = entry.path.rstrip("/") if entry.is_directory else entry.path
        if not _is_plain(path) or any(map(search.is_hidden, path.split("/"))):
            continue
        if entry.is_directory:
            directories.add(path)
            continue
        _mark_full(full, path.rpartition("/")[0])
        if path not in search.needed and entry.modified_ms < search.cutoff_ms:
            chosen[path] = FileInfo(path=path, size=entry.size, modified_ms=entry.modified_ms)
    # An inventory may be outdated, and from any source: the file itself has its true age.
    existing = _existing(search, list(chosen.values()))
    return Candidates(
        files=[info for info in existing if info.modified_ms < search.cutoff_ms],
        directories=_empty(directories, full, search.needed),
        num_directories=len(directories) + 1,
    )


def logged_candidates(search: Search, version: int, last_version: int | None) -> Candidates:
    """The files that commits up to `last_version` removed since the last complete VACUUM.

    `version` is the newest one.  Raises OperationNotAllowedError when some of these commits are
    gone.
    """
    if last_version is None:
        return Candidates()
    store = search.store
    commits = list_log(store).commits
    known = read_last_vacuum(store)
    first = 0 if known is None else known + 1
    if commits and first < commits[0].version:
        raise OperationNotAllowedError("DELTA_CANNOT_VACUUM_LITE")
    # As in delta-spark: a noted version after the newest one is not trusted.
    first = min(first, version)
    chosen = [file for file in commits if first <= file.version <= last_version]
    removed: dict[str, FileInfo] = {}
    for action in logged_actions(store, chosen, (REMOVE, CHANGE)):
        for info in _removed_files(action, store.root_uri):
            before = removed.get(info.path)
            if before is None or before.modified_ms < info.modified_ms:
                removed[info.path] = info
    old = [
        info
        for info in removed.values()
        if info.modified_ms < search.cutoff_ms
        and info.path not in search.needed
        and not any(map(search.is_hidden, info.path.split("/")))
    ]
    # Sizes are as in the log: several vectors share a file.
    existing = {info.path for info in _existing(search, old)}
    return Candidates(files=[info for info in old if info.path in existing])


def _splits(needed: set[str]) -> list[str]:
    """Bounds among many paths, from a sample, with about equally many paths between them."""
    if len(needed) < _WORTH_SPLITTING:
        return []
    some = sorted(islice(needed, _SAMPLE))  # a set has no order that would favour any
    return some[:: len(some) // _RANGES][1:]


def _removed_files(action: LoggedFile, root_uri: str) -> Iterator[FileInfo]:
    removed_ms = (action.deletion_timestamp or 0) if isinstance(action, RemoveFile) else 0
    with suppress(UnsafePathError):
        resolved = resolve_action_path(action.path, root_uri)
        if not resolved.is_absolute:
            yield FileInfo(path=resolved.path, size=action.size or 0, modified_ms=removed_ms)
    if isinstance(action, RemoveFile) and action.deletion_vector is not None:
        path = path_in_table(action.deletion_vector)
        if path is not None and _is_plain(path):
            yield FileInfo(
                path=path, size=action.deletion_vector.size_in_bytes, modified_ms=removed_ms
            )


def _existing(search: Search, infos: Sequence[FileInfo]) -> list[FileInfo]:
    store = search.store

    def look(info: FileInfo) -> FileInfo | None:
        try:
            if isinstance(store, LocalStore) and store.crosses_link(info.path):
                return None  # the file behind a link may be needed under another name
            return store.stat(info.path)
        except (FileMissingError, UnsafePathError):
            return None

    if not infos:
        return []
    with ThreadPoolExecutor(search.threads) as pool:
        return [info for info in pool.map(look, infos) if info is not None]


def _mark_full(full: set[str], path: str) -> None:
    while path and path not in full:
        full.add(path)
        path = path.rpartition("/")[0]


def _empty(listed: Iterable[str], full: set[str], needed: set[str]) -> list[str]:
    """The directories that hold nothing but empty directories, the deepest first."""
    empty = [path for path in listed if path and path not in full and _is_plain(path)]
    if empty:
        # A file that is missing from its directory may be restored there.
        wanted: set[str] = set()
        for path in needed:
            _mark_full(wanted, path.rpartition("/")[0])
        empty = [path for path in empty if path not in wanted]
    return sorted(empty, key=lambda path: (-path.count("/"), path))


def _is_plain(path: str) -> bool:
    """Whether a path is plainly below the root and not in the log, so that it may be deleted."""
    if path == LOG_DIRECTORY or path.startswith(f"{LOG_DIRECTORY}/"):
        return False
    try:
        check_relative(path)
    except UnsafePathError:
        return False
    return True


# The files that a table needs.


def needed_paths(snapshot: Snapshot, cutoff_ms: int) -> set[str]:
    """The files of the version, and of earlier ones that were current at `cutoff_ms` or later."""
    removed = snapshot.tombstones([_PATH, _DELETED_AT, _VECTOR])
    deleted_at = pc.fill_null(removed.column(_DELETED_AT), 0)
    recent = removed.filter(pc.greater_equal(deleted_at, cutoff_ms))
    return live_paths(snapshot) | _paths(recent, snapshot.store)


def live_paths(snapshot: Snapshot) -> set[str]:
    """The files for reading the version: data files and their vectors."""
    return _paths(snapshot.files_with([_PATH, _VECTOR]), snapshot.store)


def logged_paths(store: LogStore, commits: Sequence[LogFile], keys: Collection[str]) -> set[str]:
    """The files that the actions of `keys` in these commits name, and their vectors."""
    actions = list(logged_actions(store, commits, keys))
    vectors = [getattr(action, "deletion_vector", None) for action in actions]
    values = [None if vector is None else vector.to_json_value() for vector in vectors]
    columns = {
        _PATH: pa.array([action.path for action in actions], pa.string()),
        _VECTOR: pa.array(values, _VECTOR_TYPE),
    }
    return _paths(pa.table(columns), store)


def logged_actions(
    store: LogStore, commits: Sequence[LogFile], keys: Collection[str]
) -> Iterator[LoggedFile]:
    """The actions of `keys` in these commits, in their order; other lines are not parsed."""
    marks = [f'"{key}"'.encode() for key in keys]
    for file, data in with_contents(store, commits):
        path = file.info.path
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
    """The files below the root in the columns `path` and `deletionVector`, in every reading."""
    written = _combined(table.column(_PATH))
    vectors = _combined(table.column(_VECTOR))
    uris, in_table = _vector_files(vectors.filter(pc.is_valid(vectors)))
    written = pa.concat_arrays([written, uris])
    paths = set(canonical_paths(written, store.root_uri).to_pylist())
    odd = written.filter(pc.match_substring_regex(written, _ODD))
    # A writer that did not encode the path meant it literally.
    paths.update(odd.to_pylist())
    climbing = odd.filter(pc.match_substring_regex(odd, _CLIMBS)).to_pylist()
    for path in climbing:
        paths.update(posixpath.normpath(each).lstrip("/") for each in (path, unquote(path)))
    if isinstance(store, LocalStore):
        absolute = odd.filter(pc.match_substring_regex(odd, _ABSOLUTE)).to_pylist()
        paths.update(_behind_links(store.root_path, absolute))
    paths.update(in_table)
    return paths


def _vector_files(vectors: pa.Array) -> tuple[pa.Array, list[str]]:
    """URIs of vectors outside of the table, and the table's own files that hold vectors."""
    if not len(vectors):
        return pa.array([], pa.string()), []
    kinds, where = (pc.struct_field(vectors, name) for name in ("storageType", "pathOrInlineDv"))
    unknown = pc.unique(kinds).filter(
        pc.invert(pc.is_in(pc.unique(kinds), value_set=pa.array([IN_TABLE, ABSOLUTE, INLINE])))
    )
    if len(unknown):  # the files that it needs are unknown, so none may be deleted
        reason = f"there is no storage type {unknown[0].as_py()!r}"
        raise DeletionVectorError("DELTA_DELETION_VECTOR_INVALID_DESCRIPTOR", reason=reason)
    own = pc.unique(where.filter(pc.equal(kinds, IN_TABLE))).to_pylist()
    paths = [
        path_in_table(
            DeletionVectorDescriptor(
                storage_type=IN_TABLE, path_or_inline_dv=each, size_in_bytes=0, cardinality=0
            )
        )
        for each in own
    ]
    uris = pc.unique(where.filter(pc.equal(kinds, ABSOLUTE)))
    return uris, [path for path in paths if path is not None]


def _behind_links(root: str, uris: Iterable[str]) -> Iterator[str]:
    """Files that are below the root after resolving symbolic links, in the path and the root."""
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


def _combined(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    # Beyond 2 GB of text Arrow keeps chunks; a list of files is not expected to be as large.
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)
