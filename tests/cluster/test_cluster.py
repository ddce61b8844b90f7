"""Executors that are processes of their own, know nothing of this package, and have no Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.cluster.driver import ROWS
from tests.cluster.standalone import standalone_cluster

ROOT = Path(__file__).parents[2]
# The executors' Python does not start: none is needed where the rows are, and no package of ours.
ENVIRONMENT = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": "/bin/false"}


def test_a_table_lives_on_a_cluster_of_two_workers(tmp_path: Path, table_path: Path) -> None:
    with standalone_cluster(tmp_path, workers=2) as master:
        driver = subprocess.run(
            [sys.executable, "-m", "tests.cluster.driver", master, str(table_path)],
            cwd=ROOT,
            env={**os.environ, **ENVIRONMENT},
            capture_output=True,
            text=True,
            timeout=240,
        )
    assert driver.returncode == 0, driver.stderr[-4_000:]
    found = json.loads(driver.stdout.splitlines()[-1])
    deleted = found.pop("deleted")
    assert found == {
        "executors": 2,
        "python": False,
        "rows": ROWS,
        "sum": ROWS * (ROWS - 1) // 2,
        "filtered": ["wörd 7"],
        "joined": 10,
        "appended": 3,
        "left": [0, 1, 2],
        "version": 3,
        "footers": [1, 1, True],
    }
    assert deleted[0] == deleted[1] > 0
