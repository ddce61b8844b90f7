"""Clients that die, cancel, send garbage, come in numbers: server and tables stay whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_delta import DeltaLog
from tests.support.agreement import live_paths
from tests.support.connect_client import ConnectClient, in_client
from tests.support.damaged_messages import damaged, known_conditions, send, valid_messages
from tests.support.delta_server import (
    Server,
    footprint,
    found_in,
    run_client,
    start_client,
    wait_until,
)

# A row that takes its time, and none of it on a core; rows before it are in a file by then.
SLOW = """
        sleep = "reflect('java.lang.Thread', 'sleep', IF(id < 20000, 0L, {wait}L) + id % 2)"
        slow = "SELECT id, " + sleep + " AS s FROM range(0, 20001, 1, 1)"
"""


@pytest.fixture(scope="module")
def connect_client(
    delta_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConnectClient]:
    client = ConnectClient(delta_server.url, tmp_path_factory.mktemp("client") / "stderr")
    yield client
    client.stop()


@pytest.fixture
def path(delta_server: Server, table_path: Path) -> Path:
    program = """
        rows = connected().range(2).selectExpr("id", "cast(null as string) AS s")
        feed = "delta.enableChangeDataFeed"
        rows.write.format("delta").option(feed, "true").save(given)
    """
    run_client(delta_server.url, program, str(table_path))
    return table_path


def versions(path: Path) -> int:
    return DeltaLog.for_table(str(path)).update().version


def orphans(path: Path) -> set[str]:
    """Data files that no version has; a job's directory of its own is one, too."""
    live = {Path(each).name for each in live_paths(DeltaLog.for_table(str(path)).update())}
    found = {each.name for each in path.rglob("*") if "_delta_log" not in each.parts}
    return {name for name in found - live if not name.endswith(".crc")}


def test_garbage_as_a_message_of_delta_is_an_error_of_that_statement(
    delta_server: Server, path: Path
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
    found = run_client(delta_server.url, program, str(path))
    assert found["accepted"] == 0, found["kinds"]
    assert found["rows"] == 2
    assert not [kind for kind in found["kinds"] if "Traceback" in kind or "KeyError" in kind]
    assert versions(path) == 0


@in_client
def test_damaged_messages_of_each_kind_are_errors_with_a_condition(spark: Any, path: Path) -> None:
    name = str(path)
    spark.range(4).selectExpr("id", "'x' AS text").write.format("delta").save(name)
    outcomes = {}
    for kind, operation, message in valid_messages(spark, path):
        for number, bad in enumerate(damaged(message, keep=name.encode(), count=4)):
            outcomes[operation, number] = send(spark, kind, bad)
    assert len(outcomes) > 60
    refused = {case: found for case, found in outcomes.items() if found is not None}
    assert len(refused) > len(outcomes) // 2
    odd = {case: found for case, found in refused.items() if not (found[0] and found[1])}
    assert odd == {}, odd
    unknown = {condition for condition, _ in refused.values()} - known_conditions()
    assert unknown == set(), unknown
    assert spark.sql("SELECT 1").collect()[0][0] == 1


def test_a_statement_that_is_cancelled_commits_nothing(delta_server: Server, path: Path) -> None:
    program = (
        SLOW
        + """
        spark = connected()
        begun = []
        def cancel():
            time.sleep(3)
            begun.append(time.monotonic())
            spark.interruptAll()
        threading.Thread(target=cancel).start()
        text = f"INSERT INTO delta.`{given}` " + slow.format(wait=60000)
        found["error"] = failure(lambda: spark.sql(text).collect())
        found["seconds"] = time.monotonic() - begun[0]
        found["rows"] = spark.read.format("delta").load(given).count()
    """
    )
    found = run_client(delta_server.url, program, str(path))
    assert "OPERATION_CANCELED" in found["error"]
    assert found["seconds"] <= 5
    assert found["rows"] == 2
    wait_until(delta_server.is_idle, "no job runs")
    assert versions(path) == 0
    wait_until(lambda: not orphans(path), "no file is left", 20)


def test_a_client_that_dies_leaves_a_whole_version_or_none(
    delta_server: Server, path: Path
) -> None:
    wait_until(delta_server.is_idle, "nothing runs before")
    python = delta_server.process.pid
    threads = footprint(python)["threads"]
    program = (
        SLOW
        + """
        spark = connected()
        print("connected", flush=True)
        spark.sql(f"INSERT INTO delta.`{given}` " + slow.format(wait=2500)).collect()
    """
    )
    for _ in range(2):
        client = start_client(delta_server.url, program, str(path))
        try:
            assert client.stdout is not None
            assert client.stdout.readline() == "connected\n"
            wait_until(lambda: not delta_server.is_idle(), "the statement runs")
        finally:
            client.kill()
            client.communicate()
    wait_until(delta_server.is_idle, "no job and no query runs")
    whole = versions(path)
    assert whole in range(3)
    found = run_client(
        delta_server.url,
        "found['rows'] = connected().read.format('delta').load(given).count()",
        str(path),
    )
    assert found["rows"] == 2 + whole * 20_001
    assert orphans(path) == set()
    wait_until(lambda: footprint(python)["threads"] <= threads + 4, "threads are back")


def test_a_conflict_of_two_clients_has_its_condition(delta_server: Server, path: Path) -> None:
    slow = (
        SLOW
        + """
        spark = connected()
        print("connected", flush=True)
        try:
            spark.sql(f"INSERT INTO delta.`{given}` " + slow.format(wait=8000)).collect()
        except PySparkException as error:
            found["condition"] = error.getCondition()
            found["state"] = error.getSqlState()
            found["class"] = type(error).__name__
    """
    )
    wait_until(delta_server.is_idle, "nothing runs before")
    client = start_client(delta_server.url, slow, str(path))
    try:
        assert client.stdout is not None
        assert client.stdout.readline() == "connected\n"
        wait_until(lambda: not delta_server.is_idle(), "the statement runs", 30)
        other = """
            text = f"ALTER TABLE delta.`{given}` SET TBLPROPERTIES ('user.x' = '1')"
            connected().sql(text).collect()
        """
        run_client(delta_server.url, other, str(path))
        output, errors = client.communicate(timeout=120)
    finally:
        client.kill()
    assert client.returncode == 0, errors
    found = found_in(output)
    assert found["condition"] == "DELTA_METADATA_CHANGED"
    assert found["state"] == "2D521"
    assert versions(path) == 1
