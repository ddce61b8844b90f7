"""Logical and physical names, ids."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given, settings

from pyspark_delta.errors import PropertyError, SchemaError
from pyspark_delta.kernel.protocol.column_mapping import (
    ID_KEY,
    NESTED_IDS_KEY,
    PHYSICAL_NAME_KEY,
    ColumnMappingMode,
    assign_columns,
    check_columns,
    check_mode_change,
    column_id,
    field_ids,
    has_mapping,
    is_rename_or_drop,
    logical_path,
    max_column_id,
    physical_name,
    physical_path,
    physical_paths,
    physical_schema,
    without_mapping,
)
from pyspark_delta.kernel.protocol.types import (
    INTEGER,
    LONG,
    STRING,
    ArrayType,
    MapType,
    StructField,
    StructType,
    walk_fields,
)
from tests.support.schemas import field, schemas, struct

NONE, NAME, ID = ColumnMappingMode.NONE, ColumnMappingMode.NAME, ColumnMappingMode.ID
PLAIN = struct(
    Id=LONG,
    s=struct(a=INTEGER),
    l=ArrayType(struct(x=STRING)),
    m=MapType(STRING, ArrayType(struct(y=STRING))),
)


def _mapped(schema: StructType = PLAIN, **options: bool) -> tuple[StructType, int]:
    numbers = count(1)
    return assign_columns(schema, max_id=0, new_uuid=lambda: f"u{next(numbers)}", **options)


@pytest.mark.parametrize(
    ("text", "mode"), [(None, NONE), ("none", NONE), ("Name", NAME), ("ID", ID)]
)
def test_the_property_spells_a_mode(text: str | None, mode: ColumnMappingMode) -> None:
    assert ColumnMappingMode.parse(text) is mode


def test_a_mode_that_does_not_exist_is_refused() -> None:
    with pytest.raises(PropertyError, match="none, name or id"):
        ColumnMappingMode.parse("uuid")


@pytest.mark.parametrize("old", [NONE, NAME, ID])
@pytest.mark.parametrize("new", [NONE, NAME, ID])
@pytest.mark.parametrize("removing", [False, True])
def test_a_table_changes_its_mode_only_where_files_stay_readable(
    old: ColumnMappingMode, new: ColumnMappingMode, removing: bool
) -> None:
    allowed = old is new or (old, new) == (NONE, NAME) or (removing and new is NONE)
    if allowed:
        check_mode_change(old, new, removing=removing)
        return
    with pytest.raises(SchemaError) as caught:
        check_mode_change(old, new, removing=removing)
    assert caught.value.condition == "DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE"
    assert caught.value.parameters == {"oldMode": old.value, "newMode": new.value}


def test_new_columns_get_ids_in_order_and_names_nobody_else_has() -> None:
    mapped, top = _mapped()
    assert top == max_column_id(mapped) == 7
    assert [
        (f.metadata[ID_KEY], f.metadata[PHYSICAL_NAME_KEY]) for _, f in walk_fields(mapped)
    ] == [(number, f"col-u{number}") for number in range(1, 8)]
    check_columns(mapped, NAME, top)


def test_an_upgraded_table_keeps_the_names_its_files_have() -> None:
    mapped, _ = _mapped(keep_names=True)
    assert physical_schema(mapped, NAME).simple_string == PLAIN.simple_string


def test_what_a_column_has_it_keeps_and_ids_only_grow() -> None:
    mapped, top = _mapped()
    again, same_top = assign_columns(mapped, max_id=top, new_uuid=lambda: "never")
    assert (again, same_top) == (mapped, top)
    wider, new_top = assign_columns(
        mapped.add(StructField("new", LONG)), max_id=40, new_uuid=lambda: "n"
    )
    assert new_top == 41
    assert wider["new"].metadata == {ID_KEY: 41, PHYSICAL_NAME_KEY: "col-n"}


def test_ids_that_do_not_fit_32_bits_are_never_given() -> None:
    with pytest.raises(SchemaError):
        assign_columns(PLAIN, max_id=2**31 - 1, new_uuid=lambda: "u")


def test_elements_of_collections_get_ids_on_the_nearest_field_for_iceberg() -> None:
    mapped, top = _mapped(nested_ids=True)
    assert mapped["m"].metadata[NESTED_IDS_KEY] == {
        "col-u6.key": 8,
        "col-u6.value": 9,
        "col-u6.value.element": 10,
    }
    assert mapped["l"].metadata[NESTED_IDS_KEY] == {"col-u4.element": 5}
    assert NESTED_IDS_KEY not in mapped["s"].metadata
    ids = field_ids(mapped)
    assert ids[("col-u6", "value", "element")] == 10
    assert sorted(ids.values()) == list(range(1, top + 1))
    assert max_column_id(mapped) == top


def test_names_and_ids_come_from_metadata_under_mapping_and_from_the_schema_without() -> None:
    mapped, _ = _mapped()
    assert physical_name(mapped["id"], NONE) == "Id"
    assert physical_name(mapped["id"], NAME) == physical_name(mapped["id"], ID) == "col-u1"
    assert column_id(mapped["id"]) == 1
    assert physical_schema(PLAIN, NONE) is PLAIN
    assert physical_schema(mapped, ID).simple_string == (
        "struct<col-u1:bigint,col-u2:struct<col-u3:int>,col-u4:array<struct<col-u5:string>>,"
        "col-u6:map<string,array<struct<col-u7:string>>>>"
    )


@pytest.mark.parametrize(
    ("logical", "physical"),
    [
        (("Id",), ("col-u1",)),
        (("s", "a"), ("col-u2", "col-u3")),
        (("l", "element", "x"), ("col-u4", "element", "col-u5")),
        (("m", "value", "element", "y"), ("col-u6", "value", "element", "col-u7")),
        (("m", "key"), ("col-u6", "key")),
        ((), ()),
    ],
)
def test_paths_translate_both_ways_through_collections(
    logical: tuple[str, ...], physical: tuple[str, ...]
) -> None:
    mapped, _ = _mapped()
    assert physical_path(mapped, logical, NAME) == physical
    assert physical_path(
        mapped, [part.upper() for part in logical[:1]] + list(logical[1:]), NAME
    ) == (physical)
    assert logical_path(mapped, physical, NAME) == logical


@pytest.mark.parametrize("path", [("nope",), ("s", "nope"), ("Id", "a"), ("l", "x"), ("m", "x")])
def test_a_path_that_leads_nowhere_is_refused(path: tuple[str, ...]) -> None:
    mapped, _ = _mapped()
    for translate in (physical_path, logical_path):
        with pytest.raises(SchemaError) as caught:
            translate(mapped, path, NAME)
        assert caught.value.condition == "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"


@settings(max_examples=25)
@given(schemas())
def test_mapping_any_schema_can_be_undone(schema: StructType) -> None:
    mapped, top = _mapped(schema, nested_ids=True)
    check_columns(mapped, NAME, top)
    assert has_mapping(mapped) is bool(schema.fields)
    assert without_mapping(mapped) == schema
    for logical, physical in physical_paths(mapped, ID).items():
        assert logical_path(mapped, physical, ID) == logical


@pytest.mark.parametrize("key", [ID_KEY, PHYSICAL_NAME_KEY])
@pytest.mark.parametrize("value", [None, "", [], True])
def test_a_column_without_its_mapping_is_refused_by_name(key: str, value: object) -> None:
    mapped, top = _mapped()
    broken = StructType((mapped["id"].with_metadata_items({key: value}), *mapped.fields[1:]))
    with pytest.raises(SchemaError) as caught:
        check_columns(broken, NAME, top)
    assert caught.value.condition == "DELTA_COLUMN_MAPPING_MISSING_METADATA"
    assert caught.value.parameters == {"columnName": "Id", "key": key}


def _with(name: str, key: str, value: object) -> StructType:
    mapped, _ = _mapped()
    return StructType(
        tuple(f.with_metadata_items({key: value}) if f.name == name else f for f in mapped)
    )


@pytest.mark.parametrize(
    ("schema", "max_id", "condition"),
    [
        (_with("s", ID_KEY, 1), 7, "DELTA_COLUMN_MAPPING_DUPLICATE_ID"),
        (
            _with("s", PHYSICAL_NAME_KEY, "col-u1"),
            7,
            "DELTA_COLUMN_MAPPING_DUPLICATE_PHYSICAL_NAME",
        ),
        (_with("s", ID_KEY, 99), 7, "DELTA_COLUMN_MAPPING_MAX_COLUMN_ID_NOT_SET_CORRECTLY"),
        (_with("s", ID_KEY, 2), None, "DELTA_COLUMN_MAPPING_MAX_COLUMN_ID_NOT_SET"),
    ],
)
def test_a_mapping_that_is_not_one_to_one_is_refused(
    schema: StructType, max_id: int | None, condition: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        check_columns(schema, NAME, max_id)
    assert caught.value.condition == condition


def test_without_mapping_there_is_nothing_to_check() -> None:
    check_columns(PLAIN, NONE, None)
    assert not has_mapping(PLAIN)


def test_renames_and_drops_are_seen_through_physical_names() -> None:
    mapped, _ = _mapped()
    renamed = StructType((mapped["id"].with_name("other"), *mapped.fields[1:]))
    dropped = StructType(mapped.fields[1:])
    wider = mapped.add(field("n", LONG, delta__columnMapping__physicalName="col-n"))
    assert is_rename_or_drop(mapped, renamed)
    assert is_rename_or_drop(mapped, dropped)
    assert not is_rename_or_drop(mapped, wider)
    assert not is_rename_or_drop(mapped, mapped)
