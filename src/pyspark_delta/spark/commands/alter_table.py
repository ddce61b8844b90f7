"""What every ALTER TABLE has in common: the transaction, the rules, the commit, the catalog.

A statement is one commit of metadata.  All that can be wrong with it is found out before; the
catalog follows the log, and shows the new columns as soon as the commit stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from pyspark_delta.errors.table import SchemaError, TableNotFoundError
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.ops.alter_schema import Rules, is_below
from pyspark_delta.kernel.protocol.actions import Action, Metadata
from pyspark_delta.kernel.protocol.constraints import check_constraints, invariants
from pyspark_delta.kernel.protocol.features import supported_features
from pyspark_delta.kernel.protocol.generated_columns import (
    generated_columns,
    generation_expression,
)
from pyspark_delta.kernel.protocol.operations import Operation
from pyspark_delta.kernel.protocol.properties import ENABLE_TYPE_WIDENING, property_value
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.type_widening import record_type_changes
from pyspark_delta.kernel.protocol.types import StructType, column_name
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.catalog import TableName, log_of, show_columns
from pyspark_delta.spark.commands.user_metadata import session_user_metadata
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.table_sql import check_generated_columns, named_columns

_CHECK_EXPRESSIONS = "spark.databricks.delta.alterTable.changeColumn.checkExpressions"
_WIDENING = "typeWidening"
_WIDENING_PREVIEW = "typeWidening-preview"
_GENERATED = "generatedColumns"


@dataclass(frozen=True, slots=True)
class Alteration:
    """One statement on one table, which exists."""

    spark: SparkSession
    table: TableName
    txn: OptimisticTransaction
    snapshot: Snapshot

    @classmethod
    def start(
        cls, spark: SparkSession, table: TableName, log: DeltaLog | None = None
    ) -> Alteration:
        """Begin on the newest version; of `log`, where that was opened with options of its own."""
        txn = (log_of(spark, table) if log is None else log).start_transaction()
        if txn.snapshot is None:
            raise TableNotFoundError("DELTA_MISSING_DELTA_TABLE", tableName=table.shown)
        # A statement before this one may have been stopped before it told the catalog.
        show_columns(spark, table, txn.snapshot)
        return cls(spark, table, txn, txn.snapshot)

    @property
    def jvm(self) -> JvmSession:
        """The session's JVM."""
        return JvmSession(self.spark)

    @property
    def metadata(self) -> Metadata:
        """The table as it is."""
        return self.snapshot.metadata

    @property
    def schema(self) -> StructType:
        """The table's columns as they are."""
        return self.snapshot.metadata.schema

    @property
    def features(self) -> frozenset[str]:
        """What the table's protocol supports."""
        return supported_features(self.snapshot.protocol)

    @property
    def rules(self) -> Rules:
        """What the table allows to be done with columns."""
        is_on = property_value(self.metadata.configuration, ENABLE_TYPE_WIDENING)
        return Rules(
            mode=mapping_mode(self.metadata),
            widens=is_on and not self.features.isdisjoint((_WIDENING, _WIDENING_PREVIEW)),
            table=self.table.shown,
        )

    def setting(self, key: str, default: bool) -> bool:
        """A setting of the session that is true or false."""
        text = self.spark.conf.get(key, None)
        return default if text is None else text.lower() == "true"

    def commit_schema(
        self,
        schema: StructType,
        operation: Operation,
        *,
        partition_columns: Sequence[str] | None = None,
        configuration: Mapping[str, str | None] | None = None,
    ) -> None:
        """Commit other columns, with type changes recorded where they happened."""
        old = self.metadata
        is_preview = _WIDENING_PREVIEW in self.features
        version = self.txn.read_version + 1 if is_preview else None
        recorded = record_type_changes(old.schema, schema, table_version=version)
        if _GENERATED in self.features and recorded.simple_string != old.schema.simple_string:
            check_generated_columns(self.jvm, recorded)
        names = old.partition_columns if partition_columns is None else tuple(partition_columns)
        new = replace(old, schema_string=format_schema(recorded), partition_columns=names)
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
        """Commit other metadata, if any, and let the catalog show the table as it is then."""
        if metadata is not None:
            self.txn.update_metadata(metadata)
        self.txn.commit(tuple(actions), operation, tags, session_user_metadata(self.spark))
        show_columns(self.spark, self.table)

    def check_dependents(self, path: Sequence[str]) -> None:
        """Refuse to change a column that SQL kept in the table refers to, or into which it goes."""
        if not self.setting(_CHECK_EXPRESSIONS, True):
            return
        name = column_name(path)
        kept = (*check_constraints(self.metadata.configuration), *invariants(self.schema))
        rules = [rule for rule in kept if self._refers(rule.expression, path)]
        if rules:
            shown = "\n".join(f"{rule.name} -> {rule.expression}" for rule in rules)
            raise SchemaError(
                "DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE", columnName=name, constraints=shown
            )
        if _GENERATED not in self.features:
            return
        made = {f.name: generation_expression(f) or "" for f in generated_columns(self.schema)}
        dependent = {key: text for key, text in made.items() if self._refers(text, path)}
        if dependent:
            shown = "\n".join(f"{key} -> {text}" for key, text in dependent.items())
            raise SchemaError(
                "DELTA_GENERATED_COLUMNS_DEPENDENT_COLUMN_CHANGE",
                columnName=name,
                generatedColumns=shown,
            )

    def _refers(self, text: str, path: Sequence[str]) -> bool:
        return any(is_below(named, path) for named in named_columns(self.jvm, text))
