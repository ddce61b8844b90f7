"""Run as a program: tasks of `dml_races` in a process of its own, which may be killed amid them.

Every line of input is an order, and answered by what became of each task: `["begin", seed]`, then
`["done", seed, version]`, `["lost", seed, error]` or `["failed", seed, error]`, and at last
`["end"]`.  With `"event"` the process and its JVM die by SIGKILL at the Nth file of the table that
is opened, linked, renamed or removed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pyspark_delta.errors import DeltaConcurrentModificationException
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from tests.support.dml_races import USER_METADATA, run_task, task_of
from tests.support.spark_workers import SparkWorker, answering, small_session

_EVENTS = ("open", "os.link", "os.remove", "os.rename")


class DmlWorker(SparkWorker):
    """The process, as a test sees it."""

    def __init__(self) -> None:
        super().__init__(__name__)

    def order(self, path: Path, seeds: Iterable[int], event: int | None = None) -> None:
        """Let it run tasks, and die at some event."""
        self.say({"path": str(path), "seeds": list(seeds), "event": event})

    def outcomes(self) -> Iterator[tuple[str, int, Any]]:
        """What became of each task of an order, until all is done or the process is dead.

        A task that was begun and not ended is the last, as `("begin", seed, None)`.
        """
        begun: int | None = None
        while (told := self.told()) not in (None, ["end"]):
            word, seed, *more = told
            if word != "begin":
                yield word, seed, more[0]
            begun = seed if word == "begin" else None
        if begun is not None:
            yield "begin", begun, None


# What runs in that process.


def run_tasks(
    spark: SparkSession, path: str, seeds: Iterable[int], say: Callable[[object], None]
) -> None:
    log = DeltaLog.for_table(path, fsync=False)
    for seed in seeds:
        say(["begin", seed])
        spark.conf.set(USER_METADATA, str(seed))
        try:
            version = run_task(spark, log, task_of(seed))
        except DeltaConcurrentModificationException as error:
            say(["lost", seed, type(error).__name__])
        except Exception as error:
            say(["failed", seed, str(error)[:3000]])
        else:
            say(["done", seed, version])
    log.wait_for_hooks()


def die_at(event: int, path: str) -> None:
    """Die when so many files of the table were touched by this process."""
    seen = 0

    def hook(name: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if name in _EVENTS and str(arguments[0]).startswith(path):
            seen += 1
            if seen == event:
                os.killpg(0, signal.SIGKILL)

    sys.addaudithook(hook)


def main() -> None:
    say = answering()
    spark = small_session()
    say("ready")
    for line in sys.stdin:
        order = json.loads(line)
        if order["event"] is not None:
            die_at(order["event"], order["path"])
        run_tasks(spark, order["path"], order["seeds"], say)
        say(["end"])


if __name__ == "__main__":
    main()
