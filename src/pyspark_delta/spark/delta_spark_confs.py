"""Configuration that programs for delta-spark carry, and that names classes of its JAR.

Without the JAR, Spark warns of the session extension, and fails every query over the catalog.
Whoever switches leaves these lines where they are, so they are dropped here.

>>> without_delta_spark({"spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,mine.X"})
{'spark.sql.extensions': 'mine.X'}
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import SparkSession

from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.hadoop_conf import class_location, forget_conf

EXTENSIONS = "spark.sql.extensions"
CATALOG = "spark.sql.catalog.spark_catalog"
PACKAGES = "spark.jars.packages"
_EXTENSION_CLASS = "io.delta.sql.DeltaSparkSessionExtension"
_CATALOG_CLASS = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_ARTIFACTS = ("core", "spark", "storage", "contribs", "iceberg", "hudi", "connect")
# Lists with commas, and how the items of delta-spark begin.
_LISTS = {
    EXTENSIONS: (_EXTENSION_CLASS,),
    PACKAGES: tuple(f"io.delta:delta-{artifact}" for artifact in _ARTIFACTS),
}

logger = logging.getLogger(__name__)


def without_delta_spark(options: Mapping[str, Any]) -> dict[str, Any]:
    """A builder's options without those of delta-spark; other extensions and packages stay."""
    kept = dict(options)
    if is_delta_spark_catalog(CATALOG, kept.get(CATALOG)):
        _drop(kept, CATALOG, kept[CATALOG])
    for key, theirs in _LISTS.items():
        items = [item.strip() for item in str(kept.get(key, "")).split(",")]
        rest = [item for item in items if not item.startswith(theirs)]
        if len(rest) < len(items):
            _drop(kept, key, ",".join(item for item in items if item not in rest))
            if rest:
                kept[key] = ",".join(rest)
    return kept


def is_delta_spark_catalog(key: str, value: object) -> bool:
    """Whether a setting makes delta-spark's catalog the session's."""
    return key == CATALOG and value == _CATALOG_CLASS


def names_delta_spark(spark: SparkSession) -> bool:
    """Whether the session was configured for delta-spark, as by spark-defaults.conf."""
    return spark.conf.get(CATALOG, None) == _CATALOG_CLASS or _EXTENSION_CLASS in (
        spark.conf.get(EXTENSIONS, None) or ""
    )


def drop_delta_spark_catalog(spark: SparkSession) -> Callable[[], None]:
    """Give a running session Spark's own catalog back; the result undoes that.

    Spark refuses SHOW PARTITIONS, ANALYZE and more for all tables while the setting names another.
    """
    if spark.conf.get(CATALOG, None) != _CATALOG_CLASS:
        return lambda: None
    restore = forget_conf(JvmSession(spark), CATALOG)
    log_dropped(CATALOG, _CATALOG_CLASS)
    return restore


def warn_of_delta_spark_jar(spark: SparkSession) -> None:
    """Warn where delta-spark's JAR is on the class path: a session has one engine for Delta."""
    location = class_location(JvmSession(spark), _EXTENSION_CLASS)
    if location is not None:
        warnings.warn(
            f"delta-spark's JAR is on the class path, at {location}. Delta tables of this session "
            "are read and written by pyspark_delta, which needs no JAR. Remove it from spark.jars, "
            "spark.jars.packages, the driver's class path and SPARK_HOME/jars.",
            stacklevel=4,
        )


def log_dropped(key: str, value: object) -> None:
    """Log that a setting is not applied."""
    logger.info("%s=%s is dropped: pyspark_delta needs no class of delta-spark.", key, value)


def _drop(options: dict[str, Any], key: str, value: object) -> None:
    del options[key]
    log_dropped(key, value)
