"""Rows deleted without a rewrite: the peer deletes, and we must not show them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.engines import Engine, Pair, table

VECTORS = {"delta_enableDeletionVectors": "true"}
HUNDRED = "SELECT id, id % 4 AS p, concat('wörd ', id) AS v FROM range(100)"


@pytest.mark.parametrize("partition_by", [(), ("p",)])
def test_rows_that_the_peer_deleted_are_gone(
    pair: Pair, table_path: Path, partition_by: tuple[str, ...]
) -> None:
    pair.ours.write(HUNDRED, table_path, partition_by=partition_by, **VECTORS)
    pair.theirs.sql(f"DELETE FROM {table(table_path)} WHERE id % 10 = 3")
    found = pair.agree(table_path)
    assert len(found.rows) == 90
    vectors = list(table_path.rglob("deletion_vector_*.bin"))
    assert len(vectors) == 1
    asked = ["id = 3", "id < 20", "p = 3", "v = 'wörd 13'", "id IS NULL"]
    assert pair.agree_on(table_path, asked) == [0, 18, 20, 0, 0]


@pytest.mark.slow
def test_vectors_that_grow_are_read_at_every_version(
    pair: Pair, writer: Engine, table_path: Path
) -> None:
    writer.write(HUNDRED, table_path, **VECTORS)
    name = table(table_path)
    pair.theirs.sql(f"DELETE FROM {name} WHERE id < 10")
    pair.theirs.sql(f"UPDATE {name} SET v = 'new ü' WHERE id BETWEEN 20 AND 24")
    pair.ours.write("SELECT id, 9L AS p, 'x' AS v FROM range(200, 205)", table_path)
    pair.theirs.sql(
        f"MERGE INTO {name} t USING (SELECT id, 'm' AS v FROM range(30, 35)) s ON t.id = s.id "
        "WHEN MATCHED AND s.id = 30 THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v"
    )
    pair.theirs.sql(f"DELETE FROM {name} WHERE id IN (201, 99)")
    counts = [len(pair.agree(table_path, versionAsOf=version).rows) for version in range(6)]
    assert counts == [100, 90, 90, 95, 94, 92]
    pair.theirs.sql(f"OPTIMIZE {name}")
    assert len(pair.agree(table_path).rows) == 92


@pytest.mark.slow
def test_vectors_live_on_in_checkpoints_and_under_mapped_names(
    pair: Pair, table_path: Path
) -> None:
    pair.ours.write(
        HUNDRED,
        table_path,
        partition_by=["p"],
        **VECTORS,
        delta_columnMapping_mode="name",
        delta_checkpointInterval="3",
        delta_randomizeFilePrefixes="true",
    )
    name = table(table_path)
    pair.theirs.sql(f"DELETE FROM {name} WHERE id % 3 = 0")
    pair.theirs.sql(f"ALTER TABLE {name} RENAME COLUMN v TO w")
    pair.theirs.sql(f"DELETE FROM {name} WHERE w = 'wörd 50'")
    assert list((table_path / "_delta_log").glob("*3.checkpoint*"))
    assert len(pair.agree(table_path).rows) == 65
    for _ in range(3):
        pair.ours.write("SELECT 1000L AS id, 1L AS p, 'x' AS w", table_path)
    assert list((table_path / "_delta_log").glob("*6.checkpoint*"))
    assert len(pair.agree(table_path).rows) == 68


@pytest.mark.slow
def test_an_overwrite_of_ours_takes_files_with_vectors_away(pair: Pair, table_path: Path) -> None:
    pair.ours.write(HUNDRED, table_path, **VECTORS)
    pair.theirs.sql(f"DELETE FROM {table(table_path)} WHERE id < 50")
    pair.ours.write("SELECT 7L AS id, 7L AS p, 'x' AS v", table_path, mode="overwrite")
    assert len(pair.agree(table_path).rows) == 1
    assert len(pair.agree(table_path, versionAsOf=1).rows) == 50
    pair.theirs.sql(f"RESTORE TABLE {table(table_path)} TO VERSION AS OF 1")
    assert len(pair.agree(table_path).rows) == 50


@pytest.mark.slow
def test_a_file_that_lost_all_its_rows_shows_none(pair: Pair, table_path: Path) -> None:
    pair.ours.write(HUNDRED, table_path, **VECTORS)
    pair.theirs.sql(f"DELETE FROM {table(table_path)} WHERE v LIKE 'wörd%' AND id >= 0")
    assert pair.agree(table_path).rows == []
    pair.ours.write("SELECT 1L AS id, 1L AS p, 'x' AS v", table_path)
    assert len(pair.agree(table_path).rows) == 1
