"""Connections from threads of the JVM that call Python, ended when those threads are.

Py4J gives every thread of the JVM that calls Python a connection, and a thread here that serves
it; both stay when the thread of the JVM ends.  Spark's broadcasts run on threads that live for a
minute, so a driver that joins every now and then would run out of threads and sockets in days.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError

from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.private_fields import private_value

# How many callers are looked at when a new one comes: more than come, so that none stays for long.
_LOOKED_AT = 3

_SERVED = threading.local()


@dataclass(frozen=True, slots=True)
class _Caller:
    """A thread of the JVM, and the connection that it calls through."""

    jvm: JvmSession = field(hash=False)
    thread: Any = field(hash=False)
    connection: Any = field(hash=False)

    def close(self) -> None:
        self.connection.shutdown()
        client = _client(self.jvm)
        # Py4J's own order: whoever takes connections out of the queue holds the lock.
        lock = private_value(client, "lock")
        lock.lock()
        try:
            private_value(client, "connections").remove(self.connection)
        finally:
            lock.unlock()


_CALLERS: deque[_Caller] = deque()


def note_caller(jvm: JvmSession) -> None:
    """Remember the thread of the JVM that is calling, once; end connections of those that ended."""
    if getattr(_SERVED, "is_noted", False):
        return
    _SERVED.is_noted = True
    client: Any = jvm.gateway._gateway_client
    get_connection = getattr(client, "get_thread_connection", None)
    # A call on a connection that Python made came from a thread of Python's, which ends it.
    own = get_connection() if get_connection is not None else None
    if own is None or own.initiated_from_client:
        return
    thread = jvm.static("java.lang.Thread", "currentThread")()
    _end_dead()
    _CALLERS.append(_Caller(jvm, thread, _client(jvm).getPerThreadConnection()))


def _end_dead() -> None:
    for _ in range(min(_LOOKED_AT, len(_CALLERS))):
        try:
            caller = _CALLERS.popleft()
        except IndexError:
            return  # another caller is looking, too
        try:
            is_alive = caller.thread.isAlive()
            if not is_alive:
                caller.close()
        except Py4JError:
            continue  # its JVM is gone, and all connections with it: no reason to fail a query
        if is_alive:
            _CALLERS.append(caller)


def _client(jvm: JvmSession) -> Any:
    return jvm.gateway.java_gateway_server.getCallbackClient()
