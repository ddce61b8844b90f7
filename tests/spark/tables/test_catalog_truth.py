"""What the catalog says of a Delta table is what its log says, whoever wrote there last."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_delta import DeltaTable, enable
from pyspark_delta.spark.conf.setting_table import UPDATE_CATALOG
from pyspark_delta.spark.jvm.catalog.entries import CatalogEntry, entry_properties
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.tables.names import look_up, table_log
from tests.support.catalog_tables import own_database, rows


@pytest.fixture
def db(spark: SparkSession) -> Iterator[str]:
    enable(spark)
    with own_database(spark) as name:
        yield name


def other_session(spark: SparkSession, db: str) -> SparkSession:
    other = spark.newSession()
    other.sql(f"USE {db}")
    return other


def entry_of(spark: SparkSession, name: str) -> CatalogEntry:
    found = look_up(spark, name)
    assert found is not None
    assert found.entry is not None
    return found.entry


def properties_of(spark: SparkSession, name: str) -> Mapping[str, str]:
    return entry_properties(JvmSession(spark), entry_of(spark, name))


def test_schema_and_properties_follow_the_log(
    spark: SparkSession, db: str, table_path: Path
) -> None:
    spark.sql(f"CREATE TABLE t (a INT) USING delta LOCATION '{table_path}'")
    # By its path, as somebody would who has never heard of the name.
    wider = spark.sql("SELECT 1 AS a, 'x' AS b")
    wider.write.format("delta").mode("append").option("mergeSchema", True).save(str(table_path))
    spark.sql(f"ALTER TABLE delta.`{table_path}` SET TBLPROPERTIES (k = 'v')")
    spark.sql(f"COMMENT ON TABLE delta.`{table_path}` IS 'said'")
    assert spark.table("t").columns == ["a", "b"]
    assert [row.col_name for row in spark.sql("DESCRIBE t").collect()] == ["a", "b"]
    assert ("k", "v") in rows(spark.sql("SHOW TBLPROPERTIES t"))
    assert spark.sql("DESCRIBE DETAIL t").collect()[0].description == "said"
    assert [column.name for column in spark.catalog.listColumns("t")] == ["a", "b"]
    # The entry itself is told by the next write through the name.
    spark.sql("INSERT INTO t VALUES (2, 'y')")
    assert entry_of(spark, "t").schema.names == ("a", "b")


def test_other_sessions_see_changes_at_once(spark: SparkSession, db: str) -> None:
    other = other_session(spark, db)
    spark.sql("CREATE TABLE t (a INT) USING delta")
    assert other.table("t").columns == ["a"]
    spark.sql("ALTER TABLE t ADD COLUMN b INT")
    other.sql("INSERT INTO t VALUES (1, 2)")
    assert rows(spark.table("t")) == [(1, 2)]
    other.sql("ALTER TABLE t SET TBLPROPERTIES (who = 'other')")
    assert rows(spark.sql("SHOW TBLPROPERTIES t (who)")) == [("who", "other")]
    assert rows(other.sql("SELECT max(version) FROM (SELECT 1 AS version)")) == [(1,)]
    assert spark.sql("DESCRIBE HISTORY t").count() == other.sql("DESCRIBE HISTORY t").count() == 4


def test_a_table_that_moved_is_found_at_its_new_place(
    spark: SparkSession, db: str, table_path: Path
) -> None:
    other = other_session(spark, db)
    first, second = (table_path.with_name(f"{table_path.name} {number}") for number in (1, 2))
    spark.range(1).write.format("delta").save(str(first))
    spark.range(5).write.format("delta").save(str(second))
    spark.sql(f"CREATE TABLE t USING delta LOCATION '{first}'")
    assert (spark.table("t").count(), other.table("t").count()) == (1, 1)
    spark.sql(f"ALTER TABLE t SET LOCATION '{second}'")
    assert (spark.table("t").count(), other.table("t").count()) == (5, 5)
    assert DeltaTable.forName(other, "t").toDF().count() == 5
    spark.sql("ALTER TABLE t RENAME TO u")
    assert other.table("u").count() == 5
    assert not other.catalog.tableExists("t")


def test_a_table_made_anew_at_the_same_place_is_a_new_one(
    spark: SparkSession, db: str, table_path: Path
) -> None:
    other = other_session(spark, db)
    spark.sql(f"CREATE TABLE t (a INT) USING delta LOCATION '{table_path}'")
    spark.sql("INSERT INTO t VALUES (1)")
    spark.sql("CACHE TABLE t")
    handle = DeltaTable.forName(spark, "t")
    old = handle.detail().collect()[0].id
    # Gone behind everybody's back, and written again with as many versions.
    table_log(spark, "t").wait_for_hooks()  # which would write while files go
    shutil.rmtree(table_path)
    frame = spark.sql("SELECT 'new' AS b")
    for _ in range(2):
        frame.write.format("delta").mode("append").save(str(table_path))
    for session in (spark, other):
        assert rows(session.table("t")) == [("new",), ("new",)]
        assert [row.col_name for row in session.sql("SHOW COLUMNS IN t").collect()] == ["b"]
    assert handle.detail().collect()[0].id != old
    assert rows(handle.toDF()) == [("new",), ("new",)]
    spark.sql("UNCACHE TABLE IF EXISTS t")


def test_caches_are_filled_again_when_spark_drops_them(spark: SparkSession, db: str) -> None:
    spark.sql("CREATE TABLE t (a INT) USING delta")
    spark.sql("CREATE VIEW v AS SELECT count(*) AS n FROM t")
    forgetting: list[Callable[[], object]] = [
        lambda: spark.catalog.refreshTable("t"),
        lambda: spark.sql("REFRESH TABLE t"),
        lambda: spark.sql("CLEAR CACHE"),
        lambda: spark.catalog.clearCache(),
        lambda: spark._jsparkSession.sessionState().catalog().invalidateAllCachedTables(),
        lambda: spark.sql("CACHE TABLE t"),
        lambda: spark.sql("UNCACHE TABLE t"),
    ]
    for number, forget in enumerate(forgetting, start=1):
        spark.sql(f"INSERT INTO t VALUES ({number})")
        assert rows(spark.table("v")) == [(number,)]
        forget()
        assert rows(spark.table("v")) == [(number,)]
        assert spark.sql("SELECT * FROM t").count() == number


def test_a_cached_table_is_fresh_after_every_kind_of_commit(spark: SparkSession, db: str) -> None:
    spark.sql("CREATE TABLE t USING delta AS SELECT id FROM range(4)")
    spark.sql("CACHE TABLE t")
    assert spark.catalog.isCached("t")
    for statement, expected in (
        ("INSERT INTO t VALUES (9)", 5),
        ("DELETE FROM t WHERE id = 0", 4),
        ("UPDATE t SET id = -1 WHERE id = 1", 4),
        (
            "MERGE INTO t USING (SELECT 77L AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
            5,
        ),
        ("TRUNCATE TABLE t", 0),
    ):
        spark.sql(statement)
        assert spark.sql("SELECT * FROM t").count() == expected
        assert spark.catalog.isCached("t")
    spark.sql("UNCACHE TABLE t")
    assert not spark.catalog.isCached("t")


def test_a_metastore_is_told_of_properties_when_it_is_asked_for(
    spark: SparkSession, db: str
) -> None:
    spark.sql("CREATE TABLE quiet (a INT) USING delta TBLPROPERTIES (k = 'v')")
    assert properties_of(spark, "quiet") == {}
    spark.conf.set(UPDATE_CATALOG.key, "true")
    try:
        spark.sql("CREATE TABLE t (a INT) USING delta CLUSTER BY (a) TBLPROPERTIES (k = 'v')")
        told = properties_of(spark, "t")
        assert told["k"] == "v"
        assert told["delta.feature.clustering"] == "supported"
        assert told["clusteringColumns"] == '[["a"]]'
        assert told["delta.lastUpdateVersion"] == "0"
        spark.sql("INSERT INTO t VALUES (1)")
        assert properties_of(spark, "t")["delta.lastUpdateVersion"] == "0"  # nothing new in it
        spark.sql("ALTER TABLE t SET TBLPROPERTIES (k = 'w')")
        spark.sql("ALTER TABLE t ADD COLUMN b STRING")
        told = properties_of(spark, "t")
        assert told["k"] == "w"
        assert entry_of(spark, "t").schema.names == ("a", "b")
        time = table_log(spark, "t").snapshot_at(int(told["delta.lastUpdateVersion"])).timestamp
        assert told["delta.lastCommitTimestamp"] == str(time)
        spark.sql("INSERT INTO quiet VALUES (1)")
        assert properties_of(spark, "quiet")["k"] == "v"
        assert spark.table("t").columns == ["a", "b"]
    finally:
        spark.conf.unset(UPDATE_CATALOG.key)
