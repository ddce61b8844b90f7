"""`saveAsTable` and `insertInto`: modes, columns by name or position, what history says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta import enable
from pyspark_delta.errors import DeltaError, TableAlreadyExistsError, TableNotFoundError
from pyspark_delta.spark.tables.names import resolve_table, table_log
from tests.support.catalog_tables import own_database, rows


@pytest.fixture
def db(spark: SparkSession) -> Iterator[str]:
    enable(spark)
    with own_database(spark) as name:
        yield name


def pairs(spark: SparkSession, *values: tuple[int, str]) -> DataFrame:
    return spark.createDataFrame(list(values), "a INT, b STRING")


def test_the_four_modes(spark: SparkSession, db: str) -> None:
    first, second = pairs(spark, (1, "x")), pairs(spark, (2, "y"))
    first.write.format("delta").saveAsTable("t")
    with pytest.raises(TableAlreadyExistsError) as found:
        second.write.format("delta").saveAsTable("t")
    assert found.value.condition == "TABLE_OR_VIEW_ALREADY_EXISTS"
    second.write.format("delta").mode("ignore").saveAsTable("t")
    assert rows(spark.table("t")) == [(1, "x")]
    second.write.saveAsTable("t", format="delta", mode="append")
    assert rows(spark.table("t")) == [(1, "x"), (2, "y")]
    second.write.format("delta").mode("overwrite").saveAsTable(f"spark_catalog.{db}.t")
    assert rows(spark.table("t")) == [(2, "y")]
    operations = [info.operation for info in table_log(spark, "t").history()]
    assert operations == ["CREATE OR REPLACE TABLE AS SELECT", "WRITE", "CREATE TABLE AS SELECT"]


def test_columns_go_by_name_and_are_cast(spark: SparkSession, db: str) -> None:
    pairs(spark, (1, "x")).write.format("delta").saveAsTable("t")
    swapped = spark.sql("SELECT 'y' AS B, CAST(2 AS BIGINT) AS A")
    swapped.write.format("delta").mode("append").saveAsTable("t")
    assert rows(spark.table("t")) == [(1, "x"), (2, "y")]
    assert spark.table("t").schema == pairs(spark, (1, "x")).schema
    wider = spark.sql("SELECT 3 AS a, 'z' AS b, true AS c")
    with pytest.raises(DeltaError):
        wider.write.format("delta").mode("append").saveAsTable("t")
    wider.write.format("delta").mode("append").option("mergeSchema", True).saveAsTable("t")
    assert rows(spark.sql("SELECT a FROM t WHERE c")) == [(3,)]
    assert [c.name for c in spark.catalog.listColumns("t")] == ["a", "b", "c"]


def test_an_append_without_a_format_takes_the_tables(spark: SparkSession, db: str) -> None:
    pairs(spark, (1, "x")).write.format("delta").saveAsTable("t")
    pairs(spark, (2, "y")).write.mode("append").saveAsTable("t")
    assert spark.table("t").count() == 2


def test_a_path_makes_an_external_table(spark: SparkSession, db: str, table_path: Path) -> None:
    writer = pairs(spark, (1, "x")).write.format("delta").option("path", str(table_path))
    writer.option("comment", "c").option("delta.appendOnly", "true").partitionBy("b").saveAsTable(
        "t"
    )
    entry = resolve_table(spark, "t").entry
    assert entry is not None
    assert not entry.is_managed
    metadata = table_log(spark, "t").update().metadata
    assert (metadata.description, metadata.partition_columns) == ("c", ("b",))
    assert metadata.configuration["delta.appendOnly"] == "true"
    spark.sql("DROP TABLE t")
    assert spark.read.format("delta").load(str(table_path)).count() == 1
    with pytest.raises(TableAlreadyExistsError) as found:
        pairs(spark, (2, "y")).write.format("delta").option("path", str(table_path)).saveAsTable(
            "t"
        )
    assert found.value.condition == "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"


def test_a_table_of_another_format_is_not_overwritten(spark: SparkSession, db: str) -> None:
    pairs(spark, (1, "x")).write.format("parquet").saveAsTable("p")
    for mode in ("append", "overwrite"):
        with pytest.raises(TableAlreadyExistsError) as found:
            pairs(spark, (2, "y")).write.format("delta").mode(mode).saveAsTable("p")
        assert found.value.condition == "DELTA_NOT_A_DELTA_TABLE"
    with pytest.raises(DeltaError) as refused:
        pairs(spark, (1, "x")).write.format("delta").bucketBy(4, "a").saveAsTable("q")
    assert refused.value.condition == "DELTA_OPERATION_NOT_ALLOWED"


def test_insert_into_goes_by_position(spark: SparkSession, db: str, table_path: Path) -> None:
    pairs(spark, (1, "x")).write.format("delta").saveAsTable("t")
    spark.sql("SELECT CAST(2 AS BIGINT) AS b, 'y' AS a").write.insertInto("t")
    assert rows(spark.table("t")) == [(1, "x"), (2, "y")]
    pairs(spark, (3, "z")).write.insertInto("t", overwrite=True)
    pairs(spark, (4, "w")).write.mode("overwrite").insertInto(f"{db}.t")
    assert rows(spark.table("t")) == [(4, "w")]
    pairs(spark, (5, "v")).write.format("delta").save(str(table_path))
    pairs(spark, (6, "u")).write.insertInto(f"delta.`{table_path}`")
    assert spark.read.format("delta").load(str(table_path)).count() == 2
    with pytest.raises(TableNotFoundError):
        pairs(spark, (1, "x")).write.insertInto(f"delta.`{table_path}/none`")
    with pytest.raises(AnalysisException):
        pairs(spark, (1, "x")).write.insertInto("none")
    assert not (table_path / "none").exists()


def test_a_partition_at_a_time_is_overwritten(spark: SparkSession, db: str) -> None:
    pairs(spark, (1, "x"), (2, "y")).write.format("delta").partitionBy("b").saveAsTable("t")
    key = "spark.sql.sources.partitionOverwriteMode"
    spark.conf.set(key, "dynamic")
    try:
        pairs(spark, (3, "y")).write.insertInto("t", overwrite=True)
    finally:
        spark.conf.unset(key)
    assert rows(spark.table("t")) == [(1, "x"), (3, "y")]


def test_an_overwrite_keeps_the_table_and_replaces_its_rows(spark: SparkSession, db: str) -> None:
    spark.sql(
        "CREATE TABLE t (a INT NOT NULL, b STRING) USING delta PARTITIONED BY (b) COMMENT 'c' "
        "TBLPROPERTIES ('own' = '1')"
    )
    spark.sql("INSERT INTO t VALUES (1, 'x'), (2, 'y')")
    before = table_log(spark, "t").update().metadata
    writer = pairs(spark, (3, "z")).write.format("delta").mode("overwrite")
    writer.option("delta.appendOnly", "true").saveAsTable("t")
    assert table_log(spark, "t").update().metadata == before
    assert rows(spark.table("t")) == [(3, "z")]
    for data, condition in (
        (spark.sql("SELECT 1L AS a, 'x' AS b"), "DELTA_FAILED_TO_MERGE_FIELDS"),
        (spark.sql("SELECT 1 AS a"), "DELTA_PARTITION_COLUMN_NOT_FOUND"),
        (spark.sql("SELECT 1 AS a, 'x' AS b, 2 AS c"), "DELTA_METADATA_MISMATCH.SCHEMA_MISMATCH"),
    ):
        with pytest.raises(DeltaError) as found:
            data.write.format("delta").mode("overwrite").saveAsTable("t")
        assert found.value.condition == condition
    pairs(spark, (4, "z")).write.format("delta").mode("overwrite").option(
        "replaceWhere", "b = 'z'"
    ).saveAsTable("t")
    assert table_log(spark, "t").history(1)[0].operation == "WRITE"
    wider = spark.range(2).write.format("delta").mode("overwrite").option("overwriteSchema", True)
    wider.saveAsTable("t")
    after = table_log(spark, "t").update().metadata
    assert (after.description, dict(after.configuration)) == ("c", {"own": "1"})
    assert (after.partition_columns, spark.table("t").columns) == ((), ["id"])
