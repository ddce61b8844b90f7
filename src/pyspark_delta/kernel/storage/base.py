"""`LogStore`: the contract of the storage under a Delta table.

Paths are text relative to the store's root, which is the table's root: decoded, separated by
`/`, as in `_delta_log/00000000000000000000.json`.  Stores do not interpret the files.
PROTOCOL.md, "Delta Log Entries", is the reason why `create` must have one winner.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from pyspark_delta.errors import FileMissingError, StorageError
from pyspark_delta.kernel.storage.uris import check_relative, child_uri

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

LINK_OUT = "a symbolic link on it leads out of the table"
"""The reason for not opening a path with links that lead out of the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    """The facts about a file in a listing, which spare callers another request."""

    path: str  # relative to the store's root, decoded
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedDirectory:
    """A directory of a tree and the files in it; "" is the root.

    `has_others` is true if it contains anything besides files and directories of the listing.
    """

    path: str
    files: Sequence[FileInfo]
    has_others: bool = False


class LogStore(ABC):
    """The storage under one table.  All other code relies on seven promises:

    1. Whole files: a path is listed and readable only once all of its bytes are.
    2. One winner: of any number of `create` calls for one path, in any processes, exactly one
       returns; the others raise FileAlreadyExistsError and change nothing.
    3. Fresh, ordered listings: `list_from` shows every finished write, sorted by name.
    4. Whole replacement: a reader beside `overwrite` sees all of the old file or all of the new.
    5. Inside the root: a path that leads elsewhere raises UnsafePathError before anything opens.
    6. Typed failures: what goes wrong is a StorageError.  After one, the write may or may not
       be done, but for FileAlreadyExistsError, FileMissingError and NothingWrittenError.
       A StorageRefusedError is a NothingWrittenError that no repetition helps.
    7. No secrets: `root_uri`, `repr` and every error are free of credentials.

    Stores are safe to share between threads, and picklable: Spark sends them to its workers.
    """

    probes_cheaply: ClassVar[bool] = True
    """Whether a request for one file that may be absent is cheaper than a listing."""

    has_links: ClassVar[bool] = False
    """Whether a name may be a symbolic link."""

    root_uri: str
    """The root's absolute URI: percent-encoded once, no trailing slash, no credentials."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """All bytes of a file; FileMissingError when there is none."""

    @abstractmethod
    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Exactly `length` bytes from `start`; StorageError when the file ends before."""

    def read_many(self, paths: Sequence[str]) -> list[bytes]:
        """The bytes of each file, in the given order, read concurrently where that is faster."""
        return [self.read(path) for path in paths]

    def size(self, path: str) -> int:
        """The file's length in bytes; FileMissingError when there is none."""
        return self.stat(path).size

    @abstractmethod
    def stat(self, path: str) -> FileInfo:
        """Size and time of the last change; FileMissingError when there is no such file."""

    def exists(self, path: str) -> bool:
        """Whether there is a file (not a directory) of that name."""
        try:
            self.stat(path)
        except FileMissingError:
            return False
        return True

    @abstractmethod
    def list_from(self, start: str) -> list[FileInfo]:
        """The files in the directory of `start` from its name on (included), sorted by name.

        Directories are left out; an absent directory has no files.  `start` may end in `/`
        (every file of that directory) or be empty (every file of the root).
        """

    @abstractmethod
    def list_recursive(self, prefix: str) -> Iterator[FileInfo]:
        """Every file under the directory `prefix`, in any order, following no symbolic link."""

    def contains(self, path: str) -> bool:
        """Whether `path` stays inside the root once its symbolic links are followed."""
        return True

    def has_link_in(self, directory: str) -> bool:
        """Whether any name directly in `directory` ("" for the root) is a symbolic link."""
        return False

    def list_tree(
        self, is_hidden: Callable[[str], bool], splits: Sequence[str] = ()
    ) -> Iterator[ListedDirectory]:
        """Every directory below the root, in any order, following no symbolic link.

        A name for which `is_hidden` is true is skipped, and all that is below it.  In a store
        without directories, they are those in the paths of files.  `splits` are paths, existing or
        not, that divide the files into about equal parts: a store that lists in order may list
        these parts concurrently.
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
        """Remove a file; an absent file is not an error."""

    def delete_many(self, paths: Sequence[str]) -> None:
        """Remove several files, in no defined order."""
        for path in paths:
            self.delete(path)

    def delete_directory(self, path: str) -> bool:
        """Remove a directory if it is empty, where the store has them; returns whether it did."""
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

    def _error(self, operation: str, path: str, reason: str) -> StorageError:
        return StorageError(operation=operation, path=self.address(path), reason=reason)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.root_uri!r})"


class RangeFile(io.RawIOBase):
    """A stored file of `size` bytes for readers with random access, such as Parquet's.

    Every read is one range request; nothing is cached, because pyarrow already requests whole
    column chunks.

    >>> file = RangeFile(lambda path, start, length: b"abcdef"[start : start + length], "x", 6)
    >>> file.seek(4), file.read()
    (4, b'ef')
    """

    def __init__(self, read_range: Callable[[str, int, int], bytes], path: str, size: int) -> None:
        super().__init__()
        self._read_range = read_range
        self._path = path
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def size(self) -> int:
        """The file's length; pyarrow calls this method."""
        return self._size

    def read(self, size: int | None = -1, /) -> bytes:
        left = max(0, self._size - self._position)
        length = left if size is None or size < 0 else min(size, left)
        if length == 0:
            return b""
        data = self._read_range(self._path, self._position, length)
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        return self.read(-1)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)


def by_directory(
    infos: Iterable[FileInfo], is_hidden: Callable[[str], bool]
) -> Iterator[ListedDirectory]:
    """The files without a hidden name in their paths, by directory.

    No directory is empty: each contains something, if only hidden files.
    """
    files: dict[str, list[FileInfo] | None] = {"": []}  # None: hidden

    def files_in(directory: str) -> list[FileInfo] | None:
        if directory not in files:
            above, _, name = directory.rpartition("/")
            files[directory] = None if is_hidden(name) or files_in(above) is None else []
        return files[directory]

    for info in infos:
        directory, _, name = info.path.rpartition("/")
        visible = files_in(directory)
        if visible is not None and not is_hidden(name):
            visible.append(info)
    return (
        ListedDirectory(path=path, files=here, has_others=True)
        for path, here in files.items()
        if here is not None
    )
