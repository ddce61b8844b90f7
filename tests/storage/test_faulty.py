from __future__ import annotations

import pickle
from contextlib import suppress

import pytest

from pyspark_delta.errors import FileAlreadyExistsError, StorageError
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.storage.memory import MemoryStore
from pyspark_delta.kernel.storage.objects import ObjectStore
from tests.contracts.log_store import COMMIT, LogStoreContract, names
from tests.support.faulty import Crashed, Fault, FaultRule, FaultStore, SeededSchedule


class TestFaultStoreWithoutFaults(LogStoreContract):
    @pytest.fixture
    def store(self) -> FaultStore:
        return FaultStore(MemoryStore())


def faulty(operation: str, fault: Fault, path: str = "*") -> FaultStore:
    inner = MemoryStore()
    inner.create("old", b"0123456789")
    return FaultStore(inner, [(operation, path, fault)])


def test_an_error_before_does_nothing() -> None:
    store = faulty("create", Fault.ERROR_BEFORE)
    with pytest.raises(StorageError):
        store.create(COMMIT, b"x")
    assert not store.exists(COMMIT)
    store.create(COMMIT, b"x")
    assert store.fired == [("create", COMMIT, Fault.ERROR_BEFORE)]


def test_an_error_after_has_done_it() -> None:
    store = faulty("create", Fault.ERROR_AFTER)
    with pytest.raises(StorageError) as caught:
        store.create(COMMIT, b"x")
    assert not isinstance(caught.value, FileAlreadyExistsError)
    assert store.read(COMMIT) == b"x"


def test_a_conflict_does_nothing_and_is_not_a_lost_race() -> None:
    store = faulty("create*", Fault.CONFLICT_409)
    with pytest.raises(StorageError) as caught:
        store.create_from(COMMIT, [b"x"])
    assert not isinstance(caught.value, FileAlreadyExistsError)
    assert not store.exists(COMMIT)


def test_ones_own_write_may_be_reported_as_anothers() -> None:
    store = faulty("create", Fault.EXISTS_AFTER_OWN_WRITE)
    with pytest.raises(FileAlreadyExistsError):
        store.create(COMMIT, b"mine")
    assert store.read(COMMIT) == b"mine"


def test_a_truncated_read_gives_the_first_half() -> None:
    store = faulty("read", Fault.TRUNCATED_READ)
    assert store.read("old") == b"01234"
    assert store.read("old") == b"0123456789"
    store = faulty("read_range", Fault.TRUNCATED_READ)
    assert store.read_range("old", 2, 4) == b"23"


def test_a_stale_listing_lacks_the_newest_names() -> None:
    inner = MemoryStore()
    for name in "abcd":
        inner.create(f"d/{name}", b"")
    rules = [("list*", "d*", Fault.STALE_LIST)] * 2
    store = FaultStore(inner, rules, stale_names=2)
    assert [info.path for info in store.list_from("d/a")] == ["d/a", "d/b"]
    assert names(store, "d") == ["d/a", "d/b"]
    assert len(store.list_from("d/a")) == 4


@pytest.mark.parametrize(
    ("fault", "is_done"), [(Fault.CRASH_BEFORE, False), (Fault.CRASH_AFTER, True)]
)
def test_a_crash_passes_every_handler_of_errors(fault: Fault, is_done: bool) -> None:
    store = faulty("create", fault)
    with pytest.raises(Crashed), suppress(Exception):
        store.create(COMMIT, b"x")
    assert store.exists(COMMIT) is is_done


def test_a_delay_sleeps_on_the_clock_it_was_given() -> None:
    slept: list[float] = []
    rules = [("read", "*", Fault.DELAY)]
    store = FaultStore(MemoryStore(), rules, delay_seconds=5, sleep=slept.append)
    store.create("f", b"x")
    assert store.read("f") == b"x"
    assert slept == [5]


def test_a_rule_can_wait_and_repeat() -> None:
    rule = FaultRule(operation="read", path="f", fault=Fault.ERROR_BEFORE, skip=1, times=2)
    store = FaultStore(MemoryStore(), [rule])
    store.create("f", b"x")
    outcomes = []
    for _ in range(5):
        try:
            outcomes.append(store.read("f"))
        except StorageError:
            outcomes.append(None)
    assert outcomes == [b"x", None, None, b"x", b"x"]


def test_a_rule_waits_for_a_call_it_can_apply_to() -> None:
    store = faulty("*", Fault.STALE_LIST)
    assert store.read("old") == b"0123456789"
    store.create(COMMIT, b"x")
    assert store.list_from("") == []


def test_only_matching_paths_fail() -> None:
    store = faulty("create", Fault.ERROR_BEFORE, "_delta_log/*.json")
    store.create("data.parquet", b"x")
    with pytest.raises(StorageError):
        store.create(COMMIT, b"x")


def test_every_call_is_on_record() -> None:
    store = FaultStore(MemoryStore())
    store.create("f", b"x")
    store.read_many(["f", "f"])
    store.exists("f")
    assert store.calls == [("create", "f"), ("read", "f"), ("read", "f"), ("stat", "f")]


def outcomes(seed: int) -> list[tuple[str, str, Fault]]:
    faults = (Fault.ERROR_BEFORE, Fault.ERROR_AFTER, Fault.TRUNCATED_READ, Fault.STALE_LIST)
    store = FaultStore(MemoryStore(), SeededSchedule(seed, rate=0.3, faults=faults))
    for n in range(200):
        for action in (
            lambda path: store.overwrite(path, b"xx"),
            store.exists,
            lambda path: store.read(path) if store.inner.exists(path) else None,
            store.list_from,
        ):
            try:
                action(f"d/{n}")
            except StorageError:
                continue
    return store.fired


def test_a_seed_decides_every_fault() -> None:
    assert outcomes(7) == outcomes(7)
    assert outcomes(7) != outcomes(8)
    assert {fault for _, _, fault in outcomes(7)} == {
        Fault.ERROR_BEFORE,
        Fault.ERROR_AFTER,
        Fault.TRUNCATED_READ,
        Fault.STALE_LIST,
    }


def test_a_function_can_be_the_schedule() -> None:
    store = FaultStore(
        MemoryStore(),
        lambda operation, path: Fault.ERROR_BEFORE if path == "bad" else None,
    )
    store.create("good", b"")
    with pytest.raises(StorageError):
        store.create("bad", b"")


def test_a_rule_schedule_survives_pickling() -> None:
    copy: LogStore = pickle.loads(pickle.dumps(faulty("read", Fault.ERROR_BEFORE)))
    with pytest.raises(StorageError):
        copy.read("old")


def test_probing_is_as_cheap_as_in_the_store_it_wraps() -> None:
    assert FaultStore(MemoryStore()).probes_cheaply is True
    assert FaultStore(ObjectStore("s3://b", None)).probes_cheaply is False
