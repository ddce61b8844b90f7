"""Texts that a query compares by a collation: files and partitions are not told apart by bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.dml_tables import VECTORS, DmlTable

FOLDED = "'abc' COLLATE UTF8_LCASE"
CONDITIONS = {
    f"v = {FOLDED}": [1, 2],
    f"v <=> {FOLDED}": [1, 2],
    f"{FOLDED} >= v": [1, 2],
    f"v IN ({FOLDED}, 'nobody')": [1, 2],
    f"v IN ({FOLDED}, {', '.join(repr(str(i)) for i in range(20))})": [1, 2],
    "startswith(v, 'ab' COLLATE UTF8_LCASE)": [1, 2, 3],
    "v COLLATE UTF8_LCASE LIKE 'ab%'": [1, 2, 3],
    "v = 'abc' COLLATE UTF8_BINARY_RTRIM": [1, 3],
    "v COLLATE UNICODE_CI = 'abc'": [1, 2],
    "cast(s AS struct<a: string COLLATE UTF8_LCASE>).a = 'abc'": [1, 2],
    f"NOT (v = {FOLDED})": [3, 4],
    "v = 'abc' COLLATE UTF8_BINARY": [1],
}
"""Conditions, and the rows for which they are true."""


@pytest.fixture(params=["files", "partitions"])
def table(request: pytest.FixtureRequest, spark: SparkSession, table_path: Path) -> DmlTable:
    """A row in each file, whose bounds tell the files apart, or in each partition."""
    table = DmlTable(spark, table_path)
    partition_by = ["v"] if request.param == "partitions" else []
    for number, text in enumerate(("abc", "ABC", "abc  ", "x"), 1):
        rows = f"SELECT {number} AS id, '{text}' AS v, named_struct('a', '{text}') AS s"
        table.write(spark.sql(rows), "append", *partition_by, **VECTORS)
    return table


def ids(table: DmlTable) -> list[int]:
    return [row["id"] for row in table.read().select("id").orderBy("id").collect()]


def test_a_query_finds_what_its_collation_takes_for_equal(table: DmlTable) -> None:
    for condition, expected in CONDITIONS.items():
        found = table.read().where(condition).select("id").orderBy("id").collect()
        assert [row["id"] for row in found] == expected, condition
        assert table.read().where(condition).count() == len(expected), condition


@pytest.mark.parametrize(
    "condition", [f"v = {FOLDED}", "v = 'abc' COLLATE UTF8_BINARY_RTRIM", f"v IN ({FOLDED}, 'y')"]
)
def test_delete_and_update_change_what_a_query_finds(table: DmlTable, condition: str) -> None:
    expected = CONDITIONS.get(condition, [1, 2])
    table.handle.update(condition, {"id": "id + 10"})
    assert ids(table) == sorted({1, 2, 3, 4} - {*expected} | {n + 10 for n in expected})
    table.handle.delete(condition)
    assert ids(table) == sorted({1, 2, 3, 4} - {*expected})


def test_replace_where_leaves_no_row_that_its_collation_means(table: DmlTable) -> None:
    new = table.spark.sql("SELECT 9 AS id, 'AbC' AS v, named_struct('a', 'AbC') AS s")
    table.write(new, "overwrite", replaceWhere=f"v = {FOLDED}")
    assert ids(table) == [3, 4, 9]
