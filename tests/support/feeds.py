"""Streams for tests: a directory with a file for each batch, and queries run to their end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

SECONDS = 90
"""How long a query may take on a busy machine."""


class Feed:
    """A directory of JSON files, of which a stream takes one for each of its batches."""

    def __init__(self, spark: SparkSession, folder: Path, schema: str) -> None:
        self.folder = folder
        self._spark = spark
        self._schema = schema
        self._numbers = count()
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, *rows: dict[str, Any]) -> Feed:
        """One more batch."""
        number = next(self._numbers)
        hidden = self.folder / f"_{number}"
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        # Spark takes files in the order of their times.
        os.utime(hidden, (1_700_000_000 + number, 1_700_000_000 + number))
        hidden.rename(self.folder / f"{number:05}.json")
        return self

    def stream(self) -> DataFrame:
        """The stream, a file for each batch."""
        reader = self._spark.readStream.schema(self._schema).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.folder))


def run(writer: DataStreamWriter, path: Path | None = None) -> StreamingQuery:
    """Start a query, with the batches there are now, and wait for its end."""
    started = writer.trigger(availableNow=True)
    return finish(started.start() if path is None else started.start(str(path)))


def finish(query: StreamingQuery) -> StreamingQuery:
    """Wait for the end of a query; it raises what the query failed with."""
    try:
        assert query.awaitTermination(SECONDS), "the query does not come to its end"
    finally:
        query.stop()
    return query


@contextmanager
def fails_with(condition: str) -> Iterator[pytest.ExceptionInfo[StreamingQueryException]]:
    """A query that is waited for inside must fail with this condition of ours."""
    with pytest.raises(StreamingQueryException) as raised:
        yield raised
    cause = raised.value.__cause__
    assert getattr(cause, "condition", None) == condition, str(raised.value)[:2000]
