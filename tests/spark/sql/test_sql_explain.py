"""EXPLAIN of statements that change a Delta table: a plan, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from pyspark_delta import enable
from tests.support.catalog_tables import own_database, table_log

MERGE = (
    "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED AND s.v = 'x' THEN DELETE "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)
STATEMENTS = {
    "UPDATE t SET v = upper(v) WHERE id > 1": "UpdateCommand",
    "DELETE FROM t WHERE id = 1": "DeleteCommand",
    "DELETE FROM t": "DeleteCommand",
    MERGE: "MergeIntoCommand",
    "MERGE INTO t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *": "MergeIntoCommand",
    "MERGE INTO t USING s ON t.id = s.id WHEN NOT MATCHED BY SOURCE THEN DELETE": (
        "MergeIntoCommand"
    ),
    "INSERT INTO t SELECT * FROM s": "AppendData",
    "INSERT INTO t VALUES (7, 'g')": "AppendData",
    "INSERT OVERWRITE t SELECT * FROM s": "OverwriteData",
    "WITH q AS (SELECT * FROM s) INSERT INTO t SELECT * FROM q": "AppendData",
}


@pytest.fixture
def db(spark: SparkSession) -> Iterator[str]:
    enable(spark)
    with own_database(spark) as name:
        spark.sql("CREATE TABLE t (id INT, v STRING) USING delta")
        spark.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        spark.sql("CREATE TABLE s (id INT, v STRING) USING delta")
        yield name


def explained(spark: SparkSession, sql: str) -> str:
    found = spark.sql(sql)
    assert found.columns == ["plan"]
    return "\n".join(row[0] for row in found.collect())


def test_a_plan_is_shown_and_nothing_is_changed(spark: SparkSession, db: str) -> None:
    for statement, command in STATEMENTS.items():
        plan = explained(spark, f"EXPLAIN {statement}")
        head, first, *_ = plan.splitlines()
        assert head == "== Physical Plan =="
        assert first == f"Execute {command} spark_catalog.{db}.t"
        if "VALUES" not in statement:
            assert "FileScan parquet" in plan
    assert "PushedFilters" in explained(spark, "EXPLAIN DELETE FROM t WHERE id = 1")
    assert "Join" in explained(spark, f"EXPLAIN {MERGE}")
    assert table_log(spark, "t").update().version == 1
    assert spark.table("t").count() == 2


def test_a_table_made_of_a_query_is_explained_by_the_query_s_plan(
    spark: SparkSession, db: str, table_path: Path
) -> None:
    query = "AS SELECT id, upper(v) AS v FROM t WHERE id > :least"
    path = f"delta.`{table_path}`"
    for start, command in {
        "CREATE TABLE made USING delta": "CreateTableAsSelect spark_catalog.made",
        f"/* c */ CREATE TABLE IF NOT EXISTS {path} USING DELTA": f"CreateTableAsSelect {path}",
        f"CREATE OR REPLACE TABLE {db}.t USING delta": (
            f"ReplaceTableAsSelect spark_catalog.{db}.t"
        ),
        "REPLACE TABLE t USING delta PARTITIONED BY (v)": (
            f"ReplaceTableAsSelect spark_catalog.{db}.t"
        ),
    }.items():
        shown = spark.sql(f"EXPLAIN {start} {query}", {"least": 1}).collect()[0][0]
        assert shown.splitlines()[:2] == ["== Physical Plan ==", f"Execute {command}"]
        assert "FileScan parquet" in shown
        assert "GreaterThan(id,1)" in shown
    failed = spark.sql("EXPLAIN CREATE TABLE made USING delta AS SELECT nope FROM t").collect()
    assert "UNRESOLVED_COLUMN" in "\n".join(row[0] for row in failed)
    assert not spark.catalog.tableExists("made")
    assert not table_path.exists()
    assert table_log(spark, "t").update().version == 1


def test_every_mode_is_sparks(spark: SparkSession, db: str) -> None:
    statement = "UPDATE t SET v = :v WHERE id = 1"
    args = {"v": "z"}
    extended = spark.sql(f"EXPLAIN EXTENDED {statement}", args).first()
    assert extended is not None
    for section in ("Parsed Logical", "Analyzed Logical", "Optimized Logical", "Physical"):
        assert f"== {section} Plan ==" in extended[0]
    assert extended[0].count(f"UpdateCommand spark_catalog.{db}.t") == 4
    formatted = explained(spark, "EXPLAIN FORMATTED DELETE FROM t WHERE id = 1")
    assert "(1) Scan parquet" in formatted
    assert "Statistics(sizeInBytes" in explained(spark, "EXPLAIN COST DELETE FROM t WHERE id = 1")
    assert "Generated code:" in explained(spark, "EXPLAIN CODEGEN DELETE FROM t WHERE id = 1")
    assert table_log(spark, "t").update().version == 1


def test_what_is_wrong_is_told_in_the_place_of_the_plan(spark: SparkSession, db: str) -> None:
    for statement, said in {
        "UPDATE t SET v = nope": "UNRESOLVED_COLUMN",
        "DELETE FROM t WHERE nope = 1": "UNRESOLVED_COLUMN",
        "DELETE FROM t WHERE rand() > 0": "INVALID_NON_DETERMINISTIC_EXPRESSIONS",
        "INSERT INTO t SELECT * FROM nope": "TABLE_OR_VIEW_NOT_FOUND",
    }.items():
        first, *more = [row[0] for row in spark.sql(f"EXPLAIN {statement}").collect()]
        assert first == "Error occurred during query planning: "
        assert said in "\n".join(more)
    with pytest.raises(ParseException, match="EXPLAIN UPDATE t SET v ="):
        spark.sql("EXPLAIN UPDATE t SET v =")
    with pytest.raises(ParseException):
        spark.sql("EXPLAIN OPTIMIZE t")


def test_other_statements_are_sparks_to_explain(spark: SparkSession, db: str) -> None:
    assert "FileScan parquet" in explained(spark, "EXPLAIN SELECT * FROM t WHERE id = 1")
    spark.sql("CREATE TABLE p (id INT, v STRING) USING parquet")
    assert "InsertIntoHadoopFsRelationCommand" in explained(
        spark, "EXPLAIN INSERT INTO p SELECT * FROM t"
    )
