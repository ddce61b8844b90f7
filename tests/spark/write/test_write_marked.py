"""Overwrites of some rows in tables with deletion vectors: rows are marked, nothing is copied."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_delta.errors import ConcurrentAppendException, DeltaConcurrentModificationException
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.dml.delete import run_delete
from pyspark_delta.spark.write.request import WriteRequest
from pyspark_delta.spark.write.run import run_write
from tests.support.dml_tables import FEED, SCHEMA, TRACKED, VECTORS, DmlTable, filled
from tests.support.interleaving import InterruptibleCommitter
from tests.support.spark_tables import conf


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> DmlTable:
    return filled(DmlTable(spark, table_path), **VECTORS)


def gone(table: DmlTable) -> list[int]:
    """How many rows the vectors of the live files name."""
    vectors = [file.deletion_vector for file in table.files]
    return sorted(0 if vector is None else vector.cardinality for vector in vectors)


def test_a_condition_marks_rows_until_a_file_has_none_left(table: DmlTable) -> None:
    (before,) = table.files
    table.write(table.data(SCHEMA, (2, "q", "n")), "overwrite", replaceWhere="id = 2")
    assert [row[0] for row in table.rows] == [1, 2, 3, 4, 5]
    assert before.path in [file.path for file in table.added]
    assert gone(table) == [0, 1]
    assert table.metrics == {
        "numFiles": 2,
        "numOutputRows": 5,
        "numRemovedFiles": 0,
        "numAddedChangeFiles": 0,
        "numDeletedRows": 1,
        "numCopiedRows": 4,
    }
    table.write(table.data(SCHEMA), "overwrite", replaceWhere="id = 2 OR v = 'x'")
    assert [row[0] for row in table.rows] == [4, 5]
    assert gone(table) == [3]
    assert table.metrics == {
        "numFiles": 1,
        "numOutputRows": 2,
        "numRemovedFiles": 1,
        "numAddedChangeFiles": 0,
        "numDeletedRows": 3,
        "numCopiedRows": 2,
    }
    table.write(table.data(SCHEMA), "overwrite", replaceWhere="id > 0")
    assert table.files == []
    table.check_log()


def test_rows_are_copied_where_the_session_or_the_table_wants_no_vectors(table: DmlTable) -> None:
    new = table.data(SCHEMA, (2, "q", "n"))
    with conf(table.spark, spark__databricks__delta__delete__deletionVectors__persistent="false"):
        table.write(new, "overwrite", replaceWhere="id = 2")
    assert gone(table) == [0, 0]
    assert table.metrics["numRemovedFiles"] == 1
    assert table.metrics["numCopiedRows"] == 4
    table.check_log()


def test_whole_partitions_go_without_vectors(spark: SparkSession, tmp_path: Path) -> None:
    table = filled(DmlTable(spark, tmp_path / "pärts 1%"), "p", **VECTORS)
    for condition in ("p = 'a'", "upper(p) = 'B'"):
        table.write(table.data(SCHEMA), "overwrite", replaceWhere=condition, dataChange="false")
        assert not table.added
        assert not any(removed.data_change for removed in table.removed)
    assert [row[0] for row in table.rows] == [4, 5]


def test_joins_mark_the_rows_that_the_data_matches(table: DmlTable) -> None:
    new = table.data(SCHEMA, (2, "a", "n"), (9, "b", "n"))
    table.write(new, "overwrite", replaceUsing="id")
    assert [row[0] for row in table.rows] == [1, 2, 3, 4, 5, 9]
    assert gone(table) == [0, 1]
    assert table.metrics["numCopiedRows"] == 4
    on = {"replaceOn": "t.id > s.id AND t.p = s.p", "targetAlias": "t"}
    data = table.data(SCHEMA, (1, "a", "o"), (2, "b", "o")).withColumn("v", F.expr("uuid()"))
    table.write(data.alias("s"), "overwrite", **on)
    assert [row[:2] for row in table.rows] == [
        (1, "a"),
        (1, "a"),
        (2, "b"),
        (4, None),
        (5, "c/é %"),
    ]
    # The file of 2 and 9 has lost both, and went.
    assert gone(table) == [0, 2]
    assert table.metrics["numRemovedFiles"] == 1
    table.check_log()


def test_the_feed_is_read_off_vectors_and_new_files(spark: SparkSession, tmp_path: Path) -> None:
    table = filled(DmlTable(spark, tmp_path / "fëed 1%"), **VECTORS, **FEED)
    table.write(table.data(SCHEMA, (2, "q", "n")), "overwrite", replaceWhere="id IN (2, 4)")
    table.write(table.data(SCHEMA, (7, "q", "n")), "overwrite", replaceWhere="id > 1")
    assert not (table.path / "_change_data").exists()
    told = changes(table, 1)
    assert told == [
        (1, "delete", 2, "y"),
        (1, "delete", 4, None),
        (1, "insert", 2, "n"),
        (2, "delete", 2, "n"),
        (2, "delete", 3, "x"),
        (2, "delete", 5, "z"),
        (2, "insert", 7, "n"),
    ]


def changes(table: DmlTable, first: int) -> list[tuple[object, ...]]:
    """The change feed from a version on."""
    reader = table.spark.read.format("delta").option("readChangeFeed", "true")
    feed = reader.option("startingVersion", first).load(str(table.path))
    rows = feed.select("_commit_version", "_change_type", "id", "v").collect()
    return sorted((tuple(row) for row in rows), key=repr)


def test_ids_stay_with_rows_that_are_not_marked(spark: SparkSession, tmp_path: Path) -> None:
    table = filled(DmlTable(spark, tmp_path / "ïds 1%"), **VECTORS, **TRACKED)
    before = ids_of(table.read())
    table.write(table.data(SCHEMA, (2, "q", "n")), "overwrite", replaceWhere="id = 2")
    after = ids_of(table.read())
    assert {i for i in after if after[i] != before[i]} == {2}
    assert after[2] == (5, 1)
    assert (table.info.tags or {})["delta.rowTracking.preserved"] == "true"


def ids_of(data: DataFrame) -> dict[int, tuple[int, int]]:
    """Row id and commit version by the row's own id."""
    rows = data.select("id", "_metadata.row_id", "_metadata.row_commit_version").collect()
    return {row[0]: (row[1], row[2]) for row in rows}


