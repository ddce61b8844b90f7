"""Rows with ids for life: new ones get them, those that are only moved keep them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.kernel.protocol.domains import ROW_TRACKING
from tests.support.spark_tables import SparkTable


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> SparkTable:
    return SparkTable(spark, table_path)


def ids_of(data: DataFrame) -> dict[int, tuple[int, int]]:
    """Row id and commit version by the row's own id."""
    rows = data.select("id", "_metadata.row_id", "_metadata.row_commit_version").collect()
    return {row[0]: (row[1], row[2]) for row in rows}


def test_every_new_file_gets_ids(table: SparkTable) -> None:
    tracked = {"delta.enableRowTracking": "true"}
    table.write(table.spark.range(0, 6, 1, 2), **tracked)
    table.write(table.spark.range(6, 9, 1, 1))
    numbered = sorted((f.base_row_id, f.default_row_commit_version) for f in table.files)
    assert numbered == [(0, 0), (3, 0), (6, 1)]
    domain = json.loads(table.log.snapshot.domains[ROW_TRACKING].configuration)
    assert domain["rowIdHighWaterMark"] == 8
    assert ids_of(table.read()) == {i: (i, 0 if i < 6 else 1) for i in range(9)}


@pytest.mark.parametrize("mode", ["none", "name"])
def test_rows_that_are_moved_keep_their_ids(table: SparkTable, mode: str) -> None:
    properties = {"delta.enableRowTracking": "true", "delta.columnMapping.mode": mode}
    data = table.spark.range(0, 6, 1, 1).selectExpr("id", "id % 2 AS p")
    table.write(data, "append", "p", **properties)
    before = ids_of(table.read())
    new = table.data("id long, p long", (2, 0), (4, 0))
    table.write(new, "overwrite", replaceWhere="id IN (2, 4)")
    after = ids_of(table.read())
    assert {i: after[i] for i in (0, 1, 3, 5)} == {i: before[i] for i in (0, 1, 3, 5)}
    assert {after[i][1] for i in (2, 4)} == {1}
    assert len({row_id for row_id, _ in after.values()}) == 6
    assert (table.info.tags or {})["delta.rowTracking.preserved"] == "true"
    # And again, out of files that have them written down.
    table.write(table.data("id long, p long", (0, 0)), "overwrite", replaceWhere="id = 0")
    again = ids_of(table.read())
    assert {i: again[i] for i in (1, 2, 3, 4, 5)} == {i: after[i] for i in (1, 2, 3, 4, 5)}
    assert [row[0] for row in table.rows] == list(range(6))
