"""Timing: peers interleaved in one run, medians, ratios, the load average beside them."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tqdm import tqdm


@dataclass
class Row:
    """One workload's result, as printed and as kept in JSON."""

    workload: str
    ours: float
    unit: str
    bar: str
    met: bool
    peer: str = ""
    theirs: float | None = None
    note: str = ""
    load: float = field(default_factory=lambda: os.getloadavg()[0])

    @property
    def ratio(self) -> float | None:
        return None if self.theirs is None else self.ours / self.theirs


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interleaved(
    name: str, ours: Callable[[], object], theirs: Callable[[], object], rounds: int = 5
) -> tuple[float, float]:
    """Median seconds of both, run in turns so that the machine's moods hit both alike."""
    mine: list[float] = []
    peer: list[float] = []
    for _ in tqdm(range(rounds), desc=name, disable=not sys.stderr.isatty(), leave=False):
        mine.append(seconds(ours))
        peer.append(seconds(theirs))
    return statistics.median(mine), statistics.median(peer)


def against(
    name: str,
    peer: str,
    bar: float,
    ours: Callable[[], object],
    theirs: Callable[[], object],
    rounds: int = 5,
) -> Row:
    mine, other = interleaved(name, ours, theirs, rounds)
    return Row(name, mine, "s", f"<= {bar}x {peer}", mine <= bar * other, peer, other)


def absolute(name: str, value: float, unit: str, bar: float, note: str = "") -> Row:
    return Row(name, value, unit, f"<= {bar:g} {unit}", value <= bar, note=note)


def report(rows: list[Row], out: Path) -> None:
    width = max(len(row.workload) for row in rows)
    print(f"{'workload':{width}}  {'ours':>12}  {'peer':>12}  {'ratio':>6}  {'bar':<18} load")
    for row in rows:
        theirs = "" if row.theirs is None else f"{row.theirs:.3f} {row.unit}"
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        mark = " " if row.met else "!"
        print(
            f"{row.workload:{width}}  {row.ours:>8.3f} {row.unit:<3}  {theirs:>12}  {ratio:>6}"
            f" {mark}{row.bar:<18} {row.load:.2f}  {row.note}"
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
