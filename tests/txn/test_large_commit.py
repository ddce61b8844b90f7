"""Commits that stream: a table from more actions than memory holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from pyspark_delta.errors import (
    ConcurrentWriteException,
    InvalidActionsError,
    OperationNotAllowedError,
    SchemaError,
)
from pyspark_delta.kernel.protocol.actions import Action, AddFile, SetTransaction
from pyspark_delta.kernel.storage.memory import MemoryStore
from pyspark_delta.kernel.txn.hooks import InlineRunner
from pyspark_delta.kernel.txn.large_commit import ACTIONS_AT_ONCE
from tests.support.transactions import (
    TABLE,
    add,
    live_paths,
    memory_log,
    metadata,
    new_table,
)


def many(count: int) -> Iterator[Action]:
    for number in range(count):
        yield add(f"part={number % 7}/{number}")


def test_a_streamed_commit_makes_a_table() -> None:
    log = memory_log()
    transaction = log.start_transaction()
    transaction.update_metadata(metadata("part"))
    done = transaction.commit_large(many(3000), "CONVERT", metrics={"numConvertedFiles": 3000})
    assert (done.version, done.actions) == (0, ())
    assert log.snapshot.num_files == 3000
    info = log.history()[0]
    assert info.operation == "CONVERT"
    assert info.operation_metrics == {"numConvertedFiles": "3000"}
    assert info.txn_id == transaction.txn_id
    with pytest.raises(InvalidActionsError):
        transaction.commit([], "WRITE")


class WatchedStore(MemoryStore):
    """A store that notes how far ahead of its writes the actions are produced."""

    produced = 0
    farthest_ahead = 0

    def create_from(self, path: str, chunks: Iterable[bytes]) -> None:
        def watched() -> Iterator[bytes]:
            written = -3  # the lines of the commit itself
            for chunk in chunks:
                ahead = self.produced - written
                self.farthest_ahead = max(self.farthest_ahead, ahead)
                written += chunk.count(b"\n")
                yield chunk

        super().create_from(path, watched())


def test_a_streamed_commit_holds_few_actions_in_memory() -> None:
    store = WatchedStore(None, TABLE)
    log = memory_log(store)
    transaction = log.start_transaction()
    transaction.update_metadata(metadata("part"))

    def counted() -> Iterator[Action]:
        for action in many(10_000):
            store.produced += 1
            yield action

    transaction.commit_large(counted(), "CONVERT")
    assert log.snapshot.num_files == store.produced == 10_000
    assert store.farthest_ahead <= ACTIONS_AT_ONCE + 3


def test_a_table_that_exists_takes_no_streamed_commit() -> None:
    with pytest.raises(OperationNotAllowedError):
        new_table().start_transaction().commit_large(iter([add("a")]), "CONVERT")


def test_a_table_that_appears_meanwhile_is_left_alone() -> None:
    log = memory_log()
    transaction = log.start_transaction()
    transaction.update_metadata(metadata())
    new_table(actions=[add("theirs")], log=memory_log(log.store))
    with pytest.raises(ConcurrentWriteException) as caught:
        transaction.commit_large(iter([add("mine")]), "CONVERT")
    assert '"operation":"CREATE TABLE"' in caught.value.parameters["conflictingCommit"]
    assert live_paths(log) == ["theirs"]


def test_an_action_that_is_wrong_stops_the_stream_and_leaves_no_table() -> None:
    for wrong, kind in (
        (add("p=1/a"), SchemaError),
        (metadata(), InvalidActionsError),
        (add("a", deletion_vector=None, stats=None), None),
    ):
        log = memory_log()
        transaction = log.start_transaction()
        transaction.update_metadata(metadata())
        if kind is None:
            transaction.commit_large(iter([wrong]), "CONVERT")
            continue
        with pytest.raises(kind):
            transaction.commit_large(iter([add("b"), wrong]), "CONVERT")
        assert not log.table_exists


def test_streamed_files_of_a_tracked_table_get_row_ids() -> None:
    log = memory_log()
    transaction = log.start_transaction()
    transaction.update_metadata(metadata(configuration={"delta.enableRowTracking": "true"}))
    transaction.commit_large(iter([add("a"), add("b")]), "CONVERT")
    files = [a for _, actions in log.get_changes(0) for a in actions if isinstance(a, AddFile)]
    assert [file.base_row_id for file in files] == [0, 10]
    log.start_transaction().commit([add("c"), SetTransaction(app_id="q", version=1)], "WRITE")
    assert log.snapshot.files.column("baseRowId").to_pylist() == [0, 10, 20]


def test_the_hooks_after_a_streamed_commit_do_not_fail() -> None:
    log = memory_log(hooks=InlineRunner())
    transaction = log.start_transaction()
    transaction.update_metadata(metadata("part"))
    transaction.commit_large(many(30), "CONVERT")
    for number in range(10):
        log.start_transaction().commit([add(f"part=1/x{number}")], "WRITE")
    assert log.store.exists("_delta_log/00000000000000000010.checkpoint.parquet")
    assert log.store.exists("_delta_log/00000000000000000010.crc")
