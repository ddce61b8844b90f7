"""Many sessions and statements: memory, threads and open files of a server come back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.delta_server import CLIENT_PACKAGES, Server, footprint, json_of, start_client

ROUNDS = 10
# What the last half may grow by, in KiB and pieces.  Spark keeps some of each session by itself.
FLAT = {
    "heap": 30_000,
    "memory of Python": 12_000,
    "memory of Java": 60_000,
    "threads of Python": 15,
    "threads of Java": 25,
    "files": 40,
}
# The sessions that were called last have a Python side: fifty do not reach that bound yet.
FILLING = {
    "heap": 20_000,
    "memory of Python": 16_000,
    "memory of Java": 60_000,
    "threads of Python": 45,
    "threads of Java": 70,
    "files": 110,
}
# Sessions of a round come beside each other, are used, and end; every one has five statements.
ROUND = """
    from concurrent.futures import ThreadPoolExecutor
    path, sessions = given["path"], given["sessions"]
    name = f"delta.`{path}`"
    first = connected()
    first.sql(f"CREATE TABLE {name} (id BIGINT, n INT) USING delta")
    def use(number):
        spark = connected()
        try:
            spark.sql(f"INSERT INTO {name} VALUES ({number}, 0)").collect()
            spark.sql(f"SELECT count(*) FROM {name} WHERE id = {number}").collect()
            frame = spark.read.format("delta").load(path).where(f"id = {number}")
            frame.createOrReplaceTempView("mine")
            spark.sql("SELECT n FROM mine").collect()
            spark.sql(f"DESCRIBE HISTORY {name} LIMIT 1").collect()
            return failure(lambda: spark.sql(f"DELETE FROM {name} WHERE nothing = 1")) is not None
        finally:
            spark.stop()
    def collect_garbage():
        spark = connected()
        for _ in range(2):
            spark.sql("SELECT reflect('java.lang.System', 'gc')").collect()
            time.sleep(0.2)
        spark.stop()
    number = 0
    with ThreadPoolExecutor(2) as pool:
        while sys.stdin.readline():
            numbers = range(number, number + sessions)
            number += sessions
            assert all(pool.map(use, numbers))
            first.sql(f"CREATE OR REPLACE TABLE {name} (id BIGINT, n INT) USING delta").collect()
            first.sql(f"VACUUM {name}").collect()
            collect_garbage()
            print("round", flush=True)
"""


def measures(server: Server) -> dict[str, int]:
    """What a server holds, after its garbage was collected."""
    gauges = json_of(f"{server.pages}/metrics/json/")["gauges"]
    [heap] = [row["value"] for key, row in gauges.items() if key.endswith(".heap.used")]
    python, java = footprint(server.process.pid), footprint(server.jvm)
    return {
        "heap": heap // 1024,
        "memory of Python": python["memory"],
        "memory of Java": java["memory"],
        "threads of Python": python["threads"],
        "threads of Java": java["threads"],
        "files": python["files"] + java["files"],
    }


@pytest.mark.skipif(
    not CLIENT_PACKAGES.is_dir(), reason="the packages of a Spark Connect client are not installed"
)
@pytest.mark.parametrize(
    "sessions", [5, pytest.param(100, marks=pytest.mark.slow)], ids=["fifty", "a thousand"]
)
def test_sessions_that_end_leave_nothing(
    delta_server: Server, table_path: Path, sessions: int
) -> None:
    client = start_client(delta_server.url, ROUND, {"path": str(table_path), "sessions": sessions})
    found: list[dict[str, int]] = []
    try:
        assert client.stdin is not None
        assert client.stdout is not None
        for _ in range(ROUNDS):
            client.stdin.write("\n")
            client.stdin.flush()
            assert client.stdout.readline() == "round\n", client.communicate()[1]
            found.append(measures(delta_server))
    finally:
        client.kill()
        client.communicate()
    print(*found, sep="\n")  # for those who look
    half = found[ROUNDS // 2 :]
    allowed = FLAT if sessions >= 100 else FILLING
    grown = {key: half[-1][key] - half[0][key] for key in allowed}
    assert {key: value for key, value in grown.items() if value > allowed[key]} == {}, found
