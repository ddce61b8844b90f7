"""A Delta table as a stream: what comes in which batch, options, triggers, queries side by side."""

from __future__ import annotations

import gc
import shutil
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pyspark_delta import DeltaLog, enable
from pyspark_delta.errors import DeltaError, PropertyError, SchemaError, StreamError
from pyspark_delta.kernel.ops.changes.feed import OUT_OF_RANGE
from pyspark_delta.kernel.ops.stream.offsets import SOURCE_MARK
from pyspark_delta.spark.jvm.streaming import StreamSourceProxy
from pyspark_delta.spark.tables.names import table_log
from tests.support.catalog_tables import own_database
from tests.support.streams import Batches, drain, eventually, offsets, start, stream_of
from tests.support.tables import append, create_table, delete_positions, overwrite

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string())])


@pytest.fixture
def log(spark: SparkSession, table_path: Path) -> DeltaLog:
    """Version 0 without rows, then three with two rows each, in a file each."""
    enable(spark)
    log = create_table(table_path, SCHEMA, partition_by=["p"])
    for number in range(3):
        append(log, rows(2 * number, 2 * number + 1))
    return log


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "chéck 50%"


def rows(*ids: int, p: str | None = "a b%") -> pa.Table:
    return pa.table({"id": list(ids), "p": [p] * len(ids)}, schema=SCHEMA)


def condition_of(caught: pytest.ExceptionInfo[StreamingQueryException]) -> str:
    """The condition of the error that a query failed with, which names its cause."""
    cause = caught.value.__cause__
    assert isinstance(cause, DeltaError), caught.value
    assert cause.condition in str(caught.value)
    return cause.condition


def test_a_stream_begins_with_the_table_and_goes_on_with_commits(
    spark: SparkSession, log: DeltaLog, table_path: Path, checkpoint: Path
) -> None:
    frame = stream_of(spark, table_path, maxFilesPerTrigger=2)
    assert frame.isStreaming
    assert frame.schema == spark.read.format("delta").load(str(table_path)).schema
    first = drain(frame, checkpoint)
    assert first.sizes == [4, 2]
    assert first.ids == list(range(6))
    shape = {"sourceVersion": 1, "reservoirId": log.snapshot.metadata.id}
    assert offsets(checkpoint) == [
        {**shape, "reservoirVersion": 3, "index": 1, "isStartingVersion": True},
        {**shape, "reservoirVersion": 4, "index": -1, "isStartingVersion": False},
    ]
    append(log, rows(6, 7, p=None))
    append(log, rows(8))
    again = drain(stream_of(spark, table_path), checkpoint)
    assert again.rows == [(6, None), (7, None), (8, "a b%")]
    assert drain(stream_of(spark, table_path), checkpoint).all == []
    assert offsets(checkpoint)[-1]["reservoirVersion"] == 6


def test_a_running_query_sees_commits_as_they_come(
    spark: SparkSession, log: DeltaLog, table_path: Path, checkpoint: Path
) -> None:
    found = Batches()
    frame = stream_of(spark, table_path).where("id >= 2 AND p = 'a b%'").select("id")
    query = start(frame, checkpoint, found, processingTime="0 seconds")
    try:
        query.processAllAvailable()
        assert found.ids == [2, 3, 4, 5]
        append(log, rows(0, 10))
        append(log, rows(11, p="other"))
        query.processAllAvailable()
        assert found.ids == [2, 3, 4, 5, 10]
        assert query.lastProgress is not None
        source = query.lastProgress["sources"][0]
        assert source["description"].startswith("DeltaSource[file:")
        assert "tä ble 100%" in source["description"]
        # Idle: dozens of triggers in half a second, but no batch and no job.
        eventually(lambda: not query.status["isDataAvailable"])
        batches = len(found.all)
        jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(query.runId)
        time.sleep(0.5)
        assert len(found.all) == batches
        assert spark.sparkContext.statusTracker().getJobIdsForGroup(query.runId) == jobs
    finally:
        query.stop()
    assert query.exception() is None


