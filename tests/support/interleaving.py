"""Races that a seed decides: between the attempts of a commit, others may go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.txn.committer import (
    Beaten,
    Committed,
    Committer,
    FileSystemCommitter,
)


class InterruptibleCommitter(Committer):
    """Before every attempt others may go on: the race that conflict checks are about."""

    def __init__(self, store: LogStore) -> None:
        self.inner = FileSystemCommitter(store)
        self.before: Callable[[], None] = lambda: None

    def commit(
        self, version: int, data: bytes | Iterable[bytes], txn_id: str
    ) -> Committed | Beaten:
        self.before()
        return self.inner.commit(version, data, txn_id)
