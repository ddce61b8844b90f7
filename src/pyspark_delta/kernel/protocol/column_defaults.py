"""Default values of columns, for rows that are written without them.

A default is SQL text in a field's metadata and is evaluated when a row is written.  Spark's other
key, the value for rows older than the column, is never stored: Delta cannot give old rows a value.
PROTOCOL.md, "Default Columns".

>>> from pyspark_delta.kernel.protocol.types import LONG
>>> current_default(StructField("n", LONG, metadata={"CURRENT_DEFAULT": "0"}))
'0'
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pyspark_delta.errors import OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.protocol.types import VARIANT, StructField, StructType

DEFAULTS_FEATURE = "allowColumnDefaults"
CURRENT_DEFAULT = "CURRENT_DEFAULT"
EXISTS_DEFAULT = "EXISTS_DEFAULT"


def current_default(f: StructField) -> str | None:
    """The SQL text of a column's default; None when it has none, which means null."""
    text = f.metadata.get(CURRENT_DEFAULT)
    return text if isinstance(text, str) else None


def default_columns(schema: StructType) -> tuple[StructField, ...]:
    """The columns with a default; they are never nested."""
    return tuple(f for f in schema if current_default(f) is not None)


def with_default(f: StructField, expression: str | None) -> StructField:
    """`f` with a default for new rows; None removes it."""
    changed = f.with_metadata_items({CURRENT_DEFAULT: expression, EXISTS_DEFAULT: None})
    _check_type(changed)
    return changed


def without_exists_defaults(schema: StructType) -> StructType:
    """`schema` in the form to store: without Spark's values for existing rows."""
    return StructType(tuple(f.with_metadata_items({EXISTS_DEFAULT: None}) for f in schema))


def without_defaults(schema: StructType) -> StructType:
    """`schema` without defaults, so that omitted columns are null."""
    return StructType(tuple(with_default(f, None) for f in schema))


def check_defaults(schema: StructType, supported: Collection[str], *, command: str) -> None:
    """Raise for defaults on a table whose `supported` features lack theirs, and for illegal ones.

    `command` is the statement that would store the schema, for the message.
    """
    columns = default_columns(schema)
    if columns and DEFAULTS_FEATURE not in supported:
        raise OperationNotAllowedError(
            "WRONG_COLUMN_DEFAULTS_FOR_DELTA_FEATURE_NOT_ENABLED", commandType=command
        )
    for f in columns:
        _check_type(f)


def check_added_columns(added: Iterable[StructField]) -> None:
    """Raise for new columns with a default: existing rows could not get it."""
    if any(current_default(f) is not None for f in added):
        raise OperationNotAllowedError(
            "WRONG_COLUMN_DEFAULTS_FOR_DELTA_ALTER_TABLE_ADD_COLUMN_NOT_SUPPORTED"
        )


def _check_type(f: StructField) -> None:
    default = current_default(f)
    if f.data_type == VARIANT and default is not None and default.strip().lower() != "null":
        raise SchemaError(
            "DELTA_INVALID_COLUMN_DEFAULT",
            columnName=f.name,
            reason="a variant can only default to null",
        )
