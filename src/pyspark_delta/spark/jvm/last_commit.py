"""The version that a session committed last, where programs for delta-spark look for it."""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext

LAST_COMMIT = "spark.databricks.delta.lastCommitVersionInSession"
"""The setting that holds the version, of whatever table it was."""

_SESSION = "org.apache.spark.sql.classic.SparkSession"


def note_last_commit(version: int, mark: str) -> None:
    """Tell the session of this thread, if it has the setting `mark`, of a commit."""
    context: Any = SparkContext._active_spark_context
    if context is None or context._gateway is None:
        return
    # Asked without a session's wrapper: PySpark would make one that nobody has turned on.
    found = getattr(context._jvm, _SESSION).getActiveSession()
    if not found.isDefined():
        return
    conf = found.get().sessionState().conf()
    if conf.contains(mark):
        conf.setConfString(LAST_COMMIT, str(version))
