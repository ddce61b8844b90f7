"""Clients of Spark Connect for the benchmark: `python -m bench.connect_main '{"url": ...}'`.

It has nothing of this package: what it does, it does in the server.  Seconds are printed as JSON.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark.sql import SparkSession


def query(url: str, path: str, rounds: int) -> dict[str, float]:
    """The median of a small query, as `bench.tasks.small_query` has it in a classic session."""
    spark = _session(url)
    text = f"SELECT count(*) AS n, sum(id % 7) AS s FROM delta.`{path}`"
    times = []
    for _ in range(2 * rounds):
        start = time.perf_counter()
        spark.sql(text).collect()
        times.append(time.perf_counter() - start)
    return {"seconds": statistics.median(times[rounds:])}


def appends(url: str, folder: str, clients: int, sleep: int) -> dict[str, float]:
    """Each client appends once to a table of its own, while a job of one more client sleeps."""
    sessions = [_session(url) for _ in range(clients)]
    sleeper = _session(url)

    def append(number: int) -> float:
        rows = sessions[number].range(100)
        rows.write.format("delta").mode("append").save(f"{folder}/client {number}")
        return time.perf_counter()

    def sleep_in_a_job() -> float:
        call = f"java_method('java.lang.Thread', 'sleep', id * 0 + {1000 * sleep}L)"
        sleeper.range(1).selectExpr(call).collect()
        return time.perf_counter()

    with ThreadPoolExecutor(clients + 1) as threads:
        list(threads.map(append, range(clients)))  # the tables, and code that was never run
        start = time.perf_counter()
        asleep = threads.submit(sleep_in_a_job)
        time.sleep(1)  # the job has begun
        begun = time.perf_counter()
        ended = list(threads.map(append, range(clients)))
        return {"seconds": max(ended) - begun, "slept": asleep.result() - start}


def _session(url: str) -> Any:
    return SparkSession.builder.remote(url).create()


def main() -> None:
    given = json.loads(sys.argv[1])
    found = {"query": query, "appends": appends}[given.pop("do")](**given)
    print(json.dumps(found), flush=True)
    # PySpark's threads of open sessions could wait for each other at the end of the interpreter.
    os._exit(0)


if __name__ == "__main__":
    main()
