"""`HadoopStore`: a table on any file system that Hadoop knows, through the JVM of the session.

A new file is written under a hidden name and renamed without overwriting.  Hadoop's FileContext
promises that as one step of the file system, which HDFS keeps; a file system without a FileContext
can be read and not written.  Where the files are local in the end (a mount of viewfs), the JVM
links and renames as the operating system does, because Hadoop's own local rename is two steps.

Small contents cross as they are, large ones through a local file: Py4J moves ten megabytes a
second.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from tempfile import NamedTemporaryFile
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pyspark_delta.errors import (
    FileAlreadyExistsError,
    FileMissingError,
    NothingWrittenError,
    StorageError,
    StorageRefusedError,
    UnsupportedSchemeError,
)
from pyspark_delta.kernel.storage.base import FileInfo, ListedDirectory, LogStore, by_directory
from pyspark_delta.kernel.storage.local import STAGING_PREFIX
from pyspark_delta.kernel.storage.uris import (
    absolute_uri,
    check_directory,
    check_relative,
    redacted_uri,
    split_start,
)
from pyspark_delta.spark.jvm.failures import GATEWAY_FAILURES, java_error, system_refusal
from pyspark_delta.spark.jvm.gateway import JvmSession, simple_name
from pyspark_delta.spark.jvm.hadoop.listing import ListedStatus, list_leaf_files, listed_statuses

_DIRECT_BYTES = 64 * 1024
_COPY_BYTES = 1024 * 1024
_THREADS = 8
_TREES_BY_TASKS = 256
_TREES_AT_ONCE = 1_000
_LOCATION = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]*):(?://(?P<authority>[^/]*))?(?P<path>/.*|)"
)
# Exceptions of Hadoop's file systems by their short names.  Our messages leave out their text: a
# file system may put anything into it.
_MISSING = ("FileNotFoundException", "NoSuchFileException", "PathNotFoundException")
_NOT_EMPTY = ("PathIsNotEmptyDirectoryException", "DirectoryNotEmptyException", "IOException")
_EXISTS = ("FileAlreadyExistsException", "PathExistsException")
# Those with which a file system refuses writes, now or permanently, each with its meaning.
_REFUSALS: Mapping[str, str | None] = {
    "AccessControlException": "the file system refuses access",
    "AccessDeniedException": "the file system refuses access",
    "DSQuotaExceededException": "the quota is used up",
    "NSQuotaExceededException": "the quota is used up",
    "NotLinkException": "the file system has no hard links",
    "ParentNotDirectoryException": "a part of the path is a file",
    "QuotaExceededException": "the quota is used up",
    "ReadOnlyFileSystemException": None,
    "UnsupportedFileSystemException": (
        "Hadoop has no FileContext for it, so two writers could overwrite each other"
    ),
}
_REASONS: Mapping[str, str | None] = {
    **_REFUSALS,
    "ConnectException": "the file system cannot be reached",
    "DirectoryNotEmptyException": "it is a directory",
    "PathIsNotEmptyDirectoryException": "it is a directory",
    "SafeModeException": "the name node is in safe mode",
    "SocketTimeoutException": "the file system did not answer in time",
    "UnknownHostException": "the host is not known",
}


class HadoopStore(LogStore):
    """Files below `location`, a decoded location with scheme and absolute path.

    `options` go on top of the session's Hadoop configuration.  Works on the driver only: pickled,
    it finds the session that is active where it is unpickled.  LogStore documents the methods.
    """

    def __init__(
        self, spark: SparkSession, location: str, options: Mapping[str, str] | None = None
    ) -> None:
        found = _LOCATION.fullmatch(location)
        if found is None:
            raise _invalid(location, "it has no scheme, or its path is not absolute")
        scheme, authority = found["scheme"].lower(), found["authority"] or ""
        if ":" in authority.rpartition("@")[0]:
            raise _invalid(location, "it holds a password; give it as an option")
        path = re.sub("/{2,}", "/", found["path"]).rstrip("/")
        self._jvm = JvmSession(spark)
        self._options = dict(options or {})
        self._root = f"{scheme}:" + (f"//{authority}" if authority else "") + path
        self._root_path = path
        self.root_uri = absolute_uri(scheme, authority, path or "/").removesuffix("/")
        self._is_local: bool | None = None
        with self._translated("open", ""):
            self._conf = self._jvm.hadoop_conf(self._options)
            self._file_system = self._path("").getFileSystem(self._conf)

    def __reduce__(self) -> tuple[Callable[..., HadoopStore], tuple[str, dict[str, str]]]:
        return _reopened, (self._root, self._options)

    def read(self, path: str) -> bytes:
        check_relative(path, self.root_uri)
        with self._translated("read", path), self._opened(path) as stream:
            data: bytes = stream.readNBytes(_DIRECT_BYTES)
            if len(data) == _DIRECT_BYTES:
                data += self._copied(stream, None)
            return data

    def read_range(self, path: str, start: int, length: int) -> bytes:
        # The size is read first, so that a length from a damaged log allocates nothing.
        size = self.size(path)
        if start < 0 or length < 0 or start + length > size:
            span = f"bytes {start} to {start + length} of a file of {size}"
            raise self._error("read", path, span)
        with self._translated("read", path), self._opened(path) as stream:
            stream.seek(start)
            small = length <= _DIRECT_BYTES
            data: bytes = stream.readNBytes(length) if small else self._copied(stream, length)
        if len(data) < length:
            raise self._error("read", path, "the file became shorter")
        return data

    def read_many(self, paths: Sequence[str]) -> list[bytes]:
        if len(paths) < 2:
            return [self.read(path) for path in paths]
        with ThreadPoolExecutor(min(_THREADS, len(paths))) as pool:
            return list(pool.map(self.read, paths))

    def stat(self, path: str) -> FileInfo:
        check_relative(path, self.root_uri)
        with self._translated("stat", path):
            status = self._file_system.getFileStatus(self._path(path))
            if status.isFile():
                return FileInfo(
                    path=path, size=status.getLen(), modified_ms=status.getModificationTime()
                )
        raise FileMissingError(path=self.address(path))

    def list_from(self, start: str) -> list[FileInfo]:
        directory, least = split_start(start, self.root_uri)
        prefix = f"{directory}/" if directory else ""
        entries = (e for e in self._listed(directory) if e.is_file and e.name >= least)
        infos = [entry.file_info(prefix + entry.name) for entry in entries]
        return sorted(infos, key=lambda info: info.path)

    def list_directory(self, path: str) -> tuple[list[FileInfo], list[str]]:
        """Files and directories of one directory ("" is the root), as paths below the root."""
        directory = check_directory(path, self.root_uri)
        prefix = f"{directory}/" if directory else ""
        entries = self._listed(directory)
        files = [entry.file_info(prefix + entry.name) for entry in entries if entry.is_file]
        return files, [prefix + entry.name for entry in entries if entry.is_directory]

    def list_trees(self, directories: Sequence[str], tasks_above: int) -> list[FileInfo]:
        """The files below directories, without hidden ones; by Spark tasks when they are many."""
        paths = [self._path(check_directory(each, self.root_uri)) for each in directories]
        with self._translated("list", ""):
            found = list_leaf_files(self._jvm, paths, self._conf, tasks_above)
        start = len(self._root_path) + 1
        return [entry.file_info(f"{entry.parent}/{entry.name}"[start:]) for entry in found]

    def list_tree(
        self, is_hidden: Callable[[str], bool], splits: Sequence[str] = ()
    ) -> Iterator[ListedDirectory]:
        """As LogStore says; Spark tasks list many directories.

        Names that Spark treats as hidden are left out, and so are empty directories beside
        non-empty ones.
        """
        pending = [""]
        with ThreadPoolExecutor(_THREADS) as pool:
            while pending:
                below: list[str] = []
                for here, directories in pool.map(partial(self._visible, is_hidden), pending):
                    yield here
                    below += directories
                pending = below
                if len(pending) > _TREES_BY_TASKS:
                    listed, pending = self._by_tasks(pending, is_hidden)
                    yield from listed

    def list_recursive(self, prefix: str) -> Iterator[FileInfo]:
        pending = [check_directory(prefix, self.root_uri)]
        while pending:
            directory = pending.pop()
            for entry in self._listed(directory):
                path = f"{directory}/{entry.name}" if directory else entry.name
                if entry.is_directory:
                    pending.append(path)
                elif entry.is_file:
                    yield entry.file_info(path)

    def create(self, path: str, data: bytes) -> None:
        self.create_from(path, (data,))

    def create_from(self, path: str, chunks: Iterable[bytes]) -> None:
        check_relative(path, self.root_uri)
        with self._translated("create", path):
            if self._file_system.exists(self._path(path)):  # the loser need not write its file
                raise FileAlreadyExistsError(path=self.address(path))
        self._publish("create", path, chunks, overwrites=False)

    def overwrite(self, path: str, data: bytes) -> None:
        check_relative(path, self.root_uri)
        self._publish("overwrite", path, (data,), overwrites=True)

    def delete(self, path: str) -> None:
        check_relative(path, self.root_uri)
        with suppress(FileMissingError), self._translated("delete", path):
            self._file_system.delete(self._path(path), False)

    def delete_directory(self, path: str) -> bool:
        check_relative(path, self.root_uri)
        try:
            # Never recursively: Hadoop then refuses a directory that is not empty.
            return bool(self._file_system.delete(self._path(path), False))
        except GATEWAY_FAILURES as error:
            if _short_name(error) in (*_MISSING, *_NOT_EMPTY):
                return False
            raise self._translation(error, "delete", path) from None

    def make_directory(self, path: str) -> None:
        check_relative(path, self.root_uri)
        with self._translated("make directory", path):
            self._file_system.mkdirs(self._path(path))

    def _visible(
        self, is_hidden: Callable[[str], bool], directory: str
    ) -> tuple[ListedDirectory, list[str]]:
        """The entries of a directory without hidden names, and its subdirectories."""
        prefix = f"{directory}/" if directory else ""
        files: list[FileInfo] = []
        directories: list[str] = []
        has_others = False
        for entry in self._listed(directory):
            if is_hidden(entry.name) or not (entry.is_file or entry.is_directory):
                has_others = True
            elif entry.is_directory:
                directories.append(prefix + entry.name)
            else:
                files.append(entry.file_info(prefix + entry.name))
        return ListedDirectory(path=directory, files=files, has_others=has_others), directories

    def _by_tasks(
        self, directories: Sequence[str], is_hidden: Callable[[str], bool]
    ) -> tuple[Iterator[ListedDirectory], list[str]]:
        """Directories listed by tasks, and those for which tasks found nothing."""
        # Names that Spark treats as hidden, some of which `is_hidden` does not.
        sparks = [each for each in directories if each.rpartition("/")[2][0] not in "_."]
        infos: list[FileInfo] = []
        for at in range(0, len(sparks), _TREES_AT_ONCE):
            infos += self.list_trees(sparks[at : at + _TREES_AT_ONCE], tasks_above=0)
        depth = directories[0].count("/")  # all are of one level; those above are known
        found = [
            each
            for each in by_directory(infos, is_hidden)
            if each.path and each.path.count("/") >= depth
        ]
        full = {each.path for each in found}
        return iter(found), [each for each in directories if each not in full]

    def _path(self, path: str) -> Any:
        is_top = not path and not self._root_path
        return self._jvm.hadoop_path(f"{self._root}/{path}" if path or is_top else self._root)

    @contextmanager
    def _opened(self, path: str) -> Iterator[Any]:
        stream = self._file_system.open(self._path(path))
        try:
            yield stream
        finally:
            stream.close()

    def _copied(self, stream: Any, length: int | None) -> bytes:
        """The next `length` bytes of a Java stream, or all of them, through a local file."""
        with NamedTemporaryFile(prefix="pyspark-delta-") as file:
            sink = self._jvm.java_class("java.io.FileOutputStream")(file.name)
            try:
                if length is None:
                    self._copy(stream, sink)
                else:
                    source = self._jvm.static("java.nio.channels.Channels", "newChannel")(stream)
                    target = sink.getChannel()
                    done = 0
                    while done < length:
                        moved = target.transferFrom(source, done, length - done)
                        if not moved:
                            break
                        done += moved
            finally:
                sink.close()
            return file.read()

    def _copy(self, source: Any, sink: Any) -> None:
        self._jvm.static("org.apache.hadoop.io.IOUtils", "copyBytes")(
            source, sink, _COPY_BYTES, False
        )

    def _listed(self, directory: str) -> list[ListedStatus]:
        """The entries of a directory without unfinished files; empty if it does not exist."""
        with self._translated("list", directory):
            try:
                statuses = self._file_system.listStatus(self._path(directory))
            except Py4JJavaError as error:
                if _short_name(error) in _MISSING:
                    return []
                raise
            found = listed_statuses(self._jvm, statuses)
        full = f"{self._root_path}/{directory}" if directory else self._root_path
        # For a file, Hadoop lists the file itself.
        return [
            entry
            for entry in found
            if entry.parent == full and not entry.name.startswith(STAGING_PREFIX)
        ]

    def _publish(
        self, operation: str, path: str, chunks: Iterable[bytes], *, overwrites: bool
    ) -> None:
        """Write a hidden file and rename it; the hidden file is removed afterwards."""
        directory, slash, _ = path.rpartition("/")
        staged = f"{directory}{slash}{STAGING_PREFIX}{os.getpid()}-{uuid4().hex}"
        is_done = False
        try:
            self._write(operation, path, staged, chunks)
            with self._translated(operation, path, fails_as=StorageError):
                self._rename(staged, path, overwrites=overwrites)
            is_done = True
        finally:
            # The staged file may be renamed already; the write does not fail if it remains.
            # A directory that was made for a file which then failed is deleted if it is empty.
            for left in (staged,) if is_done or not directory else (staged, directory):
                with suppress(*GATEWAY_FAILURES):
                    self._file_system.delete(self._path(left), False)

    def _write(self, operation: str, path: str, staged: str, chunks: Iterable[bytes]) -> None:
        with self._translated(operation, path, fails_as=NothingWrittenError):
            sink = self._file_system.create(self._path(staged), False)
        try:
            for chunk in chunks:  # an error that the iterator raises is the caller's
                with self._translated(operation, path, fails_as=NothingWrittenError):
                    self._send(sink, chunk)
        finally:
            with self._translated(operation, path, fails_as=NothingWrittenError):
                sink.close()

    def _send(self, sink: Any, data: bytes) -> None:
        if len(data) <= _DIRECT_BYTES:
            sink.write(data)
            return
        with NamedTemporaryFile(prefix="pyspark-delta-") as file:
            file.write(data)
            file.flush()
            source = self._jvm.java_class("java.io.FileInputStream")(file.name)
            try:
                self._copy(source, sink)
            finally:
                source.close()

    def _rename(self, staged: str, path: str, *, overwrites: bool) -> None:
        """Rename a finished file, atomically in the file system."""
        resolved = None
        if self._is_local is not False:
            resolved = self._file_system.resolvePath(self._path(staged)).toUri()
            self._is_local = resolved.getScheme() == "file"
        if self._is_local and resolved is not None:
            self._rename_local(resolved.getPath(), path, overwrites=overwrites)
            return
        kinds = self._jvm.java_class("org.apache.hadoop.fs.Options").Rename
        kind = kinds.OVERWRITE if overwrites else kinds.NONE
        context = self._jvm.static("org.apache.hadoop.fs.FileContext", "getFileContext")(
            self._path("").toUri(), self._conf
        )
        context.rename(self._path(staged), self._path(path), self._jvm.array(kinds, [kind]))

    def _rename_local(self, staged: str, path: str, *, overwrites: bool) -> None:
        files = self._jvm.java_class("java.nio.file.Files")
        source = self._jvm.java_class("java.io.File")(staged).toPath()
        target = source.resolveSibling(path.rpartition("/")[2])
        if not overwrites:
            files.createLink(target, source)
            return
        option = self._jvm.java_class("java.nio.file.CopyOption")
        atomic = self._jvm.java_class("java.nio.file.StandardCopyOption").ATOMIC_MOVE
        files.move(source, target, self._jvm.array(option, [atomic]))

    @contextmanager
    def _translated(
        self, operation: str, path: str, *, fails_as: type[StorageError] | None = None
    ) -> Iterator[None]:
        """Raise our errors in place of Java's, without Java's text and exception chain.

        `fails_as` is for the steps of a write: what a failure of this step means for the file.
        """
        try:
            yield
        except StorageError:
            raise
        except (*GATEWAY_FAILURES, UnicodeError, OSError) as error:
            raise self._translation(error, operation, path, fails_as) from None

    def _translation(
        self,
        error: Exception,
        operation: str,
        path: str,
        fails_as: type[StorageError] | None = None,
    ) -> StorageError:
        name, java = _short_name(error), java_error(error)
        if name in _EXISTS and operation == "create":
            return FileAlreadyExistsError(path=self.address(path))
        if name in _MISSING and fails_as is None:
            return FileMissingError(path=self.address(path))
        if name == "UnsupportedFileSystemException" and operation == "open":
            return UnsupportedSchemeError(path=self.root_uri)
        system = None if java is None else system_refusal(str(java.getMessage()))
        if fails_as is not None and (name in _REFUSALS or system is not None):
            fails_as = StorageRefusedError
        reason = _REASONS.get(name) or system or f"it failed with {name}"
        return self._error(operation, path, reason, fails_as or StorageError)

    def _error(
        self, operation: str, path: str, reason: str, kind: type[StorageError] = StorageError
    ) -> StorageError:
        address = self.address(path) if path else self.root_uri
        return kind(operation=operation, path=address, reason=reason)


def _invalid(location: str, reason: str) -> StorageError:
    path = redacted_uri(location)
    return StorageError("DELTA_STORAGE_INVALID_LOCATION", path=path, reason=reason)


def _short_name(error: Exception) -> str:
    """The class of a Java or Python exception, without its package."""
    java = java_error(error)
    return type(error).__name__ if java is None else simple_name(java)


def _reopened(location: str, options: dict[str, str]) -> HadoopStore:
    spark = SparkSession.getActiveSession()
    if spark is None:
        raise StorageError(
            operation="open",
            path=redacted_uri(location),
            reason="there is no Spark session, through which this file system is reached",
        )
    return HadoopStore(spark, location, options)
