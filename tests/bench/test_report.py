from __future__ import annotations

import json
import re

from bench.measure import OURS, Bar, Result, absolute
from bench.pages import BEGIN, END, NUMBERS, PAGE, README, block, headlines, pages, results_of
from bench.report import as_json, markdown, table, tree_of_sources

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


def test_the_pages_have_the_numbers_of_the_file_and_no_others() -> None:
    numbers = json.loads(NUMBERS.read_text(encoding="utf-8"))
    for page, text in pages(numbers).items():
        assert page.read_text(encoding="utf-8") == text, "run: python -m bench --pages"
        before, _, rest = text.partition(BEGIN)
        others = before + rest.partition(END)[2]
        assert not re.search(r"\d (ms|s|MB|GB)\b|\d\.\d+x\b", others)


def test_the_numbers_of_the_readme_are_of_one_version_of_the_code_with_samples() -> None:
    results = headlines(json.loads(NUMBERS.read_text(encoding="utf-8")))
    (tree,) = {result.tree for result in results}
    assert re.fullmatch("[0-9a-f]{12}", tree), "measured on a tree with changes, or on none"
    assert all(result.samples.keys() >= result.values.keys() for result in results)


def test_the_pages_tell_missed_bars_and_the_row_where_deltalake_is_faster() -> None:
    numbers = json.loads(NUMBERS.read_text(encoding="utf-8"))
    missed = {each.workload for each in results_of(numbers["results"]) if not each.is_met}
    for page in (README, PAGE):
        rows = [row for row in page.read_text(encoding="utf-8").splitlines() if row[:2] == "| "]
        measured = {row.split(" | ")[0].removeprefix("| "): row for row in rows}
        marked = {name for name, row in measured.items() if "**missed**" in row}
        assert marked == missed & measured.keys()
        assert re.search(
            r"\| \d+ ms \(\d\.\d\dx\) \|  \|", measured["load and sum a table of 30 commits"]
        )


def test_what_is_measured_now_has_its_samples_and_its_tree() -> None:
    written = json.loads(as_json(RESULTS, {"cores": 2, "versions": {"peer": "1"}}))
    assert [each["tree"] for each in written["results"]] == [tree_of_sources()] * 2
    assert all(each["samples"] for each in written["results"])
    lines = block(written, results_of(written["results"])).splitlines()
    assert lines[0] == BEGIN
    assert f"tree {tree_of_sources()} of" in lines[1]
    assert lines[-3:-1] == [
        "| write | 500 ms | 2.00 s (0.25x) |  | 400 ms (1.25x) "
        "| <= 1.2x Parquet **missed**, <= 0.75x delta-spark | 3 | 1.5 |",
        f"| commit | 3.25 ms |  |  |  | <= 5 ms | 1 | {RESULTS[1].load:.1f} |",
    ]
    written["results"][0]["tree"] = "another"
    lines = block(written, results_of(written["results"])).splitlines()
    assert "last column" in lines[1]
    assert lines[-3].endswith(" | another |")


def test_numbers_with_a_tree_have_samples_in_the_file() -> None:
    numbers = json.loads(NUMBERS.read_text(encoding="utf-8"))
    assert all(each["samples"] for each in numbers["results"] if each.get("tree"))
