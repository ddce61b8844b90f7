"""OPTIMIZE and Z-order beside delta-spark, each time on a fresh copy of the same table."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.drivers import DELTA_SPARK, Driver
from bench.measure import OURS, Bar, Result, Work, check_equal, in_turns, median_result
from bench.optimize_tasks import COLUMNS
from bench.spark import Bench, most_held

_LEFT = 10
_OBJECTS = 100
_LOOKUPS = 100
# The paper tells of 54 % or more that are skipped, with four columns and 100 objects.
_MOST_OPENED = 46.0


def compaction(bench: Bench) -> Iterator[Result]:
    """Many small files into a few."""
    rows, files = bench.sizes.bulk_rows // 5, bench.sizes.point_files // 2
    target = bench.table("small files")
    bench.delta_spark.run("write", path=target, format="delta", count=rows, tasks=files)
    name = f"OPTIMIZE {files:,} files to {min(_LEFT, files)}"
    works = _works(bench, "compacted", target=target, files=min(_LEFT, files))
    times = in_turns(name, works, rounds=bench.sizes.changes, warm_up=min(bench.sizes.warm_up, 1))
    _check_rows(bench, name, "compacted")
    yield median_result(name, times, [Bar(peer=DELTA_SPARK, at_most=0.8)])
    yield most_held(bench, "OPTIMIZE")


def z_order(bench: Bench) -> Iterator[Result]:
    """The paper's set-up: what ordering by four columns takes, and what it is good for."""
    rows = bench.sizes.bulk_rows // 5
    target = bench.table("even columns")
    bench.delta_spark.run("even_columns", path=target, count=rows, files=20)
    name = f"Z-order {rows:,} rows by {len(COLUMNS)} columns"
    asked = {"target": target, "files": _OBJECTS, "z_order_by": list(COLUMNS)}
    works = _works(bench, "ordered", **asked)
    times = in_turns(name, works, rounds=bench.sizes.changes, warm_up=min(bench.sizes.warm_up, 1))
    _check_rows(bench, name, "ordered")
    yield median_result(name, times, [Bar(peer=DELTA_SPARK, at_most=1.0)])
    shares = {}
    for driver in (bench.ours, bench.delta_spark):
        path = bench.table(f"ordered {driver.peer}")
        answer = driver.run("files_opened", path=path, lookups=_LOOKUPS).answer
        assert isinstance(answer, float)
        shares[driver.peer] = 100 * answer
    yield Result(
        workload="look for a value after Z-order: share of files that are opened",
        unit="%",
        values=shares,
        bars=[Bar(at_most=_MOST_OPENED)],
    )
    yield most_held(bench, "Z-order")


def _works(bench: Bench, name: str, **asked: object) -> dict[str, Work]:
    def work(driver: Driver) -> Work:
        path = bench.table(f"{name} {driver.peer}")
        return lambda: driver.run("optimize", path=path, **asked)

    return {OURS: work(bench.ours), DELTA_SPARK: work(bench.delta_spark)}


def _check_rows(bench: Bench, workload: str, name: str) -> None:
    digests: dict[str, object] = {
        driver.peer: driver.run(
            "digest", path=bench.table(f"{name} {driver.peer}"), format="delta"
        ).answer
        for driver in (bench.ours, bench.delta_spark)
    }
    check_equal(workload, digests)


WORKLOADS: dict[str, Callable[[Bench], Iterator[Result]]] = {
    "optimize": compaction,
    "z-order": z_order,
}
