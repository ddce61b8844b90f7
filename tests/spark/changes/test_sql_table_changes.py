"""`table_changes` and `table_changes_by_path` in SQL, wherever a table can stand."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pyspark_delta import disable, enable
from tests.support.catalog_tables import own_database, rows
from tests.support.refusals import condition


@pytest.fixture
def db(spark: SparkSession) -> Iterator[str]:
    enable(spark)
    with own_database(spark) as name:
        yield name


@pytest.fixture
def t(spark: SparkSession, db: str, table_path: Path) -> str:
    """A table that records an insert, an update and a delete."""
    spark.sql(
        f"CREATE TABLE t (id BIGINT, v STRING) USING delta LOCATION '{table_path}' "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    )
    spark.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    spark.sql("UPDATE t SET v = 'B' WHERE id = 2")
    spark.sql("DELETE FROM t WHERE id = 3")
    return "t"


LATER = [
    (2, "B", "update_postimage", 2),
    (2, "b", "update_preimage", 2),
    (3, "c", "delete", 3),
]


def changes(spark: SparkSession, call: str, args: Any = None) -> list[tuple[object, ...]]:
    columns = "id, v, _change_type, _commit_version"
    return rows(spark.sql(f"SELECT {columns} FROM {call}", args))


def test_a_range_is_told_by_versions_and_times(
    spark: SparkSession, db: str, t: str, table_path: Path
) -> None:
    assert changes(spark, "table_changes('t', 2)") == LATER
    assert changes(spark, f"TABLE_CHANGES('spark_catalog.{db}.t', 1 + 1, 2)") == LATER[:2]
    assert changes(spark, f"table_changes_by_path('{table_path}', 2L)") == LATER
    assert changes(spark, f"table_changes('delta.`{table_path}`', 2)") == LATER
    ago = "current_timestamp() - INTERVAL 1 HOUR"
    assert len(changes(spark, f"table_changes('t', {ago})")) == 6
    soon = datetime.now(UTC) + timedelta(hours=1)
    assert changes(spark, "table_changes(:t, :start)", {"t": "t", "start": 2}) == LATER
    assert changes(spark, "table_changes(?, ?)", ["t", 3]) == LATER[2:]
    for after in (f"'{soon:%Y-%m-%d %H:%M:%S}'", "0, current_timestamp()"):
        refused = f"SELECT * FROM table_changes('t', {after})"
        assert condition(spark, refused) == "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"


def test_a_call_stands_where_a_table_can(spark: SparkSession, db: str, t: str) -> None:
    spark.sql("CREATE TABLE names (id BIGINT, name STRING) USING delta")
    spark.sql("INSERT INTO names VALUES (2, 'two')")
    joined = "SELECT n.name, c._change_type FROM table_changes('t', 2) AS c JOIN names n USING (id)"
    assert rows(spark.sql(joined)) == [("two", "update_postimage"), ("two", "update_preimage")]
    nested = (
        "SELECT count(*) FROM t WHERE id IN (SELECT id FROM table_changes('t', 2)) "
        "AND EXISTS (SELECT 1 FROM table_changes('t', 3) x WHERE x.id = 3)"
    )
    assert rows(spark.sql(nested)) == [(1,)]
    twice = (
        "WITH c AS (SELECT * FROM table_changes('t', 1)) SELECT count(*) FROM c a JOIN c b "
        "ON a.id = b.id AND a._commit_version < b._commit_version"
    )
    assert rows(spark.sql(twice)) == [(3,)]
    spark.sql("CREATE TEMP VIEW feed AS SELECT id FROM table_changes('t', 3)")
    assert rows(spark.table("feed")) == [(3,)]
    spark.sql("CREATE TABLE kept USING delta AS SELECT * FROM table_changes('t', 2)")
    spark.sql("INSERT INTO kept SELECT * FROM table_changes('t', 2, 2)")
    assert spark.table("kept").count() == 5
    spark.sql(
        "MERGE INTO t USING (SELECT id, v FROM table_changes('t', 3)) s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT *"
    )
    assert rows(spark.table("t")) == [(1, "a"), (2, "B"), (3, "c")]
    assert rows(spark.table("feed")) == [(3,), (3,)]


def test_calls_that_mean_nothing_are_refused_by_name(
    spark: SparkSession, db: str, t: str, tmp_path: Path
) -> None:
    spark.sql("CREATE TABLE silent USING delta AS SELECT 1 AS id")
    spark.sql("CREATE TABLE p (id BIGINT) USING parquet")
    refused = {
        "table_changes('t')": "INCORRECT_NUMBER_OF_ARGUMENTS",
        "table_changes('t', 1, 2, 3)": "INCORRECT_NUMBER_OF_ARGUMENTS",
        "table_changes(1, 1)": "DELTA_UNSUPPORTED_EXPRESSION",
        "table_changes('t', 1.5)": "DELTA_UNSUPPORTED_EXPRESSION",
        "table_changes('t', null)": "DELTA_CDC_READ_NULL_RANGE_BOUNDARY",
        "table_changes('t', 99)": "DELTA_CDC_START_VERSION_AFTER_LATEST",
        "table_changes('t', 3, 1)": "DELTA_INVALID_CDC_RANGE",
        "table_changes('nope', 1)": "TABLE_OR_VIEW_NOT_FOUND",
        "table_changes('p', 1)": "DELTA_TABLE_ONLY_OPERATION",
        "table_changes('silent', 0)": "DELTA_MISSING_CHANGE_DATA",
        f"table_changes_by_path('{tmp_path}/nowhere', 1)": "DELTA_MISSING_DELTA_TABLE",
    }
    for call, wanted in refused.items():
        assert condition(spark, f"SELECT * FROM {call}") == wanted, call


def test_changes_are_asked_for_in_sparks_own_words(
    spark: SparkSession, db: str, t: str, table_path: Path
) -> None:
    as_two = [(2, "B", "insert", 2), (2, "b", "delete", 2), (3, "c", "delete", 3)]
    updates = "WITH (computeUpdates = true)"
    assert changes(spark, "t CHANGES FROM VERSION 2") == as_two
    assert changes(spark, f"t CHANGES FROM VERSION 1 EXCLUSIVE TO VERSION 3 {updates}") == LATER
    assert changes(spark, f"{db}.t CHANGES FROM VERSION '2' TO VERSION 3 EXCLUSIVE") == as_two[:2]
    assert changes(spark, f"delta.`{table_path}` CHANGES FROM VERSION 3 AS c") == as_two[2:]
    ago = "TIMESTAMP current_timestamp() - INTERVAL 1 HOUR"
    assert len(changes(spark, f"t CHANGES FROM {ago} EXCLUSIVE")) == 6
    joined = (
        "SELECT count(*) FROM t JOIN t CHANGES FROM VERSION 1 c ON t.id = c.id AND c.v = :v "
        "WHERE c.id IN (SELECT t.id FROM t CHANGES FROM VERSION 2)"
    )
    assert rows(spark.sql(joined, args={"v": "b"})) == [(2,)]


def test_only_enabled_sessions_know_the_functions(spark: SparkSession, db: str, t: str) -> None:
    other = spark.newSession()
    assert changes(other, f"table_changes('{db}.t', 2)") == LATER
    disable(other)
    assert condition(other, f"SELECT * FROM table_changes('{db}.t', 2)") in (
        "UNRESOLVABLE_TABLE_VALUED_FUNCTION",
        "UNRESOLVED_ROUTINE",
    )
