"""The public way in: tables by path, a cache with a size, transactions and checkpoints."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path

import pytest

from pyspark_delta.errors import StorageError, TableNotFoundError
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.txn import delta_log
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.hooks import shared_runner
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from tests.support.hooks import InlineRunner
from tests.support.transactions import add, live_paths, metadata, new_table


@pytest.fixture(autouse=True)
def _no_tables_left_over() -> None:
    DeltaLog.clear_cache()


def test_a_path_without_a_table_has_a_log_but_no_snapshot(table_path: Path) -> None:
    log = DeltaLog.for_table(table_path)
    assert not log.table_exists
    assert log.start_transaction().read_version == -1
    with pytest.raises(TableNotFoundError) as caught:
        _ = log.snapshot
    assert caught.value.condition == "DELTA_TABLE_NOT_FOUND"
    assert not table_path.exists()


def test_a_table_is_made_and_found_again(table_path: Path) -> None:
    log = DeltaLog.for_table(table_path, fsync=False)
    new_table("part", actions=[add("part=1/a")], log=log)
    assert log.table_exists
    assert shared_runner().flush(30)
    DeltaLog.clear_cache()
    again = DeltaLog.for_table(str(table_path), fsync=False)
    assert again is not log
    assert live_paths(again) == ["part=1/a"]


def test_one_table_is_one_object_however_it_is_spelled(table_path: Path) -> None:
    log = DeltaLog.for_table(table_path)
    assert DeltaLog.for_table(str(table_path)) is log
    assert DeltaLog.for_table(f"{table_path}/") is log
    assert DeltaLog.for_table(log.store.root_uri) is log
    assert DeltaLog.for_table(table_path, fsync=False) is not log
    assert DeltaLog.for_table(table_path.with_name("other")) is not log


def test_other_options_are_another_object_and_are_not_shown() -> None:
    secret = "s3cr3t-value"
    options = {"aws_access_key_id": "id", "aws_secret_access_key": secret, "aws_region": "x"}
    log = DeltaLog.for_table("s3://bucket/a table", options)
    assert DeltaLog.for_table("s3://bucket/a table", dict(options)) is log
    other = {**options, "aws_secret_access_key": "another"}
    assert DeltaLog.for_table("s3://bucket/a table", other) is not log
    assert secret not in repr(log)
    assert secret not in repr(delta_log._CACHE)
    assert secret not in repr(log.start_transaction) + repr(vars(log))


def test_the_cache_forgets_what_was_used_longest_ago(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_log, "CACHE_SIZE", 2)
    first, second, third = (DeltaLog.for_table(tmp_path / f"tä {n} %") for n in range(3))
    assert DeltaLog.for_table(tmp_path / "tä 2 %") is third
    assert DeltaLog.for_table(tmp_path / "tä 1 %") is second
    assert DeltaLog.for_table(tmp_path / "tä 0 %") is not first


def test_an_address_that_cannot_be_used_is_a_typed_error() -> None:
    for address in ("", "gopher://host/table", "s3://"):
        with pytest.raises(StorageError):
            DeltaLog.for_table(address)


def test_a_function_gets_a_transaction_of_its_own(table_path: Path) -> None:
    log = new_table(log=DeltaLog.for_table(table_path, fsync=False))

    def append(transaction: OptimisticTransaction) -> int:
        return transaction.commit([add("a")], "WRITE").version

    assert log.with_new_transaction(append) == 1
    assert live_paths(log) == ["a"]


def test_a_transaction_starts_at_the_newest_version_whoever_made_it(table_path: Path) -> None:
    log = new_table(log=DeltaLog.for_table(table_path, fsync=False))
    assert shared_runner().flush(30)
    DeltaLog.clear_cache()
    other = DeltaLog.for_table(table_path, fsync=False)
    other.start_transaction().commit([add("a")], "WRITE")
    assert log.start_transaction().read_version == 1


def test_a_table_that_was_made_anew_is_seen_as_such(table_path: Path) -> None:
    log = new_table(actions=[add("a")], log=DeltaLog.for_table(table_path, fsync=False))
    assert shared_runner().flush(30)
    for file in (table_path / "_delta_log").iterdir():
        file.unlink()
    assert log.start_transaction().read_version == -1
    new_table(log=log)
    assert log.start_transaction().read_version == 0
    assert live_paths(log) == []


def test_a_checkpoint_can_be_asked_for(table_path: Path) -> None:
    log = new_table(actions=[add("a")], log=DeltaLog.for_table(table_path, fsync=False))
    log.checkpoint()
    log.checkpoint(log.snapshot_at(0))
    found = sorted(p.name for p in (table_path / "_delta_log").glob("*.checkpoint.parquet"))
    assert found == [f"{v:020d}.checkpoint.parquet" for v in (0, 1)]
    DeltaLog.clear_cache()
    fresh = DeltaLog.for_table(table_path)
    assert fresh.snapshot.segment.checkpoint is not None
    assert fresh.snapshot.segment.checkpoint.version == 1


def test_a_table_in_memory_is_a_table() -> None:
    log = new_table(actions=[add("a")], log=DeltaLog.for_table("memory://tests/tä ble 100%25"))
    assert live_paths(log) == ["a"]
    assert repr(log) == "DeltaLog('memory://tests/t%C3%A4%20ble%20100%25')"


def test_what_a_commit_gives_can_be_sent_to_another_process(table_path: Path) -> None:
    log = DeltaLog.for_table(table_path, fsync=False)
    transaction = log.start_transaction()
    transaction.update_metadata(metadata())
    done = transaction.commit([], "CREATE TABLE")
    assert pickle.loads(pickle.dumps(done)) == done
    assert transaction.committed_version == 0


def test_threads_that_share_a_log_lose_and_double_nothing(table_path: Path) -> None:
    log = new_table(log=DeltaLog(LocalStore(table_path, fsync=False), hooks=InlineRunner()))
    errors: list[BaseException] = []

    def append(writer: int) -> None:
        try:
            for number in range(12):
                log.start_transaction().commit([add(f"{writer}-{number}")], "WRITE")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=append, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert log.update().version == 48
    assert len(set(live_paths(log))) == len(live_paths(log)) == 48
