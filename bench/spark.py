"""Spark workloads: this package, delta-spark and plain Parquet, in turns on the same Spark.

Parquet is the floor: the same rows, and where it can the very same files, without any log.  Tables
that are only read are made once and read by all.
"""

from __future__ import annotations

import itertools
import statistics
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from deltalake import DeltaTable

from bench.drivers import DELTA_SPARK, ROOT, Driver, drivers
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
    timed,
)
from bench.tables import linked_files, write_log
from pyspark_delta import DeltaLog

PARQUET = "Parquet"
DELTALAKE = "deltalake"
ROWS_OF_A_PLANNED_FILE = 1000
_TPCHGEN = ROOT / ".venv-bench" / "bin" / "tpchgen-cli"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much of everything."""

    bulk_rows: int
    bulk_rounds: int
    lineitem_scale: float
    point_files: int
    commits: int
    appends: int
    vector_rows: int
    planned_files: int
    converted_files: int
    conversions: int
    small_files: int
    stream_batches: int
    long_stream_batches: int
    stream_commits: int
    merge_part: int
    merges: int
    merge_warm_up: int
    feed_versions: int
    vacuumed_partitions: int
    changed_rows: int
    changes: int
    upserts: int
    aged_upserts: int
    aged_queries: int
    rounds: int
    warm_up: int


FULL = Sizes(
    bulk_rows=10_000_000,
    bulk_rounds=5,
    lineitem_scale=0.5,
    point_files=2000,
    commits=30,
    appends=100,
    vector_rows=10_000_000,
    planned_files=300_000,
    converted_files=10_000,
    conversions=3,
    small_files=100_000,
    stream_batches=200,
    long_stream_batches=1000,
    stream_commits=10_000,
    merge_part=1,
    merges=3,
    merge_warm_up=3,
    feed_versions=1000,
    vacuumed_partitions=15_000,
    changed_rows=10_000_000,
    changes=3,
    upserts=50,
    aged_upserts=25,
    aged_queries=25,
    rounds=9,
    warm_up=3,
)
QUICK = Sizes(
    bulk_rows=100_000,
    bulk_rounds=1,
    lineitem_scale=0.02,
    point_files=20,
    commits=3,
    appends=11,
    vector_rows=100_000,
    planned_files=5000,
    converted_files=20,
    conversions=1,
    small_files=50,
    stream_batches=8,
    long_stream_batches=10,
    stream_commits=30,
    merge_part=20,
    merges=1,
    merge_warm_up=0,
    feed_versions=12,
    vacuumed_partitions=40,
    changed_rows=100_000,
    changes=1,
    upserts=3,
    aged_upserts=1,
    aged_queries=1,
    rounds=1,
    warm_up=0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What a workload works with."""

    ours: Driver
    delta_spark: Driver
    root: Path
    sizes: Sizes
    conf: Mapping[str, str]

    def table(self, name: str) -> str:
        return str(self.root / name)

    def delta_works(self, task: str, path: str, **arguments: object) -> dict[str, Work]:
        """The same task on the same Delta table for both implementations."""
        return {
            OURS: lambda: self.ours.run(task, path=path, format="delta", **arguments),
            DELTA_SPARK: lambda: self.delta_spark.run(task, path=path, format="delta", **arguments),
        }

    def all_works(self, task: str, path: str, **arguments: object) -> dict[str, Work]:
        """That, and plain Parquet on the table's files."""
        return {
            **self.delta_works(task, path, **arguments),
            PARQUET: lambda: self.ours.run(task, path=path, format="parquet", **arguments),
        }

    def own_tables(self, name: str) -> dict[str, tuple[Driver, str, str]]:
        """A table for each who writes: who does it, where, and in which format."""
        return {
            OURS: (self.ours, self.table(f"{name} {OURS}"), "delta"),
            DELTA_SPARK: (self.delta_spark, self.table(f"{name} {DELTA_SPARK}"), "delta"),
            PARQUET: (self.ours, self.table(f"{name} {PARQUET}"), "parquet"),
        }


def bulk_write(bench: Bench) -> Iterator[Result]:
    yield _bulk_write(bench, "", None)


def partitioned_write(bench: Bench) -> Iterator[Result]:
    yield _bulk_write(bench, ", partitioned by 20 values", ["bucket"])


