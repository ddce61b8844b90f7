"""Aggregates that the log answers: right, without a scan, and only where the log can tell."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_delta import DeltaLog, DeltaTable, disable, enable
from pyspark_delta.errors import ConcurrentAppendException
from pyspark_delta.kernel.protocol.actions import SetTransaction
from pyspark_delta.spark.conf.setting_table import METADATA_QUERY
from pyspark_delta.spark.jvm.scan.file_index import sources_in
from pyspark_delta.spark.scan.source import SnapshotSource
from pyspark_delta.spark.scan.versions import TableReads

COLUMNS = (
    "id",
    "cast(id % 3 AS int) AS p",
    "date_add(DATE'2024-01-01', cast(id AS int)) AS d",
    "cast(id AS string) AS s",
    "cast(id AS tinyint) AS b",
    "cast(id AS smallint) AS h",
)


@pytest.fixture
def on(spark: SparkSession) -> SparkSession:
    return enable(spark)


def write(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    data = spark.range(0, 100, 1, 4).selectExpr(*COLUMNS)
    data.write.format("delta").partitionBy("p").options(**options).save(str(path))
    return spark.read.format("delta").load(str(path))


def plan(data: DataFrame) -> str:
    text: str = data._jdf.queryExecution().optimizedPlan().toString()
    return text


def is_answered(data: DataFrame) -> bool:
    """Whether no file of a table is read for it."""
    return "parquet" not in plan(data)


def scanned(spark: SparkSession, data: DataFrame) -> list[tuple[object, ...]]:
    """The rows as a scan gives them."""
    spark.conf.set(METADATA_QUERY.key, "false")
    try:
        fresh = data.select("*")
        assert not is_answered(fresh)
        return [tuple(row) for row in fresh.collect()]
    finally:
        spark.conf.unset(METADATA_QUERY.key)


CONFIGURATIONS: dict[str, dict[str, str]] = {
    "plain": {},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "mapped": {"delta.columnMapping.mode": "name"},
    "mapped by id": {"delta.columnMapping.mode": "id"},
    "row tracking": {"delta.enableRowTracking": "true"},
}


@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_a_table_is_counted_without_a_scan(on: SparkSession, table_path: Path, kind: str) -> None:
    table = write(on, table_path, **CONFIGURATIONS[kind])
    asked = table.agg(f.count("*"), f.min("id"), f.max("id"), f.max("d"), f.max("p"), f.count("s"))
    assert is_answered(asked)
    assert [tuple(row) for row in asked.collect()] == scanned(on, asked)
    assert table.count() == 100


def test_sql_names_views_and_subqueries_are_answered(on: SparkSession, table_path: Path) -> None:
    write(on, table_path)
    path = f"delta.`{table_path}`"
    for query in (
        f"SELECT count(*) FROM {path}",
        f"SELECT max(id) - min(id) + count(1) AS n FROM {path}",
        f"SELECT count(*) AS c, 'x' AS x FROM {path} WHERE p = 1",
        f"SELECT max(p) FROM {path} WHERE p < 2 AND p IS NOT NULL",
        f"SELECT * FROM (SELECT count(*) AS a FROM {path}) JOIN (SELECT max(id) AS b FROM {path})",
        f"SELECT 1 AS one WHERE 5 < (SELECT max(id) FROM {path})",
        f"SELECT count(*) FROM {path} VERSION AS OF 0",
    ):
        asked = on.sql(query)
        assert is_answered(asked), query
        assert [tuple(row) for row in asked.collect()] == scanned(on, on.sql(query)), query


def test_types_and_names_stay(on: SparkSession, table_path: Path) -> None:
    table = write(on, table_path)
    asked = table.agg(f.max("b").alias("Größe %"), f.min("h"), f.max("d"), f.max("p"))
    assert is_answered(asked)
    (row,) = asked.collect()
    assert asked.columns == ["Größe %", "min(h)", "max(d)", "max(p)"]
    assert str(row) == str(next(iter(asked.toLocalIterator())))
    assert [t for _, t in asked.dtypes] == ["tinyint", "smallint", "date", "int"]
    assert [tuple(row)] == scanned(on, asked)
    asked.show()


def test_what_the_log_cannot_tell_is_read(on: SparkSession, table_path: Path) -> None:
    table = write(on, table_path)
    for asked in (
        table.agg(f.sum("id")),
        table.agg(f.count("*"), f.max("s")),
        table.agg(f.countDistinct("id")),
        table.agg(f.max(f.col("id") + 1)),
        table.where("id > 5").agg(f.count("*")),
        table.where("id > 5 AND p = 1").agg(f.count("*")),
        table.where("rand(7) < 0.5").agg(f.count("*")),
        table.agg(f.expr("count(*) FILTER (WHERE p = 1)")),
        table.agg(f.expr("count(id, s)")),
        table.groupBy("p").count(),
        table.limit(7).agg(f.count("*")),
        table.sample(1.0).agg(f.count("*")),
    ):
        assert not is_answered(asked), plan(asked)
        assert [tuple(row) for row in asked.collect()] == scanned(on, asked)


def test_rows_behind_a_vector_are_not_counted(on: SparkSession, table_path: Path) -> None:
    table = write(on, table_path, **{"delta.enableDeletionVectors": "true"})
    DeltaTable.forPath(on, str(table_path)).delete("id IN (0, 99)")
    table = on.read.format("delta").load(str(table_path))
    assert is_answered(table.agg(f.count("*")))
    assert table.count() == 98
    assert table.where("p = 0").count() == 32
    greatest = table.agg(f.max("id"))
    assert not is_answered(greatest)
    assert greatest.collect()[0][0] == 98


def test_a_table_without_rows_counts_none(on: SparkSession, table_path: Path) -> None:
    on.range(0).write.format("delta").save(str(table_path))
    asked = on.read.format("delta").load(str(table_path)).agg(f.count("*"), f.max("id"))
    assert is_answered(asked)
    assert [tuple(row) for row in asked.collect()] == [(0, None)]


def test_a_file_without_statistics_is_read(on: SparkSession, table_path: Path) -> None:
    write(on, table_path, **{"delta.dataSkippingNumIndexedCols": "0"})
    table = on.read.format("delta").load(str(table_path))
    assert is_answered(table.agg(f.count("*")))
    assert not is_answered(table.agg(f.max("id")))
    assert table.agg(f.max("id")).collect()[0][0] == 99


def test_a_source_notes_what_was_counted(on: SparkSession, table_path: Path) -> None:
    table = write(on, table_path)
    asked = table.where("p = 1").agg(f.count("*"))
    (source,) = sources_in(asked)
    assert isinstance(source, SnapshotSource)
    asked.collect()
    assert [(read.filter.to_sql(), read.num_files) for read in source.reads] == [
        ("NOT (p IS NULL) AND p = 1", 4)
    ]


def test_what_is_written_from_a_count_conflicts_with_rows_that_came_meanwhile(
    on: SparkSession, table_path: Path
) -> None:
    write(on, table_path, **{"delta.isolationLevel": "Serializable"})
    log = DeltaLog.for_table(table_path)
    table = on.read.format("delta").load(str(table_path))
    counted = table.agg(f.count("*").alias("id"))
    reads = TableReads.of(log, counted)
    txn = reads.start_transaction(on, log)
    assert counted.collect() == [(100,)]
    table.limit(1).write.format("delta").mode("append").save(str(table_path))
    reads.record(txn)
    with pytest.raises(ConcurrentAppendException):
        txn.commit([SetTransaction(app_id="count", version=1)], "WRITE")


def test_streams_keep_their_state(on: SparkSession, table_path: Path, tmp_path: Path) -> None:
    write(on, table_path)
    stream = on.readStream.format("delta").load(str(table_path)).groupBy().count()
    query = (
        stream.writeStream.format("memory")
        .queryName("counted_rows")
        .outputMode("complete")
        .option("checkpointLocation", str(tmp_path / "ä checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert on.table("counted_rows").collect() == [(100,)]
    on.catalog.dropTempView("counted_rows")


def test_a_session_that_is_off_has_no_rule(on: SparkSession) -> None:
    def rules(session: SparkSession) -> int:
        size: int = session._jsparkSession.experimental().extraOptimizations().size()
        return size

    other = enable(on.newSession())
    assert rules(enable(other)) == 1
    disable(other)
    assert rules(other) == 0
    assert rules(enable(other)) == 1
