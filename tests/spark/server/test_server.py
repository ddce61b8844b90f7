"""The command that serves: its arguments, its token."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

import pytest

from pyspark_delta.server import command, main
from tests.support.delta_server import TOKEN, Server, command_line, run_client

FOREACH_BATCH = b"Streaming ForeachBatch worker is starting with url"
# Each method of the service, with each kind of token, by gRPC itself: PySpark checks some first.
CALLS = """
import grpc
from pyspark.sql.connect.proto import base_pb2
service = base_pb2.DESCRIPTOR.services_by_name["SparkConnectService"]
as_it_is = dict(request_serializer=bytes, response_deserializer=bytes)
with grpc.insecure_channel(given["address"]) as channel:
    def code(method, metadata):
        kind = "stream" if method.client_streaming else "unary"
        result = "stream" if method.server_streaming else "unary"
        address = f"/{service.full_name}/{method.name}"
        call = getattr(channel, f"{kind}_{result}")(address, **as_it_is)
        sent = iter([b""]) if method.client_streaming else b""
        try:
            answer = call(sent, metadata=metadata, timeout=60)
            list(answer) if method.server_streaming else answer
        except grpc.RpcError as error:
            return error.code().name
        return "OK"
    for name, metadata in given["metadata"].items():
        found[name] = sorted({code(method, metadata) for method in service.methods})
    found["methods"] = len(service.methods)
"""


def test_the_last_line_is_the_address_alone(delta_server: Server) -> None:
    jdbc, connect = delta_server.lines
    assert re.fullmatch(r"jdbc:hive2://127\.0\.0\.1:[1-9]\d*/", jdbc)
    token = re.escape(quote(TOKEN, safe=""))
    assert re.fullmatch(rf"sc://localhost:[1-9]\d*/;token={token}", connect)


def test_only_clients_with_the_token_are_let_in(delta_server: Server) -> None:
    address = delta_server.url.removeprefix("sc://").partition("/")[0]
    tokens = {
        "no token": [],
        "an empty one": [("authorization", "Bearer ")],
        "a wrong one": [("authorization", f"Bearer {TOKEN[:-1]}")],
        "a longer one": [("authorization", f"Bearer {TOKEN}=")],
        "no bearer": [("authorization", TOKEN)],
        "the token": [("authorization", f"Bearer {TOKEN}")],
    }
    found = run_client(delta_server.url, CALLS, {"address": address, "metadata": tokens})
    assert found.pop("methods") > 8
    assert "UNAUTHENTICATED" not in found.pop("the token")
    assert found == {name: ["UNAUTHENTICATED"] for name in tokens if name != "the token"}


def test_a_client_of_pyspark_needs_the_token_too(delta_server: Server) -> None:
    address = delta_server.url.partition(";")[0]
    program = """
        for name, url in given.items():
            found[name] = failure(lambda: connected(url).sql("SELECT 1").collect())
    """
    found = run_client(delta_server.url, program, {"no": address, "wrong": f"{address};token=x"})
    assert "UNAUTHENTICATED" in found["wrong"]
    assert found["no"] is not None


def test_the_token_is_written_nowhere(delta_server: Server) -> None:
    processes = delta_server.processes
    assert len(processes) > 1
    for process in processes:
        assert not any(TOKEN in argument for argument in command_line(process))
    written = [file for file in delta_server.log.parent.rglob("*") if file.is_file()]
    assert {"server log.txt"} < {file.name for file in written}
    assert any("eventlog" in str(file) or file.name.startswith("local-") for file in written)
    # But for a line of Spark's own, of each stream with a function for its batches.
    lines = [
        line
        for file in written
        for line in file.read_bytes().splitlines()
        if TOKEN.encode() in line and not line.startswith(FOREACH_BATCH)
    ]
    assert lines == []
    environment = delta_server.page("environment")
    settings = dict(environment["sparkProperties"])
    assert settings["spark.my.setting"] == "mine=yours"
    assert TOKEN not in str(environment)


def test_a_setting_arrives_with_all_its_text(delta_server: Server) -> None:
    found = run_client(delta_server.url, "found['mine'] = connected().conf.get('spark.my.setting')")
    assert found == {"mine": "mine=yours"}


def test_all_ports_are_of_this_machine_alone(delta_server: Server) -> None:
    jvm = delta_server.jvm
    listed = Path(f"/proc/{jvm}/net/tcp").read_text(encoding="utf-8").splitlines()[1:]
    listed += Path(f"/proc/{jvm}/net/tcp6").read_text(encoding="utf-8").splitlines()[1:]
    sockets = {
        link.readlink().name
        for link in Path(f"/proc/{jvm}/fd").iterdir()
        if link.readlink().name.startswith("socket:")
    }
    fields = [line.split() for line in listed]
    listening = [each[1] for each in fields if each[3] == "0A" and f"socket:[{each[9]}]" in sockets]
    assert len(listening) > 2  # of Connect, JDBC, the pages
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
