"""Row tracking on a table that exists: every file gets its row ids before readers rely on them.

What a session says of it; the commits are made by `kernel.ops.row_tracking_backfill`.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from pyspark_delta.errors.table import OperationNotAllowedError, PropertyError
from pyspark_delta.kernel.ops.row_tracking_backfill import (
    FILES_PER_COMMIT,
    enables_row_tracking,
    prepare_row_tracking,
)
from pyspark_delta.kernel.protocol.property_kinds import whole
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.allowed_places import allowed_stores

_DELTA = "spark.databricks.delta."
_ENABLED_CONF = f"{_DELTA}rowTracking.backfill.enabled"
_FILES_CONFS = (f"{_DELTA}backfill.maxNumFiles", f"{_DELTA}rowTracking.backfill.maxNumFiles")


def enable_row_tracking(spark: SparkSession, log: DeltaLog, changes: Mapping[str, str]) -> None:
    """Number the rows of a table, where properties that are about to be set ask for that.

    For SET TBLPROPERTIES, before its own transaction starts; other properties need nothing.
    """
    if not enables_row_tracking(changes):
        prepare_row_tracking(log, changes)
        return
    if (spark.conf.get(_ENABLED_CONF, None) or "true").lower() == "false":
        raise OperationNotAllowedError(
            "DELTA_OPERATION_NOT_ALLOWED",
            operation=f"Row tracking on a table that exists while {_ENABLED_CONF} is false",
        )
    prepare_row_tracking(
        log,
        changes,
        most_files=files_per_commit(spark),
        locations=Locations(log.store, allowed_stores(spark)),
    )


def files_per_commit(spark: SparkSession) -> int:
    """How many files a commit that gives or takes row ids may hold."""
    kind = whole(1)
    for key in _FILES_CONFS:
        text = spark.conf.get(key, None)
        if text is not None:
            try:
                return kind.parse(text)
            except ValueError:
                raise PropertyError(
                    "DELTA_ILLEGAL_OPTION", name=key, input=text, explain=kind.needs
                ) from None
    return FILES_PER_COMMIT
