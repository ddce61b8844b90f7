"""Rows that other implementations lost or doubled in DELETE, UPDATE and MERGE: none does here.

Each test rebuilds what its report tells.  `docs/reported-losses.md` lists them all.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_delta import DeltaLog, DeltaTable, enable
from pyspark_delta.errors import CommitStateUnknownError, OperationNotAllowedError
from pyspark_delta.kernel.protocol.action_parts import DeletionVectorDescriptor
from pyspark_delta.kernel.protocol.actions import RemoveFile
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.storage.uris import decode_path
from pyspark_delta.kernel.txn.commit import FileSystemCommitter
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.dml.delete import run_delete
from pyspark_delta.spark.merge import request as merge_requests
from pyspark_delta.spark.merge import run as merge_command
from pyspark_delta.spark.merge.jobs import MergeJobs
from pyspark_delta.spark.merge.request import MergeSource
from tests.support.agreement import kernel_rows
from tests.support.dml_runs import check_files, conserving
from tests.support.dml_tables import VECTORS
from tests.support.faulty import Fault, FaultRule, FaultStore
from tests.support.merges import FEED, MODES, MergeTable
from tests.support.spark_tables import conf

MULTIPLE = "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"
AUTO_MERGE = "spark.databricks.delta.schema.autoMerge.enabled"
BATCHES = (4_096, 4_097, 8_191, 8_192, 8_193, 32_768, 32_769)
"""Numbers of rows around those that readers hold at once, and that one bitmap holds."""

CHANCE = "cast(reflect('java.lang.Math', 'random') AS double)"
"""A number that is another in every job; Spark's own `rand` keeps to its first seed."""

in_both_modes = pytest.mark.parametrize("properties", MODES.values(), ids=MODES)


@pytest.fixture(autouse=True)
def _enabled(spark: SparkSession) -> None:
    enable(spark)


def saved(frame: DataFrame, path: Path, *partition_by: str, **properties: str) -> MergeTable:
    """A new table with the rows of a frame, in files as the frame has them."""
    writer = frame.write.format("delta").options(**properties).partitionBy(*partition_by)
    writer.save(str(path))
    return MergeTable(frame.sparkSession, path)


def ids(table: MergeTable) -> list[int]:
    return sorted(row[0] for row in table.rows)


READS: dict[str, Callable[[SparkSession, Path], DataFrame]] = {
    "load": lambda spark, path: spark.read.format("delta").load(str(path)),
    "a handle": lambda spark, path: DeltaTable.forPath(spark, str(path)).toDF(),
    "a name": lambda spark, path: spark.table(f"delta.`{path}`"),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_rearrangement_holds_the_rows_of_the_version_that_it_replaces(
    spark: SparkSession,
    table_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[SparkSession, Path], DataFrame],
) -> None:
    """delta-io/delta#550: its rows came from a newer version, whose files stayed as well."""
    table = MergeTable.of(spark, table_path, "id int", *[(i,) for i in range(6)])
    frame = read(spark, table_path)
    table.write(table.data("id int", (6,)))
    original = OptimisticTransaction.commit_if_needed

    def late(self: OptimisticTransaction, *args: Any, **more: Any) -> Any:
        monkeypatch.undo()
        table.write(table.data("id int", (7,)))
        return original(self, *args, **more)

    monkeypatch.setattr(OptimisticTransaction, "commit_if_needed", late)
    writer = frame.repartition(2).write.format("delta").mode("overwrite")
    writer.option("dataChange", "false").save(str(table_path))
    assert ids(table) == list(range(8))
    assert table.version == 3
    check_files(table_path, 8)


@in_both_modes
def test_a_handle_that_is_target_and_source_keeps_every_column(
    spark: SparkSession, table_path: Path, properties: dict[str, str]
) -> None:
    """delta-io/delta#482: rows that a MERGE did not match had nulls in their columns after it."""
    rows = [(i, f"k{i}", f"v{i}", i / 2) for i in range(1, 6)]
    table = MergeTable.of(
        spark, table_path, "id int, k string, v string, w double", *rows, **properties
    )
    handle = DeltaTable.forPath(spark, str(table_path))
    own = handle.toDF()
    gone = own.where("id = 2")
    with conserving(table_path, deleted=1):
        merge = handle.alias("targetData").merge(
            gone.alias("deleteData"), "targetData.id = deleteData.id"
        )
        merge.whenMatchedDelete().execute()
    assert table.rows == [rows[0], *rows[2:]]
    again = handle.toDF().where("id >= 4")
    with conserving(table_path, deleted=1):
        merge = handle.alias("t").merge(again.alias("s"), "t.k = s.k AND s.id = 5")
        merge.whenMatchedDelete().execute()
    with conserving(table_path, inserted=2):
        source = handle.toDF().union(handle.toDF().selectExpr("-id", "k", "v", "w"))
        merge = handle.alias("t").merge(source.alias("s"), "t.id = s.id")
        merge = merge.whenMatchedUpdate("s.id = 1", {"v": "concat(s.v, t.k)"})
        merge.whenNotMatchedInsertAll("s.id > -4").execute()
    new = [(-1, "k1", "v1", 0.5), (-3, "k3", "v3", 1.5)]
    assert table.rows == [*new, (1, "k1", "v1k1", 0.5), rows[2], rows[3]]


