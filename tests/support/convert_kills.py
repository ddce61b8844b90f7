"""Run as a program: conversions in processes that die at a moment of their own, by SIGKILL.

A fork of the driver converts a copy of a table, with connections of its own to the JVM, which
outlives it.  Moments are a time since the start, or the Nth file that is opened, linked, made or
removed in the table or beside it.  One line of JSON for each copy says whether its process died.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Timer
from typing import Any

from pyspark.sql import SparkSession

from pyspark_delta import DeltaTable, enable

_EVENTS = ("open", "os.link", "os.mkdir", "os.remove", "os.rmdir", "os.rename")
_MARKS = ("_delta_log", "pyspark-delta-")


def started() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return enable(spark)


def convert(spark: SparkSession, path: Path) -> None:
    DeltaTable.convertToDelta(spark, f"parquet.`{path}`", "p INT")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def count_events(reached: Callable[[int], None]) -> Callable[[], int]:
    """Tell of each file touched from here on, by its number; the result counts them."""
    seen = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event in _EVENTS and any(mark in str(arguments[0]) for mark in _MARKS):
            seen += 1
            reached(seen)

    sys.addaudithook(hook)
    return lambda: seen


def forked(spark: SparkSession, body: Callable[[], None]) -> bool:
    """Run `body` in a fork; whether it came to its end."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return not os.WIFSIGNALED(status)
    spark.sparkContext._gateway._gateway_client.deque.clear()
    try:
        body()
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def measured(spark: SparkSession, path: Path, notes: Path) -> tuple[float, int]:
    """How long a conversion that nobody kills takes, and how many files it touches."""

    def body() -> None:
        count = count_events(lambda _: None)
        start = time.monotonic()
        convert(spark, path)
        notes.write_text(json.dumps([time.monotonic() - start, count()]))

    assert forked(spark, body)
    seconds, events = json.loads(notes.read_text())
    return seconds, events


def killed(spark: SparkSession, path: Path, *, after: float | None, event: int | None) -> bool:
    """Convert in a process that dies then; whether it was too late."""

    def body() -> None:
        if after is not None:
            Timer(after, die).start()
        else:
            count_events(lambda number: die() if number == event else None)
        convert(spark, path)

    return forked(spark, body)


def main(template: Path, home: Path, times: int, seed: int) -> None:
    chance = random.Random(seed)
    spark = started()
    convert(spark, shutil.copytree(template, home / "warm"))  # classes are loaded now
    seconds, events = measured(spark, shutil.copytree(template, home / "measured"), home / "notes")
    for number in range(times):
        path = shutil.copytree(template, home / f"tä ble {number}%")
        by_time = number % 2 == 0
        at_end = killed(
            spark,
            path,
            after=chance.uniform(0, seconds) if by_time else None,
            event=None if by_time else chance.randint(1, events),
        )
        had_log = (path / "_delta_log" / f"{0:020}.json").exists()
        convert(spark, path)  # whatever was left behind is no hindrance
        print(json.dumps({"path": str(path), "ended": at_end, "had_log": had_log}), flush=True)
    print(json.dumps({"seconds": seconds, "events": events}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
