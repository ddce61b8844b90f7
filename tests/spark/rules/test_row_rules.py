"""What a table refuses: NOT NULL, CHECK, invariants, lengths, and what the error says."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_delta.errors import ConstraintError, DeltaError, SchemaError
from pyspark_delta.kernel.protocol.actions import Protocol
from pyspark_delta.kernel.protocol.types import (
    BINARY,
    DATE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    ArrayType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)
from pyspark_delta.spark.rules.rows import RowCheck, typed_violations
from tests.support.ruled_tables import RuledTable

CHAR_KEY = "__CHAR_VARCHAR_TYPE_STRING"


@pytest.fixture
def table(spark: SparkSession) -> Callable[..., RuledTable]:
    def of(*fields: StructField, **settings: Any) -> RuledTable:
        return RuledTable(spark=spark, fields=fields, **settings)

    return of


Tables = Callable[..., RuledTable]


def refused(
    table: RuledTable, data: Any, *checks: RowCheck, kind: type[DeltaError] = ConstraintError
) -> tuple[str, dict[str, str]]:
    """The condition and parameters with which data is refused."""
    with pytest.raises(kind) as error:
        table.rows(data, *checks)
    return error.value.condition, error.value.parameters


def test_a_table_without_rules_takes_data_as_it_is(spark: SparkSession, table: Tables) -> None:
    data = spark.range(3)
    assert table(StructField("id", LONG)).plan(data) is data


def test_null_in_a_not_null_column_is_refused(table: Tables) -> None:
    named = table(StructField("i", INTEGER, nullable=False), StructField("tä.x", STRING))
    assert named.rows("SELECT 1 AS I") == [(1, None)]
    assert refused(named, "SELECT CAST(NULL AS INT) i, 'x' `tä.x`") == (
        "DELTA_NOT_NULL_CONSTRAINT_VIOLATED",
        {"columnName": "i"},
    )


def test_a_not_null_field_needs_its_struct_too(table: Tables) -> None:
    inner = StructType((StructField("a", INTEGER, nullable=False), StructField("b", INTEGER)))
    nested = table(StructField("s", inner), StructField("i", INTEGER))
    violated = ("DELTA_NOT_NULL_CONSTRAINT_VIOLATED", {"columnName": "s.a"})
    assert nested.rows("SELECT named_struct('b', 2, 'a', 1) s") == [((1, 2), None)]
    assert refused(nested, "SELECT named_struct('a', CAST(NULL AS INT), 'b', 1) s") == violated
    assert refused(nested, "SELECT CAST(NULL AS STRUCT<a: INT, b: INT>) s") == violated


def test_a_not_null_column_that_is_missing_is_named_before_any_job(table: Tables) -> None:
    inner = StructType((StructField("a", INTEGER, nullable=False), StructField("b", INTEGER)))
    fields = (StructField("n", LONG, nullable=False), StructField("s", inner))
    for query, name in (("SELECT 1 AS z", "n"), ("SELECT 1L n, named_struct('b', 1) s", "s.a")):
        with pytest.raises(SchemaError) as error:
            table(*fields).plan(query)
        assert error.value.condition == "DELTA_MISSING_NOT_NULL_COLUMN_VALUE"
        assert error.value.parameters == {"columnName": name}


def test_a_check_must_be_true_and_null_is_not(table: Tables) -> None:
    adults = table(StructField("age", INTEGER), checks={"adult": "age >= 18"})
    assert adults.rows("SELECT 18 age") == [(18,)]
    for value, shown in (("17", "17"), ("CAST(NULL AS INT)", "null")):
        assert refused(adults, f"SELECT {value} age") == (
            "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES",
            {"constraintName": "adult", "expression": "(age >= 18)", "values": f" - age : {shown}"},
        )


def test_the_error_shows_the_values_of_the_columns_in_the_rule(
    spark: SparkSession, table: Tables
) -> None:
    inner = StructType((StructField("a", INTEGER), StructField("x.y", STRING)))
    fields = (
        StructField("s", STRING),
        StructField("d", DATE),
        StructField("ts", TIMESTAMP),
        StructField("st", inner),
        StructField("ar", ArrayType(LONG)),
        StructField("b", BINARY),
        StructField("de", DecimalType(38, 2)),
        StructField("unused", LONG),
    )
    rule = (
        "length(s) < 4 OR d > DATE'2020-01-01' OR ts IS NULL OR st.a > 0 OR st.`x.y` = 'q' "
        "OR size(ar) > 5 OR b > X'FF' OR de < 0"
    )
    hostile = "${x} <y> %s \"q\" 'p' \\\\ ]}, {0} ☃"
    data = spark.sql(
        "SELECT DATE'2010-02-03' d, TIMESTAMP'2010-02-03 04:05:06' ts, "
        "named_struct('a', -1, 'x.y', 'z') st, array(1L, 9007199254740993L) ar, X'00' b, "
        "CAST('123456789012345678901234567890.12' AS DECIMAL(38, 2)) de, 1L unused"
    ).withColumn("s", F.lit(hostile))
    condition, parameters = refused(table(*fields, checks={"c": rule}), data)
    assert condition == "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"
    assert parameters["values"].split("\n") == [
        " - ar : [1, 9007199254740993]",
        " - b : AA==",
        " - d : 2010-02-03",
        " - de : 123456789012345678901234567890.12",
        f" - s : {hostile}",
        " - st.`x.y` : z",
        " - st.a : -1",
        " - ts : 2010-02-03T04:05:06.000-08:00",
    ]


def test_constraints_name_columns_ignoring_case_and_quoted(table: Tables) -> None:
    odd = table(
        StructField("a`b c", INTEGER),
        StructField("Größe", INTEGER),
        checks={"one": "`A``B C` > 0", "two": "`größe` < 10"},
    )
    assert odd.rows("SELECT 1 `a``b c`, 2 `GRÖSSE`, 3 `größe`") == [(1, 3)]
    assert refused(odd, "SELECT 1 `a``b c`, 20 `größe`")[1]["constraintName"] == "two"


def test_checks_come_before_not_null_as_in_delta_spark(table: Tables) -> None:
    both = table(StructField("i", INTEGER, nullable=False), checks={"c": "i > 0"})
    assert refused(both, "SELECT CAST(NULL AS INT) i")[0] == "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"


def test_a_rule_without_columns_has_no_values_to_show(table: Tables) -> None:
    never = table(StructField("i", INTEGER), checks={"never": "1 > 2"})
    assert refused(never, "SELECT 1 i")[1]["values"] == ""
    assert never.rows("SELECT 1 i WHERE false") == []


def test_an_invariant_of_a_column_is_a_check(table: Tables) -> None:
    rule = json.dumps({"expression": {"expression": "i > 3"}})
    ruled = table(StructField("i", INTEGER, metadata={"delta.invariants": rule}))
    assert ruled.rows("SELECT 4 i") == [(4,)]
    condition, parameters = refused(ruled, "SELECT 3 i")
    assert condition == "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"
    assert parameters["constraintName"] == "EXPRESSION((i > 3))"


def test_an_empty_text_in_a_partition_column_is_null_to_the_rules(table: Tables) -> None:
    parts = table(
        StructField("i", INTEGER), StructField("p", STRING, nullable=False), partition_by=["p"]
    )
    assert parts.rows("SELECT 1 i, 'x' p") == [(1, "x")]
    assert refused(parts, "SELECT 1 i, '' p")[0] == "DELTA_NOT_NULL_CONSTRAINT_VIOLATED"


def test_rows_that_a_join_or_filter_drops_are_not_checked(
    spark: SparkSession, table: Tables
) -> None:
    small = table(StructField("id", LONG), checks={"small": "id < 2"})
    left = spark.range(5).withColumn("k", F.col("id"))
    joined = left.join(spark.range(2).withColumnRenamed("id", "k"), "k").select("id")
    assert sorted(small.rows(joined)) == [(0,), (1,)]
    assert sorted(small.rows(left.where("k < 2").select("id"))) == [(0,), (1,)]
    assert sorted(small.rows(left.orderBy("k").limit(2).select("id"))) == [(0,), (1,)]
    summed = left.groupBy((F.col("id") % 2).alias("id")).count().select("id")
    assert sorted(small.rows(summed)) == [(0,), (1,)]


def test_checks_of_the_caller_are_added(spark: SparkSession, table: Tables) -> None:
    plain = table(StructField("id", LONG), StructField("s", STRING))
    check = RowCheck(name="replaceWhere", condition=(F.col("id") < 2) & (F.col("s") == "x"))
    assert plain.rows("SELECT 1L id, 'x' s", check) == [(1, "x")]
    condition, parameters = refused(plain, "SELECT 5L id, 'x' s", check)
    assert condition == "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"
    assert parameters["constraintName"] == "replaceWhere"
    assert parameters["values"] == " - id : 5\n - s : x"

    def translated(found: DeltaError) -> DeltaError:
        return ConstraintError("DELTA_REPLACE_WHERE_MISMATCH", replaceWhere=found.condition)

    with pytest.raises(ConstraintError) as error, typed_violations(translated):
        plain.plan("SELECT 5L id, 'x' s", check).collect()
    assert error.value.parameters["replaceWhere"] == "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"


def test_char_and_varchar_limit_the_length_and_are_not_padded(
    spark: SparkSession, table: Tables
) -> None:
    limited = table(
        StructField("c", STRING, metadata={CHAR_KEY: "char(3)"}),
        StructField("v", STRING, metadata={CHAR_KEY: "varchar(3)"}),
        StructField(
            "s",
            StructType((StructField("x y", STRING), StructField("n", INTEGER))),
            metadata={CHAR_KEY: "struct<`x y`:varchar(2),n:int>"},
        ),
        StructField(
            "a", ArrayType(ArrayType(STRING)), metadata={CHAR_KEY: "array<array<char(2)>>"}
        ),
        StructField(
            "m", MapType(STRING, STRING), metadata={CHAR_KEY: "map<varchar(1),varchar(2)>"}
        ),
    )
    fitting = (
        "SELECT 'a' c, 'äöü' v, named_struct('x y', 'qq', 'n', 1) s, "
        "array(array('z', NULL), NULL) a, map('k', 'vv', 'l', NULL) m"
    )
    expected = ("a", "äöü", ("qq", 1), [["z", None], None], {"k": "vv", "l": None})
    assert limited.rows(fitting) == [expected]
    assert limited.rows("SELECT CAST(NULL AS STRING) c") == [(None,) * 5]
    too_long = {
        "SELECT 'abcd' c": ("abcd", "((c IS NULL) OR (length(c) <= 3))"),
        "SELECT 'abc ' c": ("abc ", "((c IS NULL) OR (length(c) <= 3))"),
        "SELECT 'abcd' v": ("abcd", "((v IS NULL) OR (length(v) <= 3))"),
        "SELECT named_struct('x y', 'qqq', 'n', 1) s": ('{"x y": "qqq", "n": 1}', "s.`x y`"),
        "SELECT array(array('a'), array('bbb')) a": ('[["a"], ["bbb"]]', "forall(a"),
        "SELECT map('kk', 'v') m": ('{"kk": "v"}', "map_keys(m)"),
        "SELECT map('k', 'vvv') m": ('{"k": "vvv"}', "map_values(m)"),
    }
    for query, (value, rule) in too_long.items():
        condition, parameters = refused(limited, query)
        assert condition == "DELTA_EXCEED_CHAR_VARCHAR_LIMIT"
        assert parameters["value"] == value
        assert rule in parameters["expr"]
    spark.conf.set("spark.sql.legacy.charVarcharAsString", "true")
    try:
        assert limited.rows("SELECT 'abcd' c")[0][0] == "abcd"
    finally:
        spark.conf.unset("spark.sql.legacy.charVarcharAsString")


def test_an_error_of_the_users_own_stays_spark_s(spark: SparkSession, table: Tables) -> None:
    ruled = table(StructField("i", INTEGER), checks={"c": "i > 0"})
    for query, condition in (
        ("SELECT CAST(raise_error('mine') AS INT) i", "USER_RAISED_EXCEPTION"),
        ("SELECT CAST(id AS INT) DIV 0 i FROM range(1)", "DIVIDE_BY_ZERO"),
    ):
        with pytest.raises(Exception, match=condition) as error:
            ruled.rows(query)
        assert not isinstance(error.value, DeltaError)
    forged = 'pyspark-delta-violation:[{"condition":"NO_SUCH"},{}]'
    with pytest.raises(Exception, match="USER_RAISED_EXCEPTION"):
        ruled.rows(spark.range(1).select(F.raise_error(F.lit(forged)).cast("int").alias("i")))


def test_rules_are_checked_in_columns_with_the_ansi_mode_off(
    spark: SparkSession, table: Tables
) -> None:
    ruled = table(StructField("i", INTEGER), checks={"c": "i > 0"})
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        assert refused(ruled, "SELECT 0 i")[0] == "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_old_protocols_keep_rules_but_no_generated_columns(table: Tables) -> None:
    old = table(
        StructField("i", INTEGER, nullable=False),
        StructField("g", INTEGER, metadata={"delta.generationExpression": "i + 1"}),
        StructField(
            "n",
            LONG,
            metadata={
                "delta.identity.start": 1,
                "delta.identity.step": 1,
                "delta.identity.allowExplicitInsert": False,
            },
        ),
        protocol=Protocol(min_reader_version=1, min_writer_version=2),
    )
    assert old.rows("SELECT 1 i") == [(1, None, None)]
    assert old.rows("SELECT 1 i, 7 g, 8L n") == [(1, 7, 8)]
    assert refused(old, "SELECT CAST(NULL AS INT) i")[0] == "DELTA_NOT_NULL_CONSTRAINT_VIOLATED"


Value = st.none() | st.integers(-2, 2)
Row = st.tuples(Value, st.none() | st.tuples(Value))


@settings(
    max_examples=15,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    rows=st.lists(Row, min_size=1, max_size=4),
    not_null=st.sets(st.sampled_from(["a", "s", "s.b"])),
    check=st.sampled_from([None, "a > 0", "a > 0 OR s.b > 0", "a <=> s.b", "NOT (a = s.b)"]),
)
def test_rows_pass_exactly_when_a_naive_reading_of_the_rules_says_so(
    spark: SparkSession,
    table: Tables,
    rows: list[tuple[int | None, tuple[int | None] | None]],
    not_null: set[str],
    check: str | None,
) -> None:
    inner = StructType((StructField("b", INTEGER, nullable="s.b" not in not_null),))
    ruled = table(
        StructField("a", INTEGER, nullable="a" not in not_null),
        StructField("s", inner, nullable="s" not in not_null),
        checks={} if check is None else {"c": check},
    )
    data = spark.createDataFrame(rows, "a INT, s STRUCT<b: INT>")
    allowed = all(_passes(a, s, not_null, check) for a, s in rows)
    try:
        ruled.rows(data)
    except ConstraintError:
        assert not allowed
    else:
        assert allowed


def _passes(a: int | None, s: tuple[int | None] | None, not_null: set[str], check: Any) -> bool:
    b = None if s is None else s[0]
    if ("a" in not_null and a is None) or ("s" in not_null and s is None):
        return False
    if "s.b" in not_null and b is None:
        return False
    positive = [value is not None and value > 0 for value in (a, b)]
    is_different = a is not None and b is not None and a != b
    truths = {
        None: True,
        "a > 0": positive[0],
        "a > 0 OR s.b > 0": any(positive),
        "a <=> s.b": a == b,
        "NOT (a = s.b)": is_different,
    }
    return truths[check]
