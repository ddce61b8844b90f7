"""The shared session of `make test DOOR=connect`: a client of Spark Connect in this process."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.support.delta_server import Server

_DATABASE = "default"
_GLOBAL_VIEWS = "global_temp"


def remote_session(server: Server) -> Iterator[Any]:
    """A session of the server, closed when the iterator goes on."""
    session = SparkSession.builder.remote(server.url).getOrCreate()
    yield session
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        session.stop()


@contextmanager
def kept_clean(spark: Any) -> Iterator[None]:
    """Take back what happens inside to a client's session, or to what sessions share.

    As in a classic session (`clean_session`), but by SQL and the catalog alone.
    """
    before, settings = _listed(spark), dict(spark.conf.getAll)
    yield
    for query in spark.streams.active:
        query.stop()
    _restore(spark, settings)
    spark.catalog.setCurrentCatalog("spark_catalog")
    spark.catalog.setCurrentDatabase(_DATABASE)
    spark.catalog.clearCache()
    now = _listed(spark)
    for name in now.views:
        spark.catalog.dropTempView(name)
    for name in now.global_views:
        spark.catalog.dropGlobalTempView(name)
    for name in now.databases - before.databases:
        spark.sql(f"DROP DATABASE `{name}` CASCADE")
    for name in now.tables - before.tables:
        kind = "VIEW" if name in now.kept_views else "TABLE"
        spark.sql(f"DROP {kind} IF EXISTS `{name}`")
    for name in now.functions - before.functions:
        spark.sql(f"DROP TEMPORARY FUNCTION IF EXISTS `{name}`")
    warehouse = Path(settings["spark.sql.warehouse.dir"].removeprefix("file:"))
    for folder in now.folders - before.folders:
        shutil.rmtree(warehouse / folder, ignore_errors=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    """Names of what is there."""

    databases: set[str]
    tables: set[str]
    kept_views: set[str]
    views: set[str]
    global_views: set[str]
    functions: set[str]
    folders: set[str]


def _listed(spark: Any) -> _Listed:
    rows = spark.catalog.listTables(_DATABASE)
    warehouse = Path(spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:"))
    functions = spark.sql("SHOW USER FUNCTIONS").collect()
    global_views = spark.sql(f"SHOW VIEWS IN {_GLOBAL_VIEWS}").collect()
    return _Listed(
        databases={row[0] for row in spark.sql("SHOW DATABASES").collect()},
        tables={row.name for row in rows if not row.isTemporary},
        kept_views={row.name for row in rows if row.tableType == "VIEW"},
        views={row.name for row in rows if row.isTemporary},
        global_views={row.viewName for row in global_views if row.namespace == _GLOBAL_VIEWS},
        functions={row[0].rpartition(".")[2] for row in functions},
        folders={each.name for each in warehouse.iterdir()} if warehouse.exists() else set(),
    )


def _restore(spark: Any, settings: dict[str, str]) -> None:
    """Set the session's settings to what they were."""
    now = dict(spark.conf.getAll)
    for key in now.keys() - settings.keys():
        spark.conf.unset(key)
    for key, value in settings.items():
        if now.get(key) != value:
            spark.conf.set(key, value)
