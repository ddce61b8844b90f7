"""Which types may grow into which, and how the schema remembers."""

from __future__ import annotations

import pytest
from hypothesis import given

from pyspark_delta.errors import SchemaError
from pyspark_delta.kernel.protocol.type_widening import (
    TYPE_CHANGES_KEY,
    TypeChange,
    TypeWideningMode,
    all_type_changes,
    can_widen,
    check_type_changes,
    rebase_type_changes,
    record_type_changes,
    type_changes,
    with_type_changes,
    without_type_changes,
)
from pyspark_delta.kernel.protocol.types import (
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
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructType,
)
from tests.support.schemas import decimals, field, struct

D = DecimalType
SIMPLE = [
    *(BYTE, SHORT, INTEGER, LONG, FLOAT, DOUBLE, DATE),
    *(TIMESTAMP, TIMESTAMP_NTZ, STRING, BOOLEAN, VOID),
]
# The protocol's table: from, to, whether it is of one family, whether Iceberg knows it.
ALLOWED = {
    (BYTE, SHORT): (True, True),
    (BYTE, INTEGER): (True, True),
    (BYTE, LONG): (True, True),
    (SHORT, INTEGER): (True, True),
    (SHORT, LONG): (True, True),
    (INTEGER, LONG): (True, True),
    (FLOAT, DOUBLE): (True, True),
    (DATE, TIMESTAMP_NTZ): (True, False),
    (BYTE, DOUBLE): (False, False),
    (SHORT, DOUBLE): (False, False),
    (INTEGER, DOUBLE): (False, False),
}


@pytest.mark.parametrize("one", SIMPLE)
@pytest.mark.parametrize("other", SIMPLE)
def test_a_type_grows_only_into_those_of_the_table(one: DataType, other: DataType) -> None:
    same_family, iceberg = ALLOWED.get((one, other), (one == other, one == other))
    allowed = one == other or (one, other) in ALLOWED
    assert can_widen(one, other) is allowed
    assert can_widen(one, other, iceberg=True) is iceberg
    assert (TypeWideningMode.ALWAYS.widened(one, other) == other) is allowed
    assert (TypeWideningMode.SAME_FAMILY.widened(one, other) == other) is same_family
    assert TypeWideningMode.NEVER.widened(one, other) is None


@pytest.mark.parametrize(
    ("one", "other", "allowed", "iceberg"),
    [
        (D(10, 2), D(10, 2), True, True),
        (D(10, 2), D(12, 2), True, True),
        (D(10, 2), D(12, 4), True, False),
        (D(10, 2), D(11, 4), False, False),
        (D(10, 2), D(12, 1), False, False),
        (D(10, 2), D(9, 2), False, False),
        (BYTE, D(10, 0), True, False),
        (INTEGER, D(12, 2), True, False),
        (INTEGER, D(11, 2), False, False),
        (LONG, D(20, 0), True, False),
        (LONG, D(19, 0), False, False),
        (LONG, DOUBLE, False, False),
        (D(10, 0), INTEGER, False, False),
        (FLOAT, D(38, 10), False, False),
        (ArrayType(INTEGER), ArrayType(LONG), False, False),
    ],
)
def test_decimals_must_keep_every_digit(
    one: DataType, other: DataType, allowed: bool, iceberg: bool
) -> None:
    assert can_widen(one, other) is allowed
    assert can_widen(one, other, iceberg=True) is iceberg


def test_a_common_type_is_found_in_either_direction() -> None:
    common = TypeWideningMode.COMMON
    assert common.widened(LONG, BYTE) == LONG
    assert common.widened(BYTE, LONG) == LONG
    assert common.widened(D(10, 2), D(8, 4)) == D(12, 4)
    assert common.widened(D(38, 2), D(38, 4)) is None
    assert common.widened(STRING, LONG) is None


@given(decimals(), decimals())
def test_two_decimals_have_a_common_type_that_both_grow_into(one: D, other: D) -> None:
    found = TypeWideningMode.COMMON.widened(one, other)
    if found is not None:
        assert can_widen(one, found)
        assert can_widen(other, found)


