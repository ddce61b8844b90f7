"""DELETE: which rows go, what becomes of their files, and what the commit says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_delta import DeltaLog, DeltaTable
from pyspark_delta.kernel.storage.uris import decode_path
from pyspark_delta.spark.dml.delete import run_delete
from tests.support.agreement import deltalake_rows, kernel_rows
from tests.support.dml_tables import FEED, KINDS, TRACKED, VECTORS, DmlTable, filled
from tests.support.spark_tables import conf
from tests.support.tables import append, new_table


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> DmlTable:
    return DmlTable(spark, table_path)


@KINDS
def test_rows_that_meet_the_condition_go_and_no_others(
    table: DmlTable, properties: dict[str, str]
) -> None:
    filled(table, **properties)
    told = table.handle.delete("id >= 2 AND v = 'x'")
    assert [row.asDict() for row in told.collect()] == [{"num_affected_rows": 1}]
    assert [row[0] for row in table.rows] == [1, 2, 4, 5]
    # What is null is not true: the row whose v nobody knows stays.
    table.handle.alias("t").delete((F.col("t.v") != "x") & (F.col("t.id") < 5))
    assert [row[0] for row in table.rows] == [1, 4, 5]
    table.check_log()
    assert len(kernel_rows(table.path)) == 3
    if not properties:
        assert len(deltalake_rows(table.path)) == 3


def test_whole_tables_and_partitions_go_without_a_job(table: DmlTable) -> None:
    filled(table, "p", **FEED)
    tracker = table.spark.sparkContext.statusTracker()
    table.spark.sparkContext.setJobGroup("delete", "")
    try:
        table.handle.delete("p = 'a' OR p LIKE 'c/é%'")
        assert table.metrics["numDeletedRows"] == 3
        assert table.metrics["numRemovedFiles"] == 2
        assert not table.added
        assert not table.change_rows
        run_delete(table.spark, table.log)
        assert list(tracker.getJobIdsForGroup("delete")) == []
    finally:
        table.spark.sparkContext._jsc.clearJobGroup()
    assert table.rows == []
    assert table.parameters == {"predicate": '["true"]'}
    assert table.metrics["numDeletedRows"] == 2


def test_nulls_and_unknown_functions_choose_partitions_too(table: DmlTable) -> None:
    filled(table, "p")
    table.handle.delete("upper(p) = 'A'")
    assert not table.added
    assert [row[0] for row in table.rows] == [3, 4, 5]
    table.handle.delete("p <=> null")
    assert [row[0] for row in table.rows] == [3, 5]
    table.handle.delete("p IN ('c/é %') AND id = 5 OR p = 'nobody'")
    assert [row[0] for row in table.rows] == [3]


def test_a_commit_is_made_only_when_a_row_goes(table: DmlTable) -> None:
    filled(table, **VECTORS)
    for nothing in ("id = 77", "v = 'xx'", "false", "id = null", "p = 'x' AND p = 'y'"):
        done = run_delete(table.spark, table.log, F.expr(nothing))
        assert (done.version, done.num_rows) == (None, 0)
    done = run_delete(table.spark, table.log, F.expr("id = 5"))
    assert (done.version, done.num_rows) == (1, 1)
    table.handle.delete()
    assert run_delete(table.spark, table.log).version is None


def test_the_history_of_a_rewrite(table: DmlTable) -> None:
    filled(table)
    table.handle.delete("id <> 3 AND id < 3 + 2 AND p IN ('a', 'x')")
    (told,) = table.parameters.values()
    assert re.sub(r"#\d+", "#", told) == '["((NOT (id#L = 3) AND (id#L < 5)) AND p# IN (a,x))"]'
    times = {name for name in table.metrics if name.endswith("Ms")}
    assert times == {"executionTimeMs", "scanTimeMs", "rewriteTimeMs"}
    counts = {name: count for name, count in table.metrics.items() if name not in times}
    assert counts == {
        "numAddedFiles": 1,
        "numRemovedFiles": 1,
        "numAddedChangeFiles": 0,
        "numDeletedRows": 2,
        "numCopiedRows": 3,
        "numDeletionVectorsAdded": 0,
        "numDeletionVectorsRemoved": 0,
        "numDeletionVectorsUpdated": 0,
    }
    assert table.info.operation == "DELETE"
    assert table.info.is_blind_append is False


def vector_metrics(table: DmlTable) -> tuple[int, ...]:
    """Files removed, vectors added, removed and updated."""
    kinds = ("Added", "Removed", "Updated")
    vectors = [table.metrics[f"numDeletionVectors{kind}"] for kind in kinds]
    return (table.metrics["numRemovedFiles"], *vectors)


def test_vectors_grow_until_a_file_has_no_row_left(table: DmlTable) -> None:
    filled(table, **VECTORS)
    (before,) = table.files
    table.handle.delete("id = 2")
    assert vector_metrics(table) == (0, 1, 0, 0)
    (after,) = table.added
    assert after.path == before.path
    assert after.deletion_vector is not None
    assert '"tightBounds":false' in (after.stats or "")
    table.handle.delete("id IN (1, 4)")
    assert vector_metrics(table) == (0, 1, 1, 1)
    assert table.files[0].deletion_vector.cardinality == 3  # type: ignore[union-attr]
    assert [row.deletion_vector for row in table.removed] == [after.deletion_vector]
    assert table.metrics["numCopiedRows"] == table.metrics["numAddedFiles"] == 0
    table.handle.delete("id > 2")
    assert vector_metrics(table) == (1, 0, 1, 0)
    assert table.files == []
    assert table.rows == []


def test_a_vector_is_read_where_none_may_be_written(table: DmlTable) -> None:
    filled(table, **VECTORS)
    table.handle.delete("id = 2")
    with conf(table.spark, spark__databricks__delta__delete__deletionVectors__persistent="false"):
        table.handle.delete("id = 3")
    assert vector_metrics(table) == (1, 0, 1, 0)
    assert [row[0] for row in table.rows] == [1, 4, 5]
    assert table.files[0].deletion_vector is None
    table.check_log()


@KINDS
def test_rows_keep_their_ids(table: DmlTable, properties: dict[str, str]) -> None:
    filled(table, **properties, **TRACKED)

    def ids() -> dict[int, tuple[int, int]]:
        found = table.read().select("id", "_metadata.row_id", "_metadata.row_commit_version")
        return {row[0]: (row[1], row[2]) for row in found.collect()}

    before = ids()
    table.handle.delete("id = 2")
    table.handle.delete("id = 4")
    assert ids() == {i: before[i] for i in (1, 3, 5)}
    assert (table.info.tags or {})["delta.rowTracking.preserved"] == "true"


def test_a_rewrite_tells_the_feed_which_rows_went(table: DmlTable) -> None:
    filled(table, **FEED)
    table.handle.delete("id IN (2, 3)")
    assert table.metrics["numAddedChangeFiles"] == 1
    assert table.change_rows == [(2, "a", "y", "delete"), (3, "b", "x", "delete")]
    table.handle.delete("id > 0")
    assert len(table.change_rows) == 3
    assert not table.added


def test_vectors_tell_the_feed_by_themselves(table: DmlTable) -> None:
    filled(table, **FEED, **VECTORS)
    table.handle.delete("id = 2")
    assert not table.change_rows
    with conf(table.spark, spark__databricks__delta__delete__deletionVectors__persistent="false"):
        table.handle.delete("id = 3")
    assert table.change_rows == [(3, "b", "x", "delete")]


@KINDS
def test_columns_under_other_names_and_fields_of_structs(
    table: DmlTable, properties: dict[str, str]
) -> None:
    mapped = {**properties, "delta.columnMapping.mode": "name"}
    schema = "id long, `a.b c` struct<x: int, y: array<int>>, p string"
    rows = [(1, (1, [1]), "q"), (2, (2, None), "q"), (3, None, "r")]
    table.write(table.data(schema, *rows), "append", "p", **mapped)
    table.handle.delete("`a.b c`.x = 2")
    assert [row[0] for row in table.rows] == [1, 3]
    assert "col-" not in str(table.parameters)
    table.handle.delete("`a.b c`.y[0] = 1 AND p = 'q'")
    assert [row[0] for row in table.rows] == [3]
    table.check_log()


@KINDS
def test_rows_go_by_what_their_files_are(table: DmlTable, properties: dict[str, str]) -> None:
    filled(table, **properties)
    (name,) = {row[0] for row in table.read().select("_metadata.file_name").collect()}
    table.handle.delete(f"_metadata.file_name = '{name}' AND id < 3")
    assert [row[0] for row in table.rows] == [3, 4, 5]
    table.spark.sql(f"DELETE FROM delta.`{table.path}` WHERE _metadata.file_size = 0")
    table.spark.sql(f"UPDATE delta.`{table.path}` SET id = 9 WHERE _metadata.file_size > 0")
    assert [row[0] for row in table.rows] == [9, 9, 9]


def test_a_condition_that_makes_no_sense_is_refused(table: DmlTable) -> None:
    filled(table)
    for condition, expected in [
        ("nope = 1", "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
        ("id", "DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN"),
        ("'true'", "DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN"),
        ("max(id) = 1", "UNSUPPORTED_EXPR_FOR_OPERATOR"),
    ]:
        with pytest.raises(AnalysisException) as error:
            table.handle.delete(condition)
        assert error.value.getCondition() == expected
    assert table.log.update().version == 0


def test_what_cannot_be_judged_row_by_row_is_refused(table: DmlTable) -> None:
    filled(table)
    for condition, expected in [
        ("id IN (SELECT 1)", "DELTA_UNSUPPORTED_SUBQUERY"),
        ("EXISTS (SELECT 1)", "DELTA_UNSUPPORTED_SUBQUERY"),
        ("id = (SELECT max(1L))", "DELTA_UNSUPPORTED_SUBQUERY"),
        ("id IN (SELECT 1) AND _metadata.file_size > 0", "DELTA_UNSUPPORTED_SUBQUERY"),
        ("rand() < 2", "INVALID_NON_DETERMINISTIC_EXPRESSIONS"),
        ("p = 'a' AND uuid() <> ''", "INVALID_NON_DETERMINISTIC_EXPRESSIONS"),
        ("id = max(id)", "UNSUPPORTED_EXPR_FOR_OPERATOR"),
        ("row_number() OVER (ORDER BY id) = 1", "UNSUPPORTED_EXPR_FOR_OPERATOR"),
    ]:
        with table.refused(expected):
            table.handle.delete(condition)


def test_arguments_are_checked(table: DmlTable) -> None:
    filled(table, "p")
    wrong: Any = 3
    with pytest.raises(TypeError, match="must be a Spark SQL Column or a string"):
        table.handle.delete(wrong)
    with pytest.raises(ParseException):
        table.handle.delete("id = = 1")
    partition = DeltaTable.forPath(table.spark, f"{table.path}/p=a")
    with table.refused("DELTA_UNEXPECTED_PARTIAL_SCAN"):
        partition.delete()


def test_a_table_for_appends_keeps_its_rows(table: DmlTable) -> None:
    filled(table, **{"delta.appendOnly": "true"})
    for condition in (None, "id = 1", "id = 99"):
        with table.refused("DELTA_CANNOT_MODIFY_APPEND_ONLY"):
            table.handle.delete(condition)


@KINDS
def test_the_time_is_asked_once(table: DmlTable, properties: dict[str, str]) -> None:
    table.write(
        table.spark.sql("SELECT 1L id, now() - INTERVAL 1 DAY t UNION ALL SELECT 2, null"),
        **properties,
    )
    table.handle.delete("t < current_timestamp()")
    assert [row[0] for row in table.rows] == [2]


def test_files_without_statistics_are_counted_by_their_footers(table: DmlTable) -> None:
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
    log = new_table(table.path, rows.slice(0, 0), configuration=VECTORS)
    append(log, rows, with_stats=False)
    table.handle.delete("id = 2")
    assert table.files[0].num_records == 3
    assert table.files[0].deletion_vector is not None
    done = run_delete(table.spark, table.log, F.expr("id > 0"))
    assert done.num_rows == 2
    assert table.files == []
    append(log, rows, with_stats=False)
    assert table.handle.delete().first() == (-1,)
    assert "numDeletedRows" not in table.metrics


def test_an_application_deletes_once(table: DmlTable) -> None:
    filled(table)
    once = {
        "spark__databricks__delta__write__txnAppId": "app",
        "spark__databricks__delta__write__txnVersion": "7",
    }
    with conf(table.spark, **once):
        table.handle.delete("id = 1")
        table.handle.delete("id = 2")
    assert [row[0] for row in table.rows] == [2, 3, 4, 5]
    assert table.log.snapshot.transactions["app"].version == 7


def test_two_deletes_of_other_rows_of_one_file_both_stand(
    table: DmlTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(table, **VECTORS)
    late = DeltaLog.for_table(table.path)
    begun = late.start_transaction()
    table.handle.delete("id = 1")
    monkeypatch.setattr(late, "start_transaction", lambda **_: begun)
    run_delete(table.spark, late, F.expr("id = 2"))
    assert [row[0] for row in table.rows] == [3, 4, 5]
    table.check_log()


def test_positions_hold_where_files_are_split_and_row_groups_skipped(table: DmlTable) -> None:
    rows = table.spark.range(0, 40_000, 1, 1).selectExpr("id", "cast(id % 7 AS STRING) AS v")
    table.write(rows, **VECTORS, **{"parquet.block.size": "32768"})
    (file,) = table.files
    groups = pq.ParquetFile(table.path / decode_path(file.path)).num_row_groups
    assert groups > 5
    with conf(table.spark, spark__sql__files__maxPartitionBytes="40000"):
        table.handle.delete("id IN (0, 20000, 39999)")
        table.handle.delete("id BETWEEN 30000 AND 30009 AND v >= '0'")
        table.handle.update("id = 30010", {"v": "'new'"})
        gone = {0, 20_000, 39_999, *range(30_000, 30_010)}
        assert {row[0] for row in table.read().collect()} == {*range(40_000)} - gone
        assert [row[0] for row in table.read().where("v = 'new'").collect()] == [30_010]
    table.check_log()
