"""MERGE: whose column an expression means, at what time, and what must hold in all of its jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_delta import DeltaTable, enable
from pyspark_delta.errors import DeltaConcurrentModificationException, DeltaError
from pyspark_delta.spark.dml.files import DmlFiles
from pyspark_delta.spark.merge import request as merge_requests
from tests.support.merges import MergeTable

MISSING = "DELTA_MERGE_RESOLVED_ATTRIBUTE_MISSING_FROM_INPUT"


@pytest.fixture(autouse=True)
def _enabled(spark: SparkSession) -> None:
    enable(spark)


@pytest.fixture
def large_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every target is large beside its source: rows without a match are a job of their own."""
    monkeypatch.setattr(merge_requests, "SMALL_TARGET", 0)


def two_rows(spark: SparkSession, path: Path) -> tuple[MergeTable, DeltaTable]:
    table = MergeTable.of(spark, path, "id int, v string", (1, "a"), (2, "b"))
    return table, DeltaTable.forPath(spark, str(path))


def test_a_column_that_a_source_had_before_is_not_the_target_s(
    spark: SparkSession, table_path: Path
) -> None:
    table, handle = two_rows(spark, table_path)
    old = spark.createDataFrame([(1, "x"), (2, "y")], "id int, v string")
    new = old.withColumn("id", F.col("id") + 100)
    deletes = handle.alias("t").merge(new.alias("s"), F.expr("t.id") == old["id"])
    updates = handle.alias("t").merge(new.withColumn("v", F.upper("v")).alias("s"), "t.id = s.id")
    for merge in (
        deletes.whenMatchedDelete(),
        updates.whenMatchedUpdate(set={"v": old["v"]}),
        updates.whenMatchedDelete(spark.range(3)["id"] == 1),
    ):
        with pytest.raises(DeltaError) as caught:
            merge.execute()
        assert caught.value.condition == MISSING
    assert table.rows == [(1, "a"), (2, "b")]


def test_a_column_that_source_and_target_share_is_ambiguous_where_both_are_seen(
    spark: SparkSession, table_path: Path
) -> None:
    table, handle = two_rows(spark, table_path)
    target = handle.toDF()
    source = target.where("id = 2")
    for merge in (
        handle.merge(source, target["id"] == source["id"]).whenMatchedDelete(),
        handle.alias("t")
        .merge(source.alias("s"), "t.id = s.id")
        .whenMatchedDelete(target["id"] == 2),
        handle.alias("t")
        .merge(source.alias("s"), "t.id = s.id")
        .whenMatchedUpdate(set={"v": target["v"]}),
    ):
        with pytest.raises(AnalysisException, match="AMBIGUOUS_REFERENCE"):
            merge.execute()
    assert table.rows == [(1, "a"), (2, "b")]
    # Where one side alone is seen, it is that one's.
    by_name = handle.alias("t").merge(source.alias("s"), "t.id = s.id + 10")
    by_name.whenNotMatchedInsert(source["id"] == 2, {"id": source["id"] + 1}).execute()
    assert table.rows == [(1, "a"), (2, "b"), (3, None)]
    gone = handle.toDF()
    nothing = gone.where("id = 1")
    handle.alias("t").merge(nothing.alias("s"), "t.id = s.id").whenNotMatchedBySourceDelete(
        gone["id"] == 3
    ).execute()
    assert table.rows == [(1, "a"), (2, "b")]


def test_columns_of_a_handle_s_frames_are_the_target_s(
    spark: SparkSession, table_path: Path
) -> None:
    table, handle = two_rows(spark, table_path)
    target = handle.toDF()
    source = table.data("id int, v string", (2, "B"))
    merge = handle.alias("t").merge(source, target["id"] == source["id"])
    merge.whenMatchedUpdate(target["v"] == "b", {"v": F.concat(target["v"], source["v"])}).execute()
    assert table.rows == [(1, "a"), (2, "bB")]


