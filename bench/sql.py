"""What `spark.sql` costs a statement that has nothing to do with Delta.

One process, two sessions: one is enabled, the other is Spark's own, without any hook.  Each
statement goes to both in turns, and what counts is the difference.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.measure import OURS, Bar, Result, absolute
from bench.spark import Bench

_MOST_MS = 2.0
_MOST_MS_ON_PARQUET = 0.2
_MOST_TIMES_PARSED = 1.05
_BARE = "own bare session"
_STATEMENTS = {
    "SELECT 1": "SELECT 1",
    "a long query": "WITH a AS (SELECT id, id % 7 AS k FROM range(100)), "
    "b AS (SELECT k, count(*) AS n FROM a WHERE id > 5 GROUP BY k) "
    + " UNION ALL ".join(
        f"SELECT a.id + {i} AS id, b.n, concat('delta ', a.k) AS shown FROM a JOIN b ON a.k = b.k"
        for i in range(5)
    ),
    "SET": "SET spark.sql.shuffle.partitions",
}
_TABLE = "another_format"
_ON_PARQUET = {
    "DESCRIBE": f"DESCRIBE {_TABLE}",
    "SHOW": f"SHOW TBLPROPERTIES {_TABLE}",
    "ALTER": f"/* of a tool */ ALTER TABLE {_TABLE} SET TBLPROPERTIES ('a' = 'b')",
}


def plain_sql(bench: Bench) -> Iterator[Result]:
    """The added milliseconds of each statement, and the time to parse the shortest."""
    rounds = 40 * bench.sizes.rounds
    for name, text in _STATEMENTS.items():
        yield absolute(
            f"added by spark.sql to {name}",
            _added_ms(bench, text, rounds),
            "ms",
            _MOST_MS,
            note="beside a session that is not enabled",
        )
    bench.ours.run("parquet_table", name=_TABLE)
    added = {name: _added_ms(bench, text, rounds) for name, text in _ON_PARQUET.items()}
    yield absolute(
        "added to a statement on a Parquet table",
        max(added.values()),
        "ms",
        _MOST_MS_ON_PARQUET,
        note="the most of " + ", ".join(f"{name} {ms:.2f}" for name, ms in added.items()),
    )
    ours, bare = _parsed_us(bench, 20 * bench.sizes.rounds)
    yield Result(
        workload="parse SELECT 1",
        unit="us",
        values={OURS: ours, _BARE: bare},
        bars=[Bar(peer=_BARE, at_most=_MOST_TIMES_PARSED)],
    )


def _added_ms(bench: Bench, text: str, rounds: int) -> float:
    return bench.ours.run("plain_sql", text=text, rounds=rounds).seconds * 1000


def _parsed_us(bench: Bench, rounds: int) -> tuple[float, float]:
    answer = bench.ours.run("parses", text="SELECT 1", rounds=rounds).answer
    assert isinstance(answer, list)
    ours, bare = (1e6 * each for each in answer)
    return ours, bare


WORKLOADS = {"plain-sql": plain_sql}
