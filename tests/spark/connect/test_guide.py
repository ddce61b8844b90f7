"""What the guide shows, from a client of Spark Connect: SQL, reads and writes, catalog, streams."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import functions as F

from tests.support.connect_client import in_client


def rows(frame: Any) -> list[tuple[Any, ...]]:
    """The rows, in order."""
    return sorted(tuple(row) for row in frame.collect())


def refused(call: Callable[[], object]) -> Any:
    """The error of a call that has one of PySpark's."""
    with pytest.raises(PySparkException) as caught:
        call()
    return caught.value


def numbers(spark: Any, path: Path) -> str:
    """The SQL name of a table of two rows at the path."""
    name = f"delta.`{path}`"
    spark.sql(f"CREATE TABLE {name} (id INT, text STRING) USING delta")
    spark.sql(f"INSERT INTO {name} VALUES (1, 'one'), (2, 'two')")
    return name


@in_client
def test_statements_change_rows(spark: Any, path: Path) -> None:
    name = numbers(spark, path)
    spark.sql(f"INSERT INTO {name} (id) VALUES (3)")
    assert spark.sql(f"UPDATE {name} SET text = 'drei' WHERE id = 3").collect()[0][0] == 1
    assert spark.sql(f"DELETE FROM {name} WHERE id = 1").collect()[0][0] == 1
    merged = spark.sql(f"""
        MERGE INTO {name} t USING (SELECT * FROM VALUES (2, 'zwei'), (4, 'vier') AS v (id, text)) s
        ON t.id = s.id
        WHEN MATCHED THEN UPDATE SET *
        WHEN NOT MATCHED THEN INSERT *
    """)
    assert tuple(merged.collect()[0]) == (2, 1, 0, 1)
    assert rows(spark.sql(f"SELECT * FROM {name}")) == [(2, "zwei"), (3, "drei"), (4, "vier")]
    spark.sql(f"INSERT OVERWRITE {name} SELECT 9, 'neun'")
    spark.sql(f"TRUNCATE TABLE {name}")
    assert spark.sql(f"SELECT count(*) FROM {name}").collect()[0][0] == 0
    history = spark.sql(f"DESCRIBE HISTORY {name}").where("version > 1").select("operation")
    assert len(rows(history)) == 6  # each statement ran once


@in_client
def test_statements_define_tables(spark: Any, path: Path) -> None:
    spark.sql(f"""
        CREATE TABLE stock (id BIGINT NOT NULL, item STRING, n INT,
            code STRING GENERATED ALWAYS AS (concat(item, '-', id)))
        USING delta PARTITIONED BY (n) LOCATION '{path}'
        TBLPROPERTIES ('delta.columnMapping.mode' = 'name')
    """)
    spark.sql("INSERT INTO stock (id, item, n) VALUES (1, 'tea', 5)")
    spark.sql("ALTER TABLE stock ADD COLUMNS (price DOUBLE)")
    spark.sql("ALTER TABLE stock RENAME COLUMN price TO cost")
    spark.sql("ALTER TABLE stock SET TBLPROPERTIES ('user.x' = '1')")
    spark.sql("ALTER TABLE stock ADD CONSTRAINT positive CHECK (id > 0)")
    spark.sql("COMMENT ON TABLE stock IS 'things'")
    assert spark.table("stock").columns == ["id", "item", "n", "code", "cost"]
    assert rows(spark.sql("SELECT id, code FROM stock")) == [(1, "tea-1")]
    error = refused(lambda: spark.sql("INSERT INTO stock (id, item, n) VALUES (-1, 'x', 1)"))
    assert error.getCondition().startswith("DELTA_VIOLATE_CONSTRAINT")
    assert "user.x" in spark.sql("SHOW CREATE TABLE stock").collect()[0][0]
    assert rows(spark.sql("SHOW PARTITIONS stock")) == [(5,)]
    assert spark.sql("DESCRIBE DETAIL stock").collect()[0].description == "things"
    spark.sql("CREATE OR REPLACE TABLE stock USING delta AS SELECT 1 AS a")
    assert rows(spark.table("stock")) == [(1,)]
    assert [each.name for each in spark.catalog.listTables()] == ["stock"]
    spark.sql("DROP TABLE stock")
    assert not spark.catalog.tableExists("stock")


