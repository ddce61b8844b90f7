"""The rows of a table, read the public way, as Python values in a fixed order."""

from __future__ import annotations

from typing import Any

from pyspark_delta.kernel.log.table_log import TableLog
from pyspark_delta.kernel.scan.readable import ReadableSnapshot
from pyspark_delta.kernel.storage import LocalStore


class _Log(TableLog):
    snapshot_type = ReadableSnapshot


def open_table(root: str) -> TableLog:
    """The log of the table at `root`, not from any cache."""
    return _Log(LocalStore(root))


def read_table(root: str) -> list[dict[str, Any]]:
    """Every row of the newest version, sorted by its text."""
    snapshot = open_table(root).snapshot
    assert isinstance(snapshot, ReadableSnapshot)
    rows = [row for batch in snapshot.to_batches() for row in batch.to_pylist()]
    return sorted(rows, key=repr)
