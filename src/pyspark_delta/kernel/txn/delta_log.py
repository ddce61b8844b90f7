"""`DeltaLog`: the public API of a table without Spark: its versions, and transactions on it.

>>> from pyspark_delta.kernel.protocol.actions import Metadata
>>> log = DeltaLog.for_table("memory://doctest/a table")
>>> txn = log.start_transaction()
>>> txn.update_metadata(Metadata(id="1"))
>>> txn.commit([], "CREATE TABLE").version, log.snapshot.version
(0, 0)
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from threading import Lock
from typing import TypeVar, cast

from pyspark_delta.errors import TableNotFoundError
from pyspark_delta.kernel.log.checkpoints.writer import V2Format
from pyspark_delta.kernel.log.segment import LogListing
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.log.table_log import TableLog
from pyspark_delta.kernel.machine import random_uuid, system_now_ms
from pyspark_delta.kernel.scan.arrow_reader import ReadableSnapshot
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.storage.resolve import canonical_uri, store_for
from pyspark_delta.kernel.txn.commit import (
    DEFAULT_ATTEMPTS,
    CommitSettings,
    Committer,
    FileSystemCommitter,
)
from pyspark_delta.kernel.txn.hooks import HookRunner, checkpoint, shared_runner
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction

CACHE_SIZE = 256
"""The size of a process's cache of tables; the least recently used one is evicted first."""

_Result = TypeVar("_Result")


class DeltaLog(TableLog):
    """The log of one table, read and written.  Safe to share between threads."""

    snapshot_type = ReadableSnapshot

    def __init__(
        self,
        store: LogStore,
        *,
        now_ms: Callable[[], int] = system_now_ms,
        hooks: HookRunner | None = None,
        committer: Committer | None = None,
        new_uuid: Callable[[], str] = random_uuid,
        engine: str | None = None,
        attempts: int = DEFAULT_ATTEMPTS,
        verify_checksums: bool = True,
    ) -> None:
        super().__init__(store, now_ms=now_ms, verify_checksums=verify_checksums)
        self._hooks = hooks or shared_runner()
        self._committer = committer or FileSystemCommitter(store)
        self._new_uuid = new_uuid
        self._engine = engine
        self.commit_settings: Callable[[], CommitSettings] = lambda: CommitSettings(
            attempts=attempts
        )
        """Returns the settings for the commits of a transaction; called when it starts."""
        self.hook_seconds = 0.0
        """How long a commit waits, at most, for its checksum and checkpoint."""

    @classmethod
    def for_table(
        cls,
        path: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
        *,
        now_ms: Callable[[], int] = system_now_ms,
        fsync: bool = True,
        verify_checksums: bool = True,
    ) -> DeltaLog:
        """The log of the table at `path`, which need not exist yet.

        One table opened twice with the same options is one object, as long as it is among the
        last `CACHE_SIZE` requested ones.  `fsync=False` trades durability for speed on local
        files.  `verify_checksums=False` reads a table with a damaged log as far as possible:
        versions are not validated against their checksum files.
        """
        # A digest of the options, because they may hold secrets.
        items = repr(sorted((storage_options or {}).items()))
        options = hashlib.sha256(items.encode()).hexdigest()
        key = (cls, canonical_uri(os.fspath(path)), options, now_ms, fsync, verify_checksums)
        with _LOCK:
            log = _CACHE.get(key)
            if log is None:
                store = store_for(os.fspath(path), storage_options, fsync=fsync)
                log = _CACHE[key] = cls(store, now_ms=now_ms, verify_checksums=verify_checksums)
            _CACHE.move_to_end(key)
            while len(_CACHE) > CACHE_SIZE:
                _CACHE.popitem(last=False)
        return log

    @staticmethod
    def clear_cache() -> None:
        """Clear the cache of logs; existing objects continue to work."""
        with _LOCK:
            _CACHE.clear()

    @property
    def snapshot(self) -> ReadableSnapshot:
        """The newest version as of the last refresh; the first call loads it."""
        return cast("ReadableSnapshot", super().snapshot)

    def update(self) -> ReadableSnapshot:
        """The newest version now."""
        return cast("ReadableSnapshot", super().update())

    def snapshot_at(
        self,
        version: int | None = None,
        timestamp: int | str | None = None,
        *,
        zone: str = "UTC",
        listing: LogListing | None = None,
    ) -> ReadableSnapshot:
        """The table as it was at a version, or at a time: ms since the epoch, or text in `zone`."""
        found = super().snapshot_at(version, timestamp, zone=zone, listing=listing)
        return cast("ReadableSnapshot", found)

    def start_transaction(self, *, time_zone: str = "UTC") -> OptimisticTransaction:
        """A transaction on the newest version, or without a version if there is no table yet.

        `time_zone` is that of timestamps without a zone among partition values; it must be the
        zone of the reader's scans.
        """
        try:
            return self.transaction_on(self.update(), time_zone=time_zone)
        except TableNotFoundError:
            return self.transaction_on(None, time_zone=time_zone)

    def transaction_on(
        self, snapshot: Snapshot | None, *, time_zone: str = "UTC"
    ) -> OptimisticTransaction:
        """A transaction on a version that was read before, by another process perhaps.

        Commits of others since then are checked at the commit, as always.  `time_zone` is as in
        `start_transaction`.
        """
        return OptimisticTransaction(
            self,
            snapshot,
            committer=self._committer,
            hooks=self._hooks,
            new_uuid=self._new_uuid,
            engine=self._engine,
            settings=self.commit_settings(),
            hook_seconds=self.hook_seconds,
            time_zone=time_zone,
        )

    def with_new_transaction(self, function: Callable[[OptimisticTransaction], _Result]) -> _Result:
        """The result of `function` for a new transaction, which `function` commits."""
        return function(self.start_transaction())

    def checkpoint(
        self,
        snapshot: Snapshot | None = None,
        *,
        part_size: int | None = None,
        v2_format: V2Format = "json",
    ) -> None:
        """Write a checkpoint of a version, the newest unless one is given.

        `part_size` is how many file actions a part or a sidecar may hold; `v2_format` the form of
        a V2 checkpoint's top file.
        """
        chosen = self.update() if snapshot is None else snapshot
        checkpoint(self, chosen, part_size=part_size, v2_format=v2_format)

    def wait_for_hooks(self, timeout_seconds: float | None = None) -> bool:
        """Wait for checkpoints and all other hooks; returns whether all are done."""
        return self._hooks.flush(timeout_seconds)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.store.root_uri!r})"


_Key = tuple[type[DeltaLog], str, str, Callable[[], int], bool, bool]
_CACHE: OrderedDict[_Key, DeltaLog] = OrderedDict()
_LOCK = Lock()
