"""DELETE, UPDATE and MERGE beside delta-spark, each time on a fresh copy of the same table.

The MERGE cases are those of delta's own benchmark: how many files and rows of web_returns a source
meets, and how many of its rows are new.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from bench.drivers import DELTA_SPARK, Driver
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
from bench.spark import Bench, most_held

SCALES = {"SF1": (72_000, 100), "SF10": (720_000, 20)}
# The median distance from the middle, times this, is the standard deviation of normal noise.
_OF_NORMAL = 1.4826
# So much wider than a mean's is the error of a median, where noise is normal.
_OF_MEDIAN = math.sqrt(math.pi / 2)
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
    """Five rows into a table of thirty commits; then many such, and what a query takes after."""
    many = bench.sizes.upserts
    tables = _of_commits(bench, "upserts")
    for driver, path, _ in tables.values():
        driver.run("copy_of_table", source=path, path=f"{path} young")
    works = {peer: _upserts(*each) for peer, each in tables.items()}
    times = in_turns(f"{many} small MERGEs", works, rounds=many)
    # A JVM gets faster for long, and who is slower gains more by it: the later half counts.
    yield median_result(
        f"MERGE 5 rows into a table of {bench.sizes.commits} commits",
        {peer: each[len(each) // 2 :] for peer, each in times.items()},
        [Bar(peer=DELTA_SPARK, at_most=0.3)],
    )
    yield _slope(f"{many} MERGEs in a row: the slope of their times, of a MERGE's own", times)
    yield from _aged_merges(bench, tables)
    yield from _aged_queries(bench, tables)
    yield most_held(bench, f"{many} small MERGEs")


def _aged_merges(bench: Bench, tables: Mapping[str, _Table]) -> Iterator[Result]:
    """How much slower a MERGE is for each one that the table has seen before.

    Times of MERGEs in a row do not tell: they fall as the JVM gets warm, by more than a table can
    make them rise, and most where they are longest.  So a table that has seen many and the same
    one before them are met in turns, each time by a copy that nobody has opened yet.
    """
    many, rounds = bench.sizes.upserts, bench.sizes.aged_upserts
    works: dict[str, Work] = {}
    for peer, (driver, path, start) in tables.items():
        works[f"{peer} young"] = _copy_upserts(driver, f"{path} young", start)
        works[f"{peer} old"] = _copy_upserts(driver, path, start + 3 * many)
    times = in_turns(f"MERGE after {many}", works, rounds=rounds, warm_up=min(rounds - 1, 2))
    yield from _degradation(f"{many} MERGEs in a row", "the next", many, times)


def _aged_queries(bench: Bench, tables: Mapping[str, _Table]) -> Iterator[Result]:
    """What a query takes after many MERGEs, and how much each of them added to it."""
    many, rounds = bench.sizes.upserts, bench.sizes.aged_queries
    works: dict[str, Work] = {}
    for peer, (driver, path, _) in tables.items():
        works[f"{peer} young"] = _totals(driver, f"{path} young")
        works[f"{peer} old"] = _totals(driver, path)
    # Old and young tables hold different rows: those of one age must be equal.
    for age in ("young", "old"):
        check_equal(
            f"query of a table that is {age}",
            {peer: works[f"{peer} {age}"]().answer for peer in tables},
        )
    times = in_turns(
        f"query after {many} MERGEs", _unanswered(works), rounds=rounds, warm_up=bench.sizes.warm_up
    )
    yield median_result(
        f"query after {many} MERGEs",
        {peer: times[f"{peer} old"] for peer in tables},
        [Bar(peer=DELTA_SPARK, at_most=1.0)],
    )
    yield from _degradation(f"{many} MERGEs in a row", "a query", many, times)


def _slope(name: str, times: Mapping[str, list[float]]) -> Result:
    """The median of the slopes between any two in a row, as a share of their median."""
    slopes = {
        peer: statistics.median(
            (each[j] - each[i]) / (j - i) for i, j in itertools.combinations(range(len(each)), 2)
        )
        for peer, each in times.items()
    }
    shares = {peer: 100 * slopes[peer] / statistics.median(each) for peer, each in times.items()}
    told = ", ".join(f"{peer} {1000 * slope:.2f} ms" for peer, slope in slopes.items())
    return Result(workload=name, unit="%", values=shares, samples=times, note=told)


def _degradation(
    name: str, whom: str, many: int, times: Mapping[str, list[float]]
) -> Iterator[Result]:
    """How much slower each of `many` MERGEs made something: its times on tables old and young."""
    peers = (OURS, DELTA_SPARK)
    slower = {
        peer: [
            1000 * (old - young) / many
            for old, young in zip(times[f"{peer} old"], times[f"{peer} young"], strict=True)
        ]
        for peer in peers
    }
    slopes = {peer: statistics.median(each) for peer, each in slower.items()}
    shares = {
        peer: 100 * slope / (1000 * statistics.median(times[f"{peer} young"]))
        for peer, slope in slopes.items()
    }
    slowed = f"{name}: how much slower each makes {whom}"
    yield Result(workload=slowed, unit="ms", values=slopes, samples=times)
    yield Result(workload=f"{slowed}, of its time", unit="%", values=shares)
    # A difference, for a slope may be nothing or below it, and then a ratio says nothing.
    yield absolute(
        f"{name}: {whom} slower by more than {DELTA_SPARK}'s",
        slopes[OURS] - slopes[DELTA_SPARK],
        "ms",
        at_most=0.0,
        note=f"standard error {math.hypot(*map(_median_error, slower.values())):.2f} ms",
    )


_Table = tuple[Driver, str, int]


def _of_commits(bench: Bench, name: str) -> dict[str, _Table]:
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


def _copy_upserts(driver: Driver, path: str, start: int) -> Work:
    """Each time into a new copy of the table, under a name that nothing is remembered of."""
    copies = itertools.count()

    def run() -> Timed:
        copy = f"{path} {next(copies)}"
        driver.run("copy_of_table", source=path, path=copy)
        return driver.run("upsert", path=copy, start=start, count=5)

    return run


def _unanswered(works: Mapping[str, Work]) -> dict[str, Work]:
    """The same works for their times alone."""

    def without_answer(work: Work) -> Work:
        return lambda: Timed(work().seconds)

    return {name: without_answer(work) for name, work in works.items()}


def _totals(driver: Driver, path: str) -> Work:
    return lambda: driver.run("totals", path=path, format="delta", columns=["id", "amount"])


def _median_error(values: list[float]) -> float:
    """The standard error of a median, by the median distance from it."""
    middle = statistics.median(values)
    spread = _OF_NORMAL * statistics.median([abs(each - middle) for each in values])
    return _OF_MEDIAN * spread / math.sqrt(len(values))


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
