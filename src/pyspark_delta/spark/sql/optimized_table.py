"""The table of OPTIMIZE and REORG: a path in quotes, delta.`path`, or a name of the catalog."""

from __future__ import annotations

from pyspark.sql import SparkSession

from pyspark_delta.errors.table import TableNotFoundError
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.catalog import log_of, resolve_table
from pyspark_delta.spark.table_access import open_log


def optimized_table(spark: SparkSession, table: str | tuple[str, ...], verb: str) -> DeltaLog:
    """The log of the table; TableNotFoundError when there is none."""
    if isinstance(table, str):
        log = open_log(spark, table)
        shown = f"`{table}`"
        condition = "DELTA_TABLE_ONLY_OPERATION"
    else:
        name = resolve_table(spark, table)
        log = log_of(spark, name)
        shown = f"`{name.path}`" if name.path is not None else name.shown
        condition = "DELTA_MISSING_DELTA_TABLE"
    if not log.table_exists:
        told = {"operation": verb} if condition == "DELTA_TABLE_ONLY_OPERATION" else {}
        raise TableNotFoundError(condition, tableName=shown, **told)
    return log
