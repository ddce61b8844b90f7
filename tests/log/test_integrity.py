"""A log that lost lines: a version checksum tells, and the damaged commit is named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyspark_delta.errors import CorruptLogError
from pyspark_delta.kernel.log.checksum import parse_checksum, read_checksum, write_checksum
from pyspark_delta.kernel.log.integrity import INTEGRITY
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.log.table_log import TableLog
from pyspark_delta.kernel.protocol.actions import DomainMetadata, Protocol, SetTransaction
from pyspark_delta.kernel.protocol.paths import checksum_path, commit_path
from pyspark_delta.kernel.storage.memory import MemoryStore
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from tests.support.hooks import InlineRunner
from tests.support.log_builder import add, metadata

TABLE = "tä ble 100%"
VERSIONS = 4


@pytest.fixture
def store() -> MemoryStore:
    """A table of versions 0 to 4, each with its checksum; every version adds two files."""
    store = MemoryStore(None, TABLE)
    grow(log_of(store), VERSIONS)
    assert all(read_checksum(store, version) for version in range(VERSIONS + 1))
    return store


def log_of(store: MemoryStore, **options: Any) -> DeltaLog:
    return DeltaLog(store, hooks=InlineRunner(), **options)


def grow(log: DeltaLog, times: int) -> None:
    txn = log.start_transaction()
    if txn.snapshot is None:
        txn.update_metadata(metadata())
        features = ("domainMetadata",)
        txn.update_protocol(
            Protocol(min_reader_version=1, min_writer_version=7, writer_features=features)
        )
        txn.commit([], "CREATE TABLE")
    for _ in range(times):
        txn = log.start_transaction()
        number = txn.read_version + 1
        txn.commit([add(f"a {number}"), add(f"b {number}")], "WRITE")


def cut(store: MemoryStore, version: int, lines: int) -> bytes:
    """Leave the first lines of a commit only; what it held before."""
    whole = store.read(commit_path(version))
    kept = whole.splitlines(keepends=True)[:lines]
    store.overwrite(commit_path(version), b"".join(kept))
    return whole


def failure(snapshot: Snapshot) -> str:
    for _ in range(2):  # and again
        with pytest.raises(CorruptLogError) as caught:
            snapshot.files  # noqa: B018
        assert caught.value.condition == INTEGRITY
    return str(caught.value)


@pytest.mark.parametrize("version", [1, 3, VERSIONS])
@pytest.mark.parametrize("lines", [0, 2], ids=["emptied", "cut at a line end"])
def test_a_damaged_commit_is_named(store: MemoryStore, version: int, lines: int) -> None:
    whole = cut(store, version, lines)
    lost = 2 if lines == 0 else 1
    text = failure(log_of(store).snapshot)
    assert f"at version {VERSIONS}: " in text
    assert f"numFiles: {2 * VERSIONS} in the checksum, {2 * VERSIONS - lost} in the log" in text
    assert "tableSizeBytes" in text
    assert f"{commit_path(version)} is damaged" in text
    assert "checksum.mismatch.fatal" in text
    assert log_of(store).snapshot_at(version - 1).num_files == 2 * (version - 1)
    store.overwrite(commit_path(version), whole)
    assert log_of(store).snapshot.num_files == 2 * VERSIONS


def test_a_snapshot_reads_a_commit_that_was_restored(store: MemoryStore) -> None:
    whole = cut(store, 2, 1)
    snapshot = log_of(store).snapshot
    failure(snapshot)
    store.overwrite(commit_path(2), whole)
    assert snapshot.num_files == 2 * VERSIONS


def test_the_check_can_be_turned_off(store: MemoryStore) -> None:
    cut(store, VERSIONS, 0)
    log = log_of(store, verify_checksums=False)
    assert log.snapshot.num_files == 2 * (VERSIONS - 1)
    assert log.snapshot_at(VERSIONS).num_files == 2 * (VERSIONS - 1)


def test_a_damaged_commit_is_named_behind_a_checkpoint(store: MemoryStore) -> None:
    log_of(store).checkpoint()
    grow(log_of(store), 3)
    cut(store, 6, 0)
    assert f"{commit_path(6)} is damaged" in failure(log_of(store).snapshot)


def test_a_refresh_holds_the_commits_of_others_against_their_checksum(store: MemoryStore) -> None:
    log = log_of(store)
    assert log.snapshot.num_files == 2 * VERSIONS
    grow(log_of(store), 2)
    cut(store, VERSIONS + 1, 0)
    assert f"{commit_path(VERSIONS + 1)} is damaged" in failure(log.update())


def test_a_commit_on_top_does_not_hide_the_damage(store: MemoryStore) -> None:
    log = log_of(store)
    assert log.snapshot.num_files == 2 * VERSIONS
    grow(log_of(store), 1)
    cut(store, VERSIONS + 1, 1)
    log.update()
    grow(log, 1)  # an append reads no file
    for snapshot in (log.snapshot, log_of(store).snapshot):
        assert f"{commit_path(VERSIONS + 1)} is damaged" in failure(snapshot)


def test_without_a_checksum_between_them_several_commits_are_named(store: MemoryStore) -> None:
    cut(store, 2, 0)
    store.delete(checksum_path(2))
    text = failure(log_of(store).snapshot)
    assert f"one of {commit_path(2)} to {commit_path(3)} is damaged" in text


def test_a_version_without_a_checksum_is_read(store: MemoryStore) -> None:
    cut(store, VERSIONS, 0)
    store.delete(checksum_path(VERSIONS))
    assert log_of(store).snapshot.num_files == 2 * (VERSIONS - 1)


LOST = {
    "a transaction": (SetTransaction(app_id="app", version=7), "setTransactions"),
    "a domain": (DomainMetadata(domain="d", configuration="{}"), "domainMetadata"),
    "the metadata": (metadata(configuration={"delta.appendOnly": "true"}), "metadata"),
}


@pytest.mark.parametrize(("action", "key"), LOST.values(), ids=LOST)
def test_other_lines_that_are_lost_are_noticed_too(
    store: MemoryStore, action: Any, key: str
) -> None:
    log = log_of(store)
    txn = log.start_transaction()
    txn.commit([action], "WRITE")
    cut(store, VERSIONS + 1, 1)
    text = failure(log_of(store).snapshot)
    assert f"{key} differs" in text
    assert f"{commit_path(VERSIONS + 1)} is damaged" in text


GOOD = {
    "no optional field": lambda value: {
        key: value[key]
        for key in (
            *("tableSizeBytes", "numFiles", "numMetadata", "numProtocol"),
            *("metadata", "protocol"),
        )
    },
    "no protocol and no metadata": lambda value: {
        **value, "protocol": None, "metadata": None, "numMetadata": None
    },
    "counts of deleted rows that are stale": lambda value: {
        **value, "numDeletedRecordsOpt": 17, "numDeletionVectorsOpt": 3, "allFiles": []
    },
    "unknown fields": lambda value: {
        **value, "x": 1, "metadata": {**value["metadata"], "new": 1}
    },
    "another order of properties": lambda value: {
        **value, "metadata": dict(reversed(value["metadata"].items()))
    },
}  # fmt: skip


@pytest.mark.parametrize("change", GOOD.values(), ids=GOOD)
def test_a_checksum_of_another_writer_does_not_hide_a_good_table(
    store: MemoryStore, change: Any
) -> None:
    value = change(json.loads(store.read(checksum_path(VERSIONS))))
    store.overwrite(checksum_path(VERSIONS), json.dumps(value).encode())
    assert parse_checksum(store.read(checksum_path(VERSIONS))) is not None
    assert log_of(store).snapshot.num_files == 2 * VERSIONS


def test_transactions_that_expire_are_not_compared(store: MemoryStore) -> None:
    log = log_of(store)
    txn = log.start_transaction()
    kept = {"delta.setTransactionRetentionDuration": "interval 1 days"}
    txn.update_metadata(metadata(configuration=kept))
    txn.commit([SetTransaction(app_id="app", version=7, last_updated=1)], "WRITE")
    path = checksum_path(VERSIONS + 1)
    value = {**json.loads(store.read(path)), "setTransactions": []}
    store.overwrite(path, json.dumps(value).encode())
    assert log_of(store).snapshot.num_files == 2 * VERSIONS


def test_no_checkpoint_is_written_of_a_damaged_version(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    cut(store, 2, 1)
    with pytest.raises(CorruptLogError, match=INTEGRITY):
        log_of(store).checkpoint()
    grow(log_of(store), 10 - VERSIONS)
    assert INTEGRITY in caplog.text
    assert not [f for f in store.list_from("_delta_log/") if ".checkpoint" in f.path]


def test_a_checksum_that_came_late_is_used(store: MemoryStore) -> None:
    late = read_checksum(store, VERSIONS)
    assert late is not None
    store.delete(checksum_path(VERSIONS))
    log = TableLog(store)
    assert log.snapshot.num_files == 2 * VERSIONS
    write_checksum(store, VERSIONS, late)
    assert log.update().num_files == 2 * VERSIONS
    assert TableLog(store).snapshot.num_files == 2 * VERSIONS
