"""Statements of Delta's own about names that mean nothing, or nothing of Delta's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_delta import DeltaLog, enable
from tests.support.catalog_tables import own_database
from tests.support.refusals import condition

NOT_FOUND = "TABLE_OR_VIEW_NOT_FOUND"
NOT_A_VIEW = "EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE"
ONLY_DELTA = "DELTA_ONLY_OPERATION"
# What each says of a missing table, of one that is not Delta's, and of a view.
STATEMENTS = {
    "VACUUM {}": (NOT_FOUND, ONLY_DELTA, NOT_A_VIEW),
    "OPTIMIZE {}": (NOT_FOUND, ONLY_DELTA, NOT_A_VIEW),
    "RESTORE {} TO VERSION AS OF 0": (NOT_FOUND, NOT_FOUND, ONLY_DELTA),
    "GENERATE symlink_format_manifest FOR TABLE {}": (NOT_FOUND, ONLY_DELTA, NOT_A_VIEW),
    "REORG TABLE {} APPLY (PURGE)": (NOT_FOUND, "DELTA_NOT_A_DELTA_TABLE", NOT_A_VIEW),
    "DESCRIBE HISTORY {}": (NOT_FOUND, ONLY_DELTA, NOT_A_VIEW),
    "CREATE TABLE cl SHALLOW CLONE {}": (
        NOT_FOUND,
        "DELTA_CLONE_UNSUPPORTED_SOURCE",
        "DELTA_CLONE_UNSUPPORTED_SOURCE",
    ),
    "ALTER TABLE {} DROP FEATURE deletionVectors": (NOT_FOUND, ONLY_DELTA, NOT_A_VIEW),
    "ALTER TABLE {} ALTER COLUMN id SYNC IDENTITY": (
        NOT_FOUND,
        "DELTA_IDENTITY_COLUMNS_ALTER_NON_DELTA_FORMAT",
        NOT_A_VIEW,
    ),
}


@pytest.fixture
def db(spark: SparkSession) -> Iterator[str]:
    enable(spark)
    with own_database(spark) as name:
        yield name


def test_each_statement_says_what_a_name_is_not(spark: SparkSession, db: str) -> None:
    spark.sql("CREATE TABLE other (id INT) USING csv")
    spark.sql("CREATE VIEW seen AS SELECT 1 AS id")
    spark.sql("CREATE TEMP VIEW seen_now AS SELECT 1 AS id")
    for statement, (missing, foreign, view) in STATEMENTS.items():
        wanted = {
            "missing": missing,
            f"{db}.missing": missing,
            "nowhere.missing": missing,
            f"spark_catalog.{db}.missing": missing,
            "nobodys.catalog.t": "REQUIRES_SINGLE_PART_NAMESPACE",
            "other": foreign,
            "seen": view,
            "seen_now": view,
        }
        found = {name: condition(spark, statement.format(name)) for name in wanted}
        assert found == wanted, statement
    assert spark.sql("SHOW TABLES").count() == 3
    spark.catalog.dropTempView("seen_now")


def test_a_directory_in_a_table_stands_for_the_table(
    spark: SparkSession, db: str, table_path: Path
) -> None:
    enable(spark)
    name = f"delta.`{table_path}`"
    spark.sql(f"CREATE TABLE {name} (id INT, p INT) USING delta PARTITIONED BY (p)")
    for number in (1, 2, 3):
        spark.sql(f"INSERT INTO {name} VALUES ({number}, 1)")
    place = f"{table_path}/p=1"
    done = spark.sql(f"OPTIMIZE '{place}'").first()
    assert done is not None
    assert (done.path, done.metrics.numFilesRemoved) == (f"file:{table_path}", 3)
    assert spark.sql(f"DESCRIBE HISTORY delta.`{place}`").count() == 5
    assert spark.sql(f"REORG TABLE delta.`{place}` APPLY (PURGE)").count() == 1
    spark.sql(f"GENERATE symlink_format_manifest FOR TABLE delta.`{place}`")
    assert (table_path / "_symlink_format_manifest").exists()
    assert condition(spark, f"VACUUM delta.`{place}`") == "DELTA_TABLE_ONLY_OPERATION"
    assert DeltaLog.for_table(table_path).update().version == 4
