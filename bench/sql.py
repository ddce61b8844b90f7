"""What `spark.sql` costs a statement that has nothing to do with Delta.

One process, two sessions: one is enabled, the other is as PySpark makes it.  Each statement goes to
both in turns, and what counts is the difference.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.measure import Result, absolute
from bench.spark import Bench

_MOST_MS = 2.0
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


def plain_sql(bench: Bench) -> Iterator[Result]:
    """The added milliseconds of each statement."""
    for name, text in _STATEMENTS.items():
        done = bench.ours.run("plain_sql", text=text, rounds=40 * bench.sizes.rounds)
        yield absolute(
            f"added by spark.sql to {name}",
            done.seconds * 1000,
            "ms",
            _MOST_MS,
            note="beside a session that is not enabled",
        )


WORKLOADS = {"plain-sql": plain_sql}
