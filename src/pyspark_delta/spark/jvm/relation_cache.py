"""Spark's cache of what tables stand for, asked on every lookup: the way in for Delta tables.

Spark looks a catalog table up in this cache before it asks the table's data source.  With ours in
its place a Delta table is always found, with the plan of its newest version: in SELECT, in views,
in subqueries of expressions, whatever was refreshed, dropped or evicted before.  All else goes to
Spark's own cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark_delta.spark.jvm.callback_errors import noted_errors
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.private_fields import private_value, set_private_value
from pyspark_delta.spark.jvm.stand_ins import StandIns

FindPlan = Callable[[str, str, str], Any]
"""From catalog, database and table to a logical plan; None when it is not a Delta table."""

_FIELD = "tableRelationCache"


def install_relation_cache(jvm: JvmSession, find_plan: FindPlan) -> None:
    """Put our cache before Spark's; a second time only `find_plan` changes."""
    catalog = jvm.session.sessionState().catalog()
    present = private_value(catalog, _FIELD)
    ours = _STAND_INS.behind(present)
    if ours is not None:
        ours.find_plan = find_plan
        return
    jvm.accept_callbacks()
    set_private_value(catalog, _FIELD, RelationCacheProxy(present, find_plan))


def remove_relation_cache(jvm: JvmSession) -> None:
    """Give Spark its own cache back."""
    catalog = jvm.session.sessionState().catalog()
    ours = _STAND_INS.behind(private_value(catalog, _FIELD))
    if ours is not None:
        set_private_value(catalog, _FIELD, ours.sparks_own)


class RelationCacheProxy:
    """The object that Java calls.  Method names are Guava's."""

    class Java:
        """Tells Py4J which interface this is."""

        implements = ("org.sparkproject.guava.cache.Cache",)

    def __init__(self, sparks_own: Any, find_plan: FindPlan) -> None:
        self.sparks_own = sparks_own
        self.find_plan = find_plan
        self._name = _STAND_INS.name(self)

    def getIfPresent(self, key: Any) -> Any:
        found = self.sparks_own.getIfPresent(key)
        if found is not None:
            return found
        with noted_errors():
            return self.find_plan(key.catalog(), key.database(), key.name())

    def get(self, key: Any, loader: Any) -> Any:
        return self.sparks_own.get(key, loader)

    def put(self, key: Any, plan: Any) -> None:
        self.sparks_own.put(key, plan)

    def invalidate(self, key: Any) -> None:
        self.sparks_own.invalidate(key)

    def invalidateAll(self) -> None:
        self.sparks_own.invalidateAll()

    def cleanUp(self) -> None:
        self.sparks_own.cleanUp()

    def size(self) -> int:
        size: int = self.sparks_own.size()
        return size

    def equals(self, other: Any) -> bool:
        return self is other

    def hashCode(self) -> int:
        return id(self) & 0x7FFFFFFF

    def toString(self) -> str:
        return self._name


_STAND_INS: StandIns[RelationCacheProxy] = StandIns("Delta[relations")
