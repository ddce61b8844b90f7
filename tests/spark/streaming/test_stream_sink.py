"""`writeStream.format("delta")`: each batch is one commit, made once, with all that it says."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession, SQLContext
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_delta import disable, enable
from pyspark_delta.errors import DeltaError
from pyspark_delta.kernel.protocol.actions import AddFile, CommitInfo, SetTransaction
from pyspark_delta.kernel.protocol.domains import clustering_columns
from pyspark_delta.spark.streaming.sink import DeltaSink
from tests.support.feeds import Feed, fails_with, finish, run
from tests.support.spark_tables import SparkTable, conf


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> Iterator[SparkTable]:
    yield SparkTable(enable(spark), table_path)
    disable(spark)


@pytest.fixture
def feed(table: SparkTable, tmp_path: Path) -> Feed:
    return Feed(table.spark, tmp_path / "fe ed 100%", "id LONG, s STRING")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "che ckpoint 100% ü"


def rows(*ids: int) -> list[dict[str, Any]]:
    return [{"id": i, "s": f"s{i}"} for i in ids]


def writer(data: Any, checkpoint: Path, **options: Any) -> DataStreamWriter:
    found: DataStreamWriter = data.writeStream.format("delta")
    return found.option("checkpointLocation", str(checkpoint)).options(**options)


def ids(table: SparkTable) -> list[int]:
    return [row[0] for row in table.rows]


def test_every_batch_is_a_commit_with_its_transaction(
    table: SparkTable, feed: Feed, checkpoint: Path
) -> None:
    feed.add(*rows(1, 2)).add(*rows(3))
    stream = writer(feed.stream(), checkpoint, userMetadata="why").queryName("named")
    query = run(stream, table.path)
    assert query.name == "named"
    assert query.lastProgress is not None
    assert query.lastProgress["sink"]["description"] == f"DeltaSink[{table.path}]"
    assert [p["numInputRows"] for p in query.recentProgress[:2]] == [2, 1]
    assert ids(table) == [1, 2, 3]
    assert table.log.snapshot.version == 1
    (info, txn, add) = table.last_commit
    assert isinstance(info, CommitInfo)
    assert isinstance(txn, SetTransaction)
    assert isinstance(add, AddFile)
    assert (info.operation, info.user_metadata) == ("STREAMING UPDATE", "why")
    assert info.is_blind_append is True
    assert table.parameters == {"outputMode": "Append", "queryId": query.id, "epochId": "1"}
    assert table.metrics == {"numAddedFiles": 1, "numRemovedFiles": 0, "numOutputRows": 1}
    assert (info.operation_metrics or {})["numOutputBytes"] == str(add.size)
    assert (txn.app_id, txn.version) == (query.id, 1)
    assert txn.last_updated is not None

    # The query goes on where it was: no batch without rows, and then the next one.
    assert run(stream, table.path).id == query.id
    assert table.log.update().version == 1
    feed.add(*rows(4))
    run(stream.option("path", str(table.path)))
    assert ids(table) == [1, 2, 3, 4]
    assert table.parameters["epochId"] == "2"


def test_a_batch_that_is_committed_already_is_left_out(
    table: SparkTable, feed: Feed, checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    feed.add(*rows(1)).add(*rows(2))
    query = run(writer(feed.stream(), checkpoint), table.path)
    # As if the process had died between the table's commit and the checkpoint's.
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()
    feed.add(*rows(3))
    with caplog.at_level(logging.INFO, "pyspark_delta"):
        run(writer(feed.stream(), checkpoint), table.path)
    assert f"skipping batch 1 of query {query.id}" in caplog.text
    assert ids(table) == [1, 2, 3]
    assert table.log.snapshot.version == 2
    # Another checkpoint is another application, to which the table owes everything.
    run(writer(feed.stream(), checkpoint.with_name("another")), table.path)
    assert ids(table) == [1, 1, 2, 2, 3, 3]


def test_a_batch_is_checked_before_it_is_left_out(
    table: SparkTable, feed: Feed, checkpoint: Path
) -> None:
    run(writer(feed.add(*rows(1)).stream(), checkpoint), table.path)
    for name in ("0", ".0.crc"):
        (checkpoint / "commits" / name).unlink()
    more = feed.stream().withColumn("more", F.lit(1))
    with fails_with("DELTA_METADATA_MISMATCH.SCHEMA_MISMATCH"):
        run(writer(more, checkpoint), table.path)
    with fails_with("DELTA_NULL_SCHEMA_IN_STREAMING_WRITE"):
        run(writer(feed.stream().withColumn("more", F.lit(None)), checkpoint), table.path)
    # The column is welcome, but its batch is known: nothing of it comes.
    run(writer(more, checkpoint, mergeSchema=True), table.path)
    assert table.log.update().version == 0
    assert table.read().columns == ["id", "s"]
    run(writer(feed.add(*rows(2)).stream(), checkpoint), table.path)
    assert ids(table) == [1, 2]


def test_a_table_that_is_deleted_under_a_query_is_made_again(
    table: SparkTable, feed: Feed, checkpoint: Path
) -> None:
    query = writer(feed.add(*rows(1)).stream(), checkpoint).start(str(table.path))
    try:
        query.processAllAvailable()
        first = table.log.update().metadata.id
        table.log.wait_for_hooks()  # which would write while files go
        shutil.rmtree(table.path)
        feed.add(*rows(2))
        query.processAllAvailable()
    finally:
        query.stop()
    assert query.exception() is None
    assert ids(table) == [2]
    assert table.log.update().metadata.id != first
    assert table.log.snapshot.transactions[query.id].version == 1


def test_a_batch_without_rows_is_recorded(table: SparkTable, feed: Feed, checkpoint: Path) -> None:
    feed.add(*rows(1))
    query = run(writer(feed.stream().where("id < 0"), checkpoint), table.path)
    assert table.rows == []
    assert table.read().columns == ["id", "s"]
    assert table.log.snapshot.transactions[query.id].version == 0
    assert table.metrics == {"numAddedFiles": 0, "numRemovedFiles": 0, "numOutputRows": 0}
    assert not list(table.path.glob("*.parquet"))


def test_complete_mode_replaces_all_rows(table: SparkTable, feed: Feed, checkpoint: Path) -> None:
    feed.add(*rows(1, 2)).add(*rows(3))
    counts = feed.stream().groupBy((F.col("id") % 2).alias("odd")).count()
    run(writer(counts, checkpoint).outputMode("complete"), table.path)
    assert table.rows == [(0, 1), (1, 2)]
    assert table.parameters["outputMode"] == "Complete"
    assert table.metrics["numRemovedFiles"] == table.metrics["numAddedFiles"] > 0
    assert table.info.is_blind_append is False
    assert table.log.history()[-1].is_blind_append is False  # nor the batch that made the table

    # Its schema may go with the rows, if the user says so; in other modes it may not.
    odd = (F.col("id") % 2).alias("odd")
    sums = feed.add(*rows(5)).stream().groupBy(odd).agg(F.sum("id").alias("sum"))
    with fails_with("DELTA_METADATA_MISMATCH.SCHEMA_MISMATCH"):
        run(writer(sums, checkpoint.with_name("2")).outputMode("complete"), table.path)
    before = table.log.update().version
    with fails_with("DELTA_METADATA_MISMATCH.SCHEMA_MISMATCH"):
        run(writer(feed.stream(), checkpoint.with_name("3"), overwriteSchema=True), table.path)
    assert table.log.update().version == before
    again = writer(sums, checkpoint.with_name("4"), overwriteSchema=True).outputMode("complete")
    run(again, table.path)
    assert table.rows == [(0, 2), (1, 9)]
    assert table.read().columns == ["odd", "sum"]

    txn = table.log.start_transaction()
    txn.update_metadata(replace(txn.metadata, configuration={"delta.appendOnly": "true"}))
    txn.commit([], "SET TBLPROPERTIES")
    feed.add(*rows(7))
    with fails_with("DELTA_CANNOT_MODIFY_APPEND_ONLY"):
        run(again, table.path)
    assert table.rows == [(0, 2), (1, 9)]


def test_a_sink_says_what_it_is(table: SparkTable) -> None:
    def sink(mode: str, **options: Any) -> DeltaSink:
        return DeltaSink(table.spark, str(table.path), [], mode, options)

    assert str(sink("append")) == f"DeltaSink[{table.path}]"
    assert sink("append").delta_log is table.log
    assert sink("append", mergeSchema="true").can_merge_schema
    assert not sink("append").can_merge_schema
    assert sink("complete", overwriteSchema="true").can_overwrite_schema
    assert not sink("append", overwriteSchema="true").can_overwrite_schema
    with conf(table.spark, spark__databricks__delta__schema__autoMerge__enabled="true"):
        assert sink("append").can_merge_schema
    context = SQLContext(table.spark.sparkContext, table.spark)
    assert str(DeltaSink(context, str(table.path), [], "append", {})) == str(sink("append"))
    with pytest.raises(DeltaError) as error:
        sink("append").add_batch(0, table.spark.range(1))
    assert "outside of a streaming query" in str(error.value)


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("DELTA_UNSUPPORTED_OUTPUT_MODE", lambda w: w.outputMode("update")),
        ("DELTA_ILLEGAL_OPTION", lambda w: w.option("mergeSchema", "perhaps")),
    ],
)
def test_what_cannot_be_done_is_refused_before_the_query_starts(
    table: SparkTable, feed: Feed, checkpoint: Path, condition: str, said: Any
) -> None:
    with pytest.raises(DeltaError) as error:
        said(writer(feed.stream(), checkpoint)).start(str(table.path))
    assert error.value.condition == condition
    assert not table.path.exists()
    assert not table.spark.streams.active


def test_what_no_sink_of_spark_can_do_is_refused_by_spark(
    table: SparkTable, feed: Feed, checkpoint: Path
) -> None:
    stream = writer(feed.stream(), checkpoint)
    with pytest.raises(AnalysisException, match="nobody"):
        stream.partitionBy("nobody").start(str(table.path))
    with pytest.raises(AnalysisException, match="'path' option"):
        writer(feed.stream(), checkpoint).option("path", "/elsewhere").start(str(table.path))
    continuous = writer(feed.stream(), checkpoint).trigger(continuous="1 second")
    with pytest.raises(PySparkException):  # when it starts, or soon after
        continuous.start(str(table.path)).awaitTermination(60)
    assert not table.path.exists()


def test_a_new_table_is_clustered_as_its_writer_wants(
    table: SparkTable, feed: Feed, checkpoint: Path
) -> None:
    feed.add(*rows(1))
    run(writer(feed.stream(), checkpoint).clusterBy("id"), table.path)
    assert clustering_columns(table.log.snapshot.domains) == (("id",),)


def test_all_other_triggers_are_spark_s_own(
    table: SparkTable, feed: Feed, checkpoint: Path
) -> None:
    feed.add(*rows(1)).add(*rows(2))
    finish(writer(feed.stream(), checkpoint).trigger(once=True).start(str(table.path)))
    query = writer(feed.stream(), checkpoint).start(path=str(table.path), outputMode="append")
    feed.add(*rows(3))
    query.processAllAvailable()
    assert query.isActive
    assert query.id in [each.id for each in table.spark.streams.active]
    query.stop()
    assert query.exception() is None
    assert ids(table) == [1, 2, 3]
    query = writer(feed.add(*rows(4)).stream(), checkpoint).start(
        str(table.path), queryName="timed", format="delta"
    )
    query.processAllAvailable()
    query.stop()
    assert query.name == "timed"
    assert ids(table) == [1, 2, 3, 4]


def test_partitions_are_those_of_the_first_batch(
    table: SparkTable, feed: Feed, checkpoint: Path
) -> None:
    feed.add(*rows(1, 2))
    run(writer(feed.stream(), checkpoint).partitionBy("S"), table.path)
    assert table.log.snapshot.metadata.partition_columns == ("s",)
    assert sorted(file.partition_values["s"] or "" for file in table.files) == ["s1", "s2"]
    feed.add(*rows(3))
    run(writer(feed.stream(), checkpoint), table.path)  # who says nothing has nothing against it
    assert ids(table) == [1, 2, 3]
    feed.add(*rows(4))
    with fails_with("DELTA_METADATA_MISMATCH.PARTITIONING_MISMATCH"):
        run(writer(feed.stream(), checkpoint).partitionBy("id"), table.path)
    assert ids(table) == [1, 2, 3]


def test_options_reach_the_files(table: SparkTable, feed: Feed, checkpoint: Path) -> None:
    feed.add(*rows(*range(10)))
    stream = writer(
        feed.stream(),
        checkpoint,
        maxRecordsPerFile=4,
        compression="gzip",
        txnAppId="nobody",
        dataChange=False,
        **{"delta.appendOnly": "true"},
    )
    run(stream, table.path)
    assert sorted(file.num_records or 0 for file in table.files) == [2, 4, 4]
    assert all(".gz." in file.path and file.data_change for file in table.files)
    assert dict(table.log.snapshot.metadata.configuration) == {}
    many = feed.add(*rows(*range(10, 20))).stream().repartition(3)
    run(writer(many, checkpoint, optimizeWrite=True), table.path)
    assert table.metrics["numAddedFiles"] == 1
    assert len(ids(table)) == 20
