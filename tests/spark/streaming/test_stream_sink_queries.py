"""Queries into Delta tables as Spark sees them: errors, metrics, stops, rivals, other formats."""

from __future__ import annotations

import gc
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_delta import disable, enable
from pyspark_delta.errors import ConcurrentTransactionException
from pyspark_delta.spark.jvm.gateway import JvmSession, items
from pyspark_delta.spark.streaming.sink import DeltaSink
from tests.support.feeds import SECONDS, Feed, fails_with, finish, run
from tests.support.spark_tables import SparkTable


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> Iterator[SparkTable]:
    yield SparkTable(enable(spark), table_path)
    disable(spark)


@pytest.fixture
def feed(table: SparkTable, tmp_path: Path) -> Feed:
    return Feed(table.spark, tmp_path / "feed", "id LONG")


def writer(data: Any, checkpoint: Path) -> DataStreamWriter:
    found: DataStreamWriter = data.writeStream.format("delta")
    return found.option("checkpointLocation", str(checkpoint))


def wait_for(path: Path) -> None:
    end = time.monotonic() + SECONDS
    while not path.exists():
        assert time.monotonic() < end, f"{path} does not come"
        time.sleep(0.02)


def held_up(data: DataFrame, folder: Path) -> DataFrame:
    """The data, whose job says that it runs and then waits for a file `go`."""
    running, go = str(folder / "running"), str(folder / "go")

    def wait(value: int) -> int:
        Path(running).touch()
        end = time.monotonic() + SECONDS
        while not Path(go).exists() and time.monotonic() < end:
            time.sleep(0.02)
        return value

    return data.withColumn("id", F.udf(wait, "long", useArrow=False)("id"))


class _Ends(StreamingQueryListener):
    """Notes how queries end."""

    def __init__(self) -> None:
        self.conditions: list[str | None] = []

    def onQueryStarted(self, event: Any) -> None:
        """Nothing."""

    def onQueryProgress(self, event: Any) -> None:
        """Nothing."""

    def onQueryIdle(self, event: Any) -> None:
        """Nothing."""

    def onQueryTerminated(self, event: Any) -> None:
        self.conditions.append(event.errorClassOnException)


def test_a_query_that_fails_names_our_error(table: SparkTable, feed: Feed, tmp_path: Path) -> None:
    table.write(table.data("id LONG", (1,)))
    ends = _Ends()
    table.spark.streams.addListener(ends)
    try:
        query = writer(feed.add({"id": 2}).stream().selectExpr("id", "1 AS b"), tmp_path / "c")
        started = query.start(str(table.path))
        with fails_with("DELTA_METADATA_MISMATCH.SCHEMA_MISMATCH") as raised:
            started.awaitTermination(SECONDS)
        assert raised.value.getCondition() == "STREAM_FAILED"
        assert "[DELTA_METADATA_MISMATCH.SCHEMA_MISMATCH]" in str(raised.value)
        told = started.exception()
        assert told is not None
        assert told.__cause__ is raised.value.__cause__
        assert not started.isActive
        with pytest.raises(StreamingQueryException):
            started.processAllAvailable()
        end = time.monotonic() + SECONDS
        while not ends.conditions and time.monotonic() < end:
            time.sleep(0.05)
        assert ends.conditions == ["DELTA_METADATA_MISMATCH.SCHEMA_MISMATCH"]
    finally:
        table.spark.streams.removeListener(ends)
        table.spark.streams.resetTerminated()
    # An error of Spark's own in a batch is as it is without us.
    broken = feed.stream().selectExpr("raise_error('oh') AS id")
    with pytest.raises(StreamingQueryException, match="oh") as raised:
        run(writer(broken, tmp_path / "d"), table.path)
    assert "Python Proxy" not in str(raised.value)
    assert table.rows == [(1,)]


