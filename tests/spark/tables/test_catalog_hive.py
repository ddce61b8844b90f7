"""Delta tables in a Hive metastore."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.hive_session import BEGIN, END

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def messages(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the program has on its standard error; it did all that it checks."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.hive_session", str(tmp_path_factory.mktemp("hive"))],
        cwd=ROOT,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stderr


def test_a_hive_metastore_keeps_delta_tables(messages: str) -> None:
    assert END in messages


def test_merge_add_columns_and_streams_log_no_warning(messages: str) -> None:
    between = messages.partition(BEGIN)[2].partition(END)[0]
    found = re.findall(r".*\b(?:WARN|ERROR)\b.*|\tat .*", between)
    # Hive looks for a setting of its own in every thread that is new to it.
    assert [line for line in found if "WARN HiveConf:" not in line] == []
