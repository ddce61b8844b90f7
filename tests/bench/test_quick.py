from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_quick_run_finds_all_peers_of_one_mind_and_draws_a_chart(tmp_path: Path) -> None:
    numbers, chart = tmp_path / "numbers.json", tmp_path / "chart.png"
    command = [sys.executable, "-m", "bench", "--quick", "--json", numbers, "--chart", chart]
    subprocess.run(command, cwd=ROOT, check=True)
    run = json.loads(numbers.read_text(encoding="utf-8"))
    assert run["is_quick"]
    compared = {peer for result in run["results"] for peer in result["values"]}
    assert compared >= {"ours", "Parquet", "delta-spark", "deltalake"}
    assert chart.read_bytes().startswith(b"\x89PNG")
