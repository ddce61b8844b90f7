"""Processes with Spark of their own, which a test talks to line by line, and may kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pyspark_delta import enable

SECONDS = 180
"""How long a process may take for anything on a busy machine."""

# A process that lives for seconds has no use for the second compiler.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

_ROOT = Path(__file__).parents[2]
_SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
}


class SparkWorker:
    """A process that runs a module, and its JVM: they start and die together."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=_ROOT,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            bufsize=1,
            start_new_session=True,
        )

    def told(self) -> Any:
        """What it says next; None when it died first."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else None

    def say(self, words: object) -> None:
        """Tell it something."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(words)}\n")

    def kill(self) -> None:
        """End the process and its JVM at once, unless they are dead."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(SECONDS)

    def dies_within(self, seconds: float) -> bool:
        """Whether it is dead, at the latest after so long."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """End it, and let go of its pipes."""
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()


# What runs in such a process.


def session_builder() -> SparkSession.Builder:
    """Settings of a session that starts fast and needs little."""
    builder = SparkSession.builder
    for key, value in _SETTINGS.items():
        builder = builder.config(key, value)
    return builder


def small_session() -> SparkSession:
    """A session that starts fast and needs little."""
    spark = session_builder().getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return enable(spark)


def answering() -> Callable[[object], None]:
    """How to tell the test something; whatever else prints goes to standard error."""
    answers = os.dup(1)
    os.dup2(2, 1)

    def say(words: object) -> None:
        # One write: a process and what it forks share the pipe.
        os.write(answers, f"{json.dumps(words)}\n".encode())

    return say
