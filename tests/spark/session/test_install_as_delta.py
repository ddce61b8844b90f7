"""Switching from delta-spark by one line: other imports, a builder with its old configuration.

Each program runs by itself: modules and the first session of a process cannot be taken back.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_delta import configure_spark_with_delta_pip, enable
from pyspark_delta.spark.session.delta_spark_settings import without_delta_spark

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
import json, pathlib, sys, warnings
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
# As the quickstart, dbt and many a conftest have it: a builder, and nothing around it.
spark = SparkSession.builder.master("local[1]").config(map={
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.warehouse.dir": path + "/warehouse",
    **old,
}).getOrCreate()
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
from importlib.metadata import distribution, packages_distributions, version
assert version("delta-spark") == version("delta_spark") == "4.4.0"
assert distribution("delta-spark").metadata["Name"] in packages_distributions()["delta"]
print(spark.conf.get("spark.sql.catalog.spark_catalog", "none"))
for _ in range(2):  # builders go on to enable sessions when none is enabled any more
    pyspark_delta.disable(spark)
    assert SparkSession.builder.config(map=old).getOrCreate() is spark
    assert spark.table("t").count() == 2

# A class of delta-spark's name, where a JAR of it would be.
compiler = spark._jvm.org.codehaus.janino.SimpleCompiler()
compiler.cook("package io.delta.sql; public class DeltaSparkSessionExtension {}")
place = pathlib.Path(path, "delta-spark/io/delta/sql/DeltaSparkSessionExtension.class")
place.parent.mkdir(parents=True)
place.write_bytes(compiler.getBytecodes()["io.delta.sql.DeltaSparkSessionExtension"])
loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
loader.addURL(spark._jvm.java.io.File(path + "/delta-spark/").toURI().toURL())
with warnings.catch_warnings(record=True) as caught:
    spark.newSession().sql("SELECT 1")
print("delta-spark's JAR is on the class path" in str(caught[0].message), len(caught))
"""
    packages = {"spark.jars.packages": "io.delta:delta-spark_4.3_2.13:4.4.0"}
    done = run(program, str(tmp_path), json.dumps(OLD | packages))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["none", "True", "1"]


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


@pytest.mark.parametrize("way", ["a builder", "spark.conf.set", "SET"])
def test_spark_tables_work_on_after_delta_sparks_catalog_is_named(
    spark: SparkSession, way: str
) -> None:
    session = enable(spark)
    key, catalog = "spark.sql.catalog.spark_catalog", OLD["spark.sql.catalog.spark_catalog"]
    session.sql("CREATE TABLE plain (id INT, p INT) USING parquet PARTITIONED BY (p)")
    session.sql("INSERT INTO plain VALUES (1, 1)")
    if way == "a builder":
        assert SparkSession.builder.config(map=OLD).getOrCreate() is session
    elif way == "spark.conf.set":
        session.conf.set(key, catalog)
    else:
        session.sql(f"SET {key}={catalog}")
    assert session.conf.get(key, "none") == "none"
    assert session.sql("SHOW TABLE EXTENDED LIKE 'plain'").count() == 1
    session.sql("ALTER TABLE plain ADD PARTITION (p = 2)")
    assert session.sql("SHOW PARTITIONS plain").count() == 2
    session.sql("ANALYZE TABLE plain COMPUTE STATISTICS")
    session.sql("TRUNCATE TABLE plain")
    assert session.table("plain").count() == 0


def test_a_dropped_setting_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    package = "io.delta:delta-iceberg_2.13:4.4.0"
    with caplog.at_level(logging.INFO, "pyspark_delta"):
        assert without_delta_spark({"spark.jars.packages": f"{package}, a:b:1"}) == {
            "spark.jars.packages": "a:b:1"
        }
    assert [record.getMessage() for record in caplog.records] == [
        f"spark.jars.packages={package} is dropped: pyspark_delta needs no class of delta-spark."
    ]


def test_the_version_of_an_installed_delta_spark_is_its_own(tmp_path: Path) -> None:
    installed = tmp_path / "delta_spark-3.9.9.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: delta-spark\nVersion: 3.9.9\n"
    )
    program = """
import sys
import pyspark_delta
sys.path.append(sys.argv[1])
pyspark_delta.install_as_delta()
import delta
from importlib.metadata import version
print(version("delta-spark"), delta.__version__)
"""
    done = run(program, str(tmp_path))
    assert done.stdout.split() == ["3.9.9", "4.4.0"], done.stderr
