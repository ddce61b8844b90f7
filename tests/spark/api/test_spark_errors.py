"""Errors of ours that programs for Spark catch by PySpark's classes."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    ParseException,
    PySparkException,
    UnsupportedOperationException,
)
from pyspark.sql import SparkSession

import pyspark_delta.errors as errors
from pyspark_delta import DeltaTable
from pyspark_delta.errors import conditions
from pyspark_delta.spark.api.errors import as_spark_raises

Call = Callable[[SparkSession, str], object]

CALLS: dict[str, tuple[Call, type[errors.DeltaError], type[PySparkException]]] = {
    "load": (
        lambda spark, path: spark.read.format("delta").load(path + " none"),
        errors.TableNotFoundError,
        AnalysisException,
    ),
    "select": (
        lambda spark, path: spark.sql(f"SELECT * FROM delta.`{path} none`").collect(),
        errors.TableNotFoundError,
        AnalysisException,
    ),
    "forPath": (
        lambda spark, path: DeltaTable.forPath(spark, path + " none"),
        errors.TableNotFoundError,
        AnalysisException,
    ),
    "save": (
        lambda spark, path: (
            spark.range(1).selectExpr("'a' AS id").write.format("delta").mode("append").save(path)
        ),
        errors.SchemaError,
        AnalysisException,
    ),
    "version": (
        lambda spark, path: spark.read.format("delta").option("versionAsOf", 9).load(path),
        errors.VersionNotFoundError,
        AnalysisException,
    ),
    "option": (
        lambda spark, path: (
            spark.range(1)
            .write.format("delta")
            .option("mergeSchema", "x")
            .mode("append")
            .save(path)
        ),
        errors.PropertyError,
        IllegalArgumentException,
    ),
    "retention": (
        lambda spark, path: spark.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS"),
        errors.DeltaError,
        IllegalArgumentException,
    ),
    "z-order": (
        lambda spark, path: DeltaTable.forPath(spark, path).optimize().executeZOrderBy("x"),
        errors.SchemaError,
        IllegalArgumentException,
    ),
    "append-only": (
        lambda spark, path: (
            spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES (delta.appendOnly = true)"),
            DeltaTable.forPath(spark, path).delete("id = 1"),
        ),
        errors.AppendOnlyError,
        UnsupportedOperationException,
    ),
    "builder": (
        lambda spark, path: (
            DeltaTable.create(spark).location(path).addColumn("other", "int").execute()
        ),
        errors.DeltaError,
        AnalysisException,
    ),
}


@pytest.mark.classic
@pytest.mark.parametrize("called", CALLS)
def test_an_error_is_ours_and_pysparks(spark: SparkSession, table_path: Path, called: str) -> None:
    spark.range(3).write.format("delta").save(str(table_path))
    call, ours, theirs = CALLS[called]
    with pytest.raises(theirs) as caught:
        call(spark, str(table_path))
    error = caught.value
    assert isinstance(error, ours)
    assert str(error).startswith(f"[{error.getCondition()}] ")
    assert error.getMessage() == str(error)
    assert error.getQueryContext() == []


def test_an_error_keeps_its_object_name_and_text_and_can_be_pickled() -> None:
    error = errors.SchemaError("DELTA_COLUMN_NOT_FOUND", columnName="a", columnList="b")
    text = str(error)
    assert as_spark_raises(error) is error
    assert as_spark_raises(error) is error
    assert type(error).__name__ == "SchemaError"
    assert (str(error), error.getCondition()) == (text, "DELTA_COLUMN_NOT_FOUND")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is errors.SchemaError
        assert str(again) == text


# The root of the conflicts is caught, never raised.
RAISED = [
    name
    for name in errors.__all__
    if inspect.isclass(getattr(errors, name)) and name != "DeltaConcurrentModificationException"
]


@pytest.mark.parametrize("name", RAISED)
def test_every_error_can_be_pysparks_too(name: str) -> None:
    kind = getattr(errors, name)
    for condition, theirs in (
        ("DELTA_TABLE_NOT_FOUND", AnalysisException),
        ("DELTA_PARSING_ILLEGAL_TABLE_NAME", ParseException),
        ("DELTA_LOG_FILE_NOT_FOUND", PySparkException),
    ):
        error = kind(condition)
        text = str(error)
        with pytest.raises(theirs) as caught:
            raise as_spark_raises(error)
        assert isinstance(caught.value, kind)
        assert str(caught.value) == text


def test_a_condition_names_a_class_of_pysparks() -> None:
    named = {entry["spark"] for entry in conditions().values() if "spark" in entry}
    assert named == {
        "AnalysisException",
        "ArithmeticException",
        "IllegalArgumentException",
        "ParseException",
        "UnsupportedOperationException",
    }
