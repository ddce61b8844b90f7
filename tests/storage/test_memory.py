from __future__ import annotations

import gc
import pickle
from itertools import count

import pytest

from pyspark_delta.kernel.storage.memory import MemoryStore
from pyspark_delta.kernel.storage.resolve import store_for
from tests.contracts.log_store import LogStoreContract, names


class TestMemoryStore(LogStoreContract):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()


class TestMemoryStoreBelowAPath(LogStoreContract):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore(path="tä ble 100%/t")


def test_stores_of_one_name_share_their_files() -> None:
    MemoryStore("shared").create("t/f", b"x")
    assert store_for("memory://shared/t").read("f") == b"x"
    assert store_for("memory://shared").read("t/f") == b"x"
    assert not store_for("memory://shared2").exists("t/f")
    assert not store_for("memory://shared/t2").exists("f")


def test_a_prefix_is_a_directory_and_not_a_beginning_of_names() -> None:
    store = MemoryStore("prefixes")
    store.create("t/f", b"")
    store.create("t2/f", b"")
    assert names(MemoryStore("prefixes", "t"), "") == ["f"]


def test_files_without_a_name_go_with_their_last_store() -> None:
    store = MemoryStore()
    store.create("f", b"x")
    copy = pickle.loads(pickle.dumps(store))
    pickled = pickle.dumps(store)
    del store
    assert copy.read("f") == b"x"
    del copy
    gc.collect()
    assert not pickle.loads(pickled).exists("f")


def test_times_come_from_the_clock_that_was_given() -> None:
    clock = count(1000, 10)
    store = MemoryStore(now_ms=lambda: next(clock))
    store.create("a", b"")
    store.create("b", b"")
    store.overwrite("a", b"x")
    assert [(info.path, info.modified_ms) for info in store.list_from("")] == [
        ("a", 1020),
        ("b", 1010),
    ]
