"""What we take for granted of Spark's inner classes: the next version tells here what moved."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from pyspark_delta.kernel.protocol.types import (
    BINARY,
    BOOLEAN,
    DATE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    DecimalType,
    StructField,
    StructType,
)
from pyspark_delta.spark.jvm.file_statuses import FileStatuses
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.partition_rows import partition_rows


@pytest.fixture
def jvm(spark: SparkSession) -> JvmSession:
    return JvmSession(spark)


def methods(jvm: JvmSession, name: str) -> set[str]:
    found = jvm.jvm.java.lang.Class.forName(name).getMethods()
    return {method.getName() for method in found}


def test_a_file_index_is_an_interface_with_these_methods(jvm: JvmSession) -> None:
    name = "org.apache.spark.sql.execution.datasources.FileIndex"
    assert jvm.jvm.java.lang.Class.forName(name).isInterface()
    assert {
        "rootPaths",
        "listFiles",
        "inputFiles",
        "refresh",
        "sizeInBytes",
        "partitionSchema",
        "metadataOpsTimeNs",
    } <= methods(jvm, name)


def test_a_relation_takes_seven_parts(jvm: JvmSession) -> None:
    name = "org.apache.spark.sql.execution.datasources.HadoopFsRelation"
    [constructor] = jvm.jvm.java.lang.Class.forName(name).getConstructors()
    assert constructor.getParameterCount() == 7


def test_many_file_statuses_cross_in_one_call_and_come_back_the_same(jvm: JvmSession) -> None:
    files = [
        (f"file:/t/tä ble 100%/p=a%20b/{i}.parquet", i * 2**33, 1_700_000_000_000 + i)
        for i in range(300)
    ]
    statuses = FileStatuses(jvm, files)
    part = statuses.part(7, 3)
    assert len(part) == 3
    for status, (location, size, modified) in zip(part, files[7:10], strict=True):
        assert status.getPath().toString() == location
        assert (status.getLen(), status.getModificationTime()) == (size, modified)
        assert status.isFile()


def test_partition_values_are_cast_in_the_jvm_without_a_job(jvm: JvmSession) -> None:
    schema = StructType(
        tuple(
            StructField(f"c {i}", kind)
            for i, kind in enumerate(
                (INTEGER, LONG, STRING, DATE, TIMESTAMP, DecimalType(10, 2), BOOLEAN, BINARY)
            )
        )
    )
    rows = [
        (
            "1",
            "2",
            "x'\\\"ü",
            "2024-02-29",
            "2024-01-02T03:04:05.000001Z",
            "1.50",
            "true",
            b"\0\xff",
        ),
        (None,) * 8,
    ]
    first, nothing = partition_rows(jvm, schema, rows)
    assert (first.getInt(0), first.getLong(1)) == (1, 2)
    assert first.getUTF8String(2).toString() == "x'\\\"ü"
    assert first.getInt(3) == 19_782
    assert first.getLong(4) == 1_704_164_645_000_001
    assert first.getDecimal(5, 10, 2).toString() == str(Decimal("1.50"))
    assert first.getBoolean(6) is True
    assert bytes(first.getBinary(7)) == b"\0\xff"
    assert all(nothing.isNullAt(i) for i in range(8))


def test_no_partition_columns_are_an_empty_row(jvm: JvmSession) -> None:
    [row] = partition_rows(jvm, StructType(), [()])
    assert row.numFields() == 0
