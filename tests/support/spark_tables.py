"""A table that a test writes through Spark, and what it looks at afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.errors import DeltaError
from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.protocol.actions import Action, AddFile, CommitInfo
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.scan.frame import read_snapshot
from pyspark_delta.spark.write.request import WriteRequest
from pyspark_delta.spark.write.run import run_write

Row = tuple[Any, ...]


class SparkTable:
    """The table at a path; rows are tuples, in an order that does not depend on files."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark = spark
        self.path = path
        self.log = DeltaLog.for_table(path)

    def data(self, schema: str, *rows: Row) -> DataFrame:
        """Rows as data of one file."""
        return self.spark.createDataFrame(list(rows), schema).coalesce(1)

    def write(
        self, data: DataFrame, mode: Any = "append", *partition_by: str, **options: str
    ) -> int | None:
        """Run a write as `df.write.save` would."""
        return self.ask(data, WriteRequest(mode=mode, partition_by=partition_by, options=options))

    def ask(self, data: DataFrame, request: WriteRequest) -> int | None:
        """Run a write."""
        return run_write(self.spark, self.log, data, request)

    def read(self) -> DataFrame:
        """The newest version."""
        return read_snapshot(self.spark, self.log.update())

    @property
    def rows(self) -> list[Row]:
        """All rows as Spark reads them."""
        return sorted((tuple(row) for row in self.read().collect()), key=repr)

    @property
    def files(self) -> list[AddFile]:
        """The live files."""
        return list(add_files(self.log.update().files))

    @property
    def last_commit(self) -> list[Action]:
        """The actions of the newest version."""
        version = self.log.update().version
        ((_, actions),) = self.log.get_changes(version)
        return actions

    @property
    def info(self) -> CommitInfo:
        """What the newest version says of itself."""
        return self.log.history(1)[0]

    @property
    def parameters(self) -> dict[str, Any]:
        """The newest operation's parameters."""
        return dict(self.info.operation_parameters or {})

    @property
    def metrics(self) -> dict[str, int]:
        """The newest operation's metrics, but for sizes, which nobody can foretell."""
        found = self.info.operation_metrics or {}
        return {name: int(text or 0) for name, text in found.items() if not name.endswith("Bytes")}

    @contextmanager
    def refused(self, condition: str) -> Iterator[pytest.ExceptionInfo[DeltaError]]:
        """What happens inside must raise this, and leave the table as it was."""
        exists = self.log.table_exists
        before = self.log.update().version if exists else None
        with pytest.raises(DeltaError) as error:
            yield error
        assert error.value.condition == condition
        assert (self.log.update().version if exists else None) == before


@contextmanager
def conf(spark: SparkSession, **settings: str) -> Iterator[None]:
    """Settings of the session for a while; `__` in a name stands for a dot."""
    named = {key.replace("__", "."): value for key, value in settings.items()}
    before = {key: spark.conf.get(key, None) for key in named}
    for key, value in named.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)
