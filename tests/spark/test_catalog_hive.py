"""Delta tables in a Hive metastore."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_hive_metastore_keeps_delta_tables(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.hive_session", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
