"""Which rows of a table an overwrite takes away: all, whole partitions, or those of a condition.

Files that lose all of their rows are removed as they are; of the others, the rows that stay are
written anew, or those that go are named by a vector (`overwritten_rows` finds them).  A condition
on partition columns alone is answered by the log, without a job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_delta.errors.table import OperationNotAllowedError
from pyspark_delta.kernel.log.frames import ADD_SCHEMA, add_files, add_table
from pyspark_delta.kernel.ops.bin_packing import partition_numbers
from pyspark_delta.kernel.protocol.actions import Action, AddFile
from pyspark_delta.kernel.protocol.row_tracking import is_enabled as has_row_tracking
from pyspark_delta.kernel.protocol.row_tracking import materialized_columns
from pyspark_delta.kernel.protocol.types import LONG, StructField, StructType
from pyspark_delta.kernel.scan.binding import BoundPredicate, bind
from pyspark_delta.kernel.scan.evaluation import evaluate
from pyspark_delta.kernel.scan.literals import zone_named
from pyspark_delta.kernel.scan.partitions import partition_columns_table
from pyspark_delta.kernel.scan.plan import chosen_adds
from pyspark_delta.kernel.scan.predicates import (
    FALSE,
    IsNull,
    Predicate,
    compare,
    conjunction,
    disjunction,
)
from pyspark_delta.kernel.scan.predicates import Column as Named
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.chosen_rows import chosen_rows
from pyspark_delta.spark.expressions import predicate_of
from pyspark_delta.spark.jvm.conditions import Condition, resolved_condition
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.named_rows import Called, named_rows
from pyspark_delta.spark.reader import session_zone

# So many partitions are named to those who check for conflicts; more mean the whole table.
_MOST_NAMED_PARTITIONS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """What an overwrite takes away.

    `files` go as a whole or lose some rows; `kept` are the rows of the latter that stay, None
    when there are none.  `vectors` are the actions that put vectors on other files, which stay.
    `deleted` are the rows that go, None when files and vectors tell all there is to know of them.
    `num_rows` counts them, None when nobody knows; `num_kept` counts those of `kept`.
    """

    files: tuple[AddFile, ...] = ()
    vectors: tuple[Action, ...] = ()
    kept: DataFrame | None = field(default=None, hash=False)
    deleted: DataFrame | None = field(default=None, hash=False)
    num_rows: int | None = 0
    num_kept: int = 0

    @property
    def marked(self) -> list[AddFile]:
        """The files that stay and lose rows, as they are with their new vectors."""
        return [action for action in self.vectors if isinstance(action, AddFile)]

    def actions(self, now_ms: int, *, data_change: bool) -> list[Action]:
        """What takes the rows out of the table."""
        gone = [file.remove(now_ms, data_change=data_change) for file in self.files]
        return [*gone, *self.vectors]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCondition:
    """A condition on rows of the table as it is looked at from all sides.

    `bound` is what the log can make of it, over the table's own names.
    """

    column: Column = field(hash=False)
    resolved: Condition
    bound: BoundPredicate

    def names_only(self, columns: Sequence[str]) -> bool:
        """Whether it looks at no other columns than these, however it spells their names."""
        if self.resolved.has_subquery:
            return False  # it looks at other tables
        known = {name.lower() for name in columns}
        return all(name.lower() in known for name in self.resolved.columns)


def whole_table(txn: OptimisticTransaction) -> Replaced:
    """Every row."""
    files = tuple(add_files(txn.filter_files()))
    return Replaced(files=files, num_rows=num_live_rows(files))


def row_condition(
    jvm: JvmSession,
    txn: OptimisticTransaction,
    condition: Column,
    *,
    operation: str,
    alias: Called,
    allows_exists: bool = False,
) -> RowCondition:
    """A condition on the table's columns; Spark's AnalysisException when it makes no sense.

    `alias` is what it calls the table, `operation` what an error says that it is for.  Of
    subqueries it may hold those of EXISTS, with `allows_exists`.
    """
    metadata = txn.metadata
    zone = session_zone(jvm.spark)
    rows = _no_rows(jvm, txn)
    resolved = resolved_condition(jvm, named_rows(rows, alias), condition)
    if resolved.has_subquery and not (allows_exists and resolved.asks_existence):
        raise OperationNotAllowedError(
            "DELTA_UNSUPPORTED_SUBQUERY", operation=operation, cond=resolved.sql
        )
    asked = resolved.filter
    predicate = FALSE if asked is None else predicate_of(asked, time_zone=zone)
    bound = bind(predicate, metadata.schema, time_zone=zone, lenient=True)
    return RowCondition(column=condition, resolved=resolved, bound=bound)


def whole_files(
    jvm: JvmSession, txn: OptimisticTransaction, condition: RowCondition, files: pa.Table
) -> pa.Table:
    """Those of `files` all of whose rows meet a condition on partition columns alone.

    The log must have words for the condition: its predicate has no part that is unknown.
    """
    zone = session_zone(jvm.spark)
    if not txn.metadata.partition_columns:
        return files  # a condition without columns, and these are left because it is true
    partitions = partition_columns_table(files, txn.metadata, zone=zone_named(zone))
    passed = evaluate(condition.bound, partitions)
    return files.filter(pc.fill_null(passed, False))


def partitions_of(
    jvm: JvmSession,
    txn: OptimisticTransaction,
    adds: Sequence[AddFile],
    *,
    leaves_nulls: bool = False,
) -> Replaced:
    """All rows of the partitions that `adds` write to.

    With `leaves_nulls` a partition that has a null among its values stays.
    """
    snapshot = txn.snapshot
    if leaves_nulls:
        adds = [add for add in adds if all(v is not None for v in add.partition_values.values())]
    if snapshot is None:
        return Replaced()
    if not adds:
        # It replaces nothing, but it is no append either.
        txn.record_read(FALSE, snapshot.files.slice(0, 0))
        return Replaced()
    zone = zone_named(session_zone(jvm.spark))
    written = partition_columns_table(add_table(adds), txn.metadata, zone=zone)

    def is_written(files: pa.Table) -> pa.BooleanArray:
        there = partition_columns_table(files, txn.metadata, zone=zone)
        numbers = partition_numbers(pa.concat_tables([there, written]))
        return pc.is_in(numbers.slice(0, len(there)), value_set=numbers.slice(len(there)))

    found = chosen_adds(snapshot, ["path", "partitionValues"], is_written)
    txn.record_read(_of_partitions(txn, written, session_zone(jvm.spark)), found)
    replaced = tuple(add_files(found))
    return Replaced(files=replaced, num_rows=num_live_rows(replaced))


def hidden_columns(txn: OptimisticTransaction) -> StructType:
    """What files hold of rows besides the table's columns, when these come from other files."""
    if not has_row_tracking(txn.protocol, txn.metadata):
        return StructType()
    names = materialized_columns(txn.metadata, txn.log.store.root_uri)
    return StructType(tuple(StructField(name, LONG) for name in names))


