"""Types, fields and structs as values."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings

from pyspark_delta.kernel.protocol.types import (
    INTEGER,
    LONG,
    STRING,
    ArrayType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    column_name,
    is_atomic,
    map_fields,
    type_name,
    walk_fields,
)
from tests.support.schemas import field, schemas, struct

NESTED = struct(
    Id=LONG,
    s=struct(a=INTEGER, b=struct(c=STRING)),
    list=ArrayType(struct(x=INTEGER)),
    m=MapType(struct(k=STRING), struct(v=STRING)),
)


def test_types_spell_themselves_as_sql_does() -> None:
    assert NESTED.simple_string == (
        "struct<Id:bigint,s:struct<a:int,b:struct<c:string>>,"
        "list:array<struct<x:int>>,m:map<struct<k:string>,struct<v:string>>>"
    )
    assert str(DecimalType(10, 2)) == "decimal(10,2)"


def test_type_names_are_the_short_ones_of_the_json_form() -> None:
    kinds = [LONG, DecimalType(10, 2), NESTED, ArrayType(LONG), MapType(STRING, LONG)]
    assert [type_name(kind) for kind in kinds] == [
        "long",
        "decimal(10,2)",
        "struct",
        "array",
        "map",
    ]


def test_names_compare_ignoring_case_and_keep_the_case_they_were_given() -> None:
    assert "ID" in NESTED
    assert NESTED["iD"].name == "Id"
    assert NESTED.get("nope") is None
    assert "nope" not in NESTED
    assert 5 not in NESTED
    with pytest.raises(KeyError):
        NESTED["nope"]


def test_a_path_of_struct_names_finds_a_nested_field() -> None:
    found = NESTED.find(("S", "b", "C"))
    assert found is not None
    assert found.name == "c"
    assert NESTED.find(("s", "nope")) is None
    assert NESTED.find(("list", "x")) is None
    assert NESTED.find(()) is None


@pytest.mark.parametrize(("precision", "scale"), [(0, 0), (39, 0), (10, 11), (10, -1)])
def test_a_decimal_outside_of_38_digits_does_not_exist(precision: int, scale: int) -> None:
    with pytest.raises(ValueError, match="not a decimal"):
        DecimalType(precision, scale)


def test_changing_metadata_merges_and_none_takes_a_key_out() -> None:
    before = field("a", INTEGER, x=1, y=2, kept=None)
    after = before.with_metadata_items({"x": None, "z": 3})
    assert after.metadata == {"y": 2, "kept": None, "z": 3}
    assert before.metadata == {"x": 1, "y": 2, "kept": None}
    assert field("a", INTEGER, comment="hi").comment == "hi"
    assert field("a", INTEGER, comment=5).comment is None


def test_a_field_changes_one_thing_at_a_time() -> None:
    before = field("a", INTEGER, False, x=1)
    assert before.with_name("b") == field("b", INTEGER, False, x=1)
    assert before.with_type(LONG) == field("a", LONG, False, x=1)
    assert before.with_nullable(True) == field("a", INTEGER, True, x=1)


def test_walking_goes_through_collections_by_the_protocols_names() -> None:
    assert [column_name(path) for path, _ in walk_fields(NESTED)] == [
        "Id",
        "s",
        "s.a",
        "s.b",
        "s.b.c",
        "list",
        "list.element.x",
        "m",
        "m.key.k",
        "m.value.v",
    ]


def test_a_dot_in_a_name_is_told_apart_from_a_step() -> None:
    assert column_name(("a.b", "c")) == "`a.b`.c"


@settings(max_examples=25)
@given(schemas())
def test_every_field_is_reached_by_map_and_by_walk(schema: StructType) -> None:
    renamed = map_fields(schema, lambda f: f.with_name(f.name + "!"))
    walked = [f.name for _, f in walk_fields(schema)]
    assert [f.name for _, f in walk_fields(renamed)] == [name + "!" for name in walked]


@settings(max_examples=25)
@given(schemas())
def test_schemas_are_values_that_can_be_hashed_and_pickled(schema: StructType) -> None:
    schema.get("x")  # fills the index, which must not count
    copy = pickle.loads(pickle.dumps(schema))
    assert copy == schema
    assert hash(StructType(schema.fields)) == hash(schema)
    assert len(schema.add(StructField("more", LONG))) == len(schema) + 1


def test_only_types_without_others_inside_are_atomic() -> None:
    assert is_atomic(DecimalType(1, 0))
    assert is_atomic(LONG)
    assert not is_atomic(ArrayType(LONG))
    assert not is_atomic(StructType())
