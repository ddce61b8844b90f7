"""Results for a terminal, for README and for other programs."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from bench.drivers import CONF, ROOT, peer_versions
from bench.measure import OURS, Bar, Result


def table(results: Sequence[Result]) -> str:
    """A line per result and peer, the bar beside the ratio it is about."""
    width = max(len(result.workload) for result in results)
    lines = [f"{'workload':{width}}  {'ours':>10}  {'peer':>22}  {'ratio':>6}  bar"]
    for result in results:
        rows = _comparisons(result) or [("", None)]
        for number, (peer, bar) in enumerate(rows):
            name = result.workload if number == 0 else ""
            ours = amount(result.ours, result.unit) if number == 0 else ""
            theirs = f"{peer} {amount(result.values[peer], result.unit)}" if peer else ""
            ratio = f"{result.ratio(peer):.2f}" if peer else ""
            load = f"  load {result.load:.2f}" if number == 0 else ""
            note = f"  {result.note}" if number == 0 and result.note else ""
            lines.append(
                f"{name:{width}}  {ours:>10}  {theirs:>22}  {ratio:>6}  "
                f"{_bar(result, bar):<12}{load}{note}"
            )
    return "\n".join(lines)


def markdown(results: Sequence[Result]) -> str:
    """The table that README shows: a column for each peer, ratios behind its times."""
    peers = list(dict.fromkeys(peer for result in results for peer in result.peers))
    shown = [peer for peer in peers if not peer.startswith("own ")]
    lines = [
        "| workload | ours | " + " | ".join(shown) + " | bar |",
        "|---|--:|" + "--:|" * len(shown) + "---|",
    ]
    for result in results:
        cells = [
            f"{amount(result.values[peer], result.unit)} ({result.ratio(peer):.2f}x)"
            if peer in result.values
            else ""
            for peer in shown
        ]
        bars = ", ".join(
            f"{limit(bar, result.unit)}{'' if result.meets(bar) else ' **missed**'}"
            for bar in result.bars
        )
        ours = amount(result.ours, result.unit)
        lines.append(f"| {result.workload} | {ours} | " + " | ".join(cells) + f" | {bars} |")
    return "\n".join(lines)


def as_json(
    results: Sequence[Result],
    about: Mapping[str, object],
    known: Sequence[Mapping[str, object]] = (),
) -> str:
    """Everything, with each sample; `known` are those of an earlier run, if they are not here."""
    tree = tree_of_sources()
    names = {result.workload for result in results}
    listed = [dict(each) for each in known if each["workload"] not in names]
    for result in results:
        value = asdict(result)
        # What was measured once is its own sample.
        value["samples"] = value["samples"] or {peer: [at] for peer, at in result.values.items()}
        value["ratios"] = {peer: round(result.ratio(peer), 4) for peer in result.peers}
        for bar, written in zip(result.bars, value["bars"], strict=True):
            written["is_met"] = result.meets(bar)
        value["tree"] = tree
        listed.append(value)
    return json.dumps({**about, "results": listed}, indent=1, ensure_ascii=False) + "\n"


def known_results(path: Path) -> list[Mapping[str, object]]:
    """The results that a file has; each has its own load there."""
    if not path.exists():
        return []
    found: list[Mapping[str, object]] = json.loads(path.read_text(encoding="utf-8"))["results"]
    return found


def tree_of_sources() -> str:
    """What git calls the content of `src`, with a mark when it is changed; empty without git."""
    command = ["git", "-C", str(ROOT)]
    try:
        tree = subprocess.run(
            [*command, "rev-parse", "--short=12", "HEAD:src"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        changed = subprocess.run([*command, "diff", "--quiet", "HEAD", "--", "src"], check=False)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f"{tree}, changed" if changed.returncode else tree


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def about_this_run(conf: Mapping[str, str], *, is_quick: bool) -> dict[str, object]:
    """What a number means nothing without."""
    return {
        "cores": os.cpu_count(),
        "load_average": os.getloadavg(),
        "is_quick": is_quick,
        "versions": {"deltalake": version("deltalake"), **peer_versions()},
        "conf": {**CONF, **conf},
    }


def _comparisons(result: Result) -> list[tuple[str, Bar | None]]:
    bars = {bar.peer: bar for bar in result.bars}
    found = [(peer, bars.get(peer)) for peer in result.values if peer != OURS]
    return [*found, *(("", bar) for bar in result.bars if bar.peer is None)]


def _bar(result: Result, bar: Bar | None) -> str:
    if bar is None:
        return ""
    return ("  " if result.meets(bar) else "! ") + limit(bar, result.unit)


def limit(bar: Bar, unit: str) -> str:
    """A bar as people read it."""
    return f"<= {bar.at_most:g} {unit}" if bar.peer is None else f"<= {bar.at_most:g}x {bar.peer}"


def amount(value: float, unit: str) -> str:
    """A value with its unit, in as many digits as mean something."""
    if unit == "s" and value < 0.9995:
        return f"{1000 * value:.0f} ms"
    digits = 0 if value >= 100 else 2
    return f"{value:,.{digits}f} {unit}"
