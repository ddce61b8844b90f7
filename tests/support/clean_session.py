"""The shared session as it was before a test, whatever the test did to it.

Tests share a session, a catalog and a cache.  What one of them leaves there another one finds, or
does not when it runs alone or first.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pyspark_delta import enable
from pyspark_delta.spark.jvm.gateway import JvmSession

_DATABASE = "default"


@contextmanager
def kept_clean(spark: SparkSession) -> Iterator[None]:
    """Turn the session on, and take back what happens to it inside, or to what sessions share.

    Views, caches and streams go, all of them.  Settings, functions, variables, tables, databases
    and folders of the warehouse that were there before stay: a fixture of a whole module may have
    made them.
    """
    shared = _Shared(enable(spark))
    before = shared.listed()
    settings = JvmSession(spark).java_class("java.util.HashMap")(shared.settings)
    yield
    for query in spark.streams.active:
        query.stop()
    if not settings.equals(shared.settings):
        shared.settings.clear()
        shared.settings.putAll(settings)
    shared.manager.setCurrentCatalog("spark_catalog")
    spark.catalog.setCurrentDatabase(_DATABASE)
    shared.catalog.clearTempTables()
    shared.global_views.clear()
    if not shared.cached.isEmpty():
        spark.catalog.clearCache()
    shared.drop(before)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    """Names of what was there."""

    databases: set[str]
    tables: set[str]
    functions: set[str]
    folders: set[str]
    has_variables: bool


class _Shared:
    """The parts of a session's JVM that tests could leave something in."""

    def __init__(self, spark: SparkSession) -> None:
        state = spark._jsparkSession.sessionState()
        self.catalog = state.catalog()
        self.manager = state.catalogManager()
        self.settings = state.conf().settings()
        self._external = self.catalog.externalCatalog().unwrapped()
        self._variables = self.manager.tempVariableManager()
        shared = spark._jsparkSession.sharedState()
        self.global_views = shared.globalTempViewManager()
        self.cached = shared.cacheManager()
        self._warehouse = Path(shared.conf().get("spark.sql.warehouse.dir").removeprefix("file:"))

    def listed(self) -> _Listed:
        """What is there now, by a call for each kind."""
        folders = self._warehouse.iterdir() if self._warehouse.exists() else ()
        return _Listed(
            databases=_names(self._external.listDatabases()),
            tables=_names(self._external.listTables(_DATABASE)),
            functions=_names(self.catalog.listTemporaryFunctions()),
            folders={folder.name for folder in folders},
            has_variables=not self._variables.isEmpty(),
        )

    def drop(self, but: _Listed) -> None:
        """Let all go that is not among what was there."""
        now = self.listed()
        for name in now.databases - but.databases:
            self._external.dropDatabase(name, True, True)
        for name in now.tables - but.tables:
            self._external.dropTable(_DATABASE, name, True, False)
        if (now.databases, now.tables) != (but.databases, but.tables):
            self.catalog.invalidateAllCachedTables()
        for name in now.functions - but.functions:
            self.catalog.dropTempFunction(name, True)
        if now.has_variables and not but.has_variables:
            self._variables.clear()
        for name in now.folders - but.folders:
            shutil.rmtree(self._warehouse / name, ignore_errors=True)


def _names(listed: Any) -> set[str]:
    """The items of a Scala sequence, in one call."""
    text: str = listed.mkString("\n")
    return set(text.split("\n")) - {""}
