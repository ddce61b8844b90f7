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
spark = start_session("delta", {})
spark.range(3).write.format("delta").save(path)
print(spark.sql(f"DESCRIBE HISTORY delta.`{path}`").first().engineInfo)
"""


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
    done = subprocess.run(
        [str(ENVIRONMENT / "bin" / "python"), "-c", _PROGRAM, str(table_path)],
        cwd=ROOT,
        env={**os.environ, "PYSPARK_DELTA": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "pyspark-delta" in done.stdout
    assert done.stderr.count("delta-spark's JAR is on the class path") == 1


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
