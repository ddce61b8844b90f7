"""`MemoryStore`: a table in a dictionary, for tests and for trying things out.

Stores of one name share their files within a process; other processes do not see them.

>>> store = MemoryStore("a name")
>>> store.create("_delta_log/00000000000000000000.json", b"{}")
>>> MemoryStore("a name").read("_delta_log/00000000000000000000.json")
b'{}'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from threading import Lock
from typing import Any, NamedTuple
from uuid import uuid4
from weakref import WeakValueDictionary

import pyarrow as pa

from pyspark_delta.errors import FileAlreadyExistsError, FileMissingError
from pyspark_delta.kernel.machine import system_now_ms
from pyspark_delta.kernel.storage.base import FileInfo, LogStore
from pyspark_delta.kernel.storage.uris import (
    absolute_uri,
    check_directory,
    check_relative,
    split_start,
)


class _File(NamedTuple):
    data: bytes
    modified_ms: int

    def info(self, path: str) -> FileInfo:
        return FileInfo(path=path, size=len(self.data), modified_ms=self.modified_ms)


class _Volume:
    def __init__(self) -> None:
        self.lock = Lock()
        self.directories: dict[str, dict[str, _File]] = {}


_NAMED: dict[str, _Volume] = {}
_UNNAMED: WeakValueDictionary[str, _Volume] = WeakValueDictionary()
_UNNAMED_PREFIX = "unnamed-"
_REGISTRY_LOCK = Lock()


class MemoryStore(LogStore):
    """Files under `memory://name/path`.

    Without a name the files belong to this object alone.  `now_ms` returns the modification
    times; a pickled copy uses the same files, with the wall clock.
    """

    def __init__(
        self, name: str | None = None, path: str = "", *, now_ms: Callable[[], int] = system_now_ms
    ) -> None:
        self._now_ms = now_ms
        self._name = name or f"{_UNNAMED_PREFIX}{uuid4().hex}"
        self._path = path.strip("/")
        self._volume = _volume(self._name)
        self._prefix = f"{self._path}/" if self._path else ""
        self.root_uri = absolute_uri("memory", self._name, "/" + self._path)

    def read(self, path: str) -> bytes:
        return self._file(path).data

    def read_range(self, path: str, start: int, length: int) -> bytes:
        data = self._file(path).data
        if start < 0 or length < 0 or start + length > len(data):
            reason = f"bytes {start} to {start + length} of a file of {len(data)}"
            raise self._error("read", path, reason)
        return data[start : start + length]

    def stat(self, path: str) -> FileInfo:
        return self._file(path).info(path)

    def list_from(self, start: str) -> list[FileInfo]:
        directory, least = split_start(start, self.root_uri)
        prefix = f"{directory}/" if directory else ""
        with self._volume.lock:
            files = self._volume.directories.get((self._prefix + prefix).rstrip("/"), {})
            infos = [file.info(prefix + name) for name, file in files.items() if name >= least]
        return sorted(infos, key=lambda info: info.path)

    def list_recursive(self, prefix: str) -> Iterator[FileInfo]:
        directory = check_directory(prefix, self.root_uri)
        top = (self._prefix + directory).rstrip("/")
        below = f"{top}/" if top else ""
        skip = len(self._prefix)
        with self._volume.lock:
            infos = [
                file.info((f"{parent}/{name}" if parent else name)[skip:])
                for parent, files in self._volume.directories.items()
                if parent == top or parent.startswith(below)
                for name, file in files.items()
            ]
        return iter(infos)

    def create(self, path: str, data: bytes) -> None:
        directory, name = self._key(path)
        with self._volume.lock:
            files = self._volume.directories.setdefault(directory, {})
            if name in files:
                raise FileAlreadyExistsError(path=self.address(path))
            files[name] = _File(bytes(data), self._now_ms())

    def create_from(self, path: str, chunks: Iterable[bytes]) -> None:
        self.create(path, b"".join(chunks))

    def overwrite(self, path: str, data: bytes) -> None:
        directory, name = self._key(path)
        with self._volume.lock:
            files = self._volume.directories.setdefault(directory, {})
            files[name] = _File(bytes(data), self._now_ms())

    def delete(self, path: str) -> None:
        directory, name = self._key(path)
        with self._volume.lock:
            self._volume.directories.get(directory, {}).pop(name, None)

    def arrow_file(self, path: str) -> Any:
        return pa.BufferReader(self.read(path))

    def __reduce__(self) -> tuple[Any, ...]:
        return (MemoryStore, (self._name, self._path))

    def _key(self, path: str) -> tuple[str, str]:
        check_relative(path, self.root_uri)
        directory, _, name = (self._prefix + path).rpartition("/")
        return directory, name

    def _file(self, path: str) -> _File:
        directory, name = self._key(path)
        try:
            return self._volume.directories[directory][name]
        except KeyError:
            raise FileMissingError(path=self.address(path)) from None


def _volume(name: str) -> _Volume:
    with _REGISTRY_LOCK:
        registry = _UNNAMED if name.startswith(_UNNAMED_PREFIX) else _NAMED
        volume = registry.get(name) or _Volume()
        registry[name] = volume
        return volume
