"""Programs of a client that were written for delta-spark, and streams that run in the server."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

import pyspark_delta
from tests.support.connect_client import in_client


def started(spark: Any, path: Path, writer: Any) -> Any:
    """A query of all rows that a table has, with a checkpoint beside the table."""
    writer = writer.trigger(availableNow=True)
    return writer.option("checkpointLocation", f"{path} checkpoint")


@in_client
def test_a_program_for_delta_spark_runs_behind_one_line(spark: Any, path: Path) -> None:
    pyspark_delta.install_as_delta()
    table_class = import_module("delta.tables").DeltaTable
    assert table_class is import_module("delta").DeltaTable
    name = str(path)
    spark.range(5).selectExpr("id", "'a' AS text").write.format("delta").save(name)
    table = table_class.forPath(spark, name)
    source = spark.createDataFrame([(1, "b"), (9, "c")], "id BIGINT, text STRING")
    merge = table.alias("t").merge(source.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    table.delete("id = 0")
    assert {row.id: row.text for row in table.toDF().collect()} == {
        1: "b",
        2: "a",
        3: "a",
        4: "a",
        9: "c",
    }
    assert [row.operation for row in table.history(2).collect()] == ["DELETE", "MERGE"]
    exceptions = import_module("delta.exceptions")
    assert issubclass(exceptions.ConcurrentAppendException, Exception)


@in_client
def test_each_batch_of_a_stream_is_merged(spark: Any, path: Path) -> None:
    name = f"{path} merged"
    spark.sql(f"CREATE TABLE delta.`{name}` (id BIGINT, n BIGINT) USING delta")
    spark.range(6).selectExpr("id % 3 AS id", "id AS n").coalesce(1).write.format("delta").save(
        str(path)
    )

    def merge(batch: Any, number: int) -> None:
        batch.groupBy("id").max("n").toDF("id", "n").createOrReplaceTempView("changes")
        batch.sparkSession.sql(
            f"MERGE INTO delta.`{name}` t USING changes s ON t.id = s.id"
            " WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT *"
        ).collect()

    source = spark.readStream.format("delta").load(str(path))
    query = started(spark, path, source.writeStream.foreachBatch(merge)).start()
    assert query.awaitTermination(120)
    assert query.exception() is None
    more = spark.createDataFrame([(2, 20), (7, 70)], "id BIGINT, n BIGINT")
    more.write.format("delta").mode("append").save(str(path))
    query = started(spark, path, source.writeStream.foreachBatch(merge)).start()
    assert query.awaitTermination(120)
    found = {row.id: row.n for row in spark.read.format("delta").load(name).collect()}
    assert found == {0: 3, 1: 4, 2: 20, 7: 70}
    history = spark.sql(f"DESCRIBE HISTORY delta.`{name}`").select("operation").collect()
    assert [row[0] for row in history] == ["MERGE", "MERGE", "CREATE TABLE"]


@in_client
def test_a_stream_that_fails_names_the_condition(spark: Any, path: Path) -> None:
    name, target = str(path), f"{path} target"
    spark.sql(
        f"CREATE TABLE delta.`{target}` (id BIGINT NOT NULL) USING delta"
        " TBLPROPERTIES ('delta.constraints.small' = 'id < 3')"
    )
    spark.range(5).write.format("delta").save(name)
    writer = spark.readStream.format("delta").load(name).writeStream.format("delta")
    query = started(spark, path, writer).start(target)
    with pytest.raises(PySparkException) as caught:
        query.awaitTermination(120)
    assert isinstance(caught.value, StreamingQueryException)
    assert caught.value.getCondition() == "STREAM_FAILED"
    assert "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES" in str(caught.value)
    error = query.exception()
    assert isinstance(error, StreamingQueryException)
    assert "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES" in str(error)
    assert spark.read.format("delta").load(target).count() == 0
