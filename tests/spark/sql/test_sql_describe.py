"""DESCRIBE of Delta tables and columns, DESCRIBE DETAIL, DESCRIBE HISTORY."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from pyspark_delta import DeltaTable, enable
from pyspark_delta.errors import DeltaError
from tests.support.catalog_tables import own_database
from tests.support.refusals import condition

PARTITION_HEADS = [("# Partition Information", "", ""), ("# col_name", "data_type", "comment")]


@pytest.fixture
def db(spark: SparkSession) -> Iterator[str]:
    enable(spark)
    with own_database(spark) as name:
        yield name


def shown(spark: SparkSession, statement: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in spark.sql(statement).collect()]


def refused(spark: SparkSession, statement: str) -> str | None:
    return condition(spark, statement, kinds=DeltaError)


def refused_by_spark(spark: SparkSession, statement: str) -> str | None:
    return condition(spark, statement, kinds=AnalysisException)


def test_a_table_is_described_from_its_log(spark: SparkSession, db: str, table_path: Path) -> None:
    spark.sql(
        "CREATE TABLE t (id BIGINT NOT NULL COMMENT 'the id', `p q` STRING, s STRUCT<a: INT>, "
        "d STRING DEFAULT 'x', v VARCHAR(4)) USING delta PARTITIONED BY (`p q`) COMMENT 'hello' "
        "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported', "
        "'delta.columnMapping.mode' = 'name', own = '1')"
    )
    columns = [
        ("id", "bigint", "the id"),
        ("p q", "string", None),
        ("s", "struct<a:int>", None),
        ("d", "string", None),
        ("v", "string", None),
    ]
    plain = [*columns, *PARTITION_HEADS, ("`p q`", "string", None)]
    for form in ("DESCRIBE t", "DESC TABLE t", f"desc {db}.t;", f"DESCRIBE spark_catalog.{db}.t"):
        assert shown(spark, form) == plain
    found = spark.sql("DESCRIBE t")
    assert found.schema.simpleString() == "struct<col_name:string,data_type:string,comment:string>"
    whole = shown(spark, "DESCRIBE EXTENDED t")
    assert shown(spark, "DESCRIBE FORMATTED t") == whole
    assert whole[: len(plain)] == plain
    details = {row[0]: row[1] for row in whole[len(plain) :]}
    assert list(details) == [
        "",
        "# Detailed Table Information",
        "Catalog",
        "Namespace",
        "Database",
        "Table",
        "Type",
        "Comment",
        "Location",
        "Provider",
        *(["Owner"] if "Owner" in details else []),
        "Is_managed_location",
        "Table Properties",
        "# Column Default Values",
        "d",
    ]
    assert (details["Table"], details["Type"], details["Comment"]) == ("t", "MANAGED", "hello")
    assert "own=1]" in details["Table Properties"]
    # A path, where nobody knows a name.
    spark.range(1).write.format("delta").save(str(table_path))
    assert shown(spark, f"DESCRIBE delta.`{table_path}`") == [("id", "bigint", None)]
    by_path = {row[0]: row[1] for row in shown(spark, f"DESCRIBE EXTENDED delta.`{table_path}`")}
    assert (by_path["Namespace"], by_path["Table"]) == ("delta", str(table_path))
    assert by_path["Location"] == str(table_path)
    missing = f"DESCRIBE delta.`{table_path}x`"
    assert refused(spark, missing) == "DELTA_MISSING_DELTA_TABLE"
    assert refused_by_spark(spark, "DESCRIBE missing") == "TABLE_OR_VIEW_NOT_FOUND"


def test_a_column_is_described(spark: SparkSession, db: str) -> None:
    spark.sql(
        "CREATE TABLE t (id INT COMMENT 'the id', v VARCHAR(4), s STRUCT<a: INT>) USING delta"
    )
    assert shown(spark, "DESCRIBE t ID") == [
        ("col_name", "id"),
        ("data_type", "int"),
        ("comment", "the id"),
    ]
    assert shown(spark, "DESCRIBE EXTENDED t v")[1:] == [
        ("data_type", "varchar(4)"),
        ("comment", "NULL"),
    ]
    with pytest.raises(AnalysisException, match="nested"):
        spark.sql("DESCRIBE t s.a")
    with pytest.raises(AnalysisException):
        spark.sql("DESCRIBE t missing")


def test_names_that_look_like_verbs_are_names(spark: SparkSession, db: str) -> None:
    spark.sql("CREATE TABLE detail (a INT) USING delta")
    spark.sql("CREATE TABLE history (b INT) USING delta")
    assert shown(spark, "DESCRIBE detail") == [("a", "int", None)]
    assert shown(spark, "DESC HISTORY;") == [("b", "int", None)]
    [row] = spark.sql("DESCRIBE DETAIL detail").collect()
    assert row.name == f"spark_catalog.{db}.detail"
    assert [row.operation for row in spark.sql("DESCRIBE HISTORY history").collect()] == [
        "CREATE TABLE"
    ]


def test_details_of_tables_paths_and_what_is_none_of_deltas(
    spark: SparkSession, db: str, table_path: Path
) -> None:
    spark.sql("CREATE TABLE t (a INT, p INT) USING delta PARTITIONED BY (p) COMMENT 'hello'")
    spark.sql("INSERT INTO t VALUES (1, 1), (2, 2)")
    [named] = spark.sql("DESCRIBE DETAIL t").collect()
    assert named == DeltaTable.forName(spark, "t").detail().collect()[0]
    assert (named.format, named.name, named.description) == (
        "delta",
        f"spark_catalog.{db}.t",
        "hello",
    )
    assert (named.partitionColumns, named.numFiles) == (["p"], 2)
    spark.range(1).write.format("delta").save(str(table_path))
    [by_path] = spark.sql(f"DESC DETAIL '{table_path}'").collect()
    assert spark.sql(f"DESCRIBE DETAIL delta.`{table_path}`").collect() == [by_path]
    assert (by_path.name, by_path.location) == (None, f"file:{table_path}")
    # Tables of others, and directories, have little to tell.
    spark.sql(
        "CREATE TABLE p (a INT, b INT) USING parquet PARTITIONED BY (b) COMMENT 'c' "
        "TBLPROPERTIES (k = 'v')"
    )
    spark.sql("INSERT INTO p VALUES (1, 2)")
    [plain] = spark.sql("DESCRIBE DETAIL p").collect()
    assert (plain.format, plain.name, plain.description) == (
        "parquet",
        f"spark_catalog.{db}.p",
        "c",
    )
    assert (plain.partitionColumns, plain.properties) == (["b"], {"k": "v"})
    assert plain.createdAt is not None
    assert (plain.id, plain.numFiles, plain.minReaderVersion) == (None, None, None)
    place = plain.location.removeprefix("file:")
    [directory] = spark.sql(f"DESCRIBE DETAIL '{place}'").collect()
    assert (directory.location, directory.format, directory.properties) == (place, None, {})


def test_details_and_histories_of_nothing_are_refused(
    spark: SparkSession, db: str, table_path: Path
) -> None:
    spark.sql("CREATE VIEW v AS SELECT 1 AS a")
    spark.sql("CREATE TEMP VIEW tv_detail AS SELECT 1 AS a")
    spark.sql("CREATE TABLE p (a INT) USING parquet")
    assert refused(spark, f"DESCRIBE DETAIL '{table_path}'") == "DELTA_FILE_NOT_FOUND"
    missing = f"delta.`{table_path}`"
    assert refused(spark, f"DESCRIBE DETAIL {missing}") == "DELTA_MISSING_DELTA_TABLE"
    assert refused(spark, f"DESCRIBE HISTORY {missing}") == "DELTA_TABLE_ONLY_OPERATION"
    assert refused(spark, f"DESCRIBE HISTORY '{table_path}'") == "DELTA_TABLE_ONLY_OPERATION"
    assert refused(spark, "DESCRIBE HISTORY p") == "DELTA_ONLY_OPERATION"
    for verb in ("DETAIL", "HISTORY"):
        for view in ("v", "tv_detail"):
            assert refused_by_spark(spark, f"DESCRIBE {verb} {view}") == (
                "EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE"
            )
        assert refused_by_spark(spark, f"DESCRIBE {verb} missing") == "TABLE_OR_VIEW_NOT_FOUND"
        assert refused_by_spark(spark, f"DESCRIBE {verb} parquet.`/x`") == (
            "TABLE_OR_VIEW_NOT_FOUND"
        )
    spark.sql("DROP VIEW tv_detail")


def test_histories_of_tables_and_paths(spark: SparkSession, db: str, table_path: Path) -> None:
    spark.sql("CREATE TABLE t (a INT) USING delta")
    for number in range(3):
        spark.sql(f"INSERT INTO t VALUES ({number})")
    found = spark.sql("DESCRIBE HISTORY t")
    assert found.columns == DeltaTable.forName(spark, "t").history().columns
    assert [row.version for row in found.collect()] == [3, 2, 1, 0]
    assert [row.version for row in spark.sql("desc history t limit 2").collect()] == [3, 2]
    assert spark.sql("DESCRIBE HISTORY t LIMIT 0").collect() == []
    spark.range(1).write.format("delta").save(str(table_path))
    for place in (f"delta.`{table_path}`", f"'{table_path}'", f'"{table_path}"'):
        [row] = spark.sql(f"DESCRIBE HISTORY {place} LIMIT 5;").collect()
        assert row.operation == "WRITE"
    assert refused(spark, "DESCRIBE HISTORY t LIMIT 99999999999") == "DELTA_MAX_ARRAY_SIZE_EXCEEDED"
    # What a history is asked for, a query may be made of.
    last = spark.sql("DESCRIBE HISTORY t").where("version = 0").select("operation").collect()
    assert [row.operation for row in last] == ["CREATE TABLE"]


def test_what_passes_by_the_log_is_refused(spark: SparkSession, db: str, table_path: Path) -> None:
    spark.sql("CREATE TABLE t (a INT, p INT) USING delta PARTITIONED BY (p)")
    for statement in (
        "ANALYZE TABLE t COMPUTE STATISTICS",
        "ANALYZE TABLE t COMPUTE STATISTICS FOR ALL COLUMNS",
        "ANALYZE TABLE t PARTITION (p = 1) COMPUTE STATISTICS",
        "MSCK REPAIR TABLE t",
        f"LOAD DATA LOCAL INPATH '{table_path}' OVERWRITE INTO TABLE t",
    ):
        assert refused_by_spark(spark, statement) == "NOT_SUPPORTED_COMMAND_FOR_V2_TABLE"
    spark.sql("REFRESH TABLE t")
    spark.sql(f"REFRESH '{table_path}'")
