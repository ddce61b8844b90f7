"""Calls from Java into Python: their threads, and the errors that they raise.

Java turns an error of a callback into an exception that keeps only the text, so what is thrown here
is a Java exception with the class, condition and cause of the typed error.
`error_behind` finds the typed error again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import local
from typing import Any

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JError, Py4JJavaError

from pyspark_delta.errors import DeltaError, conditions
from pyspark_delta.spark.jvm.failures import JAVA_FAILURES, java_error
from pyspark_delta.spark.jvm.gateway import JvmSession, private_value

# Enough for many threads; an error that no caller takes is dropped when newer ones come.
_NOTED_ERRORS: deque[DeltaError] = deque(maxlen=64)
# How many callers are checked when a new one comes: more than one, so that dead ones do not stay.
_MOST_CHECKED = 3
_SERVING_THREAD = local()
_CALLERS: deque[_Caller] = deque()
_PROPAGATES = "propagate_java_exceptions"
_UNCHECKED = ("RuntimeException", "Error")
_THROWING_THREAD = local()
# Errors thrown recently.  Java looks up a thrown object after Python has released it, so it is held
# here; and code that waits for a query finds its typed error here, by the text.
_THROWN: deque[tuple[DeltaError | None, Any]] = deque(maxlen=64)


def noted(error: DeltaError) -> DeltaError:
    """Keep the error for `error_behind`; returns it."""
    _NOTED_ERRORS.appendleft(error)
    return error


@contextmanager
def noted_errors() -> Iterator[None]:
    """Wraps the body of a callback: keeps a typed error for `error_behind`."""
    try:
        yield
    except DeltaError as error:
        noted(error)
        raise


def note_caller(jvm: JvmSession) -> None:
    """Record the calling thread of the JVM, once; close connections of dead threads.

    Py4J gives every thread of the JVM that calls Python a connection, and a thread here that serves
    it; both stay when the thread of the JVM ends.  Spark's broadcasts run on threads that live for
    a minute, so a driver that joins every now and then would run out of threads and sockets in
    days.
    """
    if getattr(_SERVING_THREAD, "is_noted", False):
        return
    _SERVING_THREAD.is_noted = True
    client: Any = jvm.gateway._gateway_client
    get_connection = getattr(client, "get_thread_connection", None)
    # A call on a connection that Python opened comes from a Python thread, which closes it.
    own = get_connection() if get_connection is not None else None
    if own is None or own.initiated_from_client:
        return
    # A weak reference: the thread of a streaming query holds the query, with its sink and its rows.
    current = jvm.static("java.lang.Thread", "currentThread")()
    thread = jvm.java_class("java.lang.ref.WeakReference")(current)
    _end_dead_callers()
    _CALLERS.append(
        _Caller(jvm=jvm, thread=thread, connection=jvm.callback_client.getPerThreadConnection())
    )


@contextmanager
def thrown_in_java(jvm: JvmSession) -> Iterator[None]:
    """Wraps the body of a callback: throws a typed error, or a Java error, as itself in Java.

    Py4J turns any error that Python raises in a callback into text, unless a parameter of the whole
    gateway is set.  It is set for one error at a time, so that callbacks of other libraries behave
    as before.
    """
    try:
        yield
    except DeltaError as error:
        origin = None if error.__cause__ is None else java_error(error.__cause__)
        if origin is not None and _is_interruption(jvm, origin):
            raise _propagated(jvm, _unchecked(jvm, origin)) from error
        raise _propagated(jvm, _java_error(jvm, error), error) from error
    except JAVA_FAILURES as error:
        origin = java_error(error)
        if origin is None:
            raise
        raise _propagated(jvm, _unchecked(jvm, origin)) from error


@contextmanager
def thrown_by_hook(jvm: JvmSession) -> Iterator[None]:
    """As `thrown_in_java`, for methods that may throw checked errors too.

    A client of another process sees the class of Java's error, its condition and parameters.
    """
    try:
        yield
    except DeltaError as error:
        kind = conditions()[error.condition.partition(".")[0]].get("spark", "")
        thrown = _java_error(jvm, error, kind)
        raise _propagated(jvm, thrown, error) from error
    except JAVA_FAILURES as error:
        origin = java_error(error)
        if origin is None:
            raise
        raise _propagated(jvm, origin) from error


def error_behind(text: str) -> DeltaError | None:
    """The newest typed error whose whole message is in a Java text, thrown or else kept."""
    thrown = (error for error, _ in tuple(_THROWN) if error is not None)
    known = (*thrown, *tuple(_NOTED_ERRORS))
    return next((error for error in known if str(error) in text), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Caller:
    """A thread of the JVM, as a weak reference, and the connection that it calls through."""

    jvm: JvmSession = field(hash=False)
    thread: Any = field(hash=False)
    connection: Any = field(hash=False)

    def close(self) -> None:
        self.connection.shutdown()
        client = self.jvm.callback_client
        # As in Py4J itself: the code that takes connections out of the queue holds the lock.
        lock = private_value(client, "lock")
        lock.lock()
        try:
            private_value(client, "connections").remove(self.connection)
        finally:
            lock.unlock()


def _end_dead_callers() -> None:
    for _ in range(min(_MOST_CHECKED, len(_CALLERS))):
        try:
            caller = _CALLERS.popleft()
        except IndexError:
            return  # another thread has taken the last one
        try:
            thread = caller.thread.get()
            is_alive = thread is not None and thread.isAlive()
            if not is_alive:
                caller.close()
        except Py4JError:
            continue  # its JVM has exited, and all connections with it: no reason to fail a query
        if is_alive:
            _CALLERS.append(caller)


def _propagated(jvm: JvmSession, thrown: Any, error: DeltaError | None = None) -> Py4JJavaError:
    parameters = jvm.gateway.python_parameters
    if not isinstance(getattr(parameters, _PROPAGATES), _TrueForOneError):
        setattr(parameters, _PROPAGATES, _TrueForOneError(getattr(parameters, _PROPAGATES)))
    _THROWN.appendleft((error, thrown))
    _THROWING_THREAD.is_thrown = True
    return Py4JJavaError("thrown on", thrown)


def _unchecked(jvm: JvmSession, error: Any) -> Any:
    """An error that a proxy can throw: Java allows only unchecked ones."""
    if any(is_instance_of(jvm.gateway, error, f"java.lang.{name}") for name in _UNCHECKED):
        return error
    text = error.getMessage() or error.toString()
    if _is_interruption(jvm, error):
        # Spark must see that the query was stopped, not that it failed.
        cause = jvm.java_class("java.io.InterruptedIOException")(text)
        return jvm.java_class("java.io.UncheckedIOException")(text, cause)
    if not is_instance_of(jvm.gateway, error, "org.apache.spark.SparkThrowable"):
        return _runtime_error(jvm, text, error, None, jvm.scala_map({}), None)
    parameters = jvm.scala_map(dict(error.getMessageParameters() or {}))
    return _runtime_error(jvm, text, error, error.getCondition(), parameters, error.getSqlState())


def _is_interruption(jvm: JvmSession, error: Any) -> bool:
    """Whether an error follows from the end of the streaming query that runs on this thread."""
    streams = jvm.java_class("org.apache.spark.sql.execution.streaming.runtime.StreamExecution$")
    return bool(streams.isInterruptionException(error, jvm.spark.sparkContext._jsc.sc()))


# Spark's classes of errors by PySpark's names, and what their widest constructors take.
_JAVA_ERRORS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "AnalysisException": (
        "org.apache.spark.sql.AnalysisException",
        ("text", "none", "none", "none", "condition", "parameters", "context", "sqlstate", "none"),
    ),
    "IllegalArgumentException": (
        "org.apache.spark.SparkIllegalArgumentException",
        ("text", "none", "condition", "parameters", "context", "sqlstate"),
    ),
    "UnsupportedOperationException": (
        "org.apache.spark.SparkUnsupportedOperationException",
        ("text", "condition", "parameters", "sqlstate"),
    ),
    "ArithmeticException": (
        "org.apache.spark.SparkArithmeticException",
        ("text", "condition", "parameters", "context", "sqlstate"),
    ),
    "": (
        "org.apache.spark.SparkRuntimeException",
        ("text", "none", "condition", "parameters", "context", "sqlstate"),
    ),
}
_KINDS = {"text": "String", "parameters": "Map", "context": "QueryContext[]"}


def _java_error(jvm: JvmSession, error: DeltaError, class_name: str = "") -> Any:
    """The error as Java's, with a class for which PySpark has its own."""
    known = {"ParseException": "AnalysisException"}.get(class_name, class_name)
    name, takes = _JAVA_ERRORS.get(known, _JAVA_ERRORS[""])
    constructor = jvm.remembered(f"new {name}", lambda: _constructor(jvm, name, takes))
    values = {
        "text": str(error),
        "none": jvm.none(),
        "condition": jvm.some(error.condition),
        "parameters": jvm.scala_map(error.parameters),
        "context": jvm.gateway.new_array(jvm.java_class("org.apache.spark.QueryContext"), 0),
        "sqlstate": jvm.some(error.sqlstate),
    }
    given = [values[each] for each in takes[: constructor.getParameterCount()]]
    return constructor.newInstance(jvm.array(jvm.java_class("java.lang.Object"), given))