def test_a_user_s_own_function_fails_as_it_always_did(
    table: SparkTable, feed: Feed, tmp_path: Path
) -> None:
    feed.add({"id": 1})

    def fail(data: DataFrame, batch_id: int) -> None:
        data.selectExpr("raise_error('ours')").collect()

    stream = feed.stream().writeStream.foreachBatch(fail)
    place = {"checkpointLocation": str(tmp_path / "c")}
    with pytest.raises(StreamingQueryException, match="ours"):
        run(stream.options(**place))
    assert stream.options(**place).format("delta") is not None


def test_the_ui_shows_what_a_batch_did(table: SparkTable, feed: Feed, tmp_path: Path) -> None:
    feed.add({"id": 1}, {"id": 2})
    query = run(writer(feed.stream(), tmp_path / "c").queryName("shown"), table.path)
    store = table.spark._jsparkSession.sharedState().statusStore()
    table.spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    (execution,) = [
        each for each in items(store.executionsList()) if query.runId in each.description()
    ]
    values = store.executionMetrics(execution.executionId())
    metrics = {
        each.name(): values.apply(each.accumulatorId())
        for each in items(execution.metrics())
        if values.contains(each.accumulatorId())
    }
    assert metrics["number of files added"] == "1"
    assert metrics["number of files removed"] == "0"
    assert metrics["number of output rows"] == "2"
    assert "B" in metrics["written output"]
    names = [node.name() for node in items(store.planGraph(execution.executionId()).allNodes())]
    assert "DeltaSink" in names


def test_a_query_can_be_stopped_in_the_middle_of_a_batch(
    table: SparkTable, feed: Feed, tmp_path: Path
) -> None:
    feed.add({"id": 1})
    slow = held_up(feed.stream(), tmp_path)
    query = writer(slow, tmp_path / "c").start(str(table.path))
    wait_for(tmp_path / "running")
    query.stop()
    (tmp_path / "go").touch()
    assert query.exception() is None
    assert not query.isActive
    assert not table.log.table_exists
    run(writer(feed.stream(), tmp_path / "c"), table.path)
    assert table.rows == [(1,)]


def test_sinks_go_with_their_queries(table: SparkTable, feed: Feed, tmp_path: Path) -> None:
    feed.add({"id": 1})
    jvm = JvmSession(table.spark)
    for number in range(4):
        run(writer(feed.stream(), tmp_path / f"c {number}"), table.path)
    assert table.rows == [(1,)] * 4

    def alive() -> int:
        sinks = (each for each in gc.get_objects() if type(each) is DeltaSink)
        return sum(str(table.path) in str(sink) for sink in sinks)

    end = time.monotonic() + SECONDS
    while alive() and time.monotonic() < end:
        gc.collect()
        jvm.jvm.java.lang.System.gc()
        time.sleep(0.2)
    assert alive() == 0


def commit_as_rival(table: SparkTable, query_id: str) -> None:
    """Batch 0 of that query, as another process with its checkpoint commits it."""

    def rival() -> None:
        table.spark.sparkContext.setLocalProperty("sql.streaming.queryId", query_id)
        sink = DeltaSink(table.spark, str(table.path), [], "append", {})
        sink.add_batch(0, table.data("id LONG", (1,)))

    thread = Thread(target=rival)
    thread.start()
    thread.join(SECONDS)


def test_of_two_queries_with_one_id_one_is_refused(
    table: SparkTable, feed: Feed, tmp_path: Path
) -> None:
    """Two processes on one checkpoint: here the other one commits batch 0 by hand."""
    feed.add({"id": 1})
    query = writer(held_up(feed.stream(), tmp_path), tmp_path / "c").start(str(table.path))
    wait_for(tmp_path / "running")
    commit_as_rival(table, query.id)
    (tmp_path / "go").touch()
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(SECONDS)
    assert table.rows == [(1,)]
    assert table.log.snapshot.version == 0
    # The table is new to both; one that exists tells them apart by the transaction.
    assert type(raised.value.__cause__).__name__ in (
        "ConcurrentTransactionException",
        "MetadataChangedException",
        "ProtocolChangedException",
    )
    run(writer(feed.add({"id": 2}).stream(), tmp_path / "c"), table.path)
    assert table.rows == [(1,), (2,)]


