"""Statements that change a table through a temporary view which shows it otherwise than it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_delta import DeltaTable, enable
from pyspark_delta.errors import DeltaError

VECTORS = pytest.mark.parametrize("vectors", ["true", "false"])


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    yield enable(spark)
    spark.catalog.dropTempView("v")


class Viewed:
    """A table of three rows, `key` and `value`, and a view of it."""

    def __init__(self, spark: SparkSession, path: Path, vectors: str = "false") -> None:
        self.spark = spark
        self._path = path
        data = spark.sql("SELECT * FROM VALUES (0, 3), (1, 2), (5, 5) AS t(key, value)").coalesce(1)
        writer = data.write.format("delta").option("delta.enableDeletionVectors", vectors)
        writer.save(str(path))

    def view(self, columns: str, rest: str = "", *, is_frame: bool = False) -> None:
        """Let the view show these columns; `rest` is what follows the table in its query."""
        text = f"SELECT {columns} FROM delta.`{self._path}` {rest}"
        if is_frame:
            self.spark.sql(text).createOrReplaceTempView("v")
        else:
            self.spark.sql(f"CREATE OR REPLACE TEMP VIEW v AS {text}")

    def run(self, statement: str) -> int:
        """How many rows the statement affected."""
        return int(self.spark.sql(statement).first()[0])  # type: ignore[index]

    def refused(self, statement: str) -> str | None:
        """The condition of the error; nothing may be committed."""
        handle = DeltaTable.forPath(self.spark, str(self._path))
        before = handle.history(1).collect()[0]["version"]
        with pytest.raises((DeltaError, PySparkException)) as error:
            self.spark.sql(statement)
        assert handle.history(1).collect()[0]["version"] == before
        found = error.value
        return found.condition if isinstance(found, DeltaError) else found.getCondition()

    @property
    def rows(self) -> list[tuple[int, ...]]:
        return sorted(tuple(row) for row in self.spark.table(f"delta.`{self._path}`").collect())


@VECTORS
@pytest.mark.parametrize("is_frame", [True, False])
def test_columns_that_a_view_hides_cannot_be_named_and_stay(
    session: SparkSession, table_path: Path, vectors: str, is_frame: bool
) -> None:
    table = Viewed(session, table_path, vectors)
    table.view("key", is_frame=is_frame)
    for statement in (
        "DELETE FROM v WHERE key >= 1 AND value < 3",
        "UPDATE v SET value = 7 WHERE key = 5",
        "UPDATE v SET key = value",
        "UPDATE v AS w SET key = 1 WHERE w.value = 1",
    ):
        assert table.refused(statement) == "UNRESOLVED_COLUMN.WITH_SUGGESTION", statement
    assert table.run("DELETE FROM v WHERE v.key >= 5") == 1
    assert table.run("UPDATE v AS w SET w.key = w.key + 1 WHERE key = 1") == 1
    assert table.rows == [(0, 3), (2, 2)]


@VECTORS
@pytest.mark.parametrize("is_frame", [True, False])
def test_columns_that_trade_names_are_changed_under_their_own(
    session: SparkSession, table_path: Path, vectors: str, is_frame: bool
) -> None:
    table = Viewed(session, table_path, vectors)
    table.view("value AS key, key AS value", is_frame=is_frame)
    assert table.run("DELETE FROM v WHERE key >= 3 AND v.value < 3") == 1
    assert table.rows == [(1, 2), (5, 5)]
    # As the view shows it, the row (2, 1) becomes (3, 12).
    statement = "UPDATE v AS w SET w.value = key + 10, key = value + w.key WHERE w.key = 2"
    assert table.run(statement) == 1
    assert table.rows == [(5, 5), (12, 3)]
    with_query = "UPDATE v SET value = (SELECT max(id) FROM range(3)) WHERE key = 3"
    assert table.refused(with_query) == "DELTA_UNEXPECTED_PARTIAL_SCAN"
    assert table.run("DELETE FROM v") == 2


@pytest.mark.parametrize(
    ("columns", "statement", "condition"),
    [
        ("key, value, 1", "DELETE FROM v WHERE key = 1", "DELTA_CANNOT_RESOLVE_COLUMN"),
        ("key, value, 1 AS one", "UPDATE v SET key = 1", "DELTA_CANNOT_RESOLVE_COLUMN"),
        ("key, value AS other", "DELETE FROM v WHERE other = 2", "DELTA_CANNOT_RESOLVE_COLUMN"),
        ("key, value AS other", "DELETE FROM v WHERE value = 2", "UNRESOLVED_COLUMN"),
        ("key + 1 AS key, value", "DELETE FROM v WHERE key = 1", "DELTA_UNEXPECTED_PARTIAL_SCAN"),
        ("key + 1 AS key, value", "UPDATE v SET value = 1", "DELTA_UNEXPECTED_PARTIAL_SCAN"),
    ],
)
def test_columns_that_are_none_of_the_tables_are_refused(
    session: SparkSession, table_path: Path, columns: str, statement: str, condition: str
) -> None:
    table = Viewed(session, table_path)
    table.view(columns)
    assert (table.refused(statement) or "").startswith(condition)


@pytest.mark.parametrize(
    ("rest", "condition"),
    [
        ("WHERE key < 100", "DELTA_UNEXPECTED_PARTIAL_SCAN"),
        ("LIMIT 10", "DELTA_UNSUPPORTED_SOURCE"),
        ("ORDER BY key", "DELTA_UNSUPPORTED_SOURCE"),
        ("VERSION AS OF 0", "DELTA_FAILED_SCAN_WITH_HISTORICAL_VERSION"),
    ],
)
def test_views_of_some_rows_are_refused(
    session: SparkSession, table_path: Path, rest: str, condition: str
) -> None:
    table = Viewed(session, table_path)
    table.view("*", rest)
    for statement in (
        "DELETE FROM v WHERE key = 1",
        "UPDATE v SET value = 1",
        "MERGE INTO v USING (SELECT 1 AS k) s ON s.k = v.key WHEN MATCHED THEN DELETE",
    ):
        assert table.refused(statement) == condition, statement


def test_merge_takes_views_of_whole_tables_alone(session: SparkSession, table_path: Path) -> None:
    table = Viewed(session, table_path)
    merge = "MERGE INTO v USING (SELECT 1 AS k) s ON s.k = v.key WHEN MATCHED THEN {}"
    for columns, condition in {
        "key": "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS",
        "key, value, 1 AS one": "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS",
        "value AS key, key AS value": "DELTA_UNEXPECTED_PARTIAL_SCAN",
        "key + 1 AS key, value": "DELTA_UNEXPECTED_PARTIAL_SCAN",
    }.items():
        table.view(columns)
        assert table.refused(merge.format("DELETE")) == condition, columns
    table.view("value, key")
    assert table.run(merge.format("UPDATE SET value = 20")) == 1
    assert table.rows == [(0, 3), (1, 20), (5, 5)]
