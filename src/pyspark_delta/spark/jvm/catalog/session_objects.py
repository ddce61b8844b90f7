"""Objects that Java calls for one session, and that the session does not hold.

A session with a Python object in it is never freed: the object holds the session in turn, across
two processes, where no collector sees the cycle.  So the session has a proxy of Java's, with
nothing behind it but the session itself; what it calls is kept here, with the session of Python.

    install_object(jvm, kind, interface, target)  ->  found_object(jvm.spark, kind)
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from pyspark_delta.kernel.machine import cache_directory
from pyspark_delta.spark.jvm.classes import load_classes
from pyspark_delta.spark.jvm.gateway import JvmSession

_CLASS = "pyspark_delta.SessionObject"
# In the session of Python itself: a cycle of Python's own, which its collector sees.
_ATTRIBUTE = "_pyspark_delta_objects"


def session_object(
    jvm: JvmSession, kind: str, interface: str, target: object, sparks: Any = None
) -> Any:
    """An object of Java's with that interface, whose methods are those of `target`.

    `sparks` is the object whose place it takes: that answers first, and `target` what is missing.
    """
    load_classes(jvm, cache_directory())
    keep_object(jvm, kind, target)
    made = jvm.static(_CLASS, "of")
    return made(jvm.class_named(interface), jvm.session, kind, sparks)


def keep_object(jvm: JvmSession, kind: str, target: object) -> None:
    """Let the session's object of that kind call `target`."""
    _objects(jvm.spark)[kind] = target


def found_object(spark: SparkSession, kind: str) -> Any:
    """What the session's object of that kind calls."""
    return _objects(spark)[kind]


def forget_objects(spark: SparkSession) -> None:
    """Forget all objects of the session; it is closed, or turned off."""
    vars(spark).pop(_ATTRIBUTE, None)


def behind(jvm: JvmSession, java_object: Any) -> Any:
    """Java's part of an object that `session_object` made; None for another one."""
    return jvm.static(_CLASS, "behind")(java_object)


def _objects(spark: SparkSession) -> dict[str, Any]:
    found: dict[str, Any] = vars(spark).setdefault(_ATTRIBUTE, {})
    return found
