"""A table's rows handed to pandas, polars and DuckDB, which all find the same in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CLIENT = Path(__file__).with_name("frames_client.py")
# What the client needs beside PySpark; `make install` puts it there.
PACKAGES = Path(sys.prefix) / "frames"

pytestmark = pytest.mark.skipif(
    not PACKAGES.is_dir(), reason="pandas, polars and DuckDB are not installed"
)

IDS = [0, 1, 3, 4, 5]  # a deletion vector hides 2
# As JSON has them: what it has no word for is text.
PLAIN: dict[str, list[Any]] = {
    "id": IDS,
    "part": [id % 2 for id in IDS],
    "even": [id % 2 == 0 for id in IDS],
    "price": ["0.00", "0.25", "0.75", "1.00", "1.25"],
    "day": ["2024-02-29", "2024-03-01", "2024-03-03", "2024-03-04", "2024-03-05"],
    "at": ["2024-01-01 01:02:03.000004+00:00"] * 5,
    "local": ["1500-01-01 00:00:00"] * 5,
    "raw": [str("é".encode())] * 5,
}
NAMES = ["ä0", "ä1", None, "ä4", "ä5"]
ORDER = ["id", "part", "the name", "even", "price", "day", "at", "local", "nested", "raw"]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home = tmp_path_factory.mktemp("främes 1%")
    path = os.pathsep.join(filter(None, [str(PACKAGES), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, str(CLIENT), str(home)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=home,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


@pytest.mark.parametrize("way", ["of the table", "of the handle"])
@pytest.mark.parametrize("library", ["polars", "duckdb"])
def test_polars_and_duckdb_have_the_rows(found: dict[str, Any], library: str, way: str) -> None:
    frame = found[f"{library}, {way}"]
    nested = [{"x": id, "y": ["a", None]} for id in IDS]
    assert frame["columns"] == ORDER
    assert frame["rows"] == {**PLAIN, "the name": NAMES, "nested": nested}
    assert frame["sum"] == 13


@pytest.mark.parametrize("way", ["of the table", "of the handle"])
def test_pandas_has_the_rows(found: dict[str, Any], way: str) -> None:
    frame = found[f"pandas, {way}"]
    rows = frame["rows"]
    assert frame["columns"] == ORDER
    assert {key: rows[key] for key in PLAIN} == PLAIN
    # Text that is missing is a NaN there.
    assert [name if isinstance(name, str) else None for name in rows["the name"]] == NAMES
    assert [value["x"] for value in rows["nested"]] == IDS
    assert frame["sum"] == 13


def test_the_kernel_hands_out_the_same(found: dict[str, Any]) -> None:
    assert found["kernel, polars"] == found["polars, of the table"]


def test_batches_are_taken_as_a_query_asks_for_them(found: dict[str, Any]) -> None:
    assert found["batches"] == [[12, 3]]