@in_client
def test_statements_maintain_tables(spark: Any, path: Path) -> None:
    name = numbers(spark, path)
    spark.sql(f"INSERT INTO {name} VALUES (3, 'three')")
    assert spark.sql(f"OPTIMIZE {name}").collect()[0].metrics.numFilesAdded == 1
    assert spark.sql(f"OPTIMIZE {name} ZORDER BY (id)").count() == 1
    assert spark.sql(f"VACUUM {name} DRY RUN").count() == 0
    spark.sql(f"VACUUM {name}")
    restored = spark.sql(f"RESTORE TABLE {name} TO VERSION AS OF 1")
    assert restored.count() == 1
    assert spark.sql(f"SELECT * FROM {name}").count() == 2
    spark.sql(f"CREATE TABLE clone SHALLOW CLONE {name}")
    assert spark.table("clone").count() == 2
    spark.sql(f"GENERATE symlink_format_manifest FOR TABLE {name}")
    spark.range(3).write.parquet(f"{path} 2")
    spark.sql(f"CONVERT TO DELTA parquet.`{path} 2`")
    assert spark.read.format("delta").load(f"{path} 2").count() == 3
    spark.sql("DROP TABLE clone")


@in_client
def test_frames_are_written_and_read_at_any_version(spark: Any, path: Path) -> None:
    data = spark.range(4).selectExpr("id", "id % 2 AS p")
    data.write.format("delta").partitionBy("p").save(str(path))
    data.write.format("delta").mode("append").save(str(path))
    wider = data.withColumn("n", F.lit(1))
    error = refused(lambda: wider.write.format("delta").mode("append").save(str(path)))
    assert "DELTA_METADATA_MISMATCH" in error.getCondition()
    wider.write.format("delta").mode("append").option("mergeSchema", True).save(str(path))
    odd = data.where("p = 1").write.format("delta").mode("overwrite")
    odd.option("replaceWhere", "p = 1").save(str(path))
    read = spark.read.format("delta")
    assert [read.option("versionAsOf", n).load(str(path)).count() for n in range(4)] == [
        4,
        8,
        12,
        8,
    ]
    name = f"delta.`{path}`"
    assert spark.sql(f"SELECT * FROM {name} VERSION AS OF 0").count() == 4
    assert spark.sql(f"SELECT * FROM {name}@v1").count() == 8
    assert spark.read.format("DELTA").load(str(path)).where("p = 1").count() == 2


@in_client
def test_frames_are_saved_by_name(spark: Any, path: Path) -> None:
    data = spark.range(3).toDF("id")
    data.write.format("delta").saveAsTable("by_name")
    data.write.insertInto("by_name")
    data.writeTo("by_name").append()
    data.writeTo("made").using("delta").tableProperty("user.x", "1").create()
    assert spark.table("by_name").count() == 9
    assert spark.table("made").count() == 3
    data.where("id = 0").writeTo("made").using("delta").createOrReplace()
    assert rows(spark.table("made")) == [(0,)]
    assert spark.catalog.tableExists("made")
    spark.table("made").createOrReplaceTempView("seen")
    assert rows(spark.sql("SELECT id FROM seen JOIN by_name USING (id)")) == [(0,)] * 3
    for name in ("by_name", "made"):
        spark.sql(f"DROP TABLE {name}")
    spark.catalog.dropTempView("seen")