def test_one_frame_in_two_queries_is_read_twice(
    spark: SparkSession, log: DeltaLog, table_path: Path, tmp_path: Path
) -> None:
    frame = stream_of(spark, table_path, maxFilesPerTrigger=1)
    found = [Batches(), Batches()]
    queries = [
        start(frame, tmp_path / f"checkpoint {n}", each, processingTime="0 seconds")
        for n, each in enumerate(found)
    ]
    try:
        for query in queries:
            query.processAllAvailable()
        queries[0].stop()
        append(log, rows(6))
        queries[1].processAllAvailable()
    finally:
        for query in queries:
            query.stop()
    assert found[0].ids == list(range(6))
    assert found[1].ids == list(range(7))
    assert found[1].sizes == [2, 2, 2, 1]
    assert drain(frame, tmp_path / "checkpoint 0").ids == [6]


def test_streams_can_be_joined_with_themselves_and_with_others(
    spark: SparkSession, log: DeltaLog, table_path: Path, tmp_path: Path
) -> None:
    frame = stream_of(spark, table_path)
    twice = frame.union(frame.selectExpr("id + 100", "p"))
    assert drain(twice, tmp_path / "union").ids == [*range(6), *range(100, 106)]
    other = tmp_path / "öther"
    append(create_table(other, SCHEMA), rows(1, 50))
    both = frame.union(stream_of(spark, other))
    assert drain(both, tmp_path / "two tables").ids == [0, 1, 1, 2, 3, 4, 5, 50]
    static = spark.read.format("delta").load(str(table_path)).selectExpr("id AS other")
    joined = frame.join(static, frame.id == static.other).select("id")
    assert drain(joined, tmp_path / "join").ids == list(range(6))
    seconds = "timestamp_seconds(id + 1000)"
    events = frame.selectExpr("id", f"{seconds} AS time").withWatermark("time", "1 second")
    right = events.selectExpr("id AS right_id", "time AS right_time")
    streams = events.join(right, (events.id == right.right_id) & (events.time == right.right_time))
    assert drain(streams.select("id"), tmp_path / "stream join").ids == list(range(6))
    counts = frame.groupBy("p").count()
    query = (
        counts.writeStream.outputMode("complete")
        .option("checkpointLocation", str(tmp_path / "counts"))
        .format("memory")
        .queryName("counted")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    assert [tuple(row) for row in spark.table("counted").collect()] == [("a b%", 6)]


def test_a_batch_can_read_the_table_it_comes_from(
    spark: SparkSession, log: DeltaLog, table_path: Path, checkpoint: Path, tmp_path: Path
) -> None:
    target = str(tmp_path / "tärget")
    counted: list[int] = []

    def copy(data: object, batch: int) -> None:
        counted.append(spark.read.format("delta").load(str(table_path)).count())
        data.write.format("delta").mode("append").save(target)  # type: ignore[attr-defined]

    query = (
        stream_of(spark, table_path, maxFilesPerTrigger=2)
        .writeStream.option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .foreachBatch(copy)
        .start()
    )
    assert query.awaitTermination(60)
    assert counted == [6, 6]
    assert spark.read.format("delta").load(target).count() == 6


def test_triggers_decide_how_much_a_batch_holds(
    spark: SparkSession, log: DeltaLog, table_path: Path, tmp_path: Path
) -> None:
    limited = stream_of(spark, table_path, maxFilesPerTrigger=1)
    assert drain(limited, tmp_path / "once", once=True).sizes == [6]
    assert drain(limited, tmp_path / "now").sizes == [2, 2, 2]
    smallest = stream_of(spark, table_path, maxBytesPerTrigger="1b")
    assert drain(smallest, tmp_path / "bytes").sizes == [2, 2, 2]
    whole = stream_of(spark, table_path, maxBytesPerTrigger="1g")
    assert drain(whole, tmp_path / "gigabyte").sizes == [6]
    # Only delta-spark's documentation knows this option, not its code: files come as ever.
    ordered = stream_of(spark, table_path, maxFilesPerTrigger=1, withEventTimeOrder=True)
    assert drain(ordered, tmp_path / "ordered").all == drain(limited, tmp_path / "not").all


def test_a_stream_begins_where_it_is_told(
    spark: SparkSession, log: DeltaLog, table_path: Path, tmp_path: Path
) -> None:
    def begun(**options: object) -> list[int]:
        name = tmp_path / "-".join(f"{k} {v}".replace(":", "") for k, v in options.items())
        return drain(stream_of(spark, table_path, **options), name).ids

    assert begun(startingVersion=2) == [2, 3, 4, 5]
    assert begun(startingVersion=0, maxFilesPerTrigger=1) == list(range(6))
    assert begun(startingTimestamp="2001-01-01") == list(range(6))
    assert begun(startingVersion="latest") == []
    append(log, rows(6))
    assert begun(startingVersion="latest") == [6]
    with pytest.raises(StreamingQueryException) as caught:
        begun(startingTimestamp="2901-01-01")
    assert condition_of(caught) == "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"
    with pytest.raises(StreamingQueryException) as caught:
        begun(startingVersion=5)
    assert condition_of(caught) == "DELTA_VERSION_NOT_FOUND"


@pytest.mark.parametrize(
    "begin", [{"startingVersion": 4}, {"startingVersion": 5}, {"startingTimestamp": "2901-01-01"}]
)
def test_a_stream_may_wait_for_the_version_it_begins_with(
    spark: SparkSession,
    log: DeltaLog,
    table_path: Path,
    checkpoint: Path,
    tmp_path: Path,
    begin: dict[str, object],
) -> None:
    spark.conf.set(OUT_OF_RANGE, "true")
    frame = stream_of(spark, table_path, **begin)
    assert drain(frame, tmp_path / "it ends").all == []
    found = Batches()
    query = start(frame, checkpoint, found, processingTime="0 seconds")
    try:
        query.processAllAvailable()
        for number in (6, 7):
            append(log, rows(number))
        query.processAllAvailable()
    finally:
        query.stop()
    assert found.ids == ([7] if begin.get("startingVersion") == 5 else [6, 7])


def test_changed_rows_stop_a_stream_unless_it_is_told_what_to_do(
    spark: SparkSession, log: DeltaLog, table_path: Path, tmp_path: Path
) -> None:
    overwrite(log, rows(7))
    append(log, rows(8))

    def begun(**options: object) -> list[int]:
        name = tmp_path / f"checkpoint {'-'.join(options)}"
        return drain(stream_of(spark, table_path, startingVersion=3, **options), name).ids

    with pytest.raises(StreamingQueryException) as caught:
        begun()
    assert condition_of(caught) == "DELTA_SOURCE_TABLE_IGNORE_CHANGES"
    assert begun(ignoreChanges=True) == [4, 5, 7, 8]
    assert begun(ignoreFileDeletion=True) == [4, 5, 7, 8]
    assert begun(skipChangeCommits=True) == [4, 5, 8]
    overwrite(log, rows().slice(0, 0))
    append(log, rows(9))
    with pytest.raises(StreamingQueryException) as caught:
        drain(stream_of(spark, table_path, startingVersion=5), tmp_path / "deletes")
    assert condition_of(caught) == "DELTA_SOURCE_IGNORE_DELETE"
    ignoring = stream_of(spark, table_path, startingVersion=5, ignoreDeletes=True)
    assert drain(ignoring, tmp_path / "ignored").ids == [8, 9]
    excluding = stream_of(spark, table_path, excludeRegex="p=a")
    assert drain(excluding, tmp_path / "excluded").ids == []


def test_deletion_vectors_and_column_mapping_hold_in_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    enable(spark)
    path = tmp_path / "mäpped 100%"
    features = {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true"}
    log = create_table(path, SCHEMA, partition_by=["p"], configuration=features)
    append(log, rows(*range(10)))
    delete_positions(log, lambda file: [0, 9])
    append(log, rows(20, 21))
    frame = stream_of(spark, path, maxFilesPerTrigger=1)
    found = drain(frame, tmp_path / "checkpoint")
    assert found.ids == [*range(1, 9), 20, 21]
    assert found.rows[0][1] == "a b%"
    delete_positions(log, lambda file: [1])
    changed = stream_of(spark, path, ignoreChanges=True)
    assert drain(changed, tmp_path / "checkpoint").ids == [0, *range(2, 10), 20]


def test_tables_of_the_catalog_are_streamed_by_name(
    spark: SparkSession, log: DeltaLog, table_path: Path, tmp_path: Path
) -> None:
    spark.sql(f"CREATE TABLE streamed USING delta LOCATION '{table_path}'")
    try:
        reader = spark.readStream.option("maxFilesPerTrigger", 2)
        named = reader.table("streamed").where("streamed.id > 1")
        assert drain(named, tmp_path / "name").ids == [2, 3, 4, 5]
        by_path = spark.readStream.table(f"delta.`{table_path}`")
        assert drain(by_path, tmp_path / "path").ids == list(range(6))
    finally:
        spark.sql("DROP TABLE streamed")


def test_other_formats_stream_as_they_always_did(
    spark: SparkSession, log: DeltaLog, table_path: Path, tmp_path: Path
) -> None:
    rate = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
    assert [f.name for f in rate.schema] == ["timestamp", "value"]
    spark.range(3).write.parquet(str(tmp_path / "files"))
    files = spark.readStream.schema("id BIGINT").parquet(str(tmp_path / "files"))
    assert drain(files, tmp_path / "of files").ids == [0, 1, 2]
    both = files.selectExpr("id", "'x' AS p").union(stream_of(spark, table_path))
    assert drain(both, tmp_path / "of both").ids == [0, 0, 1, 1, 2, 2, 3, 4, 5]
    # Behind a table, too: what Spark notes of its files is not where delta-spark would note it.
    behind = stream_of(spark, table_path).union(files.selectExpr("id", "'x' AS p"))
    checkpoint = tmp_path / "of table and files"
    assert drain(behind, checkpoint).ids == [0, 0, 1, 1, 2, 2, 3, 4, 5]
    assert sorted(each.name for each in (checkpoint / "sources").iterdir()) == ["0", "1"]
    assert (checkpoint / "sources" / "1" / "0").read_bytes() == SOURCE_MARK
    append(log, rows(6))
    spark.range(3, 5).write.mode("append").parquet(str(tmp_path / "files"))
    assert drain(behind, checkpoint).ids == [3, 4, 6]
    shutil.rmtree(checkpoint / "sources" / "1")
    (checkpoint / "sources" / "0").rename(checkpoint / "sources" / "1")
    with pytest.raises(StreamingQueryException) as caught:
        drain(behind, checkpoint)
    assert condition_of(caught) == "DELTA_STREAMING_SOURCES_NUMBERED_OTHERWISE"
    files.createOrReplaceTempView("streamed_files")
    assert drain(spark.readStream.table("streamed_files"), tmp_path / "of view").ids == [*range(5)]


# What is refused.


@pytest.mark.parametrize(
    ("options", "condition"),
    [
        (
            {"startingVersion": 1, "startingTimestamp": "2020-01-01"},
            "DELTA_STARTING_VERSION_AND_TIMESTAMP_BOTH_SET",
        ),
        ({"startingVersion": "-1"}, "DELTA_ILLEGAL_OPTION"),
        ({"startingVersion": "soon"}, "DELTA_ILLEGAL_OPTION"),
        ({"maxFilesPerTrigger": "0"}, "DELTA_ILLEGAL_OPTION"),
        ({"maxFilesPerTrigger": "many"}, "DELTA_ILLEGAL_OPTION"),
        ({"maxBytesPerTrigger": "0"}, "DELTA_ILLEGAL_OPTION"),
        ({"maxBytesPerTrigger": "1 furlong"}, "DELTA_ILLEGAL_OPTION"),
        ({"ignoreDeletes": "perhaps"}, "DELTA_ILLEGAL_OPTION"),
        ({"failOnDataLoss": "1"}, "DELTA_ILLEGAL_OPTION"),
        ({"failOnDataLoss": "false", "schemaTrackingLocation": "/x"}, "DELTA_ILLEGAL_OPTION"),
        ({"excludeRegex": "("}, "DELTA_REGEX_OPT_SYNTAX_ERROR"),
        ({"versionAsOf": 1}, "DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS"),
        ({"timestampAsOf": "2020-01-01"}, "DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS"),
    ],
)
def test_options_are_checked_when_the_stream_is_made(
    spark: SparkSession, log: DeltaLog, table_path: Path, options: dict[str, str], condition: str
) -> None:
    with pytest.raises(DeltaError) as caught:
        stream_of(spark, table_path, **options)
    assert caught.value.condition == condition
    assert isinstance(caught.value, PropertyError | StreamError)


def test_what_is_no_table_cannot_be_streamed(
    spark: SparkSession, log: DeltaLog, table_path: Path, tmp_path: Path
) -> None:
    with pytest.raises(SchemaError) as caught:
        stream_of(spark, tmp_path / "nothing")
    assert caught.value.condition == "DELTA_SCHEMA_NOT_SET"
    with pytest.raises(StreamError) as refused:
        stream_of(spark, f"{table_path}@v1")
    assert refused.value.condition == "DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS"
    with pytest.raises(SchemaError) as conflict:
        spark.readStream.format("delta").schema("id INT").load(str(table_path))
    assert conflict.value.condition == "DELTA_READ_SOURCE_SCHEMA_CONFLICT"
    given = spark.readStream.format("delta").schema("id BIGINT, p STRING").load(str(table_path))
    assert given.isStreaming


def test_a_stream_takes_the_schema_of_its_own_table(spark: SparkSession) -> None:
    enable(spark)
    with own_database(spark):
        spark.sql(
            "CREATE TABLE t (id BIGINT NOT NULL COMMENT 'c', c VARCHAR(3), p STRING DEFAULT 'x', "
            "g BIGINT GENERATED ALWAYS AS (id + 1), s STRUCT<a: INT, l: ARRAY<STRING>>) "
            "USING delta PARTITIONED BY (p) TBLPROPERTIES ('delta.columnMapping.mode' = 'name', "
            "'delta.feature.allowColumnDefaults' = 'supported', "
            "'delta.enableChangeDataFeed' = 'true')"
        )
        own, path = spark.table("t").schema, str(table_log(spark, "t").store.root_uri)
        reader = spark.readStream.format("delta")
        for schema in (own, spark.read.format("delta").load(path).schema, reader.load(path).schema):
            streamed = spark.readStream.format("delta").schema(schema)
            assert streamed.load(path).columns == own.names
            changes = streamed.option("readChangeFeed", "true").load(path)
            assert changes.columns[: len(own)] == own.names
            assert streamed.table("t").isStreaming
        # A name has a schema: what is given beside it is not looked at.
        assert spark.readStream.schema("a INT").table("t").columns == own.names


def test_a_checkpoint_of_another_table_is_refused(
    spark: SparkSession, log: DeltaLog, table_path: Path, checkpoint: Path, tmp_path: Path
) -> None:
    drain(stream_of(spark, table_path), checkpoint)
    append(create_table(tmp_path / "öther", SCHEMA), rows(1))
    with pytest.raises(StreamingQueryException) as caught:
        drain(stream_of(spark, tmp_path / "öther"), checkpoint)
    assert condition_of(caught) == "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE"


def test_a_new_column_is_followed_after_a_restart(
    spark: SparkSession, log: DeltaLog, table_path: Path, checkpoint: Path
) -> None:
    found = Batches()
    query = start(stream_of(spark, table_path), checkpoint, found, processingTime="0 seconds")
    query.processAllAvailable()
    more = spark.createDataFrame([(6, "x", 1.5)], "id BIGINT, p STRING, w DOUBLE")
    more.write.format("delta").mode("append").option("mergeSchema", "true").save(str(table_path))
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(30)
    assert condition_of(caught) == "DELTA_SCHEMA_CHANGED_WITH_VERSION"
    assert found.ids == list(range(6))
    assert drain(stream_of(spark, table_path), checkpoint).rows == [(6, "x", 1.5)]


def test_what_a_query_held_goes_with_it(
    spark: SparkSession, log: DeltaLog, table_path: Path, tmp_path: Path
) -> None:
    frame = stream_of(spark, table_path, maxFilesPerTrigger=1)
    proxies = [each for each in gc.get_objects() if isinstance(each, StreamSourceProxy)]
    found = Batches()
    query = start(frame, tmp_path / "held", found, processingTime="0 seconds")
    query.processAllAvailable()
    assert sum(len(each._runs) for each in proxies) == 1
    query.stop()
    assert sum(len(each._runs) for each in proxies) == 0
