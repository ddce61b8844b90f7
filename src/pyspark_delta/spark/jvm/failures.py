"""Why a job failed: Java's chain of causes, as Python reads it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import convert_exception

JAVA_FAILURES = (Py4JJavaError, PySparkException)
"""What a call into Java raises when Java throws: PySpark converts only what it knows."""

GATEWAY_FAILURES = (Py4JError, PySparkException)
"""The same, and that Java is gone."""

# Java keeps causes from going in circles only where it made them itself.
_DEEPEST = 50
# Spark's own words around what went wrong in a task.
_WRAPPERS = frozenset({"TASK_WRITE_FAILED"})


def messages(error: BaseException) -> Iterator[str]:
    """What every exception in the chain says, the outermost first."""
    yield str(error)
    for cause in causes(error):
        yield str(cause.getMessage())


def innermost(error: BaseException) -> BaseException:
    """The error that Spark wrapped because it happened in a task that wrote; else the same one."""
    if _condition(error) not in _WRAPPERS:
        return error
    for cause in causes(error):
        converted: BaseException = convert_exception(cause)
        if _condition(converted) not in {None, *_WRAPPERS}:
            return converted
    return error


def _condition(error: BaseException) -> str | None:
    if isinstance(error, PySparkException):
        return error.getCondition()
    if isinstance(error, Py4JJavaError):
        converted = convert_exception(error.java_exception)
        return converted.getCondition() if isinstance(converted, PySparkException) else None
    return None


def causes(error: BaseException) -> Iterator[Any]:
    """The Java exceptions behind an error, the outermost first."""
    found: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(_DEEPEST):
        if found is None:
            return
        yield found
        found = found.getCause()
