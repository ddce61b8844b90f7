"""Rows that other implementations lost or doubled in scans, streams and overwrites: none here.

Each test rebuilds what its report tells.  `docs/reported-losses.md` lists them all.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_delta import DeltaTable, enable
from pyspark_delta.kernel.protocol.operations import write
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from tests.support.agreement import kernel_rows
from tests.support.catalog_tables import own_database
from tests.support.dml_runs import check_files, conserving
from tests.support.dml_tables import KINDS, VECTORS, DmlTable
from tests.support.merges import FEED, MergeTable
from tests.support.spark_tables import conf
from tests.support.streams import Batches, drain, offsets, stream_of
from tests.support.tables import append, create_table, write_files

# Los Angeles before it had a zone.
LOCAL = timezone(-timedelta(hours=7, minutes=52, seconds=58))


@pytest.fixture(autouse=True)
def _enabled(spark: SparkSession) -> None:
    enable(spark)


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> DmlTable:
    return DmlTable(spark, table_path)


def times(*values: datetime) -> pa.Table:
    at = pa.array(values, pa.timestamp("us", "UTC"))
    return pa.table({"id": pa.array(range(len(values)), pa.int64()), "at": at})


def append_as(log: DeltaLog, rows: pa.Table, **bounds: str) -> None:
    """A file of these rows that another writer made: its bounds of `at` are as given."""
    txn = log.start_transaction()
    (file,) = write_files(log.store, txn.metadata, rows, now_ms=log.now_ms())
    low, high = bounds["low"], bounds["high"]
    stats = {
        "numRecords": rows.num_rows,
        "minValues": {"at": low},
        "maxValues": {"at": high},
        "nullCount": {"at": 0},
    }
    txn.commit([replace(file, stats=json.dumps(stats))], write("Append"))


def found(table: DmlTable, condition: str) -> list[int]:
    return sorted(row[0] for row in table.read().where(condition).collect())


@KINDS
def test_times_whose_offset_lost_its_seconds_are_found(
    table: DmlTable, properties: dict[str, str]
) -> None:
    """delta-io/delta#5249, #5512, PR 5568, PR 6080: files with such bounds were passed over."""
    old = [datetime(1850, 1, 1, second=n, tzinfo=LOCAL) for n in range(3)]
    log = create_table(table.path, times().schema, configuration=properties)
    cut = {"low": "1850-01-01T00:00:00.000-07:52", "high": "1850-01-01T00:00:02.000-07:52"}
    append_as(log, times(*old), **cut)
    append(log, times(datetime(2024, 1, 1, tzinfo=UTC)))
    # The zone of the session is that of Los Angeles.
    first, last = "timestamp'1850-01-01 00:00:00'", "timestamp'1850-01-01 00:00:02'"
    assert found(table, f"at = {first}") == [0]
    assert found(table, f"at <= {first}") == [0]
    assert found(table, f"at >= {last} AND at < '1851-01-01'") == [2]
    assert found(table, f"at BETWEEN {first} AND {last}") == [0, 1, 2]
    with conserving(table.path, deleted=1):
        table.handle.delete(f"at = {last}")
    with conserving(table.path):
        table.handle.update(f"at <= {first}", {"id": "7"})
    source = table.spark.sql("SELECT 1L AS id, timestamp'1850-01-01 00:00:01' AS at")
    with conserving(table.path, deleted=1):
        merge = table.handle.alias("t").merge(source.alias("s"), "t.at = s.at")
        merge.whenMatchedDelete().whenNotMatchedInsertAll().execute()
    assert found(table, "true") == [0, 7]


