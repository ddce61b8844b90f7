"""Races that a seed decides: between the attempts of a commit, others may go on."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.txn.commit import (
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


class Interleaved(Protocol):
    """A transaction that goes on step by step; a busy one is in the middle of a step."""

    @property
    def is_done(self) -> bool: ...

    @property
    def is_busy(self) -> bool: ...


R = TypeVar("R", bound=Interleaved)


def interleave(
    runs: Sequence[R],
    committer: InterruptibleCommitter,
    chance: random.Random,
    step: Callable[[R], None],
) -> None:
    """Run all of them to their ends, in an order that `chance` decides."""

    def go_on() -> None:
        ready = [run for run in runs if not run.is_done and not run.is_busy]
        if ready:
            step(chance.choice(ready))

    def before_attempt() -> None:
        while chance.random() < 0.35:
            go_on()

    committer.before = before_attempt
    while not all(run.is_done for run in runs):
        go_on()
    committer.before = lambda: None
