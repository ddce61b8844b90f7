"""CREATE and REPLACE TABLE, with or without a query, where the table is Delta's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from uuid import uuid4

from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.errors.table import OperationNotAllowedError
from pyspark_delta.kernel.protocol.constraints import with_constraint
from pyspark_delta.spark.catalog import TableName, look_up
from pyspark_delta.spark.commands.create_table import TableDefinition, run_create_table
from pyspark_delta.spark.jvm.analysis_errors import analysis_error
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.new_columns import check_new_columns
from pyspark_delta.spark.jvm.parser import TableStatement, parse_table_statement
from pyspark_delta.spark.jvm.plans import empty_frame
from pyspark_delta.spark.sql.check_text import check_text
from pyspark_delta.spark.sql.column_metadata import delta_columns
from pyspark_delta.spark.sql.like import run_like
from pyspark_delta.spark.sql.requests import Request, resolvable
from pyspark_delta.spark.table_sql import TableSql, check_new_generated_columns, new_check
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
    _check_supported(name, statement)
    statement = _with_checks(spark, _with_options(statement))
    if statement.query is not None:
        _define_from_query(request, name, statement)
    else:
        schema = delta_columns(statement.schema)
        check_new_generated_columns(JvmSession(spark), schema)
        run_create_table(
            spark,
            TableDefinition(
                name=name,
                schema=schema,
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


def _define_from_query(request: Request, name: TableName, statement: TableStatement) -> None:
    data = _rows(request)
    if statement.if_not_exists and name.entry is not None:
        check_new_columns(data)
        return
    verb: TableVerb = "create"
    if statement.replaces:
        verb = "create or replace" if statement.creates else "replace"
    rows = TableRows(
        data=data,
        partition_by=statement.partition_by,
        cluster_by=tuple(".".join(path) for path in statement.cluster_by),
        location=statement.location,
        comment=statement.comment,
        properties=statement.properties,
    )
    make_table(request.spark, name, rows, verb)


def _rows(request: Request) -> DataFrame:
    """The rows of the query, read once more with names that Spark can resolve."""
    jvm = JvmSession(request.spark)
    statement = parse_table_statement(jvm, resolvable(request.spark, request.sql))
    assert statement is not None
    assert statement.query is not None
    return statement.query.frame(jvm)


def _with_options(statement: TableStatement) -> TableStatement:
    """OPTIONS are properties too, under two keys, but for the path, which is the location."""
    options = dict(statement.options)
    path = next((key for key in options if key.lower() == "path"), None)
    location = statement.location if path is None else options.pop(path)
    options |= {f"option.{key}": value for key, value in options.items()}
    return replace(statement, location=location, properties={**options, **statement.properties})


def _with_checks(spark: SparkSession, statement: TableStatement) -> TableStatement:
    """CHECK constraints are properties.  delta-spark 4.4 refuses them here, as other kinds are."""
    jvm = JvmSession(spark)
    properties: Mapping[str, str | None] = statement.properties
    for each in statement.constraints:
        if each.text is None or each.characteristic:
            raise analysis_error(
                jvm,
                "UNSUPPORTED_FEATURE.TABLE_OPERATION",
                tableName=".".join(f"`{part}`" for part in statement.name),
                operation="table constraint",
            )
        name = each.name or f"{statement.name[-1]}_chk_{uuid4().hex[:7]}"
        text = check_text(each.text)
        properties = with_constraint(properties, name, text)
        new_check(jvm, delta_columns(statement.schema), TableSql(name=name, text=text))
    return replace(statement, properties={key: value or "" for key, value in properties.items()})


def _check_supported(name: TableName, statement: TableStatement) -> None:
    if statement.transforms:
        operation = "Partitioning by expressions"
        raise OperationNotAllowedError("DELTA_OPERATION_NOT_ALLOWED", operation=operation)
    if statement.has_buckets:
        raise OperationNotAllowedError(
            "DELTA_OPERATION_NOT_ALLOWED_DETAIL", operation="Bucketing", tableName=name.shown
        )
