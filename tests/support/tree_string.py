"""Print a schema as Spark's `printTreeString` does."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark_delta.kernel.protocol.types import (
    ArrayType,
    DataType,
    MapType,
    StructType,
    type_name,
)


def tree_string(schema: StructType) -> str:
    """The schema as Spark's `printTreeString` prints it."""
    return "".join(f"{line}\n" for line in ("root", *_struct_lines(schema, " |")))


def _struct_lines(struct: StructType, prefix: str) -> Iterator[str]:
    for f in struct:
        yield f"{prefix}-- {f.name}: {type_name(f.data_type)}{_flag('nullable', f.nullable)}"
        yield from _nested_lines(f.data_type, f"{prefix}    |")


def _nested_lines(data_type: DataType, prefix: str) -> Iterator[str]:
    match data_type:
        case StructType():
            yield from _struct_lines(data_type, prefix)
        case ArrayType(element, contains_null):
            yield f"{prefix}-- element: {type_name(element)}{_flag('containsNull', contains_null)}"
            yield from _nested_lines(element, f"{prefix}    |")
        case MapType(key, value, contains_null):
            yield f"{prefix}-- key: {type_name(key)}"
            yield from _nested_lines(key, f"{prefix}    |")
            yield f"{prefix}-- value: {type_name(value)}{_flag('valueContainsNull', contains_null)}"
            yield from _nested_lines(value, f"{prefix}    |")


def _flag(name: str, value: bool) -> str:
    return f" ({name} = {str(value).lower()})"
