"""The fourth document: the sink of a streaming query, batch by batch."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from pathlib import Path

import pytest
from pyspark.sql import SparkSession, SQLContext
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_delta import DeltaLog, DeltaOptions, DeltaSink
from pyspark_delta.actions import Action, AddFile, CommitInfo, RemoveFile, SetTransaction
from pyspark_delta.errors import DeltaError
from pyspark_delta.spark.jvm.streaming import BatchSink
from pyspark_delta.spark.streaming import sink as inner
from tests.docs.seeds.claims import Claims
from tests.support.feeds import Feed, run

CLAIMS = Claims()


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """A table that took two batches in append mode, and one that took two in complete mode.

    The first table was then read by a stream that writes into it.
    """

    spark: SparkSession
    path: Path
    counts: Path
    query: StreamingQuery
    complete: StreamingQuery
    itself: StreamingQuery

    @classmethod
    def make(cls, spark: SparkSession, folder: Path) -> Streams:
        path, counts = folder / "tä ble 100%", folder / "cöunts 100%"
        feed = Feed(spark, folder / "fe ed 100%", "id LONG").add({"id": 1}).add({"id": 2})

        def writer(data: object, name: str, mode: str = "append") -> StreamingQuery:
            started = data.writeStream.format("delta").outputMode(mode)  # type: ignore[attr-defined]
            place = {"append": path, "complete": counts}[mode]
            return run(started.option("checkpointLocation", str(folder / f"ö {name}")), place)

        query = writer(feed.stream(), "first")
        complete = writer(feed.stream().groupBy().count(), "complete", "complete")
        static = spark.read.format("delta").load(str(path))
        feed.add({"id": 2})
        joined = feed.stream().join(static, "id").selectExpr("id + 10 AS id")
        return cls(
            spark=spark,
            path=path,
            counts=counts,
            query=query,
            complete=complete,
            itself=writer(joined, "itself"),
        )

    def sink(self, mode: str = "append", **options: object) -> DeltaSink:
        """A sink of its own for the first table."""
        return DeltaSink(self.spark, str(self.path), [], mode, options)

    def commit(self, path: Path, version: int) -> list[Action]:
        """The actions of a version."""
        return dict(DeltaLog.for_table(path).get_changes(version))[version]


@CLAIMS.of("DeltaSink", 3)
def it_is_the_sink_of_streams_in_the_format_delta(made: Streams) -> None:
    assert issubclass(DeltaSink, BatchSink)
    rows = made.spark.read.format("delta").load(str(made.path)).collect()
    assert {1, 2} <= {row["id"] for row in rows}


@CLAIMS.of("DeltaSink", 7, range(9, 14))
def it_is_made_of_a_context_a_path_partition_columns_a_mode_and_options(made: Streams) -> None:
    assert list(signature(DeltaSink).parameters)[:5] == [
        "sql_context",
        "path",
        "partition_columns",
        "output_mode",
        "options",
    ]
    with pytest.warns(FutureWarning):
        context = SQLContext.getOrCreate(made.spark.sparkContext)
    given = DeltaOptions({"mergeSchema": "true"})
    sink = DeltaSink(context, str(made.path), ["id"], "append", given)
    assert sink.can_merge_schema


@CLAIMS.of("spark.session.door.DeltaDoor.sink", 15, 17)
def a_stream_written_in_the_format_makes_one(made: Streams) -> None:
    progress = made.query.lastProgress
    assert progress is not None
    assert progress["sink"]["description"] == f"DeltaSink[{made.path}]"


@CLAIMS.of("DeltaSink.add_batch", 22, 25, 27, 29)
def its_log_is_that_of_the_table_from_the_start(made: Streams) -> None:
    log = made.sink().delta_log
    assert isinstance(log, DeltaLog)
    assert log is made.sink().delta_log
    assert log.data_path == DeltaLog.for_table(made.path).data_path


@CLAIMS.of("DeltaSink.add_batch", 34, 35, 36, 39)
def a_batch_has_an_id_and_data(made: Streams) -> None:
    assert list(signature(DeltaSink.add_batch).parameters)[1:] == ["batch_id", "data"]
    assert DeltaSink.add_batch is not BatchSink.add_batch


@CLAIMS.of("DeltaLog.with_new_transaction", 43)
def a_batch_is_a_transaction_of_its_own(made: Streams) -> None:
    reads = [info.read_version for info in DeltaLog.for_table(made.path).history()[::-1][:2]]
    assert reads == [None, 0] or reads == [-1, 0]
    assert DeltaLog.for_table(made.path).with_new_transaction(lambda txn: txn.read_version) >= 1


@CLAIMS.of("spark.streaming.sink._METRICS", 45, 47, 49, 50)
def it_counts_files_that_are_added_and_removed(made: Streams) -> None:
    assert inner._METRICS["numAddedFiles"][0] == "number of files added"
    assert inner._METRICS["numRemovedFiles"][0] == "number of files removed"


@CLAIMS.of("spark.jvm.streaming.running_query_id", 52)
def a_batch_outside_of_a_query_is_refused(made: Streams) -> None:
    with pytest.raises(DeltaError) as refused:
        made.sink().add_batch(0, made.spark.range(1))
    assert refused.value.condition == "DELTA_OPERATION_NOT_ALLOWED"


@CLAIMS.of("OptimisticTransaction.read_whole_table", 54)
def a_batch_that_reads_its_own_table_depends_on_all_of_it(made: Streams) -> None:
    infos = DeltaLog.for_table(made.path).history()
    flags = {(info.operation_parameters or {})["queryId"]: info.is_blind_append for info in infos}
    assert flags == {made.query.id: True, made.itself.id: False}


@CLAIMS.of("OptimisticTransaction.update_metadata", 56)
def the_first_batch_gives_the_table_its_schema(made: Streams) -> None:
    assert DeltaLog.for_table(made.path).snapshot_at(0).schema.names == ("id",)


@CLAIMS.of("spark.write.overwrite.whole_table", 58)
def in_complete_mode_all_files_go(made: Streams) -> None:
    added = [a for a in made.commit(made.counts, 0) if isinstance(a, AddFile)]
    removed = [a for a in made.commit(made.counts, 1) if isinstance(a, RemoveFile)]
    assert [file.path for file in added] == [file.path for file in removed]
    assert not any(isinstance(action, RemoveFile) for action in made.commit(made.path, 1))


@CLAIMS.of("spark.streaming.sink.BatchRows.stage", 60)
def the_rows_of_a_batch_become_files(made: Streams) -> None:
    (file,) = [action for action in made.commit(made.path, 1) if isinstance(action, AddFile)]
    assert (file.num_records, (made.path / file.path).stat().st_size) == (1, file.size)


@CLAIMS.of("spark.jvm.write.file_writer.PlanMetrics", 62)
def the_counts_are_in_the_commit(made: Streams) -> None:
    info = made.commit(made.counts, 1)[0]
    assert isinstance(info, CommitInfo)
    metrics = info.operation_metrics or {}
    assert (metrics["numAddedFiles"], metrics["numRemovedFiles"]) == ("1", "1")


@CLAIMS.of("kernel.protocol.operations.operation", 64)
def a_batch_ends_as_one_commit_with_its_transaction_and_files(made: Streams) -> None:
    info, *actions = made.commit(made.counts, 1)
    assert isinstance(info, CommitInfo)
    assert info.operation == "STREAMING UPDATE"
    assert {type(action) for action in actions} == {SetTransaction, AddFile, RemoveFile}
    txn = next(action for action in actions if isinstance(action, SetTransaction))
    assert (txn.app_id, txn.version) == (made.complete.id, 1)


@CLAIMS.of("DeltaSink.__str__", 69, 72, 75)
def its_text_has_the_path(made: Streams) -> None:
    assert str(made.sink()) == f"DeltaSink[{made.path}]"


@CLAIMS.of("spark.write.schema.define_table", 80)
def it_changes_the_metadata_by_itself_where_options_allow(made: Streams) -> None:
    assert (made.sink().can_merge_schema, made.sink().can_overwrite_schema) == (False, False)


@CLAIMS.of("DeltaSink.can_merge_schema", 85, 88, 92)
def whether_it_merges_schemas_is_an_option(made: Streams) -> None:
    options = DeltaOptions({"mergeSchema": "true"})
    assert options.can_merge_schema is True
    assert made.sink(**options).can_merge_schema
    assert not made.sink(mergeSchema="false").can_merge_schema


@CLAIMS.of("DeltaSink.can_overwrite_schema", 97, 100, 104, 106, 107)
def it_overwrites_the_schema_in_complete_mode_where_an_option_says_so(made: Streams) -> None:
    assert DeltaOptions({"overwriteSchema": "true"}).can_overwrite_schema is True
    assert made.sink("complete", overwriteSchema="true").can_overwrite_schema
    assert not made.sink("complete").can_overwrite_schema
    assert not made.sink("append", overwriteSchema="true").can_overwrite_schema
