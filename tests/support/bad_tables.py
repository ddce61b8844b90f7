"""Tables that are wrong in one way, and what must come of reading them.

`BadTable` is a directory with one data file of three rows and a log to be written as badly as a
test likes.  A `Case` says how, and what is wanted: rows, or a condition.  `check` reads it in a
process of its own and proves besides that nothing on disk changed, that nothing outside of the
table was opened, that no connection was tried, and that memory stayed within bounds.
"""

from __future__ import annotations

import ctypes
import hashlib
import io
import os
import socket
import stat
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_delta.kernel.protocol.actions import Action, AddFile, Metadata, Protocol
from pyspark_delta.kernel.protocol.paths import commit_path
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.kernel.storage.local import LocalStore
from tests.support.guarded import GuardedReader, Outcome
from tests.support.log_builder import SCHEMA, LogBuilder, add, metadata, remove

Row = dict[str, Any]

ROWS: list[Row] = [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 3, "v": "c"}]
SECRET: list[Row] = [{"id": 666, "v": "from outside"}]
ARROW_SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
MEGABYTE = 1 << 20
UUID = "11111111-2222-3333-4444-555555555555"
V2_PROTOCOL = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("v2Checkpoint",),
    writer_features=("v2Checkpoint",),
)

_NAME = "tä ble 100%"
_IN_OPEN, _IN_ACCESS = 0x20, 0x1


class BadTable:
    """A table in the making, beside a directory `_outside` that nobody may look into."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / _NAME
        self.outside = directory / "_outside"
        self.store = LocalStore(self.root, fsync=False)
        self.log = LogBuilder(self.store)
        self.outside.mkdir()
        self.root.mkdir()
        (self.outside / "o.parquet").write_bytes(parquet(SECRET))
        self.data("a.parquet")

    def data(self, name: str, rows: Sequence[Row] = tuple(ROWS)) -> Path:
        """A data file of that literal name."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(parquet(rows))
        return path

    def create(
        self,
        *actions: Action | str,
        schema: StructType = SCHEMA,
        schema_text: str | None = None,
        partition_columns: Sequence[str] = (),
        configuration: Mapping[str, str] | None = None,
        protocol: Protocol | None = None,
    ) -> BadTable:
        """Version 0, with protocol and metadata."""
        described = metadata(schema, partition_columns, configuration)
        if schema_text is not None:
            described = Metadata(id=described.id, schema_string=schema_text)
        self.log.create(*actions, protocol=protocol, metadata_action=described)
        return self

    def good(self) -> BadTable:
        """Versions 0 and 1, nothing wrong: the table and its one file."""
        return self.create().commit(add_a())

    def commit(self, *actions: Action | str | bytes) -> BadTable:
        """The next version: actions, or lines as text or bytes."""
        lines = [_line(action) for action in actions]
        self.log.raw(b"".join(line + b"\n" for line in lines))
        return self

    def raw(self, data: bytes) -> BadTable:
        """The next version, byte for byte."""
        self.log.raw(data)
        return self

    def write(self, path: str, data: bytes | str) -> BadTable:
        """Any file of the table."""
        self.log.write(path, data)
        return self

    def path(self, relative: str) -> Path:
        """Where a file of the table is."""
        return self.root / relative


def with_history(table: BadTable) -> BadTable:
    """Versions 0 to 2 with something of everything: a checkpoint of the last has all of it."""
    table.create(add("gone.parquet"), protocol=V2_PROTOCOL)
    table.commit(add_a(stats='{"numRecords":3}'), '{"txn":{"appId":"a","version":7}}')
    return table.commit(remove("gone.parquet"))