@pytest.mark.parametrize(("own", "active"), [("true", "false"), ("false", "true")])
def test_a_merge_asks_its_own_session_once_whether_schemas_evolve(
    spark: SparkSession, table_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, active: str
) -> None:
    """delta-io/delta#2128, #2159: two sessions said two things, and rows went at random."""
    rows = [(i, i % 2 == 0) for i in range(40)]
    table = MergeTable.of(spark, table_path, "id int, flag boolean", *rows)
    other = spark.newSession()
    other.conf.set(AUTO_MERGE, active)

    def changing(*args: Any, **options: Any) -> MergeSource:
        spark.conf.set(AUTO_MERGE, active)  # which is another, while the command runs
        return merge_requests.merge_source(*args, **options)

    monkeypatch.setattr(merge_command, "merge_source", changing)
    with conf(spark, **{AUTO_MERGE.replace(".", "__"): active}):
        more = [(i, i % 2 == 0, False, 0) for i in range(20, 60)]
        source = table.data("id int, flag boolean, more boolean, zero int", *more)
        merge = table.merge(source).whenMatchedUpdateAll().whenNotMatchedInsertAll()
        spark.conf.set(AUTO_MERGE, own)
        # The other session is the active one from here on.
        other.createDataFrame([(1,)], "x int")
        with conserving(table_path, inserted=20):
            assert table.done(merge) == (20, 0, 20)
    table.data("x int", (1,))  # and now the one of all tests again
    assert ids(table) == list(range(60))
    assert table.read().columns == ["id", "flag", *(["more", "zero"] if own == "true" else [])]
    assert [row[1] for row in table.read().orderBy("id").collect()] == [True, False] * 30


@in_both_modes
def test_a_source_that_is_another_each_time_loses_no_row(
    spark: SparkSession, table_path: Path, properties: dict[str, str]
) -> None:
    """delta-io/delta#2104: a source asked twice matched other rows the second time."""
    rows = spark.range(0, 400, 1, 4).selectExpr("id", "id div 200 AS p", "'old' AS v")
    table = saved(rows, table_path, "p", **properties, **FEED)
    text = "reflect('java.util.UUID', 'randomUUID') AS v"
    drawn = spark.range(0, 300, 1, 3).selectExpr(f"id + floor({CHANCE} * 300) AS id", text)
    drawn = drawn.dropDuplicates(["id"]).selectExpr("id", "id div 200 AS p", "v")
    merge = table.merge(drawn, "t.p IN (0, 1, 2) AND t.p = s.p AND t.id = s.id")
    merge = merge.whenMatchedUpdateAll("s.v > t.v OR s.id % 2 = 0").whenNotMatchedInsertAll()
    before = table.num_live_rows
    updated, deleted, inserted = table.done(merge)
    check_files(table_path, before + inserted)
    found = table.rows
    assert len({row[0] for row in found}) == len(found) == 400 + inserted
    new = {row[:3] for row in table.feed if row[3] in ("insert", "update_postimage")}
    # What the feed tells is what the table has: one draw made both.
    assert new == {row for row in found if row[2] != "old"}
    assert len(new) == updated + inserted
    metrics = table.metrics
    written = metrics["numTargetRowsCopied"] + updated + inserted
    assert (deleted, metrics["numOutputRows"]) == (0, written)


