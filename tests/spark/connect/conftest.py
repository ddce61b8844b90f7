"""One client for each module, of the server that tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.connect_client import ConnectClient
from tests.support.delta_server import Server


@pytest.fixture(scope="module")
def connect_client(
    delta_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConnectClient]:
    """A client of the server."""
    client = ConnectClient(delta_server.url, tmp_path_factory.mktemp("client") / "stderr")
    yield client
    client.stop()
