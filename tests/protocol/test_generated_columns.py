from __future__ import annotations

import pytest

from pyspark_delta.errors import SchemaError
from pyspark_delta.kernel.protocol.column_defaults import with_default
from pyspark_delta.kernel.protocol.generated_columns import (
    check_generation,
    generated_columns,
    generation_expression,
    with_generation_expression,
)
from pyspark_delta.kernel.protocol.identity_columns import with_identity
from pyspark_delta.kernel.protocol.types import LONG, StructField, StructType

X = StructField("x", LONG)
Y = with_generation_expression(StructField("y", LONG), "x + 1")


def test_a_generated_column_is_one_with_an_expression() -> None:
    schema = StructType((X, Y))
    assert generated_columns(schema) == (Y,)
    assert generation_expression(Y) == "x + 1"
    assert generation_expression(X) is None
    check_generation(schema)


def test_a_generated_column_can_become_plain_again() -> None:
    assert with_generation_expression(Y, None) == StructField("y", LONG)


def test_an_identity_column_cannot_be_generated() -> None:
    identity = with_identity(X)
    with pytest.raises(SchemaError) as caught:
        with_generation_expression(identity, "1")
    assert caught.value.condition == "DELTA_IDENTITY_COLUMNS_WITH_GENERATED_EXPRESSION"
    both = identity.with_metadata_items({"delta.generationExpression": "1"})
    with pytest.raises(SchemaError):
        check_generation(StructType((both,)))


def test_a_generated_column_has_no_default() -> None:
    with pytest.raises(SchemaError) as caught:
        check_generation(StructType((X, with_default(Y, "0"))))
    assert caught.value.condition == "DELTA_INVALID_COLUMN_DEFAULT"


@pytest.mark.parametrize("expression", ["", "  ", 7])
def test_a_generated_column_needs_an_expression(expression: object) -> None:
    broken = X.with_metadata_items({"delta.generationExpression": expression})
    with pytest.raises(SchemaError) as caught:
        check_generation(StructType((broken,)))
    assert caught.value.condition == "DELTA_EXPRESSIONS_NOT_FOUND_IN_GENERATED_COLUMN"
