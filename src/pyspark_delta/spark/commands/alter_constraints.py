"""ALTER TABLE ADD and DROP CONSTRAINT: CHECK conditions that every row must make true."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession

from pyspark_delta.errors.table import ConstraintError
from pyspark_delta.kernel.protocol.constraints import (
    ASSUME_DROP_IF_EXISTS,
    check_constraints,
    with_constraint,
    without_constraint,
)
from pyspark_delta.kernel.protocol.operations import add_constraint, drop_constraint
from pyspark_delta.spark.catalog import TableName
from pyspark_delta.spark.commands.alter_table import Alteration
from pyspark_delta.spark.reader import read_snapshot
from pyspark_delta.spark.table_sql import TableSql, new_check


def run_add_constraint(spark: SparkSession, table: TableName, name: str, text: str) -> None:
    """Add a CHECK constraint, if every row of the table satisfies it."""
    alteration = Alteration.start(spark, table)
    metadata = alteration.metadata
    configuration = with_constraint(metadata.configuration, name, text)
    condition = new_check(alteration.jvm, alteration.schema, TableSql(name=name, text=text))
    alteration.txn.filter_files()
    rows = read_snapshot(spark, alteration.snapshot)
    is_kept = condition.column
    count = rows.where(~is_kept | is_kept.isNull()).count()
    if count:
        raise ConstraintError(
            "DELTA_NEW_CHECK_CONSTRAINT_VIOLATION",
            numRows=count,
            tableName=table.shown,
            checkConstraint=text,
        )
    new = replace(metadata, configuration=configuration)
    alteration.commit(new, add_constraint(name, text))


def run_drop_constraint(
    spark: SparkSession, table: TableName, name: str, *, if_exists: bool = False
) -> None:
    """Drop a CHECK constraint."""
    alteration = Alteration.start(spark, table)
    metadata = alteration.metadata
    known = {
        each.name.lower(): each.expression for each in check_constraints(metadata.configuration)
    }
    configuration = without_constraint(
        metadata.configuration,
        name,
        if_exists=if_exists or alteration.setting(ASSUME_DROP_IF_EXISTS, False),
        table=table.shown,
    )
    new = replace(metadata, configuration=configuration)
    alteration.commit(new, drop_constraint(name, known.get(name.lower())))
