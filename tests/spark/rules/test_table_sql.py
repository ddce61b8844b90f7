"""SQL kept in tables is data of others: only what belongs to one row of the table is evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pyspark_delta.errors import DeltaError
from pyspark_delta.kernel.protocol.types import INTEGER, LONG, STRING, ArrayType, StructField
from tests.support.ruled_tables import RuledTable

COLUMNS = (
    StructField("i", INTEGER),
    StructField("s", STRING),
    StructField("ar", ArrayType(INTEGER)),
)
GOOD = "SELECT 1 i, 'x' s, array(1) ar"

# What must not be evaluated, and what delta-spark would call it in a CHECK constraint.
FORBIDDEN = {
    "i > (SELECT 1)": "UNSUPPORTED_EXPRESSION",
    "EXISTS (SELECT 1)": "UNSUPPORTED_EXPRESSION",
    "i IN (SELECT 1)": "UNSUPPORTED_EXPRESSION",
    "java_method('java.lang.System', 'exit', 1) IS NULL": "UNSUPPORTED_EXPRESSION",
    "reflect('java.lang.System', 'exit', 1) IS NULL": "UNSUPPORTED_EXPRESSION",
    "`REFLECT`('java.lang.System', 'exit', 1) IS NULL": "UNSUPPORTED_EXPRESSION",
    "try_reflect('java.lang.System', 'exit', 1) IS NULL": "UNSUPPORTED_EXPRESSION",
    "builtin.reflect('java.lang.System', 'exit', 1) IS NULL": "UNSUPPORTED_EXPRESSION",
    "my_udf(i) > 0": "UDF_IN",
    "some_db.my_udf(i) > 0": "UDF_IN",
    "spark_catalog.some_db.my_udf(i) > 0": "UDF_IN",
    "count(*) > 0": "AGGREGATE_IN",
    "sum(i) > 0": "AGGREGATE_IN",
    "i > 0 AND max(i) > 0": "UNSUPPORTED_EXPRESSION",
    "sum(i) OVER () > 0": "UNSUPPORTED_EXPRESSION",
    "explode(ar)": "UNSUPPORTED_EXPRESSION",
    "*": "UNSUPPORTED_EXPRESSION",
    ":named > 0": "UNSUPPORTED_EXPRESSION",
    "? > 0": "UNSUPPORTED_EXPRESSION",
    "a_variable > 0": "UNSUPPORTED_EXPRESSION",
    "i > 0 AS x": "UNSUPPORTED_EXPRESSION",
    "i > 0; DROP TABLE t": "UNSUPPORTED_EXPRESSION",
    "i > 0) OR (true": "UNSUPPORTED_EXPRESSION",
    "i >": "UNSUPPORTED_EXPRESSION",
    "": "UNSUPPORTED_EXPRESSION",
    "i > 0 AND s > 1 AND ar > true": "UNSUPPORTED_EXPRESSION",
    "IDENTIFIER('reflect')('java.lang.System', 'exit', 1) IS NULL": "UNSUPPORTED_EXPRESSION",
    "from_avro(CAST(s AS BINARY), 'file:///etc/passwd') IS NULL": "UNSUPPORTED_EXPRESSION",
    "from_xml(s, 'a INT', map('rowValidationXSDPath', s)) IS NULL": "UNSUPPORTED_EXPRESSION",
    "input_file_name() = ''": "UNSUPPORTED_EXPRESSION",
    "window(current_timestamp(), '1 day') IS NULL": "UNSUPPORTED_EXPRESSION",
}


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session with a function and a variable of its own."""
    spark.udf.register("my_udf", lambda i: i)
    spark.sql("DECLARE OR REPLACE VARIABLE a_variable INT DEFAULT 1")
    yield spark
    spark.sql("DROP TEMPORARY VARIABLE a_variable")
    spark.sql("DROP TEMPORARY FUNCTION my_udf")


def checked_by(spark: SparkSession, *rules: str) -> RuledTable:
    checks = {f"c{index}": rule for index, rule in enumerate(rules)}
    return RuledTable(spark=spark, fields=COLUMNS, checks=checks)


def with_metadata(spark: SparkSession, key: str, sql: str) -> RuledTable:
    return RuledTable(
        spark=spark, fields=(*COLUMNS, StructField("made", LONG, metadata={key: sql}))
    )


def refusal(table: RuledTable) -> DeltaError:
    with pytest.raises(DeltaError) as error:
        table.plan(GOOD)
    return error.value


def test_a_constraint_may_hold_functions_of_one_row_alone(session: SparkSession) -> None:
    for sql, kind in FORBIDDEN.items():
        condition = refusal(checked_by(session, "i > 0", sql, "s IS NOT NULL")).condition
        assert condition.startswith(f"DELTA_{kind}"), (sql, condition)
        assert condition.endswith("CHECK_CONSTRAINT")


