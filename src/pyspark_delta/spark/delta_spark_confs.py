"""Configuration that programs for delta-spark carry, and that names classes of its JAR.

Without the JAR, Spark warns of the session extension, and fails every query over the catalog.
Whoever switches leaves these lines where they are, so they are dropped here; with the JAR on the
class path they stay.

>>> without_delta_spark({"spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,mine.X"})
{'spark.sql.extensions': 'mine.X'}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.hadoop_conf import forget_conf, has_class

EXTENSIONS = "spark.sql.extensions"
CATALOG = "spark.sql.catalog.spark_catalog"
PACKAGES = "spark.jars.packages"
_CATALOG_CLASS = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
# Lists with commas, and how the items of delta-spark begin.
_LISTS = {
    EXTENSIONS: ("io.delta.sql.DeltaSparkSessionExtension",),
    PACKAGES: ("io.delta:delta-spark", "io.delta:delta-core", "io.delta:delta-storage"),
}


def without_delta_spark(options: Mapping[str, Any]) -> dict[str, Any]:
    """A builder's options without those of delta-spark; other extensions and packages stay."""
    kept = dict(options)
    if kept.get(CATALOG) == _CATALOG_CLASS:
        del kept[CATALOG]
    for key, theirs in _LISTS.items():
        if key in kept:
            listed = str(kept[key]).split(",")
            rest = [item.strip() for item in listed if not item.strip().startswith(theirs)]
            if len(rest) < len(listed):
                kept[key] = ",".join(rest)
                if not rest:
                    del kept[key]
    return kept


def drop_delta_spark_catalog(spark: SparkSession) -> None:
    """Give a running session Spark's own catalog back when the one it names does not exist."""
    if spark.conf.get(CATALOG, None) != _CATALOG_CLASS:
        return
    jvm = JvmSession(spark)
    if not has_class(jvm, _CATALOG_CLASS):
        forget_conf(jvm, CATALOG)
