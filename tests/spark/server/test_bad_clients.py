"""Clients that die, cancel, send garbage, come in numbers: server and tables stay whole."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_delta import DeltaLog
from tests.support.delta_server import (
    CONNECT,
    Server,
    run_client,
    serving,
    start_client,
    wait_until,
)

pytestmark = pytest.mark.skipif(not CONNECT.is_dir(), reason="no client of Spark Connect")

# A row that takes its time, and none of it on a core.
SLOW = """
        sleep = "reflect('java.lang.Thread', 'sleep', {wait}L + id)"
        slow = "SELECT id, " + sleep + " AS s FROM range(0, 1, 1, 1)"
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("sérver 100%")
    options = ("--port", "0", "--master", "local[2]", "--conf", "spark.ui.enabled=false")
    with serving(directory, *options) as found:
        yield found


@pytest.fixture
def path(server: Server, table_path: Path) -> Path:
    program = """
        rows = connected().range(2).selectExpr("id", "cast(null as string) AS s")
        feed = "delta.enableChangeDataFeed"
        rows.write.format("delta").option(feed, "true").save(given)
    """
    run_client(server.url, program, str(table_path))
    return table_path


def versions(path: Path) -> int:
    return DeltaLog.for_table(str(path)).update().version


def test_garbage_as_a_message_of_delta_is_an_error_of_that_statement(
    server: Server, path: Path
) -> None:
    program = """
        import random
        from google.protobuf.any_pb2 import Any as Envelope
        from pyspark.sql.connect import proto
        spark = connected()
        chance = random.Random(7)
        package = "type.googleapis.com/delta.connect."
        messages = [bytes([chance.randrange(256) for _ in range(size)]) for size in range(40)]
        messages += [b"\\xff" * 9, b"\\x0a\\xff\\xff\\xff\\xff\\x0f", b"\\x0a\\x02\\x0a\\x00" * 500]
        answers = []
        for message in messages:
            for kind in ("relation", "command"):
                name = "DeltaRelation" if kind == "relation" else "DeltaCommand"
                extension = Envelope(type_url=package + name, value=message)
                plan = proto.Plan()
                if kind == "relation":
                    plan.root.extension.CopyFrom(extension)
                    answers.append(failure(lambda: spark._client.to_table(plan, {})))
                else:
                    command = proto.Command()
                    command.extension.CopyFrom(extension)
                    answers.append(failure(lambda: spark._client.execute_command(command)))
        unknown = proto.Plan()
        unknown.root.extension.CopyFrom(Envelope(type_url="type.googleapis.com/a.B", value=b"x"))
        answers.append(failure(lambda: spark._client.to_table(unknown, {})))
        found["accepted"] = sum(answer is None for answer in answers)
        found["kinds"] = sorted({answer[:60] for answer in answers if answer})
        found["rows"] = spark.read.format("delta").load(given).count()
    """
    found = run_client(server.url, program, str(path))
    assert found["accepted"] == 0, found["kinds"]
    assert found["rows"] == 2
    assert not [kind for kind in found["kinds"] if "Traceback" in kind or "KeyError" in kind]
    assert versions(path) == 0


def test_a_statement_that_is_cancelled_commits_nothing(server: Server, path: Path) -> None:
    program = (
        SLOW
        + """
        spark = connected()
        def cancel():
            time.sleep(2)
            spark.interruptAll()
        threading.Thread(target=cancel).start()
        begun = time.monotonic()
        text = f"INSERT INTO delta.`{given}` " + slow.format(wait=60000)
        found["error"] = failure(lambda: spark.sql(text).collect())
        found["seconds"] = time.monotonic() - begun
        found["rows"] = spark.read.format("delta").load(given).count()
    """
    )
    found = run_client(server.url, program, str(path))
    assert "OPERATION_CANCELED" in found["error"]
    assert found["seconds"] < 45
    assert found["rows"] == 2
    assert versions(path) == 0


def test_a_client_that_dies_leaves_a_whole_version_or_none(server: Server, path: Path) -> None:
    program = (
        SLOW
        + """
        spark = connected()
        print("connected", flush=True)
        spark.sql(f"INSERT INTO delta.`{given}` " + slow.format(wait=3000)).collect()
    """
    )
    client = start_client(server.url, program, str(path))
    assert client.stdout is not None
    assert client.stdout.readline() == "connected\n"
    time.sleep(1)
    client.kill()
    client.communicate()
    rows = """
        found["rows"] = connected().read.format("delta").load(given).count()
    """
    wait_until(lambda: _is_whole(run_client(server.url, rows, str(path))["rows"], path), "whole")


def _is_whole(rows: int, path: Path) -> bool:
    return (rows, versions(path)) in ((2, 0), (3, 1))
