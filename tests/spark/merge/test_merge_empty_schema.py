"""MERGE into a table that has no columns yet: only one that may give it some."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from pyspark_delta import enable
from tests.support.refusals import condition
from tests.support.spark_tables import conf

INSERT = "USING filled AS s ON false WHEN NOT MATCHED THEN INSERT *"


@pytest.fixture
def db(spark: SparkSession) -> Iterator[None]:
    """A database with a table of no columns, and one of two rows."""
    enable(spark)
    spark.sql("CREATE DATABASE empty_schema")
    spark.sql("USE empty_schema")
    spark.sql("CREATE TABLE bare USING delta")
    spark.sql("CREATE TABLE filled (id INT, name STRING) USING delta")
    spark.sql("INSERT INTO filled VALUES (1, 'ä'), (2, 'b')")
    yield
    spark.sql("USE default")
    spark.sql("DROP DATABASE empty_schema CASCADE")


@pytest.mark.usefixtures("db")
@pytest.mark.parametrize(
    "clause",
    [
        "WHEN NOT MATCHED THEN INSERT *",
        "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)",
        "WHEN MATCHED THEN UPDATE SET *",
        "WHEN MATCHED THEN DELETE",
        "WHEN NOT MATCHED BY SOURCE THEN DELETE",
    ],
)
def test_a_table_without_columns_is_no_target(spark: SparkSession, clause: str) -> None:
    statement = f"MERGE INTO bare USING filled AS s ON false {clause}"
    assert condition(spark, statement) == "DELTA_MERGE_INTO_EMPTY_SCHEMA_TARGET"


@pytest.mark.usefixtures("db")
def test_a_table_gets_the_columns_of_the_source_where_its_schema_may_evolve(
    spark: SparkSession,
) -> None:
    spark.sql(f"MERGE WITH SCHEMA EVOLUTION INTO bare {INSERT}")
    assert spark.table("bare").schema == spark.table("filled").schema
    assert sorted(spark.table("bare").collect()) == [(1, "ä"), (2, "b")]
    spark.sql("CREATE TABLE bare_too USING delta")
    with conf(spark, spark__databricks__delta__schema__autoMerge__enabled="true"):
        spark.sql(f"MERGE INTO bare_too {INSERT}")
    assert sorted(spark.table("bare_too").collect()) == [(1, "ä"), (2, "b")]


@pytest.mark.usefixtures("db")
def test_a_merge_that_brings_no_column_leaves_the_table_without(spark: SparkSession) -> None:
    merge = "MERGE WITH SCHEMA EVOLUTION INTO bare USING filled AS s ON false"
    assert spark.sql(f"{merge} WHEN MATCHED THEN DELETE").first() == (0, 0, 0, 0)
    assert spark.table("bare").columns == []
