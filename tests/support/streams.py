"""Streams that a test runs to their end: batches as they came, and what the checkpoint holds."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery


class Batches:
    """Rows of each batch of a query, as `foreachBatch` was given them."""

    def __init__(self) -> None:
        self.all: list[list[tuple[Any, ...]]] = []

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """The rows of all batches."""
        return [row for batch in self.all for row in batch]

    @property
    def sizes(self) -> list[int]:
        """How many rows each batch had."""
        return [len(batch) for batch in self.all]

    @property
    def ids(self) -> list[int]:
        """The first column of all rows, sorted."""
        return sorted(row[0] for row in self.rows)

    def add(self, data: DataFrame, _: int) -> None:
        """Take a batch."""
        self.all.append(sorted((tuple(row) for row in data.collect()), key=repr))


def stream_of(spark: SparkSession, path: Path | str, **options: object) -> DataFrame:
    """The table at the path as a stream."""
    reader = spark.readStream.format("delta")
    for key, value in options.items():
        reader = reader.option(key, str(value))
    return reader.load(str(path))


def start(
    stream: DataFrame, checkpoint: Path, found: Batches | None = None, **trigger: Any
) -> StreamingQuery:
    """A query over the stream that has begun."""
    writer = stream.writeStream.option("checkpointLocation", str(checkpoint))
    if trigger:
        writer = writer.trigger(**trigger)
    return writer.foreachBatch((found or Batches()).add).start()


def drain(stream: DataFrame, checkpoint: Path, **trigger: Any) -> Batches:
    """The batches of a run that ends by itself; with everything that is there by default."""
    found = Batches()
    query = start(stream, checkpoint, found, **(trigger or {"availableNow": True}))
    try:
        assert query.awaitTermination(60), "the stream does not end"
    finally:
        query.stop()
    return found


def offsets(checkpoint: Path) -> list[dict[str, Any]]:
    """The offset of the only source behind each batch, as the checkpoint holds them."""
    files = sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    return [json.loads(path.read_text().splitlines()[2]) for path in files]


def eventually(holds: Callable[[], bool], seconds: float = 30) -> None:
    """Wait until something holds; AssertionError when it does not."""
    for _ in range(int(seconds * 20)):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("it never came to hold")
