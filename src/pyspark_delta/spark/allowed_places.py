"""Places outside of a table whose files a session lets the table's log name.

A log is somebody else's text: by itself it may only lead into its own table.  Tables with files
elsewhere (partitions of a converted catalog table, a shallow clone) need the word of the session,
or of the catalog, which then becomes the session's.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import SparkSession

from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.spark.table_access import open_log

ALLOWED = "spark.pyspark_delta.allowedLocations"
"""The setting: locations, separated by commas."""


def allowed_stores(spark: SparkSession) -> tuple[LogStore, ...]:
    """The places that the session allows."""
    return tuple(open_log(spark, location).store for location in _allowed(spark))


def allow_places(spark: SparkSession, locations: Iterable[str]) -> None:
    """Let the session's tables name files in these places as well."""
    asked = dict.fromkeys(locations)
    if not asked:
        return
    known = _allowed(spark)
    new = [location for location in asked if location not in known]
    if new:
        spark.conf.set(ALLOWED, ",".join([*known, *new]))


def _allowed(spark: SparkSession) -> list[str]:
    given = spark.conf.get(ALLOWED, "") or ""
    return [each.strip() for each in given.split(",") if each.strip()]
