"""Schemas and their JSON text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_delta.errors import SchemaError
from pyspark_delta.kernel.protocol.schema_json import (
    MAX_DEPTH,
    format_schema,
    parse_schema,
    parse_type,
    type_json,
)
from pyspark_delta.kernel.protocol.types import (
    PRIMITIVES,
    STRING,
    VOID,
    ArrayType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from tests.support.schemas import JSON_VALUES, schemas

# As delta-spark writes it, metadata of every kind of value included.
SPARK_TEXT = (
    '{"type":"struct","fields":['
    '{"name":"id","type":"long","nullable":false,"metadata":{"comment":"schlüssel","n":1.5}},'
    '{"name":"d","type":"decimal(38,10)","nullable":true,"metadata":{}},'
    '{"name":"s","type":{"type":"struct","fields":['
    '{"name":"a.b","type":"timestamp_ntz","nullable":true,"metadata":{"x":{"y":[1,2]}}}]},'
    '"nullable":true,"metadata":{}},'
    '{"name":"l","type":{"type":"array","elementType":"date","containsNull":false},'
    '"nullable":true,"metadata":{}},'
    '{"name":"m","type":{"type":"map","keyType":"string","valueType":{"type":"array",'
    '"elementType":"binary","containsNull":true},"valueContainsNull":false},'
    '"nullable":true,"metadata":{}}]}'
)


def test_sparks_text_is_written_back_byte_for_byte() -> None:
    assert format_schema(parse_schema(SPARK_TEXT)) == SPARK_TEXT


@settings(max_examples=25)
@given(schemas())
def test_every_schema_reads_back(schema: StructType) -> None:
    assert parse_schema(format_schema(schema)) == schema


@settings(max_examples=25)
@given(schemas())
def test_types_read_back_as_json_values(schema: StructType) -> None:
    for f in schema:
        assert parse_type(json.loads(json.dumps(type_json(f.data_type)))) == f.data_type


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_primitive_types_go_by_their_names(name: str) -> None:
    assert parse_type(name) == PrimitiveType(name)
    assert type_json(PrimitiveType(name)) == name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int", PrimitiveType("integer")),
        ("bigint", PrimitiveType("long")),
        ("null", VOID),
        ("decimal", DecimalType(10, 0)),
        ("decimal( 5 , 2 )", DecimalType(5, 2)),
        ("string collate UTF8_LCASE", STRING),
        ("interval year to month", PrimitiveType("interval year to month")),
        ({"type": "udt", "class": "x.Y", "sqlType": "string"}, STRING),
    ],
)
def test_spellings_of_other_writers_are_understood(text: object, expected: object) -> None:
    assert parse_type(text) == expected


def test_flags_that_are_absent_mean_that_nulls_may_come() -> None:
    schema = parse_schema(
        '{"type":"struct","fields":[{"name":"l","type":{"type":"array","elementType":"long"}},'
        '{"name":"m","type":{"type":"map","keyType":"long","valueType":"long"}}]}'
    )
    long = PrimitiveType("long")
    assert schema == StructType(
        (StructField("l", ArrayType(long)), StructField("m", MapType(long, long)))
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ('"string"', "not a struct"),
        ("[]", "a name or an object"),
        ("null", "a name or an object"),
        ('{"type":"struct"}', "list of fields"),
        ('{"type":"struct","fields":[1]}', "needs a name"),
        ('{"type":"struct","fields":[{"type":"long"}]}', "needs a name"),
        ('{"type":"struct","fields":[{"name":"a"}]}', "a name or an object"),
        ('{"type":"struct","fields":[{"name":"a","type":"lung"}]}', "no type 'lung'"),
        ('{"type":"struct","fields":[{"name":"a","type":{"type":"set"}}]}', "no type 'set'"),
        ('{"type":"struct","fields":[{"name":"a","type":"decimal(50,2)"}]}', "decimal"),
        ('{"type":"struct","fields":[{"name":"a","type":"decimal(5,-2)"}]}', "decimal"),
        ('{"type":"struct","fields":[{"name":"a","type":"long","nullable":"yes"}]}', "nullable"),
        ('{"type":"struct","fields":[{"name":"a","type":"long","metadata":[1]}]}', "metadata"),
    ],
)
def test_text_that_is_no_schema_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason) as caught:
        parse_schema(text)
    assert caught.value.condition == "DELTA_INVALID_SCHEMA_JSON"


def test_names_that_differ_in_case_only_are_refused_at_any_depth() -> None:
    inner = '{"type":"struct","fields":[{"name":"a","type":"long"},{"name":"A","type":"long"}]}'
    for text in (inner, f'{{"type":"struct","fields":[{{"name":"s","type":{inner}}}]}}'):
        with pytest.raises(SchemaError) as caught:
            parse_schema(text)
        assert caught.value.condition == "DELTA_DUPLICATE_COLUMNS_FOUND"


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 500, 20_000])
def test_a_schema_nested_too_deeply_is_refused_not_followed(depth: int) -> None:
    text = '{"type":"array","elementType":' * depth + '"long"' + "}" * depth
    with pytest.raises(SchemaError, match="deeper than"):
        parse_schema(f'{{"type":"struct","fields":[{{"name":"a","type":{text}}}]}}')


@settings(max_examples=50)
@given(JSON_VALUES | st.text(max_size=30))
def test_no_value_gets_past_as_anything_but_a_schema_or_an_error(value: object) -> None:
    for text in (json.dumps(value), str(value)):
        try:
            assert isinstance(parse_schema(text), StructType)
        except SchemaError:
            continue
