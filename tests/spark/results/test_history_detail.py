"""`history` and `detail`: delta-spark's columns, types and values."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta import DeltaLog, DeltaTable, enable
from pyspark_delta.kernel.protocol.domains import clustering_domain

HISTORY = (
    "struct<version:bigint,timestamp:timestamp,userId:string,userName:string,operation:string,"
    "operationParameters:map<string,string>,job:struct<jobId:string,jobName:string,"
    "jobRunId:string,runId:string,jobOwnerId:string,triggerType:string>,"
    "notebook:struct<notebookId:string>,clusterId:string,readVersion:bigint,"
    "isolationLevel:string,isBlindAppend:boolean,operationMetrics:map<string,string>,"
    "userMetadata:string,engineInfo:string>"
)
DETAIL = (
    "struct<format:string,id:string,name:string,description:string,location:string,"
    "createdAt:timestamp,lastModified:timestamp,partitionColumns:array<string>,"
    "clusteringColumns:array<string>,numFiles:bigint,sizeInBytes:bigint,"
    "properties:map<string,string>,minReaderVersion:int,minWriterVersion:int,"
    "tableFeatures:array<string>>"
)


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    return enable(spark)


def jobs_of(session: SparkSession, action: Callable[[], object]) -> int:
    """How many jobs an action starts."""
    context = session.sparkContext
    context.setJobGroup("counted", "counted")
    try:
        action()
        return len(context.statusTracker().getJobIdsForGroup("counted"))
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def is_nullable_throughout(frame: DataFrame) -> bool:
    return '"nullable":false' not in frame.schema.json()


def test_a_history_has_delta_sparks_columns_and_values(
    session: SparkSession, table_path: Path
) -> None:
    frame = session.range(10).selectExpr("id", "id % 3 AS p").coalesce(1)
    writer = frame.write.format("delta").partitionBy("p").option("userMetadata", "first ü")
    writer.save(str(table_path))
    frame.write.format("delta").mode("append").save(str(table_path))
    history = DeltaTable.forPath(session, str(table_path)).history()
    assert history.schema.simpleString() == HISTORY
    assert is_nullable_throughout(history)
    second, first = history.collect()
    assert (first.version, second.version) == (0, 1)
    assert first.operation == "WRITE"
    assert first.operationParameters == {"mode": "ErrorIfExists", "partitionBy": '["p"]'}
    assert second.operationParameters == {"mode": "Append", "partitionBy": "[]"}
    assert (first.readVersion, second.readVersion) == (None, 0)
    assert (first.isolationLevel, first.isBlindAppend) == ("Serializable", True)
    assert first.operationMetrics["numOutputRows"] == "10"
    assert first.operationMetrics["numFiles"] == "3"
    assert (first.userMetadata, second.userMetadata) == ("first ü", None)
    assert (first.userId, first.userName, first.job, first.notebook) == (None,) * 4
    assert first.engineInfo
    file = table_path / "_delta_log" / "00000000000000000000.json"
    assert first.timestamp == datetime.fromtimestamp(int(file.stat().st_mtime * 1000) / 1000)
    assert jobs_of(session, lambda: history.collect()) == 0


def test_a_limit_counts_from_the_newest(session: SparkSession, table_path: Path) -> None:
    for _ in range(3):
        session.range(1).write.format("delta").mode("append").save(str(table_path))
    handle = DeltaTable.forPath(session, str(table_path))
    for limit, versions in ((0, []), (-1, []), (1, [2]), (2, [2, 1]), (9, [2, 1, 0])):
        assert [row.version for row in handle.history(limit).collect()] == versions
    assert handle.history(limit=1).columns == handle.history().columns


def test_a_history_takes_what_others_write(session: SparkSession, table_path: Path) -> None:
    session.range(1).write.format("delta").save(str(table_path))
    log = table_path / "_delta_log"
    infos: list[dict[str, object] | None] = [
        {
            "operation": "OPTIMIZE",
            "operationParameters": {"a": {"b": [1, None]}, "n": 7, "t": True, "none": None},
            "operationMetrics": {"numFiles": "3"},
            "job": {"jobId": "j", "runId": "r", "more": 1},
            "notebook": {"notebookId": "n"},
            "clusterId": "c",
            "userId": "u",
            "userName": "me",
            "timestamp": 1,
        },
        None,
        {"operation": "half a character: \ud83d", "operationParameters": "none"},
    ]
    for version, info in enumerate(infos, 1):
        line = "" if info is None else json.dumps({"commitInfo": info})
        (log / f"{version:020d}.json").write_text(line + "\n", encoding="utf-8")
    third, second, first, _ = DeltaTable.forPath(session, str(table_path)).history().collect()
    assert first.operationParameters == {"a": '{"b":[1,null]}', "n": "7", "t": "true", "none": None}
    assert (first.job.jobId, first.job.jobName, first.job.runId) == ("j", None, "r")
    assert (first.notebook.notebookId, first.clusterId, first.userName) == ("n", "c", "me")
    assert (second.version, second.operation, second.operationParameters) == (2, None, None)
    assert third.operation.startswith("half a character: ")
    assert third.operationParameters is None


def test_ten_thousand_commits_are_listed_quickly(session: SparkSession, table_path: Path) -> None:
    session.range(1).write.format("delta").save(str(table_path))
    log = table_path / "_delta_log"
    first = log / "00000000000000000001.json"
    line = (log / "00000000000000000000.json").read_text(encoding="utf-8").splitlines()[0]
    first.write_text(line + "\n", encoding="utf-8")
    for version in range(2, 10_000):
        os.link(first, log / f"{version:020d}.json")
    handle = DeltaTable.forPath(session, str(table_path))
    start = time.perf_counter()
    assert len(handle.history().collect()) == 10_000
    # delta-spark took eight seconds for this when warm; a busy machine is no failure.
    assert time.perf_counter() - start < 30
    assert [row.version for row in handle.history(2).collect()] == [9_999, 9_998]


def test_a_detail_has_delta_sparks_columns_and_values(
    session: SparkSession, table_path: Path
) -> None:
    frame = session.range(10).selectExpr("id", "id % 3 AS p").coalesce(1)
    writer = frame.write.format("delta").partitionBy("p")
    writer.option("delta.enableDeletionVectors", "true").save(str(table_path))
    handle = DeltaTable.forPath(session, str(table_path))
    detail = handle.detail()
    assert detail.schema.simpleString() == DETAIL
    assert is_nullable_throughout(detail)
    (row,) = detail.collect()
    snapshot = DeltaLog.for_table(table_path).update()
    assert row.format == "delta"
    assert row.id == snapshot.metadata.id
    assert (row.name, row.description) == (None, None)
    assert row.location == f"file:{table_path}"
    assert snapshot.metadata.created_time is not None
    assert row.createdAt == datetime.fromtimestamp(snapshot.metadata.created_time / 1000)
    file = table_path / "_delta_log" / "00000000000000000000.json"
    assert row.lastModified == datetime.fromtimestamp(int(file.stat().st_mtime * 1000) / 1000)
    assert (row.partitionColumns, row.clusteringColumns) == (["p"], [])
    assert (row.numFiles, row.sizeInBytes) == (3, snapshot.size_in_bytes)
    assert row.properties == {"delta.enableDeletionVectors": "true"}
    assert (row.minReaderVersion, row.minWriterVersion) == (3, 7)
    assert row.tableFeatures == ["appendOnly", "deletionVectors", "invariants"]
    assert jobs_of(session, lambda: detail.collect()) == 0


def test_a_detail_names_clustering_columns_as_users_do(
    session: SparkSession, table_path: Path
) -> None:
    frame = session.range(3).selectExpr("id", "named_struct('x', id) AS s")
    writer = frame.write.format("delta").option("delta.columnMapping.mode", "name")
    writer.save(str(table_path))
    log = DeltaLog.for_table(table_path)
    schema = json.loads(log.update().metadata.schema_string)
    ident, struct = schema["fields"]
    key = "delta.columnMapping.physicalName"
    physical = [
        [ident["metadata"][key]],
        [struct["metadata"][key], struct["type"]["fields"][0]["metadata"][key]],
    ]
    features = ["appendOnly", "invariants", "columnMapping", "clustering", "domainMetadata"]
    protocol = {"minReaderVersion": 2, "minWriterVersion": 7, "writerFeatures": features}
    domain = clustering_domain(physical)
    lines: list[dict[str, object]] = [
        {"protocol": protocol},
        {
            "domainMetadata": {
                "domain": domain.domain,
                "configuration": domain.configuration,
                "removed": False,
            }
        },
    ]
    commit = table_path / "_delta_log" / "00000000000000000001.json"
    commit.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    (row,) = DeltaTable.forPath(session, str(table_path)).detail().collect()
    assert row.clusteringColumns == ["id", "s.x"]
    assert row.tableFeatures == sorted(features)


def test_every_statement_records_what_the_session_says_of_its_commits(
    session: SparkSession, table_path: Path
) -> None:
    table = f"delta.`{table_path}`"
    statements = [
        f"CREATE TABLE {table} (id INT, s STRING) USING delta",
        f"ALTER TABLE {table} ADD COLUMN n INT",
        f"ALTER TABLE {table} SET TBLPROPERTIES ('mine' = 'yes')",
        f"INSERT INTO {table} VALUES (1, 'a', 2)",
        f"DELETE FROM {table} WHERE id = 1",
        f"VACUUM {table}",
        f"RESTORE TABLE {table} TO VERSION AS OF 3",
        f"REPLACE TABLE {table} (id INT) USING delta",
    ]
    key = "spark.databricks.delta.commitInfo.userMetadata"
    for statement in statements:
        session.conf.set(key, statement)
        try:
            session.sql(statement)
        finally:
            session.conf.unset(key)
    told = DeltaTable.forPath(session, str(table_path)).history().select("userMetadata").collect()
    expected = [*statements[:6], *statements[5:]]  # VACUUM makes two commits
    assert [text for (text,) in reversed(told)] == expected
