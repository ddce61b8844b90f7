"""Files as Spark's writer leaves them, and what their footers say."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.protocol.actions import AddFile
from pyspark_delta.kernel.protocol.stats import parse_stats
from pyspark_delta.kernel.protocol.types import LONG, STRING
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.write.file_writer import write_files
from pyspark_delta.spark.write.request import WriteRequest
from pyspark_delta.spark.write.run import run_write


def data_files(root: Path) -> set[str]:
    found = (path.relative_to(root).as_posix() for path in root.rglob("*.parquet"))
    return {name for name in found if not name.startswith("_delta_log/")}


def written(spark: SparkSession, root: Path, data: DataFrame, **options: str) -> list[AddFile]:
    log = DeltaLog.for_table(root)
    run_write(spark, log, data, WriteRequest(mode="append", options=options))
    return list(add_files(log.snapshot.files))


def stats_of(spark: SparkSession, root: Path, data: DataFrame, **options: str) -> dict[str, Any]:
    (file,) = written(spark, root, data.coalesce(1), **options)
    stats: dict[str, Any] = json.loads(file.stats or "", parse_float=Decimal)
    return stats


def test_files_go_straight_to_their_final_path(spark: SparkSession, table_path: Path) -> None:
    files = write_files(JvmSession(spark), spark.range(0, 10, 1, 2), f"file:{table_path}")
    assert {file.path for file in files} == data_files(table_path)
    assert sum(pq.read_metadata(table_path / file.path).num_rows for file in files) == 10
    for file in files:
        status = (table_path / file.path).stat()
        assert file.size == status.st_size
        assert abs(file.modified_ms - status.st_mtime * 1000) < 1
    assert [entry.name for entry in table_path.iterdir() if entry.is_dir()] == []


def test_directories_spell_partition_values(spark: SparkSession, table_path: Path) -> None:
    data = spark.createDataFrame([(1, "a/b=%é :"), (2, None), (3, "")], "id long, p string")
    files = write_files(JvmSession(spark), data.coalesce(1), f"file:{table_path}", ["p"])
    assert {file.partition_values["p"] for file in files} == {"a/b=%é :", None}
    assert {file.path for file in files} == data_files(table_path)


def test_a_job_that_fails_takes_its_files_back(spark: SparkSession, table_path: Path) -> None:
    data = spark.range(0, 100, 1, 1).select(
        F.when(F.col("id") < 90, F.col("id")).otherwise(F.raise_error(F.lit("no"))).alias("id")
    )
    with pytest.raises(PySparkException):
        write_files(JvmSession(spark), data, f"file:{table_path}")
    assert not data_files(table_path)


def test_spark_shows_a_write_as_a_query(spark: SparkSession, table_path: Path) -> None:
    store = JvmSession(spark).session.sharedState().statusStore()

    def newest() -> Any:
        # Spark keeps only so many of them, so their number need not grow.
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        return store.executionsList(store.executionsCount() - 1, 1).apply(0)

    spark.range(1).collect()
    before = newest().executionId()
    write_files(JvmSession(spark), spark.range(3), f"file:{table_path}")
    assert newest().executionId() == before + 1
    assert newest().jobs().size() == 1


def test_the_user_session_keeps_its_settings(spark: SparkSession, table_path: Path) -> None:
    before = spark.conf.get("spark.sql.parquet.outputTimestampType")
    data = spark.sql("SELECT timestamp'2024-01-02 03:04:05.678901' AS t")
    (file,) = write_files(JvmSession(spark), data, f"file:{table_path}")
    assert pq.read_metadata(table_path / file.path).schema.column(0).physical_type == "INT64"
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == before


def test_statistics_are_those_of_the_rows(spark: SparkSession, table_path: Path) -> None:
    data = spark.range(0, 300, 1, 3).selectExpr(
        "id",
        "cast(id % 100 - 50 as tinyint) AS small",
        "cast(id AS decimal(7,2)) / 3 - 20 AS d",
        "cast(id * id AS decimal(38,10)) - 10000 AS wide",
        "CASE WHEN id % 7 = 0 THEN NULL ELSE concat('wörd ', id) END AS s",
        "date_add(date'1969-12-01', cast(id AS int)) AS day",
        "named_struct('a', id - 100, 'b', named_struct('c', if(id % 2 = 0, NULL, id))) AS n",
        "cast(NULL AS int) AS nothing",
        "cast(id AS float) / 7 AS f",
    )
    files = written(spark, table_path, data)
    assert len(files) == 3
    for file in files:
        found = json.loads(file.stats or "", parse_float=Decimal)
        rows = pq.read_table(table_path / file.path).to_pylist()
        assert found["numRecords"] == len(rows)
        for name in ("id", "small", "d", "wide"):
            values = [row[name] for row in rows]
            assert (found["minValues"][name], found["maxValues"][name]) == (
                min(values),
                max(values),
            )
            assert found["nullCount"][name] == 0
        texts = [row["s"] for row in rows if row["s"] is not None]
        assert (found["minValues"]["s"], found["maxValues"]["s"]) == (min(texts), max(texts))
        assert found["nullCount"]["s"] == len(rows) - len(texts)
        days = [row["day"].isoformat() for row in rows]
        assert (found["minValues"]["day"], found["maxValues"]["day"]) == (min(days), max(days))
        inner = [row["n"]["b"]["c"] for row in rows if row["n"]["b"]["c"] is not None]
        assert found["minValues"]["n"]["b"]["c"] == min(inner)
        assert found["maxValues"]["n"]["b"]["c"] == max(inner)
        assert found["nullCount"]["n"]["b"]["c"] == len(rows) - len(inner)
        assert found["minValues"]["n"]["a"] == min(row["n"]["a"] for row in rows)
        assert "nothing" not in found["minValues"]
        assert found["nullCount"]["nothing"] == len(rows)
        floats = [row["f"] for row in rows]
        assert math.isclose(found["minValues"]["f"], min(floats), rel_tol=1e-6)
        assert math.isclose(found["maxValues"]["f"], max(floats), rel_tol=1e-6)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("kind", ["float", "double"])
def test_a_nan_anywhere_leaves_no_maximum(
    spark: SparkSession, table_path: Path, kind: str, place: int
) -> None:
    values = [1.0, 2.0]
    values.insert(place, math.nan)
    data = spark.createDataFrame([(value,) for value in values], f"v {kind}")
    found = stats_of(spark, table_path, data)
    assert "v" not in found["maxValues"]
    assert found["minValues"].get("v", 1) == 1
    assert found["nullCount"]["v"] == 0


def test_every_row_group_counts(spark: SparkSession, table_path: Path) -> None:
    data = spark.range(0, 40_000, 1, 1).selectExpr("id", "reverse(cast(id AS string)) AS s")
    spark.sparkContext._jsc.hadoopConfiguration().setInt("parquet.block.size", 16_384)
    try:
        found = stats_of(spark, table_path, data)
    finally:
        spark.sparkContext._jsc.hadoopConfiguration().unset("parquet.block.size")
    (file,) = data_files(table_path)
    assert pq.read_metadata(table_path / file).num_row_groups > 1
    assert (found["minValues"]["id"], found["maxValues"]["id"]) == (0, 39_999)
    assert (found["minValues"]["s"], found["maxValues"]["s"]) == ("0", "99993")


def test_timestamps_are_bounded_to_the_millisecond(spark: SparkSession, table_path: Path) -> None:
    data = spark.sql(
        "SELECT * FROM VALUES (timestamp'2024-01-02 03:04:05.678901Z'), "
        "(timestamp'1960-01-02 03:04:05.678901Z') AS t(ts)"
    ).selectExpr("ts", "cast(ts AS timestamp_ntz) AS local")
    found = stats_of(spark, table_path, data)
    assert found["minValues"]["ts"] == "1960-01-02T03:04:05.678Z"
    assert found["maxValues"]["ts"] == "2024-01-02T03:04:05.679Z"
    assert found["minValues"]["local"] == "1960-01-01T19:04:05.678"


def test_booleans_binaries_and_collections_have_no_bounds(
    spark: SparkSession, table_path: Path
) -> None:
    data = spark.sql(
        "SELECT true AS flag, X'00FF' AS bytes, array(1, 2) AS full, "
        "array(cast(NULL AS int)) AS holes, map('k', named_struct('x', 1)) AS m, 1 AS last"
    )
    found = stats_of(spark, table_path, data)
    assert found["minValues"] == found["maxValues"] == {"last": 1}
    without_nulls = ["flag", "bytes", "full", "holes", "m", "last"]
    assert found["nullCount"] == dict.fromkeys(without_nulls, 0)


@pytest.mark.parametrize("mapping", ["none", "name"])
def test_nulls_of_arrays_maps_and_variants_are_counted(
    spark: SparkSession, table_path: Path, mapping: str
) -> None:
    nested = "named_struct('a', {}, 'i', {})"
    inner = "named_struct('m', {})"
    data = spark.sql(
        "SELECT * FROM VALUES "
        "(array(1, NULL), map('k', NULL), parse_json('{}'), array(named_struct('x', 1), NULL), "
        f"{nested.format('array(1)', inner.format('map(1, array(1, NULL))'))}), "
        "(NULL, NULL, NULL, NULL, NULL), "
        f"(array(), map(), parse_json('null'), array(), {nested.format('NULL', 'NULL')}), "
        f"(NULL, map('k', 1), NULL, array(NULL), {nested.format('array()', inner.format('NULL'))})"
        " AS t(a, m, v, o, s)"
    )
    properties = {} if mapping == "none" else {"delta.columnMapping.mode": mapping}
    found = stats_of(spark, table_path, data, **properties)
    if mapping == "none":
        assert found["nullCount"] == {"a": 2, "m": 1, "v": 2, "o": 1, "s": {"a": 2, "i": {"m": 3}}}
    else:  # other names, the same counts
        *flat, below = found["nullCount"].values()
        (array, inner) = below.values()
        assert (flat, array, list(inner.values())) == ([2, 1, 2, 1], 2, [3])


def test_statistics_stop_at_the_number_of_columns_asked_for(
    spark: SparkSession, table_path: Path
) -> None:
    data = spark.range(3).selectExpr("id AS a", "id AS `b.c`", "id AS d")
    found = stats_of(spark, table_path, data, **{"delta.dataSkippingNumIndexedCols": "2"})
    assert found["maxValues"] == {"a": 2, "b.c": 2}


def test_long_strings_are_cut(spark: SparkSession, table_path: Path) -> None:
    (file,) = written(spark, table_path, spark.sql(f"SELECT '{'z' * 3000}' AS s, 1L AS id"))
    found = parse_stats(file.stats)
    assert found is not None
    assert found.maximum(("s",), STRING) in (None, "z" * 32 + "\x7f")
    assert found.maximum(("id",), LONG) == 1
