"""Tables of Spark's session catalog: made, read by name in every way, dropped."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession, functions

from pyspark_delta import DeltaLog, enable
from pyspark_delta.errors import DeltaError, TableNotFoundError
from pyspark_delta.spark.jvm.scan.file_index import sources_in
from pyspark_delta.spark.scan.source import SnapshotSource
from pyspark_delta.spark.tables.names import resolve_table, table_log
from tests.support.catalog_tables import own_database, rows


@pytest.fixture
def db(spark: SparkSession) -> Iterator[str]:
    enable(spark)
    with own_database(spark) as name:
        yield name


def location(spark: SparkSession, name: str) -> Path:
    found = resolve_table(spark, name).location
    assert found is not None
    return Path(found.removeprefix("file:"))


def append(spark: SparkSession, path: Path, first: int, last: int) -> None:
    spark.range(first, last).write.format("delta").mode("append").save(str(path))


def test_a_managed_table_goes_with_its_files(spark: SparkSession, db: str) -> None:
    spark.sql("CREATE TABLE t (id BIGINT, s STRING) USING delta")
    path = location(spark, "t")
    assert path.name == "t"
    assert resolve_table(spark, f"spark_catalog.{db}.t").entry is not None
    spark.sql("INSERT INTO t VALUES (1, 'a')")
    assert rows(spark.table("t")) == [(1, "a")]
    spark.sql("DROP TABLE t")
    assert not path.exists()
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.table("t")
    spark.sql("DROP TABLE IF EXISTS t")
    with pytest.raises(TableNotFoundError):
        table_log(spark, "t")


def test_an_external_table_leaves_its_files(spark: SparkSession, db: str, table_path: Path) -> None:
    append(spark, table_path, 0, 3)
    spark.sql(f"CREATE TABLE t USING delta LOCATION '{table_path}'")
    entry = resolve_table(spark, "t").entry
    assert entry is not None
    assert not entry.is_managed
    assert location(spark, "t") == table_path
    assert spark.table("t").count() == 3
    assert DeltaLog.for_table(table_path).update().version == 0
    spark.sql("DROP TABLE t")
    assert spark.read.format("delta").load(str(table_path)).count() == 3


def test_every_query_sees_the_newest_version(
    spark: SparkSession, db: str, table_path: Path
) -> None:
    append(spark, table_path, 0, 2)
    spark.sql(f"CREATE TABLE t USING delta LOCATION '{table_path}'")
    spark.sql("CREATE VIEW v AS SELECT id + 1 AS x FROM t")
    spark.sql("CREATE TEMP VIEW tv AS SELECT max(id) AS m FROM t")
    held = spark.table("t")
    assert spark.table("v").count() == 2
    append(spark, table_path, 2, 5)
    assert (spark.table("t").count(), held.count()) == (5, 5)
    assert rows(spark.sql("SELECT count(*), max(x) FROM v")) == [(5, 5)]
    assert rows(spark.table("tv")) == [(4,)]
    assert spark.range(1).select(functions.expr(f"(SELECT max(id) FROM {db}.t)")).first()[0] == 4
    spark.sql("DROP VIEW tv")


def test_joins_subqueries_and_metadata_columns_resolve(spark: SparkSession, db: str) -> None:
    spark.range(4).selectExpr("id", "id % 2 AS p").write.format("delta").saveAsTable("t")
    found = spark.sql(
        "SELECT a.id, b.p FROM t a JOIN t b USING (id) WHERE a.id IN (SELECT id FROM t WHERE p = 1)"
    )
    assert rows(found) == [(1, 1), (3, 1)]
    assert rows(spark.sql("SELECT t.id FROM t WHERE EXISTS (SELECT 1 FROM t u WHERE u.id > t.id)"))
    assert spark.sql(f"SELECT {db}.t.id, _metadata.file_name FROM t").count() == 4
    plan = spark.table("t")._jdf.queryExecution().executedPlan().toString()
    assert f"{db}.t" in plan
    assert "FileScan parquet" in plan


def test_a_schema_change_is_seen_by_the_next_query(
    spark: SparkSession, db: str, table_path: Path
) -> None:
    append(spark, table_path, 0, 1)
    spark.sql(f"CREATE TABLE t USING delta LOCATION '{table_path}'")
    assert spark.table("t").columns == ["id"]
    wider = spark.sql("SELECT CAST(7 AS BIGINT) AS id, 'x' AS s")
    wider.write.format("delta").mode("append").option("mergeSchema", True).save(str(table_path))
    assert spark.table("t").columns == ["id", "s"]
    assert rows(spark.sql("SELECT s FROM t WHERE id = 7")) == [("x",)]
    assert [row.col_name for row in spark.sql("DESCRIBE t").collect()] == ["id", "s"]
    assert [row.col_name for row in spark.sql("SHOW COLUMNS IN t").collect()] == ["id", "s"]


def test_refreshing_or_forgetting_costs_nothing(spark: SparkSession, db: str) -> None:
    spark.range(2).write.format("delta").saveAsTable("t")
    spark.sql("REFRESH TABLE t")
    spark.catalog.refreshTable("t")
    spark._jsparkSession.sessionState().catalog().invalidateAllCachedTables()
    spark.catalog.clearCache()
    assert spark.sql("SELECT * FROM t").count() == 2
    spark.sql("ALTER TABLE t RENAME TO u")
    assert spark.table("u").count() == 2


def test_a_table_made_anew_is_not_taken_for_the_old_one(
    spark: SparkSession, db: str, tmp_path: Path
) -> None:
    other = spark.newSession()
    other.sql(f"USE {db}")
    spark.range(3).write.format("delta").saveAsTable("t")
    assert other.table("t").count() == 3
    spark.sql("DROP TABLE t")
    spark.sql("CREATE TABLE t (name STRING) USING delta")
    assert other.table("t").columns == ["name"]
    spark.sql("DROP TABLE t")
    elsewhere = tmp_path / "else where"
    append(spark, elsewhere, 0, 7)
    spark.sql(f"CREATE TABLE t USING delta LOCATION '{elsewhere}'")
    assert other.table("t").count() == 7
    spark.sql("DROP TABLE t")
    spark.range(2).write.format("parquet").saveAsTable("t")
    assert (other.table("t").count(), spark.table("t").count()) == (2, 2)


def test_path_tables_are_names_in_sql(spark: SparkSession, db: str, table_path: Path) -> None:
    append(spark, table_path, 0, 2)
    append(spark, table_path, 2, 6)
    name = f"delta.`{table_path}`"
    assert spark.sql(f"SELECT * FROM {name}").count() == 6
    assert rows(spark.sql(f"SELECT max({name}.id) FROM {name}")) == [(5,)]
    assert spark.table(name).count() == 6
    assert spark.read.table(name).count() == 6
    assert spark.sql(f"SELECT * FROM {name} VERSION AS OF 0").count() == 2
    assert spark.sql(f"SELECT * FROM delta.`{table_path}@v0`").count() == 2
    stamp = DeltaLog.for_table(table_path).history()[0].timestamp
    at = f"SELECT * FROM {name} TIMESTAMP AS OF timestamp_millis({stamp})"
    assert spark.sql(at).count() == 6
    with pytest.raises(DeltaError) as early:
        spark.sql(f"SELECT * FROM {name} TIMESTAMP AS OF '2001-01-01'")
    assert early.value.condition == "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION"
    assert spark.sql(f"SELECT :a + id FROM {name} WHERE id < :a", args={"a": 3}).count() == 3
    spark.sql(f"CREATE VIEW v AS SELECT id FROM {name}")
    append(spark, table_path, 6, 7)
    assert spark.table("v").count() == 7
    assert [row.col_name for row in spark.sql(f"DESCRIBE {name}").collect()] == ["id"]
    assert spark.catalog.tableExists(name)
    assert not spark.catalog.tableExists(f"delta.`{table_path}/none`")
    with pytest.raises(TableNotFoundError) as found:
        spark.sql(f"SELECT * FROM delta.`{table_path}/none`")
    assert found.value.condition == "DELTA_TABLE_NOT_FOUND"
    with pytest.raises(TableNotFoundError):
        spark.table(f"delta.`{table_path}/none`")


def test_a_database_called_delta_is_left_alone(spark: SparkSession) -> None:
    enable(spark)
    spark.sql("CREATE DATABASE delta")
    try:
        spark.range(3).write.format("delta").saveAsTable("delta.t")
        assert spark.sql("SELECT * FROM delta.t").count() == 3
        assert spark.sql("SELECT * FROM `delta`.`t`").count() == 3
    finally:
        spark.sql("DROP DATABASE delta CASCADE")


def test_time_travel_by_name(spark: SparkSession, db: str) -> None:
    spark.range(2).write.format("delta").saveAsTable("t")
    spark.range(5).write.format("delta").mode("append").saveAsTable("t")
    assert spark.read.option("versionAsOf", 0).table("t").count() == 2
    assert spark.read.table("t@v0").count() == 2
    assert spark.table("t@v1").count() == 7
    assert spark.read.option("versionAsOf", 0).table(f"{db}.t").select("t.id").count() == 2
    stamp = table_log(spark, "t").history()[0].timestamp
    assert stamp is not None
    text = spark.sql(f"SELECT CAST(timestamp_millis({stamp}) AS STRING)").first()[0]
    assert spark.read.option("timestampAsOf", text).table("t").count() == 7
    with pytest.raises(DeltaError) as found:
        spark.read.option("versionAsOf", 9).table("t")
    assert found.value.condition == "DELTA_VERSION_NOT_FOUND"


def test_sql_reads_older_versions_by_name(spark: SparkSession, db: str) -> None:
    spark.range(2).write.format("delta").saveAsTable("t")
    spark.sql("INSERT INTO t VALUES (10)")
    spark.sql("CREATE TABLE u USING delta AS SELECT id * 10 AS id FROM t VERSION AS OF 0")
    asked: dict[str, list[int]] = {
        "SELECT id FROM t VERSION AS OF 0": [0, 1],
        "SELECT t.id FROM t FOR SYSTEM_VERSION AS OF '1'": [0, 1, 10],
        f"SELECT {db}.t.id FROM {db}.`t` VERSION /* an old one */ AS OF 0": [0, 1],
        f"select max(x.id) from spark_catalog.{db}.t version as of 0 as x": [1],
        "SELECT n.id FROM t n LEFT ANTI JOIN t VERSION AS OF 0 o ON n.id = o.id": [10],
        "SELECT t.id FROM t VERSION AS OF 0 JOIN u USING (id)": [0],
        "WITH o AS (SELECT * FROM t VERSION AS OF 0) SELECT o.id FROM o JOIN t USING (id)": [0, 1],
        "SELECT id FROM t WHERE id NOT IN (SELECT id FROM t VERSION AS OF 0)": [10],
        "SELECT (SELECT max(id) FROM t VERSION AS OF 0) + id FROM u": [1, 11],
        "SELECT id FROM t VERSION AS OF 1 EXCEPT SELECT id FROM t VERSION AS OF 0": [10],
        "SELECT id FROM t WITH ('versionAsOf' = '0')": [0, 1],
        "SELECT 't VERSION AS OF 0' IS NULL AS of, id FROM t -- t VERSION AS OF 0": [0, 1, 10],
    }
    for sql, expected in asked.items():
        assert sorted(row[-1] for row in spark.sql(sql).collect()) == expected, sql
    assert spark.sql("SELECT id + :a FROM t VERSION AS OF 0", args={"a": 1}).count() == 2
    spark.sql("INSERT INTO u SELECT id FROM t VERSION AS OF 0")
    assert spark.table("u").count() == 4
    spark.sql("CREATE VIEW v AS SELECT * FROM t VERSION AS OF 0")
    assert spark.table("v").count() == 2
    plan = spark.sql("SELECT * FROM t VERSION AS OF 0")
    [source] = sources_in(plan)
    assert isinstance(source, SnapshotSource)
    assert (source.is_time_travel, source.snapshot.version) == (True, 0)


def test_sql_reads_the_version_of_a_time_by_name(spark: SparkSession, db: str) -> None:
    spark.range(2).write.format("delta").saveAsTable("t")
    spark.range(5).write.format("delta").mode("append").saveAsTable("t")
    newest, oldest = (info.timestamp for info in table_log(spark, "t").history())
    for time, expected in ((oldest, 2), (newest, 7)):
        sql = f"SELECT * FROM t TIMESTAMP AS OF timestamp_millis({time})"
        assert spark.sql(sql).count() == expected
    text = spark.sql(f"SELECT CAST(timestamp_millis({newest}) AS STRING)").first()[0]
    assert spark.sql(f"SELECT * FROM t FOR SYSTEM_TIME AS OF '{text}'").count() == 7
    refused = {
        "VERSION AS OF 9": "DELTA_VERSION_NOT_FOUND",
        "VERSION AS OF 'x'": "DELTA_TIME_TRAVEL_INVALID_BEGIN_VALUE",
        "TIMESTAMP AS OF '2001-01-01'": "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION",
        "TIMESTAMP AS OF '2201-01-01'": "DELTA_TIMESTAMP_GREATER_THAN_COMMIT",
    }
    for clause, condition in refused.items():
        with pytest.raises(DeltaError) as found:
            spark.sql(f"SELECT * FROM t {clause}")
        assert found.value.condition == condition


def test_what_has_no_versions_is_refused_by_spark(spark: SparkSession, db: str) -> None:
    spark.range(2).write.format("delta").saveAsTable("t")
    spark.range(2).write.format("parquet").saveAsTable("p")
    spark.sql("CREATE TEMPORARY VIEW w AS SELECT * FROM t")
    spark.sql("CREATE VIEW v AS SELECT * FROM t")
    for sql in (
        "SELECT * FROM p VERSION AS OF 0",
        "SELECT * FROM w VERSION AS OF 0",
        "SELECT * FROM v VERSION AS OF 0",
        "WITH t AS (SELECT 1) SELECT * FROM t VERSION AS OF 0",
        "SELECT * FROM nowhere VERSION AS OF 0",
    ):
        with pytest.raises(AnalysisException):
            spark.sql(sql)
    spark.catalog.dropTempView("w")


def test_a_schema_is_refused_on_reading(spark: SparkSession, db: str) -> None:
    spark.range(2).write.format("delta").saveAsTable("t")
    path = location(spark, "t")
    for read in (
        lambda: spark.read.schema("id INT").format("delta").load(str(path)),
        lambda: spark.read.load(str(path), format="delta", schema="id INT"),
    ):
        with pytest.raises(DeltaError) as found:
            read()
        assert found.value.condition == "DELTA_UNSUPPORTED_SCHEMA_DURING_READ"
    with pytest.raises(AnalysisException, match="schema not supported with `table`"):
        spark.read.schema("id INT").table("t")  # Spark refuses it for tables of any format


def test_a_table_whose_log_is_gone_says_so_and_can_be_dropped(spark: SparkSession, db: str) -> None:
    spark.range(2).write.format("delta").saveAsTable("t")
    table_log(spark, "t").wait_for_hooks()  # which would write while files go
    shutil.rmtree(location(spark, "t"))
    for read in (lambda: spark.table("t"), lambda: spark.sql("SELECT * FROM t")):
        with pytest.raises(TableNotFoundError) as found:
            read()
        assert found.value.parameters["tableName"] == f"spark_catalog.{db}.t"
    spark.sql("DROP TABLE t")
    assert not spark.catalog.tableExists("t")


def test_what_would_pass_by_the_log_is_refused(spark: SparkSession, db: str) -> None:
    spark.range(2).write.format("delta").saveAsTable("t")
    for statement in ("MSCK REPAIR TABLE t", "LOAD DATA INPATH '/x' INTO TABLE t"):
        with pytest.raises(AnalysisException, match="NOT_SUPPORTED_COMMAND_FOR_V2_TABLE"):
            spark.sql(statement)


def test_statements_of_other_languages_go_through_the_log(spark: SparkSession, db: str) -> None:
    spark.range(2).write.format("delta").saveAsTable("t")
    for statement in ("INSERT INTO t SELECT 5", "INSERT OVERWRITE t SELECT 6"):
        spark._jsparkSession.sql(statement)  # as from Scala, or in a script
    assert rows(spark.table("t")) == [(6,)]
    assert table_log(spark, "t").update().version == 2


def test_the_catalog_api_shows_delta_tables(spark: SparkSession, db: str, table_path: Path) -> None:
    spark.sql(
        "CREATE TABLE t (p INT, id BIGINT NOT NULL COMMENT 'the id', c CHAR(3)) "
        "USING delta PARTITIONED BY (p) COMMENT 'hello'"
    )
    assert [table.name for table in spark.catalog.listTables()] == ["t"]
    table = spark.catalog.getTable("t")
    assert (table.tableType, table.description) == ("MANAGED", "hello")
    assert spark.catalog.tableExists("t")
    assert spark.catalog.tableExists(f"{db}.t")
    assert not spark.catalog.tableExists("nothing")
    columns = spark.catalog.listColumns("t")
    assert [(c.name, c.dataType, c.nullable, c.isPartition, c.description) for c in columns] == [
        ("p", "int", True, True, None),
        ("id", "bigint", False, False, "the id"),
        ("c", "char(3)", True, False, None),
    ]
    assert spark.catalog.listColumns(f"{db}.t") == columns
    made = spark.catalog.createTable("u", source="delta", schema=spark.range(1).schema)
    assert made.columns == ["id"]
    append(spark, table_path, 0, 4)
    external = spark.catalog.createTable("w", path=str(table_path), source="delta")
    assert external.count() == 4


def test_a_cached_table_stays_cached_and_fresh(spark: SparkSession, db: str) -> None:
    spark.range(2).write.format("delta").saveAsTable("t")
    spark.catalog.cacheTable("t")
    assert spark.catalog.isCached("t")
    assert spark.table("t").count() == 2
    spark.range(3).write.format("delta").mode("append").saveAsTable("t")
    assert spark.table("t").count() == 5
    assert spark.catalog.isCached("t")
    assert "InMemoryRelation" in spark.table("t")._jdf.queryExecution().executedPlan().toString()
    spark.catalog.uncacheTable("t")
    assert not spark.catalog.isCached("t")
    assert spark.table("t").count() == 5


def test_threads_read_at_once(spark: SparkSession, db: str) -> None:
    spark.range(10).write.format("delta").saveAsTable("t")
    counts: list[int] = []
    threads = [
        Thread(target=lambda: counts.append(spark.sql("SELECT * FROM t").count())) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [10] * 4


def test_other_formats_are_untouched(spark: SparkSession, db: str, tmp_path: Path) -> None:
    spark.range(3).write.format("parquet").saveAsTable("p")
    spark.sql("INSERT INTO p VALUES (7)")
    assert spark.table("p").count() == 4
    spark.sql("CREATE TABLE q (a INT) USING json")
    spark.sql("INSERT INTO q SELECT 1")
    assert rows(spark.sql("SELECT * FROM q")) == [(1,)]
    spark.range(2).write.mode("append").saveAsTable("p")
    spark.range(2).write.insertInto("p", overwrite=True)
    assert spark.table("p").count() == 2
    spark.sql("TRUNCATE TABLE p")
    assert spark.catalog.listColumns("p")[0].name == "id"
    with pytest.raises(AnalysisException):
        spark.read.option("versionAsOf", 0).table("p")


def test_a_view_of_a_session_with_delta_sparks_catalog_is_read(
    spark: SparkSession, db: str
) -> None:
    spark.sql("CREATE TABLE t USING delta AS SELECT 1 AS id")
    key = "spark.sql.catalog.spark_catalog"
    spark.conf.set(key, "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    try:
        spark.sql("CREATE VIEW v AS SELECT id FROM t")
    finally:
        spark.conf.unset(key)
    spark.sql("INSERT INTO t VALUES (2)")
    described = {row.col_name for row in spark.sql("DESCRIBE EXTENDED v").collect()}
    assert "View Query" in described or "View Text" in described
    assert rows(spark.table("v")) == [(1,), (2,)]
