"""The files below a local directory that are data by their names.

Names that begin with `_` or `.` are hidden, unless they spell a partition (`_p=1`).  Symbolic
links are followed, as Hadoop follows them, but never in a circle.  This module runs on Spark's
executors too, which have no `pyspark_delta`: it imports the standard library alone.

>>> is_hidden("_temporary"), is_hidden("_p=1"), is_hidden_file(".part=0.parquet.crc")
(True, False, True)
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

Identity = tuple[int, int]
"""What tells directories apart however they are spelled: device and inode."""

Listed = tuple[str, int, int]
"""A file: its path below the root, its size, and when it was last changed in milliseconds."""


def is_hidden(name: str) -> bool:
    """Is a directory of that name no part of the data?"""
    return name[:1] in ("_", ".") and "=" not in name


def is_hidden_file(name: str) -> bool:
    """Is a file of that name no data: hidden, a checksum, or still being copied?"""
    return name.startswith(".") or is_hidden(name) or name.endswith("._COPYING_")


def is_hidden_path(path: str) -> bool:
    """Is a file hidden, or in a hidden directory?"""
    *directories, name = path.split("/")
    return is_hidden_file(name) or any(map(is_hidden, directories))


def list_directory(root: str, directory: str) -> tuple[list[Listed], list[str]]:
    """Files and directories of one directory below `root` ("" is the root itself), by name.

    A directory that is gone has neither.
    """
    files: list[Listed] = []
    directories: list[str] = []
    prefix = f"{directory}/" if directory else ""
    try:
        with os.scandir(os.path.join(root, directory)) as entries:
            for entry in entries:
                try:
                    if entry.is_dir():
                        if not is_hidden(entry.name):
                            directories.append(prefix + entry.name)
                    elif not is_hidden_file(entry.name) and entry.is_file():
                        found = entry.stat()
                        modified_ms = found.st_mtime_ns // 1_000_000
                        files.append((prefix + entry.name, found.st_size, modified_ms))
                except FileNotFoundError:  # it went while we looked
                    continue
    except (FileNotFoundError, NotADirectoryError):
        return [], []
    files.sort()
    directories.sort()
    return files, directories


def list_tree(root: str, directory: str = "") -> Iterator[list[Listed]]:
    """The files of `directory` and of all directories below it, one directory after another."""
    pending = [(directory, _identities(root, directory))]
    while pending:
        here, above = pending.pop()
        files, directories = list_directory(root, here)
        if files:
            yield files
        for name in reversed(directories):
            below = with_identity(root, name, above)
            if below is not None:
                pending.append((name, below))


def listed_trees(root: str, directories: Iterable[str]) -> Iterator[list[Listed]]:
    """What a Spark task does: `list_tree` of several directories."""
    for directory in directories:
        yield from list_tree(root, directory)


def with_identity(
    root: str, directory: str, above: frozenset[Identity]
) -> frozenset[Identity] | None:
    """The identities on the way to a directory; None when the way has come there before."""
    try:
        found = os.stat(os.path.join(root, directory))
    except OSError:
        return None
    identity = (found.st_dev, found.st_ino)
    return None if identity in above else above | {identity}


def _identities(root: str, directory: str) -> frozenset[Identity]:
    found = with_identity(root, "", frozenset()) or frozenset()
    parts = directory.split("/") if directory else []
    for depth in range(1, len(parts) + 1):
        found = with_identity(root, "/".join(parts[:depth]), found) or found
    return found
