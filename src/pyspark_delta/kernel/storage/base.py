"""`LogStore`: what a Delta table asks of the storage it stands on.

Paths are text relative to the store's root, which is the table's root: decoded, separated by
`/`, as in `_delta_log/00000000000000000000.json`.  Nothing here knows what the files mean.
PROTOCOL.md, "Delta Log Entries", is why `create` must have one winner.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from pyspark_delta.errors.storage import FileMissingError
from pyspark_delta.kernel.storage.range_file import RangeFile
from pyspark_delta.kernel.storage.relative import check_relative
from pyspark_delta.kernel.storage.uris import child_uri

LINK_OUT = "a symbolic link on it leads out of the table"
"""Why a path is not opened whose links are not those of the table."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """What a listing knows about a file, so that callers need not ask again."""

    path: str  # relative to the store's root, decoded
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class ListedDirectory:
    """A directory of a tree and the files in it; "" is the root.

    `has_others` says that something is in it which is neither a file nor a directory to be listed.
    """

    path: str
    files: Sequence[FileInfo]
    has_others: bool = False


class LogStore(ABC):
    """The storage under one table.  Seven promises, which everything above relies on:

    1. Whole files: a path is listed and readable only once all of its bytes are.
    2. One winner: of any number of `create` calls for one path, in any processes, exactly one
       returns; the others raise FileAlreadyExistsError and change nothing.
    3. Fresh, ordered listings: `list_from` shows every finished write, sorted by name.
    4. Whole replacement: a reader beside `overwrite` sees all of the old file or all of the new.
    5. Inside the root: a path that leads elsewhere raises UnsafePathError before anything opens.
    6. Typed failures: what goes wrong is a StorageError.  After one, the write may or may not
       stand: only FileAlreadyExistsError, FileMissingError and NothingWrittenError say more.
       A StorageRefusedError is a NothingWrittenError that no repetition helps.
    7. No secrets: `root_uri`, `repr` and every error are free of credentials.

    Stores are safe to share between threads, and picklable: Spark sends them to its workers.
    """

    probes_cheaply: ClassVar[bool] = True
    """Is asking for one file that may be absent cheaper than a listing?"""

    has_links: ClassVar[bool] = False
    """May a name be a symbolic link?"""

    @property
    @abstractmethod
    def root_uri(self) -> str:
        """The root's absolute URI: percent-encoded once, no trailing slash, no credentials."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """All bytes of a file; FileMissingError when there is none."""

    @abstractmethod
    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Exactly `length` bytes from `start`; StorageError when the file ends before."""

    def read_many(self, paths: Sequence[str]) -> list[bytes]:
        """The bytes of each file, in the order asked for, at once where the store gains by it."""
        return [self.read(path) for path in paths]

    def size(self, path: str) -> int:
        """The file's length in bytes; FileMissingError when there is none."""
        return self.stat(path).size

    @abstractmethod
    def stat(self, path: str) -> FileInfo:
        """Size and time of the last change; FileMissingError when there is no such file."""

    def exists(self, path: str) -> bool:
        """Is there a file (not a directory) of that name?"""
        try:
            self.stat(path)
        except FileMissingError:
            return False
        return True

    @abstractmethod
    def list_from(self, start: str) -> list[FileInfo]:
        """The files beside `start` whose name is not less than its name, sorted by name.

        Directories are left out; an absent directory has no files.  `start` may end in `/`
        (every file of that directory) or be empty (every file of the root).
        """

    @abstractmethod
    def list_recursive(self, prefix: str) -> Iterator[FileInfo]:
        """Every file under the directory `prefix`, in any order, following no symbolic link."""

    def contains(self, path: str) -> bool:
        """Does `path` stay inside the root once its symbolic links are followed?"""
        return True

    def has_link_in(self, directory: str) -> bool:
        """Is any name directly in `directory` ("" for the root) a symbolic link?"""
        return False

    def list_tree(
        self, is_hidden: Callable[[str], bool], splits: Sequence[str] = ()
    ) -> Iterator[ListedDirectory]:
        """Every directory below the root, in any order, following no symbolic link.

        A name for which `is_hidden` is true is passed over, and all that is below it.  A store
        without directories has those that its files spell.  `splits` are paths, there or not,
        between which there are about as many files: a store that lists in order may list from all
        of them at once.
        """
        return by_directory(self.list_recursive(""), is_hidden)

    @abstractmethod
    def create(self, path: str, data: bytes) -> None:
        """Write a new file; if it exists, raise FileAlreadyExistsError and change nothing."""

    @abstractmethod
    def create_from(self, path: str, chunks: Iterable[bytes]) -> None:
        """`create` for a file too large for memory.

        When `chunks` raises, its exception passes through and no file is left.
        """

    @abstractmethod
    def overwrite(self, path: str, data: bytes) -> None:
        """Write a file whether or not there was one, replacing it as a whole."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove a file; that it is absent already is no error."""

    def delete_many(self, paths: Sequence[str]) -> None:
        """Remove several files; the order in which they go is not defined."""
        for path in paths:
            self.delete(path)

    def delete_directory(self, path: str) -> bool:
        """Remove a directory if it is empty; whether it went, where the store has directories."""
        check_relative(path, self.root_uri)
        return False

    def make_directory(self, path: str) -> None:
        """Make a directory and its parents, where the store has directories."""
        check_relative(path, self.root_uri)

    def arrow_file(self, path: str) -> Any:
        """An open, seekable pyarrow file, as `pyarrow.parquet.ParquetFile` takes it."""
        return pa.PythonFile(RangeFile(self.read_range, path, self.size(path)), mode="r")

    def address(self, path: str) -> str:
        """The absolute URI of a path, for messages and for other engines."""
        return child_uri(self.root_uri, path)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.root_uri!r})"


def by_directory(
    infos: Iterable[FileInfo], is_hidden: Callable[[str], bool]
) -> Iterator[ListedDirectory]:
    """The files that no hidden name leads to, by the directories that their paths spell.

    None of these is empty: something is in it, if only hidden.
    """
    files: dict[str, list[FileInfo] | None] = {"": []}  # None: hidden

    def found(directory: str) -> list[FileInfo] | None:
        if directory not in files:
            above, _, name = directory.rpartition("/")
            files[directory] = None if is_hidden(name) or found(above) is None else []
        return files[directory]

    for info in infos:
        directory, _, name = info.path.rpartition("/")
        visible = found(directory)
        if visible is not None and not is_hidden(name):
            visible.append(info)
    return (ListedDirectory(path, here, True) for path, here in files.items() if here is not None)
