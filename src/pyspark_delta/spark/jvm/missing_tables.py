"""Spark's own error for the name of a table that there is not."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_delta.spark.jvm.analysis_errors import analysis_error
from pyspark_delta.spark.jvm.catalog import SESSION_CATALOG, current_database
from pyspark_delta.spark.jvm.gateway import JvmSession

# A name with its catalog and its database.
_WHOLE = 3


def missing_table(jvm: JvmSession, name: Sequence[str]) -> Exception:
    """The AnalysisException that says so: TABLE_OR_VIEW_NOT_FOUND, unless there is no such catalog.

    Then Spark takes the catalog's name for a part of the database's.
    """
    shown = ".".join(f"`{part}`" for part in name)
    first = name[0].lower()
    is_known = first == SESSION_CATALOG or jvm.spark.conf.get(f"spark.sql.catalog.{name[0]}", None)
    if len(name) >= _WHOLE and not is_known:
        return analysis_error(
            jvm, "REQUIRES_SINGLE_PART_NAMESPACE", sessionCatalog=SESSION_CATALOG, identifier=shown
        )
    place = f"[`system`.`session`, `{SESSION_CATALOG}`.`{current_database(jvm)}`]"
    return analysis_error(jvm, "TABLE_OR_VIEW_NOT_FOUND", relationName=shown, searchPath=place)
