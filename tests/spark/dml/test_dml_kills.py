"""DELETE, UPDATE and MERGE that are killed leave whole versions, and can be run again.

A process runs commands until it and its JVM are killed: after a time, or at a file of the table.
The next one begins with the command that was hit.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from threading import Timer

import pytest
from pyspark.sql import SparkSession

from pyspark_delta import DeltaLog, disable, enable
from tests.support.dml_races import USER_METADATA, Replay, new_rows, run_task, task_of
from tests.support.dml_worker import DmlWorker
from tests.support.spark_tables import conf
from tests.support.spark_workers import SECONDS

FEED = {"delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}
MANY = 500
"""Tasks that a process is given; it is dead before it has done them all."""

LONGEST = 8.0
EVENTS = 40


@pytest.fixture
def enabled(spark: SparkSession) -> Iterator[SparkSession]:
    enable(spark)
    yield spark
    disable(spark)


def kill_tasks(
    worker: DmlWorker, path: Path, first: int, *, event: int | None, seconds: float
) -> tuple[int, dict[int, int | None]]:
    """Let a process run tasks from a seed on, and kill it.

    Given back is the next seed, that of the task which was hit if one was, and the versions that
    tasks made, as far as somebody was told.
    """
    done: dict[int, int | None] = {}
    assert worker.told() == "ready"
    worker.order(path, range(first, first + MANY), event)
    timer = Timer(seconds, worker.kill)
    timer.start()
    try:
        for word, seed, version in worker.outcomes():
            assert word in ("begin", "done"), version
            first = seed + (word == "done")
            if word == "done":
                done[seed] = version
    finally:
        timer.cancel()
        timer.join()
    return first, done


def check_told(path: Path, done: dict[int, int | None]) -> None:
    """Whatever somebody was told is committed is."""
    log = DeltaLog.for_table(path)
    names = {info.version: info.user_metadata for info in log.history()}
    assert all(names[version] == str(seed) for seed, version in done.items() if version is not None)


@pytest.mark.parametrize(
    ("properties", "partition_by", "kills", "seed"),
    [
        ({**VECTORS, **FEED}, (), 2, 20261),
        pytest.param({**VECTORS, **FEED}, ("p",), 25, 20262, marks=pytest.mark.slow),
        pytest.param(FEED, (), 25, 20263, marks=pytest.mark.slow),
    ],
    ids=["vectors", "vectors, partitions", "copies"],
)
def test_killed_commands_leave_whole_versions(
    enabled: SparkSession,
    table_path: Path,
    properties: dict[str, str],
    partition_by: tuple[str, ...],
    kills: int,
    seed: int,
) -> None:
    chance = random.Random(seed)
    rows = new_rows(seed)
    replay = Replay.of_new_table(enabled, table_path, rows, properties, partition_by, files=2)
    task = seed * 10_000
    workers = [DmlWorker()]
    try:
        for number in range(kills):
            if number + 1 < kills:
                workers.append(DmlWorker())  # it starts while the other works
            worker, at_file = workers.pop(0), number % 2 == 0
            try:
                task, done = kill_tasks(
                    worker,
                    table_path,
                    task,
                    event=chance.randint(1, EVENTS) if at_file else None,
                    seconds=SECONDS if at_file else chance.uniform(0, LONGEST),
                )
            finally:
                worker.close()
            replay.follow()
            check_told(table_path, done)
    finally:
        for worker in workers:
            worker.close()
    # What was hit last can be run again, by anybody.
    with conf(enabled, **{USER_METADATA.replace(".", "__"): str(task)}):
        run_task(enabled, DeltaLog.for_table(table_path), task_of(task))
    replay.follow()
    replay.check(enabled, has_feed=True, is_tidy=False)