def without_commits(table: BadTable) -> None:
    """Take away every commit but the last, as log clean-up does."""
    for version in range(table.log.version):
        table.path(commit_path(version)).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One bad table.  `want` is its rows, or the conditions that it may end with."""

    name: str
    build: Callable[[BadTable], object]
    want: Sequence[Row] | str | frozenset[str]
    says: Sequence[str] = ()  # words of the error's message
    warns: Sequence[str] = ()  # words of some warning
    most_bytes: int = 192 * MEGABYTE
    seconds: float = 30
    asks: bool = True  # what else can be asked of a table; off where each question is slow


def case_id(value: object) -> str:
    """What pytest calls a case."""
    return value.name if isinstance(value, Case) else str(value)


def check(case: Case, directory: Path, guarded: GuardedReader) -> Outcome:
    """Build the table of `case`, read it, and hold it to all that is promised of bad input."""
    table = BadTable(directory)
    case.build(table)
    return check_table(case, table, guarded)


def check_table(case: Case, table: BadTable, guarded: GuardedReader) -> Outcome:
    """`check` for a table that is there already."""
    before = fingerprint(table.root.parent)
    with watched(table.outside) as touched:
        outcome = guarded.read(table.root, seconds=case.seconds, asks=case.asks)
        assert touched() == [], "a file outside of the table was opened"
    assert outcome.opened == [], "a file outside of the table was opened"
    assert outcome.connected == []
    assert fingerprint(table.root.parent) == before, "something on disk changed"
    assert outcome.untyped == [], "an exception that is not ours came out"
    check_want(case, outcome)
    assert outcome.peak_bytes < case.most_bytes
    return outcome


def check_want(case: Case, outcome: Outcome) -> None:
    """Rows as wanted, or the condition as wanted, and nothing else."""
    if outcome.error is not None:
        assert outcome.condition is not None, f"{outcome.error}: {outcome.message}"
    if isinstance(case.want, str | frozenset):
        wanted = {case.want} if isinstance(case.want, str) else case.want
        assert outcome.rows is None
        assert outcome.condition in wanted, outcome.message
        for words in case.says:
            assert words in outcome.message
    else:
        assert outcome.error is None, outcome.message
        assert outcome.rows == sorted(case.want, key=repr)
    for words in case.warns:
        assert any(words in warning for warning in outcome.warnings), outcome.warnings


def add_a(**changes: Any) -> AddFile:
    """The add action of the data file that every table has."""
    return add("a.parquet", **{"size": len(parquet(ROWS)), **changes})


def parquet(rows: Sequence[Row], schema: pa.Schema = ARROW_SCHEMA, **options: Any) -> bytes:
    """A Parquet file."""
    return parquet_of(pa.Table.from_pylist(list(rows), schema), **options)


def parquet_of(table: pa.Table, **options: Any) -> bytes:
    """A Parquet file of an Arrow table."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def fingerprint(directory: Path) -> dict[str, tuple[int, str]]:
    """Every name below `directory` with its kind, and a digest of what it holds."""
    found: dict[str, tuple[int, str]] = {}
    digests: dict[tuple[int, int], str] = {}  # a file of many names is read once
    for folder, names, files in os.walk(directory):
        for name in (*names, *files):
            path = os.path.join(folder, name)
            status = os.lstat(path)
            inode = (status.st_dev, status.st_ino)
            if inode not in digests:
                digests[inode] = _digest(path, status.st_mode)
            found[path] = (status.st_mode, digests[inode])
    return found


def _digest(path: str, mode: int) -> str:
    content = b""
    if stat.S_ISLNK(mode):
        content = os.fsencode(os.readlink(path))
    elif stat.S_ISREG(mode):
        content = Path(path).read_bytes()
    return hashlib.blake2b(content, digest_size=16).hexdigest()


@contextmanager
def watched(directory: Path) -> Iterator[Callable[[], list[str]]]:
    """Which files in `directory` somebody opens meanwhile: the kernel tells, whoever it is.

    An audit hook does not see what native code opens; inotify does.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    handle = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if handle < 0:
        yield list
        return
    try:
        libc.inotify_add_watch(handle, os.fsencode(directory), _IN_OPEN | _IN_ACCESS)
        yield lambda: _events(handle)
    finally:
        os.close(handle)


def _events(handle: int) -> list[str]:
    try:
        data = os.read(handle, 1 << 16)
    except BlockingIOError:
        return []
    names, at = [], 0
    while at < len(data):
        _, _, _, length = struct.unpack_from("iIII", data, at)
        name = data[at + 16 : at + 16 + length].rstrip(b"\0")
        names.append(os.fsdecode(name))
        at += 16 + length
    return names


@contextmanager
def listening() -> Iterator[tuple[int, Callable[[], bool]]]:
    """A port that nobody may knock at, and whether somebody did."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)

        def was_called() -> bool:
            try:
                connection, _ = server.accept()
            except BlockingIOError:
                return False
            connection.close()
            return True

        yield server.getsockname()[1], was_called


def _line(action: Action | str | bytes) -> bytes:
    if isinstance(action, bytes):
        return action
    return (action if isinstance(action, str) else action.json).encode()
