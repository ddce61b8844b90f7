"""Type widening: the type changes that keep old files readable, and their record in a schema.

A change is recorded on the struct field it happened in, under `delta.typeChanges`; a change inside
an array or map of that field also has a `fieldPath` of `element`, `key` and `value`.  The caller
checks whether the feature is enabled.  PROTOCOL.md, "Type Widening".

>>> can_widen(INTEGER, LONG), can_widen(LONG, INTEGER), can_widen(INTEGER, DecimalType(12, 2))
(True, False, True)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from pyspark_delta.errors import SchemaError
from pyspark_delta.kernel.protocol.schema_json import parse_type
from pyspark_delta.kernel.protocol.types import (
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    column_name,
    inner_types,
    is_atomic,
    map_fields,
    type_name,
    walk_fields,
)

TYPE_CHANGES_KEY = "delta.typeChanges"

# From a type to the types of its family with all its values: a write may widen to these.
_SAME_FAMILY: Mapping[DataType, tuple[DataType, ...]] = {
    BYTE: (SHORT, INTEGER, LONG),
    SHORT: (INTEGER, LONG),
    INTEGER: (LONG,),
    FLOAT: (DOUBLE,),
    DATE: (TIMESTAMP_NTZ,),
}
# From a type to one of another family: only by an explicit statement or setting.
_OTHER_FAMILY: Mapping[DataType, DataType] = {BYTE: DOUBLE, SHORT: DOUBLE, INTEGER: DOUBLE}
# Digits before the point that a decimal needs to take every value of an integer type.
_INTEGER_DIGITS: Mapping[DataType, int] = {BYTE: 10, SHORT: 10, INTEGER: 10, LONG: 20}
_PATH_STEPS = frozenset(("element", "key", "value"))


def can_widen(from_type: DataType, to_type: DataType, *, iceberg: bool = False) -> bool:
    """Whether files of `from_type` can be read as `to_type`; with `iceberg`, by Iceberg too."""
    if from_type == to_type:
        return True
    if iceberg:
        return _iceberg_can_widen(from_type, to_type)
    return (
        _is_same_family(from_type, to_type)
        or to_type == _OTHER_FAMILY.get(from_type)
        or _fits_decimal(from_type, to_type)
    )


class TypeWideningMode(Enum):
    """The type changes that a merge of schemas may make automatically."""

    NEVER = "never"
    SAME_FAMILY = "same family"
    """Integers to wider integers, float to double, decimals to wider ones, date to timestamp."""
    ALWAYS = "always"
    """Every change that the feature allows, from the first type to the second."""
    COMMON = "common"
    """As ALWAYS, in either direction, and two decimals to one that holds both."""

    def widened(
        self, current: DataType, update: DataType, *, iceberg: bool = False
    ) -> DataType | None:
        """The type of a `current` column that accepts values of `update`; None if not allowed."""
        match self:
            case TypeWideningMode.NEVER:
                return None
            case TypeWideningMode.SAME_FAMILY:
                ok = _is_same_family(current, update) or current == update
                return update if ok and can_widen(current, update, iceberg=iceberg) else None
            case TypeWideningMode.ALWAYS:
                return update if can_widen(current, update, iceberg=iceberg) else None
            case TypeWideningMode.COMMON:
                return _common_type(current, update, iceberg=iceberg)


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeChange:
    """One recorded change; `field_path` leads into arrays and maps of the field that has it."""

    from_type: DataType
    to_type: DataType
    field_path: tuple[str, ...] = ()
    table_version: int | None = None  # written by the preview of the feature only

    def to_metadata(self) -> dict[str, Any]:
        """The change as an entry of `delta.typeChanges`."""
        entry: dict[str, Any] = {}
        if self.table_version is not None:
            entry["tableVersion"] = self.table_version
        entry["fromType"] = type_name(self.from_type)
        entry["toType"] = type_name(self.to_type)
        if self.field_path:
            entry["fieldPath"] = ".".join(self.field_path)
        return entry


def type_changes(f: StructField) -> tuple[TypeChange, ...]:
    """The changes recorded on a field, oldest first."""
    entries = f.metadata.get(TYPE_CHANGES_KEY)
    if entries is None:
        return ()
    if not isinstance(entries, list):
        raise _malformed(f, "they are not a list")
    return tuple(_parse_change(f, entry) for entry in entries)


def with_type_changes(f: StructField, changes: Sequence[TypeChange]) -> StructField:
    """The field with `changes` appended to its recorded ones."""
    if not changes:
        return f
    recorded = [change.to_metadata() for change in (*type_changes(f), *changes)]
    return f.with_metadata_items({TYPE_CHANGES_KEY: recorded})


def all_type_changes(schema: StructType) -> Iterator[tuple[tuple[str, ...], TypeChange]]:
    """Every recorded change with the path of the changed type, collections included."""
    for path, f in walk_fields(schema):
        for change in type_changes(f):
            yield (*path, *change.field_path), change


def check_type_changes(schema: StructType) -> None:
    """Raise SchemaError for a recorded change that is not a supported widening."""
    for path, change in all_type_changes(schema):
        if not can_widen(change.from_type, change.to_type):
            raise SchemaError(
                "DELTA_UNSUPPORTED_TYPE_CHANGE_IN_SCHEMA",
                fieldName=column_name(path),
                fromType=change.from_type.simple_string.upper(),
                toType=change.to_type.simple_string.upper(),
            )


def record_type_changes(
    old_schema: StructType, new_schema: StructType, *, table_version: int | None = None
) -> StructType:
    """`new_schema` with its changes since `old_schema` recorded where they happened.

    `table_version` is for tables of the preview, whose readers look for it.
    """

    def record(old: DataType | None, new: DataType) -> DataType:
        before = dict(inner_types(old)) if type(old) is type(new) and old is not None else {}
        match new:
            case StructType(fields):
                known = old if isinstance(old, StructType) else StructType()
                return StructType(tuple(record_field(known.get(f.name), f) for f in fields))
            case ArrayType(element, contains_null):
                return ArrayType(record(before.get("element"), element), contains_null)
            case MapType(key, value, contains_null):
                return MapType(
                    record(before.get("key"), key),
                    record(before.get("value"), value),
                    contains_null,
                )
            case _:
                return new

    def record_field(old: StructField | None, new: StructField) -> StructField:
        if old is None:
            return new
        changes = [
            replace(change, table_version=table_version)
            for change in _changes(old.data_type, new.data_type, ())
        ]
        inside = record(old.data_type, new.data_type)
        return with_type_changes(new.with_type(inside), changes)

    recorded = record(old_schema, new_schema)
    assert isinstance(recorded, StructType)
    return recorded


def without_type_changes(schema: StructType) -> StructType:
    """The schema without recorded changes, as after dropping the feature."""
    return map_fields(schema, lambda f: f.with_metadata_items({TYPE_CHANGES_KEY: None}))


def rebase_type_changes(schema: StructType, *, from_version: int, to_version: int) -> StructType:
    """The schema with changes of `from_version` moved to another version, for a rebased commit."""

    def restamp(f: StructField) -> StructField:
        changes = type_changes(f)
        if not any(change.table_version == from_version for change in changes):
            return f
        moved = [
            replace(change, table_version=to_version).to_metadata()
            if change.table_version == from_version
            else change.to_metadata()
            for change in changes
        ]
        return f.with_metadata_items({TYPE_CHANGES_KEY: moved})

    return map_fields(schema, restamp)


def _changes(old: DataType, new: DataType, field_path: tuple[str, ...]) -> Iterator[TypeChange]:
    """Changes inside one field; those inside a struct belong to the struct's own fields."""
    match old, new:
        case (ArrayType(), ArrayType()) | (MapType(), MapType()):
            for (step, one), (_, other) in zip(inner_types(old), inner_types(new), strict=True):
                yield from _changes(one, other, (*field_path, step))
        case _ if is_atomic(old) and is_atomic(new) and old != new and can_widen(old, new):
            yield TypeChange(from_type=old, to_type=new, field_path=field_path)


