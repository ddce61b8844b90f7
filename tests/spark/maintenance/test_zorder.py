"""Z-order: files can be skipped by any of several columns, and every row is still there."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from pyspark_delta import DeltaTable, enable
from pyspark_delta.kernel.scan.plan import select_files
from pyspark_delta.kernel.scan.predicates.tree import compare
from pyspark_delta.spark.maintenance.optimize import OptimizeRequest, run_optimize
from tests.support.spark_tables import SparkTable, conf

_OPTIMIZE = "spark__databricks__delta__optimize__"
_CURVES = "spark__databricks__io__skipping__mdc__"


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> SparkTable:
    return SparkTable(enable(spark), table_path)


def z_order(table: SparkTable, num_files: int, *columns: str, **more: str) -> Row:
    """Order the table into about so many files."""
    largest = str(table.log.update().size_in_bytes // num_files)
    request = OptimizeRequest(z_order_by=tuple(tuple(name.split(".")) for name in columns))
    with conf(table.spark, **{f"{_OPTIMIZE}maxFileSize": largest, **more}):
        done = run_optimize(table.spark, table.log, request)
    metrics: Row = done.frame(table.spark).collect()[0][1]
    return metrics


def skipped(table: SparkTable, column: str, value: Any) -> float:
    """The share of files that a look for one value does not open."""
    snapshot = table.log.update()
    left: int = select_files(snapshot, compare((column,), "=", value)).num_rows
    return 1 - left / snapshot.num_files


def test_as_many_files_are_skipped_as_the_paper_says(table: SparkTable) -> None:
    """A hundred objects, four columns of even spread: 54 % or more on average."""
    spread = [f"abs(xxhash64({n}, id)) % 1000000 AS c{n}" for n in range(4)]
    table.write(table.spark.range(0, 30_000, 1, 2).selectExpr("id", *spread))
    before = set(table.rows)
    done = z_order(table, 100, "c0", "c1", "c2", "c3")
    assert 90 <= done.numFilesAdded <= 100
    assert done.zOrderStats.strategyName == "all"
    assert done.zOrderStats.inputOtherFiles.num == done.numFilesRemoved == 2
    assert (done.zOrderStats.numOutputCubes, done.zOrderStats.mergedNumCubes) == (1, None)
    assert set(table.rows) == before
    source = random.Random(8)
    shares = {
        f"c{n}": sum(skipped(table, f"c{n}", source.randrange(1_000_000)) for _ in range(20)) / 20
        for n in range(4)
    }
    assert sum(shares.values()) / 4 >= 0.54, shares
    assert min(shares.values()) > 0.3, shares
    counts = [file.num_records or 0 for file in table.files]
    assert max(counts) < 3 * 30_000 / 100


def test_any_type_can_be_ordered_by(table: SparkTable) -> None:
    columns = {
        "flag": "id % 3 = 0",
        "day": "date_add(DATE'2024-01-01', cast(id % 100 AS int))",
        "at": "timestamp_micros(id * 1000003)",
        "here": "cast(timestamp_micros(id * 1000003) AS timestamp_ntz)",
        "amount": "cast(id AS decimal(20, 2))",
        "ratio": "if(id % 7 = 0, double('NaN'), id / 3)",
        "name": "if(id % 5 = 0, null, concat('nä me ', id))",
        "bytes": "encode(cast(id AS string), 'utf-8')",
        "s": "named_struct('a.b', cast(id AS int))",
    }
    made = [f"{text} AS {name}" for name, text in columns.items()]
    table.write(table.spark.range(0, 400, 1, 2).selectExpr("id", *made))
    before = sorted(map(repr, table.rows))
    request = OptimizeRequest(
        z_order_by=(*((name,) for name in columns if name != "s"), ("s", "a.b"))
    )
    largest = str(table.log.update().size_in_bytes // 4)
    with conf(table.spark, **{f"{_OPTIMIZE}maxFileSize": largest}):
        done = run_optimize(table.spark, table.log, request)
    assert len(done.added) > 1
    assert table.parameters["zOrderBy"] == (
        '["flag","day","at","here","amount","ratio","name","bytes","s.`a.b`"]'
    )
    assert sorted(map(repr, table.rows)) == before
    # One column: each file is a stretch of it.
    assert z_order(table, 4, "name").numFilesAdded > 1
    assert skipped(table, "name", "nä me 8") > 0.4


def test_rows_with_the_same_values_are_spread_over_files(table: SparkTable) -> None:
    data = table.spark.range(0, 4000, 1, 1).selectExpr("id", "id % 2 AS few", "7 AS one")
    table.write(data)
    even = z_order(table, 6, "few", "one")
    counts = sorted(file.num_records or 0 for file in table.files)
    assert (even.numFilesAdded, sum(counts)) == (len(counts), 4000)
    assert len(counts) >= 5
    assert counts[-1] < 4000 / 3
    z_order(table, 6, "few", "one", **{f"{_CURVES}addNoise": "false"})
    assert sorted(file.num_records or 0 for file in table.files) == [2000, 2000]


def test_each_partition_is_ordered_by_itself(table: SparkTable) -> None:
    data = table.spark.range(0, 3000, 1, 3).selectExpr("id", "if(id < 2900, 'a', 'b') AS p", "id v")
    table.write(data, "append", "p")
    handle = DeltaTable.forPath(table.spark, str(table.path))
    largest = str(table.log.update().size_in_bytes // 3)
    with conf(table.spark, **{f"{_OPTIMIZE}maxFileSize": largest}):
        [told] = handle.optimize().where("p = 'a'").executeZOrderBy("id").collect()
        assert told.metrics.partitionsOptimized == 1
        [told] = handle.optimize().executeZOrderBy(["id"], "v").collect()
    assert (told.metrics.partitionsOptimized, told.metrics.numBins) == (2, 2)
    assert told.metrics.zOrderStats.numOutputCubes == 2
    parts = [file.partition_values["p"] for file in table.files]
    assert (parts.count("b"), parts.count("a") >= 2) == (1, True)
    assert table.read().count() == 3000
    # Every file is written anew each time.
    [told] = handle.optimize().executeZOrderBy("id").collect()
    assert told.metrics.numFilesRemoved == len(parts)


def test_columns_without_statistics_are_refused_unless_somebody_insists(table: SparkTable) -> None:
    data = table.spark.range(0, 10, 1, 2).selectExpr("id", "id AS a", "struct(id AS x) AS s")
    table.write(data, **{"delta.dataSkippingStatsColumns": "id,s"})
    request = OptimizeRequest(z_order_by=(("a",), ("S", "x")))
    with table.refused("DELTA_ZORDERING_ON_COLUMN_WITHOUT_STATS") as caught:
        run_optimize(table.spark, table.log, request)
    assert caught.value.parameters["cols"] == "[a]"
    with conf(table.spark, **{f"{_OPTIMIZE}zorder__checkStatsCollection__enabled": "false"}):
        assert len(run_optimize(table.spark, table.log, request).added) == 1
