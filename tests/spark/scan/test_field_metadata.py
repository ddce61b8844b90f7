"""Metadata of columns: what readers see of it, and what a copy of a table takes along."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta import DeltaLog, DeltaTable, enable
from tests.support.catalog_tables import own_database

# As delta-spark 4.4.0 shows them, whatever the table's column mapping.
SHOWN = {
    "a": {"comment": "hello", "CURRENT_DEFAULT": "5"},
    "g": {},
    "c": {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"},
    "s": {},
    "i": {},
    "p": {"comment": "part", "CURRENT_DEFAULT": "'x'"},
}
ROW = "(a, c, s) VALUES (1, 'abc', named_struct('x', 1))"


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    with own_database(enable(spark)):
        yield spark


def make(session: SparkSession, path: Path, mode: str) -> None:
    """A table with all the metadata that there is, and the name `t`."""
    session.sql(f"""
        CREATE TABLE t (
            a INT COMMENT 'hello' DEFAULT 5, g INT GENERATED ALWAYS AS (a + 1), c CHAR(3),
            s STRUCT<x: INT COMMENT 'nested'>, i BIGINT GENERATED ALWAYS AS IDENTITY,
            p STRING COMMENT 'part' DEFAULT 'x')
        USING delta PARTITIONED BY (p) LOCATION '{path}' TBLPROPERTIES (
            delta.feature.allowColumnDefaults = 'supported', delta.enableChangeDataFeed = 'true',
            delta.columnMapping.mode = '{mode}')""")
    session.sql(f"INSERT INTO t {ROW}")


@pytest.mark.parametrize("mode", ["none", "name", "id"])
def test_readers_see_the_metadata_that_delta_spark_shows(
    session: SparkSession, table_path: Path, mode: str
) -> None:
    make(session, table_path, mode)
    path = str(table_path)
    shown = {
        "path": session.read.format("delta").load(path),
        "name": session.table("t"),
        "SQL": session.sql(f"SELECT * FROM delta.`{path}`"),
        "version": session.read.format("delta").option("versionAsOf", 1).load(path),
        "DeltaTable": DeltaTable.forPath(session, path).toDF(),
        "stream": session.readStream.format("delta").load(path),
        "stream of a name": session.readStream.table("t"),
        "changes": session.read.option("readChangeFeed", True)
        .option("startingVersion", 1)
        .table("t")
        .drop("_change_type", "_commit_version", "_commit_timestamp"),
    }
    assert {way: metadata(frame) for way, frame in shown.items()} == dict.fromkeys(shown, SHOWN)
    for way, frame in shown.items():
        nested = frame.schema["s"].dataType["x"]  # type: ignore[index]
        assert nested.metadata == {"comment": "nested"}, way
    expected = [(1, 2, "abc", (1,), 1, "x")]
    assert session.read.format("delta").load(path).collect() == expected
    assert session.table("t").where("s.x = 1 AND p = 'x'").select("s.x").collect() == [(1,)]


def test_a_copy_of_a_mapped_table_has_none_of_its_rules_and_ids(
    session: SparkSession, table_path: Path, tmp_path: Path
) -> None:
    make(session, table_path, "id")
    frame = session.read.format("delta").load(str(table_path))
    new = session.range(1).selectExpr("CAST(1 AS INT) AS a")

    def place(way: str) -> str:
        return str(tmp_path / f"cöpy 100% {way}")

    frame.write.format("delta").save(place("save"))
    frame.write.format("delta").option("path", place("saveAsTable")).saveAsTable("u")
    session.sql(f"CREATE TABLE delta.`{place('CTAS')}` USING delta AS SELECT * FROM t")
    for way, mode in (("mergeSchema", "append"), ("overwriteSchema", "overwrite")):
        new.write.format("delta").save(place(way))
        frame.write.format("delta").mode(mode).option(way, "true").save(place(way))
    new.write.format("delta").save(place("MERGE"))
    merge = DeltaTable.forPath(session, place("MERGE")).alias("t").merge(frame.alias("s"), "false")
    merge.withSchemaEvolution().whenNotMatchedInsertAll().execute()
    stream = session.readStream.format("delta").load(str(table_path)).writeStream.format("delta")
    query = stream.option("checkpointLocation", place("checkpoint")).trigger(availableNow=True)
    query.start(place("stream")).awaitTermination()
    DeltaTable.create(session).location(place("builder")).addColumns(frame.schema).execute()
    session.sql("CREATE VIEW v AS SELECT * FROM t")
    for view in ("v", "w"):
        frame.createOrReplaceTempView("w")
        session.sql(f"CREATE TABLE like_{view} LIKE {view} USING delta LOCATION '{place(view)}'")

    copies = [p for p in tmp_path.iterdir() if (p / "_delta_log").exists() and p != table_path]
    assert len(copies) == 10
    for copy in copies:
        snapshot = DeltaLog.for_table(copy).update()
        kept = {key for field in snapshot.schema for key in field.metadata}
        assert kept <= {"comment", "__CHAR_VARCHAR_TYPE_STRING"}, copy.name
        assert "allowColumnDefaults" not in (snapshot.protocol.writer_features or ()), copy.name


def metadata(frame: DataFrame) -> dict[str, dict[str, object]]:
    return {field.name: field.metadata for field in frame.schema.fields}
