"""What CREATE TABLE checks of columns, and how it goes on after one that was stopped."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_delta import DeltaLog, DeltaTable, enable
from pyspark_delta.errors import DeltaError
from pyspark_delta.spark.tables.names import table_log
from tests.support import refusals
from tests.support.catalog_tables import own_database, rows

# Makes tables up to the commit, and no further: the last time it is killed there.
_STOPPED = """
import os, signal, sys
from pyspark.sql import SparkSession
import pyspark_delta
from pyspark_delta.spark.tables import registration
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.sql.warehouse.dir", sys.argv[1] + "/w")
    .getOrCreate()
)
pyspark_delta.enable(spark)
folder = sys.argv[1]
spark.sql(f"CREATE DATABASE d LOCATION '{folder}'")
spark.sql("USE d")
known = registration.create_entry
registration.create_entry = lambda *args, **more: None
spark.sql(f"CREATE TABLE apart (id INT) USING delta LOCATION '{folder}/äpart'")
spark.sql("CREATE TABLE ctas USING delta AS SELECT 7 AS id")
spark.sql("CREATE TABLE again (id INT) USING delta")
registration.create_entry = lambda *args, **more: os.kill(os.getpid(), signal.SIGKILL)
spark.sql("CREATE TABLE managed (id INT, g INT GENERATED ALWAYS AS (id + 1)) USING delta")
"""


@pytest.fixture
def db(spark: SparkSession) -> Iterator[str]:
    enable(spark)
    with own_database(spark) as name:
        yield name


def refused(spark: SparkSession, statement: str) -> DeltaError:
    with pytest.raises(DeltaError) as found:
        spark.sql(statement)
    return found.value


@pytest.mark.parametrize(
    ("column", "condition"),
    [
        (
            "INT GENERATED ALWAYS AS (CAST(a AS BIGINT))",
            "UNSUPPORTED_EXPRESSION_GENERATED_COLUMN",
        ),
        ("BIGINT GENERATED ALWAYS AS (a)", "DELTA_GENERATED_COLUMNS_EXPR_TYPE_MISMATCH"),
        ("STRING GENERATED ALWAYS AS (a + 1)", "DELTA_GENERATED_COLUMNS_EXPR_TYPE_MISMATCH"),
        ("INT GENERATED ALWAYS AS (nothing + 1)", "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
        ("INT GENERATED ALWAYS AS (s.nothing)", "FIELD_NOT_FOUND"),
        ("INT GENERATED ALWAYS AS (s + 1)", "DATATYPE_MISMATCH.BINARY_OP_DIFF_TYPES"),
        ("INT GENERATED ALWAYS AS (a + max(a))", "MISSING_GROUP_BY"),
        ("INT GENERATED ALWAYS AS (other + 1)", "UNSUPPORTED_EXPRESSION_GENERATED_COLUMN"),
        ("INT GENERATED ALWAYS AS (g + 1)", "UNSUPPORTED_EXPRESSION_GENERATED_COLUMN"),
        ("DOUBLE GENERATED ALWAYS AS (rand())", "UNSUPPORTED_EXPRESSION_GENERATED_COLUMN"),
        ("DATE GENERATED ALWAYS AS (a)", "UNSUPPORTED_EXPRESSION_GENERATED_COLUMN"),
        ("INT GENERATED ALWAYS AS ((SELECT 1))", "UNSUPPORTED_EXPRESSION_GENERATED_COLUMN"),
        (
            "INT GENERATED ALWAYS AS (row_number() OVER (ORDER BY a))",
            "DELTA_UNSUPPORTED_EXPRESSION_GENERATED_COLUMN",
        ),
        ("INT GENERATED ALWAYS AS (a + 1) DEFAULT 1", "GENERATED_COLUMN_WITH_DEFAULT_VALUE"),
        (
            "DATE GENERATED ALWAYS AS (current_date())",
            "DELTA_UNSUPPORTED_EXPRESSION_GENERATED_COLUMN",
        ),
        ("BIGINT GENERATED ALWAYS AS (count(a))", "DELTA_AGGREGATE_IN_GENERATED_COLUMN"),
        ("INT GENERATED ALWAYS AS (mine(a))", "UNSUPPORTED_EXPRESSION_GENERATED_COLUMN"),
    ],
)
def test_generation_expressions_are_checked_when_a_table_is_made(
    spark: SparkSession, db: str, column: str, condition: str
) -> None:
    spark.udf.register("mine", lambda a: a, "int")
    before = "a INT, s STRUCT<x: INT>, other INT GENERATED ALWAYS AS (a * 2)"
    for verb in ("CREATE TABLE", "CREATE OR REPLACE TABLE"):
        found = refusals.condition(spark, f"{verb} t ({before}, g {column}) USING delta")
        assert found == condition
    assert not spark.catalog.tableExists("t")


@pytest.mark.parametrize(
    ("columns", "rest", "condition"),
    [
        ("(a INT, A INT)", "", "COLUMN_ALREADY_EXISTS"),
        ("(a INT, s STRUCT<x: INT, X: INT>)", "", "COLUMN_ALREADY_EXISTS"),
        ("", "AS SELECT 1 AS a, 2 AS a", "COLUMN_ALREADY_EXISTS"),
        ("", "AS SELECT array(named_struct('x', 1, 'X', 2)) AS a", "COLUMN_ALREADY_EXISTS"),
        ("(a INT)", "PARTITIONED BY (a)", "ALL_PARTITION_COLUMNS_NOT_ALLOWED"),
        ("", "PARTITIONED BY (a) AS SELECT 1 AS a", "ALL_PARTITION_COLUMNS_NOT_ALLOWED"),
        ("(a INT, b ARRAY<INT>)", "PARTITIONED BY (b)", "INVALID_PARTITION_COLUMN_DATA_TYPE"),
        (
            "",
            "PARTITIONED BY (b) AS SELECT 1 AS a, NULL AS b",
            "INVALID_PARTITION_COLUMN_DATA_TYPE",
        ),
        (
            "",
            "PARTITIONED BY (a, a) AS SELECT 1 AS a, 2 AS b",
            "DELTA_DUPLICATE_COLUMNS_FOUND.PARTITION_COLUMNS",
        ),
        ("", "PARTITIONED BY (x) AS SELECT 1 AS a, 2 AS b", "DELTA_PARTITION_COLUMN_NOT_FOUND"),
        (
            "",
            "CLUSTER BY (x) AS SELECT 1 AS a",
            "UNSUPPORTED_FEATURE.PARTITION_WITH_NESTED_COLUMN_IS_UNSUPPORTED",
        ),
        (
            "",
            "AS SELECT NULL AS a, NULL AS b",
            "DELTA_CANNOT_WRITE_EMPTY_SCHEMA.TABLE_ALL_VOID_COLUMNS",
        ),
        (
            "",
            "PARTITIONED BY (p) AS SELECT 1 AS p, NULL AS a",
            "DELTA_NON_PARTITION_COLUMN_ABSENT.NULL_TYPE_COLUMNS_DROPPED",
        ),
    ],
)
def test_columns_that_make_no_table_are_refused_as_spark_does(
    spark: SparkSession, db: str, table_path: Path, columns: str, rest: str, condition: str
) -> None:
    for verb in ("CREATE", "CREATE OR REPLACE"):
        for name in ("t", f"delta.`{table_path}`"):
            statement = f"{verb} TABLE {name} {columns} USING delta {rest}"
            assert refusals.condition(spark, statement) == condition
    assert not spark.catalog.tableExists("t")
    assert not table_path.exists()


def test_columns_of_one_name_are_refused_before_the_name_of_the_table_is_looked_at(
    spark: SparkSession, db: str
) -> None:
    spark.sql("CREATE TABLE t (a INT) USING delta")
    for start in ("CREATE TABLE t", "CREATE TABLE IF NOT EXISTS t"):
        for columns in ("(a INT, A INT) USING delta", "USING delta AS SELECT 1 AS a, 2 AS a"):
            assert refusals.condition(spark, f"{start} {columns}") == "COLUMN_ALREADY_EXISTS"
    # Two names are two names in other formats, where the session says so.
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        spark.sql("CREATE TABLE not_delta (a INT, A INT) USING parquet")
        assert refusals.condition(spark, "CREATE TABLE u (a INT, A INT) USING delta") == (
            "DELTA_DUPLICATE_COLUMNS_FOUND"
        )
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_a_table_made_by_the_api_is_refused_for_the_same_reasons(
    spark: SparkSession, db: str
) -> None:
    twice, alone = spark.sql("SELECT 1 AS a, 2 AS a"), spark.sql("SELECT 1 AS a")
    nothing = spark.sql("SELECT NULL AS a")
    reasons: dict[str, list[Callable[[], object]]] = {
        "COLUMN_ALREADY_EXISTS": [
            lambda: twice.writeTo("t").using("delta").create(),
            lambda: twice.write.format("delta").saveAsTable("t"),
            lambda: (
                DeltaTable.create(spark)
                .tableName("t")
                .addColumn("a", "INT")
                .addColumn("A", "INT")
                .execute()
            ),
        ],
        "ALL_PARTITION_COLUMNS_NOT_ALLOWED": [
            lambda: alone.writeTo("t").using("delta").partitionedBy(F.col("a")).create(),
            lambda: alone.write.format("delta").partitionBy("a").saveAsTable("t"),
            lambda: (
                DeltaTable.create(spark)
                .tableName("t")
                .addColumn("a", "INT")
                .partitionedBy("a")
                .execute()
            ),
        ],
        "DELTA_CANNOT_WRITE_EMPTY_SCHEMA.TABLE_ALL_VOID_COLUMNS": [
            lambda: nothing.writeTo("t").using("delta").create(),
            lambda: nothing.write.format("delta").saveAsTable("t"),
        ],
    }
    for condition, calls in reasons.items():
        for call in calls:
            with pytest.raises(AnalysisException) as caught:
                call()
            assert caught.value.getCondition() == condition
    assert not spark.catalog.tableExists("t")


def test_generated_columns_of_every_nullability_are_made(spark: SparkSession, db: str) -> None:
    spark.sql(
        "CREATE TABLE t (a INT NOT NULL, g INT NOT NULL GENERATED ALWAYS AS (a), "
        "s STRUCT<x: INT> GENERATED ALWAYS AS (named_struct('x', a))) USING delta"
    )
    spark.sql("INSERT INTO t (a) VALUES (3)")
    assert [(r.a, r.g, r.s.x) for r in spark.table("t").collect()] == [(3, 3, 3)]


def test_create_goes_on_where_one_was_killed_before_the_catalog_knew(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "wäre 100%"
    folder.mkdir()
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", _STOPPED, str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == -9, done.stderr[-2000:]
    enable(spark)
    spark.sql(f"CREATE DATABASE killed LOCATION '{folder}'")
    try:
        spark.sql("USE killed")
        assert [t.name for t in spark.catalog.listTables()] == []
        # Made before, and not known: the same words make it known, others are refused.
        generated = "id INT, g INT GENERATED ALWAYS AS (id + 1)"
        other = refused(spark, "CREATE TABLE managed (id STRING) USING delta")
        assert other.condition == "DELTA_CREATE_TABLE_SCHEME_MISMATCH"
        spark.sql(f"CREATE TABLE managed ({generated}) USING delta")
        spark.sql("INSERT INTO managed (id) VALUES (1)")
        assert rows(spark.table("managed")) == [(1, 2)]
        spark.sql(f"CREATE TABLE apart (id INT) USING delta LOCATION '{folder}/äpart'")
        assert rows(spark.table("apart")) == []
        # Rows that nobody knows of are taken over by nobody, but may be replaced.
        taken = refused(spark, "CREATE TABLE ctas USING delta AS SELECT 8 AS id")
        assert taken.condition == "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"
        spark.sql("CREATE OR REPLACE TABLE ctas USING delta AS SELECT 8 AS id")
        assert rows(spark.table("ctas")) == [(8,)]
        spark.sql("CREATE OR REPLACE TABLE again (name STRING) USING delta")
        assert spark.table("again").columns == ["name"]
        assert table_log(spark, "again").update().version == 1
        assert DeltaLog.for_table(folder / "again").update().version == 1
    finally:
        spark.sql("USE default")
        spark.sql("DROP DATABASE killed CASCADE")


def test_a_replacement_that_the_catalog_did_not_hear_of_is_the_table(
    spark: SparkSession, db: str
) -> None:
    spark.sql("CREATE TABLE t (id INT) USING delta")
    # What is in the log once REPLACE is stopped right behind its commit.
    location = table_log(spark, "t").store.root_uri
    spark.sql(
        f"CREATE OR REPLACE TABLE delta.`{location.removeprefix('file://')}` (s STRING) USING delta"
    )
    assert spark.table("t").columns == ["s"]
    spark.sql("CREATE OR REPLACE TABLE t (s STRING, n INT) USING delta")
    assert [c.name for c in spark.catalog.listColumns("t")] == ["s", "n"]


@pytest.mark.parametrize(
    ("default", "condition"),
    [
        ("nobody", "INVALID_DEFAULT_VALUE.NOT_CONSTANT"),
        ("nobody(1)", "INVALID_DEFAULT_VALUE.UNRESOLVED_EXPRESSION"),
        ("rand()", "INVALID_DEFAULT_VALUE.NON_DETERMINISTIC"),
        ("uuid()", "INVALID_DEFAULT_VALUE.NON_DETERMINISTIC"),
        ("'ä' || 1 + 2", None),
    ],
)
def test_a_default_that_is_no_constant_makes_no_table(
    spark: SparkSession, db: str, default: str, condition: str | None
) -> None:
    feature = "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    statement = f"CREATE TABLE t (id INT, s STRING DEFAULT {default}) USING delta {feature}"
    if condition is None:
        spark.sql(statement)
    else:
        assert refused(spark, statement).condition == condition
    assert spark.catalog.tableExists("t") == (condition is None)


def test_a_default_is_judged_by_its_value_where_its_type_is_another(
    spark: SparkSession, table_path: Path
) -> None:
    def made(column: str) -> str:
        return (
            f"CREATE OR REPLACE TABLE delta.`{table_path}` (a INT, b {column}) USING delta "
            "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
        )

    for column, value in {
        "DATE DEFAULT '2024-05-06'": date(2024, 5, 6),
        "TINYINT DEFAULT 5L": 5,
        "STRING DEFAULT 5": "5",
    }.items():
        spark.sql(made(column))
        spark.sql(f"INSERT INTO delta.`{table_path}` (a) VALUES (1)")
        assert spark.read.format("delta").load(str(table_path)).collect() == [(1, value)]
    for column in ("DATE DEFAULT 'x'", "TINYINT DEFAULT 500", "INT DEFAULT 'x'"):
        assert refused(spark, made(column)).condition == "INVALID_DEFAULT_VALUE.DATA_TYPE"
