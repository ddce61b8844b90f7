"""SHOW COLUMNS, PARTITIONS, TBLPROPERTIES and CREATE TABLE of a Delta table, from its log."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pyspark_delta.errors import OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.scan.predicates.literals import zone_named
from pyspark_delta.kernel.scan.skipping.files import partition_columns_table
from pyspark_delta.kernel.sql.quoting import quoted_name
from pyspark_delta.spark.conf.settings import session_zone
from pyspark_delta.spark.jvm.gateway import to_spark
from pyspark_delta.spark.jvm.parser.tables import ShowStatement
from pyspark_delta.spark.sql.statement import Command, Request
from pyspark_delta.spark.sql.statements.create_statement import TableWords, create_statement
from pyspark_delta.spark.sql.statements.describe import (
    delta_statement,
    newest,
    rows_command,
    text_columns,
)
from pyspark_delta.spark.tables.locations import hadoop_location
from pyspark_delta.spark.tables.names import TableName, listed_properties, logical_clustering


def show_command(request: Request) -> Command | None:
    """SHOW for a Delta table; None for any other."""
    found = delta_statement(request)
    if found is None:
        return None
    statement, table = found
    snapshot = newest(request.spark, table)
    match statement.kind:
        case "ShowColumns":
            names = [(name,) for name in snapshot.schema.names]
            return rows_command(request.spark, text_columns("col_name"), names)
        case "ShowPartitions":
            return _partitions(request, table, snapshot, statement)
        case "ShowTableProperties":
            return _properties(request, table, snapshot, statement.key)
        case "ShowCreateTable":
            return _create(request, table, snapshot, statement)
        case _:
            return None


def _partitions(
    request: Request, table: TableName, snapshot: Snapshot, statement: ShowStatement
) -> Command:
    """A row for each combination of partition values in files; columns have their own types."""
    schema = snapshot.metadata.partition_schema
    if not schema.fields:
        raise SchemaError("DELTA_SHOW_PARTITION_IN_NON_PARTITIONED_TABLE", tableName=table.label)
    bad = [name for name in statement.partition if name not in schema.names]
    if bad:
        raise SchemaError(
            "DELTA_SHOW_PARTITION_IN_NON_PARTITIONED_COLUMN", badCols=f"[{', '.join(bad)}]"
        )
    zone = zone_named(session_zone(request.spark))
    values = partition_columns_table(snapshot.files, snapshot.metadata, zone=zone)
    each = values.group_by(values.column_names).aggregate([])
    each = each.select(values.column_names).sort_by([(n, "ascending") for n in each.column_names])

    def run() -> DataFrame:
        frame = request.spark.createDataFrame(pa.table(each), schema=to_spark(schema))
        for name, value in statement.partition.items():
            frame = frame.where(F.col(quoted_name(name)).eqNullSafe(F.lit(value)))
        return frame

    return Command(run=run, schema=schema)


def _properties(request: Request, table: TableName, snapshot: Snapshot, key: str | None) -> Command:
    properties = listed_properties(snapshot)
    rows = list(properties.items())
    if key is not None:
        missing = f"Table {table.label} does not have property: {key}"
        rows = [(key, properties.get(key, missing))]
    return rows_command(request.spark, text_columns("key", "value"), rows)


def _create(
    request: Request, table: TableName, snapshot: Snapshot, statement: ShowStatement
) -> Command:
    if statement.as_serde:
        raise OperationNotAllowedError(
            "DELTA_OPERATION_NOT_ALLOWED_DETAIL",
            operation="SHOW CREATE TABLE AS SERDE",
            tableName=table.label,
        )
    entry = table.entry
    location = hadoop_location(snapshot.store.root_uri)
    words = TableWords(
        name=("delta", table.path or "") if entry is None else entry.parts,
        protocol=snapshot.protocol,
        metadata=snapshot.metadata,
        clustering=logical_clustering(snapshot),
        location=None if entry is None or entry.is_managed else location,
    )
    rows = [(create_statement(words),)]
    return rows_command(request.spark, text_columns("createtab_stmt"), rows)
