"""Partition values: typed in the data, text in the log, and part of a directory's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_delta.kernel.log.frames import add_files
from tests.interop.engines import Engine, Pair
from tests.interop.rows import PARTITIONS, STRINGS, query
from tests.support.tables import table_log

# Columns that a table is partitioned by together: paths have a longest length.
GROUPS = (("bo", "by", "sh", "i", "l", "s"), ("f", "d", "d38", "d9", "d38s"), ("dt", "t", "n", "x"))
BY_STRING = " UNION ALL ".join(
    f"SELECT {number} AS id, CAST({text} AS STRING) AS `pärt%1`"
    for number, text in enumerate(STRINGS)
)


def partition_values(path: Path) -> list[dict[str, str | None]]:
    files = add_files(table_log(path).snapshot.files)
    return sorted((dict(file.partition_values) for file in files), key=repr)


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_partitions_of_every_type_are_written_and_read_alike(
    pair: Pair, tmp_path: Path, group: tuple[str, ...]
) -> None:
    columns = {name: PARTITIONS[name] for name in group}
    logged = []
    for name, engine in (("öurs 1%", pair.ours), ("theirs", pair.theirs)):
        path = tmp_path / name
        engine.write(query(columns), path, partition_by=group)
        rows = pair.agree(path).values
        assert [row["id"] for row in sorted(rows, key=lambda row: row["id"])] == [0, 1, 2]
        asked = [
            f"`{name}` {sign}"
            for name, (kind, values) in columns.items()
            for sign in ("IS NULL", f"= CAST({values[2]} AS {kind})")
        ]
        pair.agree_on(path, asked)
        logged.append(partition_values(path))
    assert logged[0] == logged[1]


def test_a_partition_may_be_called_anything(pair: Pair, writer: Engine, table_path: Path) -> None:
    writer.write(BY_STRING, table_path, partition_by=["pärt%1"])
    rows = pair.agree(table_path).values
    assert [row["id"] for row in rows if row["pärt%1"] is None] == [0, 1]
    found = pair.agree_on(table_path, [f"`pärt%1` <=> {text}" for text in STRINGS])
    assert found == [0, 2, *[1] * (len(STRINGS) - 2)]


@pytest.mark.slow
def test_both_write_into_the_same_partitions(pair: Pair, table_path: Path) -> None:
    for engine in (pair.ours, pair.theirs, pair.ours, pair.theirs):
        engine.write(BY_STRING, table_path, partition_by=["pärt%1"])
    assert len(pair.agree(table_path).rows) == 4 * len(STRINGS)
    assert len({file["pärt%1"] for file in partition_values(table_path)}) == len(STRINGS) - 1


@pytest.mark.slow
def test_a_directory_of_one_partition_serves_both(pair: Pair, table_path: Path) -> None:
    """What one engine calls a directory, the other calls it too: nothing is spread over two."""
    for engine in (pair.ours, pair.theirs):
        engine.write(BY_STRING, table_path, partition_by=["pärt%1"])
    directories = [each for each in table_path.iterdir() if each.name != "_delta_log"]
    assert len(directories) == len(STRINGS) - 1


@pytest.mark.slow
def test_the_peer_deletes_partitions_of_ours(pair: Pair, table_path: Path) -> None:
    pair.ours.write(BY_STRING, table_path, partition_by=["pärt%1"])
    pair.theirs.sql(f"DELETE FROM delta.`{table_path}` WHERE `pärt%1` IN ('100%', 'a b')")
    pair.theirs.sql(f"UPDATE delta.`{table_path}` SET id = -id WHERE `pärt%1` LIKE 'é/%'")
    assert len(pair.agree(table_path).rows) == len(STRINGS) - 2
