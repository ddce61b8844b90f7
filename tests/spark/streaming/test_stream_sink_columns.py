"""Columns of a stream and columns of its table: casts, new ones, refused ones, rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_delta import disable, enable
from tests.support.feeds import Feed, fails_with, run
from tests.support.spark_tables import SparkTable, conf


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> Iterator[SparkTable]:
    yield SparkTable(enable(spark), table_path)
    disable(spark)


@pytest.fixture
def feed(table: SparkTable, tmp_path: Path) -> Feed:
    return Feed(table.spark, tmp_path / "feed", "id LONG, s STRING").add({"id": 300, "s": "7"})


class Streams:
    """Queries into one table, each with a checkpoint of its own."""

    def __init__(self, table: SparkTable, folder: Path) -> None:
        self._table = table
        self._folder = folder
        self._count = 0

    def write(self, data: Any, **options: Any) -> None:
        self._count += 1
        place = str(self._folder / f"checkpoint {self._count}")
        stream: DataStreamWriter = data.writeStream.format("delta")
        run(stream.options(**options, checkpointLocation=place), self._table.path)


@pytest.fixture
def streams(table: SparkTable, tmp_path: Path) -> Streams:
    return Streams(table, tmp_path)


def test_values_are_cast_to_the_types_of_the_table(
    table: SparkTable, feed: Feed, streams: Streams
) -> None:
    table.write(table.data("Id SHORT, s INT, n STRUCT<A: INT, b: STRING>", (1, 2, (3, "b"))))
    nested = F.struct(F.col("id").alias("B"), F.lit("9").alias("a")).alias("N")
    # By name, whatever the case and the order; what is missing is null.
    streams.write(feed.stream().select(nested, F.col("s").alias("S"), F.col("id").alias("ID")))
    streams.write(feed.stream().select(F.struct(F.lit(5).alias("a")).alias("n")))
    assert table.rows == [
        (1, 2, (3, "b")),
        (300, 7, (9, "300")),
        (None, None, (5, None)),
    ]
    assert (
        table.read().schema.simpleString() == "struct<Id:smallint,s:int,n:struct<A:int,b:string>>"
    )
    before = table.log.update().version
    with pytest.raises(StreamingQueryException, match="CAST_OVERFLOW_IN_TABLE_INSERT"):
        streams.write(feed.stream().selectExpr("id * 1000 AS id"))
    with (
        conf(table.spark, spark__databricks__delta__streaming__sink__allowImplicitCasts="false"),
        fails_with("DELTA_FAILED_TO_MERGE_FIELDS"),
    ):
        streams.write(feed.stream().select("id"))
    assert table.log.update().version == before


def test_new_columns_come_when_they_may(table: SparkTable, feed: Feed, streams: Streams) -> None:
    table.write(table.data("id LONG", (1,)))
    with fails_with("DELTA_METADATA_MISMATCH.SCHEMA_MISMATCH"):
        streams.write(feed.stream())
    assert table.rows == [(1,)]
    streams.write(feed.stream(), mergeSchema="true")
    assert table.rows == [(1, None), (300, "7")]
    # Types are widened only in a table that says so.
    streams.write(feed.stream().selectExpr("CAST(id AS DECIMAL(20, 0)) AS id"), mergeSchema="true")
    assert table.read().schema["id"].dataType.simpleString() == "bigint"


def test_types_are_widened_where_the_table_allows_it(
    table: SparkTable, feed: Feed, streams: Streams
) -> None:
    options = {"delta.enableTypeWidening": "true"}
    table.write(table.data("id INT", (1,)), "append", **options)
    streams.write(feed.stream().select("id"))
    assert table.read().schema["id"].dataType.simpleString() == "int"
    streams.write(feed.stream().selectExpr("id * 10000000000 AS id"), mergeSchema="true")
    assert table.rows == [(1,), (300,), (3000000000000,)]


def test_void_columns_are_refused(table: SparkTable, feed: Feed, streams: Streams) -> None:
    for column in ("NULL AS v", "array() AS v", "named_struct('a', NULL) AS v", "map() AS v"):
        with fails_with("DELTA_NULL_SCHEMA_IN_STREAMING_WRITE"):
            streams.write(feed.stream().selectExpr("id", column))
    assert not table.log.table_exists
    # One that the table has is no hindrance.
    table.write(table.spark.sql("SELECT 1L AS id, NULL AS v"))
    streams.write(feed.stream().select("id"))
    assert table.rows == [(1, None), (300, None)]


def test_the_rules_of_the_table_hold(table: SparkTable, feed: Feed, streams: Streams) -> None:
    path = str(table.path)
    table.spark.sql(
        f"CREATE TABLE delta.`{path}` ("
        "  id LONG NOT NULL,"
        "  s STRING,"
        "  twice LONG GENERATED ALWAYS AS (id * 2),"
        "  number LONG GENERATED ALWAYS AS IDENTITY"
        ") USING delta TBLPROPERTIES ('delta.constraints.small' = 'id IS NULL OR id < 1000')"
    )
    streams.write(feed.stream())
    feed.add({"id": 5, "s": "x"})
    streams.write(feed.stream())
    found = [row[:3] for row in table.rows]
    assert found == [(300, "7", 600), (300, "7", 600), (5, "x", 10)]
    assert len({row[3] for row in table.rows}) == 3
    version = table.log.update().version
    with fails_with("DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED"):
        streams.write(feed.stream().withColumn("number", F.lit(1)))
    with fails_with("DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"):
        streams.write(feed.stream().withColumn("id", F.col("id") * 100))
    assert table.log.update().version == version
    with fails_with("DELTA_NOT_NULL_CONSTRAINT_VIOLATED"):
        streams.write(feed.stream().withColumn("id", F.nullif("id", F.lit(5))))
    assert table.log.update().version == version + 1  # the batch before that one stands


def test_a_mapped_table_takes_a_stream(table: SparkTable, feed: Feed, streams: Streams) -> None:
    table.write(
        table.data("id LONG, s STRING", (1, "a")),
        "append",
        "s",
        **{"delta.columnMapping.mode": "name"},
    )
    streams.write(feed.stream())
    assert table.rows == [(1, "a"), (300, "7")]
    names = table.files[0].partition_values
    assert all(name.startswith("col-") for name in names)


def test_a_batch_that_reads_its_own_table_depends_on_it(
    table: SparkTable, feed: Feed, streams: Streams
) -> None:
    table.write(table.data("id LONG, s STRING", (300, "here")))
    streams.write(feed.stream())
    assert table.info.is_blind_append is True
    known = table.spark.read.format("delta").load(str(table.path)).select("id").distinct()
    streams.write(feed.add({"id": 1, "s": "new"}).stream().join(known, "id", "left_anti"))
    assert table.info.is_blind_append is False
    assert table.rows == [(1, "new"), (300, "7"), (300, "here")]
    # A stream of the table into itself ends, where it ends with what is there.
    own = table.spark.readStream.format("delta").load(str(table.path))
    streams.write(own.selectExpr("id + 1000 AS id", "s"))
    assert table.info.is_blind_append is False
    assert sorted(row[0] for row in table.rows) == [1, 300, 300, 1001, 1300, 1300]
