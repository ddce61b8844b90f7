"""The rows of a table, read the public way, as Python values in a fixed order."""

from __future__ import annotations

from typing import Any

from pyspark_delta.kernel.log.table_log import TableLog
from pyspark_delta.kernel.scan.file_reader import read_rows
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.scan.vectors import VectorReader, descriptor_of
from pyspark_delta.kernel.storage import LocalStore


def open_table(root: str) -> TableLog:
    """The log of the table at `root`, not from any cache."""
    return TableLog(LocalStore(root))


def read_table(root: str) -> list[dict[str, Any]]:
    """Every row of the newest version, sorted by its text."""
    snapshot = open_table(root).snapshot
    rows = []
    locations = Locations(snapshot.store)
    for f in snapshot.files.to_pylist():
        store, path = locations.open(f["path"])
        d = descriptor_of(f["deletionVector"])
        v = VectorReader(locations).read(d) if d else None
        schema = snapshot.metadata.data_schema
        for batch in read_rows(store, path, schema, vector=v):
            for i in range(batch.num_rows):
                rows.append({fld.name: c[i].as_py() for fld, c in zip(schema, batch.columns)})
    return sorted(rows, key=repr)
