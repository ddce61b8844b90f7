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
    StructType,
)
from pyspark_delta.spark.results.local_frame import columns, local_frame

_MAP = MapType(STRING, STRING)
_Record = type[JobInfo] | type[NotebookInfo]


def history_frame(spark: SparkSession, commits: Sequence[CommitInfo]) -> DataFrame:
    """The commits as rows, in the given order."""
    rows = [[value(info) for _, _, value in _COLUMNS] for info in commits]
    return local_frame(spark, HISTORY_SCHEMA, rows)


def _micros(milliseconds: int | None) -> int | None:
    return None if milliseconds is None else milliseconds * 1000


def _texts(values: Mapping[str, object] | None) -> list[tuple[str, str | None]] | None:
    """The values as text; in the log, those of parameters are JSON."""
    return None if values is None else [(key, _text(value)) for key, value in values.items()]


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _struct(record: _Record) -> StructType:
    return columns(**{f.key: STRING for f in record.FIELDS})


def _fields(record: JobInfo | NotebookInfo | None) -> dict[str, str | None] | None:
    if record is None:
        return None
    return {f.key: getattr(record, f.attribute) for f in record.FIELDS}


# Name, type, and the source of the value.
_COLUMNS: tuple[tuple[str, DataType, Callable[[CommitInfo], object]], ...] = (
    ("version", LONG, lambda info: info.version),
    ("timestamp", TIMESTAMP, lambda info: _micros(info.timestamp)),
    ("userId", STRING, lambda info: info.user_id),
    ("userName", STRING, lambda info: info.user_name),
    ("operation", STRING, lambda info: info.operation),
    ("operationParameters", _MAP, lambda info: _texts(info.operation_parameters)),
    ("job", _struct(JobInfo), lambda info: _fields(info.job)),
    ("notebook", _struct(NotebookInfo), lambda info: _fields(info.notebook)),
    ("clusterId", STRING, lambda info: info.cluster_id),
    ("readVersion", LONG, lambda info: info.read_version),
    ("isolationLevel", STRING, lambda info: info.isolation_level),
    ("isBlindAppend", BOOLEAN, lambda info: info.is_blind_append),
    ("operationMetrics", _MAP, lambda info: _texts(info.operation_metrics)),
    ("userMetadata", STRING, lambda info: info.user_metadata),
    ("engineInfo", STRING, lambda info: info.engine_info),
)
HISTORY_SCHEMA = columns(**{name: kind for name, kind, _ in _COLUMNS})
"""The columns of `history()`."""
