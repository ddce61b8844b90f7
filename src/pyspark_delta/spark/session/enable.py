"""Enabling and disabling a session: all changes to PySpark, in one table.

`enable` makes Delta tables readable and writable in that session, its new sessions and its copies.
Other formats, and sessions that were not enabled, behave as before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import ExitStack
from threading import Lock
from types import ModuleType
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from pyspark_delta.errors import OperationNotAllowedError
from pyspark_delta.spark.api.arguments import is_connect
from pyspark_delta.spark.api.errors import spark_errors
from pyspark_delta.spark.conf.session_settings import warn_of_unused
from pyspark_delta.spark.connect.client import has_delta
from pyspark_delta.spark.jvm.gateway import JvmSession, check_supported, unsupported
from pyspark_delta.spark.jvm.hooks.bridge import open_door, unhook_new_sessions
from pyspark_delta.spark.session.delta_spark_settings import names_delta_spark, without_delta_spark
from pyspark_delta.spark.session.door import DeltaDoor
from pyspark_delta.spark.session.enabled import any_enabled, turn_off, turn_on
from pyspark_delta.spark.session.patches import CHANGED

_BUILDER = (SparkSession.Builder, "getOrCreate")


def _get_or_create(original: Callable[..., Any]) -> Callable[..., Any]:
    def getOrCreate(self: Any) -> Any:
        return enabled_without_delta_spark(self, original)

    return getOrCreate


def enabled_without_delta_spark(
    builder: SparkSession.Builder, get_or_create: Callable[..., Any]
) -> Any:
    """The builder's session, enabled if settings name delta-spark, whose classes are dropped."""
    kept = without_delta_spark(builder._options)
    is_named = kept != builder._options
    builder._options = kept
    session = get_or_create(builder)
    # A client of Spark Connect has no JVM; its server is enabled, or not.
    if isinstance(session, SparkSession) and (is_named or names_delta_spark(session)):
        enable(session)
    return session


_CHANGED: dict[tuple[type | ModuleType, str], Any] = {_BUILDER: _get_or_create, **CHANGED}
_ORIGINALS: dict[tuple[type | ModuleType, str], Callable[..., Any]] = {}
# Methods that stay changed when no session is enabled.
_LASTING: set[tuple[type | ModuleType, str]] = set()
_LOCK = Lock()


def enable(spark: SparkSession) -> SparkSession:
    """Make Delta tables readable and writable in this session, and return it.

    Raises for a version of Spark that lacks a method to change, and changes nothing then.  A
    session of Spark Connect is returned as it is; without Delta in its server, enable raises.
    """
    if is_connect(spark):
        if not has_delta(spark):
            raise OperationNotAllowedError("DELTA_CANNOT_ENABLE_SPARK_CONNECT")
        return spark
    check_supported(spark.version)
    with _LOCK, ExitStack() as undo:
        # Changed methods behave as before until their session is enabled.
        for place in _CHANGED.keys() - _ORIGINALS.keys():
            _change(place)
            undo.callback(_restore, place)
        undo.callback(_unhook_new_sessions, spark)
        open_door(JvmSession(spark), DeltaDoor())
        turn_on(spark)
        undo.pop_all()
    warn_of_unused(spark)
    return spark


def disable(spark: SparkSession) -> SparkSession:
    """Undo `enable`; PySpark is as it was once no session is enabled.

    A session of Spark Connect is returned as it is: its server has Delta, or not.
    """
    if is_connect(spark):
        return spark
    turn_off(spark)
    with _LOCK:
        if not any_enabled():
            _unhook_new_sessions(spark)
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


def _unhook_new_sessions(spark: SparkSession) -> None:
    """Let later sessions be Spark's own, if no session is enabled: a hooked one is enabled."""
    if not any_enabled():
        unhook_new_sessions(JvmSession(spark))


def _change(place: tuple[type | ModuleType, str]) -> None:
    if place not in _ORIGINALS:
        owner, name = place
        original = getattr(owner, name, None)
        if original is None:
            raise unsupported(pyspark.__version__)
        changed = spark_errors(_CHANGED[place](original))
        setattr(owner, name, functools.wraps(original)(changed))
        _ORIGINALS[place] = original


def _restore(place: tuple[type | ModuleType, str]) -> None:
    setattr(*place, _ORIGINALS.pop(place))
