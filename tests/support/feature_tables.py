"""A table that statements change, and what its log says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pyspark_delta import enable
from pyspark_delta.errors import DeltaError
from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.protocol.actions import AddFile
from pyspark_delta.kernel.protocol.features import protocol_text
from pyspark_delta.kernel.txn.delta_log import DeltaLog


class FeatureTable:
    """A table at a path, asked in SQL."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark = enable(spark)
        self.path = path
        self.log = DeltaLog.for_table(path)
        self.name = f"delta.`{path}`"

    def sql(self, text: str) -> list[Any]:
        """Run a statement, in which `t` in braces is the table."""
        return self.spark.sql(text.format(t=self.name)).collect()

    def create(self, columns: str, *inserts: str, **properties: str) -> FeatureTable:
        """Make the table, and insert rows, each time as one file."""
        listed = ", ".join(f"'{k.replace('_', '.')}' = '{v}'" for k, v in properties.items())
        told = f" TBLPROPERTIES ({listed})" if listed else ""
        self.sql(f"CREATE TABLE {{t}} ({columns}) USING delta{told}")
        for rows in inserts:
            self.sql(f"INSERT INTO {{t}} {rows}")
        return self

    def condition(self, text: str) -> str:
        """What a statement fails with."""
        with pytest.raises(DeltaError) as caught:
            self.sql(text)
        return caught.value.condition

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """The table's rows, in order."""
        return sorted((tuple(row) for row in self.sql("SELECT * FROM {t}")), key=repr)

    @property
    def protocol(self) -> str:
        """The newest protocol."""
        return protocol_text(self.log.update().protocol)

    @property
    def properties(self) -> dict[str, str | None]:
        """The newest properties."""
        return dict(self.log.update().metadata.configuration)

    @property
    def files(self) -> list[AddFile]:
        """The live files."""
        return list(add_files(self.log.update().files))

    def told(self, first: int = 0) -> list[str | None]:
        """The operations from a version on."""
        return [info.operation for info in reversed(self.log.history())][first:]
