"""Partition values: typed in the data, text in the log, and part of a directory's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_delta.kernel.log.frames.file_actions import add_files
from tests.interop.engines import Engine, Pair, SetTheirs
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
    return sorted((dict(sorted(file.partition_values.items())) for file in files), key=repr)


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


# The hour that comes twice, the one that never was, years before zones, and each microsecond.
TIMES = (
    "timestamp'2024-11-03 08:30:00Z'",
    "timestamp'2024-11-03 09:30:00Z'",
    "timestamp'2024-03-10 02:30:00'",
    "timestamp'1850-01-01 00:00:00.000001Z'",
    "timestamp'0001-01-01 00:00:00Z'",
    "timestamp'9999-12-31 23:59:59.999999Z'",
)
BY_TIME = " UNION ALL ".join(
    f"SELECT {number} AS id, {time} AS t, CAST({time} AS TIMESTAMP_NTZ) AS n"
    for number, time in enumerate(TIMES)
)


@pytest.mark.slow
@pytest.mark.parametrize("spelling", ["utc", "local"])
def test_times_name_the_same_partition_to_both(
    pair: Pair, writer: Engine, table_path: Path, set_theirs: SetTheirs, spelling: str
) -> None:
    set_theirs(
        "spark.databricks.delta.write.utcTimestampPartitionValues", str(spelling == "utc").lower()
    )
    writer.write(BY_TIME, table_path, partition_by=["t", "n"])
    for engine in (pair.theirs, pair.ours):
        engine.write(BY_TIME, table_path)
    assert len(pair.agree(table_path).rows) == 3 * len(TIMES)
    asked = [f"t = {time}" for time in TIMES] + [f"t < {time}" for time in TIMES]
    pair.agree_on(table_path, asked)
    pair.ours.write(
        f"SELECT * FROM ({BY_TIME}) WHERE id IN (1, 3)",
        table_path,
        mode="overwrite",
        partitionOverwriteMode="dynamic",
    )
    pair.agree_on(table_path, asked)
