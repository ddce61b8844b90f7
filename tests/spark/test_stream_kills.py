"""A pipeline of streams that is killed again and again holds every row once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from pyspark_delta import DeltaLog
from tests.support.stream_kills import ROWS, table_name

ROOT = Path(__file__).parents[2]
SECONDS = 180


class Worker:
    """A process that runs the pipeline, and its JVM: they start and die together."""

    def __init__(self, home: Path, hops: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.stream_kills", str(home), str(hops)],
            cwd=ROOT,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )

    def told(self) -> object:
        """What it says next; None when it died first."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else None

    def say(self, words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{words}\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """End the process and its JVM at once, unless they are dead."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    def dies_within(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


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
                worker.kill()
        assert following.told() == "ready"
        following.say("end 3")
        assert following.told() == "running"
        assert following.told() == []
    finally:
        following.kill()


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
