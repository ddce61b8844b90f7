"""Times as Java prints them: the history has them so."""

from __future__ import annotations

from pyspark_delta.spark.jvm.gateway import JvmSession


def timestamp_text(jvm: JvmSession, milliseconds: int) -> str:
    """A time as `java.sql.Timestamp` prints it, in the zone of the JVM."""
    instant = jvm.static("java.time.Instant", "ofEpochMilli")(milliseconds)
    made = jvm.static("java.sql.Timestamp", "from")(instant)
    return str(made.toString())
