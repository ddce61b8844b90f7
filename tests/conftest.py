"""What tests may ask for: a table's path, a clock that stands still, golden tables, Spark.

No test finds in the shared session what another one left there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.clock import FrozenClock
from tests.support.golden import GoldenTables

# A run in CI must mean the same twice, and a busy machine is no failure.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile(
    "fuzz",
    max_examples=5_000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# For every JVM that a test starts.  Tests have few rows and plans that no other test has: what the
# second compiler makes fast is over by then.  The first alone reserves too little for all its code.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m",
)


@pytest.fixture
def table_path(tmp_path: Path) -> Path:
    """Where a table may be made; the name needs care in every URI and every log path."""
    return tmp_path / "tä ble 100%"


@pytest.fixture
def clock() -> FrozenClock:
    """The time, which passes only when a test says so."""
    return FrozenClock()


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> GoldenTables:
    """Golden tables by name, unpacked once a session; skips where the archives are absent."""
    return GoldenTables(tmp_path_factory.mktemp("göl den 100%"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The one Spark session of all tests that ask for one."""
    # Most tests need no Spark: PySpark is imported by the first that does.
    sessions = import_module("tests.support.spark_session")
    yield from sessions.local_session(tmp_path_factory.mktemp("spark"))


@pytest.fixture(autouse=True)
def _clean_session(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a test does to the shared session is taken back."""
    if "spark" not in request.fixturenames:
        yield
        return
    clean = import_module("tests.support.clean_session")
    with clean.kept_clean(request.getfixturevalue("spark")):
        yield
