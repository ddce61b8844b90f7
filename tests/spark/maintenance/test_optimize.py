"""OPTIMIZE and REORG: fewer files, the same rows, and nothing of others' work lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Row, SparkSession

from pyspark_delta import DeltaTable, enable
from pyspark_delta.errors import (
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    DeltaError,
    TableNotFoundError,
)
from pyspark_delta.kernel.protocol.actions import AddCDCFile, AddFile, RemoveFile
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.spark.maintenance import compaction as compacting
from pyspark_delta.spark.maintenance import optimize as optimizing
from pyspark_delta.spark.maintenance.compaction import Compacted, compact
from pyspark_delta.spark.maintenance.optimize import OptimizeRequest, run_optimize
from pyspark_delta.spark.maintenance.restore import run_purge
from tests.support.agreement import deltalake_rows
from tests.support.spark_tables import SparkTable, conf
from tests.support.tables import delete_positions

_CONF = "spark__databricks__delta__optimize__"
VECTORS = {"delta.enableDeletionVectors": "true"}


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> SparkTable:
    return SparkTable(enable(spark), table_path)


def settings(spark: SparkSession, **values: str) -> Any:
    return conf(spark, **{_CONF + name: value for name, value in values.items()})


def optimize(table: SparkTable, **asked: Any) -> Row:
    done = run_optimize(table.spark, table.log, OptimizeRequest(**asked))
    metrics: Row = done.frame(table.spark).collect()[0][1]
    return metrics


def partitioned(table: SparkTable, **options: str) -> None:
    data = table.spark.range(0, 12, 1, 3).selectExpr("id", "id % 2 AS p", "id * 2 AS v")
    table.write(data, "append", "p", **options)


def beaten_by(monkeypatch: pytest.MonkeyPatch, other: Callable[[], object]) -> list[AddFile]:
    """Somebody else commits once files are written and before they are committed."""
    made: list[AddFile] = []

    def then(*args: Any, **named: Any) -> Compacted:
        done = compact(*args, **named)
        if not made:
            made.extend(done.added)
            other()
        return done

    monkeypatch.setattr(optimizing, "compact", then)
    return made


def test_files_of_each_partition_become_one_and_no_row_changes(table: SparkTable) -> None:
    partitioned(table, **{"delta.appendOnly": "true", "delta.enableChangeDataFeed": "true"})
    before = table.rows
    [told] = table.spark.sql(f"OPTIMIZE delta.`{table.path}`").collect()
    assert told.path == f"file:{table.path}"
    metrics = told.metrics
    assert (metrics.numFilesAdded, metrics.numFilesRemoved) == (2, 6)
    assert (metrics.partitionsOptimized, metrics.numBins, metrics.numBatches) == (2, 2, 1)
    assert (metrics.totalConsideredFiles, metrics.totalFilesSkipped) == (6, 0)
    assert metrics.filesAdded.totalFiles == 2
    assert metrics.filesAdded.totalSize == sum(file.size for file in table.files)
    assert metrics.filesRemoved.min <= metrics.filesRemoved.avg <= metrics.filesRemoved.max
    assert (metrics.zOrderStats, metrics.clusteringStats, metrics.deletionVectorStats) == (
        None,
    ) * 3
    assert (metrics.numTableColumns, metrics.numTableColumnsWithStats) == (3, 3)
    assert table.rows == before
    assert {tuple(f.partition_values.items()) for f in table.files} == {
        (("p", "0"),),
        (("p", "1"),),
    }
    assert (table.info.operation, table.info.isolation_level) == ("OPTIMIZE", "SnapshotIsolation")
    assert table.parameters == {
        "predicate": "[]",
        "zOrderBy": "[]",
        "clusterBy": "[]",
        "auto": False,
    }
    assert (table.metrics["numAddedFiles"], table.metrics["numRemovedFiles"]) == (2, 6)
    actions = [a for a in table.last_commit if isinstance(a, AddFile | RemoveFile | AddCDCFile)]
    assert len(actions) == 8
    assert not any(action.data_change for action in actions)
    assert table.log.update().version == 1
    # There is nothing left to do, so nothing is committed.
    again = optimize(table)
    assert (again.numFilesAdded, again.numBins, again.numBatches) == (0, 0, 1)
    assert (again.totalConsideredFiles, again.totalFilesSkipped) == (2, 2)
    assert again.filesAdded.min is None
    assert table.log.update().version == 1
    assert len(deltalake_rows(table.path)) == 12


def test_a_filter_chooses_partitions_and_nothing_else(table: SparkTable) -> None:
    partitioned(table)
    builder = DeltaTable.forPath(table.spark, str(table.path)).optimize()
    [told] = builder.where("P = 1").where("p IS NOT NULL").executeCompaction().collect()
    assert (told.metrics.numFilesRemoved, told.metrics.totalConsideredFiles) == (3, 3)
    assert len(table.files) == 4
    assert table.parameters["predicate"] == '["(\'P = 1)","isnotnull(\'p)"]'
    # What the log has no words for is Spark's to evaluate.
    assert optimize(table, where=("concat('x', p) LIKE '%0'",)).numFilesRemoved == 3
    assert optimize(table, where=("p = 7",)).totalConsideredFiles == 0
    before = table.log.update().version
    for where, condition in (
        ("v = 1", "DELTA_NON_PARTITION_COLUMN_REFERENCE"),
        ("nope = 1", "DELTA_NON_PARTITION_COLUMN_REFERENCE"),
        ("t.p = 1", "DELTA_NON_PARTITION_COLUMN_REFERENCE"),
        ("p = (SELECT 1)", "DELTA_UNSUPPORTED_SUBQUERY_IN_PARTITION_PREDICATES"),
        ("p =", "DELTA_FAILED_RECOGNIZE_PREDICATE"),
    ):
        with pytest.raises(DeltaError) as caught:
            optimize(table, where=(where,))
        assert caught.value.condition == condition
    assert table.log.update().version == before
    with pytest.raises(TypeError, match="partitionFilter"):
        builder.where(1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one column"):
        builder.executeZOrderBy()


def test_sizes_batches_and_threads_are_settings(
    table: SparkTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.write(table.spark.range(0, 8, 1, 8))
    size = max(file.size for file in table.files)
    with settings(table.spark, minFileSize="1"):
        assert optimize(table).numBins == 0  # none is small
    monkeypatch.setattr(compacting, "_MOST_BINS", 3)
    with settings(table.spark, maxFileSize=str(2 * size), batchSize=str(4 * size), maxThreads="2"):
        done = optimize(table)
    assert (done.numBins, done.numBatches, done.numFilesAdded) == (4, 2, 4)
    assert table.log.update().version == 2
    assert len(table.files) == 4
    monkeypatch.undo()
    with settings(table.spark, repartition__enabled="true"):
        assert optimize(table).numFilesAdded == 1
    assert sorted(row[0] for row in table.rows) == list(range(8))
    for name, value in (("maxThreads", "0"), ("maxDeletedRowsRatio", "2"), ("minFileSize", "x")):
        with settings(table.spark, **{name: value}), table.refused("DELTA_ILLEGAL_OPTION"):
            optimize(table)


def test_many_bins_are_one_job_and_each_has_its_own_file(
    table: SparkTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = table.spark.range(0, 20, 1, 2).selectExpr(
        "id", "cast(id % 5 AS string) AS `p q`", "id v"
    )
    table.write(data, "append", "p q", **{"delta.columnMapping.mode": "name"})
    before = table.rows
    monkeypatch.setattr(compacting, "_MOST_BINS", 4)
    assert optimize(table).numFilesAdded == 5
    assert len({tuple(file.partition_values.values()) for file in table.files}) == 5
    assert table.rows == before


def test_deleted_rows_go_and_row_ids_stay(table: SparkTable) -> None:
    table.write(table.spark.range(0, 60, 1, 3), **VECTORS, **{"delta.enableRowTracking": "true"})
    delete_positions(table.log, lambda file: [0, 1] if file.base_row_id == 20 else [])

    def ids() -> list[tuple[Any, ...]]:
        columns = ("id", "_metadata.row_id", "_metadata.row_commit_version")
        return sorted(tuple(row) for row in table.read().select(*columns).collect())

    before = ids()
    assert len(before) == 58
    with settings(table.spark, minFileSize="0", maxDeletedRowsRatio="0.2"):
        assert optimize(table).numBins == 0
    with settings(table.spark, minFileSize="0"):
        assert optimize(table).numBins == 0  # a file alone is left, however large its vector
    done = optimize(table)
    assert tuple(done.deletionVectorStats) == (1, 2)
    assert table.metrics["numDeletionVectorsRemoved"] == 1
    assert [file.deletion_vector for file in table.files] == [None]
    assert table.info.tags == {"delta.rowTracking.preserved": "true"}
    assert ids() == before


def test_files_over_the_ratio_of_deleted_rows_are_written_anew_however_large(
    table: SparkTable,
) -> None:
    table.write(table.spark.range(0, 60, 1, 3), **VECTORS, **{"delta.enableRowTracking": "true"})
    deleted = {0: [0, 1, 2], 20: [], 40: [5, 6]}  # of 20 rows each, by their first row id
    delete_positions(table.log, lambda file: deleted[file.base_row_id or 0])
    rows = table.rows
    untouched = [file.path for file in table.files if file.deletion_vector is None]
    with settings(table.spark, minFileSize="0", maxDeletedRowsRatio="0.2"):
        assert optimize(table).numBins == 0
    with settings(table.spark, minFileSize="0", maxDeletedRowsRatio="0.05"):
        done = optimize(table)
    assert (done.numFilesRemoved, done.numFilesAdded) == (2, 1)
    assert tuple(done.deletionVectorStats) == (2, 5)
    assert [file.deletion_vector for file in table.files] == [None, None]
    assert set(untouched) < {file.path for file in table.files}
    assert table.rows == rows


def test_files_without_a_row_left_are_removed(table: SparkTable) -> None:
    table.write(table.spark.range(0, 4, 1, 2), **VECTORS)
    delete_positions(table.log, lambda file: [0, 1])
    done = optimize(table)
    assert (done.numFilesAdded, done.numFilesRemoved) == (0, 2)
    assert table.files == []
    assert table.rows == []


def test_others_may_commit_meanwhile(table: SparkTable, monkeypatch: pytest.MonkeyPatch) -> None:
    partitioned(table)

    def others() -> None:
        table.write(table.spark.range(100, 101).selectExpr("id", "0L AS p", "id AS v"))
        # Properties, and a column, are changes that files of before outlive.
        txn = table.log.start_transaction()
        more = {**txn.metadata.configuration, "delta.checkpointInterval": "7"}
        txn.update_metadata(replace(txn.metadata, configuration=more))
        txn.commit([], "SET TBLPROPERTIES")
        more_columns = table.spark.range(0).selectExpr("id", "id AS p", "id AS v", "1 AS extra")
        table.write(more_columns, mergeSchema="true")

    made = beaten_by(monkeypatch, others)
    done = optimize(table)
    assert done.numFilesAdded == 2
    assert table.info.operation == "OPTIMIZE"
    assert {file.path for file in made} < {file.path for file in table.files}
    assert len(table.files) == 3
    assert sorted(row[0] for row in table.rows) == [*range(12), 100]


@pytest.mark.parametrize(
    ("others", "kinds"),
    [
        ("a delete by vector", (ConcurrentDeleteReadException, ConcurrentDeleteDeleteException)),
        ("an overwrite", (ConcurrentDeleteReadException, ConcurrentDeleteDeleteException)),
        ("another OPTIMIZE", (ConcurrentDeleteReadException, ConcurrentDeleteDeleteException)),
    ],
)
def test_whoever_touches_the_same_files_wins(
    table: SparkTable,
    monkeypatch: pytest.MonkeyPatch,
    others: str,
    kinds: tuple[type[Exception], ...],
) -> None:
    table.write(table.spark.range(0, 6, 1, 3), **VECTORS)
    target = DeltaTable.forPath(table.spark, str(table.path))
    commands: dict[str, Callable[[], object]] = {
        "a delete by vector": lambda: target.delete("id = 0"),
        "an overwrite": lambda: table.write(table.spark.range(1, 6), "overwrite"),
        "another OPTIMIZE": lambda: optimize(table),
    }
    made = beaten_by(monkeypatch, commands[others])
    with pytest.raises(kinds):
        optimize(table)
    assert made
    assert not any((table.path / file.path).exists() for file in made)
    left = sorted(row[0] for row in table.rows)
    assert left == (list(range(6)) if others == "another OPTIMIZE" else list(range(1, 6)))


def test_a_purge_takes_files_that_optimize_leaves(table: SparkTable) -> None:
    data = table.spark.range(0, 8, 1, 1).selectExpr("id", "id % 2 AS p", "id AS gone", "id AS v")
    table.write(data, "append", "p", **VECTORS, **{"delta.columnMapping.mode": "name"})
    delete_positions(table.log, lambda file: [0] if "0" in file.partition_values.values() else [])
    assert optimize(table).numBins == 0
    where = f"REORG TABLE delta.`{table.path}` WHERE p = 1 APPLY (PURGE)"
    [nothing] = table.spark.sql(where).collect()
    assert (nothing.metrics.numFilesAdded, nothing.metrics.totalConsideredFiles) == (0, 1)
    [told] = table.spark.sql(f"reorg table delta.`{table.path}` apply (purge)").collect()
    assert (told.metrics.numFilesAdded, told.metrics.numFilesRemoved) == (1, 1)
    assert (table.info.operation, table.parameters) == (
        "REORG",
        {"predicate": "[]", "applyPurge": True},
    )
    assert not any(file.deletion_vector for file in table.files)
    txn = table.log.start_transaction()
    kept = StructType(tuple(f for f in txn.schema if f.name != "gone"))
    txn.update_metadata(replace(txn.metadata, schema_string=format_schema(kept)))
    txn.commit([], "DROP COLUMNS")
    done = run_purge(table.spark, table.log, "p = 1")
    assert (len(done.added), len(done.removed)) == (1, 1)
    assert table.parameters["predicate"] == '["(\'p = 1)"]'
    assert len(run_purge(table.spark, table.log).removed) == 1
    version = table.log.update().version
    assert run_purge(table.spark, table.log).versions == ()
    assert table.log.update().version == version
    assert [row[0] for row in table.rows] == [1, 2, 3, 4, 5, 6, 7]


def test_statements_that_make_no_sense_are_refused(table: SparkTable) -> None:
    partitioned(table)
    spark, path = table.spark, table.path
    for sql, condition in (
        (f"OPTIMIZE delta.`{path}` FULL", "DELTA_OPTIMIZE_FULL_NOT_SUPPORTED"),
        (f"OPTIMIZE '{path}' FULL WHERE p = 1", "DELTA_OPTIMIZE_FULL_NOT_SUPPORTED"),
        (f"OPTIMIZE delta.`{path}` ZORDER BY p", "DELTA_ZORDERING_ON_PARTITION_COLUMN"),
        (f"OPTIMIZE delta.`{path}` ZORDER BY (id, x)", "DELTA_ZORDERING_COLUMN_DOES_NOT_EXIST"),
        (
            f"REORG TABLE delta.`{path}` APPLY (UPGRADE UNIFORM (ICEBERG_COMPAT_VERSION = 2))",
            "DELTA_MISSING_ICEBERG_CLASS",
        ),
        (
            f"REORG TABLE delta.`{path}` APPLY (UPGRADE UNIFORM (ICEBERG_COMPAT_VERSION = 9))",
            "DELTA_ICEBERG_COMPAT_VIOLATION.COMPAT_VERSION_NOT_SUPPORTED",
        ),
    ):
        with table.refused(condition):
            spark.sql(sql)
    for sql, condition in (
        (f"OPTIMIZE delta.`{path}x`", "DELTA_MISSING_DELTA_TABLE"),
        (f"OPTIMIZE '{path}x'", "DELTA_TABLE_ONLY_OPERATION"),
    ):
        with pytest.raises(TableNotFoundError) as caught:
            spark.sql(sql)
        assert caught.value.condition == condition
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("OPTIMIZE nobody_knows_it")
    for tail in ("WHERE", "ZORDER BY ()", "ZORDER BY id v", "ZORDER BY (id", "SOON"):
        with pytest.raises(ParseException, match="PARSE_SYNTAX_ERROR"):
            spark.sql(f"OPTIMIZE delta.`{path}` {tail}")
    for tail in ("", "APPLY (NOPE)", "APPLY (PURGE", "WHERE APPLY (PURGE)"):
        with pytest.raises(ParseException, match="PARSE_SYNTAX_ERROR"):
            spark.sql(f"REORG TABLE delta.`{path}` {tail}")
