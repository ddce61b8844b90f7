"""Writes that fail, are killed, or meet others: the table is as one left it, or as it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_delta import enable
from pyspark_delta.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteReadException,
    DeltaConcurrentModificationException,
)
from pyspark_delta.kernel.storage.local import STAGING_PREFIX
from pyspark_delta.spark.scan.frame import read_snapshot
from pyspark_delta.spark.tables import locations as table_access
from tests.support.agreement import deltalake_rows
from tests.support.spark_tables import SparkTable

_KILLED = """
import sys
from pyspark.sql import SparkSession, functions as F
import pyspark_delta
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .getOrCreate()
)
pyspark_delta.enable(spark)
slow = F.udf(lambda i: __import__("time").sleep(0.5) or i, "long")
data = spark.range(0, 400, 1, 4).select(slow("id").alias("id"))
(data.write.format("delta").mode("overwrite")
    .option("maxRecordsPerFile", 1).save(sys.argv[1]))
"""


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> SparkTable:
    return SparkTable(spark, table_path)


def data_files(path: Path) -> set[str]:
    return {found.name for found in path.rglob("*.parquet") if "_delta_log" not in found.parts}


def test_no_file_comes_or_goes_in_a_local_table_after_its_command(
    spark: SparkSession, table_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A program that deletes the table right away would stumble over it.
    monkeypatch.setattr(table_access, "SETTLED_SECONDS", 60.0)
    for version in range(5):
        writer = enable(spark).range(1).write.format("delta").mode("append")
        writer.option("delta.checkpointInterval", "2").save(str(table_path))
        names = {found.name for found in (table_path / "_delta_log").iterdir()}
        assert f"{version:020}.crc" in names
        assert (f"{version:020}.checkpoint.parquet" in names) == (version in (2, 4))
        assert not {name for name in names if name.startswith(STAGING_PREFIX)}


def test_a_driver_that_is_killed_leaves_the_table_as_it_was(table: SparkTable) -> None:
    table.write(table.spark.range(3))
    before = data_files(table.path)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    process = subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(table.path)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 120
        while data_files(table.path) == before and time.monotonic() < deadline:
            time.sleep(0.05)
        assert process.poll() is None
        assert data_files(table.path) != before
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the driver, its JVM and its workers
        process.wait()
    assert table.log.update().version == 0
    assert table.rows == [(0,), (1,), (2,)]
    assert deltalake_rows(table.path) == [{"id": 0}, {"id": 1}, {"id": 2}]
    table.write(table.spark.range(7, 8), "overwrite")
    assert table.rows == [(7,)]


def test_a_task_that_fails_leaves_the_table_as_it_was(table: SparkTable) -> None:
    table.write(table.spark.range(0, 4, 1, 2).selectExpr("id", "id % 2 AS p"), "append", "p")
    bad = table.spark.range(0, 50, 1, 2).select(
        F.when(F.col("id") < 40, F.col("id")).otherwise(F.raise_error(F.lit("no"))).alias("id"),
        F.lit(0).cast("long").alias("p"),
    )
    for mode, options in (
        ("append", {}),
        ("overwrite", {}),
        ("overwrite", {"replaceWhere": "p = 0"}),
        ("overwrite", {"replaceWhere": "id < 100"}),
        ("overwrite", {"partitionOverwriteMode": "dynamic"}),
        ("overwrite", {"replaceUsing": "id"}),
    ):
        with pytest.raises(PySparkException):
            table.write(bad, mode, **options)
    assert table.log.update().version == 0
    assert len(table.rows) == 4


def test_a_table_can_be_overwritten_with_its_own_rows(table: SparkTable) -> None:
    table.write(table.spark.range(0, 10, 1, 2).selectExpr("id", "id % 2 AS p"), "append", "p")
    table.write(table.read().where("id < 6"), "overwrite")
    assert [row[0] for row in table.rows] == list(range(6))
    table.write(table.read().withColumn("id", F.col("id") + 100), "append")
    assert table.info.is_blind_append is False
    table.write(table.read().where("p = 0 AND id < 3"), "overwrite", replaceWhere="p = 0")
    assert [row[0] for row in table.rows] == [0, 1, 101, 103, 105, 2, 3, 5]
    table.write(table.spark.range(1).selectExpr("id", "id AS p"))
    assert table.info.is_blind_append is True


def test_an_old_version_can_be_brought_back(table: SparkTable) -> None:
    table.write(table.spark.range(2))
    table.write(table.spark.range(5, 9), "overwrite")
    old = read_snapshot(table.spark, table.log.snapshot_at(version=0), is_time_travel=True)
    table.write(old, "overwrite")
    assert table.rows == [(0,), (1,)]


def test_what_was_read_must_not_have_changed_meanwhile(table: SparkTable) -> None:
    data = table.spark.range(0, 8, 1, 1).selectExpr("id", "id % 2 AS p")
    table.write(data, "append", "p")
    everything, even = table.read(), table.read().where("p = 0")
    table.write(table.data("id long, p long", (11, 1)))
    with pytest.raises(ConcurrentAppendException):
        table.write(everything.withColumn("id", F.col("id") + 50))
    # Nothing of what this one read has changed.
    table.write(even.withColumn("id", F.col("id") + 50))
    stale = table.read().where("p = 0")
    table.write(table.data("id long, p long", (20, 0)), "overwrite", replaceWhere="p = 0")
    with pytest.raises((ConcurrentDeleteReadException, ConcurrentAppendException)):
        table.write(stale, "overwrite", replaceWhere="p = 0")
    assert [row[0] for row in table.rows] == [1, 11, 20, 3, 5, 7]


def test_of_writers_at_once_each_commits_or_says_why_not(table: SparkTable) -> None:
    table.write(table.spark.range(0, 4, 1, 1).selectExpr("id", "id % 2 AS p"), "append", "p")
    start = Barrier(4)
    jobs = [
        ("append", {}, (100, 0)),
        ("append", {}, (101, 1)),
        ("overwrite", {"replaceWhere": "p = 0"}, (102, 0)),
        ("overwrite", {"replaceWhere": "p = 1"}, (103, 1)),
    ]

    def run(mode: str, options: dict[str, str], row: tuple[int, int]) -> bool:
        data = table.data("id long, p long", row)
        start.wait()
        try:
            table.write(data, mode, **options)
        except DeltaConcurrentModificationException:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        done = [future.result() for future in [pool.submit(run, *job) for job in jobs]]
    assert done[:2] == [True, True]  # appends that read nothing never conflict
    ids = [row[0] for row in table.rows]
    for (_, _, (new, partition)), is_done in zip(jobs, done, strict=True):
        if is_done and partition == 0 and new == 102:
            assert 0 not in ids
            assert 2 not in ids
        if is_done and new >= 102:
            assert new in ids
    assert table.log.update().version == sum(done)
