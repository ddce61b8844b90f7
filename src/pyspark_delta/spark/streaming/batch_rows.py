"""The rows of one batch on their way into the files of a table.

A batch that has the table's columns already is written as Spark planned it; only where the table
asks for more (casts, rules, partitions, columns to fill) is a plan put on top.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from pyspark_delta.kernel.protocol.actions import AddFile, Metadata
from pyspark_delta.kernel.protocol.column_mapping import ColumnMappingMode
from pyspark_delta.kernel.protocol.constraints import check_constraints
from pyspark_delta.kernel.protocol.properties import (
    AUTO_OPTIMIZE,
    OPTIMIZE_WRITE,
    property_value,
)
from pyspark_delta.kernel.protocol.schema_merge import STRICT, as_nullable
from pyspark_delta.kernel.protocol.types import VOID, StructType, walk_fields
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.column_alignment import bare_type
from pyspark_delta.spark.commands.write_definition import data_schema, merge_rules
from pyspark_delta.spark.commands.write_options import WriteOptions
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.rebalance import rebalance_settings, rebalanced
from pyspark_delta.spark.jvm.stream_writer import executed_frame
from pyspark_delta.spark.table_rows import (
    moved_identity,
    store_assigned,
    table_rows,
    typed_violations,
)
from pyspark_delta.spark.types import from_spark
from pyspark_delta.spark.writer import stage

_CASTS_CONF = "spark.databricks.delta.streaming.sink.allowImplicitCasts"
_SHOWN_ONLY = frozenset({"comment"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRows:
    """A batch, `brought` being its columns, and the transaction that is to commit it."""

    jvm: JvmSession
    txn: OptimisticTransaction
    data: DataFrame
    brought: StructType
    asked: WriteOptions

    def schema(self) -> StructType:
        """The columns of the batch once its values are cast; nothing is executed."""
        if not self._must_cast():
            return self.brought
        return data_schema(self._cast(self.data).schema)

    def stage(self) -> list[AddFile]:
        """Write the rows into files of the table as the transaction defines it now."""
        txn, asked = self.txn, self.asked
        metadata, configuration = txn.metadata, txn.metadata.configuration
        by_property = property_value(configuration, OPTIMIZE_WRITE)
        if by_property is None:
            by_property = property_value(configuration, AUTO_OPTIMIZE)
        optimizes = asked.optimizes_files(by_property)
        rows, planning = self.data, None
        if optimizes or not self._is_ready(metadata):
            rows = executed_frame(self.jvm, self.data)
            if self._must_cast():
                rows = self._cast(rows)
            rows = table_rows(self.jvm, rows, metadata, txn.protocol)
        if optimizes:
            size = asked.bin_size(configuration)
            rows = rebalanced(self.jvm, rows, metadata.partition_columns, size)
            planning = rebalance_settings(size)
        with typed_violations():
            files = stage(
                self.jvm,
                txn.log,
                rows,
                metadata,
                txn.protocol,
                options=asked.files,
                planning=planning,
                in_query=True,
            )
        moved = moved_identity(metadata, files, given=self.brought.names)
        if moved is not None:
            txn.move_identity_marks(moved)
        return files

    def _must_cast(self) -> bool:
        """Whether a column has another type than the table's, and the table keeps its own."""
        snapshot = self.txn.snapshot
        if snapshot is None or self.asked.overwrites_schema:
            return False
        wanted = snapshot.metadata.schema
        fits = all(
            (found := wanted.get(f.name)) is None
            or bare_type(f.data_type) == bare_type(found.data_type)
            for f in self.brought
        )
        return not fits and (self.asked.conf(_CASTS_CONF) or "true").lower() == "true"

    def _cast(self, data: DataFrame) -> DataFrame:
        """By name, whatever the case, and by the session's store assignment policy."""
        snapshot = self.txn.snapshot
        assert snapshot is not None
        metadata, asked = snapshot.metadata, self.asked
        widens = asked.merges_schema and merge_rules(metadata, asked) != STRICT
        return store_assigned(self.jvm, data, metadata, by_position=False, widens=widens)

    def _is_ready(self, metadata: Metadata) -> bool:
        """Whether the rows can go into files as they are."""
        table = metadata.schema
        return (
            mapping_mode(metadata) is ColumnMappingMode.NONE
            and not metadata.partition_columns
            and not check_constraints(metadata.configuration)
            and bare_type(self.brought) == bare_type(table)
            and as_nullable(table) == table
            and not any(f.metadata for _, f in walk_fields(from_spark(self.data.schema)))
            and not any(
                f.data_type == VOID or not _SHOWN_ONLY.issuperset(f.metadata)
                for _, f in walk_fields(table)
            )
        )
