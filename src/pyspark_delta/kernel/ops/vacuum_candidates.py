"""What a VACUUM may find below a table's root: by listing it, in an inventory, or from the log.

A name that begins with `_` or `.` is hidden, and all below it, unless it is a partition's
(`_day=1`), a change feed's or an index's.  Whatever names a file, only one that is there, plainly
below the root and behind no symbolic link, is a candidate.

>>> is_hidden = hidden_names(Metadata(id="1", partition_columns=("_day",)))
>>> [is_hidden(name) for name in ("_delta_log", "_change_data", "_day=1", ".f.crc", "f")]
[True, False, False, True, False]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice

from pyspark_delta.errors.storage import FileMissingError
from pyspark_delta.errors.table import OperationNotAllowedError, UnsafePathError
from pyspark_delta.kernel.log.segment import list_log
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.ops.last_vacuum import read_last_vacuum
from pyspark_delta.kernel.ops.needed_files import CHANGE, REMOVE, LoggedFile, logged_actions
from pyspark_delta.kernel.protocol.actions import Metadata, RemoveFile
from pyspark_delta.kernel.protocol.column_mapping import PHYSICAL_NAME_KEY
from pyspark_delta.kernel.protocol.paths import LOG_DIRECTORY
from pyspark_delta.kernel.protocol.properties import UNIVERSAL_FORMATS, property_value
from pyspark_delta.kernel.storage.base import FileInfo, ListedDirectory, LogStore
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.storage.relative import check_relative
from pyspark_delta.kernel.storage.uris import resolve_action_path
from pyspark_delta.kernel.txn.vector_files import path_in_table

Tell = Callable[[str, int, int | None], None]
"""Hears how many files a stage has done, and of how many if that is known."""

CHANGE_DIRECTORY = "_change_data"
_INDEX_DIRECTORY = "_delta_index"
_ICEBERG_DIRECTORY = "metadata"
_TOLD_EVERY = 256
_WORTH_SPLITTING = 4000
_SAMPLE = 1024
_RANGES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryEntry:
    """A row of an inventory; `path` is below the root and decoded."""

    path: str
    size: int
    is_directory: bool
    modified_ms: int


@dataclass(slots=True)
class Candidates:
    """Files old enough to go, and directories with nothing in them, the deepest first.

    `num_directories` counts all directories that were looked at, the root among them.
    """

    files: list[FileInfo] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)
    num_directories: int = 1


def hidden_names(metadata: Metadata) -> Callable[[str], bool]:
    """Whether a VACUUM of the table passes over a name, and all that is below it."""
    columns = dict.fromkeys(metadata.partition_columns)
    for f in metadata.schema:
        if f.name in metadata.partition_columns:  # by either name: the mapping may be a new one
            columns[str(f.metadata.get(PHYSICAL_NAME_KEY, f.name))] = None
    visible = (CHANGE_DIRECTORY, _INDEX_DIRECTORY, *(f"{column}=" for column in columns))
    has_iceberg = "iceberg" in property_value(metadata.configuration, UNIVERSAL_FORMATS)

    def is_hidden(name: str) -> bool:
        if name[0] in "_.":
            return not name.startswith(visible)
        return has_iceberg and name == _ICEBERG_DIRECTORY

    return is_hidden


def listed_candidates(
    store: LogStore,
    is_hidden: Callable[[str], bool],
    needed: set[str],
    cutoff_ms: int,
    tell: Tell,
) -> Candidates:
    """What a listing of the whole table finds."""
    found = Candidates(num_directories=0)
    listed: list[str] = []
    full: set[str] = set()
    seen = 0
    for directory in store.list_tree(is_hidden, _splits(needed)):
        listed.append(directory.path)
        if directory.files or directory.has_others:
            _mark(full, directory)
        for info in directory.files:
            if info.path not in needed and info.modified_ms < cutoff_ms and _is_plain(info.path):
                found.files.append(info)
        seen += len(directory.files)
        if len(listed) % _TOLD_EVERY == 0:
            tell("listing", seen, None)
    tell("listing", seen, None)
    found.num_directories = max(len(listed), 1)
    found.directories = _empty(listed, full, needed)
    return found


def inventory_candidates(
    store: LogStore,
    entries: Iterable[InventoryEntry],
    is_hidden: Callable[[str], bool],
    needed: set[str],
    cutoff_ms: int,
    threads: int,
) -> Candidates:
    """What an inventory tells, of which only what is still there, and old, is a candidate."""
    chosen: dict[str, FileInfo] = {}
    directories: set[str] = set()
    full: set[str] = set()
    for entry in entries:
        path = entry.path.rstrip("/") if entry.is_directory else entry.path
        if not _is_plain(path) or any(map(is_hidden, path.split("/"))):
            continue
        if entry.is_directory:
            directories.add(path)
            continue
        _mark(full, ListedDirectory(path.rpartition("/")[0], ()))
        if path not in needed and entry.modified_ms < cutoff_ms:
            chosen[path] = FileInfo(path, entry.size, entry.modified_ms)
    # An inventory may be as old as one likes, and anybody's: the file itself says how old it is.
    there = _present(store, list(chosen.values()), threads)
    return Candidates(
        files=[info for info in there if info.modified_ms < cutoff_ms],
        directories=_empty(directories, full, needed),
        num_directories=len(directories) + 1,
    )


def logged_candidates(
    snapshot: Snapshot,
    last_version: int | None,
    is_hidden: Callable[[str], bool],
    needed: set[str],
    cutoff_ms: int,
    threads: int,
) -> Candidates:
    """What commits removed up to `last_version` that no earlier VACUUM has looked at.

    OperationNotAllowedError when some of these commits are gone.
    """
    store = snapshot.store
    if last_version is None:
        return Candidates()
    commits = list_log(store).commits
    earliest = commits[0].version if commits else 0
    known = read_last_vacuum(store)
    first = 0 if known is None else known + 1
    if first < earliest:
        raise OperationNotAllowedError("DELTA_CANNOT_VACUUM_LITE")
    # As delta-spark: a note from the future is not believed to the end.
    first = min(first, snapshot.version)
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
        if info.modified_ms < cutoff_ms
        and info.path not in needed
        and not any(map(is_hidden, info.path.split("/")))
    ]
    # Sizes as the log has them: several vectors share a file.
    there = {info.path for info in _present(store, old, threads)}
    return Candidates(files=[info for info in old if info.path in there])


def _splits(needed: set[str]) -> list[str]:
    """A few of many paths, between which there are about as many: others lie as these do."""
    if len(needed) < _WORTH_SPLITTING:
        return []
    some = sorted(islice(needed, _SAMPLE))  # a set has no order that would favour any
    return some[:: len(some) // _RANGES][1:]


def _removed_files(action: LoggedFile, root_uri: str) -> Iterator[FileInfo]:
    """The files that a commit has done with, as of when it removed them."""
    removed_ms = (action.deletion_timestamp or 0) if isinstance(action, RemoveFile) else 0
    with suppress(UnsafePathError):
        found = resolve_action_path(action.path, root_uri)
        if not found.is_absolute:
            yield FileInfo(found.path, action.size or 0, removed_ms)
    if isinstance(action, RemoveFile) and action.deletion_vector is not None:
        path = path_in_table(action.deletion_vector)
        if path is not None and _is_plain(path):
            yield FileInfo(path, action.deletion_vector.size_in_bytes, removed_ms)


def _present(store: LogStore, infos: Sequence[FileInfo], threads: int) -> list[FileInfo]:
    """Those of the files that are there, with their own size and time."""

    def look(info: FileInfo) -> FileInfo | None:
        try:
            if isinstance(store, LocalStore) and store.crosses_link(info.path):
                return None  # what is behind it may have another name, and be needed
            return store.stat(info.path)
        except (FileMissingError, UnsafePathError):
            return None

    if not infos:
        return []
    with ThreadPoolExecutor(threads) as pool:
        return [info for info in pool.map(look, infos) if info is not None]


def _mark(full: set[str], directory: ListedDirectory) -> None:
    """Note that a directory is not empty, and so none of those above it."""
    path = directory.path
    while path and path not in full:
        full.add(path)
        path = path.rpartition("/")[0]


def _empty(listed: Iterable[str], full: set[str], needed: set[str]) -> list[str]:
    """The directories with nothing in them but such directories, the deepest first."""
    empty = [path for path in listed if path and path not in full and _is_plain(path)]
    if empty:
        # A file that is missing where the log says it is may come back to its place.
        wanted: set[str] = set()
        for path in needed:
            _mark(wanted, ListedDirectory(path.rpartition("/")[0], ()))
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