def test_so_may_a_generated_column_and_a_default(session: SparkSession) -> None:
    for sql, kind in FORBIDDEN.items():
        made = refusal(with_metadata(session, "delta.generationExpression", sql))
        assert made.condition.startswith(f"DELTA_{kind}"), (sql, made.condition)
        assert made.condition.endswith("GENERATED_COLUMN")
        default = refusal(with_metadata(session, "CURRENT_DEFAULT", sql))
        assert default.condition == "DELTA_INVALID_COLUMN_DEFAULT", sql
        assert default.parameters["columnName"] == "made"


def test_rules_use_columns_of_the_table_alone(session: SparkSession) -> None:
    wrong = refusal(checked_by(session, "i > 0", "nosuch > 1"))
    assert wrong.condition == "DELTA_INVALID_CHECK_CONSTRAINT_REFERENCES"
    assert wrong.parameters == {"colName": "`nosuch`"}
    for sql in ("nosuch", "made", "i + other", "_metadata.file_path"):
        table = with_metadata(session, "delta.generationExpression", sql)
        other = StructField("other", LONG, metadata={"delta.generationExpression": "i"})
        condition = refusal(RuledTable(spark=session, fields=(*table.fields, other))).condition
        assert condition == "DELTA_INVALID_GENERATED_COLUMN_REFERENCES", sql
    default = refusal(with_metadata(session, "CURRENT_DEFAULT", "i"))
    assert default.parameters == {"columnName": "made", "reason": "`i` is not a constant"}


def test_a_default_is_one_value_for_all_rows_of_a_query(session: SparkSession) -> None:
    for sql in ("CAST(rand() * 9 AS BIGINT)", "length(uuid())", "monotonically_increasing_id()"):
        found = refusal(with_metadata(session, "CURRENT_DEFAULT", sql))
        assert found.condition == "INVALID_DEFAULT_VALUE.NOT_CONSTANT", sql
    for sql in (
        "unix_seconds(current_timestamp())",
        "year(current_date)",
        "length(current_user())",
        "length(session_user)",
        "length(current_database())",
        "unix_micros(now())",
    ):
        assert with_metadata(session, "CURRENT_DEFAULT", sql).rows(GOOD)[0][3] is not None, sql


def test_a_constraint_is_a_condition(session: SparkSession) -> None:
    error = refusal(checked_by(session, "i + 1"))
    assert error.condition == "DELTA_NON_BOOLEAN_CHECK_CONSTRAINT"
    assert error.parameters == {"name": "c0", "expr": "i + 1"}


def test_a_session_s_function_never_stands_in_for_sparks_own(session: SparkSession) -> None:
    session.udf.register("octet_length", lambda s: 0)
    try:
        assert checked_by(session, "octet_length(s) = 1").rows(GOOD)
    finally:
        session.sql("DROP TEMPORARY FUNCTION IF EXISTS octet_length")


@pytest.mark.parametrize(
    "text", ["(" * 20_000 + "i" + ")" * 20_000, "NOT " * 5_000 + "i", "i" * 200_000]
)
def test_text_that_is_too_deep_or_too_long_is_refused(session: SparkSession, text: str) -> None:
    error: Any = refusal(checked_by(session, text))
    assert error.condition == "DELTA_UNSUPPORTED_EXPRESSION_CHECK_CONSTRAINT"
    assert len(str(error)) < 10_000


def test_what_people_write_is_understood(session: SparkSession) -> None:
    rules = [
        "i BETWEEN 0 AND 9 -- a digit",
        "s RLIKE '^[a-z]+$' AND s NOT LIKE '%;%'",
        "CASE WHEN i > 0 THEN s IS NOT NULL ELSE true END",
        "forall(ar, x -> x > 0) AND array_contains(ar, 1)",
        "CAST(i AS STRING) IN ('1', '2')",
        "coalesce(i, 0) % 2 = 1",
        "struct(i AS x).x = 1",
        "to_date('2024-01-01') < current_date()",
        "builtin.length(s) = 1 AND system.builtin.upper(s) = 'X'",
        "i::bigint = 1",
        "from_json('{\"a\": 1}', 'a INT', map('mode', 'FAILFAST')).a = 1",
        "from_xml('<r><a>1</a></r>', 'a INT').a = 1 AND to_csv(struct(i), map('sep', ';')) = '1'",
        "s COLLATE UTF8_LCASE = 'X' AND s LIKE ANY ('x', 'y') AND NOT s ILIKE 'y'",
        "extract(YEAR FROM DATE'2024-01-01') = 2024 AND timestampadd(DAY, i, now()) > now()",
        "trim(BOTH ' ' FROM s) || substring(s FROM 1 FOR 1) = 'xx' AND position('x' IN s) = 1",
        "aggregate(ar, 0, (x, y) -> x + y) = 1 AND ar[0] = 1 AND (i, s) = (1, 'x')",
        "mask(s, lowerChar => 'y') = 'y' AND (i > 5 IS UNKNOWN OR i & 1 = 1)",
        "nullif(i, 2) = 1 AND size(array()) = 0 AND pi() > e() AND try_cast(s AS INT) IS NULL",
        "parse_json('{\"a\": 1}'):a::int = 1 AND i <=> 1 AND current_user() IS NOT NULL",
    ]
    assert checked_by(session, *rules).rows(GOOD) == [(1, "x", [1])]
