"""Conversion between the kernel's types and Spark's, of PySpark or of Java, by their common JSON.

>>> from pyspark_delta.kernel.protocol.types import LONG, StructField
>>> to_spark(StructType((StructField("id", LONG),))).simpleString()
'struct<id:bigint>'
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql.types import DataType as SparkDataType
from pyspark.sql.types import StructType as SparkStructType
from pyspark.sql.types import _parse_datatype_json_value

from pyspark_delta.errors import DeltaError
from pyspark_delta.kernel.protocol.schema_json import parse_type, type_json
from pyspark_delta.kernel.protocol.types import DataType, StructType


def to_spark(schema: StructType) -> SparkStructType:
    """A kernel schema as PySpark's `StructType`, field metadata included."""
    return SparkStructType.fromJson(_plain(type_json(schema)))


def to_spark_type(data_type: DataType) -> SparkDataType:
    """A kernel type as PySpark's."""
    return _parse_datatype_json_value(_plain(type_json(data_type)))


def from_spark(schema: Any) -> StructType:
    """A schema of PySpark's or Java's as the kernel's."""
    parsed = parse_type(json.loads(schema.json()))
    assert isinstance(parsed, StructType)
    return parsed


def type_of_json(spelled: Any) -> DataType | None:
    """A type in Spark's JSON form as the kernel's; None for one that tables cannot have."""
    try:
        return parse_type(spelled)
    except DeltaError:
        return None


def _plain(value: Any) -> Any:
    # Copied, because PySpark modifies its input and the kernel shares its values.
    return json.loads(json.dumps(value))
