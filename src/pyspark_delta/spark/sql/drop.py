"""DROP TABLE: Spark drops the tables of its catalog, files of managed ones included.

A table by its path is in no catalog.  As with delta-spark, dropping it is no error and changes
nothing: whose files they are, nobody said.
"""

from __future__ import annotations

import logging

from pyspark.sql import DataFrame

from pyspark_delta.errors.table import TableNotFoundError
from pyspark_delta.kernel.ops.creation_note import forget_creation_note
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.catalog import log_of
from pyspark_delta.spark.jvm.analysis_errors import analysis_error
from pyspark_delta.spark.jvm.catalog import drop_entry
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans import empty_frame
from pyspark_delta.spark.sql.grammar import StatementReader
from pyspark_delta.spark.sql.requests import Request, delta_target

logger = logging.getLogger(__name__)


def run_drop(request: Request) -> DataFrame | None:
    """None where Spark is to do it; it looks at a table first, and a log may be gone."""
    name = delta_target(request)
    if name is None:
        return None
    jvm = JvmSession(request.spark)
    log = log_of(request.spark, name)
    is_there = _has_log(log)
    if name.entry is not None:
        if is_there:
            # A table whose files stay is no longer one that is being made.
            forget_creation_note(log.store)
            return None
        drop_entry(jvm, name.entry)
        return empty_frame(jvm)
    if is_there:
        logger.warning("DROP TABLE leaves %s as it is: a path is in no catalog", name.shown)
    elif not _tolerates_absence(request.sql):
        shown = f"`spark_catalog`.`delta`.`{name.path}`"
        place = "[`spark_catalog`.`delta`]"
        raise analysis_error(jvm, "TABLE_OR_VIEW_NOT_FOUND", relationName=shown, searchPath=place)
    return empty_frame(jvm)


def _has_log(log: DeltaLog) -> bool:
    try:
        log.update()
    except TableNotFoundError:
        return False
    return True


def _tolerates_absence(sql: str) -> bool:
    read = StatementReader(sql)
    read.expect("DROP", "TABLE")
    return read.takes("IF", "EXISTS")