def test_of_two_commits_of_one_batch_one_stands(
    table: SparkTable, feed: Feed, tmp_path: Path
) -> None:
    table.write(table.data("id LONG", (0,)))
    feed.add({"id": 1})
    query = writer(held_up(feed.stream(), tmp_path), tmp_path / "c").start(str(table.path))
    wait_for(tmp_path / "running")
    commit_as_rival(table, query.id)
    (tmp_path / "go").touch()
    with fails_with("DELTA_CONCURRENT_TRANSACTION") as raised:
        query.awaitTermination(SECONDS)
    assert isinstance(raised.value.__cause__, ConcurrentTransactionException)
    assert table.rows == [(0,), (1,)]


def test_streams_that_append_to_one_table_never_conflict(table: SparkTable, tmp_path: Path) -> None:
    feeds = [Feed(table.spark, tmp_path / f"feed {n}", "id LONG") for n in range(2)]
    for number in range(5):
        for n, each in enumerate(feeds):
            each.add({"id": 10 * number + n})
    table.write(table.data("id LONG", (99,)))
    queries = [
        writer(each.stream(), tmp_path / f"c {n}").trigger(availableNow=True).start(str(table.path))
        for n, each in enumerate(feeds)
    ]
    for query in queries:
        finish(query)
    assert [row[0] for row in table.rows] == sorted([*range(0, 50, 10), *range(1, 50, 10), 99])
    assert table.log.snapshot.version == 10


def test_rows_come_from_spark_s_other_sources(table: SparkTable, tmp_path: Path) -> None:
    table.write(table.spark.range(0))
    rate = table.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    query = writer(rate.select(F.col("value").alias("id")), tmp_path / "rate").start(
        str(table.path)
    )
    try:
        end = time.monotonic() + SECONDS
        while table.log.update().version < 3 and time.monotonic() < end:
            time.sleep(0.05)
    finally:
        query.stop()
    found = sorted(row[0] for row in table.rows)
    assert found == list(range(len(found)))
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        lines = table.spark.readStream.format("socket").options(host=host, port=port).load()
        query = writer(lines.selectExpr("CAST(value AS LONG) AS id"), tmp_path / "socket").start(
            str(table.path)
        )
        try:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"-1\n-2\n")
                end = time.monotonic() + SECONDS
                while table.read().where("id < 0").count() < 2 and time.monotonic() < end:
                    time.sleep(0.05)
        finally:
            query.stop()
    assert sorted(row[0] for row in table.rows) == [-2, -1, *found]


def test_foreach_batch_writes_once(table: SparkTable, feed: Feed, tmp_path: Path) -> None:
    def write(data: DataFrame, batch_id: int) -> None:
        target = data.write.format("delta").mode("append").option("txnAppId", "job")
        target.option("txnVersion", batch_id).save(str(table.path))
        if batch_id == 1 and not (tmp_path / "crashed").exists():
            (tmp_path / "crashed").touch()
            raise RuntimeError("after the write")

    def query() -> DataStreamWriter:
        stream: DataStreamWriter = feed.stream().writeStream.foreachBatch(write)
        return stream.option("checkpointLocation", str(tmp_path / "c"))

    feed.add({"id": 1}).add({"id": 2})
    with pytest.raises(StreamingQueryException, match="after the write"):
        run(query())
    feed.add({"id": 3})
    run(query())
    assert table.rows == [(1,), (2,), (3,)]
    assert table.log.snapshot.transactions["job"].version == 2


def test_other_formats_go_their_own_way(table: SparkTable, feed: Feed, tmp_path: Path) -> None:
    feed.add({"id": 1})
    run(feed.stream().writeStream.format("memory").queryName("in_memory"))
    assert table.spark.table("in_memory").collect() == [(1,)]
    files = tmp_path / "files"
    stream = feed.stream().writeStream.option("checkpointLocation", str(tmp_path / "c"))
    query = run(stream, files)
    assert query.lastProgress is not None
    assert query.lastProgress["sink"]["description"] == f"FileSink[file:{files}]"
    assert table.spark.read.parquet(str(files)).collect() == [(1,)]
