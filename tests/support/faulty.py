"""`FaultStore`: a store that fails on purpose, to test the code above it.

A schedule decides which call fails, and how: a list of rules, each of which fires a set number of
times, or a function.  The same schedule always gives the same faults.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from typing import TypeVar

from pyspark_delta.errors import (
    FileAlreadyExistsError,
    NothingWrittenError,
    StorageError,
    StorageRefusedError,
)
from pyspark_delta.kernel.storage.base import FileInfo, ListedDirectory, LogStore

_Result = TypeVar("_Result")


class Fault(Enum):
    """A kind of failure of one call."""

    ERROR_BEFORE = "StorageError, and nothing was done"
    ERROR_AFTER = "done, then StorageError: the answer was lost"
    REFUSED = "StorageRefusedError: nothing was done"
    NOT_WRITTEN = "NothingWrittenError: nothing was done"
    CONFLICT_409 = "StorageError, nothing done: another conditional write was under way"
    EXISTS_AFTER_OWN_WRITE = "created, then FileAlreadyExistsError: one's own retry was refused"
    TRUNCATED_READ = "the first half of the bytes"
    STALE_LIST = "a listing without its last names"
    CRASH_BEFORE = "Crashed, and nothing was done"
    CRASH_AFTER = "done, then Crashed"
    DELAY = "done, after a sleep"


class Crashed(BaseException):
    """A simulated crash of the process.  Not an Exception: no error handler may catch it."""


Schedule = Callable[[str, str], Fault | None]
"""From the name of an operation and a path to the fault of this call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRule:
    """`fault` for calls whose operation and path match: after `skip` of them, `times` times.

    The patterns are those of `fnmatch`; operations are the methods of LogStore.
    """

    operation: str
    path: str
    fault: Fault
    skip: int = 0
    times: int = 1


_CREATES = frozenset({"create", "create_from"})
_READS = frozenset({"read", "read_range"})
_WRITES = _CREATES | {"overwrite"}
_LISTS = frozenset({"list_from", "list_recursive", "list_tree"})

APPLIES_TO = {
    Fault.EXISTS_AFTER_OWN_WRITE: _CREATES,
    Fault.CONFLICT_409: _CREATES,
    Fault.REFUSED: _WRITES,
    Fault.NOT_WRITTEN: _WRITES,
    Fault.TRUNCATED_READ: _READS,
    Fault.STALE_LIST: _LISTS,
}
"""Operations to which a fault applies; a fault that is not here applies to all."""

_REASONS = {
    Fault.ERROR_BEFORE: "the request did not arrive",
    Fault.ERROR_AFTER: "the answer was lost",
    Fault.REFUSED: "the store refuses access",
    Fault.NOT_WRITTEN: "the connection could not be made",
    Fault.CONFLICT_409: "another conditional write was under way (409)",
}

_NOT_DONE = (Fault.ERROR_BEFORE, Fault.CONFLICT_409, Fault.REFUSED, Fault.NOT_WRITTEN)
_KINDS = {Fault.REFUSED: StorageRefusedError, Fault.NOT_WRITTEN: NothingWrittenError}


class RuleSchedule:
    """Rules in order: the first one that matches a call and is not used up applies."""

    def __init__(self, rules: Iterable[FaultRule | tuple[str, str, Fault]]) -> None:
        self._rules = [
            rule
            if isinstance(rule, FaultRule)
            else FaultRule(operation=rule[0], path=rule[1], fault=rule[2])
            for rule in rules
        ]
        self._seen = [0] * len(self._rules)

    def __call__(self, operation: str, path: str) -> Fault | None:
        for at, rule in enumerate(self._rules):
            if (
                self._seen[at] < rule.skip + rule.times
                and is_applicable(rule.fault, operation)
                and fnmatchcase(operation, rule.operation)
                and fnmatchcase(path, rule.path)
            ):
                self._seen[at] += 1
                if self._seen[at] > rule.skip:
                    return rule.fault
        return None


class SeededSchedule:
    """Any of `faults` in a share `rate` of the calls, drawn from `seed` alone."""

    def __init__(
        self, seed: int, *, rate: float, faults: Sequence[Fault], paths: str = "*"
    ) -> None:
        self._random = random.Random(seed)
        self._rate = rate
        self._faults = tuple(faults)
        self._paths = paths

    def __call__(self, operation: str, path: str) -> Fault | None:
        # Both are drawn on every call, so that later ones do not depend on whether a fault applies.
        strikes = self._random.random() < self._rate
        fault = self._random.choice(self._faults)
        if strikes and is_applicable(fault, operation) and fnmatchcase(path, self._paths):
            return fault
        return None


