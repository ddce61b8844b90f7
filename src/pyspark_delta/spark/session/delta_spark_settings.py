"""Drops configuration for delta-spark, which names classes of its JAR.

Without the JAR, Spark warns of the session extension, and fails every query through the catalog.
Programs that switch from delta-spark keep these settings, so they are dropped here.

>>> without_delta_spark({"spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,mine.X"})
{'spark.sql.extensions': 'mine.X'}
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakSet

from pyspark.sql import SparkSession

from pyspark_delta.spark.jvm.gateway import SESSION_CATALOG_KEY, JvmSession
from pyspark_delta.spark.jvm.hadoop.conf import class_location, forget_conf

EXTENSIONS = "spark.sql.extensions"
PACKAGES = "spark.jars.packages"
_EXTENSION_CLASS = "io.delta.sql.DeltaSparkSessionExtension"
_CATALOG_CLASS = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_ARTIFACTS = ("core", "spark", "storage", "contribs", "iceberg", "hudi", "connect")
# Comma-separated lists, and the prefixes of delta-spark's items in them.
_LISTS = {
    EXTENSIONS: (_EXTENSION_CLASS,),
    PACKAGES: tuple(f"io.delta:delta-{artifact}" for artifact in _ARTIFACTS),
}
# Settings by which a JAR gets to a driver, and delta-spark's JAR in them: a path or coordinates.
_JAR_SETTINGS = ("spark.jars", PACKAGES, "spark.driver.extraClassPath")
_JAR = re.compile(r"\bdelta-(spark|core)_[\d.]")
# The drivers with that JAR.
_WARNED: WeakSet[Any] = WeakSet()

logger = logging.getLogger(__name__)


def without_delta_spark(options: Mapping[str, Any]) -> dict[str, Any]:
    """A builder's options without delta-spark's; other extensions and packages stay."""
    kept = dict(options)
    if is_delta_spark_catalog(SESSION_CATALOG_KEY, kept.get(SESSION_CATALOG_KEY)):
        _drop(kept, SESSION_CATALOG_KEY, kept[SESSION_CATALOG_KEY])
    for key, theirs in _LISTS.items():
        items = [item.strip() for item in str(kept.get(key, "")).split(",")]
        rest = [item for item in items if not item.startswith(theirs)]
        if len(rest) < len(items):
            _drop(kept, key, ",".join(item for item in items if item not in rest))
            if rest:
                kept[key] = ",".join(rest)
    return kept


def is_delta_spark_catalog(key: str, value: object) -> bool:
    """Whether a setting makes delta-spark's catalog the session catalog."""
    return key == SESSION_CATALOG_KEY and value == _CATALOG_CLASS


def names_delta_spark(spark: SparkSession) -> bool:
    """Whether the session is configured for delta-spark, as by spark-defaults.conf."""
    return spark.conf.get(SESSION_CATALOG_KEY, None) == _CATALOG_CLASS or _EXTENSION_CLASS in (
        spark.conf.get(EXTENSIONS, None) or ""
    )


def names_jar(setting: Callable[[str], str]) -> bool:
    """Whether settings bring delta-spark's JAR: the session is delta-spark's then."""
    return any(_JAR.search(setting(key)) for key in _JAR_SETTINGS)


def has_jar(spark: SparkSession) -> bool:
    """Whether delta-spark's JAR is on the class path of the session's driver."""
    return class_location(JvmSession(spark), _EXTENSION_CLASS) is not None


def drop_delta_spark_catalog(spark: SparkSession) -> Callable[[], None]:
    """Restore Spark's own catalog in a running session; call the result to undo it.

    Spark rejects SHOW PARTITIONS, ANALYZE and more for all tables while another is configured.
    """
    if spark.conf.get(SESSION_CATALOG_KEY, None) != _CATALOG_CLASS:
        return lambda: None
    restore = forget_conf(JvmSession(spark), SESSION_CATALOG_KEY)
    log_dropped(SESSION_CATALOG_KEY, _CATALOG_CLASS)
    return restore


def warn_of_delta_spark_jar(spark: SparkSession) -> None:
    """Warn once if delta-spark's JAR is on the driver's class path, which has one Delta engine."""
    jvm = JvmSession(spark)
    if jvm.gateway in _WARNED:
        return
    location = class_location(jvm, _EXTENSION_CLASS)
    if location is not None:
        _WARNED.add(jvm.gateway)
        warnings.warn(
            f"delta-spark's JAR is on the class path, at {location}, but pyspark_delta reads and "
            "writes the Delta tables of this driver and needs no JAR: remove it from spark.jars, "
            "spark.jars.packages, the driver's class path and SPARK_HOME/jars.",
            stacklevel=4,
        )


def log_dropped(key: str, value: object) -> None:
    """Log that a setting is not applied."""
    logger.info("%s=%s is dropped: pyspark_delta needs no class of delta-spark.", key, value)


def _drop(options: dict[str, Any], key: str, value: object) -> None:
    del options[key]
    log_dropped(key, value)
