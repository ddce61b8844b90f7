"""Turning a session on and off: what is changed in PySpark, in one list.

`enable` makes `format("delta")` of that session's readers and writers ours.  Other formats, and
sessions that were not enabled, go the way they always went.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from pyspark.sql import DataFrame, DataFrameReader, DataFrameWriter, SparkSession

from pyspark_delta.errors.table import PropertyError
from pyspark_delta.spark.commands.read import run_load
from pyspark_delta.spark.commands.write import SaveMode, run_write
from pyspark_delta.spark.jvm.versions import warn_if_untested
from pyspark_delta.spark.options import DeltaOptions
from pyspark_delta.spark.table_access import open_log

_ENABLED: WeakSet[SparkSession] = WeakSet()
_ORIGINALS: dict[tuple[type, str], Callable[..., Any]] = {}
# What PySpark calls the modes of a write, and we do.
_MODES: dict[str, SaveMode] = {
    "append": "append",
    "overwrite": "overwrite",
    "ignore": "ignore",
    "error": "error",
    "errorifexists": "error",
    "default": "error",
}


def enable(spark: SparkSession) -> SparkSession:
    """Make Delta tables readable and writable in this session, and return it."""
    if spark not in _ENABLED:
        warn_if_untested(spark.version)
    _ENABLED.add(spark)
    for (owner, name), wrap in _CHANGED.items():
        if (owner, name) not in _ORIGINALS:
            original = getattr(owner, name)
            _ORIGINALS[owner, name] = original
            setattr(owner, name, functools.wraps(original)(wrap(original)))
    return spark


def disable(spark: SparkSession) -> SparkSession:
    """Undo `enable`; PySpark is as it was once no session is enabled."""
    _ENABLED.discard(spark)
    if not len(_ENABLED):
        for (owner, name), original in _ORIGINALS.items():
            setattr(owner, name, original)
        _ORIGINALS.clear()
    return spark


class _Said:
    """What was said to a reader or writer before its last word."""

    def __init__(self) -> None:
        self.format: str | None = None
        self.mode: SaveMode = "error"
        self.partition_by: tuple[str, ...] = ()
        self.options: dict[str, object] = {}


def _said(of: Any) -> _Said:
    found = of.__dict__.get("_delta_said")
    if found is None:
        found = of.__dict__["_delta_said"] = _Said()
    return found  # type: ignore[no-any-return]


def _is_ours(of: Any, said: _Said) -> bool:
    return (said.format or "").lower() == "delta" and of._spark in _ENABLED


def _format(original: Callable[..., Any]) -> Callable[..., Any]:
    def format(self: Any, source: str) -> Any:
        _said(self).format = source
        return original(self, source)

    return format


def _option(original: Callable[..., Any]) -> Callable[..., Any]:
    def option(self: Any, key: str, value: Any) -> Any:
        _said(self).options[key] = value
        return original(self, key, value)

    return option


def _options(original: Callable[..., Any]) -> Callable[..., Any]:
    def options(self: Any, **options: Any) -> Any:
        _said(self).options.update(options)
        return original(self, **options)

    return options


def _mode(original: Callable[..., Any]) -> Callable[..., Any]:
    def mode(self: Any, saveMode: str | None) -> Any:
        if saveMode is not None:
            _said(self).mode = _MODES.get(saveMode.lower(), "error")
        return original(self, saveMode)

    return mode


def _partition_by(original: Callable[..., Any]) -> Callable[..., Any]:
    def partitionBy(self: Any, *cols: Any) -> Any:
        listed = cols[0] if len(cols) == 1 and isinstance(cols[0], list | tuple) else cols
        _said(self).partition_by = tuple(listed)
        return original(self, *cols)

    return partitionBy


def _load(original: Callable[..., Any]) -> Callable[..., Any]:
    def load(
        self: Any, path: Any = None, format: str | None = None, schema: Any = None, **options: Any
    ) -> DataFrame:
        said = _said(self)
        said.format = format or said.format
        if not _is_ours(self, said):
            return original(self, path, format, schema, **options)  # type: ignore[no-any-return]
        given = DeltaOptions({**said.options, **options})
        return run_load(self._spark, _path(path, given), given)

    return load


def _save(original: Callable[..., Any]) -> Callable[..., Any]:
    def save(
        self: Any,
        path: str | None = None,
        format: str | None = None,
        mode: str | None = None,
        partitionBy: Any = None,
        **options: Any,
    ) -> None:
        said = _said(self)
        said.format = format or said.format
        if not _is_ours(self, said):
            original(self, path, format, mode, partitionBy, **options)
            return
        if mode is not None:
            said.mode = _MODES.get(mode.lower(), "error")
        if partitionBy is not None:
            said.partition_by = (partitionBy,) if isinstance(partitionBy, str) else (*partitionBy,)
        given = DeltaOptions({**said.options, **options})
        run_write(
            self._spark,
            open_log(self._spark, _path(path, given), given),
            self._df,
            mode=said.mode,
            partition_by=said.partition_by,
            options=given,
        )

    return save


def _path(path: Any, options: DeltaOptions) -> str:
    found = path if path is not None else options.get("path")
    if not isinstance(found, str):
        raise PropertyError(
            "DELTA_ILLEGAL_OPTION", input=str(found), name="path", explain="needs one path"
        )
    return found


_CHANGED: dict[tuple[type, str], Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    (DataFrameReader, "format"): _format,
    (DataFrameReader, "option"): _option,
    (DataFrameReader, "options"): _options,
    (DataFrameReader, "load"): _load,
    (DataFrameWriter, "format"): _format,
    (DataFrameWriter, "option"): _option,
    (DataFrameWriter, "options"): _options,
    (DataFrameWriter, "mode"): _mode,
    (DataFrameWriter, "partitionBy"): _partition_by,
    (DataFrameWriter, "save"): _save,
}
