"""The rows of a table, read the public way, as Python values in a fixed order."""

from __future__ import annotations

from typing import Any

from pyspark_delta import DeltaLog


def open_table(root: str) -> DeltaLog:
    """The log of the table at `root`, not as it was remembered."""
    DeltaLog.clear_cache()
    return DeltaLog.for_table(root)


def read_table(root: str) -> list[dict[str, Any]]:
    """Every row of the newest version, sorted by its text."""
    batches = open_table(root).snapshot.to_batches()
    return sorted((row for batch in batches for row in batch.to_pylist()), key=repr)
