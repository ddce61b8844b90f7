"""Kernel types and Spark's are two spellings of one JSON."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    VariantType,
)

from pyspark_delta.kernel.protocol.log_schema import log_schema
from pyspark_delta.kernel.protocol.types import DecimalType as KernelDecimal
from pyspark_delta.spark.jvm.gateway import from_spark, to_spark, to_spark_type
from tests.support.tree_string import tree_string


def test_the_log_schema_is_a_spark_schema_that_prints_the_same_tree() -> None:
    schema = to_spark(log_schema)
    assert from_spark(schema) == log_schema
    assert schema.treeString() == tree_string(log_schema)
    assert schema["add"].dataType["size"].nullable is False
    assert schema["commitInfo"].dataType["timestamp"].dataType.typeName() == "timestamp"


def test_schemas_go_to_spark_and_back_with_their_metadata() -> None:
    schema = StructType(
        [
            StructField("id", LongType(), False, {"comment": "key", "delta.columnMapping.id": 1}),
            StructField("d", DecimalType(38, 10)),
            StructField("n", ArrayType(MapType(StringType(), TimestampNTZType()), False)),
            StructField("v", VariantType()),
            StructField("s", StructType([StructField("ä b", StringType())])),
        ]
    )
    assert to_spark(from_spark(schema)) == schema
    assert to_spark(from_spark(schema))["id"].metadata == schema["id"].metadata
    assert to_spark_type(KernelDecimal(5, 2)) == DecimalType(5, 2)
