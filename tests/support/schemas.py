"""Schemas for tests: a short way to write one, and hypothesis strategies for any."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from pyspark_delta.kernel.protocol.types import (
    PRIMITIVES,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=8)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


def struct(**columns: DataType) -> StructType:
    """A struct of nullable fields, in the order given."""
    return StructType(tuple(StructField(name, kind) for name, kind in columns.items()))


def field(name: str, kind: DataType, nullable: bool = True, **metadata: Any) -> StructField:
    """A field; double underscores in metadata keys stand for dots."""
    return StructField(
        name, kind, nullable, {key.replace("__", "."): item for key, item in metadata.items()}
    )


def decimals() -> st.SearchStrategy[DecimalType]:
    """Any decimal type."""
    return st.integers(1, 38).flatmap(
        lambda precision: st.integers(0, precision).map(lambda s: DecimalType(precision, s))
    )


def data_types() -> st.SearchStrategy[DataType]:
    """Any type, nested a little."""
    leaves = st.sampled_from([PrimitiveType(name) for name in PRIMITIVES]) | decimals()
    return st.recursive(
        leaves,
        lambda inner: (
            st.builds(ArrayType, inner, st.booleans())
            | st.builds(MapType, inner, inner, st.booleans())
            | schemas(inner)
        ),
        max_leaves=6,
    )


def schemas(kinds: st.SearchStrategy[DataType] | None = None) -> st.SearchStrategy[StructType]:
    """Any struct whose names differ in more than case."""
    fields = st.builds(
        StructField,
        NAMES,
        kinds if kinds is not None else data_types(),
        st.booleans(),
        st.dictionaries(NAMES, JSON_VALUES, max_size=2),
    )
    return st.lists(fields, max_size=4, unique_by=lambda f: f.name.lower()).map(
        lambda found: StructType(tuple(found))
    )
