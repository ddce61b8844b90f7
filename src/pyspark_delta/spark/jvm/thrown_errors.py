"""Errors of Python that Java throws on, as itself: with a class, a condition and a cause.

Py4J makes one text of whatever Python raises while Java calls it, unless a parameter of the whole
gateway says otherwise.  Here that parameter answers for one error at a time, so that callbacks of
others behave as they always did.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import local
from typing import Any

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from pyspark_delta.errors.base import DeltaError
from pyspark_delta.spark.jvm.gateway import JvmSession

_PARAMETER = "propagate_java_exceptions"
_THREAD = local()
# What was thrown lately.  Java looks a thrown object up after Python has let go of it, so it must
# be held; and whoever waits for a query finds its typed error here, by the text.
_THROWN: deque[tuple[DeltaError | None, Any]] = deque(maxlen=64)


@contextmanager
def thrown_in_java(jvm: JvmSession) -> Iterator[None]:
    """Around what Java calls: let Java see a typed error, or an error of its own, as it is."""
    try:
        yield
    except DeltaError as error:
        raise _thrown(jvm, _java_error(jvm, error), error) from error
    except (Py4JJavaError, PySparkException) as error:
        origin = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
        if origin is None:
            raise
        raise _thrown(jvm, _unchecked(jvm, origin)) from error


def error_behind(text: str) -> DeltaError | None:
    """The typed error that Java's text tells of, if it was thrown lately."""
    found = (error for error, _ in tuple(_THROWN) if error is not None and str(error) in text)
    return next(found, None)


def _thrown(jvm: JvmSession, java_error: Any, error: DeltaError | None = None) -> Py4JJavaError:
    parameters = jvm.gateway.python_parameters
    if not isinstance(getattr(parameters, _PARAMETER), _ForOneError):
        setattr(parameters, _PARAMETER, _ForOneError(getattr(parameters, _PARAMETER)))
    _THROWN.appendleft((error, java_error))
    _THREAD.is_thrown = True
    return Py4JJavaError("thrown on", java_error)


def _java_error(jvm: JvmSession, error: DeltaError) -> Any:
    parameters = jvm.scala_map(error.parameters)
    text = f"{type(error).__name__}: {error}"
    return _runtime_error(jvm, text, None, error.condition, parameters, error.sqlstate)


def _unchecked(jvm: JvmSession, error: Any) -> Any:
    """An error that a proxy can throw, which Java lets do so only with unchecked ones."""
    if _is(jvm, error, "java.lang.RuntimeException") or _is(jvm, error, "java.lang.Error"):
        return error
    text = error.getMessage() or error.toString()
    streams = jvm.java_class("org.apache.spark.sql.execution.streaming.runtime.StreamExecution$")
    if streams.isInterruptionException(error, jvm.spark.sparkContext._jsc.sc()):
        # Whoever stopped the query must be able to tell that nothing else went wrong.
        cause = jvm.java_class("java.io.InterruptedIOException")(text)
        return jvm.java_class("java.io.UncheckedIOException")(text, cause)
    if not _is(jvm, error, "org.apache.spark.SparkThrowable"):
        return _runtime_error(jvm, text, error, None, jvm.scala_map({}), None)
    parameters = jvm.scala_map(dict(error.getMessageParameters() or {}))
    return _runtime_error(jvm, text, error, error.getCondition(), parameters, error.getSqlState())


def _runtime_error(
    jvm: JvmSession,
    text: str,
    cause: Any,
    condition: str | None,
    parameters: Any,
    sqlstate: str | None,
) -> Any:
    """Spark's unchecked exception with a text of one's own, which it makes in private."""
    name = "org.apache.spark.SparkRuntimeException"
    context = jvm.gateway.new_array(jvm.java_class("org.apache.spark.QueryContext"), 0)
    given = [text, jvm.some(cause), jvm.some(condition), parameters, context, jvm.some(sqlstate)]

    def find() -> Any:
        constructors = jvm.static("java.lang.Class", "forName")(name).getDeclaredConstructors()
        for each in constructors:
            kinds = [kind.getSimpleName() for kind in each.getParameterTypes()]
            if kinds == ["String", "Option", "Option", "Map", "QueryContext[]", "Option"]:
                each.setAccessible(True)
                return each
        return None

    constructor = jvm.remembered(f"new {name}", find)
    if constructor is None:
        return jvm.java_class("java.lang.RuntimeException")(text, cause)
    return constructor.newInstance(jvm.array(jvm.java_class("java.lang.Object"), given))


def _is(jvm: JvmSession, error: Any, name: str) -> bool:
    return bool(is_instance_of(jvm.gateway, error, name))


class _ForOneError:
    """True once for each error that is thrown on, on its thread; else what was there before."""

    def __init__(self, former: object) -> None:
        self._former = bool(former)

    def __bool__(self) -> bool:
        is_thrown, _THREAD.is_thrown = getattr(_THREAD, "is_thrown", False), False
        return is_thrown or self._former
