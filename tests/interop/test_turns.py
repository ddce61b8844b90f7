"""Both engines at work on one table, wherever it lies."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.engines import Pair, table
from tests.support.tables import table_log

NAMES = (
    "a b",
    "100%",
    "%41",
    "ünï 日本 \U0001f600",
    "x=1",
    "plus+and&semi;",
    "quo'te",
    "sha#rp",
    "ques?tion",
    "col:on",
    "bra[ck]et {s}",
    "back^tick|tilde~",
)


def test_taking_turns_loses_nothing(pair: Pair, table_path: Path) -> None:
    for number in range(4):
        engine = (pair.ours, pair.theirs)[number % 2]
        engine.write(f"SELECT {number}L AS id, 'p {number % 2}' AS p", table_path)
    pair.theirs.sql(f"DELETE FROM {table(table_path)} WHERE id = 1")
    pair.ours.write("SELECT 9L AS id, 'x' AS p, 1 AS more", table_path, mergeSchema="true")
    pair.theirs.sql(f"UPDATE {table(table_path)} SET more = 5 WHERE id = 9")
    found = pair.agree(table_path)
    assert [(value["id"], value["more"]) for value in found.values] == [
        (0, None),
        (2, None),
        (3, None),
        (9, 5),
    ]
    assert table_log(table_path).update().version == 6


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_table_may_lie_anywhere(pair: Pair, tmp_path: Path, name: str) -> None:
    path = tmp_path / name / "t"
    pair.ours.write("SELECT 1 AS id, 'a b' AS p", path, partition_by=["p"])
    pair.theirs.write("SELECT 2 AS id, '%' AS p", path)
    pair.theirs.python(
        "DeltaTable.forPath(spark, path).delete('id = 5')\n"
        "spark.conf.set('spark.databricks.delta.x', 'y')",
        path=path,
    )
    pair.ours.write("SELECT 3 AS id, '%' AS p", path)
    assert len(pair.agree(path).rows) == 3


@pytest.mark.slow
def test_twenty_five_turns_with_checkpoints_and_overwrites(pair: Pair, table_path: Path) -> None:
    expected: list[int] = []
    for number in range(25):
        engine = (pair.theirs, pair.ours)[number % 3 == 0]
        replaces = number % 9 == 8
        engine.write(
            f"SELECT {number} AS id", table_path, mode="overwrite" if replaces else "append"
        )
        expected = [number] if replaces else [*expected, number]
    assert sorted(value["id"] for value in pair.agree(table_path).values) == expected
    assert list((table_path / "_delta_log").glob("*10.checkpoint.parquet"))
    for version in (0, 7, 8, 11, 20):
        pair.agree(table_path, versionAsOf=version)


@pytest.mark.slow
def test_the_peer_maintains_a_table_of_ours(pair: Pair, table_path: Path) -> None:
    for number in range(4):
        pair.ours.write(f"SELECT {number} AS id, 'p' AS p", table_path, partition_by=["p"])
    name = table(table_path)
    pair.theirs.sql(f"OPTIMIZE {name} ZORDER BY (id)")
    assert len(pair.agree(table_path).rows) == 4
    pair.ours.write("SELECT 9 AS id, 'q' AS p", table_path)
    pair.theirs.python(
        "spark.conf.set('spark.databricks.delta.retentionDurationCheck.enabled', 'false')\n"
        "spark.sql(text)\n"
        "spark.conf.unset('spark.databricks.delta.retentionDurationCheck.enabled')",
        text=f"VACUUM {name} RETAIN 0 HOURS",
    )
    assert len(pair.agree(table_path).rows) == 5
    pair.theirs.sql(f"RESTORE TABLE {name} TO VERSION AS OF 4")
    assert len(pair.agree(table_path).rows) == 4
    (detail,) = pair.theirs.sql(f"DESCRIBE DETAIL {name}")
    assert detail["numFiles"] == 1
