"""Tables that have rules and exist as metadata alone: what `table_rows` makes of data for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.types import StructField, StructType
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.rules.rows import RowCheck, table_rows, typed_violations

EVERY_RULE = Protocol(min_reader_version=1, min_writer_version=6)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuledTable:
    """A table's metadata, and rows as they would be written into it."""

    spark: SparkSession
    fields: Sequence[StructField]
    checks: Mapping[str, str] = field(default_factory=dict)
    partition_by: Sequence[str] = ()
    protocol: Protocol = EVERY_RULE

    @property
    def metadata(self) -> Metadata:
        """What the log would hold."""
        return Metadata(
            id="a-table",
            schema_string=format_schema(StructType(tuple(self.fields))),
            partition_columns=tuple(self.partition_by),
            configuration={f"delta.constraints.{name}": sql for name, sql in self.checks.items()},
        )

    def plan(self, data: DataFrame | str, *checks: RowCheck) -> DataFrame:
        """Rows that are ready to be written; `data` may be a query."""
        frame = self.spark.sql(data) if isinstance(data, str) else data
        jvm = JvmSession(self.spark)
        return table_rows(jvm, frame, self.metadata, self.protocol, checks=checks)

    def rows(self, data: DataFrame | str, *checks: RowCheck) -> list[Any]:
        """The rows, or the error that a write would raise."""
        with typed_violations():
            return [tuple(row) for row in self.plan(data, *checks).collect()]
