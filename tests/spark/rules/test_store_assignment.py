"""Casts of tables' writers: which values fit, which fail, and how the failure is called."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from pyspark.errors import AnalysisException, ArithmeticException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.errors import SchemaError
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.types import (
    BOOLEAN,
    BYTE,
    DATE,
    INTEGER,
    STRING,
    ArrayType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.rules.alignment import store_assigned
from pyspark_delta.spark.rules.rows import typed_violations

POLICY = "spark.sql.storeAssignmentPolicy"
PAIR = StructType((StructField("a", INTEGER), StructField("b", STRING)))
SCHEMA = StructType(
    (
        StructField("b", BYTE),
        StructField("i", INTEGER),
        StructField("s", STRING),
        StructField("d", DATE),
        StructField("de", DecimalType(4, 2)),
        StructField("bo", BOOLEAN),
        StructField("st", PAIR),
        StructField("ar", ArrayType(PAIR)),
        StructField("m", MapType(STRING, INTEGER)),
    )
)
TABLE = Metadata(id="a-table", name="t", schema_string=format_schema(SCHEMA))


@pytest.fixture(params=["true", "false"])
def ansi(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    """The policy decides, whatever the session's ANSI mode is."""
    spark.conf.set("spark.sql.ansi.enabled", request.param)
    yield
    spark.conf.unset("spark.sql.ansi.enabled")


@pytest.fixture
def policy(spark: SparkSession) -> Iterator[Any]:
    yield lambda name: spark.conf.set(POLICY, name)
    spark.conf.unset(POLICY)


def assigned(spark: SparkSession, query: str, *, by_position: bool = False) -> DataFrame:
    return store_assigned(JvmSession(spark), spark.sql(query), TABLE, by_position=by_position)


def only(data: DataFrame) -> tuple[Any, ...]:
    with typed_violations():
        [row] = data.collect()
    return tuple(row)


def test_data_that_fits_is_left_alone(spark: SparkSession) -> None:
    data = spark.sql("SELECT 1 I, 'x' other")
    assert store_assigned(JvmSession(spark), data, TABLE, by_position=False) is data


@pytest.mark.usefixtures("ansi")
def test_values_are_cast_by_name_as_delta_spark_does(spark: SparkSession) -> None:
    data = assigned(
        spark,
        "SELECT 1L B, '12' i, 5 s, '2020-01-01' d, 1.239BD de, 1 bo, "
        "named_struct('B', 7, 'A', 1L, 'new', 2) st, "
        "array(named_struct('a', '3'), NULL) ar, map('k', 4L) m, 9 extra",
    )
    assert data.columns == ["B", "i", "s", "d", "de", "bo", "st", "ar", "m", "extra"]
    assert only(data) == (
        1,
        12,
        "5",
        date(2020, 1, 1),
        Decimal("1.24"),
        True,
        ("7", 1, 2),
        [(3,), None],
        {"k": 4},
        9,
    )
    assert data.schema["st"].dataType.simpleString() == "struct<B:string,A:int,new:int>"
    null = assigned(spark, "SELECT CAST(NULL AS STRUCT<a: BIGINT>) st, NULL i")
    assert only(null) == (None, None)


@pytest.mark.usefixtures("ansi")
def test_what_does_not_fit_is_spark_s_own_error_with_the_column(spark: SparkSession) -> None:
    cases = {
        "id + 1000 b": ("BIGINT", "TINYINT", "`b`"),
        "id + 10000000000 i": ("BIGINT", "INT", "`i`"),
        "1e20D + id i": ("DOUBLE", "INT", "`i`"),
        "named_struct('a', id + 10000000000) st": ("BIGINT", "INT", "`a`"),
        "map('k', id + 10000000000) m": ("BIGINT", "INT", "`value`"),
        "array(named_struct('a', id + 10000000000)) ar": ("BIGINT", "INT", "`a`"),
    }
    for query, (source, target, name) in cases.items():
        with pytest.raises(ArithmeticException) as error:
            only(assigned(spark, f"SELECT {query} FROM range(1)"))
        assert error.value.getCondition() == "CAST_OVERFLOW_IN_TABLE_INSERT"
        assert error.value.getMessageParameters() == {
            "sourceType": f'"{source}"',
            "targetType": f'"{target}"',
            "columnName": name,
        }
    with pytest.raises(PySparkException) as invalid:
        only(assigned(spark, "SELECT concat('x', id) i FROM range(1)"))
    assert invalid.value.getCondition() == "CAST_INVALID_INPUT"
    for query in ("array(1) i", "1 d"):
        with pytest.raises(AnalysisException) as impossible:
            assigned(spark, f"SELECT {query}")
        assert (impossible.value.getCondition() or "").startswith("DATATYPE_MISMATCH")


def test_columns_and_fields_go_by_position_when_asked(spark: SparkSession) -> None:
    whole = (
        "SELECT 1L x, 2L x, 's', DATE'2020-01-01', 1.5BD, true, named_struct('q', 1L, 'r', 'x'), "
        "array(named_struct('q', 1L, 'r', 'y')), map('k', 1L)"
    )
    data = assigned(spark, whole, by_position=True)
    assert data.columns == list(SCHEMA.names)
    assert only(data)[6:] == ((1, "x"), [(1, "y")], {"k": 1})
    assert data.schema["st"].dataType.simpleString() == "struct<a:int,b:string>"
    assert assigned(spark, f"{whole}, 5 more", by_position=True).columns == [*SCHEMA.names, "more"]
    for query, what in (
        ("SELECT 1Y", "not enough data columns"),
        (whole.replace("'q', 1L, 'r', 'x'", "'q', 1L"), "not enough nested fields in st"),
    ):
        with pytest.raises(SchemaError) as error:
            assigned(spark, query, by_position=True)
        assert error.value.condition == "DELTA_INSERT_COLUMN_ARITY_MISMATCH"
        assert error.value.parameters["tableName"] == "t"
        assert error.value.parameters["columnName"] == what


def test_the_strict_policy_refuses_before_any_job(spark: SparkSession, policy: Any) -> None:
    policy("STRICT")
    assert only(assigned(spark, "SELECT 1Y i, 5 s")) == (1, "5")
    for query in ("1L i", "1 b", "'12' i", "named_struct('a', 7L) st", "map('k', 1L) m"):
        with pytest.raises(AnalysisException) as error:
            assigned(spark, f"SELECT {query}")
        assert error.value.getCondition() == "CANNOT_UP_CAST_DATATYPE"


@pytest.mark.usefixtures("ansi")
def test_the_legacy_policy_never_fails(spark: SparkSession, policy: Any) -> None:
    policy("LEGACY")
    assert only(assigned(spark, "SELECT 1000 b, 'x' i")) == (-24, None)


def test_a_wider_type_may_stay_for_the_table_to_follow(spark: SparkSession) -> None:
    data = spark.sql("SELECT 1L i, 2 b, '3' de")
    jvm = JvmSession(spark)
    kept = store_assigned(jvm, data, TABLE, by_position=False, widens=True)
    assert kept.dtypes == [("i", "bigint"), ("b", "int"), ("de", "decimal(4,2)")]
