"""A MERGE opens no file of whose rows its clauses say that they are for none.

A file that is gone from its place tells who opens it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_delta import DeltaTable, disable, enable
from pyspark_delta.errors import DataFileError
from pyspark_delta.kernel.log.frames.file_actions import add_files
from tests.support.tables import table_log

FEED = {"delta.enableChangeDataFeed": "true"}


@pytest.fixture(autouse=True)
def enabled(spark: SparkSession) -> Iterator[SparkSession]:
    enable(spark)
    yield spark
    disable(spark)


def two_days(spark: SparkSession, path: Path, *partition_by: str, **properties: str) -> None:
    """A table with a file for each of two days, both with the same keys."""
    for day in (1, 2):
        rows = spark.range(0, 10, 1, 1).selectExpr("id", f"{day} AS day", "'old' AS v")
        writer = rows.write.format("delta").mode("append").partitionBy(*partition_by)
        writer.options(**properties).save(str(path))


def lose_day(path: Path, day: int) -> None:
    """Take the file of a day away, which the log still names."""
    (file,) = (
        each
        for each in add_files(table_log(path).snapshot.files)
        if f'"day":{day}' in (each.stats or "") or each.partition_values.get("day") == str(day)
    )
    (path / file.path).unlink()


def merged(spark: SparkSession, path: Path, clauses: str) -> list[int]:
    source = "(SELECT id AS k, 'new' AS w, 1 AS day FROM range(3, 30))"
    text = f"MERGE INTO delta.`{path}` t USING {source} s ON t.id = s.k {clauses}"
    return list(spark.sql(text).collect()[0])


@pytest.mark.parametrize("partition_by", [(), ("day",)], ids=["statistics", "partitions"])
@pytest.mark.parametrize(
    ("clauses", "counts"),
    [
        ("WHEN MATCHED AND t.day = 1 THEN UPDATE SET v = s.w", [7, 7, 0, 0]),
        ("WHEN MATCHED AND s.k > 5 AND t.day < 2 THEN DELETE", [4, 0, 4, 0]),
        (
            "WHEN MATCHED AND t.day = 1 AND s.k = 4 THEN DELETE"
            " WHEN MATCHED AND t.day IN (0, 1) THEN UPDATE SET v = s.w",
            [7, 6, 1, 0],
        ),
        ("WHEN MATCHED AND t.day > 2 THEN DELETE", [0, 0, 0, 0]),
        ("WHEN MATCHED AND false THEN DELETE", [0, 0, 0, 0]),
    ],
)
def test_files_of_rows_that_no_clause_is_for_are_not_opened(
    spark: SparkSession,
    table_path: Path,
    partition_by: tuple[str, ...],
    clauses: str,
    counts: list[int],
) -> None:
    two_days(spark, table_path, *partition_by)
    lose_day(table_path, 2)
    assert merged(spark, table_path, clauses) == counts


@pytest.mark.parametrize(
    "clauses",
    [
        "WHEN MATCHED AND t.day = 1 THEN UPDATE SET v = s.w WHEN NOT MATCHED THEN INSERT"
        " (id, day, v) VALUES (s.k, 3, s.w)",
        "WHEN MATCHED AND t.day = 1 THEN DELETE WHEN NOT MATCHED BY SOURCE THEN DELETE",
        "WHEN MATCHED AND t.day = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.w",
        "WHEN MATCHED AND t.day = s.day THEN DELETE",
        "WHEN MATCHED AND (t.day = 1 OR s.k = 4) THEN DELETE",
    ],
)
def test_files_are_opened_where_their_rows_may_mean_something(
    spark: SparkSession, table_path: Path, clauses: str
) -> None:
    two_days(spark, table_path)
    lose_day(table_path, 2)
    with pytest.raises(DataFileError, match="DELTA_FILE_NOT_FOUND_DETAILED"):
        merged(spark, table_path, clauses)
    assert table_log(table_path).snapshot.version == 1


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_rows_and_changes_are_those_of_the_clauses(
    spark: SparkSession, table_path: Path, vectors: str
) -> None:
    two_days(spark, table_path, **FEED, **{"delta.enableDeletionVectors": vectors})
    clauses = (
        "WHEN MATCHED AND t.day = 2 AND s.k < 5 THEN DELETE"
        " WHEN MATCHED AND t.day >= 2 THEN UPDATE SET v = s.w"
    )
    assert merged(spark, table_path, clauses) == [7, 5, 2, 0]
    rows = sorted(map(tuple, spark.read.format("delta").load(str(table_path)).collect()))
    kept = [(k, 1, "old") for k in range(10)] + [(k, 2, "old") for k in range(3)]
    assert rows == sorted(kept + [(k, 2, "new") for k in range(5, 10)])
    table = DeltaTable.forPath(spark, str(table_path))
    changes = table.changes(2, 2).select("_change_type", "id", "day").collect()
    assert {row["day"] for row in changes} == {2}
    kinds = [row["_change_type"] for row in changes]
    assert sorted(set(kinds)) == ["delete", "update_postimage", "update_preimage"]
    assert len(kinds) == 2 + 2 * 5


def test_keys_of_rows_that_no_clause_is_for_are_not_cast(
    spark: SparkSession, table_path: Path
) -> None:
    rows = spark.sql("SELECT 'A' AS k, TIMESTAMP_NTZ'2024-01-01 00:00:00' AS at").coalesce(1)
    rows.write.format("delta").save(str(table_path))
    source = "(SELECT * FROM VALUES (2S), (NULL) AS r(k))"
    merge = (
        f"MERGE INTO delta.`{table_path}` t USING {source} s ON t.k <=> s.k"
        " WHEN MATCHED AND t.at < TIMESTAMP_NTZ'2024-01-01 00:00:00' THEN DELETE"
    )
    assert list(spark.sql(merge).collect()[0]) == [0, 0, 0, 0]
