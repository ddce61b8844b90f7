"""`DataFrame.inputFiles`: the files that a query opens, and Spark's own answer for all else."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta import disable, enable
from tests.support.catalog_tables import own_database


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    return enable(spark)


@pytest.fixture
def table(session: SparkSession, table_path: Path) -> DataFrame:
    """Four files: two partitions of two, of which one holds the small ids."""
    for first in (0, 10):
        data = session.range(first, first + 10).selectExpr("id", "concat('p ü%', id % 2) AS p")
        data.coalesce(1).write.format("delta").mode("append").partitionBy("p").save(str(table_path))
    return session.read.format("delta").load(str(table_path))


def opened(query: DataFrame) -> set[str]:
    """The files that the rows of a query come from."""
    return {row[0] for row in query.select("_metadata.file_path").distinct().collect()}


def test_files_that_are_pruned_or_skipped_are_not_listed(table: DataFrame) -> None:
    every = table.inputFiles()
    assert len(every) == len(set(every)) == 4
    assert set(every) == opened(table)
    for condition, count in {
        "p = 'p ü%1'": 2,
        "upper(p) = 'P Ü%1'": 2,
        "id < 5": 2,
        "id = 3 AND p = 'p ü%1'": 1,
        "id * id = 9": 4,
        "id > 100": 0,
        "false": 0,
    }.items():
        query = table.where(condition)
        files = query.inputFiles()
        assert len(files) == count, condition
        assert opened(query) <= set(files) <= set(every)
        assert query.groupBy("p").count().inputFiles() == files


def test_each_scan_of_a_query_lists_its_own_files(table: DataFrame) -> None:
    small, large = table.where("id < 10"), table.where("id >= 10")
    assert sorted(small.unionAll(large).inputFiles()) == sorted(table.inputFiles())
    assert sorted(small.unionAll(small).inputFiles()) == sorted(small.inputFiles())
    joined = small.where("p = 'p ü%0'").alias("a").join(large.alias("b"), "p")
    # What a join says of the one side is true of the other.
    assert len(joined.inputFiles()) == 2
    crossed = small.where("p = 'p ü%0'").alias("a").crossJoin(large.alias("b"))
    assert len(crossed.inputFiles()) == 3


def test_files_of_other_tables_are_listed_as_spark_lists_them(
    session: SparkSession, table: DataFrame, tmp_path: Path
) -> None:
    place = tmp_path / "pärquet 1%"
    session.range(4).selectExpr("id", "id % 2 AS q").write.partitionBy("q").parquet(str(place))
    plain = session.read.parquet(str(place))
    disable(session)
    theirs = plain.where("q = 1").inputFiles()
    everything = plain.inputFiles()
    enable(session)
    assert sorted(plain.where("q = 1").inputFiles()) == sorted(theirs)
    both = table.where("id = 3").select("id").unionAll(plain.select("id"))
    ours = table.where("id = 3").inputFiles()
    assert sorted(both.inputFiles()) == sorted([*ours, *everything])
    assert session.range(3).inputFiles() == []
    mixed = table.where("id = 3").select("id").unionAll(session.range(3))
    assert mixed.inputFiles() == ours


def test_a_query_that_is_cached_lists_what_spark_lists(table: DataFrame) -> None:
    query = table.where("id < 3").cache()
    try:
        query.count()
        assert query.inputFiles() == []
    finally:
        query.unpersist()
    assert len(table.where("id < 3").inputFiles()) == 2


def test_names_statements_and_versions_list_their_files(
    session: SparkSession, table: DataFrame, table_path: Path
) -> None:
    by_statement = session.sql(f"SELECT * FROM delta.`{table_path}` WHERE id = 3 AND p LIKE '%1'")
    assert len(by_statement.inputFiles()) == 1
    old = session.read.format("delta").option("versionAsOf", 0).load(str(table_path))
    assert len(old.inputFiles()) == 2
    assert old.where("id = 13").inputFiles() == []
    with own_database(session):
        session.sql(f"CREATE TABLE named USING delta LOCATION '{table_path}'")
        files = session.table("named").where("id = 13 AND p > 'p ü%0'").inputFiles()
    assert len(files) == 1


def test_a_session_that_is_not_enabled_asks_spark(session: SparkSession, table: DataFrame) -> None:
    query = table.where("id = 3")
    disable(session)
    try:
        assert len(query.inputFiles()) == 4
    finally:
        enable(session)
