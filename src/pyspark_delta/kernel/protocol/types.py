"""Data types, fields and structs: the vocabulary of a table's schema.

Types are immutable values; `schema_json` has their JSON form.  Names compare ignoring case, as in
Spark, and keep their case.  PROTOCOL.md, "Schema Serialization Format".

>>> StructType((StructField("id", LONG, nullable=False),)).simple_string
'struct<id:bigint>'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, overload


class DataType:
    """A column's type.  Closed family: primitive, decimal, array, map, struct."""

    __slots__ = ()

    @property
    def simple_string(self) -> str:
        """The type in Spark's SQL."""
        raise TypeError(f"{type(self).__name__} has no SQL spelling")

    def __str__(self) -> str:
        return self.simple_string


# JSON name -> SQL name.
PRIMITIVES: Mapping[str, str] = {
    "string": "string",
    "long": "bigint",
    "integer": "int",
    "short": "smallint",
    "byte": "tinyint",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "void": "void",
    "variant": "variant",
}


@dataclass(frozen=True, slots=True)
class PrimitiveType(DataType):
    """A type without parameters; `name` is its JSON name."""

    name: str

    @property
    def simple_string(self) -> str:
        return PRIMITIVES.get(self.name, self.name)


STRING = PrimitiveType("string")
LONG = PrimitiveType("long")
INTEGER = PrimitiveType("integer")
SHORT = PrimitiveType("short")
BYTE = PrimitiveType("byte")
FLOAT = PrimitiveType("float")
DOUBLE = PrimitiveType("double")
BOOLEAN = PrimitiveType("boolean")
BINARY = PrimitiveType("binary")
DATE = PrimitiveType("date")
TIMESTAMP = PrimitiveType("timestamp")
TIMESTAMP_NTZ = PrimitiveType("timestamp_ntz")
VOID = PrimitiveType("void")
VARIANT = PrimitiveType("variant")
INTEGER_TYPES = (BYTE, SHORT, INTEGER, LONG)
NUMBER_TYPES = frozenset((*INTEGER_TYPES, FLOAT, DOUBLE))
"""Numbers of a fixed width: decimals are not among them."""

DATETIME_TYPES = frozenset((DATE, TIMESTAMP, TIMESTAMP_NTZ))

CHAR_VARCHAR_KEY = "__CHAR_VARCHAR_TYPE_STRING"
"""Spark's key in a field's metadata for the CHAR(n) or VARCHAR(n) type of a string."""


@dataclass(frozen=True, slots=True)
class DecimalType(DataType):
    """A decimal of `precision` digits, `scale` of them after the decimal point."""

    precision: int
    scale: int

    def __post_init__(self) -> None:
        if not (1 <= self.precision <= 38 and 0 <= self.scale <= self.precision):
            raise ValueError(f"decimal({self.precision},{self.scale}) is not a decimal type")

    @property
    def simple_string(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True)
class ArrayType(DataType):
    """A list of one element type."""

    element_type: DataType
    contains_null: bool = True

    @property
    def simple_string(self) -> str:
        return f"array<{self.element_type.simple_string}>"


@dataclass(frozen=True, slots=True)
class MapType(DataType):
    """A map from one type to another; keys are never null."""

    key_type: DataType
    value_type: DataType
    value_contains_null: bool = True

    @property
    def simple_string(self) -> str:
        return f"map<{self.key_type.simple_string},{self.value_type.simple_string}>"


@dataclass(frozen=True, slots=True)
class StructField:
    """A named, typed field of a struct, with the metadata that features keep in it."""

    name: str
    data_type: DataType
    nullable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def with_metadata_items(self, changes: Mapping[str, Any]) -> StructField:
        """The same field with `changes` merged into its metadata; None removes a key."""
        merged = {**self.metadata, **changes}
        kept = {key: merged[key] for key in merged if changes.get(key, "") is not None}
        return StructField(self.name, self.data_type, self.nullable, kept)

    def with_type(self, data_type: DataType) -> StructField:
        return StructField(self.name, data_type, self.nullable, self.metadata)

    def with_name(self, name: str) -> StructField:
        return StructField(name, self.data_type, self.nullable, self.metadata)

    def with_nullable(self, nullable: bool) -> StructField:
        return StructField(self.name, self.data_type, nullable, self.metadata)

    @property
    def comment(self) -> str | None:
        comment = self.metadata.get("comment")
        return comment if isinstance(comment, str) else None


