"""Sessions of Spark Connect: no JVM is in reach, so the Python data source is all there is."""

from __future__ import annotations

from pyspark_delta.errors.table import OperationNotAllowedError

# Its classes need packages that are not always there, so they are known by name.
_CONNECT = "pyspark.sql.connect."


def check_has_jvm(session: object) -> None:
    """Refuse a Spark Connect session, which `format("delta")` serves without being enabled."""
    if any(kind.__module__.startswith(_CONNECT) for kind in type(session).__mro__):
        raise OperationNotAllowedError("DELTA_CANNOT_ENABLE_SPARK_CONNECT")
