"""One delta-spark process for all tests here, beside the session all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from pyspark_delta import enable
from tests.interop.engines import Ours, Pair, SetTheirs, Theirs
from tests.support.delta_server import TIME_ZONE
from tests.support.peer import Peer, is_prepared


@pytest.fixture(scope="session")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """delta-spark; where it is not prepared, the tests are left out unless PEERS=required."""
    if not is_prepared():
        said = "delta-spark is not prepared: run scripts/peers.sh"
        if os.environ.get("PEERS") == "required":
            pytest.fail(said)
        pytest.skip(said)
    home = tmp_path_factory.mktemp("peer")
    conf = {
        "spark.sql.session.timeZone": TIME_ZONE,
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.local.dir": str(home / "local"),
        # A process that lives for minutes on a few rows: code that is fast in the long run is not.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    with Peer.start(conf, log=home / "stderr") as running:
        yield running


@pytest.fixture(scope="session")
def theirs(peer: Peer) -> Theirs:
    """The peer as an engine."""
    return Theirs(peer)


@pytest.fixture
def ours(spark: SparkSession) -> Ours:
    """Our own session as an engine."""
    return Ours(enable(spark))


@pytest.fixture
def pair(ours: Ours, theirs: Theirs) -> Pair:
    """Both engines."""
    return Pair(ours, theirs)


@pytest.fixture
def db(pair: Pair) -> Iterator[str]:
    """A database of that name in both catalogs, and the current one."""
    name = f"db_{uuid4().hex[:12]}"
    for engine in (pair.ours, pair.theirs):
        engine.sql(f"CREATE DATABASE {name}")
        engine.sql(f"USE {name}")
    yield name
    for engine in (pair.ours, pair.theirs):
        engine.sql("USE default")
        engine.sql(f"DROP DATABASE {name} CASCADE")


@pytest.fixture(params=["ours", "theirs"])
def writer(request: pytest.FixtureRequest, pair: Pair) -> Ours | Theirs:
    """Each engine in turn, as the one that writes what both read."""
    engine: Ours | Theirs = getattr(pair, request.param)
    return engine


@pytest.fixture
def set_theirs(theirs: Theirs) -> Iterator[SetTheirs]:
    """Settings of the peer's session for one test."""
    chosen: list[str] = []

    def set_one(key: str, value: str) -> None:
        chosen.append(key)
        theirs.python("spark.conf.set(key, value)", key=key, value=value)

    yield set_one
    for key in chosen:
        theirs.python("spark.conf.unset(key)", key=key)
