"""Clustered tables: new files join small cubes, large cubes and others' orders are left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from pyspark_delta import enable
from pyspark_delta.errors import DeltaError
from pyspark_delta.kernel.protocol.domains import clustering_domain
from pyspark_delta.kernel.protocol.operations import operation
from pyspark_delta.kernel.scan.plan import select_files
from pyspark_delta.kernel.scan.predicates.tree import compare
from pyspark_delta.spark.maintenance.restore import run_purge
from pyspark_delta.spark.write.request import WriteRequest
from tests.support.spark_tables import SparkTable, conf
from tests.support.tables import delete_positions

_OPTIMIZE = "spark__databricks__delta__optimize__"
_CUBES = f"{_OPTIMIZE}clustering__mergeStrategy__minCubeSize__"


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> SparkTable:
    return SparkTable(enable(spark), table_path)


def append(table: SparkTable, start: int, count: int, **options: str) -> None:
    spread = [f"abs(xxhash64({n}, id)) % 100000 AS {name}" for n, name in enumerate("abc")]
    data = table.spark.range(start, start + count, 1, 1).selectExpr("id", *spread)
    table.ask(data, WriteRequest(mode="append", cluster_by=("a", "b"), options=options))


def optimize(table: SparkTable, full: str = "", **settings: str) -> Row:
    with conf(table.spark, **{_OPTIMIZE + name: value for name, value in settings.items()}):
        metrics: Row = table.spark.sql(f"OPTIMIZE delta.`{table.path}` {full}").collect()[0][1]
    return metrics


def cubes(table: SparkTable) -> list[str]:
    return sorted({(file.tags or {}).get("ZCUBE_ID") or "" for file in table.files})


def cluster(table: SparkTable, *columns: str) -> None:
    """ALTER TABLE CLUSTER BY."""
    txn = table.log.start_transaction()
    recorded = operation(
        "CLUSTER BY", oldClusteringColumns="", newClusteringColumns=",".join(columns)
    )
    txn.commit([clustering_domain((name,) for name in columns)], recorded)


def counts(files: Any) -> tuple[int, int]:
    return (files.numFiles, files.size)


def test_new_files_join_a_cube_until_it_is_sealed(table: SparkTable) -> None:
    append(table, 0, 3000)
    append(table, 3000, 3000)
    before = set(table.rows)
    size = table.log.update().size_in_bytes
    done = optimize(table, maxFileSize=str(size // 8))
    assert done.numFilesAdded >= 7
    stats = done.clusteringStats
    assert (counts(stats.inputZCubeFiles), stats.inputNumZCubes) == ((0, 0), 0)
    assert counts(stats.inputOtherFiles) == counts(stats.mergedFiles) == (2, size)
    assert (stats.numOutputZCubes, done.zOrderStats) == (1, None)
    assert set(table.rows) == before
    [cube] = cubes(table)
    assert cube
    for file in table.files:
        assert file.clustering_provider == "liquid"
        assert (file.tags or {})["ZCUBE_ZORDER_BY"] == '["a","b"]'
    assert table.parameters == {
        "predicate": "[]",
        "zOrderBy": "[]",
        "clusterBy": '["a","b"]',
        "auto": False,
        "isFull": False,
    }
    snapshot = table.log.update()
    for name in ("a", "b"):
        left = select_files(snapshot, compare((name,), "=", 12345)).num_rows
        assert left <= 0.75 * snapshot.num_files
    # One cube alone is as it should be, even to a full run.
    assert optimize(table).numBins == optimize(table, "FULL").numBins == 0
    append(table, 6000, 10)
    sealed = {"clustering__mergeStrategy__minCubeSize__threshold": "1"}
    done = optimize(table, **sealed)
    assert (done.numFilesRemoved, done.clusteringStats.inputNumZCubes) == (1, 1)
    assert len(cubes(table)) == 2
    append(table, 6010, 10)
    assert optimize(table).numFilesRemoved == done.totalConsideredFiles + 1
    assert len(cubes(table)) == 1
    assert table.read().count() == 6020


def _is_in_one_piece(points: set[tuple[int, int]]) -> bool:
    """Whether steps to a neighbour lead from every point to every other."""
    reached, ahead = set(), [next(iter(points))]
    while ahead:
        a, b = ahead.pop()
        if (a, b) in points and (a, b) not in reached:
            reached.add((a, b))
            ahead += [(a + 1, b), (a - 1, b), (a, b + 1), (a, b - 1)]
    return reached == points


def test_a_file_is_a_stretch_of_hilberts_curve(table: SparkTable) -> None:
    grid = table.spark.range(0, 256, 1, 2).selectExpr("id", "id % 16 AS a", "id DIV 16 AS b")
    table.ask(grid, WriteRequest(mode="append", cluster_by=("a", "b")))
    size = table.log.update().size_in_bytes
    optimize(table, maxFileSize=str(size // 6))
    points = table.read().select("a", "b", "_metadata.file_name").collect()
    files = {name: {(a, b) for a, b, other in points if other == name} for *_, name in points}
    assert len(files) > 4
    # A stretch of Z-order would jump.
    assert all(_is_in_one_piece(each) for each in files.values())


def test_other_columns_are_for_new_files_and_for_a_full_run(table: SparkTable) -> None:
    append(table, 0, 50)
    optimize(table)
    cluster(table, "c")
    assert optimize(table).numBins == 0
    data = table.spark.range(50, 60, 1, 2).selectExpr("id", "id AS a", "id AS b", "id AS c")
    table.write(data)
    done = optimize(table)
    assert (done.numFilesAdded, done.numFilesRemoved) == (1, 2)
    orders = {(file.tags or {})["ZCUBE_ZORDER_BY"] for file in table.files}
    assert orders == {'["a","b"]', '["c"]'}
    done = optimize(table, "FULL")
    assert (done.numFilesAdded, done.numFilesRemoved) == (1, 2)
    assert table.parameters["isFull"] is True
    assert {(file.tags or {})["ZCUBE_ZORDER_BY"] for file in table.files} == {'["c"]'}
    # Without columns files are compacted, and nobody is said to have ordered them.
    cluster(table)
    table.write(data)
    done = optimize(table)
    assert (done.numFilesAdded, done.clusteringStats) == (1, None)
    [file] = table.files
    assert (file.tags, file.clustering_provider) == (None, None)
    with table.refused("DELTA_OPTIMIZE_FULL_NOT_SUPPORTED"):
        optimize(table, "FULL")
    assert table.read().count() == 70


def test_filters_and_other_orders_are_refused(table: SparkTable) -> None:
    append(table, 0, 5)
    with table.refused("DELTA_CLUSTERING_WITH_PARTITION_PREDICATE"):
        optimize(table, "WHERE a = 1")
    with table.refused("DELTA_CLUSTERING_WITH_ZORDER_BY"):
        optimize(table, "ZORDER BY a")


def test_a_mapped_table_is_tagged_with_the_names_that_users_know(table: SparkTable) -> None:
    properties = {
        "delta.columnMapping.mode": "name",
        "delta.enableRowTracking": "true",
        "delta.enableDeletionVectors": "true",
    }
    append(table, 0, 2000, **properties)
    append(table, 2000, 2000)
    ids = {row[0]: row[1] for row in table.read().select("id", "_metadata.row_id").collect()}
    delete_positions(table.log, lambda file: range(10))
    size = table.log.update().size_in_bytes
    assert optimize(table, maxFileSize=str(size // 4)).numFilesAdded > 2
    assert {(file.tags or {})["ZCUBE_ZORDER_BY"] for file in table.files} == {'["a","b"]'}
    after = {row[0]: row[1] for row in table.read().select("id", "_metadata.row_id").collect()}
    assert len(after) == 3980
    assert after.items() <= ids.items()
    # A purge writes every file with a vector anew, even of the only cube that there is.
    first = table.files[0].path
    delete_positions(table.log, lambda file: [0] if file.path == first else [])
    done = run_purge(table.spark, table.log)
    assert [file.path for file in done.removed] == [first]
    assert not any(file.deletion_vector for file in table.files)
    assert table.read().count() == 3979


def test_a_query_makes_no_table_that_is_clustered_by_columns_without_statistics(
    table: SparkTable,
) -> None:
    query = "AS SELECT 1 AS a, true AS b, map(1, 2) AS m, named_struct('x', 1, 'l', array(1)) AS s"
    start = f"CREATE TABLE delta.`{table.path}` USING delta CLUSTER BY"
    few = "TBLPROPERTIES ('delta.dataSkippingNumIndexedCols' = '1')"
    expected = {
        f"{start} (b) {query}": "DELTA_CLUSTERING_COLUMNS_DATATYPE_NOT_SUPPORTED",
        f"{start} (m) {query}": "DELTA_CLUSTERING_COLUMNS_DATATYPE_NOT_SUPPORTED",
        f"{start} (s) {query}": "DELTA_CLUSTERING_COLUMNS_DATATYPE_NOT_SUPPORTED",
        f"{start} (s.l) {query}": "DELTA_CLUSTERING_COLUMNS_DATATYPE_NOT_SUPPORTED",
        f"{start} (s.x) {few} {query}": "DELTA_CLUSTERING_COLUMN_MISSING_STATS",
        f"{start} (a, a) {query}": "DELTA_DUPLICATE_COLUMNS_FOUND.CLUSTER_BY",
    }
    for statement, condition in expected.items():
        with pytest.raises(DeltaError) as refused:
            table.spark.sql(statement)
        assert (statement, refused.value.condition) == (statement, condition)
        assert not (table.path / "_delta_log").exists()
    table.spark.sql(f"{start} (a, s.x) {query}")
    assert [row.a for row in table.spark.sql(f"SELECT a FROM delta.`{table.path}`").collect()] == [
        1
    ]


@pytest.mark.parametrize(("columns", "partitions"), [("id AS x", ()), ("id, id AS p", ("p",))])
def test_other_columns_take_the_clustering_with_them(
    table: SparkTable, columns: str, partitions: tuple[str, ...]
) -> None:
    path = str(table.path)
    table.spark.sql(f"CREATE TABLE delta.`{path}` (id LONG, n INT) USING delta CLUSTER BY (id)")
    table.spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 2)")
    data = table.spark.range(3).selectExpr(*columns.split(", "))
    writer = data.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    writer.partitionBy(*partitions).save(path)
    detail = table.spark.sql(f"DESCRIBE DETAIL delta.`{path}`").collect()[0]
    assert (detail.partitionColumns, detail.clusteringColumns) == (list(partitions), [])
    optimize(table)
    assert table.spark.read.format("delta").load(path).count() == 3
    writer.partitionBy(*partitions).save(path)
    assert table.log.update().domains["delta.clustering"] == clustering_domain(())
