"""MERGE into a table by its name: what expressions may call it, and what the catalog is told."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession

from pyspark_delta.spark.catalog import TableName, log_of, show_columns
from pyspark_delta.spark.commands.merge import MergeResult, run_merge
from pyspark_delta.spark.commands.merge_request import MergeRequest


def merge_into(spark: SparkSession, table: TableName, request: MergeRequest) -> MergeResult:
    """Run a MERGE; expressions may call the table by its name, unless it has another there."""
    if not request.called:
        request = replace(request, called=names_of(table))
    result = run_merge(spark, log_of(spark, table), request)
    if result.has_new_schema:
        show_columns(spark, table)
    return result


def names_of(table: TableName) -> tuple[str, ...]:
    """The parts of a table's whole name; none for one that is only known by its path."""
    return () if table.entry is None else table.entry.parts
