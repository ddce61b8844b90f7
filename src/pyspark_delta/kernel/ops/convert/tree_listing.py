"""List the data files below a local directory, chosen by their names.

Names that begin with `_` or `.` are hidden, unless they are a partition's (`_p=1`).  Symbolic
links are followed, as Hadoop follows them, but never in a circle.  This module runs on Spark's
executors too, which have no `pyspark_delta`: it imports the standard library alone.

>>> is_hidden("_temporary"), is_hidden("_p=1"), is_hidden_file(".part=0.parquet.crc")
(True, False, True)
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

Identity = tuple[int, int]
"""The identity of a directory, whatever its path: device and inode."""

Listed = tuple[str, int, int]
"""A file: its path below the root, its size, and its modification time in milliseconds."""


def is_hidden(name: str) -> bool:
    """Whether a directory of that name is not part of the data."""
    return name[:1] in ("_", ".") and "=" not in name


def is_hidden_file(name: str) -> bool:
    """Whether a file of that name is not data: hidden, a checksum, or still being copied."""
    return name.startswith(".") or is_hidden(name) or name.endswith("._COPYING_")


def is_hidden_path(path: str) -> bool:
    """Whether a file is hidden, or in a hidden directory."""
    *directories, name = path.split("/")
    return is_hidden_file(name) or any(map(is_hidden, directories))


def list_directory(root: str, directory: str) -> tuple[list[Listed], list[str]]:
    """Files and directories of one directory below `root` ("" is the root itself), by name.

    Both are empty for a directory that does not exist.
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
                        status = entry.stat()
                        modified_ms = status.st_mtime_ns // 1_000_000
                        files.append((prefix + entry.name, status.st_size, modified_ms))
                except FileNotFoundError:  # it was deleted meanwhile
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
            below = with_directory(root, name, above)
            if below is not None:
                pending.append((name, below))


def listed_trees(root: str, directories: Iterable[str]) -> Iterator[list[Listed]]:
    """The body of a Spark task: `list_tree` of several directories."""
    for directory in directories:
        yield from list_tree(root, directory)


def with_directory(
    root: str, directory: str, above: frozenset[Identity]
) -> frozenset[Identity] | None:
    """The identities of `above` and of the directory; None in a circle, or if it is missing."""
    try:
        status = os.stat(os.path.join(root, directory))
    except OSError:
        return None
    identity = (status.st_dev, status.st_ino)
    return None if identity in above else above | {identity}


def _identities(root: str, directory: str) -> frozenset[Identity]:
    identities = with_directory(root, "", frozenset()) or frozenset()
    parts = directory.split("/") if directory else []
    for depth in range(1, len(parts) + 1):
        identities = with_directory(root, "/".join(parts[:depth]), identities) or identities
    return identities
