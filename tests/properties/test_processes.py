"""Processes and threads that append to one table: nothing lost, nothing twice, no gap."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from threading import Barrier, Thread

import pyarrow as pa
import pytest

from pyspark_delta.kernel.log.checksum import checksum_of, mismatches, read_checksum
from pyspark_delta.kernel.log.segment import list_log
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.machine import system_now_ms
from pyspark_delta.kernel.protocol.actions import AddFile
from pyspark_delta.kernel.storage.local import STAGING_PREFIX, LocalStore
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from tests.support.agreement import agree
from tests.support.processes import run_appenders
from tests.support.tables import append, create_table, table_log

ROWS = pa.schema([("id", pa.string())])


def check_table(path: Path, acked: Mapping[str, int], caplog: pytest.LogCaptureFixture) -> None:
    """Every acknowledged id is there once, where it was said to be; every version is sound."""
    rows = agree(path)
    assert Counter(row["id"] for row in rows) == dict.fromkeys(acked, 1)
    changes = dict(table_log(path).get_changes(0))
    assert list(changes) == list(range(len(acked) + 1))
    found = {
        json.loads(action.stats or "")["minValues"]["id"]: version
        for version, actions in changes.items()
        for action in actions
        if isinstance(action, AddFile)
    }
    assert {name: found[name] for name, version in acked.items() if version >= 0} == {
        name: version for name, version in acked.items() if version >= 0
    }
    check_companions(path)
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


def check_companions(path: Path) -> None:
    """Checksums and checkpoints say what the commits say."""
    store = LocalStore(path)
    listing = list_log(store)
    for checkpoint in listing.checkpoints:
        snapshot = Snapshot.load(store, checkpoint.version, now_ms=system_now_ms)
        assert snapshot.segment.checkpoint == checkpoint
        assert snapshot.num_files == checkpoint.version
    for file in listing.commits:
        checksum = read_checksum(store, file.version)
        if checksum is not None:
            assert checksum.num_files == file.version
    newest = listing.commits[-1].version
    snapshot = Snapshot.load(store, newest, now_ms=system_now_ms)
    checksum = read_checksum(store, newest)
    if checksum is not None:
        actual = checksum_of(
            snapshot.files,
            protocol=snapshot.protocol,
            metadata=snapshot.metadata,
            transactions=snapshot.transactions.values(),
            domains=snapshot.domains.values(),
        )
        assert mismatches(checksum, actual) == []


@pytest.mark.parametrize(
    "count", [25, pytest.param(250, marks=pytest.mark.slow)], ids=["200", "2000"]
)
def test_eight_processes_append_to_one_table(
    table_path: Path, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    # connectors#489: ten writers, seven commits; a local rename had overwritten the others.
    create_table(table_path, ROWS)
    acked = run_appenders(table_path, ["kernel"] * 8, count)
    assert sorted(acked.values()) == list(range(1, 8 * count + 1))
    check_table(table_path, acked, caplog)
    assert list((table_path / "_delta_log").glob(f"{STAGING_PREFIX}*")) == []
    assert read_checksum(LocalStore(table_path), 8 * count) is not None


@pytest.mark.parametrize(
    "count", [15, pytest.param(150, marks=pytest.mark.slow)], ids=["60", "600"]
)
def test_processes_of_ours_and_of_deltalake_append_to_one_table(
    table_path: Path, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    create_table(table_path, ROWS)
    kinds = ["kernel", "deltalake", "kernel", "deltalake"]
    acked = run_appenders(table_path, kinds, count)
    assert len(acked) == 4 * count
    check_table(table_path, acked, caplog)


@pytest.mark.parametrize("is_shared", [True, False], ids=["one log", "a log each"])
def test_threads_append_to_one_table(
    table_path: Path, caplog: pytest.LogCaptureFixture, is_shared: bool
) -> None:
    create_table(table_path, ROWS)
    shared = DeltaLog(LocalStore(table_path, fsync=False))
    logs = [shared] * 4 if is_shared else [table_log(table_path) for _ in range(4)]
    acked: dict[str, int] = {}
    barrier = Barrier(len(logs))

    def run(index: int) -> None:
        barrier.wait()
        for number in range(25):
            name = f"thread{index}-{number}"
            acked[name] = append(logs[index], pa.table({"id": [name]}))

    threads = [Thread(target=run, args=(index,)) for index in range(len(logs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shared.wait_for_hooks(30)
    assert sorted(acked.values()) == list(range(1, 101))
    check_table(table_path, acked, caplog)
