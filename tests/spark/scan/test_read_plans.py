"""What a read is to Spark: hidden columns, plans, caches, schemas; and how long it lives."""

from __future__ import annotations

import gc
import time
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.finalizer import ThreadSafeFinalizer
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, functions
from pyspark.sql.types import LongType, StringType, StructType

from pyspark_delta import DeltaLog, DeltaTable, enable
from pyspark_delta.kernel.protocol.row_tracking import materialized_columns
from pyspark_delta.kernel.protocol.types import (
    INTEGER,
    LONG,
    STRING,
    VOID,
    StructField,
)
from pyspark_delta.kernel.protocol.types import StructType as KernelStruct
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.scan.file_index import FileIndexProxy, sources_in
from pyspark_delta.spark.scan.versions import NewestSource
from tests.support.tables import append, create_table, delete_positions

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("v", pa.int32())])


def rows(start: int, end: int, p: str) -> pa.Table:
    listed = list(range(start, end))
    return pa.table({"id": listed, "p": [p] * len(listed), "v": listed}, schema=SCHEMA)


def two_files(path: Path, **configuration: str) -> DeltaLog:
    log = create_table(path, SCHEMA, partition_by=["p"], configuration=configuration)
    append(log, rows(0, 10, "a b"))
    append(log, rows(10, 20, "ü%"))
    return log


def load(spark: SparkSession, path: Path):  # type: ignore[no-untyped-def]
    return enable(spark).read.format("delta").load(str(path))


CONFIGURATIONS: dict[str, dict[str, str]] = {
    "plain": {},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "mapped": {"delta.columnMapping.mode": "name"},
    "mapped by id": {"delta.columnMapping.mode": "id"},
}


@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_metadata_columns_are_there_for_those_who_ask(
    spark: SparkSession, table_path: Path, kind: str
) -> None:
    log = two_files(table_path, **CONFIGURATIONS[kind])
    gone = 0
    if kind == "vectors":
        delete_positions(log, lambda file: [1, 3])
        gone = 4
    table = load(spark, table_path)
    assert table.columns == ["id", "p", "v"]
    found = table.select("*", "_metadata.file_path", "_metadata").collect()
    assert len(found) == 20 - gone
    names = {row["_metadata"]["file_name"] for row in found}
    assert len(names) == 2
    for row in found:
        metadata = row["_metadata"]
        assert row["file_path"] == metadata["file_path"]
        assert row["file_path"].startswith("file:/")
        assert row["file_path"].endswith(metadata["file_name"])
        assert metadata["row_index"] == row["id"] % 10
        assert metadata["file_size"] > 0
    assert table.where("_metadata.row_index = 2 AND id > 5").first()["id"] == 12
    assert table.where("id > 11").select("_metadata.row_index").count() == 8 - gone // 4
    joined = table.alias("a").join(table.alias("b"), functions.expr("a.id = b.id"))
    both = joined.select("a._metadata.row_index", "b._metadata.file_name")
    assert both.count() == 20 - gone
    assert {row["file_path"] for row in found} == set(table.inputFiles())


def test_a_table_that_tracks_rows_tells_their_ids(spark: SparkSession, table_path: Path) -> None:
    log = two_files(table_path, **{"delta.enableRowTracking": "true"})
    table = load(spark, table_path)
    assert table.columns == ["id", "p", "v"]
    fields = ("row_id", "row_commit_version", "base_row_id", "default_row_commit_version")
    found = table.select("id", *(f"_metadata.{name}" for name in fields)).collect()
    assert {row["id"]: row["row_id"] for row in found} == {i: i for i in range(20)}
    assert {(row["base_row_id"], row["row_commit_version"]) for row in found} == {(0, 1), (10, 2)}
    assert table.where("_metadata.row_id = 15").first()["id"] == 15
    assert table.agg(functions.sum("id")).first()[0] == sum(range(20))
    assert materialized_columns(log.update().metadata)


