"""MERGE: what each clause does to rows, by rewriting files and by vectors."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_delta import DeltaTable, enable
from pyspark_delta.errors import AppendOnlyError, OperationNotAllowedError
from pyspark_delta.kernel.protocol.actions import AddCDCFile, AddFile, RemoveFile
from pyspark_delta.kernel.protocol.operations import write
from pyspark_delta.spark.jvm.plans.frames import release
from pyspark_delta.spark.merge import request as merge_requests
from pyspark_delta.spark.merge.jobs import MergeJobs
from pyspark_delta.spark.scan.source import SnapshotSource
from tests.support.merges import FEED, MODES, MergeTable
from tests.support.spark_tables import conf
from tests.support.tables import create_table, write_files

MULTIPLE = "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"


@pytest.fixture(autouse=True)
def _enabled(spark: SparkSession) -> None:
    enable(spark)


@pytest.mark.parametrize("properties", MODES.values(), ids=MODES)
def test_an_upsert_updates_rows_that_match_and_inserts_the_others(
    spark: SparkSession, table_path: Path, properties: dict[str, str]
) -> None:
    table = MergeTable.of(
        spark, table_path, "id int, v string", (1, "a"), (2, "b"), (None, "n"), **properties
    )
    source = table.data("id int, v string", (2, "B"), (3, "C"), (None, "N"))
    merge = table.merge(source).whenMatchedUpdateAll().whenNotMatchedInsertAll()
    assert table.done(merge) == (1, 0, 2)
    # Null matches nothing, not even null.
    assert table.rows == [(1, "a"), (2, "B"), (3, "C"), (None, "N"), (None, "n")]
    metrics = table.metrics
    assert metrics["numSourceRows"] == 3
    assert (metrics["numTargetRowsUpdated"], metrics["numTargetRowsInserted"]) == (1, 2)
    assert metrics["numTargetRowsCopied"] == (0 if properties else 2)
    assert metrics["numOutputRows"] == (3 if properties else 5)
    assert metrics["numTargetFilesRemoved"] == (0 if properties else 1)
    assert metrics["numTargetDeletionVectorsAdded"] == (1 if properties else 0)
    assert table.info.operation == "MERGE"
    assert '"actionType":"update"' in table.parameters["matchedPredicates"]
    assert '"actionType":"insert"' in table.parameters["notMatchedPredicates"]
    assert table.parameters["notMatchedBySourcePredicates"] == "[]"
    # Every changed row went into one file.
    added = [action for action in table.last_commit if isinstance(action, AddFile)]
    assert sum(action.deletion_vector is None for action in added) == 1


@pytest.mark.parametrize("properties", MODES.values(), ids=MODES)
def test_the_first_clause_whose_condition_holds_is_the_one(
    spark: SparkSession, table_path: Path, properties: dict[str, str]
) -> None:
    rows = [(i, f"v{i}") for i in range(1, 9)]
    table = MergeTable.of(spark, table_path, "id int, v string", *rows, **properties)
    source = table.data(
        "id int, w int", (1, 1), (2, 2), (3, 3), (4, None), (10, 1), (11, 2), (12, 3)
    )
    merge = (
        table.merge(source)
        .whenMatchedUpdate("s.w = 1", {"v": "'one'"})
        .whenMatchedDelete("s.w <= 2")
        .whenMatchedUpdate("s.w = 3", {"t.v": F.concat(F.col("t.v"), F.lit("!"))})
        .whenNotMatchedInsert("s.w = 1", {"id": "s.id", "v": "'new'"})
        .whenNotMatchedInsert("w = 2", {"id": "id"})
        .whenNotMatchedBySourceUpdate("t.id = 5", {"v": "upper(v)"})
        .whenNotMatchedBySourceDelete("id IN (5, 6)")
    )
    assert table.done(merge) == (3, 2, 2)
    assert table.rows == [
        *[(1, "one"), (10, "new"), (11, None), (3, "v3!"), (4, "v4"), (5, "V5")],
        *[(7, "v7"), (8, "v8")],
    ]
    metrics = table.metrics
    assert metrics["numTargetRowsMatchedUpdated"] == 2
    assert metrics["numTargetRowsNotMatchedBySourceUpdated"] == 1
    assert metrics["numTargetRowsMatchedDeleted"] == 1
    assert metrics["numTargetRowsNotMatchedBySourceDeleted"] == 1
    assert metrics["numSourceRows"] == 7


def test_inserts_alone_append_and_rewrite_nothing(spark: SparkSession, table_path: Path) -> None:
    table = MergeTable.of(
        spark, table_path, "id int, v string", (1, "a"), **{"delta.appendOnly": "true"}
    )
    source = table.data("id int, v string", (1, "A"), (2, "B"), (2, "C"), (3, "skip"))
    merge = table.merge(source).whenNotMatchedInsertAll("s.v != 'skip'")
    assert table.done(merge) == (0, 0, 2)
    assert table.rows == [(1, "a"), (2, "B"), (2, "C")]
    assert not any(isinstance(action, RemoveFile) for action in table.last_commit)
    assert table.info.is_blind_append is False
    assert table.metrics["numSourceRows"] == 4
    with pytest.raises(AppendOnlyError):
        table.merge(source).whenMatchedDelete().execute()
    # As delta-spark says, even where Spark sees that nothing of the table has to be read.
    table.merge(source, "false").whenNotMatchedInsertAll("s.id = 3").execute()
    assert table.info.is_blind_append is False


def test_the_history_has_conditions_as_the_optimizer_leaves_them(
    spark: SparkSession, table_path: Path
) -> None:
    table = MergeTable.of(spark, table_path, "id bigint, v string", (1, "vx"), (2, "b"))
    source = spark.sql("SELECT 1L AS id, 'V' AS v")
    merge = table.merge(source, "t.id = s.id AND t.id BETWEEN 0 AND 5")
    merge = merge.whenMatchedUpdate("t.v LIKE 'v%' AND t.id > 0", {"v": "s.v"})
    merge = merge.whenMatchedDelete("s.v = concat('a', 'b')")
    merge = merge.whenNotMatchedInsertAll("s.v IS NOT NULL")
    merge = merge.whenNotMatchedBySourceDelete("t.id > 5")
    assert table.done(merge) == (1, 0, 0)
    told = {key: re.sub(r"#\d+L?", "", text) for key, text in table.parameters.items()}
    assert told["predicate"] == '["((id = id) AND ((id >= 0) AND (id <= 5)))"]'
    first, second = json.loads(told["matchedPredicates"])
    assert first == {"predicate": "(StartsWith(v, v) AND (id > 0))", "actionType": "update"}
    # What the source's plan knows of its values is not in it.
    assert second == {"predicate": "(v = ab)", "actionType": "delete"}
    assert [each["predicate"] for each in json.loads(told["notMatchedPredicates"])] == ["true"]
    (alone,) = json.loads(told["notMatchedBySourcePredicates"])
    assert alone["predicate"] == "(id > 5)"


@pytest.mark.parametrize("properties", MODES.values(), ids=MODES)
def test_nothing_is_committed_when_no_row_changes(
    spark: SparkSession, table_path: Path, properties: dict[str, str]
) -> None:
    table = MergeTable.of(spark, table_path, "id int, v string", (1, "a"), **properties)
    none = table.data("id int, v string")
    other = table.data("id int, v string", (1, "A"))
    for merge in (
        table.merge(none).whenMatchedUpdateAll().whenNotMatchedInsertAll(),
        table.merge(none).whenNotMatchedInsertAll(),
        table.merge(other).whenMatchedUpdateAll("s.v = 'no'"),
        table.merge(other).whenMatchedDelete("t.id > 1").whenNotMatchedInsertAll(),
        table.merge(other).whenNotMatchedBySourceDelete(),
    ):
        assert table.done(merge) == (0, 0, 0)
    assert table.version == 0


@pytest.mark.parametrize("properties", MODES.values(), ids=MODES)
def test_two_source_rows_for_one_target_row_are_refused_whatever_the_conditions_say(
    spark: SparkSession, table_path: Path, properties: dict[str, str]
) -> None:
    table = MergeTable.of(spark, table_path, "id int, v string", (1, "a"), (2, "b"), **properties)
    source = table.data("id int, v string", (1, "A"), (1, "B"), (3, "C"))
    for merge in (
        table.merge(source).whenMatchedUpdateAll(),
        table.merge(source).whenMatchedUpdateAll("s.v = 'A'"),
        table.merge(source).whenMatchedDelete("s.v = 'none'").whenNotMatchedInsertAll(),
        table.merge(source).whenMatchedDelete("s.v = 'A'").whenMatchedDelete(),
        table.merge(source).whenNotMatchedBySourceDelete(),
    ):
        with pytest.raises(OperationNotAllowedError, match=MULTIPLE):
            merge.execute()
    assert table.version == 0
    assert len(list(table_path.glob("*.parquet"))) == 1


@pytest.mark.parametrize("properties", MODES.values(), ids=MODES)
def test_a_single_unconditional_delete_takes_rows_that_match_twice(
    spark: SparkSession, table_path: Path, properties: dict[str, str]
) -> None:
    rows = [(1, "a"), (2, "b"), (3, "c")]
    table = MergeTable.of(spark, table_path, "id int, v string", *rows, **properties, **FEED)
    source = table.data("id int, v string", (1, "A"), (1, "B"), (4, "C"))
    merge = (
        table.merge(source)
        .whenMatchedDelete()
        .whenNotMatchedInsertAll()
        .whenNotMatchedBySourceDelete("t.id = 3")
    )
    assert table.done(merge) == (0, 2, 1)
    assert table.rows == [(2, "b"), (4, "C")]
    assert table.metrics["numTargetRowsMatchedDeleted"] == 1
    assert table.feed == [(1, "a", "delete"), (3, "c", "delete"), (4, "C", "insert")]


@pytest.mark.parametrize("properties", MODES.values(), ids=MODES)
def test_the_change_feed_has_rows_before_and_after(
    spark: SparkSession, table_path: Path, properties: dict[str, str]
) -> None:
    rows = [(1, "a", 1), (2, "b", 1), (3, "c", 2), (4, "d", 2)]
    table = MergeTable.of(
        spark,
        table_path,
        "id int, v string, p int",
        *rows,
        partition_by=("p",),
        **properties,
        **FEED,
    )
    source = table.data("id int, v string, p int", (1, "A", 2), (2, "B", 1), (9, "N", 3))
    merge = (
        table.merge(source)
        .whenMatchedUpdateAll("s.id = 1")
        .whenMatchedDelete()
        .whenNotMatchedInsertAll()
        .whenNotMatchedBySourceUpdate("t.id = 3", {"v": "'x'"})
    )
    assert table.done(merge) == (2, 1, 1)
    # A row whose partition column is updated moves.
    assert table.rows == [(1, "A", 2), (3, "x", 2), (4, "d", 2), (9, "N", 3)]
    assert table.feed == [
        (1, "A", 2, "update_postimage"),
        (1, "a", 1, "update_preimage"),
        (2, "b", 1, "delete"),
        (3, "c", 2, "update_preimage"),
        (3, "x", 2, "update_postimage"),
        (9, "N", 3, "insert"),
    ]
    table.done(
        table.merge(table.data("id int, v string, p int", (7, "n", 1))).whenNotMatchedInsertAll()
    )
    assert not any(isinstance(action, AddCDCFile) for action in table.last_commit)
    assert table.feed == [(7, "n", 1, "insert")]


def test_tracked_rows_keep_their_ids(spark: SparkSession, table_path: Path) -> None:
    properties = {"delta.enableRowTracking": "true"}
    table = MergeTable.of(
        spark, table_path, "id int, v string", (1, "a"), (2, "b"), (3, "c"), **properties
    )

    def ids() -> dict[int, tuple[int, int]]:
        found = table.read().select("id", "_metadata.row_id", "_metadata.row_commit_version")
        return {row[0]: (row[1], row[2]) for row in found.collect()}

    before = ids()
    source = table.data("id int, v string", (2, "B"), (4, "D"))
    table.done(table.merge(source).whenMatchedUpdateAll().whenNotMatchedInsertAll())
    after = ids()
    assert after[1] == before[1]
    assert after[2] == (before[2][0], 1)
    assert after[4][0] not in {row_id for row_id, _ in before.values()}
    assert after[4][1] == 1


def test_a_table_can_be_merged_with_itself(spark: SparkSession, table_path: Path) -> None:
    table = MergeTable.of(
        spark, table_path, "id int, v string, w string", (1, "a", "x"), (2, "b", "y")
    )
    handle = DeltaTable.forPath(spark, str(table_path))
    own = handle.toDF()
    merge = handle.alias("t").merge(own.alias("s"), "t.id = s.id AND s.id = 1")
    merge.whenMatchedUpdate(set={"v": "concat(s.v, t.w)"}).whenNotMatchedBySourceDelete().execute()
    assert table.rows == [(1, "ax", "x")]
    # Columns of frames over the table are found by their names.
    source = handle.toDF().withColumn("id", F.col("id") + 1)
    on = source["id"] == handle.toDF()["id"] + 1
    handle.merge(source.alias("s"), on).whenMatchedUpdate(set={"v": "s.w"}).execute()
    assert table.rows == [(1, "x", "x")]
    old = spark.read.format("delta").option("versionAsOf", 0).load(str(table_path))
    handle.alias("t").merge(old.alias("s"), "false").whenNotMatchedInsertAll().execute()
    assert table.rows == [(1, "a", "x"), (1, "x", "x"), (2, "b", "y")]
    # A frame that is held shows the newest rows, each of which has its own id.
    handle.alias("t").merge(own.alias("s"), "t.id = s.id").whenMatchedDelete().execute()
    assert table.rows == []


def test_a_source_that_differs_each_time_is_asked_once(
    spark: SparkSession, table_path: Path
) -> None:
    table = MergeTable.of(
        spark, table_path, "id int, v double", *[(i, 0.0) for i in range(50)], **FEED
    )
    # Spark's own `rand` keeps to its first seed.
    chance = "cast(reflect('java.lang.Math', 'random') AS double)"
    source = spark.range(0, 100, 1, 4).selectExpr(
        f"cast(id + floor({chance} * 50) AS int) AS id", f"{chance} AS v"
    )
    source = source.dropDuplicates(["id"])
    merge = table.merge(source).whenMatchedUpdateAll().whenNotMatchedInsertAll()
    updated, _, inserted = table.done(merge)
    feed = [row for row in table.feed if row[2] in ("insert", "update_postimage")]
    assert len(feed) == updated + inserted
    assert {row[:2] for row in feed} <= set(table.rows)
    assert len({row[0] for row in table.rows}) == len(table.rows) == 50 + inserted


def test_rows_beyond_one_batch_and_keys_that_repeat_are_counted_exactly(
    spark: SparkSession, table_path: Path
) -> None:
    table = MergeTable(spark, table_path)
    spark.range(0, 20_000, 1, 3).selectExpr("id", "id AS v").write.format("delta").save(
        str(table_path)
    )
    source = spark.range(5_000, 25_000, 1, 3).selectExpr("id", "-id AS v")
    merge = table.merge(source).whenMatchedUpdateAll().whenNotMatchedInsertAll()
    assert table.done(merge) == (15_000, 0, 5_000)
    totals = table.read().selectExpr("count(1)", "count(DISTINCT id)", "sum(v)").collect()[0]
    assert tuple(totals) == (25_000, 25_000, sum(range(5_000)) - sum(range(5_000, 25_000)))
    twice = source.union(spark.range(24_999, 25_000).selectExpr("id", "id AS v"))
    with pytest.raises(OperationNotAllowedError, match=MULTIPLE):
        table.merge(twice).whenMatchedUpdateAll().execute()


@pytest.mark.parametrize("properties", MODES.values(), ids=MODES)
def test_a_small_source_is_sent_to_the_rows_of_a_large_target(
    spark: SparkSession,
    table_path: Path,
    properties: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(merge_requests, "SMALL_TARGET", 0)
    rows = [(i, f"v{i}") for i in range(1, 7)]
    table = MergeTable.of(spark, table_path, "id int, v string", *rows, **properties, **FEED)
    # One that Spark knows to be small and steady, and one that it knows nothing of.
    steady = spark.range(5, 9).selectExpr("cast(id AS int) AS id", "concat('s', id) AS v")
    unknown = table.data("id int, v string", (8, "u8"), (9, "u9"), (10, None))
    assert table.done(table.merge(unknown).whenNotMatchedInsertAll("s.v IS NOT NULL")) == (0, 0, 2)
    assert table.metrics["numSourceRows"] == 3
    merge = (
        table.merge(steady)
        .whenMatchedUpdateAll("s.id > 5")
        .whenNotMatchedInsert("s.id = 7", {"id": "s.id", "v": "upper(s.v)"})
        .whenNotMatchedBySourceDelete("t.id = 1")
    )
    assert table.done(merge) == (2, 1, 1)
    assert table.rows == [
        *[(2, "v2"), (3, "v3"), (4, "v4"), (5, "v5")],
        *[(6, "s6"), (7, "S7"), (8, "s8"), (9, "u9")],
    ]
    assert table.feed == [
        *[(1, "v1", "delete"), (6, "s6", "update_postimage"), (6, "v6", "update_preimage")],
        *[(7, "S7", "insert"), (8, "s8", "update_postimage"), (8, "u8", "update_preimage")],
    ]
    merge = table.merge(unknown).whenMatchedDelete("s.id = 8").whenNotMatchedInsertAll()
    assert table.done(merge) == (0, 1, 1)
    assert table.rows[-1] == (9, "u9")
    assert (10, None) in table.rows
    none = table.merge(steady, "t.id = -s.id").whenMatchedDelete().whenNotMatchedInsertAll("false")
    assert table.done(none) == (0, 0, 0)
    twice = table.merge(unknown.union(unknown)).whenMatchedUpdateAll().whenNotMatchedInsertAll()
    with pytest.raises(OperationNotAllowedError, match=MULTIPLE):
        twice.execute()


def test_files_that_no_source_row_can_match_are_not_read(
    spark: SparkSession, table_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_requests, "SMALL_TARGET", 0)
    # Ids lie together in files, and nothing else does.
    rows = spark.range(0, 400, 1, 4).selectExpr("id", "id % 100 AS v", "id div 200 AS p")
    rows.write.format("delta").partitionBy("p").save(str(table_path))
    table = MergeTable(spark, table_path)
    chosen: list[int] = []
    original = SnapshotSource.groups

    def groups(self: SnapshotSource, *filters: Any) -> Any:
        found = original(self, *filters)
        chosen.append(self.reads[-1].num_files)
        return found

    monkeypatch.setattr(SnapshotSource, "groups", groups)
    source = spark.range(3).selectExpr("250L + id AS id", "-1L AS v", "1L AS p")
    for condition, files in {
        "t.id = s.id": 1,
        "t.p = s.p AND t.id = s.id": 1,
        "t.p = s.p AND t.v = s.id - 200": 2,
        "t.v = s.id - 200": 4,
    }.items():
        chosen.clear()
        merge = table.merge(source, condition).whenMatchedUpdate("s.v = 0", {"v": "s.v"})
        assert table.done(merge) == (0, 0, 0)
        assert set(chosen) == {files}
    upsert = table.merge(source.union(spark.range(400, 401).selectExpr("id", "0L", "2L")))
    assert table.done(upsert.whenMatchedUpdateAll().whenNotMatchedInsertAll()) == (3, 0, 1)
    assert table.read().where("v = -1").count() == 3


@pytest.mark.parametrize("stats", ["no JSON", "[]", '{"minValues":3}', '{"minValues":{"id":"x"}}'])
def test_statistics_that_make_no_sense_say_nothing_of_files(
    spark: SparkSession, table_path: Path, monkeypatch: pytest.MonkeyPatch, stats: str
) -> None:
    monkeypatch.setattr(merge_requests, "SMALL_TARGET", 0)
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    log = create_table(table_path, rows.schema, configuration=MODES["vectors"])
    for _ in range(2):
        txn = log.start_transaction()
        (file,) = write_files(log.store, txn.metadata, rows, now_ms=log.now_ms())
        txn.commit([dataclasses.replace(file, stats=stats)], write("Append"))
    table = MergeTable(spark, table_path)
    table.merge(spark.range(2, 4)).whenMatchedDelete().whenNotMatchedInsertAll().execute()
    assert table.rows == [(1,), (1,), (3,)]


def test_a_merge_begins_again_when_kept_rows_are_lost(
    spark: SparkSession, table_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = MergeTable.of(spark, table_path, "id int, v string", (1, "a"))
    source = table.data("id int, v string", (1, "A"), (2, "B"))
    merge = table.merge(source).whenMatchedUpdateAll().whenNotMatchedInsertAll()
    original = MergeJobs._matches
    losses = [True, False]

    def matches(self: MergeJobs, kept: DataFrame, kinds: Any) -> Any:
        found = original(self, kept, kinds)
        if losses.pop(0):
            release(kept)
        return found

    monkeypatch.setattr(MergeJobs, "_matches", matches)
    assert table.done(merge) == (1, 0, 1)
    assert (table.rows, table.version) == ([(1, "A"), (2, "B")], 1)
    losses += [True] * 4
    with pytest.raises(OperationNotAllowedError, match="MATERIALIZE_SOURCE_FAILED_REPEATEDLY"):
        merge.execute()
    assert (losses, table.version) == ([], 1)


def test_a_join_that_memory_does_not_hold_goes_to_disk(
    spark: SparkSession, table_path: Path
) -> None:
    spark.range(1000).selectExpr("id", "id AS v").write.format("delta").save(str(table_path))
    source = spark.range(500, 1500).selectExpr("id", "-id AS v")
    target = DeltaTable.forPath(spark, str(table_path)).alias("t")
    merge = target.merge(source.alias("s"), "t.id = s.id")
    context = spark.sparkContext
    # What Spark's sorts may hold is a setting of its start, which this JVM is behind.
    limits = context._jsc.sc().conf()
    group, most = "merge to disk", "spark.shuffle.spill.numElementsForceSpillThreshold"
    limits.set(most, "50")
    context.setJobGroup(group, group)
    try:
        with conf(
            spark,
            spark__sql__autoBroadcastJoinThreshold="-1",
            spark__sql__adaptive__autoBroadcastJoinThreshold="-1",
            spark__sql__join__preferSortMergeJoin="true",
        ):
            merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    finally:
        limits.remove(most)
        context._jsc.clearJobGroup()
    context._jsc.sc().listenerBus().waitUntilEmpty()
    tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = {stage for job in jobs if job is not None for stage in job.stageIds}
    assert sum(store.lastStageAttempt(stage).diskBytesSpilled() for stage in stages) > 0
    found = spark.read.format("delta").load(str(table_path)).selectExpr("count(*)", "sum(v)")
    assert tuple(found.collect()[0]) == (1500, sum(range(500)) - sum(range(500, 1500)))
