"""Commits that stream: a table from more actions than memory holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_delta.errors import (
    ConcurrentWriteException,
    InvalidActionsError,
    SchemaError,
)
from pyspark_delta.kernel.protocol.actions import Action, AddFile, SetTransaction
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.prepare import ACTIONS_AT_ONCE
from tests.support.hooks import InlineRunner
from tests.support.transactions import (
    add,
    live_paths,
    memory_log,
    metadata,
    new_table,
    remove,
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
    assert (info.read_version, info.is_blind_append) == (-1, False)
    with pytest.raises(InvalidActionsError):
        transaction.commit([], "WRITE")


class Watched(AddFile):
    """A file that notes how many of its kind there are at once."""

    alive = 0
    most = 0

    def __del__(self) -> None:
        Watched.alive -= 1


def watched(count: int) -> Iterator[Action]:
    for number in range(count):
        Watched.alive += 1
        Watched.most = max(Watched.most, Watched.alive)
        yield Watched(path=f"{number}", size=1, modification_time=1, data_change=True)


def test_a_streamed_commit_holds_few_actions_in_memory() -> None:
    log = memory_log()
    transaction = log.start_transaction()
    transaction.update_metadata(metadata())
    transaction.commit_large(watched(10_000), "CONVERT")
    assert log.snapshot.num_files == 10_000
    assert Watched.most <= 2 * ACTIONS_AT_ONCE
    assert Watched.alive == 0


def test_a_table_is_not_touched_before_the_last_action_is_made(table_path: Path) -> None:
    table_path.mkdir()
    log = DeltaLog(LocalStore(table_path))
    transaction = log.start_transaction()
    transaction.update_metadata(metadata("part"))

    def failing() -> Iterator[Action]:
        yield from many(3000)
        assert list(table_path.iterdir()) == []
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        transaction.commit_large(failing(), "CONVERT")
    assert list(table_path.iterdir()) == []
    transaction.commit_large(many(3000), "CONVERT")
    assert log.snapshot.num_files == 3000


def test_a_table_that_exists_takes_a_streamed_commit_if_nobody_is_faster() -> None:
    log = new_table(
        actions=[add("a")],
        configuration={"delta.enableRowTracking": "true", "delta.isolationLevel": "Serializable"},
    )
    slow, quick = log.start_transaction(), log.start_transaction()
    done = quick.commit_large(
        iter([add("b"), remove("a")]), "RESTORE", protocol=log.snapshot.protocol
    )
    assert (done.version, live_paths(log)) == (2, ["b"])
    # Row ids go on where the table's own end, and a protocol that was given is written.
    assert log.snapshot.files.column("baseRowId").to_pylist() == [10]
    ((_, actions),) = log.get_changes(2)
    assert log.snapshot.protocol in actions
    info = log.history(1)[0]
    assert (info.read_version, info.is_blind_append, info.data_change) == (1, False, None)
    assert info.isolation_level == "Serializable"
    with pytest.raises(ConcurrentWriteException):
        slow.commit_large(iter([add("c")]), "RESTORE")
    assert live_paths(log) == ["b"]


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
