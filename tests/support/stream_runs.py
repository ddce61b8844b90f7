"""Runs of a stream without Spark: batches until nothing new comes, and offsets as text."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from pyspark_delta.kernel.log.table_log import TableLog
from pyspark_delta.kernel.ops.changes.commits import FileRun
from pyspark_delta.kernel.ops.changes.definitions import StreamDefinition
from pyspark_delta.kernel.ops.stream.changes import StreamSettings
from pyspark_delta.kernel.ops.stream.run import StreamRun
from tests.support.log_builder import LogBuilder, metadata

TABLE_ID = metadata().id


def log_of(builder: LogBuilder) -> TableLog:
    """The log that was built."""
    return TableLog(builder.store, now_ms=lambda: 0)


def run_of(builder: LogBuilder, **settings: Any) -> StreamRun:
    """A run that begins now."""
    log = log_of(builder)
    return StreamRun(log, StreamSettings(**settings), definition_of(log))


def definition_of(log: TableLog, **more: Any) -> StreamDefinition:
    """What the rows of the newest version are read as."""
    snapshot = log.update()
    return StreamDefinition(
        metadata=snapshot.metadata, protocol=snapshot.protocol, version=snapshot.version, **more
    )


def offset(version: int, index: int = -1, *, is_initial: bool = False) -> str:
    """An offset as a checkpoint holds it; -1 is the beginning of the version."""
    fields = {
        "sourceVersion": 3 if index in (-19, -20) else 1,
        "reservoirId": TABLE_ID,
        "reservoirVersion": version,
        "index": index,
        "isStartingVersion": is_initial,
    }
    return json.dumps(fields, separators=(",", ":"))


def paths(runs: list[FileRun]) -> list[str]:
    """The paths of all files."""
    return [
        path
        for run in runs
        for path in (
            run.rows.column("path").to_pylist()
            if isinstance(run.rows, pa.Table)
            else [row["path"] for row in run.rows]
        )
    ]


def drained(run: StreamRun, start: str | None = None) -> list[tuple[list[str], str]]:
    """Batches until nothing new comes, each with its offset."""
    found: list[tuple[list[str], str]] = []
    for _ in range(100):
        end = run.latest_offset(start)
        if end == start or end is None:
            return found
        found.append((paths(run.batch(start, end)), end))
        start = end
    raise AssertionError("the stream does not end")
