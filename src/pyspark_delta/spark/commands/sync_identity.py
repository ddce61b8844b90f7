"""ALTER COLUMN SYNC IDENTITY: let an identity column go on behind the values that rows have."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_delta.errors.table import OperationNotAllowedError
from pyspark_delta.kernel.ops.column_paths import find_column
from pyspark_delta.kernel.protocol.identity_columns import identity_info, is_identity, synced
from pyspark_delta.kernel.protocol.operations import change_column
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.spark.catalog import TableName
from pyspark_delta.spark.column_alignment import column
from pyspark_delta.spark.commands.alter_table import Alteration
from pyspark_delta.spark.reader import read_snapshot

_ALLOW_LOWERING = (
    "spark.databricks.delta.identityColumn.allowSyncIdentityToLowerHighWaterMark.enabled"
)


def run_sync_identity(spark: SparkSession, table: TableName, path: Sequence[str]) -> None:
    """Move the column's mark to the largest value there is, the smallest for a negative step."""
    alteration = Alteration.start(spark, table)
    found = find_column(alteration.schema, path)
    if len(found.path) > 1 or not is_identity(found.field):
        raise OperationNotAllowedError("DELTA_IDENTITY_COLUMNS_ALTER_NON_IDENTITY_COLUMN")
    alteration.txn.read_whole_table()
    rows = read_snapshot(spark, alteration.snapshot)
    furthest = F.max if identity_info(found.field).step > 0 else F.min
    row = rows.agg(furthest(column(found.field.name))).head()
    extreme = None if row is None else row[0]
    new = synced(found.field, extreme, allow_lowering=alteration.setting(_ALLOW_LOWERING, False))
    schema = StructType(tuple(new if f.name == new.name else f for f in alteration.schema))
    alteration.commit_schema(schema, change_column((), found.field))
