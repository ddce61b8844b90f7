"""Commits on stores that fail: never lost, never twice, and nobody is told a lie."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from pyspark_delta.errors import (
    CommitStateUnknownError,
    ConcurrentDeleteReadException,
    DeltaError,
    NothingWrittenError,
    StorageError,
    StorageRefusedError,
)
from pyspark_delta.kernel.protocol.actions import AddFile, CommitInfo
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.storage.memory import MemoryStore
from pyspark_delta.kernel.txn.commit import Beaten, Committed, FileSystemCommitter
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from tests.support.faulty import (
    Crashed,
    Fault,
    FaultRule,
    FaultStore,
    SeededSchedule,
)
from tests.support.transactions import (
    NO_HOOKS,
    TABLE,
    add,
    live_paths,
    memory_log,
    new_table,
    remove,
)

COMMIT_1 = "_delta_log/00000000000000000001.json"
CREATE_FAULTS = (
    None,
    Fault.ERROR_BEFORE,
    Fault.ERROR_AFTER,
    Fault.CONFLICT_409,
    Fault.EXISTS_AFTER_OWN_WRITE,
    Fault.DELAY,
)
LOOK_FAULTS = (None, Fault.ERROR_BEFORE, Fault.ERROR_AFTER, Fault.TRUNCATED_READ)


def no_sleep(seconds: float) -> None:
    assert seconds <= 2.0


def committer_on(store: LogStore, **settings: Any) -> FileSystemCommitter:
    return FileSystemCommitter(store, sleep=no_sleep, **settings)


def log_on(store: LogStore, **settings: Any) -> DeltaLog:
    return DeltaLog(
        store,
        now_ms=lambda: 1,
        hooks=NO_HOOKS,
        committer=committer_on(store, **settings),
    )


def commit_bytes(txn_id: str = "me", *actions: Any) -> bytes:
    lines = [CommitInfo(operation="WRITE", txn_id=txn_id), *actions]
    return "".join(f"{action.json}\n" for action in lines).encode()


def paths_of(log: DeltaLog) -> list[str]:
    """Every path that any commit added, with repetitions."""
    return [
        action.path
        for _, actions in log.get_changes(0)
        for action in actions
        if isinstance(action, AddFile)
    ]


def test_the_first_of_two_commits_wins_and_the_second_learns_who_did() -> None:
    store = MemoryStore(None, TABLE)
    committer = committer_on(store)
    first = commit_bytes("first")
    assert committer.commit(0, first, "first") == Committed(version=0)
    beaten = committer.commit(0, commit_bytes("second"), "second")
    assert isinstance(beaten, Beaten)
    assert (beaten.version, beaten.data) == (0, first)


@pytest.mark.parametrize("fault", CREATE_FAULTS)
@pytest.mark.parametrize("on_look", LOOK_FAULTS)
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_commit_that_meets_a_fault_is_made_once(
    fault: Fault | None, on_look: Fault | None, times: int
) -> None:
    inner = MemoryStore(None, TABLE)
    new_table(log=memory_log(inner))
    rules = []
    if fault is not None:
        rules.append(FaultRule(operation="create", path=COMMIT_1, fault=fault, times=times))
    if on_look is not None:
        rules.append(FaultRule(operation="read", path=COMMIT_1, fault=on_look))
        if on_look is not Fault.TRUNCATED_READ:
            rules.append(FaultRule(operation="stat", path=COMMIT_1, fault=on_look))
    log = log_on(FaultStore(inner, rules, sleep=no_sleep))
    done = log.start_transaction().commit([add("a")], "WRITE")
    assert done.version == 1
    assert paths_of(memory_log(inner)) == ["a"]


@pytest.mark.parametrize("fault", [f for f in CREATE_FAULTS if f is not None])
@pytest.mark.parametrize("on_look", LOOK_FAULTS)
def test_a_fault_in_the_middle_of_a_race_loses_and_doubles_nothing(
    fault: Fault, on_look: Fault | None
) -> None:
    inner = MemoryStore(None, TABLE)
    new_table(log=memory_log(inner))
    other = memory_log(inner)
    rules = [FaultRule(operation="create", path="*.json", fault=fault, times=2)]
    if on_look is not None:
        rules.append(FaultRule(operation="read", path=COMMIT_1, fault=on_look))
    log = log_on(FaultStore(inner, rules, sleep=no_sleep))
    mine = log.start_transaction()
    other.start_transaction().commit([add("theirs")], "WRITE")
    assert mine.commit([add("mine")], "WRITE").version == 2
    assert sorted(paths_of(memory_log(inner))) == ["mine", "theirs"]


def test_a_store_that_cannot_be_asked_leaves_the_outcome_open_and_says_so() -> None:
    inner = MemoryStore(None, TABLE)
    new_table(log=memory_log(inner))
    rules = [
        FaultRule(operation="create", path=COMMIT_1, fault=Fault.ERROR_AFTER),
        FaultRule(operation="read", path=COMMIT_1, fault=Fault.ERROR_BEFORE, times=100),
    ]
    log = log_on(FaultStore(inner, rules))
    transaction = log.start_transaction()
    with pytest.raises(CommitStateUnknownError) as caught:
        transaction.commit([add("a")], "WRITE")
    assert caught.value.condition == "DELTA_COMMIT_STATE_UNKNOWN"
    assert caught.value.parameters["version"] == "1"
    assert caught.value.parameters["txnId"] == transaction.txn_id
    assert transaction.committed_version is None


def test_a_commit_of_unknown_outcome_that_is_tried_again_finds_itself() -> None:
    inner = MemoryStore(None, TABLE)
    new_table(log=memory_log(inner))
    rules = [
        FaultRule(operation="create", path=COMMIT_1, fault=Fault.ERROR_AFTER),
        FaultRule(operation="read", path=COMMIT_1, fault=Fault.ERROR_BEFORE, times=6),
    ]
    log = log_on(FaultStore(inner, rules))
    transaction = log.start_transaction()
    with pytest.raises(CommitStateUnknownError):
        transaction.commit([add("a")], "WRITE")
    memory_log(inner).start_transaction().commit([add("b")], "WRITE")
    done = transaction.commit([add("another")], "WRITE")
    assert (done.version, done.is_earlier) == (1, True)
    assert [action.path for action in done.actions if isinstance(action, AddFile)] == ["a"]
    assert paths_of(memory_log(inner)) == ["a", "b"]


def test_a_late_commit_of_ones_own_is_found_among_the_winners() -> None:
    inner = MemoryStore(None, TABLE)
    log = new_table(log=memory_log(inner))
    transaction = log.start_transaction()
    memory_log(inner).start_transaction().commit([add("b")], "WRITE")
    prepared = commit_bytes(transaction.txn_id, add("a"))
    inner.create("_delta_log/00000000000000000002.json", prepared)
    assert transaction.commit([add("a")], "WRITE").version == 2
    assert paths_of(memory_log(inner)) == ["b", "a"]


def test_a_store_that_always_fails_is_given_up_after_a_bounded_wait() -> None:
    waits: list[float] = []
    inner = MemoryStore(None, TABLE)
    store = FaultStore(
        inner, [FaultRule(operation="create", path="*", fault=Fault.ERROR_BEFORE, times=99)]
    )
    committer = FileSystemCommitter(store, sleep=waits.append)
    with pytest.raises(CommitStateUnknownError, match="did not arrive"):
        committer.commit(0, commit_bytes(), "me")
    assert 0 < sum(waits) < 10
    assert waits == sorted(waits)


def test_what_the_operating_system_refuses_is_not_an_unknown_outcome(table_path: Path) -> None:
    if os.geteuid() == 0:
        table_path.mkdir()
        (table_path / "_delta_log").write_bytes(b"in the way")  # not even root gets past that
    else:
        (table_path / "_delta_log").mkdir(parents=True)
        table_path.joinpath("_delta_log").chmod(0o500)
    committer = committer_on(LocalStore(table_path))
    with pytest.raises(StorageRefusedError):
        committer.commit(0, commit_bytes(), "me")


def test_a_refusal_is_passed_on_at_once_and_nothing_is_looked_at() -> None:
    store = FaultStore(MemoryStore(None, TABLE), [("create", "*", Fault.REFUSED)])
    with pytest.raises(StorageRefusedError):
        committer_on(store).commit(0, commit_bytes(), "me")
    assert store.calls == [("create", "_delta_log/00000000000000000000.json")]


def test_a_refusal_after_a_request_without_an_answer_leaves_the_outcome_open() -> None:
    rules = [("create", "*", Fault.ERROR_BEFORE), ("create", "*", Fault.REFUSED)]
    store = FaultStore(MemoryStore(None, TABLE), rules)
    with pytest.raises(CommitStateUnknownError):
        committer_on(store).commit(0, commit_bytes(), "me")
    assert [call for call, _ in store.calls].count("create") == 2


def test_a_refusal_after_a_request_that_arrived_finds_the_commit() -> None:
    inner = LateStore(MemoryStore(None, TABLE))
    assert committer_on(inner).commit(0, commit_bytes(), "me") == Committed(version=0)


class LateStore(FaultStore):
    """The first request arrives when the second is refused."""

    def create(self, path: str, data: bytes) -> None:
        self.calls.append(("create", path))
        if len(self.calls) == 1:
            raise StorageError(operation="create", path=path, reason="no answer")
        self.inner.create(path, data)
        raise StorageRefusedError(operation="create", path=path, reason="no access any more")


def test_a_store_that_certainly_wrote_nothing_is_tried_again_and_then_named() -> None:
    inner = MemoryStore(None, TABLE)
    rule = FaultRule(operation="create", path="*", fault=Fault.NOT_WRITTEN, times=2)
    done = committer_on(FaultStore(inner, [rule])).commit(0, commit_bytes(), "me")
    assert done == Committed(version=0)
    store = FaultStore(inner, [replace(rule, times=99)])
    with pytest.raises(NothingWrittenError):
        committer_on(store).commit(1, commit_bytes(), "me")
    assert {call for call, _ in store.calls} == {"create"}


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
def test_a_writer_that_dies_leaves_a_whole_commit_or_none(fault: Fault) -> None:
    inner = MemoryStore(None, TABLE)
    new_table(log=memory_log(inner))
    log = log_on(FaultStore(inner, [("create", COMMIT_1, fault)]))
    with pytest.raises(Crashed):
        log.start_transaction().commit([add("a")], "WRITE")
    assert paths_of(memory_log(inner)) == ([] if fault is Fault.CRASH_BEFORE else ["a"])


class InterruptedStore(FaultStore):
    """A store whose user presses Ctrl-C while a commit is written, before or after it is."""

    def __init__(self, inner: LogStore, *, after: bool, schedule: Any = ()) -> None:
        super().__init__(inner, schedule)
        self.after = after

    def create(self, path: str, data: bytes) -> None:
        if path == COMMIT_1:
            if self.after:
                super().create(path, data)
            raise KeyboardInterrupt
        super().create(path, data)


def test_an_interrupt_after_the_write_is_passed_on_with_the_commit_on_record() -> None:
    inner = MemoryStore(None, TABLE)
    new_table(log=memory_log(inner))
    log = log_on(InterruptedStore(inner, after=True))
    transaction = log.start_transaction()
    with pytest.raises(KeyboardInterrupt) as caught:
        transaction.commit([add("a")], "WRITE")
    assert transaction.committed_version == 1
    assert "Version 1" in caught.value.__notes__[0]
    assert log.snapshot.version == 1
    assert live_paths(log) == ["a"]


def test_an_interrupt_before_the_write_leaves_nothing() -> None:
    inner = MemoryStore(None, TABLE)
    new_table(log=memory_log(inner))
    transaction = log_on(InterruptedStore(inner, after=False)).start_transaction()
    with pytest.raises(KeyboardInterrupt) as caught:
        transaction.commit([add("a")], "WRITE")
    assert transaction.committed_version is None
    assert not hasattr(caught.value, "__notes__")
    assert paths_of(memory_log(inner)) == []


def test_an_interrupt_whose_outcome_cannot_be_known_says_so() -> None:
    inner = MemoryStore(None, TABLE)
    new_table(log=memory_log(inner))
    rules = [FaultRule(operation="read", path=COMMIT_1, fault=Fault.ERROR_BEFORE, times=9)]
    store = InterruptedStore(inner, after=True, schedule=rules)
    with pytest.raises(KeyboardInterrupt) as caught:
        log_on(store).start_transaction().commit([add("a")], "WRITE")
    assert "DELTA_COMMIT_STATE_UNKNOWN" in caught.value.__notes__[0]


def test_a_winner_that_is_read_in_part_is_read_again() -> None:
    inner = MemoryStore(None, TABLE)
    new_table(actions=[add("a")], log=memory_log(inner))
    second = "_delta_log/00000000000000000002.json"
    third = "_delta_log/00000000000000000003.json"
    rules = [
        FaultRule(operation="read", path=second, fault=Fault.TRUNCATED_READ, times=2),
        FaultRule(operation="read", path=third, fault=Fault.TRUNCATED_READ, times=2),
    ]
    log = log_on(FaultStore(inner, rules))
    mine = log.start_transaction()
    mine.filter_files()
    other = memory_log(inner)
    # Cut in half, neither of them would show what it removes.
    other.start_transaction().commit([], "WRITE", user_metadata="x" * 500)
    other.start_transaction().commit([remove("a")], "DELETE", user_metadata="x" * 500)
    with pytest.raises(ConcurrentDeleteReadException):
        mine.commit([add("b")], "WRITE")


def test_a_winner_that_never_comes_back_whole_is_not_judged() -> None:
    inner = MemoryStore(None, TABLE)
    new_table(log=memory_log(inner))
    rule = FaultRule(operation="read", path=COMMIT_1, fault=Fault.TRUNCATED_READ, times=99)
    log = log_on(FaultStore(inner, [rule]))
    mine = log.start_transaction()
    memory_log(inner).start_transaction().commit([add("b")], "WRITE")
    with pytest.raises(CommitStateUnknownError, match="only a part"):
        mine.commit([add("a")], "WRITE")


def streams(*chunks: bytes, then: Callable[[], None] = lambda: None) -> Iterator[bytes]:
    yield from chunks
    then()


@pytest.mark.parametrize("fault", [None, Fault.ERROR_AFTER, Fault.EXISTS_AFTER_OWN_WRITE])
def test_a_streamed_commit_whose_answer_is_lost_is_recognised_by_its_first_line(
    fault: Fault | None,
) -> None:
    inner = MemoryStore(None, TABLE)
    rules = [] if fault is None else [("create_from", "*", fault)]
    committer = committer_on(FaultStore(inner, rules))
    first, rest = commit_bytes("me"), b" " * (1 << 21) + b"\n"
    assert committer.commit(0, streams(first, rest), "me") == Committed(version=0)
    assert isinstance(committer.commit(0, streams(commit_bytes("you")), "you"), Beaten)


def test_a_streamed_commit_that_did_not_arrive_is_not_tried_again() -> None:
    store = FaultStore(MemoryStore(None, TABLE), [("create_from", "*", Fault.ERROR_BEFORE)])
    with pytest.raises(CommitStateUnknownError):
        committer_on(store).commit(0, streams(commit_bytes("me")), "me")


def test_an_error_in_the_stream_passes_through_and_leaves_nothing() -> None:
    store = MemoryStore(None, TABLE)

    def fail() -> None:
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        committer_on(store).commit(0, streams(commit_bytes("me"), then=fail), "me")
    assert not store.exists("_delta_log/00000000000000000000.json")


ANY_FAULT = (
    Fault.ERROR_BEFORE,
    Fault.ERROR_AFTER,
    Fault.CONFLICT_409,
    Fault.EXISTS_AFTER_OWN_WRITE,
    Fault.TRUNCATED_READ,
    Fault.STALE_LIST,
)


def started(log: DeltaLog) -> OptimisticTransaction:
    """A transaction, however often the store fails before there is one."""
    while True:
        with suppress(DeltaError):
            return log.start_transaction()


@pytest.mark.parametrize(("seed", "rate"), list(product(range(60), [0.1, 0.4])))
def test_under_random_faults_every_acknowledged_append_is_there_once(
    seed: int, rate: float
) -> None:
    inner = MemoryStore(None, TABLE)
    new_table(log=memory_log(inner))
    logs = [
        log_on(FaultStore(inner, SeededSchedule(s, rate=rate, faults=ANY_FAULT)))
        for s in (seed, seed + 1000)
    ]
    acknowledged, refused, unknown = set(), set(), set()
    pending = [started(log) for log in logs]
    for number in range(6):
        which = number % 2
        path = f"{number}"
        try:
            pending[which].commit([add(path)], "WRITE")
            acknowledged.add(path)
        except CommitStateUnknownError:
            unknown.add(path)
        except DeltaError:
            refused.add(path)
        pending[which] = started(logs[which])
    written = paths_of(memory_log(inner))
    assert len(written) == len(set(written))
    assert acknowledged <= set(written)
    assert not refused & set(written)
    assert set(written) <= acknowledged | unknown
