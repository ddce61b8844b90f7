"""Identity columns: numbers that the table assigns to its rows, each one once.

The field's metadata describes an identity column: its start, its step, its high-water mark, and
whether a writer may supply values.  Writers assign the numbers.  PROTOCOL.md, "Identity Columns".

>>> field = with_identity(StructField("id", LONG), start=10, step=5)
>>> identity_info(field).next_value
10
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeGuard

from pyspark_delta.errors import OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.column_mapping import PHYSICAL_NAME_KEY
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.types import LONG, StructField, StructType

START = "delta.identity.start"
STEP = "delta.identity.step"
HIGH_WATER_MARK = "delta.identity.highWaterMark"
ALLOW_EXPLICIT_INSERT = "delta.identity.allowExplicitInsert"
# The commit tag of a metadata change that only moves marks, and so conflicts with no commit.
SCHEMA_UPDATE_TAG = "delta.identity.schemaUpdate"


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityInfo:
    """The state of a column's sequence.  Without a mark, no number has been assigned yet."""

    start: int
    step: int
    high_water_mark: int | None = None
    allow_explicit_insert: bool = False

    @property
    def next_value(self) -> int:
        """The next number to assign."""
        mark = self.high_water_mark
        return self.start if mark is None else mark + self.step


def is_identity(f: StructField) -> bool:
    """Whether the field has any metadata of an identity column."""
    return START in f.metadata or STEP in f.metadata or ALLOW_EXPLICIT_INSERT in f.metadata


def identity_columns(schema: StructType) -> tuple[StructField, ...]:
    """The identity columns of a table; they are never nested."""
    return tuple(f for f in schema if is_identity(f))


def identity_info(f: StructField) -> IdentityInfo:
    """The identity settings in a column's metadata; SchemaError when they are incomplete."""
    values = f.metadata
    start, step, mark = values.get(START), values.get(STEP), values.get(HIGH_WATER_MARK)
    explicit = values.get(ALLOW_EXPLICIT_INSERT)
    if (
        not (_is_long(start) and _is_long(step) and isinstance(explicit, bool))
        or step == 0
        or not (mark is None or _is_long(mark))
    ):
        raise SchemaError(
            "DELTA_IDENTITY_COLUMN_INCONSISTENT_METADATA",
            colName=f.name,
            hasStart=str(_is_long(start)).lower(),
            hasStep=str(_is_long(step) and step != 0).lower(),
            hasInsert=str(isinstance(explicit, bool)).lower(),
        )
    return IdentityInfo(
        start=start, step=step, high_water_mark=mark, allow_explicit_insert=explicit
    )


def with_identity(
    f: StructField, *, start: int = 1, step: int = 1, allow_explicit_insert: bool = False
) -> StructField:
    """`f` as an identity column; it must be a BIGINT and its step must not be 0."""
    _check_type(f)
    if step == 0:
        raise SchemaError("DELTA_IDENTITY_COLUMNS_ILLEGAL_STEP")
    values = {START: _checked_long(f.name, start), STEP: _checked_long(f.name, step)}
    return f.with_metadata_items({**values, ALLOW_EXPLICIT_INSERT: allow_explicit_insert})


def check_identity_columns(schema: StructType, partition_columns: Iterable[str]) -> None:
    """Raise for identity columns that are incomplete, of another type, or partition columns."""
    partitioned = _identity_columns_among(schema, partition_columns)
    for f in identity_columns(schema):
        identity_info(f)
        _check_type(f)
        if f in partitioned:
            raise SchemaError("DELTA_IDENTITY_COLUMNS_PARTITION_NOT_SUPPORTED", colName=f.name)


def check_explicit_insert(schema: StructType, columns: Iterable[str]) -> None:
    """Raise for given values of identity columns that are GENERATED ALWAYS."""
    for f in _identity_columns_among(schema, columns):
        if not identity_info(f).allow_explicit_insert:
            raise OperationNotAllowedError(
                "DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED", colName=f.name
            )


def check_update(schema: StructType, columns: Iterable[str]) -> None:
    """Raise for updates of identity columns."""
    for f in _identity_columns_among(schema, columns):
        raise OperationNotAllowedError(
            "DELTA_IDENTITY_COLUMNS_UPDATE_NOT_SUPPORTED", colName=f.name
        )


def with_high_water_marks(schema: StructType, reached: Mapping[str, int]) -> StructType:
    """`schema` with marks advanced to what a write has `reached`, by physical column name.

    A mark never moves back: a late writer must not cause numbers to be assigned twice.
    """
    return StructType(tuple(_moved_on(f, reached.get(_physical_name(f))) for f in schema))


def with_merged_marks(schema: StructType, other: StructType) -> StructType:
    """`schema` with marks at least as far as those of `other`, as RESTORE needs them."""
    marks = {_physical_name(f): identity_info(f).high_water_mark for f in identity_columns(other)}
    return with_high_water_marks(
        schema, {name: mark for name, mark in marks.items() if mark is not None}
    )


def synced(f: StructField, extreme: int | None, *, allow_lowering: bool = False) -> StructField:
    """The column after SYNC IDENTITY.

    `extreme` is the largest value in the data, the smallest for a negative step, None for an empty
    table.  The mark goes to the next number of the sequence that is not before it.
    """
    if not is_identity(f):
        raise OperationNotAllowedError("DELTA_IDENTITY_COLUMNS_ALTER_NON_IDENTITY_COLUMN")
    info = identity_info(f)
    if extreme is None or (extreme < info.start if info.step > 0 else extreme > info.start):
        return f
    steps = -(-(extreme - info.start) // info.step)
    mark = _checked_long(f.name, info.start + steps * info.step)
    if not allow_lowering:
        mark = _furthest(info, mark)
    return f.with_metadata_items({HIGH_WATER_MARK: mark})


def is_identity_only_change(old: Metadata, new: Metadata) -> bool:
    """Whether two metadata actions differ in nothing but identity marks, and do differ."""
    return old != new and _without_marks(old) == _without_marks(new)


def _identity_columns_among(schema: StructType, names: Iterable[str]) -> list[StructField]:
    lowered = {name.lower() for name in names}
    return [f for f in identity_columns(schema) if f.name.lower() in lowered]


def _check_type(f: StructField) -> None:
    if f.data_type != LONG:
        raise SchemaError(
            "DELTA_IDENTITY_COLUMNS_UNSUPPORTED_DATA_TYPE", dataType=f.data_type.simple_string
        )


def _physical_name(f: StructField) -> str:
    # Without column mapping the key of a column is its own name.
    return str(f.metadata.get(PHYSICAL_NAME_KEY, f.name))


def _moved_on(f: StructField, reached: int | None) -> StructField:
    if reached is None or not is_identity(f):
        return f
    mark = _furthest(identity_info(f), _checked_long(f.name, reached))
    return f.with_metadata_items({HIGH_WATER_MARK: mark})


def _furthest(info: IdentityInfo, mark: int) -> int:
    if info.high_water_mark is None:
        return mark
    return (max if info.step > 0 else min)(info.high_water_mark, mark)


def _without_marks(metadata: Metadata) -> Metadata:
    schema = StructType(
        tuple(f.with_metadata_items({HIGH_WATER_MARK: None}) for f in metadata.schema)
    )
    return replace(metadata, schema_string=format_schema(schema))


def _is_long(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _checked_long(column: str, value: int) -> int:
    if not _is_long(value):
        raise SchemaError("DELTA_IDENTITY_COLUMN_OVERFLOW", colName=column)
    return value
