"""The rows that UPDATE, DELETE and MERGE would work on, for EXPLAIN: plans, of which none is run.

Names are looked up and rules are checked as the commands do it, so what these refuse is refused.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession

from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.commands.dml_assignments import (
    Given,
    assigned_columns,
    parse_assignments,
    updated_rows,
)
from pyspark_delta.spark.commands.dml_rows import dml_condition
from pyspark_delta.spark.commands.merge_clauses import check_clauses, is_insert_only
from pyspark_delta.spark.commands.merge_join import MergeRows
from pyspark_delta.spark.commands.merge_request import MergeRequest
from pyspark_delta.spark.commands.merge_resolution import MergeNames, resolve_merge
from pyspark_delta.spark.commands.merge_targets import evolve
from pyspark_delta.spark.commands.replaced_rows import hidden_columns
from pyspark_delta.spark.commands.write_options import WriteOptions
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.moments import Moment
from pyspark_delta.spark.jvm.named_rows import Called, named_rows
from pyspark_delta.spark.located_rows import located_rows
from pyspark_delta.spark.reader import read_snapshot


def plan_delete(
    spark: SparkSession, log: DeltaLog, condition: Column | None, alias: Called
) -> DataFrame:
    """The rows that would go."""
    txn, snapshot = _start(log)
    rows = named_rows(read_snapshot(spark, snapshot), alias)
    if condition is None:
        return rows
    asked = WriteOptions.parse({}, lambda key: spark.conf.get(key, None))
    where = dml_condition(
        JvmSession(spark), txn, condition, "DELETE", alias, allows_exists=asked.allows_exists
    )
    return rows.where(where.column)


def plan_update(
    spark: SparkSession, log: DeltaLog, given: Given, condition: Column | None, alias: Called
) -> DataFrame:
    """The rows that would be updated by a statement, with their new values."""
    jvm = JvmSession(spark)
    txn, snapshot = _start(log)
    rows = named_rows(read_snapshot(spark, snapshot), alias)
    assignments = parse_assignments(jvm, given, txn.schema, alias)
    if condition is not None:
        rows = rows.where(dml_condition(jvm, txn, condition, "UPDATE", alias).column)
    values = assigned_columns(
        jvm, rows, txn.metadata, txn.protocol, assignments, structs_by_name=True
    )
    return updated_rows(jvm, rows, txn.metadata, txn.protocol, values.columns, hidden=StructType())


def plan_merge(spark: SparkSession, log: DeltaLog, request: MergeRequest) -> DataFrame:
    """The join of the source with the table, and what becomes of its rows."""
    check_clauses(request.clauses)
    jvm = JvmSession(spark)
    asked = WriteOptions.parse({}, lambda key: spark.conf.get(key, None))
    txn, snapshot = _start(log)
    names = MergeNames(
        jvm=jvm,
        txn=txn,
        source=request.source,
        target=located_rows(jvm, txn, snapshot.adds).frame,
        called=request.called,
        evolves=request.evolves or asked.merges_schema,
        widening=asked.widening,
        tells_before=False,
        moment=Moment(jvm),
        own_columns=request.own_columns,
    )
    resolution = resolve_merge(names, request.condition, request.clauses)
    evolve(txn, resolution.schema)
    rows = MergeRows(
        jvm=jvm, txn=txn, resolution=resolution, hidden=hidden_columns(txn), tells_before=False
    )
    return rows.inserted() if is_insert_only(request.clauses) else rows.joined(snapshot.num_files)


def _start(log: DeltaLog) -> tuple[OptimisticTransaction, Snapshot]:
    txn = log.start_transaction()
    assert txn.snapshot is not None  # the caller has found the table
    return txn, txn.snapshot
