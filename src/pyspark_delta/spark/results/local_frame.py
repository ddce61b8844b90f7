"""Makes DataFrames of values on the driver, for the results of commands.

The values pass as Arrow and become a local relation, so that showing them starts no job.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.kernel.log.arrow_types import arrow_schema
from pyspark_delta.kernel.protocol.types import DataType, StructField, StructType
from pyspark_delta.spark.jvm.gateway import to_spark

Row = Sequence[object]


def columns(**kinds: DataType) -> StructType:
    """The schema of a result: columns of these names and types."""
    return StructType(tuple(StructField(name, kind) for name, kind in kinds.items()))


def local_frame(spark: SparkSession, schema: StructType, rows: Sequence[Row]) -> DataFrame:
    """The rows as a DataFrame of that schema.

    Values are as Arrow takes them: maps as pairs, structs as dicts, times as microseconds.
    """
    arrow = arrow_schema(schema)
    arrays = [_array([row[position] for row in rows], f.type) for position, f in enumerate(arrow)]
    return spark.createDataFrame(pa.table(arrays, schema=arrow), schema=to_spark(schema))


def _array(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        return pa.array([_unicode(value) for value in values], kind)


def _unicode(value: object) -> object:
    """The value with lone surrogates, which a log can hold and UTF-8 cannot, replaced by U+FFFD."""
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case list() | tuple():
            return [_unicode(item) for item in value]
        case dict():
            return {key: _unicode(item) for key, item in value.items()}
        case _:
            return value
