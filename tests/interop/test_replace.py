"""Overwrites of some rows: what is left, what the history says, and what the change feed hears."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.interop.engines import Engine, Pair, table

ROWS = "SELECT id, id % 3 AS p, concat('wörd ', id) AS v FROM range(12)"
FEED = {"delta_enableChangeDataFeed": "true"}
VECTORS = {"delta_enableDeletionVectors": "true"}
KINDS: dict[str, Mapping[str, str]] = {
    "plain": {},
    "feed": FEED,
    "vectors": VECTORS,
    "feed and vectors": {**FEED, **VECTORS},
    "feed and mapped names": {**FEED, "delta_columnMapping_mode": "name"},
    "feed and row ids": {**FEED, "delta_enableRowTracking": "true"},
}
# What is replaced, and the row put in its place.
REPLACED = {
    "p = 1": (100, 1, "n"),
    "p >= 1 AND p < 2 OR p IS NULL": (101, 1, "n"),
    "id >= 6 AND id < 9": (7, 0, "ü"),
    "p = 2 AND id > 3": (4, 2, "both"),
    "v LIKE 'wörd %' AND length(v) = 7": (50, 0, "wörd 50"),
    "id > 1000": (2000, 2, "new"),
    "id = 3": None,
}


def row(values: tuple[int, int, str] | None) -> str:
    """A row; None is none."""
    if values is None:
        return f"{row((0, 0, ''))} WHERE false"
    number, p, v = values
    return f"SELECT {number}L AS id, {p}L AS p, '{v}' AS v"


def replaced(engine: Engine, path: Path, properties: Mapping[str, str]) -> None:
    # With a feed and mapped names a table has to be empty at first, says delta-spark.
    engine.write(row(None), path, partition_by=["p"], **properties)
    engine.write(ROWS, path)
    for condition, values in REPLACED.items():
        engine.write(row(values), path, mode="overwrite", replaceWhere=condition)


def states(pair: Pair, path: Path, kind: str) -> list[Any]:
    """What the table went through: its change feed, or else each version as the peer reads it."""
    if "feed" in kind:
        return pair.theirs.changes(path)
    return [pair.theirs.read(path, versionAsOf=each) for each in range(2 + len(REPLACED))]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_replaced_rows_and_their_feed_are_the_same(pair: Pair, tmp_path: Path, kind: str) -> None:
    found = []
    for place, engine in (("öurs 1%", pair.ours), ("theirs", pair.theirs)):
        path = tmp_path / place
        replaced(engine, path, KINDS[kind])
        found.append((pair.agree(path), states(pair, path, kind), pair.theirs.history(path)))
    for ours, theirs in zip(*found, strict=True):
        for mine, other in zip(ours, theirs, strict=True):
            assert mine == other


def test_each_replaces_rows_of_the_other(pair: Pair, table_path: Path) -> None:
    pair.ours.write(ROWS, table_path, partition_by=["p"], **FEED, **VECTORS)
    turns: dict[str, tuple[Engine, str, int]] = {
        "p = 0": (pair.theirs, row((30, 0, "t")), 9),
        "id = 1": (pair.theirs, row((1, 1, "t")), 9),
        "p = 1 AND id < 5": (pair.ours, row((2, 1, "o")), 8),
        "id = 30 OR id = 2": (pair.ours, row((30, 2, "o")), 6),
        "id <= 10": (pair.theirs, row(None), 2),
    }
    for condition, (engine, values, left) in turns.items():
        engine.write(values, table_path, mode="overwrite", replaceWhere=condition)
        assert len(pair.agree(table_path).rows) == left
    told = pair.theirs.changes(table_path, 3)
    keys = ("_commit_version", "_change_type", "id", "v")
    assert sorted(tuple(each[key] for key in keys) for each in told) == [
        (3, "delete", 1, "t"),
        (3, "delete", 4, "wörd 4"),
        (3, "insert", 2, "o"),
        (4, "delete", 2, "o"),
        (4, "delete", 2, "wörd 2"),
        (4, "delete", 30, "t"),
        (4, "insert", 30, "o"),
        (5, "delete", 5, "wörd 5"),
        (5, "delete", 7, "wörd 7"),
        (5, "delete", 8, "wörd 8"),
        (5, "delete", 10, "wörd 10"),
    ]


@pytest.mark.slow
def test_row_ids_stay_with_rows_that_are_not_replaced(
    pair: Pair, writer: Engine, table_path: Path
) -> None:
    writer.write(ROWS, table_path, delta_enableRowTracking="true")
    name = table(table_path)
    ids = f"SELECT id, _metadata.row_id AS r, _metadata.row_commit_version AS c FROM {name}"
    before = {each["id"]: (each["r"], each["c"]) for each in pair.theirs.sql(ids)}
    for condition, engine in (("id = 5", pair.ours), ("id = 6", pair.theirs)):
        number = int(condition[-1])
        engine.write(row((number, 0, "n")), table_path, mode="overwrite", replaceWhere=condition)
    after = {each["id"]: (each["r"], each["c"]) for each in pair.theirs.sql(ids)}
    assert after.keys() == before.keys()
    assert {number for number in after if after[number] != before[number]} == {5, 6}
    assert len({r for r, _ in after.values()}) == len(after)
    assert (after[5][1], after[6][1]) == (1, 2)


PARTITIONS = "SELECT id, CAST(id % 3 AS STRING) AS p, date'2024-01-01' AS d FROM range(9)"


def test_dynamic_overwrites_replace_the_same_partitions(pair: Pair, tmp_path: Path) -> None:
    new = "SELECT 50L AS id, '1' AS p, date'2024-01-01' AS d UNION ALL SELECT 51L, NULL, NULL"
    found = []
    for place, engine in (("öurs 1%", pair.ours), ("theirs", pair.theirs)):
        path = tmp_path / place
        engine.write(PARTITIONS, path, partition_by=["p", "d"], **FEED)
        for _ in range(2):
            engine.write(new, path, mode="overwrite", partitionOverwriteMode="dynamic")
        found.append((pair.agree(path), pair.theirs.changes(path), pair.theirs.history(path)))
        assert len(found[0][0].rows) == 8
    for ours, theirs in zip(*found, strict=True):
        assert ours == theirs


@pytest.mark.slow
@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_dynamic_overwrites_find_the_partitions_of_the_other(
    pair: Pair, table_path: Path, first: str
) -> None:
    """Values that have several spellings in a log are one partition all the same."""
    rows = (
        "SELECT {0} AS id, timestamp'2024-01-02 03:04:05.5' AS t, 1.50BD AS b, "
        "CAST(NULL AS STRING) AS s, 'é/ü=?# %' AS u, 0.1D AS d"
    )
    engines = (pair.ours, pair.theirs) if first == "ours" else (pair.theirs, pair.ours)
    engines[0].write(rows.format(1), table_path, partition_by=["t", "b", "s", "u", "d"])
    for number, engine in enumerate((*reversed(engines), engines[0]), 2):
        engine.write(
            rows.format(number), table_path, mode="overwrite", partitionOverwriteMode="dynamic"
        )
        assert [each["id"] for each in pair.agree(table_path).values] == [number]


# Some rows of the table go by each, and rows come that match none.
JOINED = (
    {"replaceUsing": "id"},
    {"replaceOn": "t.id = s.id + 1 AND t.p < 2", "targetAlias": "t"},
)
REPLACE_BY_JOIN = """
data = spark.sql("SELECT id, 1L AS p, 'n' AS v FROM range(3, 15, 4)").coalesce(1).alias("s")
data.write.format("delta").mode("overwrite").options(**options).save(path)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["vectors", "feed and vectors"])
def test_rows_replaced_by_a_join_and_their_feed_are_the_same(
    pair: Pair, tmp_path: Path, kind: str
) -> None:
    found = []
    for place, engine in (("öurs 1%", pair.ours), ("theirs", pair.theirs)):
        path = tmp_path / place
        engine.write(ROWS, path, **KINDS[kind])
        for options in JOINED:
            engine.python(REPLACE_BY_JOIN, path=path, options=options)
        feed = pair.theirs.changes(path) if "feed" in kind else []
        found.append((pair.agree(path).rows, feed, pair.theirs.history(path)))
    for ours, theirs in zip(*found, strict=True):
        assert ours == theirs
