"""Draws the numbers of a run: `python chart.py benchmarks.json benchmarks.png`.

Runs in an environment of its own (`bench/prepare.sh`), because the package needs no drawing.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

OURS = "ours"
COLORS = {OURS: "#1f6feb", "delta-spark": "#9a6dd7", "Parquet": "#8b949e", "deltalake": "#d29922"}
LONGEST_BAR = 4.0


def main() -> None:
    source, target = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        run = json.load(file)
    results = [each for each in run["results"] if _peers(each)]
    bars = sum(len(_peers(each)) for each in results)
    figure, axes = pyplot.subplots(figsize=(10, 0.2 * bars + 0.16 * len(results) + 1))
    height = 0.0
    ticks, labels = [], []
    for result in results:
        start = height
        for peer in _peers(result):
            _draw(axes, height, result, peer)
            height += 1
        ticks.append((start + height - 1) / 2)
        labels.append(result["workload"])
        height += 0.8
    axes.axvline(1, color=COLORS[OURS], linewidth=1.5)
    axes.text(1, -1.2, OURS, color=COLORS[OURS], ha="center", va="bottom", fontsize=8)
    axes.set_yticks(ticks, labels, fontsize=8)
    axes.set_ylim(height, -1.2)
    axes.set_xlim(0, LONGEST_BAR * 1.25)
    axes.set_xlabel("time or memory of each, ours = 1: longer than the line is worse than ours")
    seen = dict.fromkeys(peer for result in results for peer in _peers(result))
    handles = [pyplot.Rectangle((0, 0), 1, 1, color=COLORS[peer]) for peer in seen]
    axes.legend(handles, list(seen), loc="upper right", fontsize=8)
    load = run["load_average"][0]
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    title = f"{versions}; {run['cores']} cores, load average {load:.1f}"
    axes.set_title(title, fontsize=8, loc="right", color="#57606a")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(target, dpi=110)


def _peers(result: dict[str, Any]) -> list[str]:
    """Those whose value is so many times ours: not where a slope is nothing, or below it."""
    values = result["values"]
    if min(values.values()) <= 0:
        return []
    return [peer for peer in values if peer in COLORS and peer != OURS]


def _draw(axes: Any, height: float, result: dict[str, Any], peer: str) -> None:
    times = result["values"][peer] / result["values"][OURS]
    shown = min(times, LONGEST_BAR)
    axes.barh(height, shown, color=COLORS[peer], height=0.9)
    more = " ▸" if times > LONGEST_BAR else ""
    label = axes.text(shown + 0.04, height, f"{times:.2f}x{more}", va="center", fontsize=7)
    label.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85})


if __name__ == "__main__":
    main()
