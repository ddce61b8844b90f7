"""What tests may ask for: a table's path, a clock that stands still, golden tables, Spark.

No test finds in the shared session what another one left there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.clock import FrozenClock
from tests.support.delta_server import CLIENT_PACKAGES, Server, shared_server
from tests.support.door import IN_CLIENT
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

if IN_CLIENT:  # nobody else needs these, and an import of pandas takes its time
    sys.path.append(str(CLIENT_PACKAGES))

# For every JVM that a test starts.  Tests have few rows and plans that no other test has: what the
# second compiler makes fast is over by then.  The first alone reserves too little for all its code.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m",
)


def pytest_configure(config: pytest.Config) -> None:
    """Of a client's packages, pandas is newer than PySpark expects."""
    if IN_CLIENT:
        ignored = "ignore:PySpark does not yet fully support pandas:FutureWarning"
        config.addinivalue_line("filterwarnings", ignored)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Through the other door go the tests that use the session: the rest knows no door."""
    if not IN_CLIENT:
        return
    used = [item for item in items if "spark" in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=[item for item in items if item not in used])
    items[:] = used


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
def spark(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """The one Spark session of all tests that ask for one: classic, or a client's."""
    if IN_CLIENT:
        clients = import_module("tests.support.client_session")
        yield from clients.remote_session(request.getfixturevalue("delta_server"))
        return
    # Most tests need no Spark: PySpark is imported by the first that does.
    sessions = import_module("tests.support.spark_session")
    yield from sessions.local_session(tmp_path_factory.mktemp("spark"))


@pytest.fixture(scope="session")
def delta_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The one server of all tests that harm none; skips where clients lack their packages."""
    if not CLIENT_PACKAGES.is_dir():
        pytest.skip("the packages of a Spark Connect client are not installed")
    yield from shared_server(tmp_path_factory.mktemp("sérver 100%"))


@pytest.fixture(autouse=True)
def _clean_session(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a test does to the shared session is taken back."""
    if "spark" not in request.fixturenames:
        yield
        return
    clean = import_module(f"tests.support.{'client' if IN_CLIENT else 'clean'}_session")
    with clean.kept_clean(request.getfixturevalue("spark")):
        yield
