"""CREATE and REPLACE TABLE, with or without a query, where the table is Delta's."""

from __future__ import annotations

import re
from dataclasses import replace

from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.errors.table import OperationNotAllowedError
from pyspark_delta.spark.catalog import TableName, look_up
from pyspark_delta.spark.commands.create_table import TableDefinition, run_create_table
from pyspark_delta.spark.jvm.analysis_errors import analysis_error
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parser import Query, TableStatement, parse_table_statement
from pyspark_delta.spark.jvm.plans import empty_frame
from pyspark_delta.spark.sql.column_metadata import delta_columns
from pyspark_delta.spark.sql.like import run_like
from pyspark_delta.spark.sql.requests import Request, query_rows
from pyspark_delta.spark.table_writes import TableRows, TableVerb, make_table

_LIKE = re.compile(r"\bLIKE\b", re.IGNORECASE)
DEFAULT_SOURCE = "spark.sql.sources.default"


def run_define(request: Request) -> DataFrame | None:
    """CREATE or REPLACE TABLE, where the provider says that it is a Delta table."""
    spark = request.spark
    if _LIKE.search(request.sql):
        made = run_like(request)
        if made is not None:
            return made
    default = (spark.conf.get(DEFAULT_SOURCE) or "").lower()
    if "delta" not in request.sql.lower() and default != "delta":
        return None
    try:
        statement = parse_table_statement(JvmSession(spark), request.sql)
    except ParseException:
        return None  # Spark says better what is wrong with it
    if statement is None or (statement.provider or default).lower() != "delta":
        return None
    name = look_up(spark, statement.name)
    if name is None:
        return None
    _check_supported(spark, name, statement)
    statement = _with_options(statement)
    if statement.query is not None:
        _define_from_query(request, name, statement, statement.query)
    else:
        run_create_table(
            spark,
            TableDefinition(
                name=name,
                schema=delta_columns(statement.schema),
                partition_by=statement.partition_by,
                cluster_by=statement.cluster_by,
                location=statement.location,
                comment=statement.comment,
                properties=statement.properties,
                creates=statement.creates,
                replaces=statement.replaces,
                if_not_exists=statement.if_not_exists,
            ),
        )
    return empty_frame(JvmSession(spark))


def _define_from_query(
    request: Request, name: TableName, statement: TableStatement, query: Query
) -> None:
    if statement.if_not_exists and name.entry is not None:
        return
    verb: TableVerb = "create"
    if statement.replaces:
        verb = "create or replace" if statement.creates else "replace"
    rows = TableRows(
        data=query_rows(request, query),
        partition_by=statement.partition_by,
        cluster_by=tuple(".".join(path) for path in statement.cluster_by),
        location=statement.location,
        comment=statement.comment,
        properties=statement.properties,
    )
    make_table(request.spark, name, rows, verb)


def _with_options(statement: TableStatement) -> TableStatement:
    """OPTIONS are properties too, under two keys, but for the path, which is the location."""
    options = dict(statement.options)
    path = next((key for key in options if key.lower() == "path"), None)
    location = statement.location if path is None else options.pop(path)
    options |= {f"option.{key}": value for key, value in options.items()}
    return replace(statement, location=location, properties={**options, **statement.properties})


def _check_supported(spark: SparkSession, name: TableName, statement: TableStatement) -> None:
    if statement.transforms:
        operation = "Partitioning by expressions"
        raise OperationNotAllowedError("DELTA_OPERATION_NOT_ALLOWED", operation=operation)
    if statement.has_buckets:
        raise OperationNotAllowedError(
            "DELTA_OPERATION_NOT_ALLOWED_DETAIL", operation="Bucketing", tableName=name.shown
        )
    if statement.has_constraints:
        shown = ".".join(f"`{part}`" for part in statement.name)
        raise analysis_error(
            JvmSession(spark),
            "UNSUPPORTED_FEATURE.TABLE_OPERATION",
            tableName=shown,
            operation="table constraint",
        )
