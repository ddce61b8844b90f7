"""Rows that know their place, and the job that finds which of them a command touches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_delta import disable, enable
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.scan.frame import (
    FILE,
    ROW,
    LocatedRows,
    located_rows,
    touched_rows,
)
from pyspark_delta.spark.tables.locations import open_log

FEATURES = {
    "plain": {},
    "mapped": {"delta.columnMapping.mode": "name"},
    "tracked": {"delta.enableRowTracking": "true"},
    "with vectors": {"delta.enableDeletionVectors": "true"},
}


@pytest.fixture
def enabled(spark: SparkSession) -> Iterator[SparkSession]:
    enable(spark)
    yield spark
    disable(spark)


def located(spark: SparkSession, log: DeltaLog, **without: object) -> LocatedRows:
    """All rows of the newest version."""
    txn = log.start_transaction()
    return located_rows(JvmSession(spark), txn, txn.filter_files(), **without)  # type: ignore[arg-type]


@pytest.mark.parametrize("properties", FEATURES.values(), ids=FEATURES.keys())
def test_rows_are_found_where_they_are(
    enabled: SparkSession, table_path: Path, properties: dict[str, str]
) -> None:
    rows = enabled.range(0, 100_000, 1, 2).withColumn("p", F.col("id") % 2)
    rows.write.format("delta").partitionBy("p").options(**properties).save(str(table_path))
    log = open_log(enabled, str(table_path))
    found = located(enabled, log)
    wanted = found.frame.where("id % 1000 IN (0, 7)")
    touched = touched_rows(wanted, found.files, {"sevens": "id % 1000 = 7"})
    assert sum(file.rows.cardinality for file in touched.files) == 200
    assert touched.total("sevens") == 100
    assert all(file.num_met == file.rows.cardinality for file in touched.files)
    places = {(row[0], row[1]) for row in wanted.select(FILE, ROW).collect()}
    numbers = {file: i for i, file in enumerate(found.files.column("path").to_pylist())}
    assert places == {
        (numbers[each.file.path], row)
        for each in touched.files
        for row in each.rows.rows_between(0, 100_000)
    }
    without = {each.file.path: each.rows for each in touched.files}
    left = located(enabled, log, without=without).frame
    expected = [id for id in range(100_000) if id % 1000 not in (0, 7)]
    assert sorted(row[0] for row in left.select("id").collect()) == expected


def test_a_row_that_is_met_twice_is_noticed_and_one_of_no_file_counts_elsewhere(
    enabled: SparkSession, table_path: Path
) -> None:
    enabled.range(0, 40_000, 1, 1).write.format("delta").save(str(table_path))
    found = located(enabled, open_log(enabled, str(table_path)))
    other = enabled.createDataFrame([(3,), (39_999,), (39_999,), (50_000,)], "key long")
    joined = other.join(found.frame, other["key"] == found.frame["id"], "left")
    touched = touched_rows(joined, found.files, {"new": f"{FILE} IS NULL"})
    (file,) = touched.files
    assert file.rows == DeletionVector([3, 39_999])
    assert file.num_met == 3 > file.rows.cardinality
    assert (touched.elsewhere, touched.total("new")) == ({"new": 1}, 1)
