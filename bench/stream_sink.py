"""Streams into tables: what a batch takes this package, delta-spark and Parquet's own sink.

A batch is one file of a directory.  Queries run in turns, some batches each, and go on from their
checkpoints: the first batch after a start is not counted, for anybody.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.drivers import DELTA_SPARK, Driver
from bench.measure import OURS, Bar, Result, check_equal
from bench.spark import PARQUET, Bench

ROWS_OF_A_BATCH = 1000
_TURNS = 4


def stream_sink(bench: Bench) -> Iterator[Result]:
    batches = bench.sizes.stream_batches
    sources = _Sources(bench, batches)
    tables = bench.own_tables("streamed")
    warm = {peer: _Query(*table, "warm") for peer, table in bench.own_tables("warm").items()}
    for query in warm.values():
        query.run(sources.linked(query.source, 0, 10 * bench.sizes.warm_up))
    queries = {peer: _Query(*table, "streamed") for peer, table in tables.items()}
    times: dict[str, list[float]] = {peer: [] for peer in queries}
    size = max(batches // _TURNS, 2)
    for turn in range(_TURNS):
        names = list(queries)
        first = turn % len(names)
        for peer in names[first:] + names[:first]:
            query = queries[peer]
            sources.linked(query.source, turn * size, size)
            times[peer] += query.run(query.source)[1:]
    check_equal(
        "the stream",
        {
            peer: driver.run("digest", path=path, format=kind).answer
            for peer, (driver, path, kind) in tables.items()
        },
    )
    name = f"stream {_TURNS * size} batches of {ROWS_OF_A_BATCH:,} rows"
    yield Result(
        workload=f"{name}: mean of a batch",
        unit="s",
        values={peer: statistics.fmean(each) for peer, each in times.items()},
        bars=[Bar(peer=DELTA_SPARK, at_most=0.7)],
        samples=times,
    )
    yield Result(
        workload=f"{name}: p50 of a batch",
        unit="s",
        values={peer: statistics.median(each) for peer, each in times.items()},
        bars=[Bar(peer=PARQUET, at_most=1.3)],
        samples=times,
    )


def long_stream(bench: Bench) -> Iterator[Result]:
    """The last batches of many beside the first ones, once code is compiled."""
    many = bench.sizes.long_stream_batches
    sources = _Sources(bench, many)
    query = _Query(bench.ours, bench.table("long stream"), "delta", "long")
    times = query.run(sources.linked(query.source, 0, many))[1:]
    part = max(len(times) // 5, 1)
    early, late = times[part : 2 * part], times[-part:]
    yield Result(
        workload=f"stream {many:,} batches: the last fifth",
        unit="s",
        values={OURS: statistics.median(late), "own second fifth": statistics.median(early)},
        bars=[Bar(peer="own second fifth", at_most=1.2)],
        samples={OURS: times},
    )


class _Query:
    """A query with its checkpoint and a directory that it reads; run again, it goes on."""

    def __init__(self, driver: Driver, path: str, kind: str, name: str) -> None:
        self._driver, self._path, self._kind = driver, path, kind
        self._checkpoint = f"{path} checkpoint of {name}"
        self.source = Path(f"{path} source of {name}")

    def run(self, source: Path) -> list[float]:
        """Seconds of each batch."""
        done = self._driver.run(
            "stream",
            source=str(source),
            path=self._path,
            format=self._kind,
            checkpoint=self._checkpoint,
        )
        assert isinstance(done.answer, list)
        return done.answer


class _Sources:
    """Files of one batch each, made once and linked into the directories of all queries."""

    def __init__(self, bench: Bench, count: int) -> None:
        made = bench.root / "batches"
        bench.ours.run(
            "write", path=str(made), format="parquet", count=count * ROWS_OF_A_BATCH, tasks=count
        )
        self._files = sorted(made.glob("*.parquet"))

    def linked(self, source: Path, start: int, count: int) -> Path:
        """The directory, with so many more files in it."""
        source.mkdir(exist_ok=True)
        for file in self._files[start : start + max(count, 2)]:
            (source / file.name).hardlink_to(file)
        return source


WORKLOADS: dict[str, Callable[[Bench], Iterator[Result]]] = {
    "stream-sink": stream_sink,
    "long-stream": long_stream,
}