@dataclass(frozen=True)
class StructType(DataType):
    """An ordered set of fields."""

    fields: tuple[StructField, ...] = ()

    @property
    def simple_string(self) -> str:
        inner = ",".join(f"{f.name}:{f.data_type.simple_string}" for f in self.fields)
        return f"struct<{inner}>"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    @cached_property
    def _by_lower_name(self) -> dict[str, StructField]:
        return {f.name.lower(): f for f in reversed(self.fields)}

    def get(self, name: str) -> StructField | None:
        """The field called `name`, ignoring case; None when there is none."""
        return self._by_lower_name.get(name.lower())

    def __getitem__(self, name: str) -> StructField:
        f = self.get(name)
        if f is None:
            raise KeyError(name)
        return f

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._by_lower_name

    def __iter__(self) -> Iterator[StructField]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def add(self, *fields: StructField) -> StructType:
        """This struct followed by `fields`."""
        return StructType(self.fields + fields)

    def find(self, path: tuple[str, ...]) -> StructField | None:
        """The field at a path of struct names, ignoring case; None when there is none."""
        struct: DataType = self
        f: StructField | None = None
        for name in path:
            f = struct.get(name) if isinstance(struct, StructType) else None
            if f is None:
                return None
            struct = f.data_type
        return f


def column_name(path: Sequence[str]) -> str:
    """A path as one name, as in Spark's messages: parts with a dot are in backquotes.

    >>> column_name(("a", "b.c"))
    'a.`b.c`'
    """
    return ".".join(f"`{part}`" if "." in part else part for part in path)


def type_name(data_type: DataType) -> str:
    """The name a type has in field metadata and in messages: `long`, `decimal(10,2)`, `struct`."""
    match data_type:
        case StructType():
            return "struct"
        case ArrayType():
            return "array"
        case MapType():
            return "map"
        case PrimitiveType(name=name):
            return name
        case _:
            return data_type.simple_string


def is_atomic(data_type: DataType) -> bool:
    """Whether the type has no nested types."""
    return isinstance(data_type, PrimitiveType | DecimalType)


def inner_types(data_type: DataType) -> Sequence[tuple[str, DataType]]:
    """The types that `data_type` is made of, each with the step of a path that leads to it.

    Steps into collections are spelled `element`, `key` and `value`, as the protocol does.
    """
    if isinstance(data_type, StructType):
        return [(f.name, f.data_type) for f in data_type.fields]
    if isinstance(data_type, ArrayType):
        return (("element", data_type.element_type),)
    if isinstance(data_type, MapType):
        return (("key", data_type.key_type), ("value", data_type.value_type))
    return ()


@overload
def map_fields(
    data_type: StructType, change: Callable[[StructField], StructField]
) -> StructType: ...
@overload
def map_fields(data_type: DataType, change: Callable[[StructField], StructField]) -> DataType: ...
def map_fields(data_type: DataType, change: Callable[[StructField], StructField]) -> DataType:
    """`data_type` with `change` applied to every struct field inside it, outermost first."""
    match data_type:
        case StructType(fields):
            changed = map(change, fields)
            return StructType(tuple(f.with_type(map_fields(f.data_type, change)) for f in changed))
        case ArrayType(element, contains_null):
            return ArrayType(map_fields(element, change), contains_null)
        case MapType(key, value, contains_null):
            return MapType(map_fields(key, change), map_fields(value, change), contains_null)
        case _:
            return data_type


def walk_types(
    data_type: DataType, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], DataType]]:
    """`data_type` and every type inside it with its path, outermost first."""
    yield path, data_type
    for step, inner in inner_types(data_type):
        if is_atomic(inner):  # most types are: no generator for each
            yield (*path, step), inner
        else:
            yield from walk_types(inner, (*path, step))


def walk_fields(
    data_type: DataType, path: tuple[str, ...] = (), *, structs_only: bool = False
) -> Iterator[tuple[tuple[str, ...], StructField]]:
    """Every struct field below `data_type` with its path, outermost first.

    With `structs_only`, those that are reached without going through an array or a map.
    """
    if isinstance(data_type, StructType):
        for f in data_type:
            here = (*path, f.name)
            yield here, f
            yield from walk_fields(f.data_type, here, structs_only=structs_only)
    elif not structs_only:
        for step, inner in inner_types(data_type):
            yield from walk_fields(inner, (*path, step))