def _bulk_write(bench: Bench, how: str, partition_by: list[str] | None) -> Result:
    count = bench.sizes.bulk_rows
    name = f"write {count:,} rows of 7 columns{how}"
    tables = bench.own_tables(f"bulk{how}")

    def work(driver: Driver, path: str, kind: str) -> Work:
        return lambda: driver.run(
            "write", path=path, format=kind, count=count, partition_by=partition_by
        )

    works = {peer: work(*table) for peer, table in tables.items()}
    times = in_turns(name, works, rounds=bench.sizes.bulk_rounds, warm_up=1)
    check_equal(name, _digests(tables))
    return median_result(
        name, times, [Bar(peer=PARQUET, at_most=1.15), Bar(peer=DELTA_SPARK, at_most=0.75)]
    )


def _digests(tables: dict[str, tuple[Driver, str, str]]) -> dict[str, object]:
    return {
        peer: driver.run("digest", path=path, format=kind).answer
        for peer, (driver, path, kind) in tables.items()
    }


def scans(bench: Bench) -> Iterator[Result]:
    generated = bench.root / "tpch"
    scale = str(bench.sizes.lineitem_scale)
    subprocess.run(
        [_TPCHGEN, "parquet", "-s", scale, "--tables=lineitem", "--output-dir", generated],
        check=True,
        capture_output=True,
    )
    path = bench.table("lineitem")
    bench.ours.run("copy", source=str(generated / "lineitem.parquet"), path=path, tasks=4)
    works = bench.all_works("digest", path)
    answers = {peer: work().answer for peer, work in works.items()}
    check_equal("lineitem", answers)
    rows = int(answers[OURS][0])  # type: ignore[index]
    bars = [Bar(peer=PARQUET, at_most=1.1)]
    sizes = bench.sizes
    for name, works in (
        ("scan 16 columns", bench.all_works("scan", path)),
        (
            "scan 4 columns",
            bench.all_works(
                "totals",
                path,
                columns=["l_quantity", "l_extendedprice", "l_discount", "l_tax"],
            ),
        ),
    ):
        whole = f"{name} of {rows:,} rows (lineitem)"
        times = in_turns(whole, works, rounds=sizes.rounds, warm_up=sizes.warm_up)
        yield median_result(whole, times, bars)


