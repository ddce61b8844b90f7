"""Small files of touched partitions, written together behind a write that asked for it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_delta.kernel.protocol.actions import AddCDCFile, AddFile, RemoveFile
from pyspark_delta.kernel.protocol.types import LONG, StructField, StructType
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.txn.commit import FileSystemCommitter
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.maintenance import compaction as auto_compact
from pyspark_delta.spark.maintenance.compaction import Compacted, compact
from pyspark_delta.spark.write.request import WriteRequest
from pyspark_delta.spark.write.run import run_write
from tests.support.agreement import deltalake_rows
from tests.support.faulty import Fault, FaultRule, FaultStore
from tests.support.spark_tables import SparkTable, conf
from tests.support.tables import create_table, delete_positions

ASKED = {"delta.autoOptimize.autoCompact": "true"}
_CONF = "spark__databricks__delta__autoCompact__"


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> SparkTable:
    return SparkTable(spark, table_path)


def settings(spark: SparkSession, **values: str) -> Any:
    return conf(spark, **{f"{_CONF}{name}": value for name, value in values.items()})


def test_files_are_compacted_once_there_are_many(table: SparkTable) -> None:
    data = table.spark.range(0, 12, 1, 3)
    with settings(table.spark, minNumFiles="5"):
        assert table.write(data, **ASKED) == 0
        assert len(table.files) == 3
        assert table.write(data) == 1
        assert table.log.update().version == 2
        assert len(table.files) == 1
        info, actions = table.info, table.last_commit
        assert info.operation == "OPTIMIZE"
        assert dict(info.operation_parameters or {}) == {
            "predicate": "[]",
            "zOrderBy": "[]",
            "clusterBy": "[]",
            "auto": True,
        }
        assert info.is_blind_append is False
        metrics = table.metrics
        assert (metrics["numAddedFiles"], metrics["numRemovedFiles"]) == (1, 6)
        assert metrics["minFileSize"] == metrics["p50FileSize"] == metrics["maxFileSize"] > 0
        files = [a for a in actions if isinstance(a, AddFile | RemoveFile)]
        assert len(files) == 7
        assert not any(file.data_change for file in files)
        # One large file and three small ones are not many.
        table.write(data)
        assert len(table.files) == 4
    assert len(table.rows) == 36
    assert len(deltalake_rows(table.path)) == 36


@pytest.mark.parametrize(
    ("enabled", "properties", "is_done"),
    [
        (None, {}, False),
        (None, {"delta.autoOptimize": "true"}, True),
        (None, {"delta.autoOptimize.autoCompact": "false"}, False),
        ("true", {}, True),
        ("false", ASKED, False),
    ],
)
def test_the_session_decides_before_the_table(
    table: SparkTable, enabled: str | None, properties: dict[str, str], is_done: bool
) -> None:
    values = {"minNumFiles": "2"} | ({} if enabled is None else {"enabled": enabled})
    with settings(table.spark, **values):
        table.write(table.spark.range(0, 4, 1, 2), **properties, optimizeWrite="false")
    assert (len(table.files) == 1) == is_done
    with settings(table.spark, enabled="often"), table.refused("DELTA_INVALID_AUTO_COMPACT_TYPE"):
        table.write(table.spark.range(1))


def test_only_partitions_that_were_written_to_are_touched(table: SparkTable) -> None:
    data = table.spark.range(0, 8, 1, 4).selectExpr("id", "id % 2 AS p", "'ä' AS q")
    table.write(data, "append", "p", "q", **ASKED, **{"delta.columnMapping.mode": "name"})
    before = {file.path for file in table.files}
    assert len(before) == 8
    with settings(table.spark, minNumFiles="3", maxFileSize="1m"):
        table.write(data.where("p = 1"))
    left = [file for file in table.files if file.path in before]
    assert len(left) == 4
    assert {tuple(file.partition_values.values()) for file in left} == {("0", "ä")}
    assert len(table.files) == 5
    assert table.parameters["predicate"] == "[\"(p <=> '1' AND q <=> 'ä')\"]"
    assert sorted(row[0] for row in table.rows) == [0, 1, 1, 2, 3, 3, 4, 5, 5, 6, 7, 7]


def test_sizes_decide_which_files_go_together(table: SparkTable) -> None:
    data = table.spark.range(0, 4, 1, 4)
    table.write(data, **ASKED)
    size = table.files[0].size
    with settings(table.spark, minNumFiles="2", maxFileSize=str(2 * size + 10), minFileSize="1"):
        table.write(data.where("id = 0"))
        assert len(table.files) == 5  # none of them is small
    with settings(table.spark, minNumFiles="2", maxFileSize=str(2 * size + 10)):
        table.write(data.where("id = 0"))
    assert len(table.files) == 3
    assert len(table.rows) == 6


def test_row_ids_stay_and_deleted_rows_go(table: SparkTable) -> None:
    properties = {
        **ASKED,
        "delta.enableRowTracking": "true",
        "delta.enableDeletionVectors": "true",
        "delta.enableChangeDataFeed": "true",
    }
    table.write(table.spark.range(0, 6, 1, 3), **properties)
    delete_positions(table.log, lambda file: [0] if file.base_row_id == 2 else [])

    def ids() -> list[tuple[int, int, int]]:
        columns = ("id", "_metadata.row_id", "_metadata.row_commit_version")
        found = table.read().select(*columns).collect()
        return sorted((row[0], row[1], row[2]) for row in found if row[0] < 100)

    before = ids()
    assert len(before) == 5
    with settings(table.spark, minNumFiles="2"):
        table.write(table.spark.range(100, 101))
    assert table.info.operation == "OPTIMIZE"
    assert table.metrics["numDeletionVectorsRemoved"] == 1
    assert not any(isinstance(action, AddCDCFile) for action in table.last_commit)
    (file,) = table.files
    assert file.deletion_vector is None
    assert ids() == before
    assert len(table.rows) == 6


def test_every_partition_gets_a_file_of_its_own(table: SparkTable) -> None:
    data = table.spark.range(0, 12, 1, 2).selectExpr("id", "id % 3 AS p")
    table.write(data, "append", "p", **ASKED, **{"delta.enableRowTracking": "true"})
    before = {row[0]: row[1] for row in table.read().select("id", "_metadata.row_id").collect()}
    with settings(table.spark, minNumFiles="2"):
        table.write(data.where("id < 0"))  # nothing
        assert table.write(data.selectExpr("id + 100 AS id", "p")) == 1
    assert table.info.operation == "OPTIMIZE"
    assert len(table.files) == 3
    after = {row[0]: row[1] for row in table.read().select("id", "_metadata.row_id").collect()}
    assert len(after) == 24
    assert len(set(after.values())) == 24
    assert before.items() <= after.items()


def test_a_compaction_that_is_beaten_leaves_the_winner_and_no_files(
    table: SparkTable, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def beaten(*args: Any) -> Compacted:
        done = compact(*args)
        made.extend(file.path for file in done.added)
        table.write(table.spark.range(100, 101), "overwrite")
        return done

    table.write(table.spark.range(0, 6, 1, 3), **ASKED)
    monkeypatch.setattr(auto_compact, "compact", beaten)
    with settings(table.spark, minNumFiles="2"), caplog.at_level(logging.WARNING):
        assert table.write(table.spark.range(6, 7)) == 1
    assert "the write stands" in caplog.text
    assert table.rows == [(100,)]
    assert made
    assert not any((table.path / path).exists() for path in made)


def test_what_goes_wrong_there_leaves_the_write_as_it_is(
    table: SparkTable, caplog: pytest.LogCaptureFixture
) -> None:
    create_table(
        table.path, StructType((StructField("id", LONG),)), configuration=ASKED, log=table.log
    )
    fault = FaultRule(operation="create", path="*2.json", fault=Fault.ERROR_BEFORE, times=100)
    store = FaultStore(LocalStore(str(table.path)), [fault])
    log = DeltaLog(store, committer=FileSystemCommitter(store, sleep=lambda seconds: None))
    with settings(table.spark, minNumFiles="2"), caplog.at_level(logging.WARNING):
        data = table.spark.range(0, 6, 1, 3)
        assert run_write(table.spark, log, data, WriteRequest(mode="append")) == 1
    assert "the write stands" in caplog.text
    assert table.log.update().version == 1
    assert len(table.files) == 3
    with settings(table.spark, minNumFiles="none", enabled="true"):
        assert table.write(data) == 2  # a setting that means nothing stops the compaction alone
    assert len(table.rows) == 12


def test_clustered_tables_and_empty_writes_are_left_alone(table: SparkTable) -> None:
    data = table.spark.range(0, 4, 1, 4).withColumn("v", F.lit(1))
    table.ask(data, WriteRequest(cluster_by=("id",), options=ASKED))
    with settings(table.spark, minNumFiles="2"):
        table.write(data)
        assert len(table.files) == 8
        table.write(data.limit(0))
    assert len(table.files) == 8
