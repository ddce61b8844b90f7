"""One streaming query, one checkpoint, two engines: each goes on where the other stopped."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_delta import DeltaLog
from tests.interop.engines import Pair
from tests.support.feeds import Feed, run

_THEIRS = """
reader = spark.readStream.schema("id LONG, p STRING").option("maxFilesPerTrigger", 1)
data = reader.json(feed)
if mode == "complete":
    data = data.groupBy("p").count()
writer = data.writeStream.format("delta").outputMode(mode).trigger(availableNow=True)
query = writer.option("checkpointLocation", checkpoint).start(path)
query.awaitTermination(120)
result = query.id
"""


class Turns:
    """A query that one engine or the other runs over the batches that are there."""

    def __init__(self, pair: Pair, spark: SparkSession, home: Path, mode: str) -> None:
        self._pair = pair
        self._checkpoint = home / "che ckpoint 100%"
        self._mode = mode
        self.path = home / "tä ble 100%"
        self.feed = Feed(spark, home / "feed", "id LONG, p STRING")
        self.commits = self._checkpoint / "commits"

    def run(self, engine: str) -> str:
        """Take what there is; the result is the query's id."""
        if engine == "theirs":
            found = self._pair.theirs.python(
                _THEIRS,
                feed=self.feed.folder,
                checkpoint=self._checkpoint,
                path=self.path,
                mode=self._mode,
            )
            return str(found)
        data = self.feed.stream()
        if self._mode == "complete":
            data = data.groupBy("p").count()
        writer = data.writeStream.format("delta").outputMode(self._mode)
        return run(writer.option("checkpointLocation", str(self._checkpoint)), self.path).id

    def forget(self, batch: int) -> None:
        """Let the checkpoint forget that a batch was done, as a crash does."""
        for name in (str(batch), f".{batch}.crc"):
            (self.commits / name).unlink()


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [("ours", "theirs"), ("theirs", "ours")])
def test_a_checkpoint_is_taken_over(
    pair: Pair, spark: SparkSession, tmp_path: Path, first: str, second: str
) -> None:
    turns = Turns(pair, spark, tmp_path, "append")
    turns.feed.add({"id": 1, "p": "a"}).add({"id": 2, "p": "b"})
    query_id = turns.run(first)
    # The other one is told to do the last batch again, and finds it in the table.
    turns.forget(1)
    turns.feed.add({"id": 3, "p": "a"})
    assert turns.run(second) == query_id
    turns.forget(2)
    turns.feed.add({"id": 4, "p": "a"})
    assert turns.run(first) == query_id
    found = pair.agree(turns.path)
    assert [value["id"] for value in found.values] == [1, 2, 3, 4]
    log = DeltaLog.for_table(turns.path)
    assert log.update().version == 3
    assert log.snapshot.transactions[query_id].version == 3
    infos = log.history()
    assert [info.operation for info in infos] == ["STREAMING UPDATE"] * 4
    assert [dict(info.operation_parameters or {}) for info in infos] == [
        {"outputMode": "Append", "queryId": query_id, "epochId": str(epoch)}
        for epoch in (3, 2, 1, 0)
    ]
    keys = [sorted(info.operation_metrics or {}) for info in infos]
    assert keys == [["numAddedFiles", "numOutputBytes", "numOutputRows", "numRemovedFiles"]] * 4


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [("ours", "theirs"), ("theirs", "ours")])
def test_a_query_with_state_is_taken_over(
    pair: Pair, spark: SparkSession, tmp_path: Path, first: str, second: str
) -> None:
    turns = Turns(pair, spark, tmp_path, "complete")
    turns.feed.add({"id": 1, "p": "a"}, {"id": 2, "p": "b"})
    query_id = turns.run(first)
    turns.feed.add({"id": 3, "p": "a"})
    assert turns.run(second) == query_id
    values = pair.agree(turns.path).values
    assert [(value["p"], value["count"]) for value in values] == [("a", 2), ("b", 1)]
