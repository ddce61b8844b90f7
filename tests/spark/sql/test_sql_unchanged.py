"""Statements that are not ours reach Spark as they were written, to the last byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from pyspark_delta import enable
from pyspark_delta.spark.session.door import DeltaDoor
from tests.support.catalog_tables import own_database

UNCHANGED = (
    "SELECT 1",
    "  \n\tselect 'VACUUM t' AS x -- OPTIMIZE t\n",
    "/* MERGE INTO t */ SELECT /*+ COALESCE(1) */ id FROM range(3)",
    "/* a /* nested */ DELETE FROM t */ SELECT 1 AS one",
    "SELECT 'it''s delta.`/no/path`', \"UPDATE t SET a = 1\"",
    "SELECT 'a\\'b', r'c\\', 'd VERSION AS OF 1'",
    "SELECT 'ünï ☃ \U0001f600' AS `delta``x`",
    "SELECT id AS `DESCRIBE HISTORY t` FROM plain WHERE s LIKE 'CREATE TABLE x LIKE y'",
    "WITH t AS (SELECT 1 AS id) SELECT * FROM t",
    "WITH delete AS (SELECT 1 AS id)\nSELECT delete.id FROM delete",
    "FROM plain SELECT id",
    "VALUES (1, 'RESTORE TABLE t TO VERSION AS OF 0')",
    "SET spark.sql.shuffle.partitions",
    "EXPLAIN EXTENDED SELECT * FROM plain;",
    "DESCRIBE plain",
    "DESC EXTENDED plain",
    "DESCRIBE plain id",
    "DESCRIBE FUNCTION abs",
    "DESCRIBE DATABASE default",
    "DESCRIBE QUERY SELECT 1 AS detail",
    "SHOW TABLES",
    "SHOW COLUMNS IN plain",
    "SHOW PARTITIONS plain",
    "SHOW TBLPROPERTIES plain",
    "SHOW CREATE TABLE plain",
    "SHOW FUNCTIONS LIKE 'describe*'",
    "REFRESH TABLE plain",
    "CACHE TABLE delta_cached AS SELECT * FROM plain",
    "CREATE OR REPLACE TEMP VIEW optimize AS\nSELECT id FROM plain  -- delta.`/x`",
    "CREATE TABLE like_plain LIKE plain",
    "CREATE TABLE more (id INT COMMENT 'USING delta') USING parquet",
    "INSERT INTO plain VALUES (2, 'b')",
    "INSERT OVERWRITE plain SELECT 1, 'a'",
    "ALTER TABLE plain SET TBLPROPERTIES ('delta.appendOnly' = 'true')",
    "ANALYZE TABLE plain COMPUTE STATISTICS",
    "COMMENT ON TABLE plain IS 'delta'",
    "TRUNCATE TABLE plain",
    "DROP TABLE more",
)


@pytest.fixture
def db(spark: SparkSession) -> Iterator[str]:
    enable(spark)
    with own_database(spark) as name:
        spark.sql("CREATE TABLE plain (id INT, s STRING) USING parquet PARTITIONED BY (s)")
        yield name


@pytest.mark.classic
def test_what_is_not_ours_is_left_to_spark(spark: SparkSession, db: str) -> None:
    for text in UNCHANGED:
        assert DeltaDoor().statement(spark, text, None) is None
        if not text.startswith(("DROP", "CREATE TABLE", "INSERT OVERWRITE", "TRUNCATE")):
            spark.sql(text)


@pytest.mark.classic
def test_a_path_in_a_text_or_a_comment_is_no_table(
    spark: SparkSession, db: str, table_path: Path
) -> None:
    spark.range(2).write.format("delta").save(str(table_path))
    text = (
        f"SELECT 'delta.`{table_path}`' AS a, /* delta.`{table_path}` */ count(*) AS n\n"
        f"FROM delta.`{table_path}` -- delta.`{table_path}`"
    )
    assert DeltaDoor().statement(spark, text, None) is None
    assert spark.sql(text).collect()[0].a == f"delta.`{table_path}`"


def test_a_view_keeps_the_text_that_it_was_made_with(
    spark: SparkSession, db: str, table_path: Path
) -> None:
    spark.range(2).write.format("delta").save(str(table_path))
    spark.range(3).write.format("delta").mode("append").save(str(table_path))
    spark.sql("CREATE TABLE t USING delta AS SELECT 1 AS id")
    spark.sql("INSERT INTO t VALUES (2)")
    text = f"SELECT p.id FROM delta.`{table_path}` p JOIN t VERSION AS OF 0 ON p.id = t.id"
    spark.sql(f"CREATE VIEW v AS {text}")
    assert text in spark.sql("SHOW CREATE TABLE v").collect()[0][0]
    assert [tuple(row) for row in spark.table("v").collect()] == [(1,), (1,)]


@pytest.mark.parametrize(
    ("text", "line", "position", "found"),
    [
        ("DESCRIBE HISTORY t LIMIT x", 1, 25, "'x'"),
        ("DESCRIBE HISTORY t\n LIMIT", 2, 6, "end of input"),
        ("DESCRIBE DETAIL\n  '/ä' /* c */ more", 2, 15, "'more'"),
        ("DESC HISTORY t LIMIT -1", 1, 21, "'-'"),
    ],
)
def test_a_syntax_error_of_ours_points_at_the_place(
    spark: SparkSession, db: str, text: str, line: int, position: int, found: str
) -> None:
    with pytest.raises(ParseException) as error:
        spark.sql(text)
    assert error.value.getCondition() == "PARSE_SYNTAX_ERROR"
    assert f"(line {line}, pos {position})" in str(error.value)
    assert found in str(error.value)
    assert text in str(error.value)
