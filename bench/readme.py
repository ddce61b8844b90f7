"""README's table of numbers, out of docs/benchmarks.json and nothing else.

`python -m bench --readme` writes it; a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.drivers import ROOT
from bench.measure import Bar, Result
from bench.report import amount, limit

README = ROOT / "README.md"
NUMBERS = ROOT / "docs" / "benchmarks.json"
PEERS = ("delta-spark", "deltalake", "Parquet")
BEGIN = "<!-- numbers: written by `python -m bench --readme` -->"
END = "<!-- /numbers -->"

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


def block(numbers: Mapping[str, Any]) -> str:
    """The part of README between the two marks."""
    results = [each for each in results_of(numbers["results"]) if _is_shown(each)]
    versions = ", ".join(f"{name} {number}" for name, number in numbers["versions"].items())
    lines = [
        BEGIN,
        f"{numbers['cores']} cores, {versions}. {_trees(results)}",
        "Values are medians unless a row says otherwise. Behind a peer is the ratio of ours to it;",
        "a bar that is missed says so. Most of the load average is the benchmark's own.",
        "",
        f"| workload | ours | {' | '.join(PEERS)} | bar | samples | load |",
        f"|---|--:|{'--:|' * len(PEERS)}---|--:|--:|",
        *(_row(result) for result in results),
        END,
    ]
    return "\n".join(lines)


def with_block(readme: str, numbers: Mapping[str, Any]) -> str:
    """README with its numbers written anew."""
    before, _, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"README lacks {BEGIN} or {END}")
    return before + block(numbers) + after


def write_readme(readme: Path, numbers: Mapping[str, Any]) -> None:
    readme.write_text(with_block(readme.read_text(encoding="utf-8"), numbers), encoding="utf-8")


def _is_shown(result: Result) -> bool:
    return not _LEFT_OUT.match(result.workload)


def _trees(results: Sequence[Result]) -> str:
    trees = {result.tree for result in results}
    if len(trees) == 1 and "" not in trees:
        return f"All rows are of the tree {trees.pop()} of `src`."
    return "Rows are not all of one version of the code."


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