@in_both_modes
def test_a_small_source_is_joined_by_the_keys_that_chose_the_files(
    spark: SparkSession,
    table_path: Path,
    properties: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """delta-io/delta#2104: the same, where keys of the source say which files are read."""
    monkeypatch.setattr(merge_requests, "SMALL_TARGET", 0)
    table = saved(spark.range(0, 400, 1, 4).selectExpr("id", "0 AS v"), table_path, **properties)
    drawn = spark.range(0, 100, 1, 2).selectExpr(f"4 * id + floor({CHANCE} * 4) AS id")
    with conserving(table_path, deleted=300):
        merge = table.merge(drawn).whenMatchedUpdate(set={"v": "1"})
        assert table.done(merge.whenNotMatchedBySourceDelete()) == (100, 300, 0)
    assert [row[0] // 4 for row in sorted(table.rows)] == list(range(100))
    assert {row[1] for row in table.rows} == {1}


def test_files_of_a_source_that_change_meanwhile_change_nothing(
    spark: SparkSession, table_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """delta-io/delta#2104: its source were CSV files, read once for each pass."""
    table = MergeTable.of(spark, table_path, "id int, v string", *[(i, "old") for i in range(9)])
    place = tmp_path / "sö urce.csv"
    place.write_text("".join(f"{i},new\n" for i in range(5, 12)))
    source = spark.read.schema("id int, v string").csv(str(place))
    original = MergeJobs._matches

    def matches(self: MergeJobs, kept: DataFrame, kinds: Any) -> Any:
        found = original(self, kept, kinds)
        place.write_text("".join(f"{i},late\n" for i in range(20)))
        return found

    monkeypatch.setattr(MergeJobs, "_matches", matches)
    with conserving(table_path, inserted=3):
        merge = table.merge(source).whenMatchedUpdateAll().whenNotMatchedInsertAll()
        assert table.done(merge) == (4, 0, 3)
    assert table.rows == sorted([(i, "old" if i < 5 else "new") for i in range(12)], key=repr)


@in_both_modes
def test_a_partition_with_a_space_is_merged_into_as_any_other(
    spark: SparkSession, table_path: Path, properties: dict[str, str]
) -> None:
    """delta-io/delta-rs#4352: the same MERGE again doubled the rows; no file was removed."""
    schema = "grp string, region string, v double"
    groups = ["a b", "50%", "a%20b", "x+y/z", "é"]
    rows = [(group, region, 1.0) for group in groups for region in "ABC"]
    table = MergeTable.of(spark, table_path, schema, *rows, partition_by=("grp",), **properties)
    source = table.data(schema, *rows)
    for _ in range(2):
        removes = [file.path for file in table.files]
        with conserving(table_path):
            merge = table.merge(source, "t.grp = s.grp AND t.region = s.region")
            merge = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll()
            assert table.done(merge) == (15, 0, 0)
        found = [action.path for action in table.last_commit if isinstance(action, RemoveFile)]
        assert sorted(found) == sorted(removes)
    assert table.rows == sorted(rows, key=repr)


def test_batches_of_rows_match_once_whatever_their_length(
    spark: SparkSession, table_path: Path
) -> None:
    """delta-io/delta-rs#4475: above 8,192 rows unique keys were said to match twice."""
    sized = " UNION ALL ".join(f"SELECT id, {n}L AS p FROM range(0, {n}, 1, 1)" for n in BATCHES)
    rows = spark.sql(f"SELECT id, p, 0L AS v FROM ({sized})").coalesce(1)
    table = saved(rows, table_path, "p")
    assert len(table.files) == len(BATCHES)
    source = spark.sql(f"SELECT id, p, id AS v FROM ({sized})")
    with conserving(table_path):
        merge = table.merge(source, "t.p = s.p AND t.id = s.id").whenMatchedUpdateAll()
        assert table.done(merge) == (sum(BATCHES), 0, 0)
    found = table.read().selectExpr("count(1)", "count(DISTINCT p, id)", "sum(v - id)").first()
    assert tuple(found or ()) == (sum(BATCHES), sum(BATCHES), 0)


def test_a_large_table_is_as_unique_in_the_source_as_in_the_target(
    spark: SparkSession, table_path: Path
) -> None:
    """delta-io/delta-rs#4572: a table of 100,000 rows could not be merged with itself."""
    rows = spark.range(0, 100_000, 1, 2).selectExpr("id", "0L AS v")
    table = saved(rows, table_path, **VECTORS)
    with conserving(table_path):
        merge = table.merge(table.read()).whenMatchedUpdate("s.id % 3 = 0", {"v": "s.id"})
        assert table.done(merge.whenNotMatchedInsertAll()) == (33_334, 0, 0)
    found = table.read().selectExpr("count(1)", "count(DISTINCT id)", "sum(v)").first()
    assert tuple(found or ()) == (100_000, 100_000, sum(range(0, 100_000, 3)))


def test_a_key_that_comes_twice_is_refused_wherever_a_batch_ends(
    spark: SparkSession, table_path: Path
) -> None:
    """delta-io/delta-rs#2407, #2961: a key that came twice in the source doubled target rows."""
    table = saved(spark.range(0, 40_000, 1, 1).selectExpr("id", "id AS v"), table_path)
    once = spark.range(0, 40_000, 1, 1).selectExpr("id", "-id AS v")
    before = {*table_path.glob("*")}
    for key in (8_191, 8_192, 32_768):
        twice = once.union(spark.range(key, key + 1).selectExpr("id", "id AS v"))
        merge = table.merge(twice).whenMatchedUpdateAll().whenNotMatchedInsertAll()
        with pytest.raises(OperationNotAllowedError, match=MULTIPLE):
            merge.execute()
    assert table.version == 0
    assert {*table_path.glob("*")} == before


@in_both_modes
def test_a_dense_partition_named_by_a_literal_is_not_doubled(
    spark: SparkSession, table_path: Path, properties: dict[str, str]
) -> None:
    """lakehq/sail#2548: its 500,000 rows doubled; with vectors, none of 400 was updated."""
    at = "timestamp'2024-01-01 00:00:00' + make_interval(0, 0, 0, {})"
    dense = spark.range(0, 5000, 1, 2).withColumn("at", F.expr(at.format(0)))
    day = "cast(1 + id % 5 AS int)"
    thin = spark.range(5000, 5050, 1, 1).withColumn("at", F.expr(at.format(day)))
    rows = dense.union(thin).withColumn("v", F.lit("old"))
    table = saved(rows, table_path, "at", **properties)
    source = spark.range(1000, 1400).selectExpr("id", "'new' AS v")
    on = f"t.at = {at.format(0)} AND t.id = s.id"
    with conserving(table_path):
        merge = table.merge(source, on).whenMatchedUpdate(set={"v": "s.v"})
        assert table.done(merge) == (400, 0, 0)
    told = {
        row[0]: (row[1], row[2])
        for row in table.read().groupBy("v").agg(F.count("id"), F.min("id")).collect()
    }
    assert told == {"old": (4_650, 0), "new": (400, 1_000)}


def _removed(table: MergeTable) -> set[tuple[str, DeletionVectorDescriptor | None]]:
    """What the newest version removed: paths, each with its vector."""
    removes = [action for action in table.last_commit if isinstance(action, RemoveFile)]
    return {(action.path, action.deletion_vector) for action in removes}


@pytest.mark.parametrize("partition", ["plain", "I love whitespaces %"])
def test_a_file_that_loses_rows_again_is_removed_with_its_vector(
    spark: SparkSession, table_path: Path, partition: str
) -> None:
    """trinodb/trino#24648, #26299: the second DELETE left the file in the table twice."""
    data = spark.range(1, 11, 1, 1).withColumn("p", F.lit(partition))
    table = saved(data, table_path, "p", **VECTORS)

    def step(command: Callable[[], object], **changed: int) -> None:
        (file,) = (file for file in table.files if file.deletion_vector is not None)
        with conserving(table_path, **changed):
            command()
        assert (file.path, file.deletion_vector) in _removed(table)

    with conserving(table_path, deleted=1):
        table.handle.delete("id = 5")
    step(lambda: table.handle.delete("id = 9"), deleted=1)
    step(lambda: table.handle.update("id = 1", {"id": "id + 100L"}))
    source = spark.range(2, 4).withColumn("p", F.lit(partition))
    step(lambda: table.done(table.merge(source).whenMatchedDelete("s.id = 3")), deleted=1)
    assert ids(table) == [2, 4, 6, 7, 8, 10, 101]
    step(lambda: table.handle.delete("p IS NOT NULL"), deleted=7)
    assert table.files == []


def test_overwrites_remove_files_with_their_vectors(spark: SparkSession, table_path: Path) -> None:
    """trinodb/trino#24648: the same for other ways in which a file with a vector goes."""
    table = saved(spark.range(0, 10, 1, 1).selectExpr("id", "id AS v"), table_path, **VECTORS)
    for wanted, left in (
        ({"replaceWhere": "id = 3"}, 9),
        ({"replaceUsing": "id"}, 8),
        ({"dataChange": "false"}, 7),
        ({}, 1),
    ):
        table.handle.delete(f"v = {10 - left}")
        one = table.data("id long, v long", (3, 3))
        data = table.read() if "dataChange" in wanted else one
        table.write(data, "overwrite", **wanted)
        check_files(table_path, left)
        assert len(kernel_rows(table_path)) == len(table.rows) == left


@in_both_modes
def test_any_rows_of_a_file_can_go_the_first_and_the_last_too(
    spark: SparkSession, table_path: Path, properties: dict[str, str]
) -> None:
    """trinodb/trino#23229, #21737, #16884: one row too many went, all in a partition, or none."""
    # Partition `p` loses the rows whose bits are in `p`: every choice among five rows.
    rows = spark.range(0, 5, 1, 1).crossJoin(spark.range(0, 32, 1, 1).toDF("p"))
    table = saved(
        rows.selectExpr("id", "p", "id * 10 AS v").coalesce(1), table_path, "p", **properties
    )
    assert len(table.files) == 32
    with conserving(table_path, deleted=80):
        table.handle.delete("shiftright(p, cast(id AS int)) % 2 = 1")
    left = [(i, p, i * 10) for p in range(32) for i in range(5) if not p >> i & 1]
    assert table.rows == sorted(left, key=repr)
    assert sorted((row["id"], row["p"], row["v"]) for row in kernel_rows(table_path)) == sorted(
        left
    )
    assert len(table.files) == 31
    for condition, kept in (("p = 1 AND id = 1", [(1, 1, 10)]), ("p = 2 AND v = 10", [])):
        assert [tuple(row) for row in table.read().where(condition).collect()] == kept


def paged(spark: SparkSession, path: Path) -> MergeTable:
    """40,000 sorted rows in one file of many row groups and pages."""
    rows = spark.range(0, 40_000, 1, 1).selectExpr("id", "concat('text', id div 5000) AS v")
    small = {"parquet.block.size": "32768", "parquet.page.size": "2048"}
    table = saved(rows, path, **VECTORS, **small, **{"parquet.page.row.count.limit": "500"})
    (file,) = table.files
    assert pq.ParquetFile(path / decode_path(file.path)).num_row_groups > 3
    return table


@pytest.mark.parametrize(("split", "vectorized"), [("40000", "true"), ("134217728", "false")])
def test_vectors_hold_where_a_scan_is_split_and_filtered(
    spark: SparkSession, table_path: Path, split: str, vectorized: str
) -> None:
    """delta-io/delta-rs#4692, trinodb/trino#28885: positions were counted in what was read."""
    table = paged(spark, table_path)
    reading = {
        "spark__sql__files__maxPartitionBytes": split,
        "spark__sql__parquet__enableVectorizedReader": vectorized,
    }
    with conf(spark, **reading):
        with conserving(table_path, deleted=5_000):
            # Whole groups and pages before these rows are not read.
            table.handle.delete("v = 'text5'")
        with conserving(table_path, deleted=7):
            table.handle.delete("id >= 12345 AND id < 12352 AND v = 'text2'")
        with conserving(table_path, deleted=1):
            source = spark.range(39_999, 40_001)
            assert table.done(table.merge(source).whenMatchedDelete()) == (0, 1, 0)
        gone = {*range(25_000, 30_000), *range(12_345, 12_352), 39_999}
        for low, high in ((0, 40_000), (12_340, 12_360), (24_990, 30_010), (39_990, 40_000)):
            found = table.read().where(f"id >= {low} AND id < {high}").select("id").collect()
            assert sorted(row[0] for row in found) == [i for i in range(low, high) if i not in gone]
        assert table.read().where("v = 'text5'").count() == 0
        assert table.read().where("v = 'text2'").count() == 4_993
    assert len(kernel_rows(table_path, "id > 29000")) == 9_999


def log_of(path: Path, *rules: FaultRule) -> DeltaLog:
    """The table's log on a store that does not answer as it should."""
    store = FaultStore(LocalStore(str(path)), list(rules))
    return DeltaLog(store, committer=FileSystemCommitter(store, sleep=lambda seconds: None))


@in_both_modes
def test_a_command_whose_answer_is_lost_keeps_the_files_of_its_commit(
    spark: SparkSession, table_path: Path, properties: dict[str, str]
) -> None:
    """ClickHouse/ClickHouse#112096, delta-io/delta-rs#2279: it said no, and deleted them."""
    table = MergeTable.of(
        spark, table_path, "id int, v string", *[(i, "a") for i in range(6)], **properties
    )
    lost = FaultRule(operation="create", path="*1.json", fault=Fault.ERROR_AFTER)
    with conserving(table_path, deleted=1):
        assert run_delete(spark, log_of(table_path, lost), F.expr("id = 1")).version == 1
    # Nor can the store be asked what became of it.
    lost = FaultRule(operation="create", path="*2.json", fault=Fault.ERROR_AFTER)
    silent = [
        FaultRule(operation=name, path="*2.json", fault=Fault.ERROR_BEFORE, times=99)
        for name in ("read", "stat")
    ]
    with conserving(table_path, deleted=1), pytest.raises(CommitStateUnknownError):
        run_delete(spark, log_of(table_path, lost, *silent), F.expr("id = 2"))
    assert [row[0] for row in table.rows] == [0, 3, 4, 5]
