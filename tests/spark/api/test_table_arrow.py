"""What a handle tells of its table without a Spark job, and its rows for those who take Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pyspark_delta import DeltaTable, disable, enable
from pyspark_delta.errors import OperationNotAllowedError


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> Iterator[DeltaTable]:
    enable(spark)
    frame = spark.range(6).selectExpr("id", "id % 2 AS part", "concat('ä', id) AS name")
    frame.repartition(1).write.format("delta").partitionBy("part").save(str(table_path))
    yield DeltaTable.forPath(spark, str(table_path))
    disable(spark)


@pytest.mark.classic
def test_a_handle_says_what_its_table_is(table: DeltaTable, table_path: Path) -> None:
    assert table.version() == 0
    assert table.schema() == table.toDF().schema
    assert table.schema().fieldNames() == ["id", "part", "name"]
    assert table.metadata().partition_columns == ("part",)
    assert table.protocol().min_writer_version == 2
    table.delete("id = 1")
    assert table.version() == 1


def test_a_schema_shows_nothing_that_is_for_writers(spark: SparkSession, table_path: Path) -> None:
    enable(spark)
    properties = "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    columns = "a INT COMMENT 'x', b INT GENERATED ALWAYS AS (a + 1)"
    spark.sql(f"CREATE TABLE delta.`{table_path}` ({columns}) USING delta {properties}")
    a, b = DeltaTable.forPath(spark, str(table_path)).schema()
    assert (a.metadata, b.metadata) == ({"comment": "x"}, {})
    disable(spark)


def test_addresses_of_files_are_absolute_and_those_of_files_that_are_there(
    table: DeltaTable, table_path: Path
) -> None:
    found = [Path(unquote(urlsplit(uri).path)) for uri in table.fileUris()]
    assert len(found) == 2
    assert all(path.is_file() and path.is_relative_to(table_path) for path in found)


@pytest.mark.classic
def test_rows_are_handed_out_as_arrow(spark: SparkSession, table: DeltaTable) -> None:
    spark.sparkContext.setJobGroup("arrow", "arrow")
    assert table.toArrow(["name", "id"], "id >= 4").sort_by("id").to_pydict() == {
        "name": ["ä4", "ä5"],
        "id": [4, 5],
    }
    assert table.toArrowReader().read_all().num_rows == 6
    assert pa.table(table).sort_by("id").column("part").to_pylist() == [0, 1, 0, 1, 0, 1]
    assert not spark.sparkContext.statusTracker().getJobIdsForGroup("arrow")


def test_days_of_a_filter_begin_in_the_session_s_zone(
    spark: SparkSession, table_path: Path
) -> None:
    enable(spark)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        spark.sql("SELECT TIMESTAMP'2024-01-01 00:30:00' AS at").write.format("delta").save(
            str(table_path)
        )
        table = DeltaTable.forPath(spark, str(table_path))
        [found] = table.toArrow(filter="at >= '2024-01-01'").column("at").to_pylist()
        assert found.replace(tzinfo=None) == datetime(2023, 12, 31, 15, 30)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")
        disable(spark)


def test_a_part_of_a_table_is_not_told_as_the_whole(
    spark: SparkSession, table: DeltaTable, table_path: Path
) -> None:
    [part, *_] = [path for path in table_path.iterdir() if path.name.endswith("=0")]
    handle = DeltaTable.forPath(spark, str(part))
    with pytest.raises(OperationNotAllowedError):
        handle.toArrow()
