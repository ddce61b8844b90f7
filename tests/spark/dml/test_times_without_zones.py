"""Partitions by a time whose text does not say its zone: every command takes it as queries do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_delta.errors import ConcurrentAppendException
from pyspark_delta.kernel.protocol.actions import AddFile
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.dml.delete import run_delete
from pyspark_delta.spark.maintenance.optimize import OptimizeRequest, run_optimize
from tests.support.dml_tables import KINDS, DmlTable
from tests.support.interleaving import InterruptibleCommitter

ZONE = "spark.sql.session.timeZone"
NEW_YEAR = "at = TIMESTAMP'2024-01-01 00:00:00'"
SPELLED = {
    "2023-12-31T15:00:00.000000Z": "2024-01-01 00:00:00",
    "2024-01-01T15:00:00.000000Z": "2024-01-02 00:00:00",
}
"""Midnights in Tokyo: as we write them, and as older writers do."""


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> DmlTable:
    spark.conf.set(ZONE, "Asia/Tokyo")
    return DmlTable(spark, table_path)


def local(file: AddFile) -> AddFile:
    """The same file, its time spelled without a zone."""
    return replace(file, partition_values={"at": SPELLED[file.partition_values["at"] or ""]})


def filled(table: DmlTable, **properties: str) -> DmlTable:
    """Rows 1 and 2 on the first day of the year in Tokyo, in a file each, and row 3 on the next."""
    for number, day in ((1, 1), (2, 1), (3, 2)):
        rows = f"SELECT {number}L AS id, TIMESTAMP'2024-01-0{day} 00:00:00' AS at"
        table.write(table.spark.sql(rows), "append", "at", **properties)
    table.log.start_transaction().commit([local(file) for file in table.files], "WRITE")
    assert {file.partition_values["at"] for file in table.files} == set(SPELLED.values())
    return table


def ids(table: DmlTable) -> list[int]:
    return [row[0] for row in table.rows]


@KINDS
def test_delete_and_update_find_the_rows_that_a_query_finds(
    table: DmlTable, properties: dict[str, str]
) -> None:
    filled(table, **properties)
    assert table.read().where(NEW_YEAR).count() == 2
    table.handle.update(f"{NEW_YEAR} AND id = 1", {"id": "10L"})
    assert ids(table) == [10, 2, 3]
    table.handle.delete(f"{NEW_YEAR} AND id = 10")
    assert ids(table) == [2, 3]
    table.handle.delete(NEW_YEAR)
    assert ids(table) == [3]


def test_replace_where_leaves_none_of_the_old_rows(table: DmlTable) -> None:
    filled(table)
    new = table.spark.sql("SELECT 7L AS id, TIMESTAMP'2024-01-01 00:00:00' AS at")
    table.write(new, "overwrite", replaceWhere=NEW_YEAR)
    assert ids(table) == [3, 7]


def test_optimize_finds_the_partition_that_it_is_for(table: DmlTable) -> None:
    filled(table)
    run_optimize(table.spark, table.log, OptimizeRequest(where=(NEW_YEAR,)))
    assert len(table.files) == 2
    assert ids(table) == [1, 2, 3]


def test_merge_finds_the_rows_that_a_query_finds(table: DmlTable) -> None:
    filled(table)
    source = table.spark.range(1, 4).alias("s")
    merge = table.handle.alias("t").merge(source, f"t.id = s.id AND t.{NEW_YEAR}")
    merge.whenMatchedDelete().execute()
    assert ids(table) == [3]


def test_rows_that_others_add_to_such_a_partition_are_a_conflict(table: DmlTable) -> None:
    filled(table)
    store = LocalStore(table.path, fsync=False)
    committer = InterruptibleCommitter(store)

    def append() -> None:
        committer.before = lambda: None
        others = [replace(file, path=f"{file.path}-copy") for file in table.files]
        table.log.start_transaction().commit(others, "WRITE")

    committer.before = append
    with pytest.raises(ConcurrentAppendException):
        run_delete(table.spark, DeltaLog(store, committer=committer), F.expr(NEW_YEAR))
