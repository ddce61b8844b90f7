"""What Spark makes of SHOW, DESCRIBE and CREATE TABLE LIKE, and errors in its words."""

from __future__ import annotations

from datetime import date, datetime

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType, VarcharType

from pyspark_delta.spark.jvm.expressions.catalyst import stored_column_type, stored_columns
from pyspark_delta.spark.jvm.failures import analysis_error
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parser.changes import constant_text, literal_text, substituted
from pyspark_delta.spark.jvm.parser.plans import parse_table_statement
from pyspark_delta.spark.jvm.parser.tables import (
    LikeStatement,
    ShowStatement,
    parse_like,
    parse_show,
)
from pyspark_delta.spark.jvm.plans.frames import explain_text


@pytest.fixture
def jvm(spark: SparkSession) -> JvmSession:
    return JvmSession(spark)


def test_show_and_describe_are_read_out_of_plans(jvm: JvmSession) -> None:
    t = ("t",)
    for sql, expected in (
        ("SHOW COLUMNS IN a.t", ShowStatement(kind="ShowColumns", name=("a", "t"))),
        (
            "SHOW COLUMNS FROM t FROM a",
            ShowStatement(kind="ShowColumns", name=("a", "t"), database=("a",)),
        ),
        ("SHOW PARTITIONS t", ShowStatement(kind="ShowPartitions", name=t)),
        (
            "SHOW PARTITIONS delta.`/x y` PARTITION (P = 1, q = 'a')",
            ShowStatement(
                kind="ShowPartitions", name=("delta", "/x y"), partition={"P": "1", "q": "a"}
            ),
        ),
        (
            "SHOW PARTITIONS t PARTITION (p = NULL)",
            ShowStatement(kind="ShowPartitions", name=t, partition={"p": None}),
        ),
        ("SHOW TBLPROPERTIES t", ShowStatement(kind="ShowTableProperties", name=t)),
        (
            "SHOW TBLPROPERTIES t ('a.b')",
            ShowStatement(kind="ShowTableProperties", name=t, key="a.b"),
        ),
        ("SHOW CREATE TABLE t", ShowStatement(kind="ShowCreateTable", name=t)),
        (
            "SHOW CREATE TABLE t AS SERDE",
            ShowStatement(kind="ShowCreateTable", name=t, as_serde=True),
        ),
        ("DESC t", ShowStatement(kind="DescribeRelation", name=t)),
        (
            "DESCRIBE FORMATTED t",
            ShowStatement(kind="DescribeRelation", name=t, is_extended=True),
        ),
        (
            "DESCRIBE t a.`b c`",
            ShowStatement(kind="DescribeColumn", name=t, column=("a", "b c")),
        ),
        (
            "DESCRIBE t PARTITION (p = 1)",
            ShowStatement(kind="DescribeTablePartition", name=t, partition={"p": "1"}),
        ),
        (
            "DESCRIBE EXTENDED t AS JSON",
            ShowStatement(kind="DescribeRelationJsonCommand", name=t, is_extended=True),
        ),
    ):
        assert parse_show(jvm, sql) == expected
    for other in ("DESCRIBE FUNCTION abs", "SHOW TABLES", "DESCRIBE IDENTIFIER('t' || rand())"):
        assert parse_show(jvm, other) is None


def test_create_table_like_is_read_out_of_its_plan(jvm: JvmSession) -> None:
    found = parse_like(
        jvm,
        "CREATE TABLE IF NOT EXISTS a.t LIKE delta.`/x` USING delta LOCATION '/y' "
        "TBLPROPERTIES (k = 'v')",
    )
    assert found == LikeStatement(
        name=("a", "t"),
        source=("delta", "/x"),
        provider="delta",
        location="/y",
        stored_as=False,
        properties={"k": "v"},
        if_not_exists=True,
    )
    stored = parse_like(jvm, "CREATE TABLE t LIKE s STORED AS PARQUET")
    assert stored is not None
    assert stored.stored_as
    assert parse_like(jvm, "CREATE TABLE t (a INT) USING delta") is None


def test_options_and_buckets_of_a_table_are_read(jvm: JvmSession) -> None:
    found = parse_table_statement(
        jvm, "CREATE TABLE t (a INT) USING delta OPTIONS (foo 'b a', n 1, 'x.y' true)"
    )
    assert found is not None
    assert dict(found.options) == {"foo": "b a", "n": "1", "x.y": "true"}
    assert not found.has_buckets
    for buckets in ("CLUSTERED BY (a) INTO 4 BUCKETS", "PARTITIONED BY (bucket(4, a))"):
        found = parse_table_statement(jvm, f"CREATE TABLE t (a INT) USING delta {buckets}")
        assert found is not None
        assert (found.has_buckets, found.transforms) == (True, ())


def test_types_of_columns_lose_their_length_and_keep_a_mark(jvm: JvmSession) -> None:
    [by_text] = stored_column_type(jvm, "c", "VARCHAR(3)")
    [by_type] = stored_columns(jvm, StructType([StructField("c", VarcharType(3))]))
    assert by_text == by_type
    assert by_text.data_type.simple_string == "string"
    assert by_text.metadata == {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}
    with pytest.raises(ParseException):
        stored_column_type(jvm, "c", "NOPE")


def test_errors_are_made_with_spark_s_words(jvm: JvmSession) -> None:
    error = analysis_error(jvm, "NOT_SUPPORTED_COMMAND_FOR_V2_TABLE", cmd="ANALYZE TABLE")
    assert isinstance(error, AnalysisException)
    assert error.getCondition() == "NOT_SUPPORTED_COMMAND_FOR_V2_TABLE"
    assert "ANALYZE TABLE is not supported for v2 tables" in str(error)


def test_arguments_become_text_as_spark_writes_it(jvm: JvmSession) -> None:
    for value, text in (
        (1, "1"),
        (2.5, "2.5D"),
        (True, "true"),
        ("it's a\\b", "'it\\'s a\\\\b'"),
        (date(2024, 1, 31), "DATE '2024-01-31'"),
        (None, "NULL"),
    ):
        assert literal_text(jvm, value) == text
    assert literal_text(jvm, datetime(2024, 1, 31)).startswith("TIMESTAMP '2024-01-")
    drop = "DROP TABLE IDENTIFIER(:t) -- :u"
    assert substituted(jvm, drop, {"t": "a.b"}) == "DROP TABLE IDENTIFIER('a.b') -- :u"
    assert substituted(jvm, "SELECT ?, ?", [1, "x"]) == "SELECT 1, 'x'"
    with pytest.raises(ParseException):
        substituted(jvm, "VACUUM t RETAIN :h HOURS", {"h": 1})
    assert constant_text(jvm, "'a' || '.b'") == "a.b"
    for modes in ("simple", "extended", "codegen", "cost", "formatted"):
        assert explain_text(jvm, jvm.spark.range(1), modes)
