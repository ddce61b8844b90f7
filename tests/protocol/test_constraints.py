from __future__ import annotations

import pytest

from pyspark_delta.errors import ConstraintError, SchemaError
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.constraints import (
    Check,
    NotNull,
    has_invariants,
    invariants,
    not_null_fields,
    table_checks,
    table_constraints,
    with_constraint,
    without_constraint,
)
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.types import (
    LONG,
    STRING,
    ArrayType,
    MapType,
    StructField,
    StructType,
)


def invariant(text: str) -> dict[str, str]:
    return {"delta.invariants": text}


RULE = '{"expression":{"expression":"x > 3"}}'


def test_not_null_is_found_at_the_top_and_in_structs_but_not_in_collections() -> None:
    inner = StructType((StructField("b", LONG, nullable=False), StructField("c", LONG)))
    schema = StructType(
        (
            StructField("id", LONG, nullable=False),
            StructField("s", inner),
            StructField("l", ArrayType(inner)),
            StructField("m", MapType(STRING, inner)),
            StructField("v", STRING),
        )
    )
    assert not_null_fields(schema) == (NotNull(path=("id",)), NotNull(path=("s", "b")))


def test_check_constraints_are_the_properties_under_their_prefix() -> None:
    configuration = {
        "delta.constraints.b": "b > 0",
        "DELTA.Constraints.a": "a > 0",
        "delta.appendOnly": "true",
        "delta.constraintsX": "no",
        "delta.constraints.gone": None,
    }
    assert table_checks(configuration) == (
        Check(name="a", expression="a > 0"),
        Check(name="b", expression="b > 0"),
    )


def test_a_new_constraint_is_stored_under_its_lower_case_name() -> None:
    assert with_constraint({"k": "v"}, "Adult", "age >= 18") == {
        "k": "v",
        "delta.constraints.adult": "age >= 18",
    }


def test_a_constraint_cannot_be_added_twice_whatever_its_case() -> None:
    configuration = with_constraint({}, "adult", "age >= 18")
    with pytest.raises(ConstraintError) as caught:
        with_constraint(configuration, "ADULT", "age >= 21")
    assert caught.value.condition == "DELTA_CONSTRAINT_ALREADY_EXISTS"
    assert caught.value.parameters == {"constraintName": "ADULT", "oldConstraint": "age >= 18"}


@pytest.mark.parametrize("name", ["", "__CHAR_VARCHAR_STRING_LENGTH_CHECK__"])
def test_a_reserved_or_empty_constraint_name_is_refused(name: str) -> None:
    with pytest.raises(ConstraintError) as caught:
        with_constraint({}, name, "true")
    assert caught.value.condition == "DELTA_INVALID_CONSTRAINT_NAME"


def test_a_constraint_is_dropped_ignoring_case() -> None:
    configuration = {"delta.constraints.Adult": "age >= 18", "k": "v"}
    assert without_constraint(configuration, "aDULT") == {"k": "v"}


def test_dropping_a_constraint_that_is_not_there_needs_if_exists() -> None:
    assert without_constraint({"k": "v"}, "c", if_exists=True) == {"k": "v"}
    with pytest.raises(ConstraintError) as caught:
        without_constraint({}, "c", table="t")
    assert caught.value.condition == "DELTA_CONSTRAINT_DOES_NOT_EXIST"
    assert caught.value.parameters["tableName"] == "t"


def test_invariants_are_read_from_columns_and_nested_fields() -> None:
    inner = StructType((StructField("y", LONG, metadata=invariant(RULE.replace("x >", "y >"))),))
    schema = StructType((StructField("x", LONG, metadata=invariant(RULE)), StructField("s", inner)))
    assert has_invariants(schema)
    assert invariants(schema) == (
        Check(name="", expression="x > 3"),
        Check(name="", expression="y > 3"),
    )


def test_an_invariant_inside_a_collection_is_refused_and_not_passed_over() -> None:
    inner = StructType((StructField("x", LONG, metadata=invariant(RULE)),))
    schema = StructType((StructField("l", ArrayType(inner)),))
    assert has_invariants(schema)
    with pytest.raises(SchemaError) as caught:
        invariants(schema)
    assert caught.value.condition == "DELTA_UNSUPPORTED_INVARIANT_NON_STRUCT"


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("not json", "DELTA_INVALID_INVARIANT"),
        ("[]", "DELTA_INVALID_INVARIANT"),
        ("[" * 100_000, "DELTA_INVALID_INVARIANT"),
        (7, "DELTA_INVALID_INVARIANT"),
        ("{}", "DELTA_UNRECOGNIZED_INVARIANT"),
        ('{"notNull":{}}', "DELTA_UNRECOGNIZED_INVARIANT"),
        ('{"expression":{"expression":1}}', "DELTA_UNRECOGNIZED_INVARIANT"),
    ],
)
def test_an_invariant_that_cannot_be_understood_is_refused(text: object, condition: str) -> None:
    schema = StructType((StructField("x", LONG, metadata={"delta.invariants": text}),))
    with pytest.raises(SchemaError) as caught:
        invariants(schema)
    assert caught.value.condition == condition


def test_a_table_has_all_three_kinds_of_constraints() -> None:
    schema = StructType((StructField("x", LONG, nullable=False, metadata=invariant(RULE)),))
    metadata = Metadata(
        id="t",
        schema_string=format_schema(schema),
        configuration={"delta.constraints.c": "x < 9"},
    )
    assert table_constraints(metadata) == (
        NotNull(path=("x",)),
        Check(name="c", expression="x < 9"),
        Check(name="", expression="x > 3"),
    )