@in_client
def test_streams_read_and_write(spark: Any, path: Path) -> None:
    spark.range(5).write.format("delta").save(str(path))
    source = spark.readStream.format("delta").load(str(path))
    writer = source.writeStream.format("delta").trigger(availableNow=True)
    query = writer.option("checkpointLocation", f"{path} c1").start(f"{path} copy")
    assert query.awaitTermination(60)
    spark.range(5, 7).write.format("delta").mode("append").save(str(path))
    writer = source.writeStream.format("delta").trigger(availableNow=True)
    query = writer.option("checkpointLocation", f"{path} c1").start(f"{path} copy")
    assert query.awaitTermination(60)
    assert query.exception() is None
    assert rows(spark.read.format("delta").load(f"{path} copy")) == [(n,) for n in range(7)]
    spark.sql("CREATE TABLE streamed (id BIGINT) USING delta")
    writer = spark.readStream.format("delta").load(f"{path} copy").writeStream.format("delta")
    writer = writer.option("checkpointLocation", f"{path} c2").trigger(availableNow=True)
    assert writer.toTable("streamed").awaitTermination(60)
    assert spark.readStream.table("streamed").isStreaming
    assert spark.table("streamed").count() == 7
    spark.sql("DROP TABLE streamed")


@in_client
def test_changes_are_rows(spark: Any, path: Path) -> None:
    name = f"delta.`{path}`"
    spark.sql(
        f"CREATE TABLE {name} (id INT) USING delta"
        " TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    )
    spark.sql(f"INSERT INTO {name} VALUES (1), (2)")
    spark.sql(f"DELETE FROM {name} WHERE id = 1")
    found = spark.sql(f"SELECT id, _change_type FROM table_changes_by_path('{path}', 2)")
    assert rows(found) == [(1, "delete")]
    read = spark.read.format("delta").option("readChangeFeed", True).option("startingVersion", 1)
    assert read.load(str(path)).count() == 3


@in_client
def test_scripts_and_texts_in_texts_run(spark: Any, path: Path) -> None:
    name = numbers(spark, path)
    spark.sql(f"EXECUTE IMMEDIATE 'UPDATE {name} SET text = ? WHERE id = 1' USING 'eins'")
    spark.sql(f"""
        BEGIN
            DECLARE n INT DEFAULT 7;
            INSERT INTO {name} VALUES (n, 'seven');
            DELETE FROM {name} WHERE id = 2;
        END
    """)
    assert rows(spark.sql(f"SELECT * FROM {name}")) == [(1, "eins"), (7, "seven")]
    history = spark.sql(f"DESCRIBE HISTORY {name}").where("version > 1").select("operation")
    assert rows(history) == [("DELETE",), ("UPDATE",), ("WRITE",)]


@in_client
def test_parameters_and_names_are_bound(spark: Any, path: Path) -> None:
    numbers(spark, path)
    name = {"name": f"delta.`{path}`"}
    read = "SELECT * FROM IDENTIFIER(:name) WHERE id = :id"
    assert rows(spark.sql(read, args={**name, "id": 2})) == [(2, "two")]
    spark.sql(f"UPDATE {name['name']} SET text = :text WHERE id = :id", {"text": "deux", "id": 2})
    spark.sql(f"DELETE FROM {name['name']} WHERE id = ?", args=[1])
    assert rows(spark.read.format("delta").load(str(path))) == [(2, "deux")]


@in_client
def test_errors_have_their_class_and_condition(spark: Any, path: Path) -> None:
    name = numbers(spark, path)
    missing = refused(lambda: spark.read.format("delta").load(f"{path} missing").collect())
    assert isinstance(missing, AnalysisException)
    assert missing.getCondition() == "PATH_NOT_FOUND"
    assert missing.getSqlState()
    unparsed = refused(lambda: spark.sql(f"DELETE {name} WHERE"))
    assert isinstance(unparsed, ParseException)
    assert unparsed.getCondition() == "PARSE_SYNTAX_ERROR"
    unresolved = refused(lambda: spark.sql(f"SELECT nothing FROM {name}").collect())
    assert unresolved.getCondition() == "UNRESOLVED_COLUMN.WITH_SUGGESTION"
    old = refused(lambda: spark.sql(f"SELECT * FROM {name} VERSION AS OF 9").collect())
    assert old.getCondition() == "DELTA_VERSION_NOT_FOUND"
    assert old.getMessageParameters() == {"userVersion": "9", "earliest": "0", "latest": "1"}
    assert spark.sql(f"SELECT * FROM {name}").count() == 2
