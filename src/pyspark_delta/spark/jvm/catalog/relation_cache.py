"""Replaces Spark's relation cache, where every table lookup begins, so that it finds Delta tables.

Spark looks up a catalog table in this cache before it calls the table's data source.  Our cache
always has a Delta table, with the plan of its newest version: in SELECT, views and subqueries, no
matter what was refreshed, dropped or evicted before.  All other lookups go to Spark's own cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark_delta.spark.jvm.callbacks import noted_errors, thrown_in_java
from pyspark_delta.spark.jvm.catalog.session_objects import behind, keep_object, session_object
from pyspark_delta.spark.jvm.gateway import JvmSession, private_value, set_private_value

FindPlan = Callable[[str, str, str], Any]
"""The logical plan for a catalog, database and table; None when it is not a Delta table."""

_FIELD = "tableRelationCache"
_KIND, _CACHE = "relations", "org.sparkproject.guava.cache.Cache"


def install_relation_cache(jvm: JvmSession, find_plan: FindPlan) -> None:
    """Put our cache before Spark's; a second call only changes `find_plan`."""
    catalog = jvm.state.catalog()
    present = private_value(catalog, _FIELD)
    relations = _Relations(jvm, find_plan)
    if behind(jvm, present) is not None:
        keep_object(jvm, _KIND, relations)
        return
    jvm.accept_callbacks()
    ours = session_object(jvm, _KIND, _CACHE, relations, present)
    set_private_value(catalog, _FIELD, ours)


def remove_relation_cache(jvm: JvmSession) -> None:
    """Restore Spark's own cache."""
    catalog = jvm.state.catalog()
    ours = behind(jvm, private_value(catalog, _FIELD))
    if ours is not None:
        set_private_value(catalog, _FIELD, ours.sparks())


class _Relations:
    """What Java calls for a table that Spark's own cache does not have."""

    def __init__(self, jvm: JvmSession, find_plan: FindPlan) -> None:
        self._jvm = jvm
        self._find_plan = find_plan

    def getIfPresent(self, key: Any) -> Any:
        with thrown_in_java(self._jvm), noted_errors():
            return self._find_plan(key.catalog(), key.database(), key.name())
