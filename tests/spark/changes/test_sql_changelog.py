"""`CHANGES FROM` by row tracking: which changes are told, and which are left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_delta import enable
from pyspark_delta.errors import DeltaError
from tests.support.catalog_tables import own_database, rows
from tests.support.refusals import condition

TRACKED = "'delta.enableRowTracking' = 'true'"
WITHOUT_VECTORS = f"{TRACKED}, 'delta.enableDeletionVectors' = 'false'"
WITH_VECTORS = f"{TRACKED}, 'delta.enableDeletionVectors' = 'true'"
NET, UPDATES = "deduplicationMode = 'netChanges'", "computeUpdates = true"


@pytest.fixture
def db(spark: SparkSession) -> Iterator[str]:
    enable(spark)
    with own_database(spark) as name:
        yield name


@pytest.fixture(params=[WITHOUT_VECTORS, WITH_VECTORS], ids=["copies", "vectors"])
def t(spark: SparkSession, db: str, request: pytest.FixtureRequest) -> str:
    """Rows 0 to 3 at version 1; one updated, one deleted, a fifth that comes, changes and goes."""
    spark.sql(f"CREATE TABLE t (id BIGINT, v STRING) USING delta TBLPROPERTIES ({request.param})")
    spark.sql("INSERT INTO t SELECT /*+ COALESCE(1) */ id, 'a' FROM range(4)")
    spark.sql("UPDATE t SET v = 'b' WHERE id = 1")
    spark.sql("DELETE FROM t WHERE id = 2")
    spark.sql("INSERT INTO t VALUES (9, 'n')")
    spark.sql("UPDATE t SET v = 'c' WHERE id IN (1, 9)")
    spark.sql("DELETE FROM t WHERE id = 9")
    return "t"


def changes(spark: SparkSession, clause: str) -> list[tuple[object, ...]]:
    return rows(spark.sql(f"SELECT id, v, _change_type, _commit_version FROM t {clause}"))


def test_rows_that_were_only_copied_are_left_out(spark: SparkSession, t: str) -> None:
    told = [
        (1, "a", "delete", 2),
        (1, "b", "delete", 5),
        (1, "b", "insert", 2),
        (1, "c", "insert", 5),
        (2, "a", "delete", 3),
        (9, "c", "delete", 6),
        (9, "c", "insert", 5),
        (9, "n", "delete", 5),
        (9, "n", "insert", 4),
    ]
    assert changes(spark, "CHANGES FROM VERSION 2") == told
    some = "CHANGES FROM VERSION 1 EXCLUSIVE TO VERSION 3 WITH (deduplicationMode = dropCarryovers)"
    assert changes(spark, some) == [change for change in told if change[3] in (2, 3)]
    assert len(changes(spark, "CHANGES FROM VERSION 1")) == 13
    as_updates = changes(spark, f"CHANGES FROM VERSION 2 TO VERSION 3 WITH ({UPDATES})")
    assert as_updates == [
        (1, "a", "update_preimage", 2),
        (1, "b", "update_postimage", 2),
        (2, "a", "delete", 3),
    ]
    found = spark.sql("SELECT * FROM t CHANGES FROM VERSION 3")
    last = ["_change_type", "_commit_version", "_commit_timestamp"]
    assert found.columns == ["id", "v", "_metadata", *last]
    ids = found.select("_metadata.row_id", "_metadata.row_commit_version").where("id = 2")
    assert rows(ids) == [(2, 1)]


def test_vectors_may_have_been_dropped_within_the_range(spark: SparkSession, db: str) -> None:
    spark.sql(f"CREATE TABLE t (id BIGINT, v STRING) USING delta TBLPROPERTIES ({WITH_VECTORS})")
    spark.sql("INSERT INTO t SELECT /*+ COALESCE(1) */ id, 'a' FROM range(4)")
    spark.sql("DELETE FROM t WHERE id = 2")
    spark.sql("ALTER TABLE t DROP FEATURE deletionVectors")
    spark.sql("INSERT INTO t VALUES (9, 'n')")
    last = spark.sql("DESCRIBE HISTORY t").first()["version"]
    assert changes(spark, "CHANGES FROM VERSION 2") == [
        (2, "a", "delete", 2),
        (9, "n", "insert", last),
    ]


def test_all_rows_of_changed_files_can_be_asked_for(spark: SparkSession, t: str) -> None:
    all_rows = changes(spark, "CHANGES FROM VERSION 2 TO VERSION 2 WITH (deduplicationMode = none)")
    assert len(all_rows) == 8
    assert {change[:3] for change in all_rows} >= {(0, "a", "delete"), (0, "a", "insert")}
    refused = f"SELECT * FROM t CHANGES FROM VERSION 2 WITH (deduplicationMode = 'none', {UPDATES})"
    assert condition(spark, refused) == (
        "INVALID_CDC_OPTION.UPDATE_DETECTION_REQUIRES_CARRY_OVER_REMOVAL"
    )


def test_only_the_net_change_of_each_row_may_be_wanted(spark: SparkSession, t: str) -> None:
    assert changes(spark, f"CHANGES FROM VERSION 2 WITH ({NET})") == [
        (1, "a", "delete", 2),
        (1, "c", "insert", 5),
        (2, "a", "delete", 3),
    ]
    assert changes(spark, f"CHANGES FROM VERSION 2 WITH ({NET}, {UPDATES})") == [
        (1, "a", "update_preimage", 2),
        (1, "c", "update_postimage", 5),
        (2, "a", "delete", 3),
    ]
    assert changes(spark, f"CHANGES FROM VERSION 1 WITH ({NET})") == [
        (0, "a", "insert", 1),
        (1, "c", "insert", 5),
        (3, "a", "insert", 1),
    ]
    late = f"CHANGES FROM VERSION 4 TO VERSION 5 WITH ({NET}, {UPDATES})"
    assert changes(spark, late) == [
        (1, "b", "update_preimage", 5),
        (1, "c", "update_postimage", 5),
        (9, "c", "insert", 5),
    ]


def test_compactions_are_no_changes(spark: SparkSession, db: str) -> None:
    spark.sql(
        "CREATE TABLE t (id BIGINT, v STRING) USING delta PARTITIONED BY (v) "
        f"TBLPROPERTIES ({WITH_VECTORS}, 'delta.columnMapping.mode' = 'name')"
    )
    spark.sql("INSERT INTO t VALUES (1, 'x')")
    spark.sql("INSERT INTO t VALUES (2, 'x')")
    spark.sql("OPTIMIZE t")
    spark.sql("UPDATE t SET id = 3 WHERE id = 2")
    spark.sql("ALTER TABLE t ADD COLUMN more INT")
    assert changes(spark, f"CHANGES FROM VERSION 2 WITH ({UPDATES})") == [
        (2, "x", "insert", 2),
        (2, "x", "update_preimage", 4),
        (3, "x", "update_postimage", 4),
    ]
    assert changes(spark, f"CHANGES FROM VERSION 0 WITH ({NET})") == [
        (1, "x", "insert", 1),
        (3, "x", "insert", 4),
    ]
    spark.sql("ALTER TABLE t RENAME COLUMN id TO number")
    refused = "SELECT * FROM t CHANGES FROM VERSION 0"
    assert condition(spark, refused) == "DELTA_CHANGELOG_SCHEMA_CHANGE_IN_RANGE"


def test_what_cannot_be_told_is_refused_by_name(spark: SparkSession, t: str) -> None:
    spark.sql("CREATE TABLE silent USING delta AS SELECT 1 AS id")
    spark.sql(
        "CREATE TABLE fed (id INT) USING delta "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    )
    for clause, wanted in {
        "t CHANGES FROM VERSION 99": "DELTA_INVALID_CDC_RANGE",
        "t CHANGES FROM VERSION 99 TO VERSION 100": "DELTA_CDC_START_VERSION_AFTER_LATEST",
        "t CHANGES FROM VERSION 3 TO VERSION 2": "DELTA_INVALID_CDC_RANGE",
        "t CHANGES FROM VERSION 3 EXCLUSIVE TO VERSION 4 EXCLUSIVE": "DELTA_INVALID_CDC_RANGE",
        "t CHANGES FROM VERSION 1 WITH (deduplicationMode = 'some')": (
            "INVALID_CDC_OPTION.INVALID_DEDUPLICATION_MODE"
        ),
        "silent CHANGES FROM VERSION 0": "DELTA_CHANGELOG_REQUIRES_ROW_TRACKING",
        f"fed CHANGES FROM VERSION 0 WITH ({NET})": "DELTA_CHANGELOG_REQUIRES_ROW_TRACKING",
    }.items():
        assert condition(spark, f"SELECT * FROM {clause}") == wanted, clause
    spark.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.enableRowTracking' = 'false')")
    assert condition(spark, "SELECT * FROM t CHANGES FROM VERSION 2") == (
        "DELTA_CHANGELOG_ROW_TRACKING_DISABLED_IN_RANGE"
    )


def test_readers_ask_in_sparks_own_words(spark: SparkSession, db: str, t: str) -> None:
    def read(name: str = "t", **options: Any) -> list[tuple[object, ...]]:
        reader = spark.read.options(**options)
        return rows(reader.changes(name).select("id", "v", "_change_type", "_commit_version"))

    assert read(startingVersion=3, endingVersion=3) == [(2, "a", "delete", 3)]
    assert read(f"{db}.t", startingVersion=1, startingBoundInclusive=False) == changes(
        spark, "CHANGES FROM VERSION 2"
    )
    net = read(startingVersion=2, deduplicationMode="NETCHANGES", computeUpdates="true")
    assert net == changes(spark, f"CHANGES FROM VERSION 2 WITH ({NET}, {UPDATES})")
    ago = spark.sql("SELECT string(current_timestamp() - INTERVAL 1 HOUR)").first()
    assert ago is not None
    assert len(read(startingTimestamp=ago[0])) == 13
    refused: dict[str, dict[str, Any]] = {
        "DELTA_CHANGELOG_UNBOUNDED_RANGE": {},
        "INVALID_CDC_OPTION.CONFLICTING_RANGE_TYPES": {
            "startingVersion": 1,
            "endingTimestamp": "2024-01-01",
        },
        "INVALID_CDC_OPTION.MISSING_STARTING_VERSION": {"endingVersion": 1},
        "DELTA_VERSION_INVALID": {"startingVersion": "x"},
    }
    for wanted, options in refused.items():
        with pytest.raises((DeltaError, PySparkException)) as error:
            read(**options)
        assert f"[{wanted}]" in str(error.value)
