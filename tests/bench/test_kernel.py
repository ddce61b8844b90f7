from __future__ import annotations

from pathlib import Path

from bench.kernel import typed_rows
from bench.measure import OURS


def test_a_table_of_typed_statistics_is_listed_alike_by_both_peers(tmp_path: Path) -> None:
    time, memory = typed_rows(tmp_path / "tä ble 100%", 2_000, rounds=1)
    assert set(time.values) == set(memory.values) == {OURS, "deltalake"}
    assert memory.is_met
