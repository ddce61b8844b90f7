"""Sessions of the JVM that other programs made: their Python side, for as long as they are used.

Nothing of Spark's says that a session of a client is closed, and each has a JVM session, which is
not freed while Python has it.  So a new session is the moment to look which of the others have
gone; and of those that nobody closes, only the ones that were called last are kept.  A session that
was let go and is called again gets a new Python side.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import RLock
from typing import Any

from py4j.java_gateway import JavaClass
from pyspark import SparkContext
from pyspark.sql import SparkSession

from pyspark_delta.spark.jvm.catalog.session_objects import forget_objects
from pyspark_delta.spark.jvm.gateway import JvmSession

_CONNECT_SESSIONS = "pyspark_delta.ConnectSessions"
# Each stream runs in a session of its own, too.
_MOST_SESSIONS = 32


class BridgedSessions:
    """The Python side of sessions, by their ids.  Safe to share between threads."""

    def __init__(self, most: int = _MOST_SESSIONS) -> None:
        self._most = most
        self._lock = RLock()
        self._kept: OrderedDict[str, SparkSession] = OrderedDict()
        self._of_connect: set[str] = set()

    def __len__(self) -> int:
        return len(self._kept)

    def found(self, key: str, session: Any) -> SparkSession:
        """The Python side of Java's session with that id."""
        with self._lock:
            known = self._kept.get(key)
            if known is not None:
                self._kept.move_to_end(key)
                return known
            context = SparkContext._active_spark_context
            assert context is not None
            made = SparkSession(context, session)
            gone = self._closed(JvmSession(made), key)
            self._kept[key] = made
            while len(self._kept) > self._most:
                gone.append(self._drop(next(iter(self._kept))))
        for each in gone:
            # They have plans of Java's, which have Python's side of files, which has the session.
            forget_objects(each)
        return made

    def _closed(self, jvm: JvmSession, key: str) -> list[SparkSession]:
        """Drop the sessions that Spark Connect no longer has."""
        sessions = jvm.java_class(_CONNECT_SESSIONS)
        if not isinstance(sessions, JavaClass):
            return []  # a Spark without Connect
        are_open = set(str(sessions.open()).split())
        gone = [self._drop(each) for each in self._of_connect - are_open]
        for each in gone:
            # A view of a Delta table has a plan that calls Python, which has the session.
            JvmSession(each).state.catalog().clearTempTables()
        if key in are_open:
            self._of_connect.add(key)
        return gone

    def _drop(self, key: str) -> SparkSession:
        self._of_connect.discard(key)
        return self._kept.pop(key)