OLD = struct(
    a=SHORT,
    s=struct(b=INTEGER, same=STRING),
    m=MapType(FLOAT, ArrayType(D(6, 2))),
    l=ArrayType(struct(c=BYTE)),
    gone=LONG,
)
NEW = struct(
    A=INTEGER,
    s=struct(b=LONG, same=STRING),
    m=MapType(DOUBLE, ArrayType(D(10, 4))),
    l=ArrayType(struct(c=SHORT)),
    fresh=LONG,
)


def test_changes_are_recorded_on_the_field_they_happened_in() -> None:
    recorded = record_type_changes(OLD, NEW)
    assert recorded["a"].metadata == {
        TYPE_CHANGES_KEY: [{"fromType": "short", "toType": "integer"}]
    }
    assert recorded["m"].metadata == {
        TYPE_CHANGES_KEY: [
            {"fromType": "float", "toType": "double", "fieldPath": "key"},
            {"fromType": "decimal(6,2)", "toType": "decimal(10,4)", "fieldPath": "value.element"},
        ]
    }
    inner = recorded.find(("s", "b"))
    assert inner is not None
    assert inner.metadata == {TYPE_CHANGES_KEY: [{"fromType": "integer", "toType": "long"}]}
    assert recorded["s"].metadata == {}
    assert recorded["fresh"].metadata == {}
    assert [path for path, _ in all_type_changes(recorded)] == [
        ("A",),
        ("s", "b"),
        ("m", "key"),
        ("m", "value", "element"),
        ("l", "element", "c"),
    ]
    check_type_changes(recorded)
    assert without_type_changes(recorded) == NEW


def test_a_second_change_stands_behind_the_first() -> None:
    once = record_type_changes(struct(a=BYTE), struct(a=SHORT))
    widened = StructType((once["a"].with_type(INTEGER),))
    twice = record_type_changes(once, widened)
    assert [change.to_type for change in type_changes(twice["a"])] == [SHORT, INTEGER]
    assert record_type_changes(twice, twice) == twice


def test_changes_of_the_preview_carry_the_version_that_a_rebase_moves() -> None:
    recorded = record_type_changes(struct(a=BYTE), struct(a=SHORT), table_version=3)
    assert recorded["a"].metadata[TYPE_CHANGES_KEY] == [
        {"tableVersion": 3, "fromType": "byte", "toType": "short"}
    ]
    moved = rebase_type_changes(recorded, from_version=3, to_version=5)
    assert type_changes(moved["a"])[0].table_version == 5
    assert rebase_type_changes(moved, from_version=3, to_version=9) == moved


def test_metadata_reads_back_as_the_change_it_was_written_from() -> None:
    change = TypeChange(from_type=D(6, 2), to_type=D(10, 4), field_path=("value", "element"))
    assert type_changes(with_type_changes(field("a", LONG), [change])) == (change,)
    assert with_type_changes(field("a", LONG), []) == field("a", LONG)


def test_a_change_that_no_reader_can_honour_is_refused_by_name() -> None:
    schema = StructType(
        (
            field(
                "a",
                ArrayType(STRING),
                delta__typeChanges=[
                    {"fromType": "integer", "toType": "string", "fieldPath": "element"}
                ],
            ),
        )
    )
    with pytest.raises(SchemaError) as caught:
        check_type_changes(schema)
    assert caught.value.condition == "DELTA_UNSUPPORTED_TYPE_CHANGE_IN_SCHEMA"
    assert caught.value.parameters == {
        "fieldName": "a.element",
        "fromType": "INT",
        "toType": "STRING",
    }


@pytest.mark.parametrize(
    ("changes", "condition"),
    [
        ({}, "DELTA_INVALID_TYPE_CHANGES_METADATA"),
        ([5], "DELTA_INVALID_TYPE_CHANGES_METADATA"),
        ([{"fromType": "integer"}], "DELTA_INVALID_TYPE_CHANGES_METADATA"),
        (
            [{"fromType": "integer", "toType": "long", "fieldPath": "a.b"}],
            "DELTA_INVALID_TYPE_CHANGES_METADATA",
        ),
        ([{"fromType": "quark", "toType": "long"}], "DELTA_UNSUPPORTED_TYPE_CHANGE_IN_SCHEMA"),
    ],
)
def test_a_record_that_cannot_be_understood_is_refused(changes: object, condition: str) -> None:
    schema = StructType((field("a", LONG, delta__typeChanges=changes),))
    with pytest.raises(SchemaError) as caught:
        check_type_changes(schema)
    assert caught.value.condition == condition
