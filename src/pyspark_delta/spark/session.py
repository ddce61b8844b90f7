"""Turning a session on and off: what is changed in PySpark, in one list.

`enable` makes Delta tables readable and writable in that session, its new sessions and its copies.
Other formats, and sessions that were not enabled, go the way they always went.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import ExitStack
from threading import Lock
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from pyspark_delta.spark.connect import check_has_jvm
from pyspark_delta.spark.delta_spark_confs import names_delta_spark, without_delta_spark
from pyspark_delta.spark.enabled_sessions import any_enabled, turn_off, turn_on
from pyspark_delta.spark.jvm.versions import check_supported, unsupported
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
from pyspark_delta.spark.session_settings import warn_of_unused
from pyspark_delta.spark.spark_errors import spark_errors


def _get_or_create(original: Callable[..., Any]) -> Callable[..., Any]:
    def getOrCreate(self: Any) -> Any:
        kept = without_delta_spark(self._options)
        is_named = kept != self._options
        self._options = kept
        session = original(self)
        # A session of Spark Connect has no JVM to reach; its way in is the data source.
        if isinstance(session, SparkSession) and (is_named or names_delta_spark(session)):
            enable(session)
        return session

    return getOrCreate


_BUILDER = (SparkSession.Builder, "getOrCreate")
_CHANGED = {
    _BUILDER: _get_or_create,
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
# What stays changed when no session is enabled.
_LASTING: set[tuple[type, str]] = set()
_LOCK = Lock()


def enable(spark: SparkSession) -> SparkSession:
    """Make Delta tables readable and writable in this session, and return it.

    A Spark on which a part of that cannot be done is refused, and left as it was.
    """
    check_has_jvm(spark)
    check_supported(spark.version)
    with _LOCK, ExitStack() as undo:
        # Changed methods do what they always did until their session is turned on.
        for place in _CHANGED.keys() - _ORIGINALS.keys():
            _change(place)
            undo.callback(_restore, place)
        turn_on(spark)
        undo.pop_all()
    warn_of_unused(spark)
    return spark


def disable(spark: SparkSession) -> SparkSession:
    """Undo `enable`; PySpark is as it was once no session is enabled."""
    turn_off(spark)
    with _LOCK:
        if not any_enabled():
            for place in _ORIGINALS.keys() - _LASTING:
                _restore(place)
    return spark


def enable_delta_spark_builders() -> None:
    """Make builders that name delta-spark's extension, catalog or JAR give enabled sessions.

    Also before the first session, and for the rest of the process.
    """
    with _LOCK:
        _LASTING.add(_BUILDER)
        _change(_BUILDER)


def _change(place: tuple[type, str]) -> None:
    if place not in _ORIGINALS:
        owner, name = place
        original = getattr(owner, name, None)
        if original is None:
            raise unsupported(pyspark.__version__)
        changed = spark_errors(_CHANGED[place](original))
        setattr(owner, name, functools.wraps(original)(changed))
        _ORIGINALS[place] = original


def _restore(place: tuple[type, str]) -> None:
    setattr(*place, _ORIGINALS.pop(place))
