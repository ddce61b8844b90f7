"""The name of a format has no case, wherever it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta import DeltaLog, disable, enable
from tests.support.catalog_tables import own_database, rows

NAMES = ("DELTA", "Delta", "delta")
ROWS = [(0,), (1,), (2,)]
Action = Callable[[SparkSession, str, str], DataFrame]


def saved(spark: SparkSession, name: str, path: str) -> DataFrame:
    spark.range(3).write.format(name).save(path)
    return spark.read.format(name).load(path)


def saved_by_v2(spark: SparkSession, name: str, path: str) -> DataFrame:
    spark.range(9).write.format(name).save(path)
    spark.range(3).write.format(name).mode("overwrite").option("overwriteSchema", True).save(path)
    return spark.read.load(path, format=name)


def saved_as_table(spark: SparkSession, name: str, path: str) -> DataFrame:
    spark.range(2).write.format(name).saveAsTable("t", path=path)
    spark.range(2, 3).write.format(name).mode("append").saveAsTable("t")
    return spark.table("t")


def written_to(spark: SparkSession, name: str, path: str) -> DataFrame:
    spark.range(3).writeTo("t").using(name).tableProperty("location", path).create()
    return spark.read.table("t")


def replaced(spark: SparkSession, name: str, path: str) -> DataFrame:
    spark.range(9).writeTo("t").using(name).tableProperty("location", path).create()
    spark.range(3).writeTo("t").using(name).tableProperty("location", path).createOrReplace()
    return spark.table("t")


def created(spark: SparkSession, name: str, path: str) -> DataFrame:
    spark.sql(f"CREATE TABLE t (id LONG) USING {name} LOCATION '{path}'")
    spark.sql("INSERT INTO t SELECT id FROM range(3)")
    return spark.sql("SELECT * FROM t VERSION AS OF 1")


def created_of_a_query(spark: SparkSession, name: str, path: str) -> DataFrame:
    spark.sql(f"CREATE TABLE {name}.`{path}` USING {name} AS SELECT id FROM range(3)")
    return spark.sql(f"SELECT * FROM {name}.`{path}`")


def changed(spark: SparkSession, name: str, path: str) -> DataFrame:
    spark.sql(f"CREATE TABLE {name}.`{path}` (id LONG) USING {name}")
    spark.sql(f"INSERT INTO {name}.`{path}` VALUES (0), (1), (2), (3)")
    spark.sql(f"DELETE FROM {name}.`{path}` WHERE id = 3")
    return spark.table(f"{name}.`{path}`")


def cataloged(spark: SparkSession, name: str, path: str) -> DataFrame:
    spark.range(3).write.format(name).save(path)
    return spark.catalog.createTable("t", path, name)


def streamed(spark: SparkSession, name: str, path: str) -> DataFrame:
    spark.range(3).write.format(name).save(f"{path} source")
    stream = spark.readStream.format(name).load(f"{path} source").writeStream.format(name)
    stream = stream.option("checkpointLocation", f"{path} checkpoint").trigger(availableNow=True)
    stream.start(path).awaitTermination()
    return spark.read.format(name).load(path)


def streamed_to_a_table(spark: SparkSession, name: str, path: str) -> DataFrame:
    spark.range(3).write.format(name).mode("overwrite").save(f"{path} source")
    stream = spark.readStream.format(name).load(f"{path} source").writeStream.format(name)
    stream = stream.option("checkpointLocation", f"{path} checkpoint").trigger(availableNow=True)
    stream.toTable("t", path=path).awaitTermination()
    return spark.table("t")


ACTIONS: tuple[Action, ...] = (
    *(saved, saved_by_v2, saved_as_table, written_to, replaced, created, created_of_a_query),
    *(changed, cataloged, streamed),
)


@pytest.fixture
def db(spark: SparkSession) -> Iterator[str]:
    enable(spark)
    with own_database(spark) as name:
        yield name


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.__name__)
def test_a_table_is_made_and_read(
    spark: SparkSession, db: str, table_path: Path, action: Action, name: str
) -> None:
    assert rows(action(spark, name, str(table_path))) == ROWS
    assert DeltaLog.for_table(table_path).table_exists


@pytest.mark.parametrize("name", NAMES)
def test_a_session_that_is_not_enabled_reads_and_writes_by_path(
    spark: SparkSession, table_path: Path, name: str
) -> None:
    enable(spark)
    plain = disable(spark.newSession())
    plain.range(9).write.format(name).mode("append").save(str(table_path))
    plain.range(3).write.format(name).mode("overwrite").save(str(table_path))
    plain.range(3, 4).write.format(name).mode("append").save(str(table_path))
    assert rows(plain.read.format(name).load(str(table_path))) == [*ROWS, (3,)]


def test_a_stream_to_a_table_takes_the_name_that_the_catalog_has(
    spark: SparkSession, db: str, table_path: Path
) -> None:
    """Spark compares the two by itself, for every format; the catalog has ours in lower case."""
    with pytest.raises(AnalysisException, match="different from the table"):
        streamed_to_a_table(spark, "DELTA", str(table_path))
    spark.sql("DROP TABLE t")
    assert rows(streamed_to_a_table(spark, "delta", f"{table_path} 2")) == ROWS
