"""A writer is killed, again and again: what it was told is committed is there, and all of it once.

The writer commits 0, 1, 2 ... and, when it starts anew, asks the table for the last number.  So
whatever the kill hit, in the end the table holds 0 to some number, each once.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from pyspark_delta.kernel.log.checksum import checksum_of, mismatches, read_checksum
from pyspark_delta.kernel.log.cleanup import run_cleanup
from pyspark_delta.kernel.log.segment import list_log
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.machine import system_now_ms
from pyspark_delta.kernel.protocol.operations import write
from pyspark_delta.kernel.protocol.paths import commit_path
from pyspark_delta.kernel.storage.local import STAGING_PREFIX, LocalStore
from tests.support.agreement import agree, deltalake_paths, live_paths
from tests.support.processes import Mortal, log_only_file
from tests.support.tables import create_table

BEFORE = 500  # files that are there before, so that a checkpoint takes its time
FIRST_BEFORE = 1_000_000
# 200 kills in all; many more where there is time.
KILLS = [100, pytest.param(2_000, marks=pytest.mark.slow)]
QUARTER = [25, pytest.param(500, marks=pytest.mark.slow)]
IDS = pa.schema([("id", pa.int64())])


def kill_many(
    mortal: Mortal, kills: int, check: Callable[[], None], *, longest_seconds: float, early: float
) -> None:
    """Kill writers at random points; a share of them is not waited for to commit first."""
    rng = random.Random(kills)
    for number in range(kills):
        delay = rng.random() * longest_seconds
        mortal.kill_one(number, delay, after_ack=rng.random() >= early)
        if number % 10 == 9:
            check()
    check()


def check_log(path: Path, seen: set[int]) -> Snapshot:
    """The newest version of a table whose log has no gap and shows nothing unfinished.

    `seen` are the versions whose checkpoints need no second look.
    """
    store = LocalStore(path)
    listing = list_log(store)
    versions = [file.version for file in listing.commits]
    assert versions == list(range(versions[0], versions[-1] + 1))
    assert not any(STAGING_PREFIX in info.path for info in store.list_recursive(""))
    for checkpoint in listing.checkpoints:
        if checkpoint.version >= versions[0] and checkpoint.version not in seen:
            seen.add(checkpoint.version)
            snapshot = Snapshot.load(store, checkpoint.version, now_ms=system_now_ms)
            assert snapshot.segment.checkpoint is not None
            assert snapshot.segment.checkpoint.version == checkpoint.version
            check_checksum(snapshot)
    newest = Snapshot.load(store, now_ms=system_now_ms)
    check_checksum(newest)
    return newest


def check_checksum(snapshot: Snapshot) -> None:
    checksum = read_checksum(snapshot.store, snapshot.version)
    if checksum is None:
        return
    actual = checksum_of(
        snapshot.files,
        protocol=snapshot.protocol,
        metadata=snapshot.metadata,
        transactions=snapshot.transactions.values(),
        domains=snapshot.domains.values(),
    )
    assert mismatches(checksum, actual) == []


def numbers_of(snapshot: Snapshot) -> list[int]:
    """The numbers of the commits in a table of `log_only_file`."""
    paths = snapshot.files_with(["path"]).column("path").to_pylist()
    numbers = [int(path.removesuffix(".parquet")) for path in paths]
    return sorted(number for number in numbers if number < FIRST_BEFORE)


def check_numbers(found: list[int], acked: list[int]) -> None:
    """Nothing lost, nothing twice, nothing left out; a killed writer's last may be unheard of."""
    assert found == list(range(len(found)))
    assert acked == sorted(set(acked))
    assert set(acked) <= set(found)


@pytest.mark.parametrize("kills", KILLS)
def test_rows_survive_the_death_of_their_writer(
    table_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, kills: int
) -> None:
    create_table(table_path, IDS, configuration={"delta.checkpointInterval": "3"})
    seen: set[int] = set()

    def check() -> None:
        check_log(table_path, seen)
        check_numbers(sorted(row["id"] for row in agree(table_path)), mortal.acked)

    with Mortal(table_path, "rows", tmp_path / "acks") as mortal:
        kill_many(mortal, kills, check, longest_seconds=0.06, early=0.5)
        assert len(mortal.acked) >= kills // 3
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.mark.parametrize("policy", ["classic", "v2"])
@pytest.mark.parametrize("kind", ["log", "cleaning"])
@pytest.mark.parametrize("kills", QUARTER)
def test_the_log_survives_a_death_amid_checkpoints_and_clean_up(
    table_path: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    kills: int,
    kind: str,
    policy: str,
) -> None:
    # delta-rs#2258, #2290: killed while it wrote a checkpoint, a writer left an unreadable table.
    configuration = {"delta.checkpointInterval": "1", "delta.checkpointPolicy": policy}
    log = create_table(table_path, IDS, configuration=configuration)
    files = [log_only_file(number) for number in range(FIRST_BEFORE, FIRST_BEFORE + BEFORE)]
    log.start_transaction().commit(files, write("Append"))
    seen: set[int] = set()

    def check() -> None:
        snapshot = check_log(table_path, seen)
        assert live_paths(snapshot) == deltalake_paths(DeltaTable(table_path), table_path)
        check_numbers(numbers_of(snapshot), mortal.acked)
        assert snapshot.num_files == BEFORE + len(numbers_of(snapshot))

    with Mortal(table_path, kind, tmp_path / "acks") as mortal:
        kill_many(mortal, kills, check, longest_seconds=0.12, early=0.1)
        assert len(mortal.acked) >= kills // 2
        log.checkpoint()
        latest = log.update()
        later_ms = log.now_ms() + 100 * 86_400_000
        run_cleanup(log.store, latest.protocol, latest.metadata, now_ms=later_ms)
        assert not log.store.exists(commit_path(0))
        check()
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]
