"""Merge and compare schemas: evolution, enforcement, and read compatibility.

The table's schema has priority: its names keep their case, its order and nullability stay, new
fields follow the old ones.  Names compare ignoring case.  `schema_checks` checks single schemas.

>>> merge_schemas(
...     StructType((StructField("Id", types.INTEGER),)),
...     StructType((StructField("id", types.SHORT), StructField("v", types.STRING))),
... ).simple_string
'struct<Id:int,v:string>'
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from pyspark_delta.errors import SchemaError
from pyspark_delta.kernel.protocol import types
from pyspark_delta.kernel.protocol.type_widening import TypeWideningMode
from pyspark_delta.kernel.protocol.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    column_name,
    inner_types,
    is_atomic,
    walk_types,
)

# Parquet stores these three as one type, so a column of one can take values of the others.
_ONE_PARQUET_TYPE = (types.BYTE, types.SHORT, types.INTEGER)
# The write computes a column with one of these keys if the data does not have it.
_COMPUTED_KEYS = ("delta.generationExpression", "delta.identity.start", "CURRENT_DEFAULT")


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRules:
    """The changes that a merge may make beyond adding columns.

    `implicit_conversions` keeps the table's type where Spark casts the data to it implicitly;
    `keep_existing_type` keeps it always; `widening` and `iceberg` decide which types may widen.
    """

    implicit_conversions: bool = False
    keep_existing_type: bool = False
    widening: TypeWideningMode = TypeWideningMode.NEVER
    iceberg: bool = False


STRICT = MergeRules()


def merge_schemas(
    table_schema: StructType, data_schema: StructType, rules: MergeRules = STRICT
) -> StructType:
    """The table's schema with the data's new columns; SchemaError when they are incompatible."""
    check_no_duplicates(data_schema)
    merged = _merge(table_schema, data_schema, rules)
    assert isinstance(merged, StructType)
    return merged


def evolve_schema(
    table_schema: StructType, data_schema: StructType, rules: MergeRules = STRICT
) -> StructType:
    """As `merge_schemas`, with new columns nullable: existing files do not have them."""
    return merge_schemas(table_schema, as_nullable(data_schema), rules)


def check_write_compatible(
    table_schema: StructType,
    data_schema: StructType,
    *,
    table_id: str = "",
    table_partitions: Sequence[str] = (),
    data_partitions: Sequence[str] = (),
    rules: MergeRules = STRICT,
) -> None:
    """Raise SchemaError unless the data can be written without changing the table.

    Data may lack nullable columns; it may not have new ones, nor types that a merge would have to
    change.  Partition columns, when the writer names them, must be those of the table.
    """
    if evolve_schema(table_schema, data_schema, rules) != table_schema:
        raise SchemaError(
            "DELTA_METADATA_MISMATCH.SCHEMA_MISMATCH",
            id=table_id,
            tableSchema=table_schema.simple_string,
            dataSchema=data_schema.simple_string,
        )
    original = [name.lower() for name in table_partitions]
    if data_partitions and [name.lower() for name in data_partitions] != original:
        raise SchemaError(
            "DELTA_METADATA_MISMATCH.PARTITIONING_MISMATCH",
            provided=", ".join(data_partitions),
            original=", ".join(table_partitions),
        )
    for path in missing_not_null_columns(table_schema, data_schema):
        raise SchemaError("DELTA_MISSING_NOT_NULL_COLUMN_VALUE", columnName=column_name(path))


def missing_not_null_columns(
    table_schema: StructType, data_schema: StructType
) -> Iterator[tuple[str, ...]]:
    """Paths of NOT NULL fields that the data lacks and the write does not compute."""
    for f in table_schema:
        data_field = data_schema.get(f.name)
        if data_field is None:
            if not f.nullable and not any(key in f.metadata for key in _COMPUTED_KEYS):
                yield (f.name,)
        elif isinstance(f.data_type, StructType) and isinstance(data_field.data_type, StructType):
            for path in missing_not_null_columns(f.data_type, data_field.data_type):
                yield (f.name, *path)


def is_read_compatible(
    existing: StructType,
    read: StructType,
    *,
    forbid_tighter_nullability: bool = False,
    allow_missing_columns: bool = False,
    widening: TypeWideningMode = TypeWideningMode.NEVER,
) -> bool:
    """Whether a reader that expects `existing` can read rows of schema `read`.

    New columns are compatible; lost ones (unless allowed), other types and other spellings of a
    name are not.  By default a column may not become nullable, because the reader does not expect
    nulls; with `forbid_tighter_nullability` it may not become NOT NULL, because the rows may hold
    nulls.
    """

    def nulls_agree(before: bool, after: bool) -> bool:
        return after or not before if forbid_tighter_nullability else before or not after

    def types_agree(before: DataType, after: DataType) -> bool:
        match before, after:
            case StructType(), StructType():
                return structs_agree(before, after)
            case ArrayType(), ArrayType():
                nulls = nulls_agree(before.contains_null, after.contains_null)
            case MapType(), MapType():
                nulls = nulls_agree(before.value_contains_null, after.value_contains_null)
            case _:
                return before == after or widening.widened(before, after) == after
        pairs = zip(inner_types(before), inner_types(after), strict=True)
        return nulls and all(types_agree(one, other) for (_, one), (_, other) in pairs)

    def structs_agree(before: StructType, after: StructType) -> bool:
        if not allow_missing_columns and any(f.name not in after for f in before):
            return False
        pairs = ((before.get(f.name), f) for f in after)
        return all(
            old is None
            or (
                old.name == new.name
                and nulls_agree(old.nullable, new.nullable)
                and types_agree(old.data_type, new.data_type)
            )
            for old, new in pairs
        )

    return structs_agree(existing, read)


@overload
def as_nullable(data_type: StructType) -> StructType: ...
@overload
def as_nullable(data_type: DataType) -> DataType: ...
def as_nullable(data_type: DataType) -> DataType:
    """The type with every field, element and map value inside it nullable."""
    match data_type:
        case StructType(fields):
            nullable = (f.with_type(as_nullable(f.data_type)).with_nullable(True) for f in fields)
            return StructType(tuple(nullable))
        case ArrayType(element):
            return ArrayType(as_nullable(element), True)
        case MapType(key, value):
            return MapType(as_nullable(key), as_nullable(value), True)
        case _:
            return data_type


def check_no_duplicates(
    schema: StructType, condition: str = "DELTA_DUPLICATE_COLUMNS_FOUND.DATA"
) -> None:
    """Raise SchemaError(condition) when two names of one struct are equal ignoring case."""
    duplicates = sorted(set(_duplicates(schema)))
    if duplicates:
        raise SchemaError(condition, duplicateCols=", ".join(duplicates))


def schema_differences(existing: StructType, specified: StructType) -> tuple[str, ...]:
    """The differences between two schemas, one sentence for each; empty when they are equal."""
    return tuple(_struct_differences(existing, specified, ()))


def _merge(current: DataType, update: DataType, rules: MergeRules) -> DataType:
    match current, update:
        case StructType(), StructType():
            kept = tuple(_merge_field(f, update.get(f.name), rules) for f in current)
            return StructType(kept + tuple(f for f in update if f.name not in current))
        case ArrayType(), ArrayType():
            element = _merge(current.element_type, update.element_type, rules)
            return ArrayType(element, current.contains_null)
        case MapType(), MapType():
            return MapType(
                _merge(current.key_type, update.key_type, rules),
                _merge(current.value_type, update.value_type, rules),
                current.value_contains_null,
            )
        case _:
            return _merge_leaves(current, update, rules)


def _merge_field(
    current: StructField, update: StructField | None, rules: MergeRules
) -> StructField:
    if update is None:
        return current
    try:
        return current.with_type(_merge(current.data_type, update.data_type, rules))
    except SchemaError as error:
        raise SchemaError(
            "DELTA_FAILED_TO_MERGE_FIELDS", currentField=current.name, updateField=update.name
        ) from error


def _merge_leaves(current: DataType, update: DataType, rules: MergeRules) -> DataType:
    if rules.keep_existing_type or current == update:
        return current
    if is_atomic(current) and is_atomic(update):
        widened = rules.widening.widened(current, update, iceberg=rules.iceberg)
        if widened is not None:
            return widened
        if rules.implicit_conversions and _casts_implicitly(update, current):
            return current
    if isinstance(current, DecimalType) and isinstance(update, DecimalType):
        raise _incompatible_decimals(current, update)
    if current in _ONE_PARQUET_TYPE and update in _ONE_PARQUET_TYPE:
        return max(current, update, key=_ONE_PARQUET_TYPE.index)
    # A void column accepts any type, and a void value fits any column.
    if current == types.VOID:
        return update
    if update == types.VOID:
        return current
    raise SchemaError(
        "DELTA_MERGE_INCOMPATIBLE_DATATYPE",
        currentDataType=current.simple_string,
        updateDataType=update.simple_string,
    )


def _casts_implicitly(source: DataType, target: DataType) -> bool:
    if types.VARIANT in (source, target) or target == types.VOID:
        return False
    if source == types.VOID or target == types.STRING:
        return True
    numeric = [t in types.NUMBER_TYPES or isinstance(t, DecimalType) for t in (source, target)]
    if source == types.STRING:
        return numeric[1] or target in types.DATETIME_TYPES or target == types.BINARY
    return all(numeric) or (source in types.DATETIME_TYPES and target in types.DATETIME_TYPES)


def _incompatible_decimals(current: DecimalType, update: DecimalType) -> SchemaError:
    parts = [
        f"{what} {one} and {other}"
        for what, one, other in (
            ("precision", current.precision, update.precision),
            ("scale", current.scale, update.scale),
        )
        if one != other
    ]
    return SchemaError("DELTA_MERGE_INCOMPATIBLE_DECIMAL_TYPE", decimalRanges=" & ".join(parts))


def _duplicates(schema: StructType) -> Iterator[str]:
    for path, struct in walk_types(schema):
        if isinstance(struct, StructType):
            seen: set[str] = set()
            for name in struct.names:
                if name.lower() in seen:
                    yield column_name((*path, name))
                seen.add(name.lower())


def _struct_differences(
    existing: StructType, specified: StructType, path: tuple[str, ...]
) -> Iterator[str]:
    for f in existing:
        if f.name not in specified:
            yield f"{column_name((*path, f.name))} is missing"
    for new in specified:
        name = column_name((*path, new.name))
        old = existing.get(new.name)
        if old is None:
            yield f"{name} is new"
            continue
        if old.nullable != new.nullable:
            yield f"{name} is {_null_word(new.nullable)}, but was {_null_word(old.nullable)}"
        if dict(old.metadata) != dict(new.metadata):
            yield f"{name} has other metadata"
        yield from _type_differences(old.data_type, new.data_type, (*path, new.name))


def _type_differences(
    existing: DataType, specified: DataType, path: tuple[str, ...]
) -> Iterator[str]:
    name = column_name(path)
    match existing, specified:
        case StructType(), StructType():
            yield from _struct_differences(existing, specified, path)
        case ArrayType(), ArrayType():
            if existing.contains_null != specified.contains_null:
                yield f"elements of {name} are {_null_word(specified.contains_null)}"
        case MapType(), MapType():
            if existing.value_contains_null != specified.value_contains_null:
                yield f"values of {name} are {_null_word(specified.value_contains_null)}"
        case _ if existing != specified:
            yield f"{name} is {specified.simple_string}, but was {existing.simple_string}"
    if type(existing) is type(specified) and not isinstance(existing, StructType):
        pairs = zip(inner_types(existing), inner_types(specified), strict=True)
        for (step, one), (_, other) in pairs:
            yield from _type_differences(one, other, (*path, step))


def _null_word(nullable: bool) -> str:
    return "nullable" if nullable else "NOT NULL"
