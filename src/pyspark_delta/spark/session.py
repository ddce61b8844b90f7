"""Turning a session on and off: what is changed in PySpark, in one list.

`enable` makes Delta tables readable and writable in that session, its new sessions and its copies.
Other formats, and sessions that were not enabled, go the way they always went.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from threading import Lock
from typing import Any

from pyspark.sql import SparkSession

from pyspark_delta.spark.connect import check_has_jvm
from pyspark_delta.spark.enabled_sessions import any_enabled, turn_off, turn_on
from pyspark_delta.spark.patches import (
    catalogs,
    frames,
    merges,
    readers,
    sessions,
    stream_queries,
    stream_readers,
    stream_writers,
    writers,
    writers_v2,
)
from pyspark_delta.spark.spark_errors import spark_errors

_CHANGED = {
    **sessions.CHANGED,
    **readers.CHANGED,
    **writers.CHANGED,
    **writers_v2.CHANGED,
    **catalogs.CHANGED,
    **frames.CHANGED,
    **merges.CHANGED,
    **stream_readers.CHANGED,
    **stream_writers.CHANGED,
    **stream_queries.CHANGED,
}
_ORIGINALS: dict[tuple[type, str], Callable[..., Any]] = {}
_LOCK = Lock()


def enable(spark: SparkSession) -> SparkSession:
    """Make Delta tables readable and writable in this session, and return it."""
    check_has_jvm(spark)
    turn_on(spark)
    with _LOCK:
        for (owner, name), wrap in _CHANGED.items():
            if (owner, name) not in _ORIGINALS:
                original = getattr(owner, name)
                _ORIGINALS[owner, name] = original
                setattr(owner, name, functools.wraps(original)(spark_errors(wrap(original))))
    return spark


def disable(spark: SparkSession) -> SparkSession:
    """Undo `enable`; PySpark is as it was once no session is enabled."""
    turn_off(spark)
    with _LOCK:
        if not any_enabled():
            for (owner, name), original in _ORIGINALS.items():
                setattr(owner, name, original)
            _ORIGINALS.clear()
    return spark
