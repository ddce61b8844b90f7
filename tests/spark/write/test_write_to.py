"""`df.writeTo(table)`: every verb, for names and for paths."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, partitioning

from pyspark_delta import DeltaLog, enable
from pyspark_delta.errors import DeltaError, TableAlreadyExistsError, TableNotFoundError
from pyspark_delta.kernel.protocol.domains import clustering_columns
from pyspark_delta.spark.tables.names import resolve_table, table_log
from tests.support.catalog_tables import own_database, rows


@pytest.fixture
def db(spark: SparkSession) -> Iterator[str]:
    enable(spark)
    with own_database(spark) as name:
        yield name


def pairs(spark: SparkSession, *values: tuple[int, str]) -> DataFrame:
    return spark.createDataFrame(list(values), "a INT, b STRING")


def test_create_says_what_the_table_is(spark: SparkSession, db: str, table_path: Path) -> None:
    writer = pairs(spark, (1, "x")).writeTo("t").using("delta").partitionedBy(col("b"))
    writer.tableProperty("delta.appendOnly", "true").tableProperty("comment", "hello")
    writer.tableProperty("location", str(table_path)).option("userMetadata", "me").create()
    metadata = table_log(spark, "t").update().metadata
    assert (metadata.partition_columns, metadata.description) == (("b",), "hello")
    assert dict(metadata.configuration) == {"delta.appendOnly": "true"}
    entry = resolve_table(spark, "t").entry
    assert entry is not None
    assert not entry.is_managed
    [info] = table_log(spark, "t").history()
    assert (info.operation, info.user_metadata) == ("CREATE TABLE AS SELECT", "me")
    assert json.loads((info.operation_parameters or {})["partitionBy"]) == ["b"]
    with pytest.raises(TableAlreadyExistsError) as found:
        pairs(spark, (1, "x")).writeTo("t").using("delta").create()
    assert found.value.condition == "TABLE_OR_VIEW_ALREADY_EXISTS"


def test_replace_makes_another_table(spark: SparkSession, db: str) -> None:
    with pytest.raises(TableNotFoundError) as found:
        pairs(spark, (1, "x")).writeTo("t").using("delta").replace()
    assert found.value.condition == "TABLE_OR_VIEW_NOT_FOUND"
    pairs(spark, (1, "x")).writeTo("t").using("delta").createOrReplace()
    first = table_log(spark, "t").update().metadata.id
    spark.range(2).writeTo("t").using("delta").createOrReplace()
    assert (spark.table("t").columns, spark.table("t").count()) == (["id"], 2)
    assert table_log(spark, "t").update().metadata.id != first
    pairs(spark, (3, "z")).writeTo("t").replace()
    assert rows(spark.table("t")) == [(3, "z")]
    operations = [info.operation for info in table_log(spark, "t").history()]
    assert operations == [
        "REPLACE TABLE AS SELECT",
        "CREATE OR REPLACE TABLE AS SELECT",
        "CREATE OR REPLACE TABLE AS SELECT",
    ]


def test_rows_are_added_and_overwritten(spark: SparkSession, db: str) -> None:
    pairs(spark, (1, "x"), (2, "y")).writeTo("t").using("delta").partitionedBy("b").create()
    spark.sql("SELECT 'y' AS b, CAST(3 AS BIGINT) AS a").writeTo("t").append()
    assert rows(spark.table("t")) == [(1, "x"), (2, "y"), (3, "y")]
    pairs(spark, (4, "y")).writeTo("t").overwrite(col("b") == "y")
    assert rows(spark.table("t")) == [(1, "x"), (4, "y")]
    pairs(spark, (5, "y"), (6, "z")).writeTo("t").overwritePartitions()
    assert rows(spark.table("t")) == [(1, "x"), (5, "y"), (6, "z")]
    with pytest.raises(DeltaError):
        pairs(spark, (7, "q")).writeTo("t").overwrite(col("b") == "y")
    with pytest.raises(DeltaError) as found:
        pairs(spark, (7, "q")).writeTo("t").option("replaceWhere", "a = 1").overwrite(col("a") == 1)
    assert found.value.condition == "DELTA_REPLACE_WHERE_IN_OVERWRITE"
    with pytest.raises(AnalysisException):
        pairs(spark, (7, "q")).writeTo("none").append()


def test_paths_are_written_without_the_catalog(
    spark: SparkSession, db: str, table_path: Path
) -> None:
    name = f"delta.`{table_path}`"
    with pytest.raises(TableNotFoundError):
        pairs(spark, (1, "x")).writeTo(name).append()
    assert not table_path.exists()
    pairs(spark, (1, "x")).writeTo(name).using("delta").create()
    pairs(spark, (2, "y")).writeTo(name).append()
    pairs(spark, (1, "z")).writeTo(name).overwrite(col("a") == 1)
    assert rows(spark.table(name)) == [(1, "z"), (2, "y")]
    spark.range(1).writeTo(name).using("delta").createOrReplace()
    assert DeltaLog.for_table(table_path).update().metadata.schema.names == ("id",)
    assert [each for each in spark.catalog.listTables() if not each.isTemporary] == []


def test_clustering_columns_are_kept(spark: SparkSession, db: str) -> None:
    pairs(spark, (1, "x")).writeTo("t").using("delta").clusterBy("a", "b").create()
    snapshot = table_log(spark, "t").update()
    assert clustering_columns(snapshot.domains) == (("a",), ("b",))
    pairs(spark, (1, "x")).write.format("delta").clusterBy("b").saveAsTable("u")
    assert clustering_columns(table_log(spark, "u").update().domains) == (("b",),)
    assert [c.isCluster for c in spark.catalog.listColumns("u")] == [False, True]


def test_partitions_by_expressions_are_refused(spark: SparkSession, db: str) -> None:
    data = spark.sql("SELECT 1 AS a, DATE'2024-01-01' AS d")
    for transform in (partitioning.years("d"), partitioning.bucket(4, "a")):
        with pytest.raises(DeltaError) as found:
            data.writeTo("t").using("delta").partitionedBy(transform).create()
        assert found.value.condition == "DELTA_OPERATION_NOT_ALLOWED"
    with pytest.raises(DeltaError) as incompatible:
        data.writeTo("t").using("delta").option("replaceUsing", "a").create()
    assert (
        incompatible.value.condition == "DELTA_DFV2_CREATE_REPLACE_INCOMPATIBLE_REPLACE_ON_OR_USING"
    )
    assert [each for each in spark.catalog.listTables() if not each.isTemporary] == []
