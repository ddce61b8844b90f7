"""DELETE, UPDATE and MERGE beside delta-spark, each time on a fresh copy of the same table.

The MERGE cases are those of delta's own benchmark: how many files and rows of web_returns a source
meets, and how many of its rows are new.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.drivers import DELTA_SPARK, Driver
from bench.measure import (
    OURS,
    Bar,
    Result,
    Work,
    absolute,
    check_equal,
    in_turns,
    median_result,
)
from bench.spark import Bench, most_held

SCALES = {"SF1": (72_000, 100), "SF10": (720_000, 20)}
# The median distance from the middle, times this, is the standard deviation of normal noise.
_OF_NORMAL = 1.4826
_SHARES = {"0.001%": 0.00001, "1%": 0.01, "50%": 0.5}


@dataclass(frozen=True, slots=True)
class Case:
    """What a source meets of the target, as shares of files and of the rows in these."""

    name: str
    clauses: tuple[str, ...]
    files: float
    matched: float
    unmatched: float


def _upsert(files: float, matched: float, unmatched: float) -> Case:
    return Case("upsert", ("update", "insert"), files, matched, unmatched)


CASES = (
    *(Case("insert", ("insert",), 0.05, 0, share) for share in (0.05, 0.5, 1.0)),
    *(Case("2 x insert", ("insert even", "insert"), 0.05, 0, share) for share in (0.05, 0.5, 1.0)),
    Case("delete", ("delete",), 0.05, 0.05, 0),
    _upsert(0.05, 0.1, 0.01),
    _upsert(0.05, 0.0, 0.1),
    _upsert(0.05, 0.01, 0.1),
    _upsert(0.05, 0.1, 0.0),
    _upsert(0.5, 0.01, 0.001),
    _upsert(1.0, 0.01, 0.001),
    _upsert(0.05, 0.5, 0.001),
    _upsert(0.05, 0.99, 0.001),
    _upsert(0.05, 1.0, 0.001),
)


def merges(scale: str, vectors: bool) -> Callable[[Bench], Iterator[Result]]:
    """The sixteen cases on one shape of the target: each is a run of a quarter of an hour."""
    count, files = SCALES[scale]

    def run(bench: Bench) -> Iterator[Result]:
        yield from _merges(bench, scale, count // bench.sizes.merge_part, files, vectors)
        yield most_held(bench, f"the MERGEs {_how(scale, vectors)}")

    return run


def _how(scale: str, vectors: bool) -> str:
    return f"{scale}, {'vectors' if vectors else 'rewriting'}"


def _merges(bench: Bench, scale: str, count: int, files: int, vectors: bool) -> Iterator[Result]:
    how = _how(scale, vectors)
    target = bench.table(f"web_returns {how}")
    bench.delta_spark.run("web_returns", path=target, count=count, files=files, vectors=vectors)
    sums = {OURS: 0.0, DELTA_SPARK: 0.0}
    results = []
    for i, case in enumerate(CASES):
        source = bench.table(f"source {i} {how}")
        shares = {"files": case.files, "matched": case.matched, "unmatched": case.unmatched}
        bench.delta_spark.run("merge_source", target=target, path=source, **shares)
        name = f"MERGE {how}: {case.name} {case.files:g}/{case.matched:g}/{case.unmatched:g}"

        def work(driver: Driver, source: str = source, case: Case = case) -> Work:
            path = bench.table(f"merged {driver.peer} {how}")
            return lambda: driver.run(
                "merge", target=target, source=source, path=path, clauses=list(case.clauses)
            )

        works = {OURS: work(bench.ours), DELTA_SPARK: work(bench.delta_spark)}
        warm_up = bench.sizes.merge_warm_up if i == 0 else 1
        times = in_turns(name, works, rounds=bench.sizes.merges, warm_up=warm_up)
        check_equal(name, _digests(bench, f"merged {{}} {how}"))
        result = median_result(name, times, [Bar(peer=DELTA_SPARK, at_most=1.0)])
        results.append(result)
        for peer in sums:
            sums[peer] += result.values[peer]
    yield from results
    bars = [Bar(peer=DELTA_SPARK, at_most=0.6)]
    yield Result(
        workload=f"MERGE {how}: sum of {len(CASES)} medians", unit="s", values=sums, bars=bars
    )


def changed_rows(bench: Bench) -> Iterator[Result]:
    rows = bench.sizes.changed_rows
    for vectors in (False, True):
        how = "with vectors" if vectors else "by rewriting"
        target = bench.table(f"changed {how}")
        bench.delta_spark.run(
            "write",
            path=target,
            format="delta",
            count=rows,
            tasks=20,
            options={"delta.enableDeletionVectors": str(vectors).lower()},
        )
        for command in ("DELETE", "UPDATE"):
            for share, fraction in _SHARES.items():
                yield from _changed(bench, target, command, share, fraction, how)
    yield most_held(bench, "DELETE and UPDATE")


def _changed(
    bench: Bench, target: str, command: str, share: str, fraction: float, how: str
) -> Iterator[Result]:
    rows = bench.sizes.changed_rows
    # Rows all over the table, as those of a person who wants to be forgotten.
    step = round(1 / fraction)
    condition = f"id % {step} = 1" if step < rows else "id = 1"
    name = f"{command} {share} of {rows:,} rows {how}"

    def work(driver: Driver) -> Work:
        path = bench.table(f"{command} {driver.peer}")
        return lambda: driver.run(
            "change", target=target, path=path, command=command, condition=condition
        )

    works = {OURS: work(bench.ours), DELTA_SPARK: work(bench.delta_spark)}
    times = in_turns(name, works, rounds=bench.sizes.changes, warm_up=1)
    check_equal(name, _digests(bench, f"{command} {{}}"))
    yield median_result(name, times, [Bar(peer=DELTA_SPARK, at_most=0.7)])

    def read(driver: Driver) -> Work:
        path = bench.table(f"{command} {driver.peer}")
        return lambda: driver.run("totals", path=path, format="delta", columns=["id", "amount"])

    reads = {OURS: read(bench.ours), DELTA_SPARK: read(bench.delta_spark)}
    times = in_turns(f"read after {name}", reads, rounds=bench.sizes.changes, warm_up=1)
    yield median_result(f"read after {name}", times, [Bar(peer=DELTA_SPARK, at_most=1.0)])


def small_merges(bench: Bench) -> Iterator[Result]:
    """Five rows into a table of thirty commits; then many such, and what a query takes after.

    Fifty in a row are what the bar asks for.  Two hundred say the same with an eighth of the
    chance: the standard error of a slope falls with the length of the row to the power of 1.5.
    """
    many = bench.sizes.upserts
    # On tables of their own: what a JVM gains in its first runs would pass for a slope, and who is
    # slower has more to gain.
    warm_up = {peer: _upserts(*each) for peer, each in _of_commits(bench, "first").items()}
    in_turns("first small MERGEs", warm_up, rounds=bench.sizes.first_upserts)
    tables = _of_commits(bench, "upserts")
    works = {peer: _upserts(*each) for peer, each in tables.items()}
    times = in_turns(f"{many} small MERGEs", works, rounds=many)
    first = {peer: each[: bench.sizes.first_upserts] for peer, each in times.items()}
    yield median_result(
        f"MERGE 5 rows into a table of {bench.sizes.commits} commits",
        first,
        [Bar(peer=DELTA_SPARK, at_most=0.3)],
    )
    yield from _degradation(many, times)
    reads: dict[str, Work] = {
        peer: _totals(driver, path) for peer, (driver, path, _) in tables.items()
    }
    times = in_turns(
        "query after MERGEs", reads, rounds=bench.sizes.rounds, warm_up=bench.sizes.warm_up
    )
    name = f"query after {many} MERGEs"
    yield median_result(name, times, [Bar(peer=DELTA_SPARK, at_most=1.0)])
    yield most_held(bench, f"{many} small MERGEs")


def _degradation(many: int, times: dict[str, list[float]]) -> Iterator[Result]:
    """How much slower each MERGE is than the one before: as time, and as a share of what one takes.

    The bar is on the time, and on a difference: a slope may be nothing or below it, and then a
    ratio says nothing.  The note tells how much of it chance may be.  The share is what LST-Bench
    calls the degradation rate.
    """
    slopes = {peer: _slope(each) for peer, each in times.items()}
    yield Result(
        workload=f"{many} MERGEs in a row: how much slower each is",
        unit="ms",
        values={peer: 1000 * slope for peer, slope in slopes.items()},
        samples=times,
    )
    yield absolute(
        f"{many} MERGEs in a row: ours slower by more than {DELTA_SPARK}'s",
        1000 * (slopes[OURS] - slopes[DELTA_SPARK]),
        "ms",
        at_most=0.0,
        note=f"standard error {1000 * math.hypot(*map(_slope_error, times.values())):.2f} ms",
    )
    yield Result(
        workload=f"{many} MERGEs in a row: how much slower each is, of its own time",
        unit="%",
        values={peer: 100 * slopes[peer] / statistics.median(times[peer]) for peer in times},
    )


def _of_commits(bench: Bench, name: str) -> dict[str, tuple[Driver, str, int]]:
    """A table of so many commits for each peer: its driver, the path, and a key near the end."""
    commits = bench.sizes.commits
    tables = {}
    for driver in (bench.ours, bench.delta_spark):
        path = bench.table(f"{name} {driver.peer}")
        for i in range(commits):
            driver.run("append_pairs", path=path, start=i * 100, count=100)
        tables[driver.peer] = (driver, path, commits * 100 - 2)
    return tables


def _upserts(driver: Driver, path: str, start: int) -> Work:
    starts = itertools.count(start, 3)
    return lambda: driver.run("upsert", path=path, start=next(starts), count=5)


def _totals(driver: Driver, path: str) -> Work:
    return lambda: driver.run("totals", path=path, format="delta", columns=["id", "amount"])


def _slope(times: list[float]) -> float:
    """Seconds by which a run takes longer than the one before.

    The median over all pairs of runs, which a few slow ones do not move.
    """
    pairs = itertools.combinations(enumerate(times), 2)
    return statistics.median([(b - a) / (j - i) for (i, a), (j, b) in pairs] or [0.0])


def _slope_error(times: list[float]) -> float:
    """The standard error of `_slope`, by the median of what the line leaves over."""
    slope = _slope(times)
    left = [each - slope * i for i, each in enumerate(times)]
    middle = statistics.median(left)
    spread = _OF_NORMAL * statistics.median([abs(each - middle) for each in left])
    return spread * math.sqrt(12 / len(times) ** 3)


def _digests(bench: Bench, name: str) -> dict[str, object]:
    return {
        driver.peer: driver.run(
            "digest", path=bench.table(name.format(driver.peer)), format="delta"
        ).answer
        for driver in (bench.ours, bench.delta_spark)
    }


WORKLOADS: dict[str, Callable[[Bench], Iterator[Result]]] = {
    "merge-sf1": merges("SF1", False),
    "merge-sf1-vectors": merges("SF1", True),
    "merge-sf10": merges("SF10", False),
    "merge-sf10-vectors": merges("SF10", True),
    "change": changed_rows,
    "small-merge": small_merges,
}
