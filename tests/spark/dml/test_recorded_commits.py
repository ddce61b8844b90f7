"""Commits of DELETE, UPDATE and MERGE that change nothing: who asks for them, and what they say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_delta import enable
from pyspark_delta.errors import AppendOnlyError
from pyspark_delta.kernel.protocol.actions import AddFile, CommitInfo, RemoveFile
from tests.support.dml_tables import FEED, KINDS, VECTORS, DmlTable, filled
from tests.support.merges import MODES, MergeTable
from tests.support.spark_tables import SparkTable, conf

APPLICATION = "spark__databricks__delta__write__txnAppId"
VERSION = "spark__databricks__delta__write__txnVersion"
RESETS = "spark__databricks__delta__write__txnVersion__autoReset__enabled"
TIMES = {"executionTimeMs", "scanTimeMs", "rewriteTimeMs", "materializeSourceTimeMs"}


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> DmlTable:
    return DmlTable(spark, table_path)


@pytest.fixture
def everything(spark: SparkSession) -> Iterator[None]:
    """The session wants the history to tell of commands that change nothing too."""
    with conf(spark, spark__databricks__delta__skipRecordingEmptyCommits="false"):
        yield


def counts(table: SparkTable) -> dict[str, int]:
    """The metrics of the newest commit that are not zero, but for times."""
    return {name: n for name, n in table.metrics.items() if n and name not in TIMES}


@KINDS
@pytest.mark.usefixtures("everything")
def test_a_command_that_finds_no_row_leaves_an_entry_with_zeros(
    table: DmlTable, properties: dict[str, str]
) -> None:
    filled(table, "p", **properties, **FEED)
    for number, condition in enumerate(("id = 77", "p = 'nobody'", "false", "length(v) > 9")):
        assert table.handle.delete(condition).first() == (0,)
        assert table.info.version == 2 * number + 1
        assert (table.info.operation, counts(table)) == ("DELETE", {})
        assert {"numDeletedRows", "numCopiedRows", "numAddedFiles"} <= table.metrics.keys()
        assert table.handle.update(condition, {"v": "'new'"}).first() == (0,)
        assert table.info.version == 2 * number + 2
        assert (table.info.operation, counts(table)) == ("UPDATE", {})
        assert {"numUpdatedRows", "numCopiedRows", "numAddedFiles"} <= table.metrics.keys()
        assert [type(action) for action in table.last_commit] == [CommitInfo]
    assert table.info.is_blind_append is False
    assert table.info.isolation_level == "SnapshotIsolation"
    table.handle.delete()
    assert table.handle.delete().first() == (0,)
    assert (table.info.version, counts(table)) == (10, {})


@pytest.mark.parametrize("properties", MODES.values(), ids=MODES)
@pytest.mark.usefixtures("everything")
def test_a_merge_that_changes_nothing_tells_how_many_rows_its_source_has(
    spark: SparkSession, table_path: Path, properties: dict[str, str]
) -> None:
    enable(spark)
    table = MergeTable.of(spark, table_path, "id int, v string", (1, "a"), **properties)
    none = table.data("id int, v string")
    other = table.data("id int, v string", (7, "A"), (8, "B"))
    same = table.data("id int, v string", (1, "A"))
    merges = {
        table.merge(none).whenMatchedUpdateAll().whenNotMatchedInsertAll(): 0,
        table.merge(none).whenNotMatchedInsertAll(): 0,
        table.merge(other).whenMatchedUpdateAll(): 2,
        table.merge(other).whenMatchedDelete().whenNotMatchedInsertAll("s.id > 8"): 2,
        table.merge(same).whenNotMatchedInsertAll(): 1,
        table.merge(same).whenMatchedUpdateAll("s.v = 'no'"): 1,
        table.merge(same).whenNotMatchedBySourceDelete(): 1,
    }
    for number, (merge, num_source) in enumerate(merges.items()):
        assert table.done(merge) == (0, 0, 0)
        assert (table.version, table.info.operation) == (number + 1, "MERGE")
        assert counts(table) == ({"numSourceRows": num_source} if num_source else {})
        assert "numTargetRowsCopied" in table.metrics
    assert table.rows == [(1, "a")]


@pytest.mark.usefixtures("everything")
def test_an_append_of_no_rows_is_recorded_too(table: DmlTable) -> None:
    filled(table)
    assert table.write(table.data("id long, p string, v string")) == 1
    assert table.info.operation == "WRITE"
    assert len(table.rows) == 5


def test_an_update_that_finds_no_row_still_tells_how_far_its_application_got(
    table: DmlTable,
) -> None:
    filled(table, **VECTORS)
    with conf(table.spark, **{APPLICATION: "app", VERSION: "1", RESETS: "true"}):
        # DELETE does not: it may be run again.
        table.handle.delete("id = 77")
        assert table.info.version == 0
        assert table.spark.conf.get(VERSION.replace("__", ".")) == "1"
        table.handle.update("id = 77", {"v": "'new'"})
        assert table.spark.conf.get(VERSION.replace("__", "."), None) is None
    assert (table.info.version, counts(table)) == (1, {})
    assert table.log.update().transactions["app"].version == 1


def test_a_merge_that_changes_nothing_still_tells_how_far_its_application_got(
    spark: SparkSession, table_path: Path
) -> None:
    enable(spark)
    table = MergeTable.of(spark, table_path, "id int, v string", (1, "a"))
    source = table.data("id int, v string", (2, "B"), (3, "C"))
    with conf(spark, **{APPLICATION: "app", VERSION: "1"}):
        table.merge(source).whenMatchedUpdateAll().execute()
    assert (table.version, counts(table)) == (1, {"numSourceRows": 2})
    assert table.log.update().transactions["app"].version == 1
    with conf(spark, **{APPLICATION: "app", VERSION: "1"}):
        table.merge(source).whenNotMatchedInsertAll().execute()  # it has been here
    assert table.rows == [(1, "a")]


@pytest.mark.parametrize("properties", MODES.values(), ids=MODES)
def test_a_table_for_appends_takes_a_merge_that_only_adds_rows(
    spark: SparkSession, table_path: Path, properties: dict[str, str]
) -> None:
    enable(spark)
    only = {"delta.appendOnly": "true", **properties}
    table = MergeTable.of(spark, table_path, "id int, v string", (1, "a"), **only)
    new = table.data("id int, v string", (2, "B"))
    assert table.done(table.merge(new).whenMatchedUpdateAll().whenNotMatchedInsertAll()) == (
        0,
        0,
        1,
    )
    assert any(isinstance(action, AddFile) for action in table.last_commit)
    assert not any(isinstance(action, RemoveFile) for action in table.last_commit)
    mixed = table.data("id int, v string", (2, "!"), (3, "C"))
    for merge in (
        table.merge(mixed).whenMatchedUpdateAll().whenNotMatchedInsertAll(),
        table.merge(mixed).whenMatchedDelete(),
        table.merge(new).whenNotMatchedBySourceDelete(),
    ):
        before = {*table_path.rglob("*.parquet"), *table_path.rglob("*.bin")}
        with pytest.raises(AppendOnlyError):
            merge.execute()
        assert {*table_path.rglob("*.parquet"), *table_path.rglob("*.bin")} == before
    assert (table.version, table.rows) == (1, [(1, "a"), (2, "B")])
