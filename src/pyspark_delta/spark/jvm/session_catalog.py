"""The session's own catalog, also for views that were made in another kind of session.

A permanent view remembers the settings of the session that made it.  One that delta-spark made
asks for delta-spark's catalog class, and Spark fails to load that whenever the view is used.  It
loads none while its map of catalogs has an entry for the session catalog.
"""

from __future__ import annotations

from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.private_fields import private_value

_FIELD = "catalogs"
_NAME = "spark_catalog"
_BUILT_IN = "builtin"


def keep_session_catalog(jvm: JvmSession) -> None:
    """Let the session's catalog be the one of all views too."""
    manager = jvm.session.sessionState().catalogManager()
    private_value(manager, _FIELD).put(_NAME, manager.v2SessionCatalog())


def release_session_catalog(jvm: JvmSession) -> None:
    """Undo `keep_session_catalog`; a catalog that the session names was in the map before."""
    if jvm.spark.conf.get("spark.sql.catalog.spark_catalog", _BUILT_IN) == _BUILT_IN:
        manager = jvm.session.sessionState().catalogManager()
        private_value(manager, _FIELD).remove(_NAME)