def _is_same_family(from_type: DataType, to_type: DataType) -> bool:
    if isinstance(from_type, DecimalType) and isinstance(to_type, DecimalType):
        more_digits = to_type.precision - from_type.precision
        more_scale = to_type.scale - from_type.scale
        return more_digits >= more_scale >= 0
    return to_type in _SAME_FAMILY.get(from_type, ())


def _fits_decimal(from_type: DataType, to_type: DataType) -> bool:
    digits = _INTEGER_DIGITS.get(from_type)
    return (
        digits is not None
        and isinstance(to_type, DecimalType)
        and to_type.precision - to_type.scale >= digits
    )


def _iceberg_can_widen(from_type: DataType, to_type: DataType) -> bool:
    if isinstance(from_type, DecimalType) and isinstance(to_type, DecimalType):
        return from_type.scale == to_type.scale and from_type.precision <= to_type.precision
    return from_type != DATE and to_type in _SAME_FAMILY.get(from_type, ())


def _common_type(left: DataType, right: DataType, *, iceberg: bool) -> DataType | None:
    if can_widen(left, right, iceberg=iceberg):
        return right
    if can_widen(right, left, iceberg=iceberg):
        return left
    if isinstance(left, DecimalType) and isinstance(right, DecimalType):
        scale = max(left.scale, right.scale)
        digits = max(left.precision - left.scale, right.precision - right.scale)
        if digits + scale <= 38:
            wider = DecimalType(digits + scale, scale)
            if all(can_widen(one, wider, iceberg=iceberg) for one in (left, right)):
                return wider
    return None


def _parse_change(f: StructField, entry: Any) -> TypeChange:
    if not isinstance(entry, dict):
        raise _malformed(f, "an entry is not an object")
    names = entry.get("fromType"), entry.get("toType")
    if not all(isinstance(name, str) for name in names):
        raise _malformed(f, "an entry lacks fromType or toType")
    path_text = entry.get("fieldPath")
    path = tuple(path_text.split(".")) if isinstance(path_text, str) and path_text else ()
    if not _PATH_STEPS.issuperset(path):
        raise _malformed(f, f"there is no field path {path_text}")
    version = entry.get("tableVersion")
    try:
        from_type, to_type = (parse_type(name) for name in names)
    except SchemaError:
        raise SchemaError(
            "DELTA_UNSUPPORTED_TYPE_CHANGE_IN_SCHEMA",
            fieldName=column_name((f.name, *path)),
            fromType=names[0],
            toType=names[1],
        ) from None
    return TypeChange(
        from_type=from_type,
        to_type=to_type,
        field_path=path,
        table_version=version if isinstance(version, int) else None,
    )


def _malformed(f: StructField, reason: str) -> SchemaError:
    return SchemaError("DELTA_INVALID_TYPE_CHANGES_METADATA", fieldName=f.name, reason=reason)
