"""The tables of numbers in README and docs/benchmarks.md, out of docs/benchmarks.json alone.

`python -m bench --pages` writes them; a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.drivers import ROOT
from bench.measure import Bar, Result
from bench.report import amount, limit

README = ROOT / "README.md"
PAGE = ROOT / "docs" / "benchmarks.md"
NUMBERS = ROOT / "docs" / "benchmarks.json"
PEERS = ("delta-spark", "deltalake", "Parquet")
BEGIN = "<!-- numbers: written by `python -m bench --pages` -->"
END = "<!-- /numbers -->"

# What README has: one workload for each thing that users wait for, all of one version of the code.
HEADLINES = (
    "append 1,000 rows, 100 commits: p50",
    "load and sum a table of 30 commits",
    "scan 16 columns of 2,999,671 rows (lineitem)",
    "write 10,000,000 rows of 7 columns",
    "plan a filter over 300,000 files, cold",
    "MERGE 5 rows into a table of 30 commits",
    "open and list 300,000 files from JSON",
    "open and list 200,000 files from a checkpoint with statistics",
    "all files of a checkpoint with typed statistics only, 3,000,000 files",
)

# Single cases of which the table has the sum or the middle one, and figures about figures.
_LEFT_OUT = re.compile(
    r"MERGE SF\d+, \w+: (?!sum)|(read after )?(DELETE|UPDATE) (0\.001|50)%|.* of its time$"
    r"|.*slope of their times"
)


def results_of(listed: Sequence[Mapping[str, Any]]) -> list[Result]:
    """Results as they were measured, from what `report.as_json` wrote."""
    names = ("workload", "unit", "values", "note", "samples", "load", "tree")
    return [
        Result(
            bars=[Bar(at_most=bar["at_most"], peer=bar["peer"]) for bar in each["bars"]],
            **{name: each.get(name, "") for name in names},
        )
        for each in listed
    ]


def headlines(numbers: Mapping[str, Any]) -> list[Result]:
    """The results that README has, in its order."""
    by_name = {each.workload: each for each in results_of(numbers["results"])}
    return [by_name[name] for name in HEADLINES]


def block(numbers: Mapping[str, Any], results: Sequence[Result]) -> str:
    """The part of a page between the two marks: a table of `results`."""
    versions = ", ".join(f"{name} {number}" for name, number in numbers["versions"].items())
    trees = {result.tree for result in results}
    columns = ["workload", "ours", *PEERS, "bar", "samples", "load"]
    lines = [
        BEGIN,
        f"{numbers['cores']} cores, {versions}. {_trees(trees)}",
        "Values are medians unless a row says otherwise. Behind a peer is the ratio of ours to it;",
        "a bar that is missed says so. Most of the load average is the benchmark's own.",
        "",
        f"| {' | '.join(columns)} |{_tree_cell('tree', trees)}",
        f"|---|--:|{'--:|' * len(PEERS)}---|--:|--:|{_tree_cell('---', trees)}",
        *(f"{_row(result)}{_tree_cell(result.tree or 'older', trees)}" for result in results),
        END,
    ]
    return "\n".join(lines)


def with_block(page: str, block: str) -> str:
    """A page with its table written anew."""
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"the page lacks {BEGIN} or {END}")
    return before + block + after


def pages(numbers: Mapping[str, Any]) -> dict[Path, str]:
    """The text that each page with numbers should have."""
    all_results = [
        each for each in results_of(numbers["results"]) if not _LEFT_OUT.match(each.workload)
    ]
    return {
        page: with_block(page.read_text(encoding="utf-8"), block(numbers, results))
        for page, results in ((README, headlines(numbers)), (PAGE, all_results))
    }


def write_pages(numbers: Mapping[str, Any]) -> None:
    for page, text in pages(numbers).items():
        page.write_text(text, encoding="utf-8")


def _trees(trees: Collection[str]) -> str:
    if len(trees) == 1 and "" not in trees:
        return f"All rows are of the tree {next(iter(trees))} of `src`."
    return "The last column is the tree of `src` that a row was measured on."


def _tree_cell(text: str, trees: Collection[str]) -> str:
    """A column that only a table of several trees needs."""
    return "" if len(trees) == 1 else f" {text} |"


def _row(result: Result) -> str:
    peers = [
        f"{amount(result.values[peer], result.unit)} ({result.ratio(peer):.2f}x)"
        if peer in result.values
        else ""
        for peer in PEERS
    ]
    bars = ", ".join(
        f"{limit(bar, result.unit)}{'' if result.meets(bar) else ' **missed**'}"
        for bar in result.bars
    )
    kept = str(min(map(len, result.samples.values()))) if result.samples else "not kept"
    cells = [result.workload, amount(result.ours, result.unit), *peers, bars, kept]
    return f"| {' | '.join(cells)} | {result.load:.1f} |"