def test_times_of_1850_that_we_write_are_found_in_every_zone(table: DmlTable) -> None:
    """delta-io/delta#5249, #5512: the same for statistics of our own."""
    with conf(table.spark, spark__sql__session__timeZone="Europe/Stockholm"):
        data = table.spark.sql("SELECT 1L AS id, make_timestamp(1850, 1, 1, 1, 1, 1) AS at")
        table.write(data)
        assert found(table, "at = make_timestamp(1850, 1, 1, 1, 1, 1)") == [1]
        micros = data.select(F.unix_micros("at")).first()
    assert micros is not None
    for zone in ("UTC", "America/Los_Angeles", "Asia/Kolkata"):
        with conf(table.spark, spark__sql__session__timeZone=zone):
            assert found(table, f"at = timestamp_micros({micros[0]}L)") == [1]
            assert found(table, f"at > timestamp_micros({micros[0] - 1}L)") == [1]
            assert found(table, f"at < timestamp_micros({micros[0]}L)") == []


@pytest.mark.parametrize("cut", [True, False], ids=["bounds of others", "our bounds"])
def test_the_last_microseconds_of_a_file_are_found_through_a_checkpoint(
    table: DmlTable, cut: bool
) -> None:
    """delta-io/delta-rs#2571, trino PR 31231, kernel-rs PRs 1003, 2249: the maximum was cut."""
    at = datetime(2023, 3, 29, 23, 59, 59, 807_126, tzinfo=UTC)
    structs = {"delta.checkpoint.writeStatsAsStruct": "true"}
    without = {"delta.checkpoint.writeStatsAsJson": "false"}
    log = create_table(table.path, times().schema, configuration={**structs, **without, **VECTORS})
    if cut:
        append_as(
            log, times(at, at), low="2023-03-29T23:59:59.807Z", high="2023-03-29T23:59:59.807Z"
        )
    else:
        append(log, times(at, at))
    append(log, times(datetime(2020, 1, 1, tzinfo=UTC)))
    log.checkpoint()
    for version in range(2):
        (table.path / f"_delta_log/{version:020d}.json").unlink()
    with conf(table.spark, spark__sql__session__timeZone="UTC"):
        exact = "timestamp'2023-03-29 23:59:59.807126'"
        assert found(table, f"at = {exact}") == [0, 1]
        assert found(table, "at > timestamp'2023-03-29 23:59:59.807'") == [0, 1]
        assert found(table, f"at > {exact}") == []
        table.handle.delete(f"at >= {exact} AND id = 1")
    assert found(table, "true") == [0, 0]


@pytest.fixture
def streamed(table_path: Path) -> DeltaLog:
    """Four files in as many commits; the ids are seconds of an event time."""
    log = create_table(table_path, pa.schema([("id", pa.int64())]))
    for number in range(4):
        append(log, ids_of(10 * number, 10 * number + 1))
    return log


