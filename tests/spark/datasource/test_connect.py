"""Spark Connect: the data source through a real server, which a program of its own talks to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.agreement import agree

CLIENT = Path(__file__).with_name("connect_client.py")
# What the client needs beside PySpark; `make install` puts it there.
PACKAGES = Path(sys.prefix) / "connect"

pytestmark = pytest.mark.skipif(
    not PACKAGES.is_dir(), reason="the packages of a Spark Connect client are not installed"
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("connect")


@pytest.fixture(scope="module")
def found(home: Path) -> dict[str, Any]:
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


def test_a_table_is_written_and_read(found: dict[str, Any], home: Path) -> None:
    assert found["appended"] == 12
    assert found["overwritten"] == [5, 6, 7, 8, 9]
    assert found["old"] == 10
    agree(home / "tä ble 100%", [{"id": n, "p": f"p {n % 3}"} for n in range(5, 10)])


def test_filters_reach_the_reader(found: dict[str, Any]) -> None:
    assert found["filtered"] == found["asked"] == found["pushed"] == [[7, "p 1"]]
    assert found["union"] == 2


def test_errors_arrive_with_their_condition(found: dict[str, Any]) -> None:
    assert "[DELTA_METADATA_MISMATCH.SCHEMA_MISMATCH]" in found["mismatch"]
    assert "python -m pyspark_delta.server" in found["catalog"]


def test_a_session_without_a_jvm_is_not_enabled_and_works_as_before(found: dict[str, Any]) -> None:
    assert found["enable"].startswith(
        "OperationNotAllowedError: [DELTA_CANNOT_ENABLE_SPARK_CONNECT]"
    )
    assert "python -m pyspark_delta.server" in found["enable"]
    assert found["left alone"] == 5
