"""The Python side of sessions that other programs made: bounded, and gone with its session."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.hooks.sessions import BridgedSessions

MOST = 3
MOST_OF_ALL = 32
"""Of the bridge itself, which has one for all sessions of the driver."""


def new_sessions(spark: SparkSession, count: int) -> list[Any]:
    """Sessions of the JVM, as Spark Connect and Thrift make them."""
    return [spark._jsparkSession.newSession() for _ in range(count)]


def test_only_the_sessions_that_were_called_last_are_kept(spark: SparkSession) -> None:
    bridged = BridgedSessions(MOST)
    sessions = [(str(each.sessionUUID()), each) for each in new_sessions(spark, MOST + 2)]
    kept = bridged.found(*sessions[0])
    for key, session in sessions[1:MOST]:
        bridged.found(key, session)
    assert bridged.found(*sessions[0]) is kept  # and so it is not the oldest any more
    for key, session in sessions[MOST:]:
        bridged.found(key, session)
        assert len(bridged) == MOST
    assert bridged.found(*sessions[0]) is kept


def test_a_session_that_was_let_go_gets_another_python_side(spark: SparkSession) -> None:
    bridged = BridgedSessions(1)
    first, second = new_sessions(spark, 2)
    before = bridged.found("first", first)
    bridged.found("second", second)
    after = bridged.found("first", first)
    assert after is not before
    assert after.sql("SELECT 1").collect()[0][0] == 1


def test_a_session_of_the_jvm_is_freed_after_it_was_let_go(spark: SparkSession) -> None:
    bridged = BridgedSessions(MOST)
    references = []
    for session in new_sessions(spark, MOST + 4):
        bridged.found(str(session.sessionUUID()), session)
        references.append(reference_to(spark, session))
    del session
    assert alive(spark, references[:-MOST], at_most=0) == 0


def test_sessions_that_used_delta_tables_are_freed(spark: SparkSession, table_path: Path) -> None:
    name = f"delta.`{table_path}`"
    spark.sql(f"CREATE TABLE {name} (id INT) USING delta")
    references = []
    for session in new_sessions(spark, MOST_OF_ALL + 8):
        session.sql(f"SELECT * FROM {name}").count()
        references.append(reference_to(spark, session))
    del session
    assert alive(spark, references, at_most=MOST_OF_ALL + 1) <= MOST_OF_ALL + 1


def reference_to(spark: SparkSession, session: Any) -> Any:
    """A weak reference of Java's."""
    return JvmSession(spark).java_class("java.lang.ref.WeakReference")(session)


def alive(spark: SparkSession, references: list[Any], *, at_most: int) -> int:
    """How many of the references have their object, once there was time to free the others."""
    spark._jsparkSession.setActiveSession(spark._jsparkSession)
    found = len(references)
    for _ in range(40):
        gc.collect()
        JvmSession(spark).static("java.lang.System", "gc")()
        found = sum(reference.get() is not None for reference in references)
        if found <= at_most:
            break
        time.sleep(0.1)
    return found
