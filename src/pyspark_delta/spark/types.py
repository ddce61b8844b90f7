"""Kernel types and Spark's: one JSON form, so neither side needs to know the other's classes.

>>> from_spark(to_spark(log_schema)) == log_schema
True
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql.types import DataType as SparkDataType
from pyspark.sql.types import StructType as SparkStructType
from pyspark.sql.types import _parse_datatype_json_value

from pyspark_delta.kernel.protocol.log_schema import log_schema
from pyspark_delta.kernel.protocol.schema_json import parse_type, type_json
from pyspark_delta.kernel.protocol.types import DataType, StructType


def to_spark(schema: StructType) -> SparkStructType:
    """A kernel schema as PySpark's `StructType`, field metadata included."""
    return SparkStructType.fromJson(_plain(type_json(schema)))


def to_spark_type(data_type: DataType) -> SparkDataType:
    """A kernel type as PySpark's."""
    return _parse_datatype_json_value(_plain(type_json(data_type)))


def from_spark(schema: SparkStructType) -> StructType:
    """PySpark's `StructType` as the kernel's."""
    parsed = parse_type(json.loads(schema.json()))
    assert isinstance(parsed, StructType)
    return parsed


def spark_log_schema() -> SparkStructType:
    """The schema of a log's actions, as Spark prints it."""
    return to_spark(log_schema)


def _plain(value: Any) -> Any:
    # PySpark changes what it is given; the kernel's values are shared.
    return json.loads(json.dumps(value))
