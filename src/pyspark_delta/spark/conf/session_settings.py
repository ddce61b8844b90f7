"""Settings of a session for its commits, and a warning for settings without an effect."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from pyspark_delta.kernel.txn.commit import CommitSettings
from pyspark_delta.spark.conf.setting_table import (
    CHECKPOINT_PART_SIZE,
    HISTORY_METRICS,
    HONOURED,
    MAX_COMMIT_ATTEMPTS,
    NOT_HONOURED,
    STATS_SKIPPING,
    WRITE_CHECKSUM,
)
from pyspark_delta.spark.conf.settings import DELTA_PREFIX, row_of
from pyspark_delta.spark.jvm.gateway import JvmSession, all_settings

logger = logging.getLogger(__name__)
_WARNED: WeakKeyDictionary[SparkSession, set[str]] = WeakKeyDictionary()


def commit_settings(spark: SparkSession) -> CommitSettings:
    """The session's settings for its commits; logs a warning for keys that have no effect."""
    found = all_settings(JvmSession(spark))
    warn_of_unused(spark, found)
    return CommitSettings(
        attempts=MAX_COMMIT_ATTEMPTS.by(found.get),
        checkpoint_part_size=CHECKPOINT_PART_SIZE.by(found.get),
        records_metrics=HISTORY_METRICS.by(found.get),
        writes_checksum=WRITE_CHECKSUM.by(found.get),
        skips_by_stats=STATS_SKIPPING.by(found.get),
    )


def warn_of_unused(spark: SparkSession, keys: Iterable[str] | None = None) -> None:
    """Log a warning, once for each session and key, for settings that have no effect."""
    warned = _WARNED.setdefault(spark, set())
    for key in sorted(all_settings(JvmSession(spark)) if keys is None else keys):
        if not key.startswith(DELTA_PREFIX) or key in warned or row_of(key, HONOURED) is not None:
            continue
        warned.add(key)
        row = row_of(key, NOT_HONOURED)
        why = "it is not known" if row is None else row.reason
        logger.warning("the setting %s has no effect: %s", key, why)
