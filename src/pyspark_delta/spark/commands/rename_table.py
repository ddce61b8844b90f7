"""ALTER TABLE RENAME TO is Spark's to run; here is how it goes on where one was stopped.

A catalog moves the directory of a managed table, and then changes the name.  Who dies in between
leaves a name for nothing, and a directory that keeps the catalog from trying again.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from pyspark_delta.errors.table import TableNotFoundError
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.spark.catalog import TableName, look_up, shown_schema
from pyspark_delta.spark.jvm.catalog import default_location, entry_schema, move_directory
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.table_access import open_log


def undo_move(spark: SparkSession, table: TableName, new_name: Sequence[str]) -> None:
    """Move a table's directory back, where a rename to `new_name` moved it and did no more.

    Nothing happens to a table whose files are where the catalog says, nor where the new name is
    taken or what lies there is a table with other columns.
    """
    entry = table.entry
    if entry is None or not entry.is_managed or entry.location is None:
        return
    if _columns(spark, entry.location) is not None:
        return
    parts = tuple(new_name) if len(new_name) > 1 else (entry.database, *new_name)
    wanted = look_up(spark, parts)
    if wanted is None or wanted.path is not None or wanted.entry is not None:
        return
    jvm = JvmSession(spark)
    moved = default_location(jvm, wanted.database, wanted.table)
    if _columns(spark, moved) == entry_schema(entry):
        move_directory(jvm, moved, entry.location)


def _columns(spark: SparkSession, location: str) -> StructType | None:
    """The columns of the table at a location, as a catalog keeps them; None for no table."""
    try:
        return shown_schema(open_log(spark, location).update().metadata.schema)
    except TableNotFoundError:
        return None
