"""The change feed of one table, read by two engines: the same rows, versions and times."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pyspark_delta.errors import DeltaError
from tests.interop.engines import Pair, SetTheirs, table
from tests.interop.rows import NESTED, TYPES, query
from tests.support.canonical import Contents
from tests.support.peer import PeerError
from tests.support.spark_tables import conf

SCHEMA_MODE = "spark.databricks.delta.changeDataFeed.defaultSchemaModeForColumnMappingTable"
TOLERANT = "spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled"


def feed(pair: Pair, path: Path, first: int = 0, last: int | None = None) -> Contents:
    """What both tell of a range."""
    options = (
        {"startingVersion": first}
        if last is None
        else {
            "startingVersion": first,
            "endingVersion": last,
        }
    )
    return pair.agree(path, readChangeFeed="true", **options)


def outcome(pair: Pair, path: Path, **options: object) -> tuple[Any, Any]:
    """What each makes of a range: its rows, or the condition that it refuses it with."""
    found: list[Any] = []
    for engine in (pair.ours, pair.theirs):
        try:
            found.append(engine.read(path, readChangeFeed="true", **options))
        except (DeltaError, PeerError) as error:
            found.append(error.condition)
    return found[0], found[1]


def test_a_feed_of_vectors_and_change_files_agrees(pair: Pair, table_path: Path) -> None:
    name = table(table_path)
    pair.theirs.sql(
        f"CREATE TABLE {name} (id LONG NOT NULL, p STRING) USING delta PARTITIONED BY (p)"
        " TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true',"
        " 'delta.enableDeletionVectors' = 'true')"
    )
    pair.theirs.write("SELECT id, concat('ä ', id % 2) AS p FROM range(0, 10, 1, 1)", table_path)
    pair.theirs.sql(f"DELETE FROM {name} WHERE id < 3")
    pair.theirs.sql(f"UPDATE {name} SET id = id + 100 WHERE id > 7")
    assert len(feed(pair, table_path).rows) == 10 + 3 + 4
    told = pair.agree(table_path, readChangeFeed="true", startingVersion=2, endingVersion=2)
    assert {row["_change_type"] for row in told.values} == {"delete"}


@pytest.mark.slow
@pytest.mark.parametrize("vectors", ["true", "false"])
@pytest.mark.parametrize("mapping", ["none", "name", "id"])
def test_every_command_of_the_peer_is_told_alike(
    pair: Pair, table_path: Path, vectors: str, mapping: str
) -> None:
    name = table(table_path)
    pair.theirs.sql(
        f"CREATE TABLE {name} (id LONG, v STRING, p INT, s STRUCT<a: INT, b: STRING>) USING delta"
        " PARTITIONED BY (p) TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true',"
        f" 'delta.enableDeletionVectors' = '{vectors}', 'delta.columnMapping.mode' = '{mapping}')"
    )
    rows = "concat('wörd ', id) AS v, CAST(id % 3 AS INT) AS p, named_struct('a', 1, 'b', 'x') AS s"
    pair.theirs.write(f"SELECT id, {rows} FROM range(0, 30, 1, 2)", table_path)
    for statement in (
        f"DELETE FROM {name} WHERE id % 10 = 3",
        f"DELETE FROM {name} WHERE id % 10 = 4",
        f"DELETE FROM {name} WHERE p = 2",
        f"UPDATE {name} SET v = NULL, s.a = 7 WHERE id IN (1, 6)",
        f"UPDATE {name} SET p = 9 WHERE id IN (7, 9)",
        f"MERGE INTO {name} t USING (SELECT id, {rows} FROM range(20, 40)) s ON t.id = s.id"
        " WHEN MATCHED AND s.id < 22 THEN DELETE WHEN MATCHED THEN UPDATE SET v = 'm'"
        " WHEN NOT MATCHED THEN INSERT *",
        f"MERGE INTO {name} t USING (SELECT -1L AS id) s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET v = 'n'",
        f"INSERT INTO {name} REPLACE WHERE p = 1 SELECT 100L, 'r', 1, NULL",
        f"RESTORE TABLE {name} TO VERSION AS OF 3",
        f"OPTIMIZE {name}",
        f"ALTER TABLE {name} ADD COLUMN w DOUBLE",
        f"INSERT INTO {name} SELECT 200L, 'i', 1, NULL, 0.5D",
        f"TRUNCATE TABLE {name}",
    ):
        pair.theirs.sql(statement)
    newest = pair.theirs.sql(f"DESCRIBE HISTORY {name} LIMIT 1")[0]["version"]
    kinds = {row["_change_type"] for row in feed(pair, table_path).values}
    assert kinds == {"insert", "delete", "update_preimage", "update_postimage"}
    for version in range(newest + 1):
        feed(pair, table_path, version, version)


@pytest.mark.slow
def test_values_at_the_ends_of_every_type_are_told_alike(pair: Pair, table_path: Path) -> None:
    options = {"delta_enableChangeDataFeed": "true"}
    # The peer's changes go through Java's old calendar, which has no 10 October 1582.
    types = {name: kind for name, kind in TYPES.items() if name != "t"}
    pair.theirs.write(query(types | NESTED), table_path, **options)
    pair.theirs.sql(f"UPDATE {table(table_path)} SET bo = true WHERE id = 1")
    pair.theirs.sql(f"DELETE FROM {table(table_path)} WHERE id = 2")
    assert len(feed(pair, table_path).rows) == 3 + 2 + 1


@pytest.mark.slow
def test_our_overwrites_are_told_alike(pair: Pair, table_path: Path) -> None:
    rows = "SELECT id, CAST(id % 3 AS STRING) AS p FROM range({}, {}, 1, 1)"
    feed_on = {"delta_enableChangeDataFeed": "true"}
    pair.ours.write(rows.format(0, 9), table_path, partition_by=["p"], **feed_on)
    pair.ours.write(rows.format(4, 5), table_path, mode="overwrite", replaceWhere="id = 4")
    pair.ours.write(
        rows.format(9, 12), table_path, mode="overwrite", replaceWhere="p = '0' OR id > 4"
    )
    pair.ours.write(rows.format(1, 2), table_path, mode="overwrite")
    assert len(feed(pair, table_path).rows) > 12


@pytest.mark.slow
def test_ranges_mean_the_same_to_both(pair: Pair, table_path: Path, set_theirs: SetTheirs) -> None:
    name = table(table_path)
    keys = ("'delta.deletedFileRetentionDuration'", "'delta.logRetentionDuration'")
    pair.theirs.sql(
        f"CREATE TABLE {name} (id LONG) USING delta TBLPROPERTIES"
        " ('delta.enableChangeDataFeed' = 'true',"
        + ", ".join(f"{key} = 'interval 20000 days'" for key in keys)
        + ")"
    )
    for number in range(3):
        pair.theirs.sql(f"INSERT INTO {name} VALUES ({number})")
    start = 1_700_000_000
    for version, seconds in enumerate((0, 100, 50, 60)):  # times are made to rise by both
        at = start + seconds
        os.utime(table_path / "_delta_log" / f"{version:020d}.json", (at, at))
    ranges: list[dict[str, object]] = [
        {},
        {"endingVersion": 1},
        {"startingVersion": 4},
        {"startingVersion": "x"},
        {"startingVersion": 2, "endingVersion": 1},
        {"startingVersion": 2, "endingVersion": 99},
        {"startingVersion": 3, "startingTimestamp": "2001-01-01"},
        {"startingVersion": 1, "versionAsOf": 1},
        {"startingTimestamp": "hello"},
        {"startingTimestamp": "2001-01-01"},
        {"startingTimestamp": "2101-01-01"},
        {"startingVersion": 0, "endingTimestamp": "2001-01-01"},
        {"startingVersion": 0, "endingTimestamp": "2101-01-01"},
        {"startingTimestamp": "2023-11-14 22:13:20Z", "endingTimestamp": "2023-11-14 22:15:00Z"},
        {"startingTimestamp": "2023-11-14 22:13:21Z", "endingTimestamp": "2023-11-14 22:13:22Z"},
        {"startingTimestamp": "2023-11-14 22:13:22Z", "endingTimestamp": "2023-11-14 22:13:21Z"},
    ]
    for bounds in ranges:
        ours, theirs = outcome(pair, table_path, **bounds)
        assert ours == theirs, bounds
    set_theirs(TOLERANT, "true")
    with conf(pair.ours.spark, **{TOLERANT.replace(".", "__"): "true"}):
        for bounds in ranges:
            ours, theirs = outcome(pair, table_path, **bounds)
            assert ours == theirs, bounds


@pytest.mark.slow
def test_what_cannot_be_told_is_refused_by_both(
    pair: Pair, table_path: Path, tmp_path: Path, set_theirs: SetTheirs
) -> None:
    name = table(table_path)
    pair.theirs.sql(
        f"CREATE TABLE {name} (id LONG, v STRING) USING delta TBLPROPERTIES"
        " ('delta.columnMapping.mode' = 'name', 'delta.enableChangeDataFeed' = 'true')"
    )
    for statement in (
        f"INSERT INTO {name} VALUES (1, 'a')",
        f"ALTER TABLE {name} RENAME COLUMN v TO w",
        f"INSERT INTO {name} VALUES (2, 'b')",
        f"ALTER TABLE {name} DROP COLUMN w",
        f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')",
        f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
        f"INSERT INTO {name} VALUES (3)",
    ):
        pair.theirs.sql(statement)
    ranges = [(0, 1), (0, 2), (2, 3), (1, 3), (3, 4), (4, 4), (4, 5), (5, 5), (6, 7), (0, 7)]
    for mode in ("endVersion", "latest", "legacy"):
        set_theirs(SCHEMA_MODE, mode)
        with conf(pair.ours.spark, **{SCHEMA_MODE.replace(".", "__"): mode}):
            for first, last in ranges:
                ours, theirs = outcome(pair, table_path, startingVersion=first, endingVersion=last)
                assert ours == theirs, (mode, first, last)
    other = tmp_path / "wïder 100%"
    pair.theirs.sql(
        f"CREATE TABLE {table(other)} (v INT) USING delta TBLPROPERTIES"
        " ('delta.enableTypeWidening' = 'true', 'delta.enableChangeDataFeed' = 'true')"
    )
    pair.theirs.sql(f"INSERT INTO {table(other)} VALUES (1)")
    pair.theirs.sql(f"ALTER TABLE {table(other)} ALTER COLUMN v TYPE LONG")
    pair.theirs.sql(f"INSERT INTO {table(other)} VALUES (20000000000)")
    ours, theirs = outcome(pair, other, startingVersion=0)
    # The peer has no words for rows of two widths; a wider type holds both.
    assert theirs == "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA"
    assert sorted(row["v"] for row in ours.values) == [1, 20_000_000_000]


@pytest.mark.parametrize("vectors", ["true", pytest.param("false", marks=pytest.mark.slow)])
def test_changes_by_row_tracking_agree(
    pair: Pair, set_theirs: SetTheirs, table_path: Path, vectors: str
) -> None:
    set_theirs("spark.databricks.delta.changelogV2.enabled", "true")
    name = table(table_path)
    pair.ours.sql(
        f"CREATE TABLE {name} (id LONG, v STRING) USING delta TBLPROPERTIES"
        f" ('delta.enableRowTracking' = 'true', 'delta.enableDeletionVectors' = '{vectors}')"
    )
    for engine, statement in (
        (pair.ours, "INSERT INTO {} SELECT /*+ COALESCE(1) */ id, 'a' FROM range(6)"),
        (pair.theirs, "UPDATE {} SET v = 'b' WHERE id IN (1, 2)"),
        (pair.ours, "DELETE FROM {} WHERE id = 2"),
        (pair.theirs, "INSERT INTO {} VALUES (9, 'n')"),
        (pair.ours, "UPDATE {} SET v = 'c' WHERE id IN (1, 9)"),
        (pair.theirs, "OPTIMIZE {}"),
        (pair.ours, "DELETE FROM {} WHERE id IN (0, 9)"),
    ):
        engine.sql(statement.format(name))
    for first, last in ((0, 7), (2, 7), (3, 5), (5, 5)):
        for options in (
            "",
            "WITH (deduplicationMode = 'none')",
            "WITH (computeUpdates = true)",
            "WITH (deduplicationMode = 'netChanges')",
            "WITH (deduplicationMode = 'netChanges', computeUpdates = true)",
        ):
            asked = f"SELECT * FROM {name} CHANGES FROM VERSION {first} TO VERSION {last}"
            found = [
                sorted(map(str, engine.sql(f"{asked} {options}")))
                for engine in (pair.ours, pair.theirs)
            ]
            assert found[0] == found[1], (first, last, options)
