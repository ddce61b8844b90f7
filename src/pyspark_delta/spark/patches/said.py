"""What was said to a reader or writer before its last word.

PySpark passes every word on to Java at once; here it is kept on the object as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column

from pyspark_delta.spark.commands.write_request import SaveMode
from pyspark_delta.spark.enabled_sessions import is_enabled

Method = Callable[..., Any]
Wrap = Callable[[Method], Method]

_ATTRIBUTE = "_delta_said"
_DEFAULT_SOURCE = "spark.sql.sources.default"
# What PySpark calls the modes of a write, and we do.
_MODES: dict[str, SaveMode] = {
    "append": "append",
    "overwrite": "overwrite",
    "ignore": "ignore",
    "error": "error",
    "errorifexists": "error",
    "default": "error",
}


@dataclass(slots=True)
class Said:
    """The words that count for a Delta table."""

    format: str | None = None
    mode: SaveMode = "error"
    partition_by: tuple[str | Column, ...] = ()
    cluster_by: tuple[str, ...] = ()
    options: dict[str, object] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    table: str = ""
    schema: Any = None
    has_buckets: bool = False


def said(of: Any) -> Said:
    """What was said to this object so far."""
    found: Said | None = of.__dict__.get(_ATTRIBUTE)
    if found is None:
        found = of.__dict__[_ATTRIBUTE] = Said()
    return found


def is_delta(of: Any) -> bool:
    """Whether a reader or writer of an enabled session is about Delta, as far as it says."""
    return is_enabled(of._spark) and source_name(of._spark, said(of).format) == "delta"


def source_name(spark: Any, given: str | None) -> str:
    """The format in lower case: the one given, or else the session's own."""
    return (given or spark.conf.get(_DEFAULT_SOURCE) or "").lower()


def save_mode(text: str) -> SaveMode:
    """The mode of that name; Spark itself refuses unknown ones."""
    return _MODES.get(text.lower(), "error")


def column_list(columns: tuple[Any, ...]) -> tuple[Any, ...]:
    """Columns that may have come as one list."""
    if len(columns) == 1 and isinstance(columns[0], list | tuple):
        return tuple(columns[0])
    return columns


def format_wrap(original: Method) -> Method:
    """`format` and `using`."""

    def wrapped(self: Any, source: str) -> Any:
        said(self).format = source
        return original(self, source)

    return wrapped


def option_wrap(original: Method) -> Method:
    """`option`."""

    def wrapped(self: Any, key: str, value: Any) -> Any:
        said(self).options[key] = value
        return original(self, key, value)

    return wrapped


def options_wrap(original: Method) -> Method:
    """`options`."""

    def wrapped(self: Any, **options: Any) -> Any:
        said(self).options.update(options)
        return original(self, **options)

    return wrapped


def schema_wrap(original: Method) -> Method:
    """`schema`."""

    def wrapped(self: Any, schema: Any) -> Any:
        said(self).schema = schema
        return original(self, schema)

    return wrapped
