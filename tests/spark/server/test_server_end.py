"""How a server starts and ends: by a signal, for a taken port, with its JVM.

The servers of these tests start beside each other: most of that time each of them waits.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from pyspark_delta import DeltaLog
from tests.support.delta_server import (
    CLIENT_PACKAGES,
    Server,
    arguments_for,
    command_line,
    end,
    kill,
    ready,
    run_client,
    start_client,
    start_server,
    wait_until,
    with_pages,
)

pytestmark = pytest.mark.skipif(
    not CLIENT_PACKAGES.is_dir(), reason="the packages of a Spark Connect client are not installed"
)

OWN_TOKEN = "a.token-of_the~command/line+="
SLOW_INSERT = """
    spark = connected()
    spark.range(2).write.format("delta").save(given)
    print("connected", flush=True)
    slow = "SELECT id + reflect('java.lang.Thread', 'sleep', 120000L + id) AS id FROM range(0, 1)"
    found["error"] = failure(lambda: spark.sql(f"INSERT INTO delta.`{given}` {slow}").collect())
"""
Started = tuple[subprocess.Popen[str], Path]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Started]]:
    """Servers that start: two that a signal ends, and one with its token as an argument."""
    found = {}
    for name, more in (("SIGTERM", ()), ("SIGINT", ()), ("token", ("--token", OWN_TOKEN))):
        home = tmp_path_factory.mktemp("sérver 100%")
        found[name] = start_server(home, *arguments_for(home, with_pages()), *more)
    yield found
    for process, _ in found.values():
        kill(process)


@pytest.fixture(scope="module")
def server(started: dict[str, Started]) -> Callable[[str], Server]:
    """The servers, once they are ready."""
    known: dict[str, Server] = {}

    def found(name: str) -> Server:
        if name not in known:
            known[name] = ready(*started[name])
        return known[name]

    return found


def test_each_start_has_a_token_of_its_own(server: Callable[[str], Server]) -> None:
    tokens = {server(name).url.partition("token=")[2] for name in ("SIGTERM", "SIGINT")}
    assert len(tokens) == 2
    assert min(map(len, tokens)) >= 32


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_ends_a_server_in_the_middle_of_a_statement(
    server: Callable[[str], Server], name: str, table_path: Path
) -> None:
    client = start_client(server(name).url, SLOW_INSERT, str(table_path))
    try:
        assert client.stdout is not None
        assert client.stdout.readline() == "connected\n"
        wait_until(lambda: not server(name).is_idle(), "the statement runs")
        end(server(name), signal.Signals[name])
        log = DeltaLog.for_table(str(table_path))
        assert log.update().version == 0
        assert log.snapshot.to_table().num_rows == 2
    finally:
        client.kill()
        client.communicate()


def test_a_token_of_the_command_line_is_passed_to_nobody(server: Callable[[str], Server]) -> None:
    mine = server("token")
    assert mine.url.endswith(f";token={quote(OWN_TOKEN, safe='')}")
    found = run_client(mine.url, "found['one'] = connected().sql('SELECT 1').collect()[0][0]")
    assert found == {"one": 1}
    others = [process for process in mine.processes if process != mine.process.pid]
    assert others
    assert not [each for each in others if OWN_TOKEN in " ".join(command_line(each))]
    assert OWN_TOKEN not in mine.log.read_text(encoding="utf-8")


def test_a_port_that_is_taken_is_one_sentence(
    server: Callable[[str], Server], tmp_path: Path
) -> None:
    address = server("token").url.removeprefix("sc://").partition("/")[0]
    arguments = arguments_for(tmp_path, {"spark.log.level": "OFF"})
    process, log = start_server(tmp_path, *arguments, "--port", address.rpartition(":")[2])
    try:
        assert process.wait(120) == 1
        assert process.stdout is not None
        assert process.stdout.read() == ""
        ours = [
            line
            for line in log.read_text(encoding="utf-8").splitlines()
            if line.startswith("pyspark-delta server: ")
        ]
        assert len(ours) == 1
        assert "bind" in ours[0].lower()
        assert "Traceback" not in log.read_text(encoding="utf-8")
    finally:
        kill(process)


def test_a_server_ends_with_its_jvm(server: Callable[[str], Server]) -> None:
    mine = server("token")
    os.kill(mine.jvm, signal.SIGKILL)
    assert mine.process.wait(60) == 1
    assert mine.log.read_text(encoding="utf-8").count("The JVM of the server has ended.") == 1
