"""Checkpoints of what is in a store, for tests that need one or look into one."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_delta.kernel.log.checkpoints.writer import CheckpointContent, write_checkpoint
from pyspark_delta.kernel.log.last_checkpoint import LastCheckpoint
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.storage.base import LogStore

NOW_MS = 1_700_000_000_002  # a little after the tombstones of `log_builder.remove`


def counted_uuids() -> Callable[[], UUID]:
    """A source of uuids that gives the same ones every time."""
    count = iter(range(1, 1_000_000))
    return lambda: UUID(int=next(count))


def snapshot_at(store: LogStore, version: int | None = None) -> Snapshot:
    return Snapshot.load(store, version, now_ms=lambda: NOW_MS)


def content_of(snapshot: Snapshot) -> CheckpointContent:
    return CheckpointContent(
        version=snapshot.version,
        protocol=snapshot.protocol,
        metadata=snapshot.metadata,
        transactions=snapshot.transactions.values(),
        domains=snapshot.domains.values(),
        adds=snapshot.files,
        removes=snapshot.tombstones(),
    )


def checkpoint(store: LogStore, version: int | None = None, **options: Any) -> LastCheckpoint:
    """Write a checkpoint of a version, or of the newest."""
    settings = {"now_ms": NOW_MS, "new_uuid": counted_uuids(), **options}
    return write_checkpoint(store, content_of(snapshot_at(store, version)), **settings)


def state_of(store: LogStore, version: int | None = None) -> dict[str, Any]:
    """Everything a version says, to compare two ways of reading it.

    Whether a file came with a change of data is what its commit says, and no state.
    """
    snapshot = snapshot_at(store, version)
    files = snapshot.files.drop_columns(["dataChange"]).to_pylist()
    removed = snapshot.tombstones().drop_columns(["stats", "tags", "dataChange"]).to_pylist()
    return {
        "version": snapshot.version,
        "protocol": snapshot.protocol,
        "metadata": snapshot.metadata,
        "transactions": dict(snapshot.transactions),
        "domains": dict(snapshot.domains),
        "files": sorted(files, key=repr),
        "removes": sorted(removed, key=repr),
    }


def read_parquet(store: LogStore, path: str) -> pa.Table:
    return pq.read_table(io.BytesIO(store.read(path)))


def rows_of(table: pa.Table, kind: str) -> list[dict[str, Any]]:
    """The actions of one kind in a checkpoint file."""
    return table.column(kind).drop_null().to_pylist()
