"""The change feed of a table as a stream: what commits tell, and what follows of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta import DeltaLog, enable
from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.protocol.actions import AddCDCFile
from tests.support.feeds import fails_with, finish
from tests.support.streams import Batches, drain, offsets, start, stream_of
from tests.support.tables import append, create_table, delete_positions, overwrite

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string())])


@pytest.fixture
def log(spark: SparkSession, table_path: Path) -> DeltaLog:
    enable(spark)
    feed = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}
    log = create_table(table_path, SCHEMA, partition_by=["p"], configuration=feed)
    append(log, rows(0, 1, 2))
    return log


def rows(*ids: int, p: str = "ä b") -> pa.Table:
    return pa.table({"id": list(ids), "p": [p] * len(ids)}, schema=SCHEMA)


def changes(frame: DataFrame) -> DataFrame:
    return frame.select("id", "_change_type", "_commit_version")


def test_the_table_and_its_commits_are_told_as_changes(
    spark: SparkSession, log: DeltaLog, table_path: Path, tmp_path: Path
) -> None:
    frame = stream_of(spark, table_path, readChangeFeed="true")
    assert frame.columns == ["id", "p", "_change_type", "_commit_version", "_commit_timestamp"]
    types = dict(frame.dtypes)
    assert types["_commit_version"] == "bigint"
    assert types["_commit_timestamp"] == "timestamp"
    checkpoint = tmp_path / "checkpoint"
    assert drain(changes(frame), checkpoint).rows == [(i, "insert", 1) for i in range(3)]
    overwrite(log, rows(7))
    delete_positions(log, lambda file: [0])
    found = drain(changes(stream_of(spark, table_path, readChangeFeed="true")), checkpoint)
    assert found.rows == [
        (0, "delete", 2),
        (1, "delete", 2),
        (2, "delete", 2),
        (7, "delete", 3),
        (7, "insert", 2),
    ]
    begun = stream_of(spark, table_path, readChangeFeed="true", startingVersion=1)
    times = drain(
        begun.where("_commit_version = 2").selectExpr("unix_millis(_commit_timestamp)"),
        tmp_path / "times",
    )
    commit = table_path / "_delta_log" / f"{2:020d}.json"
    assert set(times.ids) == {commit.stat().st_mtime_ns // 1_000_000}


def test_rows_that_a_vector_takes_away_are_the_ones_told(
    spark: SparkSession, log: DeltaLog, table_path: Path, tmp_path: Path
) -> None:
    append(log, rows(*range(10, 20)))
    delete_positions(log, lambda file: [1])
    taken = {11, 1}
    frame = changes(stream_of(spark, table_path, readChangeFeed="true", startingVersion=3))
    assert drain(frame, tmp_path / "one").rows == sorted((i, "delete", 3) for i in taken)
    # Another vector in its place: rows come back, others go.
    delete_positions(log, lambda file: [0, 2])
    frame = changes(stream_of(spark, table_path, readChangeFeed="true", startingVersion=4))
    told = sorted(drain(frame, tmp_path / "two").rows)
    assert told == sorted(
        [(i, "delete", 4) for i in (0, 2, 10, 12)] + [(i, "insert", 4) for i in (1, 11)]
    )


def test_change_files_are_told_as_they_are_and_never_parted(
    spark: SparkSession, log: DeltaLog, table_path: Path, tmp_path: Path
) -> None:
    told = spark.createDataFrame(
        [(1, "update_preimage"), (5, "update_postimage")], "id BIGINT, _change_type STRING"
    ).repartition(2)
    told.write.parquet(str(table_path / "_change_data"))
    files = sorted((table_path / "_change_data").glob("*.parquet"))
    txn = log.start_transaction()
    old = list(add_files(txn.filter_files()))
    txn.read_whole_table()
    cdc = [
        AddCDCFile(
            path=f"_change_data/{file.name}",
            partition_values={"p": "ä b"},
            size=file.stat().st_size,
            data_change=False,
        )
        for file in files
    ]
    assert len(cdc) >= 2
    removes = [file.remove(deletion_timestamp=1) for file in old]
    version = txn.commit([*removes, *cdc], "UPDATE").version
    options: dict[str, Any] = {"readChangeFeed": "true", "startingVersion": 1}
    frame = stream_of(spark, table_path, maxFilesPerTrigger=1, **options)
    found = drain(changes(frame), tmp_path / "checkpoint")
    assert found.all == [
        [(i, "insert", 1) for i in range(3)],
        [(1, "update_preimage", version), (5, "update_postimage", version)],
    ]
    assert drain(frame.select("p"), tmp_path / "other").rows == [("ä b",)] * 5
    last = offsets(tmp_path / "checkpoint")[-1]
    assert (last["reservoirVersion"], last["index"]) == (version, len(cdc) - 1)


@pytest.mark.parametrize("option", ["readChangeFeed", "ignoreChanges"])
def test_a_batch_reaches_over_the_end_of_vectors(
    spark: SparkSession, log: DeltaLog, table_path: Path, tmp_path: Path, option: str
) -> None:
    checkpoint = tmp_path / "checkpoint"

    def told() -> list[int]:
        return drain(stream_of(spark, table_path, **{option: "true"}), checkpoint).ids

    assert told() == [0, 1, 2]
    delete_positions(log, lambda file: [1])
    spark.sql(f"ALTER TABLE delta.`{table_path}` DROP FEATURE deletionVectors")
    append(log, rows(7))
    # The rows beside a deleted one come again, unless changes are told.
    assert told() == ([1, 7] if option == "readChangeFeed" else [0, 2, 7])


def test_rows_come_before_the_end_of_the_feed(
    spark: SparkSession, log: DeltaLog, table_path: Path, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    options = {"readChangeFeed": "true"}
    drain(stream_of(spark, table_path, **options), checkpoint)
    append(log, rows(7))
    off = "SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')"
    spark.sql(f"ALTER TABLE delta.`{table_path}` {off}")
    append(log, rows(8))
    for expected in ([(7, "insert", 2)], []):
        found = Batches()
        frame = changes(stream_of(spark, table_path, **options))
        with fails_with("DELTA_MISSING_CHANGE_DATA"):
            finish(start(frame, checkpoint, found, availableNow=True))
        assert found.rows == expected


def test_a_commit_that_rewrote_files_and_changed_nothing_tells_nothing(
    spark: SparkSession, log: DeltaLog, table_path: Path, tmp_path: Path
) -> None:
    metrics = dict.fromkeys(
        ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"), "0"
    )
    version = overwrite(log, rows(0, 1, 2))
    path = table_path / "_delta_log" / f"{version:020d}.json"
    first, *rest = path.read_text().splitlines()
    info = json.loads(first)
    info["commitInfo"] |= {"operation": "MERGE", "operationMetrics": metrics}
    path.write_text("\n".join([json.dumps(info), *rest]))
    frame = stream_of(spark, table_path, readChangeFeed="true", startingVersion=version)
    found: Batches = drain(changes(frame), tmp_path / "checkpoint")
    assert found.rows == []
