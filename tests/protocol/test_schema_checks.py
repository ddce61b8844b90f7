"""What a table's schema may hold."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings

from pyspark_delta.errors import SchemaError
from pyspark_delta.kernel.protocol.column_mapping import ColumnMappingMode
from pyspark_delta.kernel.protocol.schema_checks import (
    ILLEGAL_CHARACTERS,
    check_data_columns,
    check_names,
    check_nested_not_null,
    check_no_cdf_columns,
    check_partition_columns,
    check_schema,
    check_types,
    check_writable_schema,
    invalid_names,
    is_partition_type,
    without_void,
)
from pyspark_delta.kernel.protocol.types import (
    BINARY,
    DATE,
    LONG,
    STRING,
    VARIANT,
    VOID,
    ArrayType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructType,
    walk_fields,
)
from tests.support.schemas import field, schemas, struct

NONE, NAME = ColumnMappingMode.NONE, ColumnMappingMode.NAME


def _refused(check: Callable[[], None]) -> SchemaError:
    with pytest.raises(SchemaError) as caught:
        check()
    return caught.value


@pytest.mark.parametrize("character", ILLEGAL_CHARACTERS)
def test_characters_that_parquet_refuses_need_column_mapping(character: str) -> None:
    schema = struct(ok=LONG, l=ArrayType(StructType((field(f"a{character}b", LONG),))))
    error = _refused(lambda: check_names(schema, NONE))
    assert error.condition == "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES"
    assert error.parameters == {"invalidColumnNames": f"l.element.a{character}b"}
    check_names(schema, NAME)


def test_other_characters_are_fine_in_names() -> None:
    assert invalid_names(StructType((field("ä.b/c`d-%日", LONG),))) == ()


def test_types_that_only_readers_know_cannot_be_stored() -> None:
    schema = struct(a=LONG, l=ArrayType(PrimitiveType("interval day to second")))
    error = _refused(lambda: check_types(schema))
    assert error.condition == "DELTA_UNSUPPORTED_DATA_TYPES"
    assert "l.element: interval day to second" in error.parameters["dataTypeList"]


TABLE = struct(id=LONG, Day=DATE, s=struct(a=LONG), v=VARIANT, n=VOID)


@pytest.mark.parametrize(
    ("partitions", "condition"),
    [
        (["nope"], "DELTA_PARTITION_COLUMN_NOT_FOUND"),
        (["s"], "DELTA_INVALID_PARTITION_COLUMN_TYPE"),
        (["v"], "DELTA_INVALID_PARTITION_COLUMN_TYPE"),
        (["n"], "DELTA_INVALID_PARTITION_COLUMN_TYPE"),
        (["day", "DAY"], "DELTA_DUPLICATE_COLUMNS_FOUND.PARTITION_COLUMNS"),
    ],
)
def test_partition_columns_must_be_there_once_and_plain(
    partitions: list[str], condition: str
) -> None:
    assert _refused(lambda: check_partition_columns(TABLE, partitions)).condition == condition


def test_partition_columns_compare_ignoring_case_and_leave_a_column_for_the_data() -> None:
    check_partition_columns(TABLE, ["DAY"])
    check_partition_columns(struct(), [])
    error = _refused(lambda: check_partition_columns(struct(a=LONG, b=LONG), ["a", "B"]))
    assert error.condition == "DELTA_CANNOT_USE_ALL_COLUMNS_FOR_PARTITION"


def test_values_of_plain_types_can_be_partition_values() -> None:
    assert is_partition_type(BINARY)
    assert is_partition_type(DecimalType(10, 2))
    assert not is_partition_type(ArrayType(LONG))
    assert not is_partition_type(PrimitiveType("interval year to month"))


def test_data_must_have_something_to_put_into_a_file() -> None:
    check_data_columns(struct(p=LONG, a=LONG), ["P"])
    error = _refused(lambda: check_data_columns(struct(p=LONG), ["P"]))
    assert error.condition == "DELTA_NON_PARTITION_COLUMN_ABSENT.ALL_PARTITION_COLUMNS"
    error = _refused(lambda: check_data_columns(struct(p=LONG, a=VOID), ["p"]))
    assert error.condition == "DELTA_NON_PARTITION_COLUMN_ABSENT.NULL_TYPE_COLUMNS_DROPPED"
    error = _refused(lambda: check_data_columns(struct(a=VOID, b=VOID), []))
    assert error.condition == "DELTA_CANNOT_WRITE_EMPTY_SCHEMA.TABLE_ALL_VOID_COLUMNS"


@pytest.mark.parametrize(
    ("schema", "condition"),
    [
        (struct(), "DELTA_CANNOT_WRITE_EMPTY_SCHEMA.TABLE_NO_COLUMNS"),
        (struct(a=VOID, b=VOID), "DELTA_CANNOT_WRITE_EMPTY_SCHEMA.TABLE_ALL_VOID_COLUMNS"),
        (struct(a=LONG, s=struct()), "DELTA_CANNOT_WRITE_EMPTY_SCHEMA.STRUCT_NO_FIELDS"),
        (
            struct(a=LONG, s=struct(t=struct(x=VOID), y=LONG)),
            "DELTA_CANNOT_WRITE_EMPTY_SCHEMA.STRUCT_ALL_VOID_FIELDS",
        ),
        (struct(l=ArrayType(VOID)), "DELTA_COMPLEX_TYPE_COLUMN_CONTAINS_NULL_TYPE"),
        (
            struct(m=MapType(STRING, struct(a=LONG, x=VOID))),
            "DELTA_COMPLEX_TYPE_COLUMN_CONTAINS_NULL_TYPE",
        ),
        (struct(l=ArrayType(struct())), "DELTA_CANNOT_WRITE_EMPTY_SCHEMA.STRUCT_NO_FIELDS"),
    ],
)
def test_what_a_file_cannot_hold_is_refused(schema: StructType, condition: str) -> None:
    assert _refused(lambda: check_writable_schema(schema)).condition == condition


def test_void_beside_other_columns_is_left_out_of_files() -> None:
    schema = struct(a=LONG, n=VOID, s=struct(x=VOID, y=LONG))
    check_writable_schema(schema)
    assert without_void(schema) == struct(a=LONG, s=struct(y=LONG))


@settings(max_examples=25)
@given(schemas())
def test_what_may_be_written_has_no_void_left_in_its_files(schema: StructType) -> None:
    try:
        check_writable_schema(schema)
    except SchemaError:
        return
    written = without_void(schema)
    assert all(f.data_type != VOID for _, f in walk_fields(written))
    check_writable_schema(written)


@pytest.mark.parametrize("name", ["_change_type", "_COMMIT_version", "_commit_timestamp"])
def test_the_names_of_the_change_data_feed_are_reserved(name: str) -> None:
    schema = StructType((field("a", LONG), field(name, LONG)))
    error = _refused(lambda: check_no_cdf_columns(schema))
    assert error.condition == "RESERVED_CDC_COLUMNS_ON_WRITE"
    assert error.parameters == {"columnList": f"[{name}]", "config": "delta.enableChangeDataFeed"}
    error = _refused(lambda: check_no_cdf_columns(schema, enabling=True))
    assert error.condition == "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS"
    check_no_cdf_columns(struct(a=LONG))


def test_not_null_inside_collections_is_refused_for_nobody_enforces_it() -> None:
    inner = StructType((field("x", LONG, False),))
    for kind, nest_type in (
        (ArrayType(inner), "element"),
        (MapType(inner, LONG), "key"),
        (MapType(LONG, inner), "value"),
    ):
        error = _refused(lambda: check_nested_not_null(struct(s=struct(c=kind))))  # noqa: B023
        assert error.condition == "DELTA_NESTED_NOT_NULL_CONSTRAINT"
        assert (error.parameters["parent"], error.parameters["nestType"]) == ("s.c", nest_type)
    check_nested_not_null(StructType((field("s", inner, False),)))


def test_a_new_schema_passes_all_checks_at_once_or_none() -> None:
    check_schema(struct(a=LONG, p=LONG), ["p"], change_data_feed=True)
    reserved = StructType((field("_change_type", LONG), field("a", LONG)))
    check_schema(reserved, [])
    assert _refused(lambda: check_schema(reserved, [], change_data_feed=True))
    twice = StructType((field("a", LONG), field("A", LONG)))
    error = _refused(lambda: check_schema(twice, []))
    assert error.condition == "DELTA_DUPLICATE_COLUMNS_FOUND.METADATA_UPDATE"


def test_a_partition_column_with_a_refused_character_has_an_error_of_its_own() -> None:
    schema = struct(**{"a b": LONG, "v": LONG})
    with pytest.raises(SchemaError) as caught:
        check_schema(schema, ["a b"], mode=ColumnMappingMode.NONE)
    assert caught.value.condition == "DELTA_INVALID_PARTITION_COLUMN_NAME"
    check_schema(schema, ["a b"], mode=ColumnMappingMode.NAME)
