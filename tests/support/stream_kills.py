"""Run as a program: a pipeline of streams in a process that somebody kills.

It starts a session, says so, and waits for a line on standard input.  `go` starts the queries,
`go N` does and dies at the Nth file that is opened, linked or removed in a table; `end N` lets them
run on for N more batches, stops them as a user would, and says which were the last.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.support.spark_workers import answering, small_session

ROWS = 20
"""How many rows a batch has."""

_EVENTS = ("open", "os.link", "os.remove", "os.rename")


def queries(spark: SparkSession, home: Path, hops: int) -> list[StreamingQuery]:
    """Numbers into the first table, and from each table into the next."""
    found = []
    for hop in range(hops):
        if hop == 0:
            reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS)
            data = reader.load().selectExpr("value AS id", "value % 3 AS third")
        else:
            data = spark.readStream.format("delta").load(str(home / table_name(hop - 1)))
        writer = data.writeStream.format("delta").partitionBy("third")
        writer = writer.option("checkpointLocation", str(home / f"checkpoint {hop}"))
        target = home / table_name(hop)
        found.append(writer.start(str(target)))
        end = time.monotonic() + 60
        while not (target / "_delta_log").exists() and time.monotonic() < end:
            time.sleep(0.05)  # a source needs a table with a schema
    return found


def table_name(hop: int) -> str:
    return f"tä ble {hop} 100%"


def die() -> None:
    os.killpg(0, signal.SIGKILL)


def die_at(event: int, home: Path) -> None:
    """Die when so many files of the tables were touched by this process."""
    seen, below = 0, str(home / "tä ble")

    def hook(name: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if name in _EVENTS and str(arguments[0]).startswith(below):
            seen += 1
            if seen == event:
                die()

    sys.addaudithook(hook)


def batch_of(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def wait_until(is_done: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not is_done():
        assert time.monotonic() < end, "the streams do not get on"
        time.sleep(0.05)


def ended(running: list[StreamingQuery], more: int) -> list[str]:
    """Let all queries run on for some batches, and stop them; what any of them failed with."""
    wait_until(lambda: batch_of(running[0]) >= 0 or not running[0].isActive)
    last = batch_of(running[0]) + more
    wait_until(lambda: batch_of(running[0]) >= last or not running[0].isActive)
    for query in running:
        if query is not running[0] and query.isActive:
            query.processAllAvailable()
        query.stop()
    return [str(error) for query in running if (error := query.exception()) is not None]


def main(home: Path, hops: int) -> None:
    say = answering()
    spark = small_session()
    say("ready")
    word, _, number = json.loads(sys.stdin.readline()).partition(" ")
    if word == "go" and number:
        die_at(int(number), home)
    running = queries(spark, home, hops)
    say("running")
    if word == "go":
        for query in running:
            query.awaitTermination()
    else:
        say(ended(running, int(number)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