def point_filter(bench: Bench) -> Iterator[Result]:
    sizes = bench.sizes
    files = sizes.point_files
    rows = files * 1000
    path = bench.table("sorted")
    bench.ours.run("write", path=path, format="delta", count=rows, tasks=files)
    name = f"find one key in {files:,} files sorted by it"
    keys = {peer: itertools.count(rows // 3, 1001) for peer in (OURS, DELTA_SPARK, PARQUET)}

    def work(driver: Driver, peer: str, kind: str) -> Work:
        def run() -> Timed:
            done = driver.run("find", path=path, format=kind, key=next(keys[peer]))
            found, opened = done.answer  # type: ignore[misc]
            if kind == "delta" and opened != 1:
                raise AssertionError(f"{peer} opened {opened} files for one key.")
            return Timed(done.seconds, found)

        return run

    works = {
        OURS: work(bench.ours, OURS, "delta"),
        DELTA_SPARK: work(bench.delta_spark, DELTA_SPARK, "delta"),
        PARQUET: work(bench.ours, PARQUET, "parquet"),
    }
    times = in_turns(name, works, rounds=sizes.rounds, warm_up=sizes.warm_up)
    note = f"ours and delta-spark open 1 file, Parquet asks all {files:,} footers"
    yield median_result(name, times, [Bar(peer=DELTA_SPARK, at_most=0.5)], note)
    name = f"count the rows of {files:,} files, and the ends of a column"
    times = in_turns(
        name, bench.all_works("extent", path), rounds=sizes.rounds, warm_up=sizes.warm_up
    )
    yield median_result(name, times, [Bar(peer=DELTA_SPARK, at_most=1.0)])


def small_table(bench: Bench) -> Iterator[Result]:
    sizes = bench.sizes
    path = bench.table("small")
    for i in range(sizes.commits):
        bench.delta_spark.run("append", path=path, format="delta", start=i * 1000, count=1000)
    name = f"load and sum a table of {sizes.commits} commits"

    def peer() -> Timed:
        def work() -> list[int]:
            found = DeltaTable(path).to_pyarrow_table(columns=["id"])
            return [pc.sum(found.column("id")).as_py()]

        return timed(work)

    works = {**bench.delta_works("totals", path, columns=["id"]), DELTALAKE: peer}
    times = in_turns(name, works, rounds=2 * sizes.rounds, warm_up=2 * sizes.warm_up)
    yield median_result(name, times, [Bar(peer=DELTA_SPARK, at_most=0.4)])


def small_appends(bench: Bench) -> Iterator[Result]:
    sizes = bench.sizes
    count = 1000

    def work(driver: Driver, path: str, kind: str) -> Work:
        starts = itertools.count(0, count)
        return lambda: driver.run("append", path=path, format=kind, start=next(starts), count=count)

    warm = {peer: work(*table) for peer, table in bench.own_tables("warm").items()}
    in_turns("warm up appends", warm, rounds=1 + 5 * sizes.warm_up)
    tables = bench.own_tables("appended")
    works = {peer: work(*table) for peer, table in tables.items()}
    name = f"append {count:,} rows, {sizes.appends} commits"
    times = in_turns(name, works, rounds=sizes.appends)
    check_equal(name, _digests(tables))
    medians = {peer: statistics.median(each) for peer, each in times.items()}
    yield Result(
        workload=f"{name}: mean",
        unit="s",
        values={peer: statistics.fmean(each) for peer, each in times.items()},
        bars=[Bar(peer=DELTA_SPARK, at_most=0.7)],
        samples=times,
    )
    yield Result(
        workload=f"{name}: p50",
        unit="s",
        values=medians,
        bars=[Bar(peer=PARQUET, at_most=1.2)],
        samples=times,
    )
    yield Result(
        workload=f"{name}: slowest",
        unit="s",
        values={**{peer: max(each) for peer, each in times.items()}, "own p50": medians[OURS]},
        bars=[Bar(peer="own p50", at_most=2.0)],
        note="p99 " + ", ".join(f"{peer} {_p99(each):.3f}" for peer, each in times.items()),
        samples=times,
    )


def _p99(times: list[float]) -> float:
    return sorted(times)[int(0.99 * (len(times) - 1))]


def deletion_vectors(bench: Bench) -> Iterator[Result]:
    sizes = bench.sizes
    files, rows = 20, sizes.vector_rows
    for percent in (10, 100):
        path = bench.table(f"vectors {percent}%")
        bench.delta_spark.run(
            "write",
            path=path,
            format="delta",
            count=rows,
            tasks=files,
            options={"delta.enableDeletionVectors": "true"},
        )
        condition = f"id % 100 = 7 AND id < {rows * percent // 100}"
        bench.delta_spark.run("delete", path=path, condition=condition)
        vectors = DeltaLog.for_table(path).snapshot.files_with(["deletionVector"])
        made = len(vectors) - vectors.column("deletionVector").null_count
        assert made == files * percent // 100, f"{made} of {len(vectors)} files have vectors"
        name = f"sum {rows:,} rows with deletion vectors on {percent}% of {files} files"
        works = bench.delta_works("totals", path, columns=["id", "amount"])
        times = in_turns(name, works, rounds=sizes.rounds, warm_up=sizes.warm_up)
        yield median_result(name, times, [Bar(peer=DELTA_SPARK, at_most=1.0)])


def planning(bench: Bench) -> Iterator[Result]:
    """In drivers of their own, because what they hold is measured too."""
    files = bench.sizes.planned_files
    table = write_log(bench.root / "planned", files, stats=True)
    DeltaTable(str(table)).create_checkpoint()
    tiny = bench.table("tiny")
    bench.delta_spark.run("append", path=tiny, format="delta", start=0, count=100)
    with drivers(bench.root / "planning", bench.conf) as (ours, delta_spark):
        fresh = {OURS: ours, DELTA_SPARK: delta_spark}
        for driver in fresh.values():
            for _ in range(3):
                driver.run("totals", path=tiny, format="delta", columns=["id"])
        before = {peer: held(driver) for peer, driver in fresh.items()}
        keys = {peer: itertools.count(files // 3 * ROWS_OF_A_PLANNED_FILE, 1001) for peer in fresh}

        def work(peer: str, is_cold: bool) -> Work:
            return lambda: _plan(fresh[peer], str(table), next(keys[peer]), is_cold)

        cold = {peer: work(peer, True) for peer in fresh}
        warm = {peer: work(peer, False) for peer in fresh}
        in_turns("plan once", cold, rounds=1)
        in_turns("plan again", warm, rounds=2)
        after = {peer: held(driver) for peer, driver in fresh.items()}
        bars = [Bar(peer=DELTA_SPARK, at_most=0.3)]
        name = f"plan a filter over {files:,} files"
        rounds = bench.sizes.rounds
        times = in_turns(f"{name}, cold", cold, rounds=max(rounds // 2, 1))
        yield median_result(f"{name}, cold", times, bars)
        times = in_turns(f"{name}, warm", warm, rounds=rounds)
        yield median_result(f"{name}, warm", times, bars)
    yield Result(
        workload=f"driver memory with that table of {files:,} files",
        unit="MB",
        values={peer: sum(held.values()) / 1e6 for peer, held in after.items()},
        bars=[Bar(peer=DELTA_SPARK, at_most=0.5)],
        note="peak; " + "; ".join(said(peer, before[peer], after[peer]) for peer in fresh),
    )


def conversion(bench: Bench) -> Iterator[Result]:
    sizes = bench.sizes
    files = sizes.converted_files
    source = bench.root / "wide"
    bench.ours.run("wide_file", path=str(source), count=1000)
    (file,) = source.glob("*.parquet")
    half, whole = (
        str(linked_files(bench.root / f"{n} files", file, n)) for n in (files // 2, files)
    )
    works = {OURS: bench.ours, DELTA_SPARK: bench.delta_spark}

    def work(driver: Driver, path: str, stats: bool) -> Work:
        return lambda: driver.run("convert", path=path, stats=stats)

    seconds: dict[str, float] = {}
    for how, stats, at_most in (("with", True, 0.4), ("without", False, 0.6)):
        name = f"convert {files:,} files of 12 columns {how} statistics"
        times = in_turns(
            name,
            {peer: work(driver, whole, stats) for peer, driver in works.items()},
            rounds=sizes.conversions,
            warm_up=min(sizes.warm_up, 1),
        )
        result = median_result(name, times, [Bar(peer=DELTA_SPARK, at_most=at_most)])
        seconds[how] = result.ours
        yield result
    times = in_turns(
        "convert half of the files", {OURS: work(bench.ours, half, True)}, rounds=sizes.conversions
    )
    yield absolute(
        f"convert {files:,} files instead of {files // 2:,}",
        seconds["with"] / statistics.median(times[OURS]),
        "x",
        at_most=2.2,
    )
    yield _conversion_memory(bench)


def _conversion_memory(bench: Bench) -> Result:
    """In drivers of their own, for what they held before would hide it."""
    files = bench.sizes.small_files
    source = bench.root / "small file"
    bench.ours.run("write", path=str(source), format="parquet", count=10, tasks=1)
    (file,) = source.glob("*.parquet")
    path = str(linked_files(bench.root / "small files", file, files))
    tiny = str(linked_files(bench.root / "two files", file, 2))
    grown = {}
    notes = []
    with drivers(bench.root / "converting", bench.conf) as both:
        for driver in both:
            driver.run("convert", path=tiny, stats=True)
            before = held(driver)
            seconds = driver.run("convert", path=path, stats=True).seconds
            after = held(driver)
            grown[driver.peer] = (sum(after.values()) - sum(before.values())) / 1e6
            notes.append(f"{said(driver.peer, before, after)} in {seconds:.1f} s")
    return Result(
        workload=f"driver memory grown by converting {files:,} small files",
        unit="MB",
        values=grown,
        bars=[Bar(at_most=300)],
        note="; ".join(notes),
    )


def _plan(driver: Driver, path: str, key: int, is_cold: bool) -> Timed:
    done = driver.run("plan", path=path, key=key, is_cold=is_cold)
    if done.answer != [1, 1]:
        raise AssertionError(f"{driver.peer} plans {done.answer} tasks and files for one key.")
    return done


def held(driver: Driver) -> dict[str, int]:
    """The most that a driver held: its JVM, and for ours the Python process that does the work."""
    found: Any = driver.run("memory").answer
    processes = ("jvm", "python") if driver.peer == OURS else ("jvm",)
    return {each: found[each]["peak"] for each in processes}


def most_held(bench: Bench, what: str) -> Result:
    """The most that each driver held until now, both having done the same."""
    found = {driver.peer: held(driver) for driver in (bench.ours, bench.delta_spark)}
    return Result(
        workload=f"driver memory after {what}",
        unit="MB",
        values={peer: sum(each.values()) / 1e6 for peer, each in found.items()},
        bars=[Bar(peer=DELTA_SPARK, at_most=1.0)],
        note="; ".join(
            f"{peer} " + ", ".join(f"{process} {size / 1e6:.0f}" for process, size in each.items())
            for peer, each in found.items()
        ),
    )


def said(peer: str, before: Mapping[str, int], after: Mapping[str, int]) -> str:
    grown = ", ".join(
        f"{process} {before[process] / 1e6:.0f} to {after[process] / 1e6:.0f}" for process in after
    )
    return f"{peer} {grown}"


WORKLOADS: dict[str, Callable[[Bench], Iterator[Result]]] = {
    "bulk-write": bulk_write,
    "partitioned-write": partitioned_write,
    "scan": scans,
    "point-filter": point_filter,
    "small-table": small_table,
    "append": small_appends,
    "deletion-vectors": deletion_vectors,
    "planning": planning,
    "convert": conversion,
}
