"""The allow list of functions is whole: whatever a new Spark brings has to be decided."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from pyspark_delta.spark.rules.function_allow_list import ALLOWED, REFUSED, refusal

# Operators that SHOW FUNCTIONS lists although no function has such a name.
OPERATORS = {"!=", "<>", "case", "||"}


def test_every_function_of_spark_s_is_allowed_or_refused_with_a_reason(spark: SparkSession) -> None:
    listed: Any = spark.sql("SHOW SYSTEM FUNCTIONS").collect()
    known = {row[0] for row in listed} - OPERATORS
    known |= registered(spark, "FunctionRegistry") | registered(spark, "TableFunctionRegistry")
    assert known - ALLOWED - REFUSED == set()
    assert not ALLOWED & REFUSED
    assert len(known) > 500


def test_a_table_function_is_refused(spark: SparkSession) -> None:
    names = registered(spark, "TableFunctionRegistry")
    assert {"range", "explode", "variant_explode", "sql_keywords", "collations"} <= names
    assert names <= REFUSED
    assert refusal("sql_keywords", ()) == "it makes rows, not a value"


def registered(spark: SparkSession, registry: str) -> set[str]:
    """The names in one of Spark's registries of built-in functions."""
    package: Any = spark._jvm.org.apache.spark.sql.catalyst.analysis
    names = getattr(package, registry).builtin().listFunction().mkString("\n")
    return {name.rpartition(".")[2] for name in str(names).split("\n")}


def test_a_function_that_nobody_decided_about_is_refused() -> None:
    assert refusal("a_function_of_spark_5", ()) == "it is not on the list of harmless ones"
    assert refusal("spark_catalog.default.upper", ()) is not None


def test_options_are_literal_and_known_to_be_harmless() -> None:
    for allowed in ({}, {"mode": "FAILFAST"}, {"MODE": "FAILFAST", "timestampFormat": "yyyy"}):
        assert refusal("from_xml", (None, None, allowed)) is None
        assert refusal("from_json", (None, None, allowed)) is None
        assert refusal("to_csv", (None, allowed)) is None
    assert refusal("from_xml", (None, None)) is None
    assert "rowValidationXSDPath" in str(
        refusal("from_xml", (None, None, {"rowValidationXSDPath": "a"}))
    )
    assert "maxColumns" in str(refusal("from_csv", (None, None, {"maxColumns": "2000000000"})))
    assert "rowTag" in str(refusal("from_json", (None, None, {"rowTag": "a"})))
    assert "literal" in str(refusal("from_xml", (None, None, None)))
    assert "literal" in str(refusal("schema_of_xml", (None, None)))
    # What is written as text may be a map itself.
    assert refusal("to_json", ({"rowValidationXSDPath": "a"},)) is None
