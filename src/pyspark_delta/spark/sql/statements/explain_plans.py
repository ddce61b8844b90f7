"""Plans of the rows of UPDATE, DELETE and MERGE for EXPLAIN; none is run.

Names are resolved and rules are checked as in the commands, so these raise the same errors.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession

from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.conf.settings import conf_of
from pyspark_delta.spark.dml.assignments import (
    Given,
    assigned_columns,
    parse_assignments,
    updated_rows,
)
from pyspark_delta.spark.dml.rows import dml_condition
from pyspark_delta.spark.files.stage import hidden_columns
from pyspark_delta.spark.files.write_options import WriteOptions
from pyspark_delta.spark.jvm.expressions.catalyst import Moment
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans.frames import Qualifier, named_rows
from pyspark_delta.spark.merge.columns import evolve
from pyspark_delta.spark.merge.join import MergeRows
from pyspark_delta.spark.merge.names import MergeNames, resolve_merge
from pyspark_delta.spark.merge.request import MergeRequest, check_clauses, is_insert_only
from pyspark_delta.spark.scan.frame import read_snapshot
from pyspark_delta.spark.scan.row_positions import located_rows


def plan_delete(
    spark: SparkSession, log: DeltaLog, condition: Column | None, alias: Qualifier
) -> DataFrame:
    """The rows that a DELETE would remove."""
    txn, snapshot = _start(log)
    rows = named_rows(read_snapshot(spark, snapshot), alias)
    if condition is None:
        return rows
    asked = WriteOptions.parse({}, conf_of(spark))
    where = dml_condition(
        JvmSession(spark), txn, condition, "DELETE", alias, allows_exists=asked.allows_exists
    )
    return rows.where(where.column)


def plan_update(
    spark: SparkSession, log: DeltaLog, given: Given, condition: Column | None, alias: Qualifier
) -> DataFrame:
    """The rows that an UPDATE would change, with their new values."""
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
    """The join of the source with the table, and its new rows."""
    check_clauses(request.clauses)
    jvm = JvmSession(spark)
    txn, snapshot = _start(log)
    names = MergeNames(
        jvm=jvm,
        txn=txn,
        request=request,
        options=WriteOptions.parse({}, conf_of(spark)),
        source=request.source,
        target=located_rows(jvm, txn, snapshot.adds).frame,
        has_old_values=False,
        moment=Moment(jvm),
    )
    resolution = resolve_merge(names)
    evolve(txn, resolution.schema)
    rows = MergeRows(names=names, resolution=resolution, hidden=hidden_columns(txn))
    return rows.inserted() if is_insert_only(request.clauses) else rows.joined(snapshot.num_files)


def _start(log: DeltaLog) -> tuple[OptimisticTransaction, Snapshot]:
    txn = log.start_transaction()
    assert txn.snapshot is not None  # the caller has found the table
    return txn, txn.snapshot
