"""Switching from delta-spark by one line: other imports, a builder with its old configuration.

Each program runs by itself: modules and the first session of a process cannot be taken back.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_delta import configure_spark_with_delta_pip
from pyspark_delta.spark.delta_spark_confs import without_delta_spark

OLD = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )


def test_a_program_for_delta_spark_runs_behind_one_line(tmp_path: Path) -> None:
    program = """
import json, sys
path, old = sys.argv[1], json.loads(sys.argv[2])
import pyspark_delta; pyspark_delta.install_as_delta()

import delta
from delta import DeltaTable, configure_spark_with_delta_pip
from delta.tables import DeltaTable as same
from delta.exceptions import ConcurrentAppendException
from delta.exceptions.base import ConcurrentAppendException as base
from delta.exceptions.captured import ConcurrentAppendException as captured
from delta.pip_utils import configure_spark_with_delta_pip as too
from delta.tables import DeltaMergeBuilder, DeltaOptimizeBuilder, DeltaTableBuilder
from delta.tables import IdentityGenerator
from delta.version import __version__
import delta.tables
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config(map={
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.warehouse.dir": path + "/warehouse",
    **old,
})
try:
    builder.getOrCreate().range(1).count()
except Exception as error:
    print("DeltaCatalog" in str(error))
spark = configure_spark_with_delta_pip(builder).getOrCreate()
assert spark.range(3).count() == 3
spark.range(3).write.format("delta").save(path + "/tä ble 100%")
assert DeltaTable.forPath(spark, path + "/tä ble 100%").toDF().count() == 3
spark.range(2).write.format("delta").saveAsTable("t")
assert spark.table("t").count() == 2
assert spark.newSession().range(1).count() == 1
assert DeltaTable is same is delta.tables.DeltaTable is pyspark_delta.DeltaTable
assert ConcurrentAppendException is pyspark_delta.ConcurrentAppendException
assert base is captured is delta.exceptions.base.ConcurrentAppendException
assert base is ConcurrentAppendException
assert too is pyspark_delta.configure_spark_with_delta_pip
assert delta.__version__ == __version__ == "4.4.0"
assert isinstance(same.forName(spark, "t").optimize(), DeltaOptimizeBuilder)
print(spark.conf.get("spark.sql.catalog.spark_catalog", "none"))
"""
    done = run(program, str(tmp_path), json.dumps(OLD))
    assert done.returncode == 0, done.stderr
    # Without the JAR, Spark itself fails over the old configuration; behind the line it does not.
    assert done.stdout.split() == ["True", "none"]


def test_the_names_are_installed_once_and_before_delta_spark(tmp_path: Path) -> None:
    (tmp_path / "delta").mkdir()
    (tmp_path / "delta" / "__init__.py").write_text("")
    program = """
import importlib.util, sys
import pyspark_delta
pyspark_delta.install_as_delta()
import delta
pyspark_delta.install_as_delta()
assert sys.modules["delta"] is delta
assert importlib.util.find_spec("delta") is delta.__spec__
for missing in ("delta.connect", "delta.nothing"):
    try:
        __import__(missing)
    except ModuleNotFoundError:
        continue
    raise AssertionError(missing)
for name in ("delta", "delta.tables", "delta.exceptions", "delta.pip_utils"):
    del sys.modules[name]
sys.path.insert(0, sys.argv[1])
import delta
try:
    pyspark_delta.install_as_delta()
except pyspark_delta.DeltaError as error:
    print(error.condition, sys.argv[1] in str(error))
"""
    done = run(program, str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["DELTA_PACKAGE_IMPORTED_ALREADY", "True"]


def test_a_builder_keeps_what_is_not_delta_sparks() -> None:
    given = {
        "spark.sql.extensions": "mine.X, io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.jars.packages": "io.delta:delta-spark_2.13:4.0.0,org.example:x:1",
        "spark.app.name": "a",
    }
    assert without_delta_spark(given) == {
        "spark.sql.extensions": "mine.X",
        "spark.jars.packages": "org.example:x:1",
        "spark.app.name": "a",
    }
    others = {"spark.sql.catalog.spark_catalog": "mine.Catalog", "spark.jars.packages": "a:b:1"}
    assert without_delta_spark(others) == others
    assert without_delta_spark({"spark.jars.packages": "io.delta:delta-core_2.12:2.4.0"}) == {}


def test_a_builder_is_asked_for_and_given_back() -> None:
    builder = SparkSession.builder
    wanted = ["org.example:x:1", "org.example:y:2"]
    assert configure_spark_with_delta_pip(builder, wanted) is builder
    assert builder._options["spark.jars.packages"] == "org.example:x:1,org.example:y:2"
    plain = SparkSession.builder
    assert configure_spark_with_delta_pip(configure_spark_with_delta_pip(plain)) is plain
    assert "spark.jars.packages" not in plain._options
    for wrong in (None, SparkSession, "builder"):
        with pytest.raises(TypeError, match="builder"):
            configure_spark_with_delta_pip(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="extra_packages"):
        configure_spark_with_delta_pip(plain, "org.example:x:1")


def test_a_builder_gives_an_enabled_session(spark: SparkSession, table_path: Path) -> None:
    builder = configure_spark_with_delta_pip(SparkSession.builder).config(map=OLD)
    session = builder.getOrCreate()
    assert session is spark
    for key in OLD:  # what is said after the call is dropped too
        assert key not in builder._options
        assert session.conf.get(key, "none") == "none"
    session.range(2).write.format("delta").save(str(table_path))
    assert session.read.format("delta").load(str(table_path)).count() == 2
