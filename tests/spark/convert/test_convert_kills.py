"""A conversion that is killed leaves a Parquet directory, or a whole Delta table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_delta import DeltaLog
from tests.support.agreement import deltalake_rows, kernel_rows
from tests.support.parquet_tables import data_tree, parquet_file

ROOT = Path(__file__).parents[3]
FILES = 60


@pytest.mark.parametrize(
    ("times", "seed"), [(6, 20261), pytest.param(50, 20262, marks=pytest.mark.slow)]
)
def test_a_killed_conversion_leaves_all_or_nothing(tmp_path: Path, times: int, seed: int) -> None:
    template = tmp_path / "template"
    for number in range(FILES):
        parquet_file(template / f"p={number % 7}" / f"{number}.parquet", id=[number], s=["x"])
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.support.convert_kills",
            str(template),
            str(tmp_path / "copies"),
            str(times),
            str(seed),
        ],
        cwd=ROOT,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=60 + 15 * times,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    *told, _ = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(told) == times
    assert any(not each["ended"] for each in told)
    expected = sorted(({"id": n, "s": "x", "p": n % 7} for n in range(FILES)), key=repr)
    for each in told:
        path = Path(each["path"])
        # It was whole before the second conversion, or made by it: version 0 in both cases.
        log = DeltaLog.for_table(path)
        assert log.update().version == 0
        assert log.update().num_files == FILES
        assert data_tree(path).keys() == data_tree(template).keys()
    assert kernel_rows(path) == expected
    assert deltalake_rows(path) == expected
