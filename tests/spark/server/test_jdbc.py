"""JDBC: the statements of the SQL guide, from beeline, which Spark brings."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.support.delta_server import Server, serving

pytestmark = pytest.mark.skipif(
    shutil.which("java") is None, reason="beeline needs java on the path"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("jdbc ü 100%")
    options = ("--port", "0", "--thrift-port", "0", "--master", "local[2]")
    with serving(directory, *options, "--conf", "spark.ui.enabled=false") as found:
        yield found


def test_the_first_line_is_the_address_of_jdbc(server: Server) -> None:
    address, connect = server.lines
    host, _, port = address.removeprefix("jdbc:hive2://").rstrip("/").partition(":")
    assert host == "127.0.0.1"
    assert int(port) > 0
    assert connect.startswith("sc://")
