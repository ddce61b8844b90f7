"""A table that tests MERGE into, and what they look at afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta import DeltaTable
from pyspark_delta.spark.api.merge_builder import DeltaMergeBuilder
from tests.support.spark_tables import SparkTable

Row = tuple[Any, ...]

MODES: dict[str, dict[str, str]] = {
    "rewriting": {},
    "vectors": {"delta.enableDeletionVectors": "true"},
}
"""How a table loses rows: files are written anew, or get vectors."""

FEED = {"delta.enableChangeDataFeed": "true"}


class MergeTable(SparkTable):
    """The target of a MERGE, whose expressions call it `t`, and its source `s`."""

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        path: Path,
        schema: str,
        *rows: Row,
        partition_by: Any = (),
        **properties: str,
    ) -> MergeTable:
        """A new table with these rows in one file, or one for each partition."""
        table = cls(spark, path)
        data = table.data(schema, *rows).write.format("delta").options(**properties)
        data.partitionBy(*partition_by).save(str(path))
        return table

    @property
    def handle(self) -> DeltaTable:
        """The table as a user holds it, under the name `t`."""
        return DeltaTable.forPath(self.spark, str(self.path)).alias("t")

    def merge(self, source: DataFrame, condition: str = "t.id = s.id") -> DeltaMergeBuilder:
        """A MERGE without clauses."""
        return self.handle.merge(source.alias("s"), condition)

    def done(self, merge: DeltaMergeBuilder) -> Row:
        """Run a MERGE: how many rows were affected, updated, deleted, inserted."""
        before = self.num_live_rows
        affected, updated, deleted, inserted = merge.execute().collect()[0]
        assert affected == updated + deleted + inserted
        assert self.num_live_rows == before + inserted - deleted
        return (updated, deleted, inserted)

    @property
    def num_live_rows(self) -> int:
        """How many rows the log says that there are."""
        return sum(
            (file.num_records or 0)
            - (file.deletion_vector.cardinality if file.deletion_vector else 0)
            for file in self.files
        )

    @property
    def version(self) -> int:
        """The newest version."""
        return self.log.update().version

    @property
    def feed(self) -> list[Row]:
        """What the newest version changed: the rows, and how each did."""
        changed = self.handle.changes(self.version, self.version)
        columns = [name for name in changed.columns if not name.startswith("_commit")]
        return sorted((tuple(row) for row in changed.select(columns).collect()), key=repr)
