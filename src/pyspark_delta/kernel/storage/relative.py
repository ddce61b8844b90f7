"""Paths relative to a store's root: which are safe, and their parts.

Text only: whether a safe path crosses a symbolic link is for the local store to find out.

>>> check_relative("_delta_log/00000000000000000000.json")
>>> split_start("_delta_log/00000000000000000007.json")
('_delta_log', '00000000000000000007.json')
"""

from __future__ import annotations

from pyspark_delta.errors.table import UnsafePathError

MOST_SHOWN = 1000
"""How many characters of a path an error repeats: a log may hold megabytes of it."""

_UNSAFE_SEGMENTS = frozenset({"", ".", ".."})


def check_relative(path: str, table: str = "<unknown>") -> None:
    """Refuse a path that is not plainly inside the root.  `table` is for the message."""
    if not path:
        reason = "it is empty"
    elif "\0" in path:
        reason = "it holds a NUL character"
    elif path[0] == "/":
        reason = "it is absolute"
    elif not _is_encodable(path):
        reason = "it is not valid Unicode"
    elif _is_plain(path):
        return
    else:
        reason = "it has an empty segment, or one that is '.' or '..'"
    shown = path[:MOST_SHOWN].encode("utf-8", "backslashreplace").decode()
    raise UnsafePathError("DELTA_UNSAFE_PATH", path=shown, table=table, reason=reason)


def check_directory(path: str, table: str = "<unknown>") -> str:
    """The directory `path` without its final `/`; "" is the root."""
    directory = path[:-1] if path.endswith("/") else path
    if path:
        check_relative(directory, table)
    return directory


def split_start(start: str, table: str = "<unknown>") -> tuple[str, str]:
    """The directory and the least name that `LogStore.list_from` is asked for."""
    directory, slash, name = start.rpartition("/")
    if slash:
        check_relative(directory, table)
    if name:
        check_relative(name, table)
    return directory, name


def _is_plain(path: str) -> bool:
    # Tools that read a table on Windows take a backslash for a separator; elsewhere it is a
    # letter like any other.  So only a backslash that could climb is refused.
    segments = path.replace("\\", "/").split("/")
    return _UNSAFE_SEGMENTS.isdisjoint(segments)


def _is_encodable(path: str) -> bool:
    try:
        # The surrogates that stand for bytes in a local file's name are wanted: such a file must
        # be listed and deleted like any other.
        path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True