def is_applicable(fault: Fault, operation: str) -> bool:
    """Whether a call of `operation` can fail in this way."""
    return operation in APPLIES_TO.get(fault, (operation,))


class FaultStore(LogStore):
    """`inner` with the faults of `schedule`.

    `calls` has every (operation, path) so far, `fired` the failed ones with their faults.
    `read_many` and `delete_many` make single calls, one by one.
    """

    def __init__(
        self,
        inner: LogStore,
        schedule: Schedule | Iterable[FaultRule | tuple[str, str, Fault]] = (),
        *,
        stale_names: int = 1,
        delay_seconds: float = 0.01,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.inner = inner
        self.calls: list[tuple[str, str]] = []
        self.fired: list[tuple[str, str, Fault]] = []
        self._schedule: Schedule = schedule if callable(schedule) else RuleSchedule(schedule)
        self._stale_names = stale_names
        self._delay_seconds = delay_seconds
        self._sleep = sleep
        self.probes_cheaply = inner.probes_cheaply  # type: ignore[misc]  # as the store it wraps

    @property
    def root_uri(self) -> str:
        """The inner store's."""
        return self.inner.root_uri

    def read(self, path: str) -> bytes:
        data, fault = self._run("read", path, lambda: self.inner.read(path))
        return data[: len(data) // 2] if fault is Fault.TRUNCATED_READ else data

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """See LogStore; a truncated read breaks its promise, as a bad proxy would."""
        data, fault = self._run(
            "read_range", path, lambda: self.inner.read_range(path, start, length)
        )
        return data[: len(data) // 2] if fault is Fault.TRUNCATED_READ else data

    def stat(self, path: str) -> FileInfo:
        return self._run("stat", path, lambda: self.inner.stat(path))[0]

    def list_from(self, start: str) -> list[FileInfo]:
        infos, fault = self._run("list_from", start, lambda: self.inner.list_from(start))
        return infos[: -self._stale_names] if fault is Fault.STALE_LIST else infos

    def list_recursive(self, prefix: str) -> Iterator[FileInfo]:
        infos, fault = self._run(
            "list_recursive", prefix, lambda: list(self.inner.list_recursive(prefix))
        )
        if fault is Fault.STALE_LIST:
            infos = sorted(infos, key=lambda info: info.path)[: -self._stale_names]
        return iter(infos)

    def list_tree(
        self, is_hidden: Callable[[str], bool], splits: Sequence[str] = ()
    ) -> Iterator[ListedDirectory]:
        found, fault = self._run(
            "list_tree", "", lambda: list(self.inner.list_tree(is_hidden, splits))
        )
        return iter(found[: -self._stale_names] if fault is Fault.STALE_LIST else found)

    def create(self, path: str, data: bytes) -> None:
        self._run("create", path, lambda: self.inner.create(path, data))

    def create_from(self, path: str, chunks: Iterable[bytes]) -> None:
        self._run("create_from", path, lambda: self.inner.create_from(path, chunks))

    def overwrite(self, path: str, data: bytes) -> None:
        self._run("overwrite", path, lambda: self.inner.overwrite(path, data))

    def delete(self, path: str) -> None:
        self._run("delete", path, lambda: self.inner.delete(path))

    def delete_directory(self, path: str) -> bool:
        return self._run("delete_directory", path, lambda: self.inner.delete_directory(path))[0]

    def make_directory(self, path: str) -> None:
        self._run("make_directory", path, lambda: self.inner.make_directory(path))

    def _run(
        self, operation: str, path: str, action: Callable[[], _Result]
    ) -> tuple[_Result, Fault | None]:
        """The inner call's result and the fault to apply to it, unless the fault is raised."""
        self.calls.append((operation, path))
        fault = self._schedule(operation, path)
        if fault is None:
            return action(), None
        self.fired.append((operation, path, fault))
        if fault is Fault.CRASH_BEFORE:
            raise Crashed(f"before {operation} {path}")
        if fault in _NOT_DONE:
            raise self._error(operation, path, fault)
        if fault is Fault.DELAY:
            self._sleep(self._delay_seconds)
        result = action()
        if fault is Fault.CRASH_AFTER:
            raise Crashed(f"after {operation} {path}")
        if fault is Fault.ERROR_AFTER:
            raise self._error(operation, path, fault)
        if fault is Fault.EXISTS_AFTER_OWN_WRITE:
            raise FileAlreadyExistsError(path=self.address(path))
        return result, fault

    def _error(self, operation: str, path: str, fault: Fault) -> StorageError:
        kind = _KINDS.get(fault, StorageError)
        return kind(operation=operation, path=self.address(path), reason=_REASONS[fault])