@pytest.mark.parametrize("is_large", [False, True])
def test_all_of_a_merge_sees_one_time(
    spark: SparkSession, table_path: Path, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    if is_large:
        monkeypatch.setattr(merge_requests, "SMALL_TARGET", 0)
    schema = "id int, ts timestamp, d date, n timestamp_ntz"
    rows = [(i, None, None, None) for i in range(3)]
    properties = {"delta.feature.timestampNtz": "supported"}
    table = MergeTable.of(spark, table_path, schema, *rows, **properties)
    now = {"ts": "now()", "d": "current_date()", "n": "localtimestamp()"}
    source = table.data("id int", (1,), (9,)).coalesce(1)
    merge = table.merge(source, "t.id = s.id AND current_timestamp() > TIMESTAMP'2020-01-01'")
    merge = merge.whenMatchedUpdate(set=now).whenNotMatchedInsert(values={"id": "s.id", **now})
    merge = merge.whenNotMatchedBySourceUpdate(set={**now, "ts": "current_timestamp()"})
    assert table.done(merge) == (3, 0, 1)
    assert table.read().select("ts", "d", "n").distinct().count() == 1
    told = table.read().selectExpr("ts", "d = CAST(ts AS DATE)", "n = CAST(ts AS TIMESTAMP_NTZ)")
    assert all(row[1] and row[2] for row in told.collect())
    assert table.read().where("ts > now() - INTERVAL 1 HOUR").count() == 4


def test_defaults_of_a_merge_see_one_time(
    spark: SparkSession, table_path: Path, large_targets: None
) -> None:
    spark.sql(
        f"CREATE TABLE delta.`{table_path}` (id INT, ts TIMESTAMP DEFAULT current_timestamp()) "
        "USING delta TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    )
    table = MergeTable(spark, table_path)
    spark.sql(f"INSERT INTO delta.`{table_path}` VALUES (1, NULL)")
    spark.sql(
        f"MERGE INTO delta.`{table_path}` t USING (SELECT explode(array(1, 2)) AS id) s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET ts = DEFAULT "
        "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
    )
    assert table.read().select("ts").distinct().count() == 1
    assert table.read().where("ts IS NULL").count() == 0


def test_a_char_column_matches_alike_in_all_jobs(
    spark: SparkSession, table_path: Path, large_targets: None
) -> None:
    spark.sql(f"CREATE TABLE delta.`{table_path}` (id INT, c CHAR(5)) USING delta")
    spark.sql(f"INSERT INTO delta.`{table_path}` VALUES (1, 'abc')")
    spark.sql(
        f"MERGE INTO delta.`{table_path}` t USING (SELECT 1 AS id, 'x' AS c) s "
        "ON t.id = s.id AND t.c = 'abc' "
        "WHEN MATCHED THEN UPDATE SET c = s.c WHEN NOT MATCHED THEN INSERT *"
    )
    found = spark.read.format("delta").load(str(table_path)).selectExpr("id", "trim(c)").collect()
    assert [tuple(row) for row in found] == [(1, "x")]


def test_identity_numbers_are_given_out_once_however_few_rows_there_are(
    spark: SparkSession, table_path: Path
) -> None:
    spark.sql(
        f"CREATE TABLE delta.`{table_path}` (n BIGINT GENERATED ALWAYS AS IDENTITY, id BIGINT) "
        "USING delta"
    )
    table = MergeTable(spark, table_path)
    for start in (0, 8):
        source = spark.range(start, start + 10, 1, 2)
        merge = table.merge(source).whenMatchedUpdate(set={"id": "s.id"})
        merge.whenNotMatchedInsert(values={"id": "s.id"}).execute()
    rows = table.read()
    assert rows.count() == rows.select("n").distinct().count() == 18


def test_a_key_that_cannot_be_computed_for_a_row_that_is_left_out_is_no_failure(
    spark: SparkSession, table_path: Path, large_targets: None
) -> None:
    table = MergeTable.of(
        spark, table_path, "id bigint, v int", (1, 1), (2, 2), partition_by=("id",)
    )
    spark.conf.set("spark.sql.ansi.enabled", "true")
    source = table.data("k string, kind string, v int", ("1", "num", 10), ("abc", "txt", 0))
    merge = table.merge(source, "t.id = CAST(s.k AS BIGINT) AND s.kind = 'num'")
    assert table.done(merge.whenMatchedUpdate(set={"v": "s.v"})) == (1, 0, 0)
    assert table.rows == [(1, 10), (2, 2)]


def test_a_key_of_zero_finds_the_other_zero(
    spark: SparkSession, table_path: Path, large_targets: None
) -> None:
    table = MergeTable.of(spark, table_path, "id double, v int", (-0.0, 1), partition_by=())
    table.write(table.data("id double, v int", (50.0, 2)), "append")
    table.write(table.data("id double, v int", (90.0, 3)), "append")
    source = table.data("id double, v int", (0.0, 7))
    merge = table.merge(source).whenMatchedUpdate(set={"v": "s.v"}).whenNotMatchedInsertAll()
    assert table.done(merge) == (1, 0, 0)


def test_files_are_as_many_as_tasks_where_rows_shall_not_be_moved(
    spark: SparkSession, table_path: Path
) -> None:
    counts = []
    for setting in ("true", "false"):
        spark.conf.set("spark.databricks.delta.merge.repartitionBeforeWrite.enabled", setting)
        path = table_path / setting
        table = MergeTable.of(spark, path, "id int, p int", (0, 0), partition_by=("p",))
        source = spark.range(0, 40, 1, 4).selectExpr("cast(id AS int) AS id", "id % 2 AS p")
        merge = table.merge(source.repartition(4, "id")).whenMatchedUpdateAll()
        merge.whenNotMatchedInsertAll().execute()
        counts.append(len(table.files))
    assert counts[0] == 2 < counts[1]


def test_rows_that_are_not_inserted_need_not_keep_the_rules(
    spark: SparkSession, table_path: Path
) -> None:
    spark.sql(f"CREATE TABLE delta.`{table_path}` (id INT, v INT NOT NULL) USING delta")
    spark.sql(f"INSERT INTO delta.`{table_path}` VALUES (1, 1)")
    table = MergeTable(spark, table_path)
    # A rule that no inserted row can keep: Spark knows so, and could look at the source alone.
    matched = table.merge(table.data("id int", (1,))).whenNotMatchedInsert(values={"id": "s.id"})
    assert table.done(matched) == (0, 0, 0)
    new = table.merge(table.data("id int", (2,))).whenNotMatchedInsert(values={"id": "s.id"})
    with pytest.raises(DeltaError) as caught:
        new.execute()
    assert caught.value.condition == "DELTA_NOT_NULL_CONSTRAINT_VIOLATED"
    assert table.rows == [(1, 1)]


def test_a_value_that_a_query_reads_of_the_table_must_be_the_newest(
    spark: SparkSession, table_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {"delta.enableDeletionVectors": "true"}
    table = MergeTable.of(spark, table_path, "id int, v int", (1, 10), (2, 10), **properties)

    def greatest(key: int) -> str:
        return (
            f"MERGE INTO delta.`{table_path}` t USING (SELECT {key} AS id) s ON t.id = s.id "
            f"WHEN MATCHED THEN UPDATE SET v = (SELECT max(v) + 1 FROM delta.`{table_path}`)"
        )

    # Another one commits when this one has read, and before it commits.
    commit = DmlFiles.commit
    others = iter([greatest(2)])

    def late(self: DmlFiles, *given: Any) -> int:
        for other in others:
            spark.sql(other)
        return commit(self, *given)

    monkeypatch.setattr(DmlFiles, "commit", late)
    with pytest.raises(DeltaConcurrentModificationException):
        spark.sql(greatest(1))
    assert table.rows == [(1, 10), (2, 11)]
    spark.sql(greatest(1))
    assert table.rows == [(1, 12), (2, 11)]
