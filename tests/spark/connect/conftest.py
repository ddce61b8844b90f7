"""One server for each module, and one client of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.connect_client import ConnectClient
from tests.support.connect_server import CLIENT_PACKAGES, connect_server


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of this package's."""
    if not CLIENT_PACKAGES.is_dir():
        pytest.skip("the packages of a Spark Connect client are not installed")
    with connect_server(tmp_path_factory.mktemp("server")) as found:
        yield found


@pytest.fixture(scope="module")
def connect_client(
    address: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConnectClient]:
    """A client of the server."""
    client = ConnectClient(address, tmp_path_factory.mktemp("client") / "stderr")
    yield client
    client.stop()
