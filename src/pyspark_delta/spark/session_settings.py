"""What a session's settings mean for its commits, and a warning for those without an effect."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from pyspark_delta.kernel.txn.commit import DEFAULT_ATTEMPTS, CommitSettings
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.settings import all_settings
from pyspark_delta.spark.settings import (
    CHECKPOINT_PART_SIZE,
    HISTORY_METRICS,
    HONOURED,
    MAX_COMMIT_ATTEMPTS,
    NOT_HONOURED,
    WRITE_CHECKSUM,
    row_of,
)

logger = logging.getLogger(__name__)

_DELTA = "spark.databricks.delta."
_WARNED: WeakKeyDictionary[SparkSession, set[str]] = WeakKeyDictionary()


def commit_settings(spark: SparkSession) -> CommitSettings:
    """What the session says about its commits; a warning for keys that have no effect."""
    found = all_settings(JvmSession(spark))
    warn_of_unused(spark, found)
    attempts = MAX_COMMIT_ATTEMPTS.parsed(found.get(MAX_COMMIT_ATTEMPTS.key))
    return CommitSettings(
        attempts=DEFAULT_ATTEMPTS if attempts is None else attempts,
        checkpoint_part_size=CHECKPOINT_PART_SIZE.parsed(found.get(CHECKPOINT_PART_SIZE.key)),
        records_metrics=HISTORY_METRICS.parsed(found.get(HISTORY_METRICS.key)) is not False,
        writes_checksum=WRITE_CHECKSUM.parsed(found.get(WRITE_CHECKSUM.key)) is not False,
    )


def warn_of_unused(spark: SparkSession, keys: Iterable[str] | None = None) -> None:
    """Log a warning, once for each session and key, for settings that have no effect."""
    warned = _WARNED.setdefault(spark, set())
    for key in sorted(all_settings(JvmSession(spark)) if keys is None else keys):
        if not key.startswith(_DELTA) or key in warned or row_of(key, HONOURED) is not None:
            continue
        warned.add(key)
        row = row_of(key, NOT_HONOURED)
        why = "it is not known" if row is None else row.not_honoured
        logger.warning("the setting %s has no effect: %s", key, why)
