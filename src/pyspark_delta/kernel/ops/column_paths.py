"""Columns at any depth of a schema, by their paths: found, and the schema changed there.

A path goes through structs by names, which compare ignoring case, and through arrays and maps by
`element`, `key` and `value`.

>>> from pyspark_delta.kernel.protocol.types import LONG
>>> schema = StructType((StructField("a", ArrayType(StructType((StructField("X", LONG),)))),))
>>> find_column(schema, ("A", "element", "x")).path
('a', 'element', 'X')
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark_delta.errors.table import SchemaError
from pyspark_delta.kernel.protocol.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    column_name,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundColumn:
    """A column as the schema spells it.

    `is_field` is false for the element of an array and for the key or value of a map: those are
    no fields, and `field` only carries their type and whether they may be null.
    """

    path: tuple[str, ...]
    field: StructField
    is_field: bool = True

    @property
    def parent(self) -> tuple[str, ...]:
        """The path of what the column stands in; empty for the table itself."""
        return self.path[:-1]


def find_column(schema: StructType, path: Sequence[str]) -> FoundColumn:
    """The column at a path; SchemaError when there is none."""
    here: DataType = schema
    found: FoundColumn | None = None
    for step in path:
        spelled = () if found is None else found.path
        f = _step(here, step)
        if f is None:
            raise _not_found(here, spelled, step)
        is_field = isinstance(here, StructType)
        found = FoundColumn(path=(*spelled, f.name), field=f, is_field=is_field)
        here = f.data_type
    assert found is not None, "a path has a step at least"
    return found


def find_struct(
    schema: StructType, path: Sequence[str], field: str = "field"
) -> tuple[tuple[str, ...], StructType]:
    """The struct at a path, the whole table for an empty one, and the path as the schema has it.

    `field` is what is looked for in it, for the error when it is no struct.
    """
    if not path:
        return (), schema
    found = find_column(schema, path)
    if not isinstance(found.field.data_type, StructType):
        raise no_struct(found.path, field)
    return found.path, found.field.data_type


def position_of(struct: StructType, name: str) -> int | None:
    """Where in a struct the field of that name is; None when there is none."""
    for index, f in enumerate(struct):
        if f.name.lower() == name.lower():
            return index
    return None


def change_inside(
    schema: StructType, path: Sequence[str], change: Callable[[DataType], DataType]
) -> StructType:
    """`schema` with the type at a path changed; the path is one that `find_column` gave."""
    changed = _changed(schema, tuple(path), change)
    assert isinstance(changed, StructType)
    return changed


def _step(data_type: DataType, name: str) -> StructField | None:
    match data_type:
        case StructType():
            return data_type.get(name)
        case ArrayType() if name == "element":
            return StructField(name, data_type.element_type, data_type.contains_null)
        case MapType() if name == "key":
            return StructField(name, data_type.key_type, nullable=False)
        case MapType() if name == "value":
            return StructField(name, data_type.value_type, data_type.value_contains_null)
        case _:
            return None


def _changed(
    data_type: DataType, path: tuple[str, ...], change: Callable[[DataType], DataType]
) -> DataType:
    if not path:
        return change(data_type)
    step, rest = path[0], path[1:]
    match data_type:
        case StructType(fields=fields):
            return StructType(
                tuple(
                    f.with_type(_changed(f.data_type, rest, change)) if f.name == step else f
                    for f in fields
                )
            )
        case ArrayType(element_type=element, contains_null=contains_null):
            return ArrayType(_changed(element, rest, change), contains_null)
        case MapType(key_type=key, value_type=value, value_contains_null=contains_null):
            if step == "key":
                return MapType(_changed(key, rest, change), value, contains_null)
            return MapType(key, _changed(value, rest, change), contains_null)
        case _:
            raise AssertionError(f"{data_type} has nothing inside")


def no_struct(path: Sequence[str], field: str) -> SchemaError:
    """What to raise where a field is looked for in something that has none."""
    return SchemaError(
        "INVALID_FIELD_NAME", fieldName=column_name((*path, field)), path=column_name(path)
    )


def _not_found(here: DataType, path: tuple[str, ...], step: str) -> SchemaError:
    if not isinstance(here, StructType):
        return no_struct(path, step)
    return unresolved(here, (*path, step))


def unresolved(struct: StructType, path: Sequence[str]) -> SchemaError:
    """What to raise for a path whose last step `struct` does not have."""
    return SchemaError(
        "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        objectName=column_name(path),
        proposal=", ".join(struct.names),
    )
