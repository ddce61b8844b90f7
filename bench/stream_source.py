"""Streams out of tables: a backlog of many commits, triggers with nothing to do, and memory.

The backlog is as cheap as files can be, a link each, so that what counts is the way through the
log and the making of batches.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from deltalake import DeltaTable

from bench.drivers import DELTA_SPARK, Driver, drivers
from bench.measure import (
    OURS,
    Bar,
    Result,
    Timed,
    Work,
    absolute,
    check_equal,
    in_turns,
    median_result,
)
from bench.spark import Bench
from bench.tables import write_backlog

_MOST_IDLE_SECONDS = 0.010


def stream_source(bench: Bench) -> Iterator[Result]:
    commits = bench.sizes.stream_commits
    path = _backlog(bench, commits)
    drivers_by_peer = {OURS: bench.ours, DELTA_SPARK: bench.delta_spark}
    numbers = itertools.count()

    def work(driver: Driver) -> Work:
        return lambda: _drained(bench, driver, path, next(numbers))

    works = {peer: work(driver) for peer, driver in drivers_by_peer.items()}
    check_equal("the stream", {peer: each().answer for peer, each in works.items()})
    name = f"read a backlog of {commits:,} commits as a stream"
    times = in_turns(name, works, rounds=min(bench.sizes.rounds, 3))
    yield median_result(name, times, [Bar(peer=DELTA_SPARK, at_most=0.5)])
    yield _idle(bench, path)
    yield _memory(bench, path, commits)


def _backlog(bench: Bench, commits: int) -> str:
    source = bench.root / "ten rows"
    bench.ours.run("write", path=str(source), format="parquet", count=10, tasks=1)
    (file,) = source.glob("*.parquet")
    path = write_backlog(bench.root / f"{commits} commits", file, commits)
    DeltaTable(str(path)).create_checkpoint()
    return str(path)


def _drained(bench: Bench, driver: Driver, path: str, number: int) -> Timed:
    return driver.run("drain", path=path, checkpoint=_checkpoint(bench.root, number))


def _idle(bench: Bench, path: str) -> Result:
    found = {
        driver.peer: driver.run(
            "idle",
            path=path,
            checkpoint=_checkpoint(bench.root, f"idle {driver.peer}"),
            triggers=50,
        )
        for driver in (bench.ours, bench.delta_spark)
    }
    if found[OURS].answer != 0:
        raise AssertionError(f"idle triggers ran {found[OURS].answer} jobs")
    return Result(
        workload="a trigger of a stream that finds nothing new",
        unit="s",
        values={peer: done.seconds for peer, done in found.items()},
        bars=[Bar(at_most=_MOST_IDLE_SECONDS)],
        note="no Spark job",
    )


def _memory(bench: Bench, path: str, commits: int) -> Result:
    """What ten times the commits add to what the Python process holds, in a driver of its own."""
    tenth = _backlog_of_a_tenth(bench, commits)
    with drivers(bench.root / "streaming", bench.conf) as (ours, _):
        held = []
        for each in (tenth, tenth, path):
            ours.run("drain", path=each, checkpoint=_checkpoint(bench.root, "memory"))
            found = ours.run("memory").answer
            held.append(found["python"]["peak"] / 1e6)  # type: ignore[index]
    return absolute(
        f"Python memory grown by {commits:,} commits after {commits // 10:,}",
        held[2] - held[1],
        "MB",
        at_most=50,
    )


def _backlog_of_a_tenth(bench: Bench, commits: int) -> str:
    (file,) = (bench.root / "ten rows").glob("*.parquet")
    return str(write_backlog(bench.root / "a tenth", file, max(commits // 10, 1)))


def _checkpoint(root: Path, name: object) -> str:
    return str(root / f"checkpoint {name}")


WORKLOADS = {"stream-source": stream_source}
