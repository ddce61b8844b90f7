"""What moved between the minors of Spark: class names and arguments, one row for each.

A row names every place a class has been at, the newest first; the session's own JVM says which
of them it has.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import Any

from py4j.java_gateway import JavaClass

from pyspark_delta.errors.table import OperationNotAllowedError
from pyspark_delta.spark.jvm.gateway import JvmSession

_OLDEST = (4, 2)
_NEWEST_TESTED = (4, 3)
_PLACES: Mapping[str, tuple[str, ...]] = {
    "FileStreamSinkLog": (
        "org.apache.spark.sql.execution.streaming.sinks.FileStreamSinkLog",
        "org.apache.spark.sql.execution.streaming.FileStreamSinkLog",
    ),
    "ManifestFileCommitProtocol": (
        "org.apache.spark.sql.execution.streaming.ManifestFileCommitProtocol",
        "org.apache.spark.sql.execution.streaming.sinks.ManifestFileCommitProtocol",
    ),
    "SerializedOffset": (
        "org.apache.spark.sql.execution.streaming.runtime.SerializedOffset",
        "org.apache.spark.sql.execution.streaming.SerializedOffset",
    ),
    "StreamingExecutionRelation": (
        "org.apache.spark.sql.execution.streaming.runtime.StreamingExecutionRelation",
        "org.apache.spark.sql.execution.streaming.StreamingExecutionRelation",
    ),
}


def moved_class(jvm: JvmSession, name: str) -> Any:
    """The class of that short name, wherever this Spark has it."""
    return jvm.remembered(f"moved {name}", lambda: _moved_class(jvm, name))


def default_arguments(
    jvm: JvmSession, object_name: str, method: str, given: int
) -> tuple[Any, ...]:
    """Defaults of the parameters that a newer Spark has behind the `given` ones.

    Scala compiles the default of parameter N of `method` into a method `method$default$N` of the
    object, which `object_name` names as `JvmSession.java_class` takes it.
    """
    return jvm.remembered(  # type: ignore[no-any-return]
        f"{object_name}.{method} after {given}",
        lambda: _default_arguments(jvm.java_class(object_name), method, given),
    )


def check_supported(version: str) -> None:
    """Refuse a Spark older than those that are supported; warn of one newer than those tested.

    What a newer one has moved is found, or refused, when it is called.
    """
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None:
        return
    minor = (int(found[1]), int(found[2]))
    if minor < _OLDEST:
        raise unsupported(version)
    if minor > _NEWEST_TESTED:
        warnings.warn(
            f"pyspark-delta is tested up to Spark {_dotted(_NEWEST_TESTED)}, this is {version}: "
            "look for a newer release if something fails.",
            stacklevel=3,
        )


def unsupported(version: str) -> OperationNotAllowedError:
    """What enabling a session of such a Spark raises."""
    return OperationNotAllowedError(
        "DELTA_UNSUPPORTED_SPARK_VERSION",
        version=version,
        oldest=_dotted(_OLDEST),
        newest=_dotted(_NEWEST_TESTED),
    )


def _dotted(minor: tuple[int, int]) -> str:
    return ".".join(map(str, minor))


def _moved_class(jvm: JvmSession, name: str) -> Any:
    for place in _PLACES[name]:
        found = jvm.java_class(place)
        if isinstance(found, JavaClass):
            return found
    raise OperationNotAllowedError(
        "DELTA_OPERATION_NOT_ALLOWED", operation=f"Spark {jvm.spark.version}, without {name},"
    )


def _default_arguments(scala_object: Any, method: str, given: int) -> tuple[Any, ...]:
    names = {each for each in dir(scala_object) if each.startswith(f"{method}$default$")}
    defaults: list[Any] = []
    while (name := f"{method}$default${given + len(defaults) + 1}") in names:
        defaults.append(getattr(scala_object, name)())
    return tuple(defaults)