def _constructor(jvm: JvmSession, name: str, takes: Sequence[str]) -> Any:
    """The constructor with the most of the arguments `takes`; an older Spark has fewer."""
    found = {}
    for each in jvm.class_named(name).getDeclaredConstructors():
        found[tuple(kind.getSimpleName() for kind in each.getParameterTypes())] = each
    for count in range(len(takes), 0, -1):
        constructor = found.get(tuple(_KINDS.get(each, "Option") for each in takes[:count]))
        if constructor is not None:
            constructor.setAccessible(True)
            return constructor
    raise TypeError(f"{name} has no constructor for {takes}")


def _runtime_error(
    jvm: JvmSession,
    text: str,
    cause: Any,
    condition: str | None,
    parameters: Any,
    sqlstate: str | None,
) -> Any:
    """Spark's unchecked exception with any text, made by a private constructor."""
    name, takes = _JAVA_ERRORS[""]
    constructor = jvm.remembered(f"new {name}", lambda: _constructor(jvm, name, takes))
    context = jvm.gateway.new_array(jvm.java_class("org.apache.spark.QueryContext"), 0)
    given = [text, jvm.some(cause), jvm.some(condition), parameters, context, jvm.some(sqlstate)]
    return constructor.newInstance(jvm.array(jvm.java_class("java.lang.Object"), given))


class _TrueForOneError:
    """A parameter that is true once for each thrown error, on its thread; else its former value."""

    def __init__(self, former: object) -> None:
        self._former = bool(former)

    def __bool__(self) -> bool:
        is_thrown, _THROWING_THREAD.is_thrown = getattr(_THROWING_THREAD, "is_thrown", False), False
        return is_thrown or self._former