def test_a_condition_may_name_a_column_that_the_write_adds(table: DmlTable) -> None:
    new = table.data(f"{SCHEMA}, more int", (2, "q", "n", 1))
    condition = "id = 2 AND more IS NULL OR more = 1"
    table.write(new, "overwrite", replaceWhere=condition, mergeSchema="true")
    assert table.rows == [
        (1, "a", "x", None),
        (2, "q", "n", 1),
        (3, "b", "x", None),
        (4, None, None, None),
        (5, "c/é %", "z", None),
    ]
    assert gone(table) == [0, 1]


def test_a_write_that_fails_leaves_no_vectors_behind(table: DmlTable) -> None:
    before = table.paths
    with table.refused("DELTA_REPLACE_WHERE_MISMATCH"):
        table.write(table.data(SCHEMA, (3, "q", "n")), "overwrite", replaceWhere="id = 2")
    assert table.paths == before


def replaced(table: DmlTable, log: DeltaLog, number: int) -> int | None:
    """Replace the row of an id, by a log of one's own."""
    request = WriteRequest(mode="overwrite", options={"replaceWhere": f"id = {number}"})
    return run_write(table.spark, log, table.data(SCHEMA, (number, "r", "r")), request)


def test_commits_on_other_rows_of_a_file_are_no_conflict(table: DmlTable) -> None:
    store = LocalStore(table.path, fsync=False)
    committer = InterruptibleCommitter(store)

    def race(mine: int, other: str) -> None:
        def interrupt() -> None:
            committer.before = lambda: None
            run_delete(table.spark, DeltaLog(store), F.expr(other))

        committer.before = interrupt
        replaced(table, DeltaLog(store, committer=committer), mine)

    race(2, "id = 3")
    assert [row[:2] for row in table.rows] == [(1, "a"), (2, "r"), (4, None), (5, "c/é %")]
    assert gone(table) == [0, 2]
    with pytest.raises(DeltaConcurrentModificationException):
        race(4, "id = 4")
    assert [row[0] for row in table.rows] == [1, 2, 5]
    table.check_log()


def test_a_row_that_the_condition_is_true_for_is_a_conflict(
    spark: SparkSession, tmp_path: Path
) -> None:
    strict = {"delta.isolationLevel": "Serializable"}
    table = filled(DmlTable(spark, tmp_path / "strïct 1%"), **VECTORS, **strict)
    store = LocalStore(table.path, fsync=False)
    committer = InterruptibleCommitter(store)

    def race(mine: int, other: int) -> None:
        def interrupt() -> None:
            committer.before = lambda: None
            table.write(table.data(SCHEMA, (other, "w", "w")), "append")

        committer.before = interrupt
        replaced(table, DeltaLog(store, committer=committer), mine)

    race(2, 7)
    with pytest.raises(ConcurrentAppendException):
        race(3, 3)
    assert [row[0] for row in table.rows] == [1, 2, 3, 3, 4, 5, 7]
