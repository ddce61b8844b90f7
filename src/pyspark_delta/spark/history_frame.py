"""`history()` as a DataFrame: one row per commit, with delta-spark's columns and types."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.kernel.protocol.action_parts import JobInfo, NotebookInfo
from pyspark_delta.kernel.protocol.actions import CommitInfo
from pyspark_delta.kernel.protocol.types import (
    BOOLEAN,
    LONG,
    STRING,
    TIMESTAMP,
    DataType,
    MapType,
    StructField,
    StructType,
)
from pyspark_delta.spark.local_frame import local_frame

_TEXTS = MapType(STRING, STRING)
_Record = type[JobInfo] | type[NotebookInfo]


def history_frame(spark: SparkSession, commits: Sequence[CommitInfo]) -> DataFrame:
    """The commits as rows, in the order given."""
    rows = [[value(info) for _, _, value in _COLUMNS] for info in commits]
    return local_frame(spark, HISTORY_SCHEMA, rows)


def _micros(milliseconds: int | None) -> int | None:
    return None if milliseconds is None else milliseconds * 1000


def _pairs(texts: Mapping[str, str | None] | None) -> list[tuple[str, str | None]] | None:
    return None if texts is None else list(texts.items())


def _parameters(info: CommitInfo) -> list[tuple[str, str | None]] | None:
    """Parameters are JSON values in the log, and texts in a history."""
    found = info.operation_parameters
    return None if found is None else [(key, _parameter(value)) for key, value in found.items()]


def _parameter(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _struct(record: _Record) -> StructType:
    return StructType(tuple(StructField(f.key, STRING) for f in record.FIELDS))


def _fields(found: JobInfo | NotebookInfo | None) -> dict[str, str | None] | None:
    if found is None:
        return None
    return {f.key: getattr(found, f.attribute) for f in found.FIELDS}


# Name, type, and where the value comes from.
_COLUMNS: tuple[tuple[str, DataType, Callable[[CommitInfo], object]], ...] = (
    ("version", LONG, lambda info: info.version),
    ("timestamp", TIMESTAMP, lambda info: _micros(info.timestamp)),
    ("userId", STRING, lambda info: info.user_id),
    ("userName", STRING, lambda info: info.user_name),
    ("operation", STRING, lambda info: info.operation),
    ("operationParameters", _TEXTS, _parameters),
    ("job", _struct(JobInfo), lambda info: _fields(info.job)),
    ("notebook", _struct(NotebookInfo), lambda info: _fields(info.notebook)),
    ("clusterId", STRING, lambda info: info.cluster_id),
    ("readVersion", LONG, lambda info: info.read_version),
    ("isolationLevel", STRING, lambda info: info.isolation_level),
    ("isBlindAppend", BOOLEAN, lambda info: info.is_blind_append),
    ("operationMetrics", _TEXTS, lambda info: _pairs(info.operation_metrics)),
    ("userMetadata", STRING, lambda info: info.user_metadata),
    ("engineInfo", STRING, lambda info: info.engine_info),
)
HISTORY_SCHEMA = StructType(tuple(StructField(name, kind) for name, kind, _ in _COLUMNS))
"""The columns of a history."""
