"""`LocalStore`: a table on a POSIX file system.

A new file is written under a hidden name in its directory, made durable, and then published by
link(2), which fails when the name is taken: no reader sees a part of a file, and of two processes
one wins.  A process killed in between leaves only the hidden file, which no listing returns.

Some file systems (FAT, a few FUSE and network file systems) have no hard links; Linux's
renameat2(2) with RENAME_NOREPLACE is as good.  Where neither works the file is not published: a
plain rename would silently overwrite another writer's commit.

>>> LocalStore("/tmp/a b").root_uri
'file:///tmp/a%20b'
"""

from __future__ import annotations

import ctypes
import errno
import io
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Any
from uuid import uuid4

import pyarrow as pa

from pyspark_delta import errors
from pyspark_delta.kernel.storage.base import LINK_OUT, FileInfo, ListedDirectory, LogStore
from pyspark_delta.kernel.storage.uris import (
    absolute_uri,
    check_directory,
    check_relative,
    split_start,
)

STAGING_PREFIX = ".delta-staging-"
"""The prefix of names of unfinished files."""

_LOG_DIRECTORY = "_delta_log"
_NO_HARD_LINKS = frozenset(
    {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS}
)
_NO_SUCH_RENAME = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP})
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
Mover = Callable[[str, str], None]

_MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_NOT_AN_EMPTY_DIRECTORY = (errno.ENOENT, errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY)

REFUSALS = frozenset(
    {
        errno.EACCES,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOSPC,
        errno.ENOTDIR,
        errno.EPERM,
        errno.EROFS,
    }
)
"""Error numbers of the operating system for writes that no retry helps."""


class _Step(Enum):
    """The step of a write, which determines what a failure means for the file."""

    BEFORE = "its bytes are written under a hidden name"
    PUBLISH = "it is given its name"
    AFTER = "it has its name, and the directory is made durable"