def _no_rows(jvm: JvmSession, txn: OptimisticTransaction) -> DataFrame:
    """The table's columns under their own names, in a scan of no files.

    What the table's properties add to a scan (physical names, row ids) is nothing to conditions.
    """
    plain = replace(txn.metadata, configuration={})
    files = ADD_SCHEMA.empty_table()
    return chosen_rows(jvm, txn.log.store, files, protocol=txn.protocol, metadata=plain)


def tracked(txn: OptimisticTransaction, rows: DataFrame) -> DataFrame:
    """`rows` with the hidden columns that keep their ids."""
    hidden = hidden_columns(txn)
    if not hidden.fields:
        return rows
    row_id, version = hidden.names
    return rows.withColumns(
        {row_id: F.col("_metadata.row_id"), version: F.col("_metadata.row_commit_version")}
    )


def _live_rows(file: AddFile) -> int | None:
    """How many rows of a file are not deleted; None when its statistics do not tell."""
    count = file.num_records
    if count is None or file.deletion_vector is None:
        return count
    return count - file.deletion_vector.cardinality


def num_live_rows(files: Sequence[AddFile]) -> int | None:
    """How many rows files have that are not deleted; None when the statistics do not tell."""
    counts = [_live_rows(file) for file in files]
    return None if None in counts else sum(count for count in counts if count is not None)


def _of_partitions(txn: OptimisticTransaction, partitions: pa.Table, zone: str) -> Predicate | None:
    """The condition of being in one of these partitions; None when they are too many to name."""
    rows = list({tuple(row.values()): row for row in partitions.to_pylist()}.values())
    if len(rows) > _MOST_NAMED_PARTITIONS:
        return None
    named = disjunction(
        conjunction(
            IsNull(Named((name,))) if value is None else compare((name,), "=", value)
            for name, value in row.items()
        )
        for row in rows
    )
    return bind(named, txn.schema, time_zone=zone, lenient=True).predicate
