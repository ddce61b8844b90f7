"""A Parquet directory converted by each engine: both make a table that both read alike."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pyspark_delta.kernel.log.frames.file_actions import add_files
from tests.interop.engines import Engine, Pair
from tests.interop.rows import NESTED, TYPES, conditions, query
from tests.support.agreement import deltalake_rows, kernel_rows
from tests.support.peer import PeerError
from tests.support.tables import table_log

CONVERT = "DeltaTable.convertToDelta(spark, f'parquet.`{path}`', schema)"
SAVE = """
writer = spark.sql(query).repartitionByRange(3, "id").write.mode("append")
writer.partitionBy(*partition_by).parquet(path)
"""


def save(engine: Engine, rows: str, path: Path, *partition_by: str) -> None:
    engine.python(SAVE, query=rows, path=path, partition_by=list(partition_by))


def convert_both(pair: Pair, path: Path, schema: str | None = None) -> tuple[Path, Path]:
    """Two copies of a directory, one converted by us and one by delta-spark."""
    found = []
    for name, engine in (("öurs 1%", pair.ours), ("theirs", pair.theirs)):
        copy = path.with_name(name)
        shutil.copytree(path, copy, copy_function=shutil.copy2)
        engine.python(CONVERT, path=copy, schema=schema)
        found.append(copy)
    return found[0], found[1]


@pytest.mark.slow
def test_values_of_every_type_are_converted_alike(pair: Pair, tmp_path: Path) -> None:
    columns = {**TYPES, **NESTED}
    save(pair.theirs, query(columns), tmp_path / "plain")
    ours, theirs = convert_both(pair, tmp_path / "plain")
    assert pair.agree(ours) == pair.agree(theirs)
    assert pair.theirs.history(ours) == pair.theirs.history(theirs)
    # Statistics skip files on both sides, and no row is lost by it.
    pair.agree_on(ours, conditions(TYPES))
    for file in add_files(table_log(ours).snapshot.files):
        assert json.loads(file.stats or "{}")["numRecords"] > 0
    # The version that each makes next is the other's as well.
    pair.theirs.write(query(columns), ours)
    pair.ours.write(query(columns), theirs)
    assert len(pair.agree(ours).rows) == len(pair.agree(theirs).rows) == 6


def test_partition_directories_mean_the_same_rows(pair: Pair, tmp_path: Path) -> None:
    path = tmp_path / "plain"
    for directory in (
        "i=007/d=2024-1-2/s=a b%25%2Fé",
        "i=-1/d=2024-02-29/s=__HIVE_DEFAULT_PARTITION__",
        "i=__HIVE_DEFAULT_PARTITION__/d=0001-01-01/s=x=y",
    ):
        (path / directory).mkdir(parents=True)
        save(pair.theirs, f"SELECT '{directory}' AS came_from, 1 AS id", path / directory)
    ours, theirs = convert_both(pair, path, "i INT, d DATE, s STRING")
    assert pair.agree(ours) == pair.agree(theirs)
    assert pair.agree_on(ours, ["i = 7", "d = '2024-01-02'", "s IS NULL", "s = 'x=y'"]) == [1] * 4
    assert kernel_rows(ours) == deltalake_rows(ours)


@pytest.mark.slow
def test_timestamps_in_directories_mean_the_same_rows(pair: Pair, tmp_path: Path) -> None:
    path = tmp_path / "plain"
    for directory in ("t=2024-11-03 01%3A30%3A00", "t=2024-07-01 00%3A00%3A00.123456"):
        (path / directory).mkdir(parents=True)
        save(pair.theirs, "SELECT 1 AS id", path / directory)
    ours, theirs = convert_both(pair, path, "t TIMESTAMP")
    assert pair.agree(ours) == pair.agree(theirs)
    assert kernel_rows(ours) == deltalake_rows(ours)


@pytest.mark.slow
def test_legacy_timestamps_are_converted_with_the_right_bounds_or_none(
    pair: Pair, tmp_path: Path
) -> None:
    path = tmp_path / "plain"
    pair.theirs.python(
        """
spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
rows = "SELECT id, timestamp'2024-01-01 00:00:00' + make_interval(0, 0, 0, id) AS t FROM range(9)"
spark.sql(rows).repartitionByRange(3, "id").write.parquet(path)
spark.conf.unset("spark.sql.parquet.outputTimestampType")
""",
        path=path,
    )
    ours, theirs = convert_both(pair, path)
    assert pair.agree(ours) == pair.agree(theirs)
    asked = ["t < '2024-01-03'", "t = '2024-01-05'", "t >= '2024-01-09'", "t IS NULL"]
    assert pair.agree_on(ours, asked) == [2, 1, 1, 0]


@pytest.mark.slow
def test_a_catalog_table_is_converted_alike(pair: Pair) -> None:
    told, read = [], []
    for engine in (pair.ours, pair.theirs):
        engine.sql("DROP TABLE IF EXISTS converted")
        engine.sql(
            "CREATE TABLE converted (id INT COMMENT 'c', p INT) USING parquet PARTITIONED BY (p) "
            "TBLPROPERTIES ('my.own' = '1')"
        )
        engine.sql("INSERT INTO converted VALUES (1, 1), (2, 2)")
        engine.sql("CONVERT TO DELTA converted")
        location = engine.python(
            "result = DeltaTable.forName(spark, 'converted').detail().first().location"
        )
        path = Path(location.removeprefix("file:"))
        read.append(pair.agree(path))
        told.append(pair.theirs.history(path))
        assert len(engine.sql("SELECT * FROM converted")) == 2
        engine.sql("DROP TABLE converted")
    assert told[0] == told[1]
    assert read[0] == read[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "schema"),
    [
        (("SELECT 1 AS id", "SELECT 'a' AS id"), None),
        (("SELECT 1 AS id", "SELECT 1.5D AS id"), None),
        (("SELECT 1.5BD AS id", "SELECT 1.25BD AS id"), None),
        (("SELECT 1 AS id",), "p INT"),
    ],
)
def test_what_cannot_be_converted_is_refused_alike(
    pair: Pair, tmp_path: Path, rows: tuple[str, ...], schema: str | None
) -> None:
    path = tmp_path / "plain"
    for each in rows:
        save(pair.theirs, each, path)
    with pytest.raises(PeerError) as theirs:
        pair.theirs.python(CONVERT, path=path, schema=schema)
    shutil.rmtree(path / "_delta_log", ignore_errors=True)
    with pytest.raises(Exception, match="DELTA_") as ours:
        pair.ours.python(CONVERT, path=path, schema=schema)
    assert str(theirs.value.condition or theirs.value).find(ours.value.condition) >= 0  # type: ignore[attr-defined]
    assert not (path / "_delta_log").exists()
