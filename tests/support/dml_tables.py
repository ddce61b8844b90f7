"""Tables that DELETE and UPDATE are tried on, and what must hold after each of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pyspark_delta import DeltaTable
from pyspark_delta.kernel.protocol.actions import AddCDCFile, AddFile, RemoveFile
from pyspark_delta.kernel.storage.uris import decode_path
from tests.support.spark_tables import Row, SparkTable

VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}
TRACKED = {"delta.enableRowTracking": "true"}
MODES = {"copies": {}, "vectors": VECTORS}
"""Properties of tables whose rows are changed by writing files anew, and by vectors."""

KINDS = pytest.mark.parametrize("properties", MODES.values(), ids=MODES.keys())
SCHEMA = "id long, p string, v string"
ROWS = [(1, "a", "x"), (2, "a", "y"), (3, "b", "x"), (4, None, None), (5, "c/é %", "z")]


class DmlTable(SparkTable):
    """A table and a handle on it."""

    @property
    def handle(self) -> DeltaTable:
        """The handle that a user would have."""
        return DeltaTable.forPath(self.spark, str(self.path))

    def check_log(self) -> None:
        """What the log says must add up: no file twice, removes of live files, rows conserved."""
        files = self.files
        assert max(Counter(file.path for file in files).values(), default=1) == 1
        live = sum((f.num_records or 0) - _gone(f) for f in files)
        assert live == self.read().count()

    @property
    def removed(self) -> list[RemoveFile]:
        """What the newest version took out of the table."""
        return [action for action in self.last_commit if isinstance(action, RemoveFile)]

    @property
    def added(self) -> list[AddFile]:
        """What it put into the table."""
        return [action for action in self.last_commit if isinstance(action, AddFile)]

    @property
    def change_rows(self) -> list[Row]:
        """The rows of its change files, the kind of change last; columns in the files' order."""
        found = []
        for action in self.last_commit:
            if isinstance(action, AddCDCFile):
                rows = pq.ParquetFile(self.path / decode_path(action.path)).read().to_pylist()
                found += [tuple(row.values()) for row in rows]
        return sorted(found, key=repr)

    @property
    def paths(self) -> set[Path]:
        """Every file of data, changes and vectors that there is."""
        found = {*self.path.rglob("*.parquet"), *self.path.rglob("*.bin")}
        return {path for path in found if "_delta_log" not in path.parts}


def _gone(file: AddFile) -> int:
    return 0 if file.deletion_vector is None else file.deletion_vector.cardinality


def filled(table: DmlTable, *partition_by: str, **properties: str) -> DmlTable:
    """Five rows, in one file where nothing partitions them."""
    table.write(table.data(SCHEMA, *ROWS), "append", *partition_by, **properties)
    return table
