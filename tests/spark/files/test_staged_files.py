"""Files that no commit names: taken back when none ever will, left when nobody knows."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from pyspark_delta import disable
from pyspark_delta.errors import (
    CommitStateUnknownError,
    DeltaConcurrentModificationException,
    InvalidActionsError,
    PartitionValueError,
    StorageError,
)
from pyspark_delta.kernel.protocol.types import LONG, StructField, StructType
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.txn.commit import FileSystemCommitter
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.files.stage import StagedFiles
from pyspark_delta.spark.write.request import WriteRequest
from pyspark_delta.spark.write.run import run_write
from tests.support.faulty import Crashed, Fault, FaultRule, FaultStore
from tests.support.spark_tables import SparkTable
from tests.support.tables import create_table


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> SparkTable:
    return SparkTable(spark, table_path)


def data_files(path: Path) -> set[str]:
    return {found.name for found in path.rglob("*.parquet") if "_delta_log" not in found.parts}


def test_files_of_a_lost_race_are_taken_back(table: SparkTable) -> None:
    feed = {"delta.enableChangeDataFeed": "true"}
    table.write(
        table.spark.range(0, 8, 1, 2).selectExpr("id", "id % 2 AS p"), "append", "p", **feed
    )
    stale = table.read()
    table.write(table.spark.range(1).selectExpr("id", "id AS p"))
    before = data_files(table.path)
    for options in ({}, {"replaceWhere": "id < 4"}):
        with pytest.raises(DeltaConcurrentModificationException):
            table.write(stale.where("id < 4"), "overwrite", **options)
    assert data_files(table.path) == before
    assert len(table.rows) == 9


def test_files_that_cannot_be_described_are_taken_back(table: SparkTable) -> None:
    with pytest.raises(PartitionValueError):
        table.write(table.spark.sql("SELECT 1 AS id, X'FF' AS p"), "append", "p")
    assert data_files(table.path) == set()
    assert not table.log.table_exists


def test_files_without_rows_are_not_left(table: SparkTable) -> None:
    table.write(table.spark.range(0))
    table.write(table.spark.range(0, 4, 1, 4).where("id = 2"))
    assert data_files(table.path) == {Path(file.path).name for file in table.files}
    assert len(table.files) == 1


@pytest.mark.parametrize(
    ("fault", "times", "error"),
    [
        (Fault.ERROR_BEFORE, 100, CommitStateUnknownError),
        (Fault.CRASH_BEFORE, 1, Crashed),
        (Fault.CRASH_AFTER, 1, Crashed),
    ],
)
def test_files_of_a_commit_of_unknown_outcome_stay(
    table: SparkTable, fault: Fault, times: int, error: type[BaseException]
) -> None:
    table.write(table.spark.range(1))
    before = data_files(table.path)
    rule = FaultRule(operation="create", path="*.json", fault=fault, times=times)
    store = FaultStore(LocalStore(str(table.path)), [rule])
    log = DeltaLog(store, committer=FileSystemCommitter(store, sleep=lambda seconds: None))
    with pytest.raises(error):
        run_write(table.spark, log, table.spark.range(5, 6), WriteRequest(mode="append"))
    assert data_files(table.path) > before


def test_only_what_is_certain_counts(table: SparkTable) -> None:
    table.write(table.spark.range(1))
    (file,) = table.files
    place = table.path / file.path

    def fails(txn: OptimisticTransaction, error: BaseException, *, offered: bool) -> bool:
        def run() -> None:
            with StagedFiles(txn) as staged:
                staged.add([file])
                if offered:
                    staged.offer()
                raise error

        with pytest.raises(type(error)):
            run()
        return place.exists()

    txn = table.log.start_transaction()
    unsure = (
        CommitStateUnknownError("DELTA_COMMIT_STATE_UNKNOWN"),
        StorageError(),
        KeyboardInterrupt(),
    )
    assert all(fails(txn, error, offered=True) for error in unsure)
    done = table.log.start_transaction()
    done.committed_version = 7
    assert fails(done, InvalidActionsError("DELTA_METADATA_ABSENT"), offered=False)
    assert not fails(txn, InvalidActionsError("DELTA_METADATA_ABSENT"), offered=True)
    place.touch()
    assert not fails(txn, KeyboardInterrupt(), offered=False)


def test_the_data_source_takes_back_what_a_task_left(table: SparkTable) -> None:
    session = disable(table.spark.newSession())
    required = StructType((StructField("id", LONG, nullable=False),))
    create_table(table.path, required, log=table.log)

    def save(broken: Column) -> None:
        value = F.when(F.col("id") < 9, F.col("id")).otherwise(broken)
        data = session.range(0, 10, 1, 1).select(value.alias("id"))
        writer = data.write.format("delta").mode("append").option("maxRecordsPerFile", 2)
        writer.save(str(table.path))

    save(F.lit(9))
    before = data_files(table.path)
    assert len(before) == 5
    for broken in (F.lit(None), F.raise_error(F.lit("no"))):
        with pytest.raises(PySparkException):
            save(broken)
        assert data_files(table.path) == before
    assert len(table.rows) == 10
