"""Partition values as Catalyst's rows, all of a scan's in one expression.

Their text is cast by Spark itself, in the JVM: through Python a LONG that fits would come back as
an INT.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from pyspark.sql import functions

from pyspark_delta.kernel.protocol.schema_json import type_json
from pyspark_delta.kernel.protocol.types import (
    BINARY,
    STRING,
    ArrayType,
    StructField,
    StructType,
)
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.types import to_spark_type

PartitionValue = str | bytes | None


def partition_rows(
    jvm: JvmSession, schema: StructType, rows: Sequence[Sequence[PartitionValue]]
) -> list[Any]:
    """One `InternalRow` with the types of `schema` for each row of texts, or bytes as they are."""
    if not len(schema):
        empty = jvm.java_class("org.apache.spark.sql.catalyst.InternalRow").empty()
        return [empty for _ in rows]
    # Positions for names: what a column is called must not matter here.
    names = [f"c{i}" for i in range(len(schema))]
    typed = ArrayType(
        StructType(tuple(StructField(n, f.data_type) for n, f in zip(names, schema, strict=True)))
    )
    raw = [isinstance(values, bytes) for values in _columns_sample(rows, len(schema))]
    given = ArrayType(
        StructType(
            tuple(
                StructField(n, BINARY if is_raw else STRING)
                for n, is_raw in zip(names, raw, strict=True)
            )
        )
    )
    text = json.dumps([dict(zip(names, map(_json, row), strict=True)) for row in rows])
    column = functions.from_json(functions.lit(text), json.dumps(type_json(given)))
    frame = jvm.spark.sql("SELECT 1").select(column.cast(to_spark_type(typed)))
    # The optimiser computes what is constant: no job runs.
    expression = frame._jdf.queryExecution().optimizedPlan().expressions().apply(0)
    array = expression.child().value()
    return [array.getStruct(i, len(schema)) for i in range(len(rows))]


def _columns_sample(rows: Sequence[Sequence[PartitionValue]], width: int) -> list[PartitionValue]:
    """A value of each column that is not null, where there is one."""
    return [next((row[i] for row in rows if row[i] is not None), None) for i in range(width)]


def _json(value: PartitionValue) -> str | None:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value
