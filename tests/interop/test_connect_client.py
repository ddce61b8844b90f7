"""delta-spark's own client of Spark Connect against a server of ours."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from tests.support.connect_client import ConnectClient, in_client
from tests.support.delta_server import Server
from tests.support.peer import ENVIRONMENT, is_prepared


@pytest.fixture(scope="module")
def connect_client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConnectClient]:
    """A client whose package `delta` is delta-spark's."""
    if not is_prepared():
        pytest.skip("delta-spark is not prepared")
    server: Server = request.getfixturevalue("delta_server")
    home = tmp_path_factory.mktemp("delta-spark")
    (package,) = (ENVIRONMENT / "lib").glob("python3*/site-packages/delta")
    (home / "delta").symlink_to(package)
    client = ConnectClient(server.url, home / "stderr", home)
    yield client
    client.stop()


def theirs() -> Any:
    """delta-spark's class for clients."""
    return import_module("delta.connect.tables").DeltaTable


def made(spark: Any, path: Path) -> Any:
    """A table of ids from 0 to 4, with a text beside each."""
    builder = theirs().create(spark).location(str(path))
    table = builder.addColumn("id", "BIGINT").addColumn("text", "STRING").execute()
    rows = spark.range(5).selectExpr("id", "concat('no ', id) AS text").coalesce(1)
    rows.write.format("delta").mode("append").save(str(path))
    return table


def ids(table: Any) -> list[int]:
    """The ids of a table, in order."""
    return sorted(row.id for row in table.toDF().collect())


@in_client
def test_their_client_reads_and_describes(spark: Any, path: Path) -> None:
    table = made(spark, path)
    assert ids(table) == [0, 1, 2, 3, 4]
    assert [row.version for row in table.history().collect()] == [1, 0]
    assert table.detail().collect()[0].numFiles == 1
    assert theirs().isDeltaTable(spark, str(path))
    assert not theirs().isDeltaTable(spark, f"{path} missing")
    assert ids(theirs().forName(spark, f"delta.`{path}`")) == [0, 1, 2, 3, 4]


@in_client
def test_their_client_changes_rows(spark: Any, path: Path) -> None:
    table = made(spark, path)
    assert table.delete("id = 0").collect()[0][0] == 1
    table.update(F.col("id") == 1, {"text": F.lit("x")})
    source = spark.createDataFrame([(2, "two"), (9, "nine")], "id BIGINT, text STRING")
    merge = table.alias("t").merge(source.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().whenNotMatchedBySourceDelete(
        "t.id = 4"
    ).execute()
    texts = {row.id: row.text for row in table.toDF().collect()}
    assert texts == {1: "x", 2: "two", 3: "no 3", 9: "nine"}


@in_client
def test_their_client_sees_new_columns_of_a_merge(spark: Any, path: Path) -> None:
    table = made(spark, path)
    assert ids(table) == [0, 1, 2, 3, 4]
    source = spark.createDataFrame([(7, "s", 1)], "id BIGINT, text STRING, n INT")
    merge = table.alias("t").merge(source.alias("s"), "t.id = s.id").withSchemaEvolution()
    merge.whenNotMatchedInsertAll().execute()
    assert table.toDF().columns == ["id", "text", "n"]


@in_client
def test_their_client_maintains_tables(spark: Any, path: Path) -> None:
    table = made(spark, path)
    table.delete("id = 0")
    assert table.optimize().executeCompaction().count() == 1
    assert table.optimize().executeZOrderBy("id").count() == 1
    table.vacuum()
    table.restoreToVersion(1)
    assert ids(table) == [0, 1, 2, 3, 4]
    clone = table.clone(f"delta.`{path} clone`", isShallow=True)
    assert ids(clone) == [0, 1, 2, 3, 4]
    table.generate("symlink_format_manifest")
    table.upgradeTableProtocol(2, 5)
    table.addFeatureSupport("deletionVectors")
    assert "deletionVectors" in table.detail().collect()[0].tableFeatures


@in_client
def test_their_client_converts_parquet(spark: Any, path: Path) -> None:
    spark.range(4).selectExpr("id", "id % 2 AS p").write.partitionBy("p").parquet(str(path))
    table = theirs().convertToDelta(spark, f"parquet.`{path}`", "p BIGINT")
    assert ids(table) == [0, 1, 2, 3]
