"""A pipeline of streams that is killed again and again holds every row once."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from pyspark_delta import DeltaLog
from tests.support.spark_workers import SparkWorker
from tests.support.stream_kills import ROWS, table_name


class Worker(SparkWorker):
    """A process that runs the pipeline."""

    def __init__(self, home: Path, hops: int) -> None:
        super().__init__("tests.support.stream_kills", str(home), str(hops))


def kill_many_times(home: Path, hops: int, times: int, chance: random.Random) -> None:
    """Half of the kills come after a time, half at a file of a table."""
    following = Worker(home, hops)
    try:
        for number in range(times):
            worker, following = following, Worker(home, hops)
            try:
                assert worker.told() == "ready"
                if number % 2:
                    worker.say(f"go {chance.randint(1, 150)}")
                    worker.dies_within(10)
                else:
                    worker.say("go")
                    time.sleep(chance.uniform(0, 5))
            finally:
                worker.close()
        assert following.told() == "ready"
        following.say("end 3")
        assert following.told() == "running"
        assert following.told() == []
    finally:
        following.close()


@pytest.mark.parametrize(
    ("hops", "times", "seed"),
    [
        (1, 3, 1),
        pytest.param(1, 100, 2, marks=pytest.mark.slow),
        pytest.param(2, 100, 3, marks=pytest.mark.slow),
    ],
)
def test_every_row_arrives_once(tmp_path: Path, hops: int, times: int, seed: int) -> None:
    kill_many_times(tmp_path, hops, times, random.Random(seed))
    last = -1
    for hop in range(hops):
        path = tmp_path / table_name(hop)
        log = DeltaLog.for_table(path)
        numbers = sorted(log.update().to_table(columns=["id"]).column("id").to_pylist())
        assert numbers == list(range(len(numbers)))
        assert len(numbers) % ROWS == 0
        (txn,) = log.snapshot.transactions.values()
        if hop == 0:
            last = len(numbers)
            assert txn.version == last // ROWS - 1
        assert len(numbers) == last
