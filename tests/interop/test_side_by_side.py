"""Both packages in one environment: who has a session whose builder names delta-spark's classes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pyspark_delta.spark.session.delta_spark_settings import names_jar
from tests.support.peer import ENVIRONMENT, ROOT, Peer

_PROGRAM = """
import sys
from tests.support.peer_process import start_session

path = sys.argv[1]
spark = start_session("delta", {"spark.sql.warehouse.dir": path + " warehouse"})
spark.range(3).write.format("delta").save(path)
spark.newSession().sql(f"INSERT INTO delta.`{path}` VALUES (3)")
copy, checkpoint = path + " cöpy", path + " checkpoint"
rows = spark.readStream.format("delta").load(path)
stream = rows.writeStream.format("DELTA").option("checkpointLocation", checkpoint)
stream.option("userMetadata", "a str\u00e9am").trigger(availableNow=True)
stream.start(copy).awaitTermination()
halves = rows.selectExpr("id", "id % 2 AS half")
stream = halves.writeStream.format("delta").partitionBy("half")
stream = stream.option("checkpointLocation", checkpoint + " of a table").option("path", copy + " 2")
stream.trigger(availableNow=True).toTable("streamed").awaitTermination()
assert spark.table("streamed").count() == spark.read.format("delta").load(copy).count() == 4
for table in (f"delta.`{path}`", f"delta.`{copy}`", "streamed"):
    for row in spark.sql(f"DESCRIBE HISTORY {table}").collect():
        print(row.engineInfo, row.operation, row.userMetadata, sep="|")
print(spark.sql("DESCRIBE DETAIL streamed").first().partitionColumns)
"""
_SERVER = """
import json, subprocess, sys
from tests.support.peer_process import delta_spark_settings

given = ["--port", "0", "--master", "local[1]", "--conf", "spark.ui.enabled=false"]
given += ["--conf", "spark.jars=" + delta_spark_settings()["spark.jars"]]
server = subprocess.Popen(
    [sys.executable, "-m", "pyspark_delta.server", *given],
    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
)
print(server.stdout.readline().startswith("sc://"))
server.terminate()
print(server.communicate(timeout=60)[1], file=sys.stderr)
sys.exit(server.returncode)
"""
_WARNING = "delta-spark's JAR is on the class path"


def run(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program in the peer's environment, with the package of this tree."""
    return subprocess.run(
        [str(ENVIRONMENT / "bin" / "python"), "-c", program, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_session_with_delta_spark_s_jar_stays_its_own(peer: Peer) -> None:
    """The peer's environment has this package too, and its builder names both classes."""
    started = "import sys\nresult = '_pyspark_delta_startup' in sys.modules"
    assert peer.python(started)
    catalog = "result = spark.conf.get('spark.sql.catalog.spark_catalog')"
    assert peer.python(catalog) == "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    assert (
        peer.python("import sys\nresult = 'pyspark_delta.spark.session.enable' in sys.modules")
        is False
    )


def test_configuration_gives_it_to_this_package_with_a_warning(
    peer: Peer, table_path: Path
) -> None:
    """Spark finds the JAR's data source first, for batches and for streams."""
    done = run(_PROGRAM, str(table_path), PYSPARK_DELTA="1")
    assert done.returncode == 0, done.stderr
    *history, partitions = done.stdout.splitlines()
    assert all(line.startswith("pyspark-delta/") for line in history)
    operations = [line.split("|")[1:] for line in history]
    assert ["STREAMING UPDATE", "a stréam"] in operations
    assert len([name for name, _ in operations if name == "STREAMING UPDATE"]) == 2
    assert partitions == "['half']"
    assert done.stderr.count(_WARNING) == 1


def test_a_server_with_the_jar_warns_in_one_line(peer: Peer) -> None:
    done = run(_SERVER)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True\n"
    [line] = [line for line in done.stderr.splitlines() if _WARNING in line]
    assert line.startswith(f"pyspark-delta server: {_WARNING}")
    assert ". " not in line
    assert line.endswith(".")


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("spark.jars", "/jars/other.jar,/jars/delta-spark_4.2_2.13-4.4.0.jar", True),
        ("spark.jars.packages", "io.delta:delta-spark_2.13:4.0.0", True),
        ("spark.jars.packages", "io.delta:delta-core_2.12:2.4.0", True),
        ("spark.driver.extraClassPath", "/opt/delta-spark_2.12-3.3.2.jar:/opt/conf", True),
        ("spark.jars.packages", "io.delta:delta-sharing-spark_2.13:1.2.0", False),
        ("spark.jars", "/jars/pyspark-delta.jar", False),
        ("spark.app.name", "delta-spark_2.13", False),
    ],
)
def test_a_jar_is_found_in_the_settings_that_bring_it(key: str, value: str, expected: bool) -> None:
    assert names_jar(lambda name: value if name == key else "") == expected
