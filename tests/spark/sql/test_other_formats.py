"""A statement about a table of another format is Spark's, and costs no call of Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_delta import enable
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.hooks.bridge import open_door
from pyspark_delta.spark.session.door import DeltaDoor
from tests.support.catalog_tables import own_database, rows

STATEMENTS = (
    "SELECT 1",
    "WITH x AS (SELECT 1 AS id) SELECT id FROM x",
    "FROM plain SELECT id",
    "SELECT count(*) FROM plain",
    "SHOW TABLES",
    "SHOW COLUMNS IN plain",
    "SHOW PARTITIONS plain",
    "SHOW TBLPROPERTIES plain",
    "SHOW CREATE TABLE plain",
    "DESCRIBE plain",
    "DESC TABLE EXTENDED `plain`",
    "DESCRIBE plain id",
    "INSERT INTO plain VALUES (2, 'b')",
    "INSERT INTO TABLE Plain (s, id) SELECT s, id FROM plain",
    "INSERT OVERWRITE spark_catalog.{db}.plain PARTITION (s = 'c') SELECT 1",
    "INSERT INTO plain BY NAME SELECT 'd' AS s, 4 AS id",
    "ALTER TABLE {db}.plain SET TBLPROPERTIES ('delta.appendOnly' = 'true')",
    "ALTER TABLE plain ADD COLUMNS (x INT)",
    "ALTER TABLE plain DROP PARTITION (s = 'b')",
    "ANALYZE TABLE plain COMPUTE STATISTICS",
    "COMMENT ON TABLE plain IS 'delta'",
    "MSCK REPAIR TABLE plain",
    "REFRESH TABLE plain",
    "EXPLAIN EXTENDED SELECT id FROM plain",
    "EXPLAIN INSERT INTO plain SELECT * FROM plain",
    "CREATE TABLE more (id INT) USING parquet",
    "INSERT INTO more VALUES (1)",
    "ALTER TABLE more RENAME TO still_more",
    "DROP TABLE still_more",
    "CREATE TABLE made USING parquet AS SELECT id FROM plain",
    "DROP TABLE IF EXISTS made PURGE",
    "CREATE VIEW shown AS SELECT id FROM plain",
    "ALTER VIEW shown AS SELECT s FROM plain",
    "DROP VIEW shown",
    "TRUNCATE TABLE plain",
    "DROP TABLE plain",
)
REFUSED = (
    "UPDATE plain SET id = 1",
    "DELETE FROM plain AS p WHERE p.id = 1",
    "MERGE INTO plain t USING plain s ON t.id = s.id WHEN MATCHED THEN DELETE",
)
IN_FRONT = ("", "/* dbt */ ", "-- x\n", "/* a /* b */ c */\n\t", "--\\\nx\n  \u00a0")


class CountingDoor(DeltaDoor):
    """The door, and how often Java came to it: each call opens the session first."""

    def __init__(self) -> None:
        self.calls = 0

    def open(self, spark: SparkSession) -> None:
        self.calls += 1
        super().open(spark)


@pytest.fixture
def door(spark: SparkSession) -> Iterator[CountingDoor]:
    counting = CountingDoor()
    open_door(JvmSession(enable(spark)), counting)
    yield counting
    open_door(JvmSession(spark), DeltaDoor())


@pytest.fixture
def db(spark: SparkSession, door: CountingDoor) -> Iterator[str]:
    with own_database(spark) as name:
        spark.sql("CREATE TABLE plain (id INT, s STRING) USING parquet PARTITIONED BY (s)")
        yield name


def test_an_explain_of_an_explain_is_spark_s_and_changes_nothing(
    spark: SparkSession, db: str, door: CountingDoor
) -> None:
    spark.sql("CREATE TABLE t (id INT) USING delta")
    spark.sql("INSERT INTO t VALUES (1)")
    door.calls = 0
    parser = spark._jsparkSession.sessionState().sqlParser()
    assert parser.parsePlan("EXPLAIN " * 200 + "DELETE FROM t") is not None
    assert door.calls == 0
    spark.sql("EXPLAIN EXPLAIN DELETE FROM t").collect()
    assert rows(spark.table("t")) == [(1,)]


@pytest.mark.parametrize("in_front", IN_FRONT)
def test_a_statement_on_another_format_s_table_does_not_call_python(
    spark: SparkSession, db: str, door: CountingDoor, in_front: str
) -> None:
    for text in STATEMENTS:
        door.calls = 0
        spark.sql(in_front + text.replace("{db}", db)).collect()
        assert door.calls == 0, text
    assert spark.sql("SHOW TABLES").count() == 0


def test_a_change_of_another_format_s_rows_is_refused_by_spark_alone(
    spark: SparkSession, db: str, door: CountingDoor
) -> None:
    for text in REFUSED:
        door.calls = 0
        with pytest.raises(PySparkException):
            spark.sql(text)
        assert door.calls == 0, text


def test_a_frame_of_another_format_does_not_call_python(
    spark: SparkSession, db: str, door: CountingDoor
) -> None:
    data = spark.createDataFrame([(1, "a")], "id int, s string")
    door.calls = 0
    data.write.insertInto("plain")
    data.write.format("parquet").partitionBy("s").mode("append").saveAsTable("plain")
    data.write.format("parquet").mode("overwrite").saveAsTable("saved")
    data.writeTo("written").using("parquet").create()
    assert spark.read.option("mergeSchema", "true").table("plain").count() == 2
    assert door.calls == 0


@pytest.mark.parametrize("in_front", IN_FRONT)
def test_statements_on_delta_tables_are_ours_whatever_stands_in_front(
    spark: SparkSession, db: str, table_path: Path, in_front: str
) -> None:
    spark.range(2).write.format("delta").save(str(table_path))
    spark.sql("CREATE TABLE history (id INT) USING parquet")
    for text in (
        "CREATE TABLE t (id LONG) USING delta",
        "INSERT INTO t VALUES (1), (2), (3)",
        f"INSERT INTO {db}.t SELECT * FROM delta.`{table_path}`",
        "DELETE FROM t WHERE id = 3",
        "UPDATE spark_catalog.{db}.`t` SET id = 7 WHERE id = 2",
        "WITH s AS (SELECT 8L AS id) INSERT INTO t SELECT id FROM s",
        "FROM plain INSERT INTO t SELECT id",
        "ALTER TABLE t SET TBLPROPERTIES ('delta.appendOnly' = 'true')",
        "OPTIMIZE t",
        "ANALYZE TABLE t COMPUTE DELTA STATISTICS",
    ):
        spark.sql(in_front + text.replace("{db}", db))
    assert rows(spark.table("t")) == [(0,), (1,), (1,), (7,), (8,)]
    history = spark.sql(f"{in_front}DESCRIBE HISTORY t").collect()
    assert [row.operation for row in history][:2] == ["OPTIMIZE", "SET TBLPROPERTIES"]
    detail = spark.sql(f"{in_front}DESC DETAIL delta.`{table_path}`").first()
    assert detail is not None
    assert detail.format == "delta"
    shown = spark.sql(f"{in_front}SHOW TBLPROPERTIES t").collect()
    assert ("delta.appendOnly", "true") in [tuple(row) for row in shown]
    spark.sql(f"{in_front}DROP TABLE t")
    assert not spark.catalog.tableExists("t")


def test_a_temporary_view_hides_a_table_of_another_format(
    spark: SparkSession, db: str, table_path: Path
) -> None:
    spark.range(3).write.format("delta").save(str(table_path))
    spark.read.format("delta").load(str(table_path)).createOrReplaceTempView("plain")
    spark.sql("UPDATE plain SET id = 9 WHERE id = 0")
    spark.sql("INSERT INTO plain VALUES (10L)")
    assert rows(spark.table("plain")) == [(1,), (10,), (2,), (9,)]
    spark.catalog.dropTempView("plain")
    assert spark.table(f"{db}.plain").count() == 0


def test_a_name_that_a_statement_computes_is_left_to_python(
    spark: SparkSession, db: str, door: CountingDoor
) -> None:
    spark.sql("CREATE TABLE t (id INT) USING delta")
    spark.sql("INSERT INTO IDENTIFIER(:name) VALUES (1)", {"name": f"{db}.t"})
    spark.sql("SET x.table = t")
    spark.sql("INSERT INTO ${x.table} VALUES (2)")
    spark.sql("CREATE TABLE `identifier` (id INT) USING parquet")
    spark.sql("INSERT INTO `identifier` (id) VALUES (3)")
    assert rows(spark.table("t")) == [(1,), (2,)]
    assert rows(spark.table("`identifier`")) == [(3,)]
    spark.conf.unset("x.table")
