"""Log compactions: fewer files to read, the same version."""

from __future__ import annotations

import json
from pathlib import Path

import deltalake
import pytest

from pyspark_delta.errors import CorruptLogError, FileMissingError
from pyspark_delta.kernel.log.compaction import write_compaction
from pyspark_delta.kernel.protocol.actions import (
    Action,
    CommitInfo,
    DomainMetadata,
    Protocol,
    SetTransaction,
)
from pyspark_delta.kernel.protocol.paths import commit_path, compacted_path
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.storage.memory import MemoryStore
from tests.support.checkpoints import checkpoint, snapshot_at, state_of
from tests.support.faulty import Fault, FaultStore
from tests.support.log_builder import LogBuilder, add, metadata, remove

CDC = '{"cdc":{"path":"c","partitionValues":{},"size":1,"dataChange":false}}'


def lines(store: LogStore, path: str) -> list[dict[str, dict[str, object]]]:
    return [json.loads(line) for line in store.read(path).splitlines()]


def busy_log(store: LogStore) -> LogBuilder:
    domain = DomainMetadata(domain="d", configuration="1", removed=False)
    return (
        LogBuilder(store)
        .create(add("a"), add("b"), SetTransaction(app_id="q", version=1))
        .commit(CommitInfo(operation="WRITE"), add("c"), remove("a"), domain, CDC)
        .commit(remove("b"), add("b", vector="x"), SetTransaction(app_id="q", version=2))
        .commit(remove("c"), DomainMetadata(domain="d", configuration="1", removed=True))
        .commit(add("a", size=9), metadata(configuration={"k": "v"}))
    )


@pytest.mark.parametrize(("start", "end"), [(0, 4), (1, 3), (0, 1), (2, 4)])
def test_a_version_reads_the_same_with_a_compaction(start: int, end: int) -> None:
    store = MemoryStore()
    busy_log(store)
    before = [state_of(store, version) for version in range(5)]
    assert write_compaction(store, start, end) == compacted_path(start, end)
    assert [state_of(store, version) for version in range(5)] == before
    read = [file.info.path for file in snapshot_at(store).segment.replay]
    assert compacted_path(start, end) in read


def test_it_replaces_the_commits_after_a_checkpoint() -> None:
    store = MemoryStore()
    busy_log(store)
    before = state_of(store)["files"]
    checkpoint(store, 0)
    write_compaction(store, 1, 4)
    assert state_of(store)["files"] == before


def test_tombstones_stay_and_what_is_no_state_goes() -> None:
    store = MemoryStore()
    busy_log(store)
    found = lines(store, write_compaction(store, 0, 3))
    kinds = [next(iter(line)) for line in found]
    assert "commitInfo" not in kinds
    assert "cdc" not in kinds
    removed = {str(line["remove"]["path"]) for line in found if "remove" in line}
    assert removed == {"a", "b", "c"}
    (domain,) = [line["domainMetadata"] for line in found if "domainMetadata" in line]
    assert domain["removed"] is True
    (txn,) = [line["txn"] for line in found if "txn" in line]
    assert txn["version"] == 2
    assert kinds.count("protocol") == kinds.count("metaData") == 1


def test_files_and_tombstones_of_a_compaction_change_no_data() -> None:
    store = MemoryStore()
    busy_log(store)
    found = lines(store, write_compaction(store, 0, 4))
    kinds = ("add", "remove")
    changes = [line[kind]["dataChange"] for line in found for kind in kinds if kind in line]
    assert changes == [False] * 4


def test_unknown_fields_survive() -> None:
    store = MemoryStore()
    builder = LogBuilder(store).create()
    builder.commit(
        '{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":1,'
        '"dataChange":true,"later":{"x":[1]}}}'
    )
    found = lines(store, write_compaction(store, 0, 1))
    assert found[0]["add"]["later"] == {"x": [1]}


def test_a_file_spelled_two_ways_is_one_file() -> None:
    store = MemoryStore()
    LogBuilder(store).create(add("a%20b")).commit(remove(f"{store.root_uri}/a%20b"))
    found = lines(store, write_compaction(store, 0, 1))
    assert [next(iter(line)) for line in found if "add" in line or "remove" in line] == ["remove"]


def test_in_one_commit_a_remove_wins_over_an_add_of_the_same_file() -> None:
    store = MemoryStore()
    LogBuilder(store).create().commit(remove("a"), add("a"))
    before = state_of(store)
    write_compaction(store, 0, 1)
    assert state_of(store) == before


def test_one_that_is_there_is_kept() -> None:
    store = MemoryStore()
    busy_log(store)
    store.create(compacted_path(0, 1), b"{}")
    write_compaction(store, 0, 1)
    assert store.read(compacted_path(0, 1)) == b"{}"


def test_a_broken_or_missing_commit_leaves_nothing_behind() -> None:
    store = MemoryStore()
    LogBuilder(store).create().raw(b"{broken")
    with pytest.raises(CorruptLogError) as raised:
        write_compaction(store, 0, 1)
    assert raised.value.condition == "DELTA_MALFORMED_LOG_ENTRY"
    with pytest.raises(FileMissingError):
        write_compaction(store, 0, 2)
    truncated = FaultStore(store, [("read", commit_path(0), Fault.TRUNCATED_READ)])
    LogBuilder(truncated)
    store.overwrite(commit_path(1), b"")
    with pytest.raises(CorruptLogError):
        write_compaction(truncated, 0, 1)
    assert not store.exists(compacted_path(0, 1))


@pytest.mark.parametrize(("start", "end"), [(1, 1), (2, 1), (-1, 1)])
def test_a_compaction_spans_two_versions(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="two versions"):
        write_compaction(MemoryStore(), start, end)


def test_deltalake_reads_the_same_files(table_path: Path) -> None:
    store = LocalStore(table_path, fsync=False)
    builder = LogBuilder(store).create(add("a"), add("b"), protocol=Protocol())
    actions: list[Action] = [add("c"), remove("a")]
    builder.commit(*actions).commit(add("d"))
    write_compaction(store, 0, 2)
    uris = deltalake.DeltaTable(table_path).file_uris()
    assert sorted(uri.rpartition("/")[2] for uri in uris) == ["b", "c", "d"]
