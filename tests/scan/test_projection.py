"""Which columns of a file are read for a table, and what becomes of them."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyspark_delta.errors import SchemaError
from pyspark_delta.kernel.log.arrow_types import arrow_schema
from pyspark_delta.kernel.protocol.column_mapping import ColumnMappingMode
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
from pyspark_delta.kernel.scan.projection import ProjectionError, file_projection


def struct(**columns: DataType) -> StructType:
    return StructType(tuple(StructField(name, kind) for name, kind in columns.items()))


def mapped(name: str, kind: DataType, physical: str, number: int) -> StructField:
    metadata = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    return StructField(name, kind, metadata=metadata)


def with_id(f: pa.Field, number: int) -> pa.Field:
    return f.with_metadata({"PARQUET:field_id": str(number)})


def read(
    table: pa.Table, wanted: StructType, mode: ColumnMappingMode = ColumnMappingMode.NONE
) -> pa.Table:
    """`table` written to a file and read back as `wanted`, with the columns that are asked for."""
    sink = io.BytesIO()
    pq.write_table(table, sink, store_schema=False)
    file = pq.ParquetFile(sink)
    projection = file_projection(wanted, file.schema_arrow, mode)
    leaves = list(projection.leaves)
    if not leaves:
        return arrow_schema(wanted).empty_table()
    batches = [
        pa.record_batch(projection.columns(batch), schema=arrow_schema(wanted))
        for batch in file.reader.iter_batches(3, row_groups=[0], column_indices=leaves)
    ]
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches)


def test_a_column_that_the_file_lacks_is_null() -> None:
    found = read(pa.table({"a": [1, 2]}), struct(b=STRING, a=LONG))
    assert found.to_pylist() == [{"b": None, "a": 1}, {"b": None, "a": 2}]


def test_a_column_that_the_table_does_not_name_is_not_read() -> None:
    table = pa.table({"x": [1], "s": [{"p": 1, "q": 2, "r": 3}], "a": [4]})
    wanted = struct(a=LONG, s=struct(r=LONG))
    assert file_projection(wanted, table.schema).leaves == (3, 4)
    assert read(table, wanted).to_pylist() == [{"a": 4, "s": {"r": 3}}]


def test_names_with_dots_are_not_taken_for_paths() -> None:
    table = pa.table({"a": [{"b": 1}], "a.b": [2]})
    assert read(table, struct(**{"a.b": LONG})).to_pylist() == [{"a.b": 2}]


def test_names_are_found_ignoring_case_unless_one_fits_exactly() -> None:
    assert read(pa.table({"ID": [1]}), struct(id=LONG)).to_pylist() == [{"id": 1}]
    both = pa.table({"ID": [1], "id": [2]})
    assert read(both, struct(id=LONG)).to_pylist() == [{"id": 2}]
    with pytest.raises(ProjectionError, match="more than one column Id"):
        read(both, struct(Id=LONG))


def test_two_columns_of_one_name_are_refused() -> None:
    schema = pa.schema([("a", pa.int64()), ("a", pa.int64())])
    with pytest.raises(ProjectionError, match="more than one column a"):
        file_projection(struct(a=LONG), schema)


def test_physical_names_are_followed_at_every_level() -> None:
    table = pa.table(
        {
            "p1": [{"p2": 1, "p3": "x"}, None],
            "p4": [[{"p5": 2}, None], []],
            "p6": pa.array(
                [[("k", {"p7": 3})], None], pa.map_("string", pa.struct({"p7": "int64"}))
            ),
        }
    )
    wanted = StructType(
        (
            mapped(
                "s", StructType((mapped("b", STRING, "p3", 3), mapped("a", LONG, "p2", 2))), "p1", 1
            ),
            mapped("l", ArrayType(StructType((mapped("e", LONG, "p5", 5),))), "p4", 4),
            mapped("m", MapType(STRING, StructType((mapped("v", LONG, "p7", 7),))), "p6", 6),
        )
    )
    assert read(table, wanted, ColumnMappingMode.NAME).to_pylist() == [
        {"s": {"b": "x", "a": 1}, "l": [{"e": 2}, None], "m": [("k", {"v": 3})]},
        {"s": None, "l": [], "m": None},
    ]


def test_names_that_were_swapped_are_not_mixed_up() -> None:
    table = pa.table({"s": [{"a": 1, "b": 2}]})
    inner = StructType((mapped("a", LONG, "b", 2), mapped("b", LONG, "a", 3)))
    wanted = StructType((mapped("s", inner, "s", 1),))
    found = read(table, wanted, ColumnMappingMode.NAME)
    assert found.to_pylist() == [{"s": {"a": 2, "b": 1}}]


def ids_table() -> pa.Table:
    inner = pa.struct(
        [with_id(pa.field("zz", pa.int64()), 2), with_id(pa.field("yy", "string"), 3)]
    )
    schema = pa.schema(
        [
            with_id(pa.field("b", inner), 1),
            with_id(pa.field("l", pa.list_(pa.field("element", inner))), 4),
        ]
    )
    row = {"zz": 7, "yy": "t"}
    return pa.Table.from_pylist([{"b": row, "l": [row]}, {"b": None, "l": None}], schema)


def test_ids_are_followed_at_every_level_whatever_the_names() -> None:
    inner = StructType((mapped("y", STRING, "no", 3), mapped("new", DOUBLE, "no", 9)))
    wanted = StructType((mapped("a", inner, "l", 1), mapped("c", ArrayType(inner), "b", 4)))
    assert read(ids_table(), wanted, ColumnMappingMode.ID).to_pylist() == [
        {"a": {"y": "t", "new": None}, "c": [{"y": "t", "new": None}]},
        {"a": None, "c": None},
    ]


def test_a_file_without_ids_is_refused_where_ids_are_needed() -> None:
    wanted = StructType((mapped("a", LONG, "a", 1),))
    with pytest.raises(ProjectionError, match="no field ids"):
        file_projection(wanted, pa.schema([("a", pa.int64())]), ColumnMappingMode.ID)


def test_one_id_for_two_columns_is_refused() -> None:
    field = with_id(pa.field("a", pa.int64()), 1)
    wanted = StructType((mapped("a", LONG, "a", 1),))
    with pytest.raises(ProjectionError, match="more than one"):
        file_projection(wanted, pa.schema([field, field.with_name("b")]), ColumnMappingMode.ID)


def test_a_mapped_column_without_a_physical_name_is_refused() -> None:
    with pytest.raises(SchemaError) as caught:
        file_projection(struct(a=LONG), pa.schema([("a", pa.int64())]), ColumnMappingMode.NAME)
    assert caught.value.condition == "DELTA_COLUMN_MAPPING_MISSING_METADATA"


def test_a_struct_keeps_its_nulls_when_the_file_has_none_of_its_fields() -> None:
    table = pa.table({"s": [{"old": 1}, None], "l": [[{"old": 1}, None], None]})
    new = struct(new=STRING)
    wanted = struct(s=new, l=ArrayType(new), absent=new)
    assert read(table, wanted).to_pylist() == [
        {"s": {"new": None}, "l": [{"new": None}, None], "absent": None},
        {"s": None, "l": None, "absent": None},
    ]


def test_a_struct_of_no_fields_keeps_its_nulls() -> None:
    table = pa.table({"s": [{"old": 1}, None]})
    assert read(table, struct(s=StructType())).to_pylist() == [{"s": {}}, {"s": None}]


def test_a_void_column_is_null_whatever_the_file_has() -> None:
    table = pa.table({"v": [1], "s": [{"v": 1, "w": 2}]})
    found = read(table, struct(v=VOID, s=struct(w=LONG, v=VOID)))
    assert found.to_pylist() == [{"v": None, "s": {"w": 2, "v": None}}]


def test_collections_are_converted_across_batches() -> None:
    rows = [[], None, [1, None], [2], [], [3, 4, 5], None, [6]]
    pairs = [None if row is None else [(str(i), n) for i, n in enumerate(row)] for row in rows]
    table = pa.table(
        {
            "l": pa.array(rows, pa.list_(pa.int32())),
            "m": pa.array(pairs, pa.map_(pa.string(), pa.int32())),
            "ll": pa.array([[row] for row in rows], pa.list_(pa.list_(pa.int32()))),
        }
    )
    wanted = struct(l=ArrayType(LONG), m=MapType(STRING, LONG), ll=ArrayType(ArrayType(LONG)))
    found = read(table, wanted)
    assert found.column("l").to_pylist() == rows
    assert found.column("m").to_pylist() == pairs
    assert found.column("ll").to_pylist() == [[row] for row in rows]


def test_lists_of_the_older_two_level_form_are_read() -> None:
    sink = io.BytesIO()
    table = pa.table({"l": pa.array([[1, 2], None, []], pa.list_(pa.int64()))})
    pq.write_table(table, sink, use_compliant_nested_type=False, store_schema=False)
    file = pq.ParquetFile(sink)
    projection = file_projection(struct(l=ArrayType(LONG)), file.schema_arrow)
    (batch,) = file.reader.iter_batches(9, row_groups=[0], column_indices=list(projection.leaves))
    (column,) = projection.columns(batch)
    assert column.to_pylist() == [[1, 2], None, []]
    assert column.type.value_field.name == "element"


MIDNIGHT = datetime(2024, 2, 29)
NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)
D = Decimal

# What the file holds -> what the table calls it, and the value that is read.
READABLE = [
    (pa.int8(), 5, SHORT, 5),
    (pa.int16(), 5, INTEGER, 5),
    (pa.int32(), 5, LONG, 5),
    (pa.int32(), -5, BYTE, -5),
    (pa.int64(), 5, INTEGER, 5),
    (pa.uint8(), 200, SHORT, 200),
    (pa.uint32(), 2**32 - 1, LONG, 2**32 - 1),
    (pa.float32(), 1.5, DOUBLE, 1.5),
    (pa.int8(), 5, DOUBLE, 5.0),
    (pa.int16(), 5, DOUBLE, 5.0),
    (pa.int32(), 2**31 - 1, DOUBLE, float(2**31 - 1)),
    (pa.date32(), date(2024, 2, 29), TIMESTAMP_NTZ, MIDNIGHT),
    (pa.decimal128(5, 2), D("123.45"), DecimalType(7, 3), D("123.450")),
    (pa.decimal128(5, 2), D("123.45"), DecimalType(5, 2), D("123.45")),
    (pa.decimal128(20, 2), D("1.23"), DecimalType(5, 2), D("1.23")),
    (pa.int8(), 5, DecimalType(10, 0), D(5)),
    (pa.int32(), 5, DecimalType(12, 2), D("5.00")),
    (pa.int64(), -(2**63), DecimalType(21, 1), D(f"{-(2**63)}.0")),
    (pa.timestamp("us", "UTC"), NOON, TIMESTAMP, NOON),
    (pa.timestamp("us", "Asia/Tokyo"), NOON, TIMESTAMP, NOON),
    (pa.timestamp("us"), NOON.replace(tzinfo=None), TIMESTAMP, NOON),
    (pa.timestamp("ms", "UTC"), NOON, TIMESTAMP, NOON),
    (pa.timestamp("ns", "UTC"), NOON, TIMESTAMP, NOON),
    (pa.timestamp("ms"), MIDNIGHT, TIMESTAMP_NTZ, MIDNIGHT),
    (pa.binary(), b"text", STRING, "text"),
    (pa.string(), "text", BINARY, b"text"),
    (pa.binary(4), b"text", BINARY, b"text"),
    (pa.large_string(), "text", STRING, "text"),
    (pa.string(), "text", PrimitiveType("varchar(9)"), "text"),
    (pa.null(), None, DecimalType(3, 1), None),
]


@pytest.mark.parametrize(
    ("stored", "value", "wanted", "expected"),
    READABLE,
    ids=[f"{stored} as {wanted}" for stored, _, wanted, _ in READABLE],
)
def test_a_value_is_read_as_the_tables_type(
    stored: pa.DataType, value: Any, wanted: DataType, expected: Any
) -> None:
    table = pa.table({"c": pa.array([value, None], stored)})
    assert read(table, struct(c=wanted)).column("c").to_pylist() == [expected, None]
    nested = pa.table({"c": pa.array([[value], [None]], pa.list_(stored))})
    found = read(nested, struct(c=ArrayType(wanted)))
    assert found.column("c").to_pylist() == [[expected], [None]]


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        (pa.string(), LONG),
        (pa.int64(), STRING),
        (pa.int64(), DOUBLE),
        (pa.float64(), FLOAT),
        (pa.float64(), DecimalType(10, 2)),
        (pa.decimal128(10, 2), DOUBLE),
        (pa.int32(), BOOLEAN),
        (pa.int32(), DATE),
        (pa.date32(), TIMESTAMP),
        (pa.timestamp("us"), DATE),
        (pa.int64(), TIMESTAMP),
        (pa.list_(pa.int64()), LONG),
        (pa.int64(), ArrayType(LONG)),
        (pa.struct({"a": "int64"}), MapType(STRING, LONG)),
        (pa.map_("string", "int64"), ArrayType(LONG)),
        (pa.binary(), VARIANT),
    ],
    ids=str,
)
def test_a_type_that_is_another_altogether_is_refused(
    stored: pa.DataType, wanted: DataType
) -> None:
    with pytest.raises(ProjectionError, match="column c is"):
        file_projection(struct(c=wanted), pa.schema([("c", stored)]))


@pytest.mark.parametrize(
    ("stored", "value", "wanted"),
    [
        (pa.int64(), 2**31, INTEGER),
        (pa.int32(), 128, BYTE),
        (pa.uint64(), 2**63, LONG),
        (pa.decimal128(5, 2), D("999.99"), DecimalType(4, 2)),
        (pa.decimal128(5, 2), D("1.25"), DecimalType(5, 1)),
        (pa.binary(), b"\xff\xfe", STRING),
        (pa.timestamp("ms"), datetime(9999, 1, 1), None),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_is_never_another_value(
    stored: pa.DataType, value: Any, wanted: DataType | None
) -> None:
    table = pa.table({"c": pa.array([value], stored)})
    if wanted is None:
        table = pa.table({"c": pa.array([2**62], pa.int64()).view(stored)})
        wanted = TIMESTAMP_NTZ
    with pytest.raises(pa.ArrowInvalid):
        read(table, struct(c=wanted))


def test_nanoseconds_are_cut_towards_the_past() -> None:
    stored = pa.array([-1, 1, 1999], pa.int64()).view(pa.timestamp("ns"))
    found = read(pa.table({"c": stored}), struct(c=TIMESTAMP))
    micros = found.column("c").combine_chunks().view(pa.int64())
    assert micros.to_pylist() == [-1, 0, 1]


def test_text_in_a_dictionary_is_read_as_text() -> None:
    stored = pa.array(["x", None, "x"]).dictionary_encode()
    sink = io.BytesIO()
    pq.write_table(pa.table({"c": stored}), sink)  # Arrow's own schema says that it was one
    file = pq.ParquetFile(sink)
    projection = file_projection(struct(c=STRING), file.schema_arrow)
    (batch,) = file.reader.iter_batches(9, row_groups=[0], column_indices=[0])
    assert projection.columns(batch)[0].to_pylist() == ["x", None, "x"]


@pytest.mark.parametrize("kind", [pa.large_list, lambda t: pa.list_(t, 2)])
def test_other_kinds_of_lists_are_read_as_arrays(kind: Any) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"c": pa.array([[1, 2], None], kind(pa.int32()))}), sink)
    file = pq.ParquetFile(sink)
    projection = file_projection(struct(c=ArrayType(LONG)), file.schema_arrow)
    (batch,) = file.reader.iter_batches(9, row_groups=[0], column_indices=[0])
    assert projection.columns(batch)[0].to_pylist() == [[1, 2], None]


def test_a_variant_is_its_two_binary_parts() -> None:
    parts = pa.struct({"metadata": "binary", "value": "binary"})
    table = pa.table({"v": pa.array([{"metadata": b"m", "value": b"v"}, None], parts)})
    assert read(table, struct(v=VARIANT)).to_pylist() == [
        {"v": {"value": b"v", "metadata": b"m"}},
        {"v": None},
    ]


def test_a_shredded_variant_is_refused() -> None:
    parts = pa.struct({"metadata": "binary", "value": "binary", "typed_value": "int64"})
    with pytest.raises(ProjectionError, match="typed_value"):
        file_projection(struct(v=VARIANT), pa.schema([("v", parts)]))
