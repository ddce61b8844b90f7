"""The table of VACUUM, OPTIMIZE, REORG and GENERATE: a path in quotes, delta.`path`, or a name.

What is no table, or none of Delta's, is refused as delta-spark does it, and with its names.
"""

from __future__ import annotations

from contextlib import suppress

from pyspark.sql import SparkSession

from pyspark_delta.errors.storage import StorageError
from pyspark_delta.errors.table import OperationNotAllowedError, TableNotFoundError
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.catalog import is_path_name, log_of
from pyspark_delta.spark.sql.targets import existing_table
from pyspark_delta.spark.table_access import ancestors, open_log

# This one deletes files, and a directory in a table is not all of it.
_ROOT_ONLY = "VACUUM"
_REORG = "REORG"


def optimized_table(spark: SparkSession, table: str | tuple[str, ...], verb: str) -> DeltaLog:
    """The log of the table; a path inside of a partition stands for the whole table.

    TableNotFoundError when there is none, Spark's own error for a name that means nothing.
    """
    if isinstance(table, str):
        found = log_above(spark, table)
        if found is None or (verb == _ROOT_ONLY and found[1]):
            raise _only(table, verb)
        return found[0]
    if is_path_name(table):
        return _log_at(spark, table[-1], verb)
    name = existing_table(spark, table, verb)
    if name.entry is not None and not name.is_delta:
        if verb == _REORG:
            shown = f"{name.entry.database}.{name.entry.table}"
            raise OperationNotAllowedError("DELTA_NOT_A_DELTA_TABLE", tableName=shown)
        raise OperationNotAllowedError("DELTA_ONLY_OPERATION", operation=verb)
    log = log_of(spark, name)
    if not log.table_exists:
        raise TableNotFoundError("DELTA_MISSING_DELTA_TABLE", tableName=name.shown)
    return log


def _log_at(spark: SparkSession, path: str, verb: str) -> DeltaLog:
    found = log_above(spark, path)
    if found is None:
        raise TableNotFoundError("DELTA_MISSING_DELTA_TABLE", tableName=f"`{path}`")
    log, is_above = found
    if is_above and verb == _ROOT_ONLY:
        raise _only(path, verb)
    return log


def log_above(spark: SparkSession, path: str) -> tuple[DeltaLog, bool] | None:
    """The log at a path, or of the table that the path is in, and which of the two it is."""
    log = open_log(spark, path)
    if log.table_exists:
        return log, False
    with suppress(StorageError):
        for place in ancestors(path):
            log = open_log(spark, place)
            if log.table_exists:
                return log, True
    return None


def _only(path: str, verb: str) -> TableNotFoundError:
    return TableNotFoundError("DELTA_TABLE_ONLY_OPERATION", tableName=f"`{path}`", operation=verb)
