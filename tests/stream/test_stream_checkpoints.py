"""Checkpoints of queries: who numbered their sources, and whether their last batch is done."""

from __future__ import annotations

import pytest

from pyspark_delta.errors import StreamError
from pyspark_delta.kernel.ops.stream.offsets import (
    SOURCE_MARK,
    guard_numbers,
    is_last_batch_done,
)
from pyspark_delta.kernel.storage.memory import MemoryStore

OURS, OTHER = True, False


def names(store: MemoryStore) -> list[str]:
    return sorted(file.path for file in store.list_recursive(""))


@pytest.mark.parametrize(
    "sources", [[], [OURS], [OURS, OURS], [OTHER], [OTHER, OURS], [OTHER, OTHER, OURS, OURS]]
)
def test_sources_with_the_same_numbers_everywhere_need_no_mark(sources: list[bool]) -> None:
    store = MemoryStore()
    store.create("sources/0/0", b"v1\n")
    guard_numbers(store, sources)
    assert names(store) == ["sources/0/0"]


@pytest.mark.parametrize(
    ("sources", "number"),
    [([OURS, OTHER], 1), ([OURS, OURS, OTHER], 2), ([OTHER, OURS, OTHER], 2)],
)
def test_a_checkpoint_that_numbers_otherwise_is_marked_or_refused(
    sources: list[bool], number: int
) -> None:
    store = MemoryStore()
    store.create("sources/0/0", b"v1\n")
    for _ in range(2):
        guard_numbers(store, sources)
        assert names(store) == ["sources/0/0", f"sources/{number}/0"]
        assert store.read(f"sources/{number}/0") == SOURCE_MARK
    for name in ("0", "9.compact", "12"):
        begun = MemoryStore()
        begun.create(f"sources/{number}/{name}", b"v1\n{}")
        with pytest.raises(StreamError) as caught:
            guard_numbers(begun, sources)
        assert caught.value.condition == "DELTA_STREAMING_SOURCES_NUMBERED_OTHERWISE"
        assert caught.value.parameters["directory"].endswith(f"sources/{number}")
        assert names(begun) == [f"sources/{number}/{name}"]


def test_every_number_that_is_only_the_other_engine_s_is_marked() -> None:
    store = MemoryStore()
    guard_numbers(store, [OURS, OTHER, OURS, OTHER])
    assert names(store) == ["sources/3/0"]
    guard_numbers(store, [OURS, OURS, OURS, OTHER, OTHER])
    assert names(store) == ["sources/3/0", "sources/4/0"]


def test_the_last_batch_is_done_once_it_is_committed() -> None:
    store = MemoryStore()
    assert not is_last_batch_done(store)
    for number in range(12):
        store.create(f"offsets/{number}", b"v1\n")
        store.create(f"offsets/.{number}.crc", b"")
        assert not is_last_batch_done(store)
        store.create(f"commits/{number}", b"v1\n")
        assert is_last_batch_done(store)