@pytest.mark.parametrize("tracked", ["true", "false"])
def test_a_column_may_be_called_as_sparks_own(
    spark: SparkSession, table_path: Path, tracked: str
) -> None:
    schema = pa.schema([("id", pa.int64()), ("_metadata", pa.string())])
    configuration = {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": tracked}
    log = create_table(table_path, schema, configuration=configuration)
    append(log, pa.table({"id": [0, 1, 2], "_metadata": ["a", "b", "c"]}, schema=schema))
    delete_positions(log, lambda file: [1])
    table = load(spark, table_path)
    assert sorted(tuple(row) for row in table.collect()) == [(0, "a"), (2, "c")]
    assert table.where("_metadata = 'c'").select("__metadata.row_index").first()[0] == 2


def test_both_sides_of_a_self_join_tell_their_row_ids(
    spark: SparkSession, table_path: Path
) -> None:
    two_files(table_path, **{"delta.enableRowTracking": "true"})
    table = load(spark, table_path)
    a, b = table.alias("a"), table.where("id > 4").alias("b")
    joined = a.join(b, functions.expr("a.id = b.id - 1"))
    ids = joined.select("a._metadata.row_id", functions.col("b._metadata.row_id").alias("other"))
    assert sorted(tuple(row) for row in ids.collect()) == [(i, i + 1) for i in range(4, 19)]
    later = joined.where("a._metadata.row_id = 7 AND b._metadata.row_commit_version = 1")
    assert [tuple(row) for row in later.select("a.id", "b.id").collect()] == [(7, 8)]
    # What was known of the columns before is known of them still.
    assert a.join(b, table["id"] == b["id"]).count() == 15
    assert table.alias("c").select(table["id"], "c.v", "c._metadata.row_id").count() == 20
    assert a.join(table.alias("c"), "id").select("a.v", "c.v").count() == 20
    name = f"delta.`{table_path}`"
    found = spark.sql(
        f"SELECT a._metadata.row_id x, b._metadata.row_id y, b._metadata.file_name f "
        f"FROM {name} a JOIN {name} b ON a.id = b.id - 1 WHERE b._metadata.row_id > 15"
    )
    assert sorted(tuple(row)[:2] for row in found.collect()) == [(i, i + 1) for i in range(15, 19)]
    union = table.select("id", "_metadata").union(table.select("id", "_metadata"))
    assert union.select("_metadata.row_id").distinct().count() == 20


def test_plans_compare_by_table_or_version_and_caches_are_found(
    spark: SparkSession, table_path: Path
) -> None:
    log = two_files(table_path)
    table, again = load(spark, table_path), load(spark, table_path)
    assert table.sameSemantics(again)
    table.cache()
    try:
        assert table.count() == 20
        assert "InMemoryTableScan" in again._jdf.queryExecution().executedPlan().toString()
        append(log, rows(20, 21, "new"))
        newer = load(spark, table_path)
        assert table.sameSemantics(newer)
        assert (table.count(), newer.count()) == (20, 20)  # another process's row is not cached
        versions = [spark.read.format("delta").option("versionAsOf", v) for v in (2, 3)]
        second, third = (each.load(str(table_path)) for each in versions)
        assert not second.sameSemantics(third)
        assert not third.sameSemantics(newer)
        assert (second.count(), third.count()) == (20, 21)
    finally:
        table.unpersist()
    assert table.join(again, table["id"] == again["id"]).count() == 21
    fresh = table.select("*")
    statistics = fresh._jdf.queryExecution().optimizedPlan().stats()
    assert int(str(statistics.sizeInBytes())) == log.snapshot_at(version=3).size_in_bytes
    small = fresh._jdf.queryExecution().toString()
    assert "FileScan parquet" in small


def test_what_a_frame_reads_is_known(spark: SparkSession, table_path: Path, tmp_path: Path) -> None:
    two_files(table_path)
    other = tmp_path / "öther 100%"
    two_files(other)
    first, second = load(spark, table_path), load(spark, other)
    found = sources_in(first.where("id > 5").join(second, "id"))
    assert [type(source) for source in found] == [NewestSource] * 2
    assert {Path(source.root.removeprefix("file:")) for source in found} == {table_path, other}
    first.createOrReplaceTempView("first")
    inner = spark.sql("SELECT * FROM range(3) r WHERE r.id IN (SELECT id FROM first WHERE v > 1)")
    [source] = sources_in(inner)
    assert isinstance(source, NewestSource)
    assert inner.count() == 1
    assert source.snapshot.version == 2
    assert any("v > 1" in read.filter.to_sql() for read in source.reads)
    assert sources_in(spark.range(3).toDF("x")) == []
    spark.catalog.dropTempView("first")


def test_two_hundred_loads_leave_nothing_behind(spark: SparkSession, table_path: Path) -> None:
    two_files(table_path)
    jvm = JvmSession(spark)
    pool = jvm.gateway.gateway_property.pool
    others = set(pool.dict)  # of frames that are still in use elsewhere

    def proxies() -> int:
        own = [each for key, each in list(pool.dict.items()) if key not in others]
        return sum(isinstance(each, FileIndexProxy) for each in own)

    def java_objects() -> int:
        gc.collect()
        return len(ThreadSafeFinalizer.finalizers)

    load(spark, table_path).where("id = 1").collect()
    before = java_objects()
    for number in range(200):
        frame = load(spark, table_path)
        if number % 50 == 0:
            frame.where("id = 1").collect()
    del frame
    assert proxies()
    deadline = time.monotonic() + 30
    while proxies() > 1 and time.monotonic() < deadline:
        gc.collect()
        jvm.jvm.java.lang.System.gc()
        jvm.jvm.java.lang.System.runFinalization()
        # Java tells Python what it let go of when it next collects.
        time.sleep(0.2)
    # Something of Spark's or Py4J's keeps the last one; those before it must go.
    assert proxies() <= 1
    assert java_objects() - before < 20


def test_readers_see_the_table_s_schema_and_nothing_of_its_writers(
    spark: SparkSession, table_path: Path
) -> None:
    schema = KernelStruct(
        (
            StructField("k", LONG, nullable=False, metadata={"comment": "the key"}),
            StructField("nothing", VOID),
            StructField("c", STRING, metadata={"__CHAR_VARCHAR_TYPE_STRING": "varchar(5)"}),
            StructField("s", KernelStruct((StructField("a", INTEGER), StructField("none", VOID)))),
            StructField("g", LONG, metadata={"delta.generationExpression": "k"}),
            StructField("d", LONG, metadata={"CURRENT_DEFAULT": "7"}),
        )
    )
    log = create_table(
        table_path,
        schema,
        configuration={
            "delta.feature.allowColumnDefaults": "supported",
            "delta.feature.generatedColumns": "supported",
        },
    )
    assert log.update().version == 0
    found = load(spark, table_path).schema
    assert found.names == ["k", "nothing", "c", "s", "g", "d"]
    assert (found["k"].dataType, found["k"].nullable) == (LongType(), False)
    assert found["k"].metadata == {"comment": "the key"}
    assert found["c"].dataType == StringType()
    assert found["c"].metadata == {"__CHAR_VARCHAR_TYPE_STRING": "varchar(5)"}
    assert isinstance(found["s"].dataType, StructType)
    assert found["s"].dataType.names == ["a", "none"]
    assert (found["g"].metadata, found["d"].metadata) == ({}, {"CURRENT_DEFAULT": "7"})


def test_what_fails_while_a_query_runs_has_its_name(spark: SparkSession, table_path: Path) -> None:
    two_files(table_path, **CONFIGURATIONS["vectors"])
    DeltaTable.forPath(enable(spark), str(table_path)).delete("v % 3 = 1")
    (vectors,) = table_path.glob("deletion_vector*.bin")
    table = load(spark, table_path)
    vectors.write_bytes(b"\x01no vector")
    with pytest.raises(PySparkException) as refused:
        table.collect()
    assert str(refused.value.getCondition()).startswith("DELTA_")
