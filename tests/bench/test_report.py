from __future__ import annotations

import json

from bench.measure import OURS, Bar, Result, absolute
from bench.report import as_json, markdown, table

RESULTS = [
    Result(
        workload="write",
        unit="s",
        values={OURS: 0.5, "Parquet": 0.4, "delta-spark": 2.0, "own p50": 0.3},
        bars=[Bar(peer="Parquet", at_most=1.2), Bar(peer="delta-spark", at_most=0.75)],
        samples={OURS: [0.4, 0.5, 0.6]},
        load=1.5,
    ),
    absolute("commit", 3.25, "ms", 5, "p99 4"),
]


def test_the_table_marks_the_bar_that_is_missed() -> None:
    lines = [" ".join(line.split()) for line in table(RESULTS).splitlines()[1:]]
    assert lines[0] == "write 500 ms Parquet 400 ms 1.25 ! <= 1.2x Parquet load 1.50"
    assert lines[1] == "delta-spark 2.00 s 0.25 <= 0.75x delta-spark"
    assert lines[2] == "own p50 300 ms 1.67"
    assert lines[3].startswith("commit 3.25 ms <= 5 ms load ")
    assert lines[3].endswith("p99 4")


def test_readme_gets_a_column_for_each_peer() -> None:
    assert markdown(RESULTS).splitlines() == [
        "| workload | ours | Parquet | delta-spark | bar |",
        "|---|--:|--:|--:|---|",
        "| write | 500 ms | 400 ms (1.25x) | 2.00 s (0.25x) "
        "| <= 1.2x Parquet **missed**, <= 0.75x delta-spark |",
        "| commit | 3.25 ms |  |  | <= 5 ms |",
    ]


def test_the_json_has_samples_ratios_and_what_was_met() -> None:
    written = json.loads(as_json(RESULTS, {"cores": 2}))
    assert written["cores"] == 2
    first, second = written["results"]
    assert first["ratios"]["delta-spark"] == 0.25
    assert [bar["is_met"] for bar in first["bars"]] == [False, True]
    assert first["samples"] == {"ours": [0.4, 0.5, 0.6]}
    assert second["values"] == {"ours": 3.25}
