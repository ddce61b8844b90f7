from __future__ import annotations

import pytest

from pyspark_delta.errors import OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.protocol.column_defaults import (
    DEFAULTS_FEATURE,
    check_added_columns,
    check_defaults,
    current_default,
    default_columns,
    with_default,
    without_exists_defaults,
)
from pyspark_delta.kernel.protocol.types import LONG, VARIANT, StructField, StructType

X = StructField("x", LONG)


def test_a_default_is_set_and_taken_away() -> None:
    field = with_default(X, "1 + 1")
    assert current_default(field) == "1 + 1"
    assert default_columns(StructType((X, field.with_name("y")))) == (field.with_name("y"),)
    assert with_default(field, None) == X


def test_the_value_for_older_rows_is_never_stored() -> None:
    field = X.with_metadata_items({"CURRENT_DEFAULT": "1", "EXISTS_DEFAULT": "1"})
    stored = StructType((with_default(X, "1"),))
    assert without_exists_defaults(StructType((field,))) == stored
    assert with_default(field, "2").metadata == {"CURRENT_DEFAULT": "2"}


def test_a_default_needs_its_feature() -> None:
    schema = StructType((with_default(X, "1"),))
    check_defaults(schema, {DEFAULTS_FEATURE}, command="CREATE TABLE")
    check_defaults(StructType((X,)), (), command="CREATE TABLE")
    with pytest.raises(OperationNotAllowedError) as caught:
        check_defaults(schema, {"appendOnly"}, command="CREATE TABLE")
    assert caught.value.condition == "WRONG_COLUMN_DEFAULTS_FOR_DELTA_FEATURE_NOT_ENABLED"
    assert caught.value.parameters == {"commandType": "CREATE TABLE"}


def test_an_added_column_brings_no_default() -> None:
    check_added_columns([X])
    with pytest.raises(OperationNotAllowedError) as caught:
        check_added_columns([X, with_default(X, "1")])
    assert caught.value.condition == (
        "WRONG_COLUMN_DEFAULTS_FOR_DELTA_ALTER_TABLE_ADD_COLUMN_NOT_SUPPORTED"
    )


def test_a_variant_defaults_to_null_alone() -> None:
    variant = StructField("v", VARIANT)
    check_defaults(StructType((with_default(variant, " NULL "),)), {DEFAULTS_FEATURE}, command="x")
    with pytest.raises(SchemaError) as caught:
        with_default(variant, "parse_json('1')")
    assert caught.value.condition == "DELTA_INVALID_COLUMN_DEFAULT"
