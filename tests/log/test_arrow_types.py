"""Kernel types and Arrow types: there, back, and what has no counterpart."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyspark_delta.errors import SchemaError
from pyspark_delta.kernel.log.arrow_types import (
    arrow_schema,
    arrow_type,
    kernel_type,
)
from pyspark_delta.kernel.protocol.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

SCHEMA = StructType(
    (
        StructField("id", LONG, nullable=False),
        StructField("ä b", ArrayType(STRING, contains_null=False)),
        StructField("m", MapType(INTEGER, StructType((StructField("x", DOUBLE),)))),
        StructField("n", MapType(STRING, LONG, value_contains_null=False)),
    )
)


@pytest.mark.parametrize(
    "data_type",
    [
        *(BINARY, BOOLEAN, BYTE, DATE, DOUBLE, FLOAT, INTEGER, LONG, SHORT, STRING, TIMESTAMP),
        *(TIMESTAMP_NTZ, VOID, DecimalType(38, 10), DecimalType(1, 0)),
    ],
    ids=str,
)
def test_a_type_comes_back_from_arrow_as_it_was(data_type: DataType) -> None:
    assert kernel_type(arrow_type(data_type)) == data_type


def test_a_schema_comes_back_from_arrow_with_its_nullability() -> None:
    assert kernel_type(pa.struct(list(arrow_schema(SCHEMA)))) == SCHEMA


@pytest.mark.parametrize(
    ("arrow", "data_type"),
    [
        (pa.uint8(), SHORT),
        (pa.uint16(), INTEGER),
        (pa.uint32(), LONG),
        (pa.uint64(), DecimalType(20, 0)),
        (pa.float16(), FLOAT),
        (pa.large_string(), STRING),
        (pa.string_view(), STRING),
        (pa.large_binary(), BINARY),
        (pa.binary(16), BINARY),
        (pa.date64(), DATE),
        (pa.timestamp("ns", "Europe/Paris"), TIMESTAMP),
        (pa.timestamp("s"), TIMESTAMP_NTZ),
        (pa.dictionary(pa.int8(), pa.string()), STRING),
        (pa.large_list(pa.int8()), ArrayType(BYTE)),
        (pa.list_(pa.int8(), 3), ArrayType(BYTE)),
        (pa.decimal256(38, 2), DecimalType(38, 2)),
    ],
    ids=str,
)
def test_other_arrow_types_find_the_type_that_holds_them(
    arrow: pa.DataType, data_type: DataType
) -> None:
    assert kernel_type(arrow) == data_type


@pytest.mark.parametrize(
    "arrow", [pa.duration("s"), pa.time32("s"), pa.decimal256(50, 2), pa.decimal128(5, -2)], ids=str
)
def test_an_arrow_type_without_a_counterpart_is_refused(arrow: pa.DataType) -> None:
    with pytest.raises(SchemaError) as caught:
        kernel_type(arrow)
    assert caught.value.condition == "DELTA_UNSUPPORTED_DATA_TYPES"


def test_text_of_bounded_length_is_text() -> None:
    assert arrow_type(PrimitiveType("varchar(20)")) == pa.string()
    assert arrow_type(PrimitiveType("char(3)")) == pa.string()


def test_a_variant_is_a_struct_of_two_binaries() -> None:
    assert [f.name for f in arrow_type(VARIANT)] == ["value", "metadata"]


@pytest.mark.parametrize("name", ["interval year to month", "geometry(4326)"])
def test_a_type_without_an_arrow_counterpart_is_refused(name: str) -> None:
    with pytest.raises(SchemaError) as caught:
        arrow_type(PrimitiveType(name))
    assert caught.value.condition == "DELTA_UNSUPPORTED_DATA_TYPES"
