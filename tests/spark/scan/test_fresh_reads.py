"""Reads without a version show the newest rows: held frames, views, caches, streams, commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import cast

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_delta import DeltaLog, DeltaTable, enable
from pyspark_delta.errors import DeltaError
from pyspark_delta.spark.jvm.gateway import JvmSession, items
from pyspark_delta.spark.jvm.scan.file_index import proxy_behind, sources_in
from pyspark_delta.spark.scan.source import SnapshotSource
from pyspark_delta.spark.scan.versions import one_version_each
from pyspark_delta.spark.write.request import WriteRequest
from pyspark_delta.spark.write.run import run_write
from tests.support.catalog_tables import own_database, rows
from tests.support.streams import Batches, start, stream_of
from tests.support.tables import append, create_table, overwrite, table_log

IDS = pa.schema([("id", pa.int64())])
CHANGED = "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS"


@pytest.fixture
def db(spark: SparkSession) -> Iterator[str]:
    enable(spark)
    with own_database(spark) as name:
        yield name


def ids(*listed: int) -> pa.Table:
    return pa.table({"id": list(listed)}, schema=IDS)


def summed(frame: DataFrame) -> tuple[int, int]:
    """How many rows, by the log where it can tell, and their sum, by a scan."""
    return frame.count(), frame.agg(F.sum("id")).first()[0]


def holders(spark: SparkSession, path: Path) -> dict[str, Callable[[], DataFrame]]:
    """The table `t` of the current database, at `path`, as programs hold on to it."""
    by_path = spark.read.format("delta").load(str(path))
    by_name = spark.table("t")
    handle = DeltaTable.forPath(spark, str(path)).toDF()
    by_path.createOrReplaceTempView("of_path")
    by_name.where("id >= 0").createOrReplaceTempView("of_name")
    spark.sql("CREATE VIEW of_sql AS SELECT id FROM t")
    spark.sql(f"CREATE TEMP VIEW of_path_in_sql AS SELECT id FROM delta.`{path}`")
    views = ("of_path", "of_name", "of_sql", "of_path_in_sql")
    return {
        "path": lambda: by_path,
        "name": lambda: by_name,
        "handle": lambda: handle,
        **{name: partial(spark.table, name) for name in views},
        **{f"held {name}": partial(spark.table(name).select, "*") for name in views},
    }


# By name or by path: `{t}` is the table.
COMMANDS = (
    ("append", "INSERT INTO {t} VALUES (10), (11)", (6, 27)),
    ("DELETE", "DELETE FROM {t} WHERE id = 1", (5, 26)),
    ("UPDATE", "UPDATE {t} SET id = 20 WHERE id = 2", (5, 44)),
    (
        "MERGE",
        "MERGE INTO {t} t USING (SELECT 3L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
        (4, 41),
    ),
    ("OPTIMIZE", "OPTIMIZE {t}", (4, 41)),
    ("overwrite", "INSERT OVERWRITE {t} VALUES (7)", (1, 7)),
    ("RESTORE", "RESTORE TABLE {t} TO VERSION AS OF 1", (4, 6)),
)
TARGETS = ("t", "delta.`{path}`")


@pytest.mark.parametrize("with_vectors", [False, True], ids=["rewriting", "vectors"])
def test_whatever_holds_a_table_shows_its_newest_rows(
    spark: SparkSession, db: str, table_path: Path, with_vectors: bool
) -> None:
    spark.sql(f"CREATE TABLE t (id BIGINT) USING delta LOCATION '{table_path}'")
    spark.range(4).coalesce(1).write.format("delta").mode("append").saveAsTable("t")
    held = holders(spark, table_path)
    travelled = spark.read.format("delta").option("versionAsOf", 1).load(str(table_path))
    assert {name: frame().count() for name, frame in held.items()} == dict.fromkeys(held, 4)
    if with_vectors:
        # The plans were made before any row of any file could be deleted.
        spark.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    for (name, statement, expected), kind in zip(COMMANDS, held, strict=False):
        spark.sql(statement.format(t="t"))
        assert summed(held[kind]()) == expected, (name, kind)
    append(table_log(table_path), ids(100))  # another process's
    assert {name: summed(frame()) for name, frame in held.items()} == dict.fromkeys(held, (5, 106))
    assert summed(travelled) == (4, 6)
    spark.sql("DROP VIEW of_sql")


def test_a_held_frame_has_no_new_columns_and_refuses_what_it_cannot_follow(
    spark: SparkSession, db: str
) -> None:
    spark.sql(
        "CREATE TABLE t (id INT, p STRING) USING delta PARTITIONED BY (p) TBLPROPERTIES "
        "('delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true')"
    )
    spark.sql("INSERT INTO t VALUES (1, 'a')")
    held = spark.table("t")
    spark.sql("ALTER TABLE t ADD COLUMN more STRING")
    spark.sql("INSERT INTO t VALUES (2, 'b', 'new')")
    assert rows(held) == [(1, "a"), (2, "b")]
    before = spark.table("t").where("id > 0")
    for change in (
        "ALTER TABLE t RENAME COLUMN more TO less",
        "ALTER TABLE t ALTER COLUMN id TYPE BIGINT",
        "ALTER TABLE t DROP COLUMN less",
    ):
        spark.sql(change)
        with pytest.raises(PySparkException) as caught:
            before.collect()
        assert caught.value.getCondition() == CHANGED, change
        assert "Make the DataFrame again" in str(caught.value)
        before = spark.table("t").where("id > 0")
        assert before.count() == 2
    unpartitioned = spark.sql("SELECT 3L AS id, 'c' AS p").write.format("delta")
    unpartitioned.mode("overwrite").option("overwriteSchema", True).saveAsTable("t")
    with pytest.raises(PySparkException, match=CHANGED):
        before.count()
    assert rows(spark.table("t")) == [(3, "c")]


def test_row_ids_are_those_of_the_newest_version(spark: SparkSession, db: str) -> None:
    spark.sql(
        "CREATE TABLE t (id BIGINT) USING delta TBLPROPERTIES "
        "('delta.enableRowTracking' = 'true', 'delta.enableDeletionVectors' = 'true')"
    )
    spark.sql("INSERT INTO t SELECT id FROM range(0, 4, 1, 1)")
    held = spark.table("t").select("id", "_metadata.row_id", "_metadata.row_commit_version")
    spark.sql("DELETE FROM t WHERE id = 1")
    spark.sql("UPDATE t SET id = 30 WHERE id = 3")
    assert rows(held) == [(0, 0, 1), (2, 2, 1), (30, 3, 3)]


def planned_versions(query: DataFrame) -> set[int]:
    """The versions that the scans of a query read, in subqueries too."""
    plan = query._jdf.queryExecution().optimizedPlan()
    plans = [plan, *items(plan.subqueriesAll())]
    leaves = [leaf for each in plans for leaf in items(each.collectLeaves())]
    proxies = [proxy for leaf in leaves if (proxy := proxy_behind(leaf)) is not None]
    assert len(proxies) > 1
    return {cast("SnapshotSource", proxy.source).snapshot.version for proxy in proxies}


@pytest.mark.parametrize(
    "each_runs", [20, pytest.param(1, marks=pytest.mark.slow)], ids=["planned", "run"]
)
def test_all_scans_of_one_query_read_one_version(
    spark: SparkSession, db: str, table_path: Path, each_runs: int
) -> None:
    """500 queries beside a writer; all are planned, and one of so many is run."""
    log = create_table(table_path, IDS)
    append(log, ids(0))
    spark.sql(f"CREATE TABLE t USING delta LOCATION '{table_path}'")
    spark.sql("CREATE VIEW v AS SELECT id FROM t")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    path = spark.read.format("delta").load(str(table_path))
    name = spark.table("t")
    name.createOrReplaceTempView("held")
    # Each version has one row with an id of its own; each query gives it as several scans see it.
    queries = [
        path.alias("a").join(name.alias("b"), "id").select("id", F.col("id").alias("n")),
        path.selectExpr("id", "id AS n").union(name.selectExpr("id", "id")),
        spark.sql("SELECT (SELECT first(id) FROM t), id FROM held WHERE id IN (TABLE t)"),
        spark.sql("SELECT a.id, b.id FROM v a JOIN v b ON a.id = b.id"),
        spark.sql("WITH c AS (SELECT id FROM t) SELECT a.id, b.id FROM c a, c b, v WHERE true"),
    ]
    ended = Event()

    def write() -> None:
        number = 1
        while not ended.is_set() and number < 10_000:
            overwrite(log, ids(number))
            number += 1
            ended.wait(0.01)

    writer = Thread(target=write)
    writer.start()
    seen: set[int] = set()
    try:
        for turn in range(500):
            # A frame of its own each time: one frame plans its own query once.
            query = queries[turn // 20 % len(queries)].limit(9)
            versions = planned_versions(query)
            assert len(versions) == 1, (turn, versions)
            seen |= versions
            if turn % each_runs == 0:
                assert len({value for row in query.collect() for value in row}) == 1, turn
    finally:
        ended.set()
        writer.join()
    assert len(seen) > 10  # the table did change in between


CACHED = (
    *COMMANDS,
    ("saved by path", None, (6, 9)),
)


@pytest.mark.parametrize("target", TARGETS, ids=["name", "path"])
def test_what_spark_has_cached_is_read_again_after_a_write_of_the_session(
    spark: SparkSession, db: str, table_path: Path, target: str
) -> None:
    spark.sql(
        f"CREATE TABLE t (id BIGINT) USING delta LOCATION '{table_path}' "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    spark.range(4).coalesce(1).write.format("delta").mode("append").saveAsTable("t")
    cached = spark.read.format("delta").load(str(table_path)).where("id >= 0").cache()
    older = spark.read.format("delta").option("versionAsOf", 1).load(str(table_path)).cache()
    spark.catalog.cacheTable("t")
    try:
        before = 4
        for name, statement, expected in CACHED:
            assert (cached.count(), older.count()) == (before, 4)
            if statement is None:
                extra = spark.createDataFrame([(1,), (2,)], "id BIGINT")
                extra.write.format("delta").mode("append").save(str(table_path))
            else:
                spark.sql(statement.format(t=target.format(path=table_path)))
            assert summed(cached) == expected, name
            assert spark.table("t").count() == expected[0], name
            assert spark.catalog.isCached("t")
            plan = cached.select("id")._jdf.queryExecution().executedPlan().toString()
            assert "InMemoryRelation" in plan, name
            before = expected[0]
    finally:
        cached.unpersist()
        older.unpersist()
        spark.catalog.uncacheTable("t")


def test_a_stream_joined_with_a_table_sees_its_new_rows(
    spark: SparkSession, db: str, table_path: Path, tmp_path: Path
) -> None:
    events = create_table(tmp_path / "évents 5%", IDS)
    append(events, ids(1, 2, 3))
    spark.sql(
        f"CREATE TABLE t (id BIGINT, name STRING) USING delta LOCATION '{table_path}' "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    spark.sql("INSERT INTO t VALUES (1, 'one'), (3, 'three')")
    dimension = spark.table("t")
    joined = stream_of(spark, tmp_path / "évents 5%").join(dimension, "id")
    batches = Batches()
    query = start(joined, tmp_path / "chéck 5%", batches, processingTime="0 seconds")
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    steps = (
        (None, [(1, "one"), (3, "three")]),
        ("INSERT INTO t VALUES (2, 'two')", [(1, "one"), (2, "two"), (3, "three")]),
        (
            "MERGE INTO t USING (SELECT 2L AS id) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET name = 'zwei'",
            [(1, "one"), (2, "zwei"), (3, "three")],
        ),
        ("DELETE FROM t WHERE id = 1", [(2, "zwei"), (3, "three")]),
        ("OPTIMIZE t", [(2, "zwei"), (3, "three")]),
        ("VACUUM t RETAIN 0 HOURS", [(2, "zwei"), (3, "three")]),
    )
    try:
        for statement, expected in steps:
            if statement is not None:
                spark.sql(statement)
                append(events, ids(1, 2, 3))
            query.processAllAvailable()
            assert sorted(batches.all[-1]) == expected, statement
    finally:
        query.stop()


def test_a_command_reads_its_table_as_its_transaction_does(
    spark: SparkSession, db: str, table_path: Path
) -> None:
    log = create_table(table_path, IDS)
    append(log, ids(1, 2))
    mine = DeltaLog.for_table(str(table_path))
    doubled = spark.read.format("delta").load(str(table_path)).selectExpr("id * 10 AS id")

    def other_writer() -> None:
        append(log, ids(5))

    request = WriteRequest(mode="append", options={})
    # Rows that the transaction has not seen are read by none of its queries, and are a conflict.
    with pytest.raises(DeltaError, match="DELTA_CONCURRENT_APPEND"):
        run_write(spark, mine, doubled, request, starting=other_writer)
    assert [read.num_files for read in sources_in(doubled)[0].reads] == [1]
    assert rows(spark.read.format("delta").load(str(table_path))) == [(1,), (2,), (5,)]


def test_all_queries_of_a_command_read_one_version_of_each_table(
    spark: SparkSession, table_path: Path
) -> None:
    log = create_table(table_path, IDS)
    append(log, ids(1))
    held = enable(spark).read.format("delta").load(str(table_path))
    jvm = JvmSession(spark)
    with one_version_each(jvm):
        assert held.count() == 1
        append(log, ids(2))
        assert held.count() == 1
        with one_version_each(jvm):  # a part of it
            assert held.count() == 1
        with one_version_each(jvm, apart=True):
            assert held.count() == 2
        assert summed(held) == (1, 1)
    assert held.count() == 2


def test_rows_that_were_cached_before_another_writer_came_are_no_current_read(
    spark: SparkSession, table_path: Path
) -> None:
    log = create_table(table_path, IDS)
    append(log, ids(1, 2))
    cached = enable(spark).read.format("delta").load(str(table_path)).where("id > 0").cache()
    try:
        assert cached.count() == 2
        append(log, ids(3))  # another process's: Spark does not read what it has cached again
        write = cached.write.format("delta").mode("overwrite")
        with pytest.raises(DeltaError) as caught:
            write.save(str(table_path))
        assert caught.value.condition.startswith("DELTA_CONCURRENT_")
    finally:
        cached.unpersist()
    assert summed(spark.read.format("delta").load(str(table_path))) == (3, 6)
