"""The change feed of a table as a batch: `readChangeFeed`, `table_changes`, `changes`."""

from __future__ import annotations

import json
import os
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta import DeltaLog, DeltaTable, enable, table_changes, table_changes_by_path
from pyspark_delta.errors import (
    ChangeFeedError,
    DeltaError,
    TableNotFoundError,
    VersionNotFoundError,
)
from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.protocol.actions import AddCDCFile
from tests.support.plans import files_read
from tests.support.spark_tables import conf
from tests.support.tables import (
    append,
    create_table,
    delete_positions,
    overwrite,
    set_properties,
)

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string())])
FEED = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}
COLUMNS = ["id", "p", "_change_type", "_commit_version", "_commit_timestamp"]


def rows(*ids: int, p: str = "ä b") -> pa.Table:
    return pa.table({"id": list(ids), "p": [p] * len(ids)}, schema=SCHEMA)


def changes(spark: SparkSession, path: Path, start: Any = 0, **options: Any) -> DataFrame:
    reader = spark.read.format("delta").option("readChangeFeed", "true")
    return reader.options(startingVersion=start, **options).load(str(path))


def found(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    chosen = columns or ("id", "_change_type", "_commit_version")
    return sorted(tuple(row) for row in frame.select(*chosen).collect())


def jobs(spark: SparkSession) -> int:
    context = spark.sparkContext._jsc.sc()
    # Jobs of the test before this one may still be on their way to the store.
    context.listenerBus().waitUntilEmpty()
    return int(context.statusStore().jobsList(None).size())


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Versions: 1 appends 0, 1, 2; 2 appends 10 to 19 in another partition; 3 and 4 take rows away
    by vectors, and 4 gives some back; 5 replaces all by 7; 6 is told by a change file.
    """
    enable(spark)
    path = tmp_path_factory.mktemp("feed") / "tä ble 100%"
    log = create_table(path, SCHEMA, partition_by=["p"], configuration=FEED)
    append(log, rows(0, 1, 2))
    append(log, rows(*range(10, 20), p="x"))
    delete_positions(log, lambda file: [1])
    delete_positions(log, lambda file: [0, 2])
    overwrite(log, rows(7))
    tell_changes(spark, log, path, (7, "update_preimage"), (8, "update_postimage"))
    return path


@pytest.fixture(scope="module")
def everything(spark: SparkSession, table: Path) -> DataFrame:
    """All changes, where no filter can leave anything unread."""
    return changes(spark, table).localCheckpoint()


def tell_changes(
    spark: SparkSession, log: DeltaLog, path: Path, *changed: tuple[int, str], p: str = "ä b"
) -> int:
    """A version that removes all files, and tells its changes in a file of its own."""
    data = spark.createDataFrame(list(changed), "id BIGINT, _change_type STRING").coalesce(1)
    folder = path / "_change_data"
    before = set(folder.glob("*.parquet"))
    data.write.mode("append").parquet(str(folder))
    (file,) = set(folder.glob("*.parquet")) - before
    txn = log.start_transaction()
    old = list(add_files(txn.filter_files()))
    txn.read_whole_table()
    size = file.stat().st_size
    cdc = AddCDCFile(
        path=f"_change_data/{file.name}", partition_values={"p": p}, size=size, data_change=False
    )
    return txn.commit([*(f.remove(deletion_timestamp=1) for f in old), cdc], "UPDATE").version


TOLD = {
    1: [(i, "insert", 1) for i in (0, 1, 2)],
    2: [(i, "insert", 2) for i in range(10, 20)],
    3: [(i, "delete", 3) for i in (1, 11)],
    4: [(i, "delete", 4) for i in (0, 2, 10, 12)] + [(i, "insert", 4) for i in (1, 11)],
    5: [(i, "delete", 5) for i in (1, 11, *range(13, 20))] + [(7, "insert", 5)],
    6: [(7, "update_preimage", 6), (8, "update_postimage", 6)],
}


def told(*versions: int) -> list[tuple[Any, ...]]:
    return sorted(row for version in versions for row in TOLD[version])


def test_every_commit_is_told_by_what_its_rows_did(spark: SparkSession, table: Path) -> None:
    before = jobs(spark)
    frame = changes(spark, table)
    assert jobs(spark) == before
    assert frame.columns == COLUMNS
    assert dict(frame.dtypes)["_commit_version"] == "bigint"
    assert dict(frame.dtypes)["_commit_timestamp"] == "timestamp"
    assert found(frame) == told(*TOLD)
    assert found(changes(spark, table, 2, endingVersion=4)) == told(2, 3, 4)
    assert found(changes(spark, table, 6)) == told(6)
    assert found(changes(spark, table, 0, endingVersion=0)) == []
    assert found(changes(spark, table, 5, endingVersion=99)) == told(5, 6)
    values = found(frame.where("_commit_version <> 5"), "p", "_commit_version")
    assert set(values) == {
        ("ä b", 1),
        ("x", 2),
        *((p, v) for p in ("ä b", "x") for v in (3, 4)),
        ("ä b", 6),
    }
    legacy = spark.read.format("delta").options(readChangeData=True, startingVersion=6)
    assert found(legacy.load(str(table))) == told(6)
    off = spark.read.format("delta").option("readChangeFeed", "false").load(str(table))
    assert off.columns == ["id", "p"]


def test_all_commits_are_two_scans_at_most(spark: SparkSession, table: Path) -> None:
    def scans(frame: DataFrame) -> int:
        leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
        return int(leaves.size())

    assert scans(changes(spark, table)) == 2
    assert scans(changes(spark, table, 1, endingVersion=5)) == 1
    assert scans(changes(spark, table, 6)) == 1


@pytest.mark.parametrize(
    ("condition", "files", "versions"),
    [
        ("_commit_version = 2", 1, (2,)),
        ("_commit_version > 5", 1, (6,)),
        ("_commit_version BETWEEN 1 AND 2", 2, (1, 2)),
        ("_commit_version IN (1, 6)", 2, (1, 6)),
        ("_commit_version = 4 AND _change_type = 'insert'", 2, ()),
        ("_change_type = 'insert' AND _commit_version < 3", 2, (1, 2)),
        ("_change_type = 'delete' AND _commit_version < 3", 0, ()),
        ("p = 'x' AND _commit_version < 4", 2, ()),
        ("id >= 10 AND _commit_version < 3", 1, (2,)),
        ("id = 100", 1, ()),
        ("id = 15", 6, ()),
        ("_commit_timestamp < timestamp'2001-01-01'", 0, ()),
    ],
)
def test_filters_leave_files_unopened(
    spark: SparkSession,
    table: Path,
    everything: DataFrame,
    condition: str,
    files: int,
    versions: tuple[int, ...],
) -> None:
    frame = changes(spark, table).where(condition)
    told_rows = found(frame)
    assert told_rows == (told(*versions) if versions else found(everything.where(condition)))
    assert files_read(frame) == files


def test_columns_that_nobody_asks_for_are_not_read(spark: SparkSession, table: Path) -> None:
    frame = changes(spark, table).groupBy("_change_type").count()
    assert found(frame, "_change_type", "count") == sorted(
        (kind, sum(row[1] == kind for each in TOLD.values() for row in each))
        for kind in ("insert", "delete", "update_preimage", "update_postimage")
    )
    text = changes(spark, table, 1, endingVersion=2).select("_commit_version", "id")
    scan = text._jdf.queryExecution().executedPlan().collectLeaves().head()
    assert scan.requiredSchema().fieldNames()[0] == "id"
    assert scan.requiredSchema().length() == 1


def test_many_small_files_are_few_tasks(spark: SparkSession, table_path: Path) -> None:
    enable(spark)
    cores = spark.sparkContext.defaultParallelism
    count = cores * 32 + 1
    writer = spark.range(0, count, 1, count).write.format("delta")
    writer.option("delta.enableChangeDataFeed", "true").save(str(table_path))
    frame = changes(spark, table_path)
    assert frame.rdd.getNumPartitions() == cores
    assert sorted(row[0] for row in frame.select("id").collect()) == list(range(count))
    few = frame.where("id < 3").select("id")
    assert sorted(row[0] for row in few.collect()) == [0, 1, 2]
    assert files_read(few) == 3


def test_times_are_those_of_the_commits(spark: SparkSession, table_path: Path) -> None:
    enable(spark)
    log = create_table(table_path, SCHEMA, configuration=FEED)
    for number in range(4):
        append(log, rows(number))
    now = int(datetime.now(UTC).timestamp()) - 3600
    # The third is older than the one before it: times are made to rise.
    for version, at in enumerate((now, now + 10, now + 5, now + 20, now + 30)):
        os.utime(table_path / "_delta_log" / f"{version:020d}.json", (at, at))
    frame = changes(spark, table_path).selectExpr("id", "unix_millis(_commit_timestamp)")
    assert [tuple(row) for row in frame.orderBy("id").collect()] == [
        (0, (now + 10) * 1000),
        (1, (now + 10) * 1000 + 1),
        (2, (now + 20) * 1000),
        (3, (now + 30) * 1000),
    ]

    def between(start: int, end: int | None = None) -> list[int]:
        def text(at: int) -> str:
            return datetime.fromtimestamp(at, UTC).isoformat()

        reader = spark.read.format("delta").options(readChangeFeed=True)
        reader = reader.option("startingTimestamp", text(start))
        if end is not None:
            reader = reader.option("endingTimestamp", text(end))
        return [row[0] for row in found(reader.load(str(table_path)), "id")]

    assert between(now) == [0, 1, 2, 3]
    assert between(now - 100, now + 20) == [0, 1, 2]
    assert between(now + 11, now + 30) == [2, 3]
    assert between(now + 12, now + 13) == []
    late = {"readChangeFeed": "true", "startingTimestamp": "2101-01-01"}
    with pytest.raises(VersionNotFoundError) as caught:
        spark.read.format("delta").options(**late).load(str(table_path))
    assert caught.value.condition == "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"
    tolerant = {"spark__databricks__delta__changeDataFeed__timestampOutOfRange__enabled": "true"}
    with conf(spark, **tolerant):
        assert found(spark.read.format("delta").options(**late).load(str(table_path))) == []
        assert found(changes(spark, table_path, 99)) == []
        assert len(found(changes(spark, table_path, 3, endingTimestamp="2101-01-01"))) == 2
    set_properties(log, {"delta.enableInCommitTimestamps": "true"})
    append(log, rows(9))
    os.utime(table_path / "_delta_log" / f"{6:020d}.json", (now, now))
    frame = changes(spark, table_path, 6).selectExpr("unix_millis(_commit_timestamp)")
    assert frame.collect()[0][0] == log.history(1)[0].in_commit_timestamp


def test_a_table_is_named_in_every_way(spark: SparkSession, table: Path) -> None:
    spark.sql(f"CREATE TABLE fed USING delta LOCATION '{table}'")
    try:
        reader = spark.read.format("delta").options(readChangeFeed=True, startingVersion=5)
        assert found(reader.table("fed")) == told(5, 6)
        assert found(reader.table(f"delta.`{table}`")) == told(5, 6)
        assert found(table_changes(spark, "fed", 5)) == told(5, 6)
        assert found(table_changes(spark, "default.fed", 2, 3)) == told(2, 3)
        assert found(DeltaTable.forName(spark, "fed").alias("t").changes(6).where("t.id = 8")) == [
            (8, "update_postimage", 6)
        ]
    finally:
        spark.sql("DROP TABLE fed")
    assert found(table_changes(spark, f"delta.`{table}`", 6)) == told(6)
    assert found(table_changes_by_path(spark, str(table), "2001-01-01", 1)) == told(1)
    assert found(table_changes_by_path(spark, str(table), date(2001, 1, 1), 2)) == told(1, 2)
    ago, soon = datetime(2001, 1, 1), DeltaLog.for_table(table).history(1)[0].timestamp
    assert soon is not None
    end = datetime.fromtimestamp(soon / 1000, UTC)
    assert found(DeltaTable.forPath(spark, str(table)).changes(ago, end)) == told(*TOLD)


@pytest.mark.parametrize(
    ("options", "condition"),
    [
        ({}, "DELTA_NO_START_FOR_CDC_READ"),
        ({"endingVersion": 3}, "DELTA_NO_START_FOR_CDC_READ"),
        ({"startingVersion": "latest"}, "DELTA_VERSION_INVALID"),
        ({"startingVersion": -1}, "DELTA_VERSION_INVALID"),
        ({"startingVersion": 1, "endingVersion": "9" * 30}, "DELTA_VERSION_INVALID"),
        ({"startingVersion": 7}, "DELTA_CDC_START_VERSION_AFTER_LATEST"),
        ({"startingVersion": 3, "endingVersion": 2}, "DELTA_INVALID_CDC_RANGE"),
        ({"startingTimestamp": "noon"}, "DELTA_TIMESTAMP_INVALID"),
        ({"startingVersion": 1, "versionAsOf": 3}, "DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS"),
        ({"startingVersion": 1, "readChangeData": "perhaps"}, "DELTA_ILLEGAL_OPTION"),
    ],
)
def test_what_cannot_be_told_is_refused_before_any_job(
    spark: SparkSession, table: Path, options: dict[str, Any], condition: str
) -> None:
    before = jobs(spark)
    reader = spark.read.format("delta").options(readChangeFeed=True, **options)
    with pytest.raises(DeltaError) as caught:
        reader.load(str(table))
    assert caught.value.condition == condition
    assert jobs(spark) == before


def test_bad_arguments_of_the_function_are_refused(
    spark: SparkSession, table: Path, tmp_path: Path
) -> None:
    nothing: Any = None
    with pytest.raises(ChangeFeedError) as caught:
        table_changes_by_path(spark, str(table), nothing)
    assert caught.value.condition == "DELTA_CDC_READ_NULL_RANGE_BOUNDARY"
    for bad in (1.5, True, b"1"):
        with pytest.raises(TypeError, match="an end of a range"):
            table_changes_by_path(spark, str(table), 0, bad)  # type: ignore[arg-type]
    with pytest.raises(VersionNotFoundError):
        table_changes_by_path(spark, str(table), -1)
    with pytest.raises(TableNotFoundError):
        table_changes(spark, "no_such_table", 0)
    with pytest.raises(TableNotFoundError):
        table_changes_by_path(spark, str(tmp_path / "nö"), 0)
    key = "spark__databricks__delta__changeDataFeed__defaultSchemaModeForColumnMappingTable"
    with conf(spark, **{key: "newest"}), pytest.raises(DeltaError) as wrong:
        table_changes_by_path(spark, str(table), 0)
    assert wrong.value.condition == "DELTA_ILLEGAL_OPTION"


def test_a_table_that_does_not_record_its_changes_has_no_feed(
    spark: SparkSession, table_path: Path
) -> None:
    enable(spark)
    log = create_table(table_path, SCHEMA)
    append(log, rows(1))
    with pytest.raises(ChangeFeedError) as caught:
        changes(spark, table_path)
    assert caught.value.condition == "DELTA_MISSING_CHANGE_DATA"
    set_properties(log, FEED)
    append(log, rows(2))
    assert found(changes(spark, table_path, 2)) == [(2, "insert", 3)]
    with pytest.raises(ChangeFeedError):
        changes(spark, table_path, 1)


def test_versions_beyond_the_retention_of_their_files_are_refused(
    spark: SparkSession, table_path: Path
) -> None:
    enable(spark)
    log = create_table(table_path, SCHEMA, configuration=FEED)
    for number in range(3):
        append(log, rows(number))
    day = 24 * 3600
    now = int(datetime.now(UTC).timestamp())
    for version, at in enumerate((now - 30 * day, now - 20 * day, now - 10 * day)):
        os.utime(table_path / "_delta_log" / f"{version:020d}.json", (at, at))
    DeltaLog.clear_cache()
    with pytest.raises(VersionNotFoundError) as caught:
        changes(spark, table_path, 1)
    refused = "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION"
    assert caught.value.condition == refused
    assert found(changes(spark, table_path, 3)) == [(2, "insert", 3)]
    key = "spark__databricks__delta__vacuum"
    off = {f"{key}__enforceTimeTravelWithinDeletedFileRetentionDuration": "false"}
    with conf(spark, **off):
        assert len(found(changes(spark, table_path, 1))) == 3


def test_overwrites_by_spark_are_told_row_by_row(spark: SparkSession, table_path: Path) -> None:
    enable(spark)
    path = str(table_path)
    spark.sql("SELECT id, id % 2 AS odd FROM range(6)").write.format("delta").option(
        "delta.enableChangeDataFeed", "true"
    ).partitionBy("odd").save(path)
    new = spark.sql("SELECT 4L AS id, 0L AS odd")
    new.write.format("delta").mode("overwrite").option("replaceWhere", "id >= 3 AND odd = 0").save(
        path
    )
    spark.sql("SELECT 9L AS id, 1L AS odd").write.format("delta").mode("overwrite").option(
        "replaceWhere", "odd = 1"
    ).save(path)
    replaced = found(changes(spark, table_path, 1, endingVersion=1))
    assert replaced == [(4, "delete", 1), (4, "insert", 1)]
    assert found(changes(spark, table_path, 2)) == [
        (1, "delete", 2),
        (3, "delete", 2),
        (5, "delete", 2),
        (9, "insert", 2),
    ]
    frame = changes(spark, table_path)
    # Every insert and delete, put together, is the table.
    kept = frame.groupBy("id").agg({"_change_type": "count"}).count()
    assert kept == 7
    spark.sql("SELECT 0L AS id, 0L AS odd").write.format("delta").mode("overwrite").save(path)
    assert found(frame.where("_commit_version = 2")) == found(
        changes(spark, table_path, 2, endingVersion=2)
    )


def test_changes_can_be_written_to_the_table_they_are_of(
    spark: SparkSession, table_path: Path
) -> None:
    enable(spark)
    log = create_table(table_path, SCHEMA, configuration=FEED)
    append(log, rows(1, 2))
    frame = changes(spark, table_path).where("id = 1").select("id", "p")
    append(log, rows(3))
    overwrite(log, rows(5))
    frame.write.format("delta").mode("append").save(str(table_path))
    ids = spark.read.format("delta").load(str(table_path)).select("id").collect()
    assert sorted(row[0] for row in ids) == [1, 5]


def test_equal_ranges_are_one_plan(spark: SparkSession, table: Path) -> None:
    one, other = changes(spark, table, 1), changes(spark, table, 1)
    assert one.sameSemantics(other)
    assert not one.sameSemantics(changes(spark, table, 2))
    joined = one.alias("a").join(other.alias("b"), "id").where("a._change_type = 'insert'")
    assert joined.count() > 0


def test_a_merge_that_changed_nothing_tells_nothing(spark: SparkSession, table_path: Path) -> None:
    enable(spark)
    log = create_table(table_path, SCHEMA, configuration=FEED)
    append(log, rows(0, 1))
    version = overwrite(log, rows(0, 1))
    path = table_path / "_delta_log" / f"{version:020d}.json"
    first, *rest = path.read_text().splitlines()
    info = json.loads(first)
    names = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
    info["commitInfo"] |= {"operation": "MERGE", "operationMetrics": dict.fromkeys(names, "0")}
    path.write_text("\n".join([json.dumps(info), *rest]))
    assert found(changes(spark, table_path, 2)) == []
    assert len(found(changes(spark, table_path, 1))) == 2