def ids_of(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def die_in(checkpoint: Path, batch: int) -> None:
    """Leave a checkpoint as a kill in this batch does: its offset is there, it is not done."""
    for folder, last in (("offsets", batch), ("commits", batch - 1)):
        for entry in (checkpoint / folder).iterdir():
            if int(entry.name.strip(".").partition(".")[0]) > last:
                entry.unlink()


def test_a_batch_without_rows_that_was_not_done_reads_nothing_again(
    spark: SparkSession, streamed: DeltaLog, table_path: Path, tmp_path: Path
) -> None:
    """delta-io/delta#548: a stream killed in a batch for state alone began from the start."""
    checkpoint = tmp_path / "chéck 50%"

    def counted() -> DataFrame:
        events = stream_of(spark, table_path).selectExpr("timestamp_seconds(id) AS at", "id")
        late = events.withWatermark("at", "1 second")
        return late.groupBy(F.window("at", "10 seconds")).agg(F.min("id"), F.count("*"))

    def closed(batches: Batches) -> list[tuple[int, int]]:
        return sorted(row[1:] for row in batches.rows)

    seen = closed(drain(counted(), checkpoint))
    assert seen == [(0, 2), (10, 2), (20, 2)]
    told = offsets(checkpoint)
    assert told[-1] == told[-2]
    die_in(checkpoint, len(told) - 1)
    again = drain(counted(), checkpoint)
    # The windows that closed in that batch are told again; no row is read again.
    assert closed(again) == seen
    assert offsets(checkpoint)[-1] == told[-1]
    append(streamed, ids_of(50, 100))
    assert closed(drain(counted(), checkpoint)) == [(30, 2), (50, 1)]


@pytest.mark.parametrize("step", [0, 2, 3])
def test_a_run_to_the_end_goes_on_where_the_last_one_died(
    spark: SparkSession, streamed: DeltaLog, table_path: Path, tmp_path: Path, step: int
) -> None:
    """delta-io/delta#1431: a restarted run took its end for that of a new stream."""
    checkpoint = tmp_path / "chéck 50%"
    stream = stream_of(spark, table_path, maxFilesPerTrigger=1)
    first = drain(stream, checkpoint)
    assert first.sizes == [2, 2, 2, 2]
    before = offsets(checkpoint)
    die_in(checkpoint, step)
    append(streamed, ids_of(77))
    again = drain(stream_of(spark, table_path, maxFilesPerTrigger=1), checkpoint)
    assert again.all == [*first.all[step:], [(77,)]]
    assert offsets(checkpoint)[: len(before) - 1] == before[:-1]
    assert drain(stream_of(spark, table_path), checkpoint).all == []


def test_vectors_are_found_below_paths_of_any_spelling(spark: SparkSession, tmp_path: Path) -> None:
    """delta-io/delta#1725, #4989, PR 3678: paths were encoded twice, or not at all."""
    path = tmp_path / "a b%25+é #&=;" / "spark test%20"
    table = MergeTable(spark, path)
    value = "x y%25+é/&=#:%"
    data = spark.range(1, 6, 1, 1).withColumn("p", F.lit(value))
    prefixes = {"delta.randomizeFilePrefixes": "true"}
    data.write.format("delta").partitionBy("p").options(**VECTORS, **FEED, **prefixes).save(
        str(path)
    )
    for gone in (1, 4):
        with conserving(path, deleted=1):
            table.handle.delete(f"id = {gone}")
        assert table.feed == [(gone, value, "delete")]
    with conserving(path):
        source = table.data("id long, p string", (2, value))
        assert table.done(table.merge(source).whenMatchedUpdate(set={"id": "22"})) == (1, 0, 0)
    expected = [(22, value), (3, value), (5, value)]
    assert table.rows == expected
    assert [row["id"] for row in kernel_rows(path)] == [22, 3, 5]
    with own_database(spark):
        spark.sql(f"CREATE TABLE t USING delta LOCATION '{path}'")
        assert sorted(map(tuple, spark.table("t").collect()), key=repr) == expected


def test_partitions_of_null_and_of_no_text_are_replaced(table: DmlTable) -> None:
    """delta-io/delta#825: no condition could name them, so their old rows stayed."""
    schema = "x string, y int, z int"
    rows = [(None, 1, 10), ("", 2, 20), ("b", 1, 30), ("b", 2, 40)]
    table.write(table.data(schema, *rows), "append", "x", "y")
    # To the protocol both are null.
    assert table.read().where("x IS NULL").count() == 2
    new = table.data(schema, (None, 1, 11), ("", 2, 21))
    with conserving(table.path, inserted=2, deleted=2):
        table.write(new, "overwrite", replaceWhere="x IS NULL")
    kept = [("b", 1, 30), ("b", 2, 40)]
    assert table.rows == sorted([*kept, (None, 1, 11), (None, 2, 21)], key=repr)
    with conserving(table.path, inserted=1, deleted=1):
        one = table.data(schema, (None, 2, 22))
        table.write(one, "overwrite", replaceWhere="x <=> NULL AND y = 2")
    for condition in ("x = ''", "x = NULL"):
        # True for no row, and so for none that is written either.
        with table.refused("DELTA_REPLACE_WHERE_MISMATCH"):
            table.write(new, "overwrite", replaceWhere=condition)
    with conserving(table.path, inserted=1, deleted=1):
        one = table.data(schema, ("", 1, 12))
        table.write(one, "overwrite", partitionOverwriteMode="dynamic")
    assert table.rows == sorted([*kept, (None, 1, 12), (None, 2, 22)], key=repr)


def test_counts_leave_out_rows_that_vectors_took(table: DmlTable) -> None:
    """ClickHouse/ClickHouse#114933: count() added up what files hold, vectors or not."""
    values = "id", "if(id % 10 = 0, null, id) AS v"
    table.write(table.spark.range(0, 310, 1, 3).selectExpr(*values), **VECTORS)
    with conserving(table.path, deleted=50):
        table.handle.delete("id >= 260")
    with conserving(table.path, deleted=26):
        table.handle.delete("v IS NULL")
    spark, path = table.spark, f"delta.`{table.path}`"
    with conf(spark, spark__sql__parquet__aggregatePushdown="true"):
        told = spark.sql(f"SELECT count(*), count(v), count(id), min(id), max(id) FROM {path}")
        assert tuple(told.first() or ()) == (234, 234, 234, 1, 259)
        assert spark.sql(f"SELECT count(*) FROM {path} WHERE id > 200").first() == (54,)
        old = spark.read.format("delta").option("versionAsOf", 1).load(str(table.path))
        assert old.count() == 260
    assert len(kernel_rows(table.path)) == 234
    assert table.handle.delete().first() == (234,)


def fragments() -> Iterator[str]:
    """Parts of statistics that a careless writer would leave out or spell otherwise."""
    yield '"minValues":{"id":0,"v":"0S&u0Bz!aiw]"'
    yield '"maxValues":{"id":9,"v":"0S&u0Bz!aiw]"'
    yield '"unknown":{"deep":[1,2.50,"x"]}'
    yield '"price":12345678901234567890.1234567890'
    yield '"fromTheFuture":{"kept":1e400}'


@pytest.mark.parametrize("counted", [True, False], ids=["with a count", "without"])
def test_statistics_that_nobody_knows_stay_when_a_file_gets_a_vector(
    spark: SparkSession, table_path: Path, tmp_path: Path, counted: bool
) -> None:
    """delta-io/delta, CheckpointsSuite: DML with vectors corrupted statistics of variants."""
    first = DmlTable(spark, table_path)
    rows = "id", "parse_json(concat('{\"a\":', id, '}')) AS v"
    first.write(spark.range(0, 10, 1, 1).selectExpr(*rows), **VECTORS)
    first.log.wait_for_hooks()
    path = tmp_path / "cö py 1%"
    shutil.copytree(table_path, path, ignore=shutil.ignore_patterns("*.crc"))
    bounds = '"unknown":{"deep":[1,2.50,"x"]},"price":12345678901234567890.1234567890'
    stats = (
        ('{"numRecords":10,' if counted else "{")
        + f'"minValues":{{"id":0,"v":"0S&u0Bz!aiw]",{bounds}}},'
        + f'"maxValues":{{"id":9,"v":"0S&u0Bz!aiw]",{bounds}}},'
        + '"nullCount":{"id":0,"v":0,"unknown":3},"fromTheFuture":{"kept":1e400}}'
    )
    commit = path / f"_delta_log/{0:020d}.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            line["add"]["stats"] = stats
    commit.write_text("".join(json.dumps(line) + "\n" for line in lines))
    table = DmlTable(spark, path)

    def check() -> None:
        (file,) = (file for file in table.files if file.deletion_vector is not None)
        assert [part for part in fragments() if part not in (file.stats or "")] == []
        known = json.loads(file.stats or "")
        assert (known["numRecords"], known["tightBounds"]) == (10, False)

    table.handle.delete("id = 3")
    check()
    table.log.checkpoint()
    DeltaLog.clear_cache()
    table = DmlTable(spark, path)
    table.handle.update("id = 4", {"id": "44"})
    check()
    source = table.data("id long", (5,))
    merge = table.handle.alias("t").merge(source.alias("s"), "t.id = s.id")
    merge.whenMatchedDelete().execute()
    check()
    assert found(table, "true") == [0, 1, 2, 6, 7, 8, 9, 44]
    assert found(table, "variant_get(v, '$.a', 'int') = 4") == [44]
    check_files(path, 8)


SHAPES: dict[str, Callable[[DataFrame, Path], None]] = {
    "saveAsTable": lambda data, path: (
        data.write.format("delta")
        .mode("overwrite")
        .option("replaceWhere", "region = 'NA'")
        .saveAsTable("t")
    ),
    "save": lambda data, path: (
        data.write.format("delta")
        .mode("overwrite")
        .option("replaceWhere", "region = 'NA'")
        .save(str(path))
    ),
    "writeTo": lambda data, path: data.writeTo("t").overwrite(F.col("region") == "NA"),
    "rows of files": lambda data, path: (
        data.write.format("delta")
        .mode("overwrite")
        .option("replaceWhere", "region = 'NA' AND record_id >= 0")
        .saveAsTable("t")
    ),
    "dynamic": lambda data, path: (
        data.write.format("delta")
        .mode("overwrite")
        .option("partitionOverwriteMode", "dynamic")
        .saveAsTable("t")
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_outside_of_a_condition_keep_their_partitions(
    spark: SparkSession, table_path: Path, shape: str
) -> None:
    """NVIDIA/cudf-spark#15926: without partitionBy, other rows had null for their partition."""
    with own_database(spark):
        spark.sql(
            "CREATE TABLE t (record_id BIGINT, region STRING, amount DOUBLE) USING delta "
            f"PARTITIONED BY (region) LOCATION '{table_path}'"
        )
        regions = "element_at(array('NA', 'EMEA', 'APAC', 'LATAM'), cast(id % 4 + 1 AS int))"
        seed = spark.range(0, 100, 1, 2).selectExpr("id", f"{regions} AS region", "id / 2D")
        seed.write.insertInto("t")
        new = spark.range(0, 5, 1, 1).selectExpr(
            "id AS record_id", "'NA' AS region", "0D AS amount"
        )
        with conserving(table_path, inserted=5, deleted=25):
            SHAPES[shape](new, table_path)
        counts = spark.table("t").groupBy("region").agg(F.count("*"), F.sum("amount")).collect()
        told = {row[0]: (row[1], row[2]) for row in counts}
        assert told == {
            "NA": (5, 0.0),
            **{
                region: (25, sum(range(k, 100, 4)) / 2)
                for k, region in enumerate(("EMEA", "APAC", "LATAM"), 1)
            },
        }
        (detail,) = DeltaTable.forName(spark, "t").detail().collect()
        assert detail["partitionColumns"] == ["region"]


def test_a_compaction_removes_files_that_are_there(table: DmlTable) -> None:
    """delta-io/delta-rs#3906: removes named paths that were none, and the table doubled."""
    data = table.spark.range(0, 24, 1, 4).selectExpr("id", "concat('a b%', id % 2) AS p")
    asked = {"delta.autoOptimize.autoCompact": "true"}
    table.write(data, "append", "p", **asked, **VECTORS)
    table.handle.delete("id IN (3, 4)")
    few = "spark__databricks__delta__autoCompact__minNumFiles"
    with conf(table.spark, **{few: "2"}), conserving(table.path, inserted=24):
        table.write(data.selectExpr("id + 100 AS id", "p"))
    assert table.info.operation == "OPTIMIZE"
    assert table.metrics["numRemovedFiles"] == 16
    assert len(table.files) == 2
    expected = {i for i in range(24) if i not in (3, 4)} | set(range(100, 124))
    assert {row[0] for row in table.rows} == expected