class LocalStore(LogStore):
    """Files under the directory `root`, a literal path.

    `fsync` makes a finished write survive a power cut, at the price of a disk flush for the file
    and one for its directory; without it a write survives the death of the process only.

    A path that crosses a symbolic link out of the root raises, also if `_delta_log` is the link;
    only the files directly in `_delta_log/` may be links.
    """

    has_links = True

    def __init__(self, root: str | os.PathLike[str], *, fsync: bool = True) -> None:
        self._root = os.path.abspath(root)
        self._prefix = self._root.rstrip("/") + "/"
        self._fsync = fsync
        self.root_uri = absolute_uri("file", "", self._root)

    @property
    def root_path(self) -> str:
        """The root as a path of the operating system."""
        return self._root

    def has_root(self) -> bool:
        """Whether the root exists and is a directory."""
        return os.path.isdir(self._root)

    def read(self, path: str) -> bytes:
        with self._translated("read", path), _open_regular(self._readable(path)) as file:
            return file.readall()

    def read_range(self, path: str, start: int, length: int) -> bytes:
        with self._translated("read", path), _open_regular(self._readable(path)) as file:
            size = os.fstat(file.fileno()).st_size
            # Checked before reading, so that a length from a damaged log allocates nothing.
            if start < 0 or length < 0 or start + length > size:
                reason = f"bytes {start} to {start + length} of a file of {size}"
                raise self._error("read", path, reason)
            file.seek(start)
            data = _read_exactly(file, length)
        if len(data) < length:
            raise self._error("read", path, "the file became shorter")
        return data

    def stat(self, path: str) -> FileInfo:
        with self._translated("stat", path):
            status = os.stat(self._readable(path))
            if not stat.S_ISREG(status.st_mode):
                raise IsADirectoryError
        return _info(path, status)

    def exists(self, path: str) -> bool:
        with self._translated("stat", path):
            try:
                return stat.S_ISREG(os.stat(self._readable(path)).st_mode)
            except (FileNotFoundError, NotADirectoryError):
                return False

    def list_from(self, start: str) -> list[FileInfo]:
        directory, least = split_start(start, self.root_uri)
        prefix = f"{directory}/" if directory else ""
        infos = []
        with self._translated("list", start):
            try:
                entries = os.scandir(self._readable(directory) if directory else self._root)
            except (FileNotFoundError, NotADirectoryError):
                return []
            with entries:
                for entry in entries:
                    name = entry.name
                    if name < least or name.startswith(STAGING_PREFIX):
                        continue
                    try:
                        if entry.is_file():
                            infos.append(_info(prefix + name, entry.stat()))
                    except FileNotFoundError:  # deleted meanwhile
                        continue
        infos.sort(key=lambda info: info.path)
        return infos

    def list_recursive(self, prefix: str) -> Iterator[FileInfo]:
        directory = check_directory(prefix, self.root_uri)
        if directory and self.crosses_link(directory):
            return
        pending = [f"{directory}/" if directory else ""]
        while pending:
            relative = pending.pop()
            with self._translated("list", prefix):
                try:
                    with os.scandir(self._prefix + relative) as scan:
                        entries = list(scan)
                except (FileNotFoundError, NotADirectoryError):
                    continue
            for entry in entries:
                path = relative + entry.name
                if entry.is_dir(follow_symlinks=False):
                    pending.append(path + "/")
                elif entry.is_file(follow_symlinks=False):
                    if entry.name.startswith(STAGING_PREFIX):
                        continue
                    try:
                        info = _info(path, entry.stat())
                    except FileNotFoundError:
                        continue
                    yield info

    def list_tree(
        self, is_hidden: Callable[[str], bool], splits: Sequence[str] = ()
    ) -> Iterator[ListedDirectory]:
        pending = [""]
        while pending:
            relative = pending.pop()
            files: list[FileInfo] = []
            has_others = False
            try:
                with os.scandir(self._prefix + relative) as entries:
                    for entry in entries:
                        name = entry.name
                        if is_hidden(name):
                            has_others = True
                        elif entry.is_dir(follow_symlinks=False):
                            pending.append(f"{relative}{name}/")
                        elif entry.is_file(follow_symlinks=False):
                            try:
                                files.append(_info(relative + name, entry.stat()))
                            except FileNotFoundError:  # deleted meanwhile
                                continue
                        else:
                            has_others = True
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:  # not `_translated`: there are thousands of directories
                reason = error.strerror or str(error)
                raise self._error("list", relative[:-1] or ".", reason) from error
            yield ListedDirectory(path=relative[:-1], files=files, has_others=has_others)

    def create(self, path: str, data: bytes) -> None:
        self.create_from(path, (data,))

    def create_from(self, path: str, chunks: Iterable[bytes]) -> None:
        final = self._writable(path)
        if os.path.lexists(final):  # the loser of a race need not write its file first
            raise errors.FileAlreadyExistsError(path=self.address(path))
        with self._staged("create", path, final, chunks) as staged:
            try:
                publish(staged, final)
            except FileExistsError:
                raise errors.FileAlreadyExistsError(path=self.address(path)) from None

    def overwrite(self, path: str, data: bytes) -> None:
        final = self._writable(path)
        with self._staged("overwrite", path, final, (data,)) as staged:
            _unlink_checksum(final)  # Hadoop would refuse the new bytes
            os.replace(staged, final)

    def delete(self, path: str) -> None:
        with self._translated("delete", path), suppress(FileNotFoundError, NotADirectoryError):
            final = self._writable(path)
            os.unlink(final)
            _unlink_checksum(final)

    def delete_directory(self, path: str) -> bool:
        with self._translated("delete", path):
            try:
                os.rmdir(self._writable(path))
            except OSError as error:
                if error.errno in _NOT_AN_EMPTY_DIRECTORY:
                    return False
                raise
        return True

    def make_directory(self, path: str) -> None:
        with self._translated("make directory", path):
            self._make_directories(self._writable(path))

    def arrow_file(self, path: str) -> Any:
        # Not a memory map: a file cut short under one kills the process.
        self.stat(path)
        with self._translated("read", path):
            return pa.OSFile(self._prefix + path, "r")

    def contains(self, path: str) -> bool:
        if not self.crosses_link(path):
            return True
        real_root = os.path.realpath(self._root)
        return os.path.realpath(self._prefix + path).startswith(real_root.rstrip("/") + "/")

    def has_link_in(self, directory: str) -> bool:
        # A listing has the kind of each name, without a request for each.
        with self._translated("list", directory or "."):
            try:
                with os.scandir(self._prefix + directory) as entries:
                    return any(entry.is_symlink() for entry in entries)
            except (FileNotFoundError, NotADirectoryError):
                return False

    def crosses_link(self, path: str) -> bool:
        """Whether a part of `path` below the root, or its end, is a symbolic link."""
        current = self._prefix[:-1]
        for segment in path.split("/"):
            current = f"{current}/{segment}"
            try:
                if stat.S_ISLNK(os.lstat(current).st_mode):
                    return True
            except OSError:
                return False  # nothing exists there, so no link either
        return False

    def _readable(self, path: str) -> str:
        check_relative(path, self.root_uri)
        if not _is_log_file(path):
            self._check_contained(path, path)
        return self._prefix + path

    def _writable(self, path: str) -> str:
        """As `_readable`, but the last name is replaced or removed, not followed."""
        check_relative(path, self.root_uri)
        parent = path.rpartition("/")[0]
        if parent:
            self._check_contained(parent, path)
        return self._prefix + path

    def _check_contained(self, followed: str, path: str) -> None:
        if not self.contains(followed):
            raise errors.UnsafePathError(
                "DELTA_UNSAFE_PATH", path=path, table=self.root_uri, reason=LINK_OUT
            )

    @contextmanager
    def _staged(
        self, operation: str, path: str, final: str, chunks: Iterable[bytes]
    ) -> Iterator[str]:
        """A hidden file with the bytes of `chunks`, for publishing; deleted afterwards."""
        directory = os.path.dirname(final)
        staged = f"{directory}/{STAGING_PREFIX}{os.getpid()}-{uuid4().hex}"
        with self._translated(operation, path, step=_Step.BEFORE):
            handle, is_new = self._open_new(staged, directory)
        try:
            try:
                for chunk in chunks:  # an exception of the iterator is the caller's
                    with self._translated(operation, path, step=_Step.BEFORE):
                        _write_all(handle, chunk)
                with self._translated(operation, path, step=_Step.BEFORE):
                    if self._fsync:
                        os.fsync(handle)
            finally:
                os.close(handle)
            with self._translated(operation, path, step=_Step.PUBLISH):
                yield staged
        finally:
            with suppress(OSError):  # it is published, or hidden
                os.unlink(staged)
            if is_new:
                with suppress(OSError):  # it is empty only when the write failed
                    os.rmdir(directory)
        with self._translated(operation, path, step=_Step.AFTER):
            self._sync_directory(directory)

    def _open_new(self, staged: str, directory: str) -> tuple[int, bool]:
        """A new file, and whether its directory was created."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            return os.open(staged, flags, 0o666), False
        except FileNotFoundError:
            self._make_directories(directory)
            return os.open(staged, flags, 0o666), True

    def _make_directories(self, directory: str) -> None:
        """Make `directory` and its parents; each is durable in the one above it."""
        try:
            os.mkdir(directory)
        except FileExistsError:
            if not os.path.isdir(directory):
                raise
        except FileNotFoundError:
            self._make_directories(os.path.dirname(directory))
            self._make_directories(directory)
        else:
            self._sync_directory(os.path.dirname(directory))

    def _sync_directory(self, directory: str) -> None:
        if not self._fsync:
            return
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    @contextmanager
    def _translated(
        self, operation: str, path: str, *, step: _Step | None = None
    ) -> Iterator[None]:
        """Translate errors of the operating system; `step` is the step of a write."""
        try:
            yield
        except errors.StorageError:
            raise
        except (OSError, ValueError) as error:
            if step is None and isinstance(error, _MISSING):
                raise errors.FileMissingError(path=self.address(path)) from None
            kind = errors.StorageError
            code = error.errno if isinstance(error, OSError) else None
            if step in (_Step.BEFORE, _Step.PUBLISH) and code in REFUSALS:
                kind = errors.StorageRefusedError
            elif step is _Step.BEFORE:
                kind = errors.NothingWrittenError
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise kind(operation=operation, path=self.address(path), reason=reason) from error


def _unlink_checksum(final: str) -> None:
    """Remove the checksum file that Hadoop may keep beside a local file."""
    directory, name = os.path.split(final)
    with suppress(FileNotFoundError):
        os.unlink(f"{directory}/.{name}.crc")


def _is_log_file(path: str) -> bool:
    # The reader, not the table, determines the names of log files, and opens thousands of them.
    # Listing or writing their directory checks that it is the table's own.
    directory, slash, name = path.partition("/")
    return directory == _LOG_DIRECTORY and bool(slash) and "/" not in name


def _open_regular(full: str) -> io.FileIO:
    """Open a regular file and nothing else: a pipe of that name would block for ever."""
    handle = os.open(full, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise IsADirectoryError
    return io.FileIO(handle, "r")


def _info(path: str, status: os.stat_result) -> FileInfo:
    return FileInfo(path=path, size=status.st_size, modified_ms=status.st_mtime_ns // 1_000_000)


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]  # one write(2) takes 2 GiB at most


def _read_exactly(file: io.FileIO, length: int) -> bytes:
    parts: list[bytes] = []
    while length and (part := file.read(length)):
        parts.append(part)
        length -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def rename_without_replacing(source: str, target: str) -> None:
    """Rename atomically; FileExistsError when `target` exists."""
    if _RENAMEAT2 is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    ctypes.set_errno(0)
    if _RENAMEAT2(
        _AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE
    ):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), target)


def publish(
    staged: str, final: str, *, link: Mover = os.link, rename: Mover = rename_without_replacing
) -> None:
    """Publish `staged` as `final`; FileExistsError when `final` exists.

    `staged` may or may not remain; the caller removes it.
    """
    try:
        link(staged, final)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
    else:
        return
    try:
        rename(staged, final)
    except OSError as error:
        if error.errno not in _NO_SUCH_RENAME:
            raise
        raise OSError(
            error.errno,
            "the file system can neither link nor rename without replacing,"
            " so two writers could overwrite each other",
        ) from None


def _renameat2() -> Callable[..., int] | None:
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):  # not Linux, or a C library from before 2018
        return None
    path_at = (ctypes.c_int, ctypes.c_char_p)
    function.argtypes = (*path_at, *path_at, ctypes.c_uint)
    function.restype = ctypes.c_int
    typed: Callable[..., int] = function
    return typed


_RENAMEAT2 = _renameat2()
