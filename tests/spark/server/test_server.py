"""The command that serves: its arguments, its token, how it ends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_delta.server import command, main
from tests.support.delta_server import (
    CONNECT,
    TOKEN_VARIABLE,
    Server,
    command_line,
    serving,
)

TOKEN = "a.token~of-this_test=="
needs_client = pytest.mark.skipif(not CONNECT.is_dir(), reason="no client of Spark Connect")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("sérver 100%")
    arguments = ["--port", "0", "--master", "local[2]"]
    for setting in (
        "spark.ui.port=0",
        "spark.log.level=INFO",
        "spark.my.setting=mine=yours",
        "spark.eventLog.enabled=true",
        "spark.eventLog.compress=false",
        f"spark.eventLog.dir={directory.as_uri()}",
    ):
        arguments += ["--conf", setting]
    with serving(directory, *arguments, environment={TOKEN_VARIABLE: TOKEN}) as found:
        yield found


def test_the_last_line_is_the_address_alone(server: Server) -> None:
    [line] = server.lines
    assert re.fullmatch(rf"sc://localhost:[1-9]\d*/;token={re.escape(TOKEN)}", line)


def test_the_token_is_in_no_list_of_processes(server: Server) -> None:
    assert len(server.processes) > 1
    for process in server.processes:
        assert not any(TOKEN in argument for argument in command_line(process))


def test_all_ports_are_of_this_machine_alone(server: Server) -> None:
    listed = Path(f"/proc/{server.jvm}/net/tcp").read_text(encoding="utf-8").splitlines()[1:]
    listed += Path(f"/proc/{server.jvm}/net/tcp6").read_text(encoding="utf-8").splitlines()[1:]
    sockets = {
        link.readlink().name
        for link in Path(f"/proc/{server.jvm}/fd").iterdir()
        if link.readlink().name.startswith("socket:")
    }
    fields = [line.split() for line in listed]
    listening = [each[1] for each in fields if each[3] == "0A" and f"socket:[{each[9]}]" in sockets]
    assert listening
    ends = ("0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F")
    assert [each for each in listening if not each.partition(":")[0].endswith(ends)] == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--port", "x"], "argument --port: 'x' is no port: use a number up to 65535"),
        (["--port", "65536"], "argument --port: '65536' is no port: use a number up to 65535"),
        (
            ["--thrift-port", "-1"],
            "argument --thrift-port: '-1' is no port: use a number up to 65535",
        ),
        (["--conf", "a"], "argument --conf: 'a' is no setting: write KEY=VALUE"),
        (["--conf", "=a"], "argument --conf: '=a' is no setting: write KEY=VALUE"),
        (["--token", ""], "a token has letters, digits and . _ ~ + / = - only, and is not empty"),
        (["--token", "ä b"], "a token has letters, digits and . _ ~ + / = - only"),
        (["--nothing"], "unrecognized arguments: --nothing"),
    ],
)
def test_a_bad_argument_is_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for run in (main, lambda given: command(["server", *given])):
        with pytest.raises(SystemExit) as ended:
            run(arguments)
        assert ended.value.code == 2
        assert sentence in capsys.readouterr().err.splitlines()[-1]


def test_the_command_names_what_it_can_do(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command(["serve"])
    assert ended.value.code == 2
    assert "choose from" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        command(["server", "--help"])
    assert ended.value.code == 0
    assert "--thrift-port" in capsys.readouterr().out
