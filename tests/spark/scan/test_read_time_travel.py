"""Which version a read means, and what it says when there is no such version."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta import DeltaLog, DeltaTable, enable
from pyspark_delta.errors import DeltaError
from pyspark_delta.spark.jvm.scan.file_index import sources_in
from pyspark_delta.spark.scan.source import SnapshotSource
from tests.support.tables import append, create_table

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string())])
DAY_S = 86_400
ENFORCED = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"


@pytest.fixture
def log(table_path: Path) -> DeltaLog:
    """Four versions, a minute between two, the newest a minute ago; one row more in each."""
    log = create_table(table_path, SCHEMA, partition_by=["p"])
    for number in range(3):
        append(log, pa.table({"id": [number], "p": ["a b" if number else None]}, schema=SCHEMA))
    date_back(table_path, [240, 180, 120, 60])
    return log


def date_back(path: Path, seconds: list[int]) -> None:
    now = time.time()
    for version, ago in enumerate(seconds):
        commit = path / "_delta_log" / f"{version:020}.json"
        os.utime(commit, (now - ago, now - ago))
    for checksum in (path / "_delta_log").glob("*.crc"):
        checksum.unlink()
    DeltaLog.clear_cache()


def load(spark: SparkSession, path: object, **options: object) -> DataFrame:
    return enable(spark).read.format("delta").options(**options).load(str(path))


def condition(spark: SparkSession, path: object, **options: object) -> str | None:
    with pytest.raises(DeltaError) as caught:
        load(spark, path, **options)
    return caught.value.condition


def test_a_time_means_the_version_that_was_newest_then(
    spark: SparkSession, log: DeltaLog, table_path: Path
) -> None:
    def local(seconds_ago: int, form: str = "yyyy-MM-dd HH:mm:ss.SSS") -> str:
        at = f"timestamp_millis({int((time.time() - seconds_ago) * 1000)})"
        return str(spark.sql(f"SELECT date_format({at}, '{form}')").first()[0])

    assert load(spark, table_path, timestampAsOf=local(150)).count() == 1
    assert load(spark, table_path, timestampAsOf=local(90)).count() == 2
    assert load(spark, f"{table_path}@{local(90, 'yyyyMMddHHmmssSSS')}").count() == 2
    assert load(spark, f"{table_path}@v3").count() == 3
    assert condition(spark, table_path, timestampAsOf=local(0)) == (
        "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"
    )
    assert condition(spark, table_path, timestampAsOf=local(999)) == (
        "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION"
    )


def test_a_time_in_a_path_is_told_in_the_zone_it_was_read_in(
    spark: SparkSession, log: DeltaLog, table_path: Path
) -> None:
    with pytest.raises(DeltaError, match=r"2099-01-02 03:04:05.* is after the newest version"):
        load(spark, f"{table_path}@20990102030405000")
    with pytest.raises(DeltaError, match=r"1999-01-02 03:04:05.* is before the oldest version"):
        load(spark, f"{table_path}@19990102030405000")


def test_what_is_asked_for_twice_or_is_not_there_is_told_by_name(
    spark: SparkSession, log: DeltaLog, table_path: Path, tmp_path: Path
) -> None:
    both = {"versionAsOf": 1, "timestampAsOf": "2024-01-01"}
    assert condition(spark, table_path, **both) == "DELTA_ONEOF_IN_TIMETRAVEL"
    assert condition(spark, f"{table_path}@v1", versionAsOf=1) == (
        "DELTA_UNSUPPORTED_TIME_TRAVEL_MULTIPLE_FORMATS"
    )
    assert condition(spark, table_path, versionAsOf=99) == "DELTA_VERSION_NOT_FOUND"
    assert condition(spark, table_path, timestampAsOf="no time") == "DELTA_TIMESTAMP_INVALID"
    assert condition(spark, tmp_path / "nö 100%") == "PATH_NOT_FOUND"
    (tmp_path / "nö 100%").mkdir()
    assert condition(spark, tmp_path / "nö 100%") == "DELTA_TABLE_NOT_FOUND"
    assert condition(spark, table_path, readChangeFeed=True) == "DELTA_NO_START_FOR_CDC_READ"


def test_versions_beyond_the_retention_of_their_files_are_refused(
    spark: SparkSession, log: DeltaLog, table_path: Path
) -> None:
    date_back(table_path, [30 * DAY_S, 20 * DAY_S, 10 * DAY_S, 9 * DAY_S])
    refused = "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION"
    assert condition(spark, table_path, versionAsOf=2) == refused
    assert load(spark, table_path, versionAsOf=3).count() == 3
    spark.conf.set(ENFORCED, "false")
    try:
        assert load(spark, table_path, versionAsOf=2).count() == 2
    finally:
        spark.conf.unset(ENFORCED)


def test_a_table_may_be_called_as_if_its_path_named_a_version(
    spark: SparkSession, log: DeltaLog, table_path: Path
) -> None:
    other = table_path.with_name(f"{table_path.name}@v1")
    append(create_table(other, SCHEMA), pa.table({"id": [7], "p": ["x"]}, schema=SCHEMA))
    for path, version, is_older in (
        (other, 1, False),
        (f"{other}@v0", 0, True),
        (f"{table_path}@v2", 2, True),
        (table_path, 3, False),
    ):
        for frame in (load(spark, path), spark.sql(f"SELECT * FROM delta.`{path}`")):
            [source] = sources_in(frame)
            assert isinstance(source, SnapshotSource)
            assert (source.snapshot.version, source.is_time_travel) == (version, is_older)


def test_a_path_to_a_partition_reads_that_partition(
    spark: SparkSession, log: DeltaLog, table_path: Path
) -> None:
    assert load(spark, f"{table_path}/p=a b").count() == 2
    assert load(spark, f"{table_path}/p=__HIVE_DEFAULT_PARTITION__/").count() == 1
    assert condition(spark, f"{table_path}/q=1") == "DELTA_TABLE_NOT_FOUND"


def test_a_version_or_time_that_is_too_new_is_answered_with_the_newest(
    spark: SparkSession, log: DeltaLog, table_path: Path, tmp_path: Path
) -> None:
    table, copy = f"delta.`{table_path}`", f"delta.`{tmp_path / 'cöpy 5%'}`"
    handle, later = DeltaTable.forPath(enable(spark), str(table_path)), "2099-12-31"

    def stream() -> None:
        source = spark.readStream.format("delta").option("startingVersion", 9)
        query = source.load(str(table_path)).writeStream.format("noop")
        query.trigger(availableNow=True).start().awaitTermination()

    by_version: list[Callable[[], object]] = [
        lambda: log.snapshot_at(9),
        lambda: load(spark, table_path, versionAsOf=9),
        lambda: load(spark, f"{table_path}@v9"),
        lambda: spark.sql(f"SELECT * FROM {table} VERSION AS OF 9"),
        lambda: handle.restoreToVersion(9),
        lambda: spark.sql(f"RESTORE {table} TO VERSION AS OF 9"),
        lambda: handle.cloneAtVersion(9, str(tmp_path / "cöpy 5%"), isShallow=True),
        lambda: spark.sql(f"CREATE TABLE {copy} SHALLOW CLONE {table} VERSION AS OF 9"),
        lambda: load(spark, table_path, readChangeFeed=True, startingVersion=9),
        stream,
    ]
    for ask in by_version:
        with pytest.raises(PySparkException if ask is stream else DeltaError) as caught:
            ask()
        found = str(caught.value)
        assert re.search(r"newest is 3\b|log contains 0 to 3\b", found), found
        assert "cleaned up" not in found
    by_time: list[Callable[[], object]] = [
        lambda: load(spark, table_path, timestampAsOf=later),
        lambda: spark.sql(f"SELECT * FROM {table} TIMESTAMP AS OF '{later}'"),
        lambda: handle.restoreToTimestamp(later),
    ]
    for ask in by_time:
        with pytest.raises(DeltaError, match="newest version") as caught:
            ask()
        assert caught.value.condition in (
            "DELTA_TIMESTAMP_GREATER_THAN_COMMIT",
            "DELTA_CANNOT_RESTORE_TIMESTAMP_GREATER",
        )
