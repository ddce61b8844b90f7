"""What every ALTER TABLE shares: the transaction, the rules, the commit, the catalog.

A statement is one commit of metadata, and everything is checked before it.  The catalog is updated
after the log, and has the new columns as soon as the commit is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from pyspark_delta.errors import SchemaError, TableNotFoundError
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.ops.schema.alter import AlterRules, is_below
from pyspark_delta.kernel.protocol.actions import Action, Metadata
from pyspark_delta.kernel.protocol.constraints import invariants, table_checks
from pyspark_delta.kernel.protocol.features import supported_features
from pyspark_delta.kernel.protocol.generated_columns import generated_columns, generation_expression
from pyspark_delta.kernel.protocol.operations import Operation
from pyspark_delta.kernel.protocol.properties import ENABLE_TYPE_WIDENING, property_value
from pyspark_delta.kernel.protocol.types import StructType, column_name
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.conf.setting_table import CHECK_EXPRESSIONS, USER_METADATA
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.rules.expressions import check_generated_columns, named_columns
from pyspark_delta.spark.tables.names import TableName, log_of, logical_clustering, update_entry
from pyspark_delta.spark.write.schema import metadata_with

_WIDENING = "typeWidening"
_WIDENING_PREVIEW = "typeWidening-preview"
_GENERATED = "generatedColumns"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """One statement on one existing table."""

    spark: SparkSession
    table: TableName
    txn: OptimisticTransaction
    snapshot: Snapshot

    @classmethod
    def start(
        cls, spark: SparkSession, table: TableName, log: DeltaLog | None = None
    ) -> Alteration:
        """Begin on the newest version; `log` is for a log that was opened with its own options."""
        txn = (log_of(spark, table) if log is None else log).start_transaction()
        if txn.snapshot is None:
            raise TableNotFoundError("DELTA_MISSING_DELTA_TABLE", tableName=table.label)
        # An earlier statement may have been stopped before it updated the catalog.
        update_entry(spark, table, txn.snapshot)
        return cls(spark=spark, table=table, txn=txn, snapshot=txn.snapshot)

    @property
    def jvm(self) -> JvmSession:
        """The session's JVM."""
        return JvmSession(self.spark)

    @property
    def metadata(self) -> Metadata:
        """The table's metadata."""
        return self.snapshot.metadata

    @property
    def schema(self) -> StructType:
        """The table's columns."""
        return self.snapshot.metadata.schema

    @property
    def features(self) -> frozenset[str]:
        """The features that the table's protocol supports."""
        return supported_features(self.snapshot.protocol)

    @property
    def clustering(self) -> list[tuple[str, ...]]:
        """The table's clustering columns, by logical names."""
        return logical_clustering(self.snapshot)

    @property
    def rules(self) -> AlterRules:
        """Which changes of columns the table allows."""
        is_on = property_value(self.metadata.configuration, ENABLE_TYPE_WIDENING)
        return AlterRules(
            mode=mapping_mode(self.metadata),
            widens=is_on and not self.features.isdisjoint((_WIDENING, _WIDENING_PREVIEW)),
            table=self.table.label,
        )

    def commit_schema(
        self,
        schema: StructType,
        operation: Operation,
        *,
        partition_columns: Sequence[str] | None = None,
        configuration: Mapping[str, str | None] | None = None,
    ) -> None:
        """Commit other columns, and record type changes in their metadata."""
        new = metadata_with(self.txn, schema)
        if _GENERATED in self.features and new.schema.simple_string != self.schema.simple_string:
            check_generated_columns(self.jvm, new.schema)
        if partition_columns is not None:
            new = replace(new, partition_columns=tuple(partition_columns))
        if configuration is not None:
            new = replace(new, configuration=dict(configuration))
        self.commit(new, operation)

    def commit(
        self,
        metadata: Metadata | None,
        operation: Operation,
        actions: Iterable[Action] = (),
        *,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Commit other metadata, if any, and update the catalog."""
        if metadata is not None:
            self.txn.update_metadata(metadata)
        self.txn.commit(tuple(actions), operation, tags, USER_METADATA.of(self.spark))
        update_entry(self.spark, self.table)

    def check_dependents(self, path: Sequence[str]) -> None:
        """Raise if SQL stored in the table refers to the column, or computes it."""
        if not CHECK_EXPRESSIONS.of(self.spark):
            return
        name = column_name(path)
        kept = (*table_checks(self.metadata.configuration), *invariants(self.schema))
        rules = [rule for rule in kept if self._refers(rule.expression, path)]
        if rules:
            listed = "\n".join(f"{rule.name} -> {rule.expression}" for rule in rules)
            raise SchemaError(
                "DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE", columnName=name, constraints=listed
            )
        if _GENERATED not in self.features:
            return
        generated = {f.name: generation_expression(f) or "" for f in generated_columns(self.schema)}
        dependent = [
            f"{key} -> {text}" for key, text in generated.items() if self._refers(text, path)
        ]
        if dependent:
            raise SchemaError(
                "DELTA_GENERATED_COLUMNS_DEPENDENT_COLUMN_CHANGE",
                columnName=name,
                generatedColumns="\n".join(dependent),
            )

    def _refers(self, text: str, path: Sequence[str]) -> bool:
        return any(is_below(named, path) for named in named_columns(self.jvm, text))
