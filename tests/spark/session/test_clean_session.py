"""The session that tests share, after a test that leaves everything lying about."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType

from pyspark_delta import enable
from pyspark_delta.spark.conf.setting_table import ENABLED
from tests.support.clean_session import kept_clean

KEY = "spark.sql.ansi.enabled"
OWN = "spark.databricks.delta.nobody.reads.this"


def leave_everything(spark: SparkSession, path: Path) -> None:
    spark.conf.set(KEY, "false")
    spark.conf.set(OWN, "1")
    spark.conf.unset("spark.sql.session.timeZone")
    spark.range(3).createOrReplaceTempView("a_view")
    spark.range(3).createOrReplaceGlobalTempView("a_view")
    spark.sql("CACHE TABLE a_cached_view AS SELECT 1 AS x")
    spark.sql("CREATE TABLE a_table (id INT) USING delta")
    spark.sql("INSERT INTO a_table VALUES (1)")
    spark.range(2).write.saveAsTable("a_parquet_table")
    spark.table("a_parquet_table").cache().count()
    spark.sql("CREATE VIEW a_stored_view AS SELECT * FROM a_table")
    spark.udf.register("a_function", lambda x: x, IntegerType())
    spark.sql("DECLARE VARIABLE a_variable INT DEFAULT 1")
    spark.sql("CREATE DATABASE a_database")
    spark.sql("CREATE TABLE a_database.t (id INT) USING delta")
    stream = spark.readStream.format("rate").load().writeStream.format("noop")
    stream.option("checkpointLocation", str(path)).start()
    spark.sql("USE a_database")


def names(spark: SparkSession, statement: str, column: str) -> set[str]:
    return {row[column] for row in spark.sql(statement).collect()}


def test_nothing_of_a_test_is_left(spark: SparkSession, tmp_path: Path) -> None:
    settings = dict(spark.conf.getAll)
    with kept_clean(spark):
        leave_everything(spark, tmp_path / "checkpoint")
        assert len(spark.streams.active) == 1
        assert len(names(spark, "SHOW TABLES IN default", "tableName")) == 5
    assert dict(spark.conf.getAll) == settings
    assert spark.conf.get(ENABLED.key) == "true"
    assert spark.catalog.currentDatabase() == "default"
    assert names(spark, "SHOW DATABASES", "namespace") == {"default"}
    assert names(spark, "SHOW TABLES", "tableName") == set()
    assert names(spark, "SHOW TABLES IN global_temp", "tableName") == set()
    assert names(spark, "SHOW USER FUNCTIONS LIKE 'a_*'", "function") == set()
    assert spark.streams.active == []
    assert spark._jsparkSession.sharedState().cacheManager().isEmpty()
    spark.sql("DECLARE VARIABLE a_variable INT DEFAULT 1")  # it would be there already
    # Nor is anything in the way of the same names.
    spark.sql("CREATE TABLE a_table (other STRING) USING delta")
    assert spark.table("a_table").columns == ["other"]
    spark.sql("CREATE TABLE a_parquet_table (other STRING) USING parquet")
    assert spark.table("a_parquet_table").count() == 0


def test_what_was_there_before_stays(spark: SparkSession) -> None:
    spark.conf.set(OWN, "mine")
    spark.sql("CREATE TABLE of_the_module (id INT) USING delta")
    spark.udf.register("of_the_module", lambda x: x, IntegerType())
    spark.sql("DECLARE VARIABLE of_the_module INT DEFAULT 7")
    with kept_clean(spark):
        spark.conf.unset(OWN)
        spark.sql("INSERT INTO of_the_module VALUES (1)")
    assert spark.conf.get(OWN) == "mine"
    assert enable(spark).sql("SELECT of_the_module AS v FROM of_the_module").collect() == [(7,)]
    assert names(spark, "SHOW USER FUNCTIONS LIKE 'of_the_*'", "function") != set()
