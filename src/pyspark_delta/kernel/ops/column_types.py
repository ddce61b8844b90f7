"""Which other type ALTER COLUMN may give a column, CHAR and VARCHAR included.

Files are not written anew: a type may only change to one that they can be read as, which is the
table's `delta.enableTypeWidening` to allow.  CHAR(n) and VARCHAR(n) are STRING in files; what was
declared stands in the field's metadata.  PROTOCOL.md, "Type Widening".
"""

from __future__ import annotations

import re

from pyspark_delta.errors.table import SchemaError
from pyspark_delta.kernel.ops.column_paths import FoundColumn
from pyspark_delta.kernel.protocol.type_widening import can_widen
from pyspark_delta.kernel.protocol.types import (
    BYTE,
    CHAR_VARCHAR_KEY,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    column_name,
    is_atomic,
    map_fields,
)

"""Where a field's metadata has the type as it was declared, for CHAR and VARCHAR."""

_DECLARED = re.compile(r"(char|varchar)\((\d+)\)", re.IGNORECASE)
_NUMBERS = (BYTE, SHORT, INTEGER, LONG, FLOAT, DOUBLE)
_DIGITS = {BYTE: 3, SHORT: 5, INTEGER: 10, LONG: 20}
_TIMES = (TIMESTAMP, TIMESTAMP_NTZ)
_NESTED = (
    (StructType, "CANNOT_UPDATE_FIELD.STRUCT_TYPE"),
    (MapType, "CANNOT_UPDATE_FIELD.MAP_TYPE"),
    (ArrayType, "CANNOT_UPDATE_FIELD.ARRAY_TYPE"),
)


def declared_type(f: StructField) -> str | None:
    """The type that a CHAR or VARCHAR column was declared with; None for all others.

    >>> declared_type(StructField("c", STRING, metadata={CHAR_VARCHAR_KEY: "VARCHAR(5)"}))
    'varchar(5)'
    """
    text = f.metadata.get(CHAR_VARCHAR_KEY)
    return text.lower() if isinstance(text, str) else None


def with_declared(f: StructField, declared: StructField) -> StructField:
    """`f` declared as `declared` is."""
    return f.with_metadata_items({CHAR_VARCHAR_KEY: declared.metadata.get(CHAR_VARCHAR_KEY)})


def as_declared(f: StructField) -> StructField:
    """`f` with the type that a user gave it, as the history tells it."""
    declared = declared_type(f)
    if declared is None:
        return f
    return with_declared(f.with_type(PrimitiveType(declared)), StructField(f.name, STRING))


def is_same_type(one: StructField, other: StructField) -> bool:
    """Whether two fields were declared with the same type, whatever a table adds to fields."""
    if declared_type(one) != declared_type(other):
        return False
    return map_fields(one.data_type, _as_said) == map_fields(other.data_type, _as_said)


def check_type_change(column: FoundColumn, new: StructField, *, widens: bool, table: str) -> None:
    """Refuse another type that the column's files cannot be read as; nested ones change inside."""
    old = column.field
    name = column_name(column.path)
    if is_same_type(old, new):
        return
    for kind, condition in _NESTED:
        if isinstance(new.data_type, kind):
            raise SchemaError(condition, table=table, fieldName=name)
    if not is_atomic(old.data_type) or not _is_upcast(old, new):
        raise SchemaError(
            "NOT_SUPPORTED_CHANGE_COLUMN",
            table=table,
            originName=name,
            originType=_shown(old),
            newName=name,
            newType=_shown(new),
        )
    if old.data_type != new.data_type and not (widens and can_widen(old.data_type, new.data_type)):
        raise SchemaError(
            "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP",
            fieldPath=name,
            oldField=_shown(old),
            newField=_shown(new),
        )


def _as_said(f: StructField) -> StructField:
    return f.with_metadata_items({key: None for key in f.metadata if key.startswith("delta.")})


def _is_upcast(old: StructField, new: StructField) -> bool:
    """Whether Spark would read every value of the old type as one of the new, unasked."""
    before, after = declared_type(old), declared_type(new)
    if old.data_type == STRING and new.data_type == STRING:
        return after is None or _fits(before, after)
    return _is_wider(old.data_type, new.data_type)


def _fits(before: str | None, after: str) -> bool:
    old, new = _DECLARED.fullmatch(before or ""), _DECLARED.fullmatch(after)
    if old is None or new is None:
        return False
    if new[1].lower() == "char":
        return old[1].lower() == "char" and int(old[2]) == int(new[2])
    return int(old[2]) <= int(new[2])


def _is_wider(old: DataType, new: DataType) -> bool:
    if old in _NUMBERS and new in _NUMBERS:
        return _NUMBERS.index(old) <= _NUMBERS.index(new)
    if isinstance(new, DecimalType):
        if isinstance(old, DecimalType):
            more_scale = new.scale - old.scale
            return new.precision - old.precision >= more_scale >= 0
        return old in _DIGITS and new.precision - new.scale >= _DIGITS[old]
    if old == DATE or old in _TIMES:
        return new in _TIMES or new == STRING
    return new == STRING


def _shown(f: StructField) -> str:
    name = declared_type(f) or f.data_type.simple_string
    return name.upper() + ("" if f.nullable else " NOT NULL")
