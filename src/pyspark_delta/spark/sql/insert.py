"""INSERT INTO and INSERT OVERWRITE a Delta table."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame

from pyspark_delta.errors.table import OperationNotAllowedError
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parser import parse_insert
from pyspark_delta.spark.jvm.plans import empty_frame
from pyspark_delta.spark.options import DeltaOptions
from pyspark_delta.spark.sql.requests import Request, delta_target, query_rows
from pyspark_delta.spark.table_writes import TableRows, insert_rows


def run_insert(request: Request) -> DataFrame | None:
    """Write the rows of a query or of VALUES; None when the table is not Delta's."""
    name = delta_target(request)
    if name is None:
        return None
    statement = parse_insert(JvmSession(request.spark), request.sql)
    if statement is None:
        return None
    if statement.partitions or statement.has_criteria:
        what = "INSERT with PARTITION" if statement.partitions else "INSERT with REPLACE"
        raise OperationNotAllowedError("DELTA_OPERATION_NOT_ALLOWED", operation=what)
    rows = TableRows(data=query_rows(request, statement.query))
    if statement.columns:
        rows = replace(rows, data=rows.data.toDF(*statement.columns))
    if statement.evolves_schema:
        rows = replace(rows, options=DeltaOptions({"mergeSchema": "true"}))
    by_position = not (statement.by_name or statement.columns)
    insert_rows(request.spark, name, rows, overwrite=statement.overwrite, by_position=by_position)
    return empty_frame(JvmSession(request.spark))
