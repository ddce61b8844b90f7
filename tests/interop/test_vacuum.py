"""The same table vacuumed by both engines: the same files left, history, results and errors."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from pyspark_delta import DeltaError
from pyspark_delta.kernel.ops.notes import read_last_vacuum
from pyspark_delta.kernel.storage.local import LocalStore
from tests.interop.engines import Engine, Pair, SetTheirs, table
from tests.support.peer import PeerError
from tests.support.spark_tables import conf

CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
IGNORE = "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled"
ROWS = "SELECT id, concat('p ', id % 3, '%') AS p, 'x' AS v FROM range({}, {})"
KINDS: dict[str, dict[str, str]] = {
    "partitions": {"delta_enableDeletionVectors": "true"},
    # Not in partitions: of an empty directory in an empty one delta-spark may leave the outer.
    "changes": {"delta_enableDeletionVectors": "true", "delta_enableChangeDataFeed": "true"},
}
_NAMES = ("operation", "operationParameters", "operationMetrics", "isBlindAppend", "isolationLevel")
_ROWS = "result = [row.path for row in spark.sql(sql).collect()]"


@pytest.fixture(autouse=True)
def _quick(set_theirs: SetTheirs) -> None:
    """delta-spark lists by ten thousand tasks, and compares by shuffles, however small a table."""
    set_theirs("spark.sql.sources.parallelPartitionDiscovery.parallelism", "2")
    set_theirs("spark.sql.shuffle.partitions", "1")


def make(engine: Engine, path: Path, kind: str) -> None:
    """Partitions or change files; vectors, removed files, strays, hidden names."""
    partitions = ["p"] if kind == "partitions" else []
    for start in (0, 6):
        query = ROWS.format(start, start + 6)
        engine.write(query, path, partition_by=partitions, **KINDS[kind])
    engine.sql(f"DELETE FROM {table(path)} WHERE id = 1")
    engine.sql(f"UPDATE {table(path)} SET v = 'y' WHERE id IN (2, 7)")
    engine.sql(f"DELETE FROM {table(path)} WHERE p = 'p 0%'")
    for name in ("stray é%.parquet", "_tmp/x", "p=p 1%25/stray", ".hidden", "_delta_index/i"):
        file = path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"12345")
        os.utime(file, (1, 1))
    (path / "empty ä").mkdir()


def tree(path: Path) -> list[str]:
    """What is left, files and directories, but for the log."""
    found = (each.relative_to(path).as_posix() for each in path.rglob("*"))
    return sorted(name for name in found if not name.startswith("_delta_log"))


def copies(pair: Pair, path: Path) -> list[tuple[Engine, Path]]:
    """A table for each engine, like the one at `path` and with the times of its files."""
    made: list[tuple[Engine, Path]] = [
        (pair.ours, path.with_name("oürs 1%")),
        (pair.theirs, path.with_name("theïrs 1%")),
    ]
    for _, copy in made:
        shutil.copytree(path, copy)
    return made


def told(engine: Engine, sql: str, path: Path) -> list[str]:
    """The result of a statement, as paths below the table."""
    found = engine.python(_ROWS, sql=sql.format(t=table(path)))
    return sorted(each.removeprefix(f"file:{path}") for each in found)


def vacuums(engine: Engine, path: Path) -> list[dict[str, Any]]:
    """What the history says of VACUUM, oldest first."""
    commits = engine.sql(f"DESCRIBE HISTORY {table(path)}")
    kept = [{name: each.get(name) for name in _NAMES} for each in reversed(commits)]
    return [each for each in kept if str(each["operation"]).startswith("VACUUM")]


@pytest.mark.slow
@pytest.mark.parametrize(("maker", "kind"), [("ours", "changes"), ("theirs", "partitions")])
def test_both_leave_the_same(
    pair: Pair, set_theirs: SetTheirs, table_path: Path, maker: str, kind: str
) -> None:
    make(getattr(pair, maker), table_path, kind)
    both = copies(pair, table_path)
    set_theirs(CHECK, "false")
    with conf(pair.ours.spark, **{CHECK: "false"}):
        # Lists of files differ in directories that are not empty: those delta-spark names, and
        # then cannot delete.
        young = [told(engine, "VACUUM {t} DRY RUN", path) for engine, path in both]
        assert set(young[0]) <= set(young[1])
        assert all((both[1][1] / name[1:]).is_dir() for name in set(young[1]) - set(young[0]))
        dry = [told(engine, "VACUUM {t} RETAIN 0 HOURS DRY RUN", path) for engine, path in both]
        assert dry[0] == dry[1]
        lite = [told(engine, "VACUUM {t} RETAIN 0 HOURS LITE", path) for engine, path in both]
        assert lite == [[""], [""]]
        left = [tree(path) for _, path in both]
        assert left[0] == left[1]
        for _ in range(2):  # what becomes empty goes the next time
            assert [told(e, "VACUUM {t} RETAIN 0 HOURS", p) for e, p in both] == [[""], [""]]
            left = [tree(path) for _, path in both]
            assert left[0] == left[1]
    histories = [vacuums(engine, path) for engine, path in both]
    assert histories[0] == histories[1]
    assert len(histories[0]) == 6
    for _, path in both:
        assert len(pair.agree(path).rows) == 7


@pytest.mark.parametrize(
    ("rest", "condition"),
    [
        ("RETAIN 0 HOURS", "DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT"),
        ("RETAIN 0 HOURS DRY RUN", "DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT"),
        ("DRY RUN DRY RUN", "DUPLICATE_CLAUSES"),
        ("FULL LITE", "DUPLICATE_CLAUSES"),
        ("RETAIN 1 HOURS RETAIN 2 HOURS", "DUPLICATE_CLAUSES"),
        ("USING INVENTORY (SELECT 1) LITE", "_LEGACY_ERROR_TEMP_0035"),
        ("USING INVENTORY (SELECT 1 AS path)", "DELTA_INVALID_INVENTORY_SCHEMA"),
        ("RETAIN 1 DAYS", "PARSE_SYNTAX_ERROR"),
    ],
)
def test_both_refuse_the_same(pair: Pair, table_path: Path, rest: str, condition: str) -> None:
    pair.ours.write("SELECT 1 AS id", table_path)
    statement = f"VACUUM {table(table_path)} {rest}"
    with pytest.raises((DeltaError, PySparkException)) as mine:
        pair.ours.sql(statement)
    with pytest.raises(PeerError) as other:
        pair.theirs.sql(statement)
    found: Any = mine.value
    assert found.getCondition() == other.value.condition == condition


@pytest.mark.slow
def test_both_refuse_what_is_no_table(pair: Pair, table_path: Path) -> None:
    pair.ours.write(ROWS.format(0, 3), table_path, partition_by=["p"])
    nowhere, partition = table_path.with_name("nothing ä%"), table_path / "p=p 1%25"
    statements = [
        f"VACUUM {where}" for path in (nowhere, partition) for where in (f"'{path}'", table(path))
    ]
    for statement in statements:
        with pytest.raises(DeltaError) as mine:
            pair.ours.sql(statement)
        with pytest.raises(PeerError) as other:
            pair.theirs.sql(statement)
        assert (statement, mine.value.condition) == (statement, other.value.condition)


@pytest.mark.slow
def test_hours_that_count_count_for_both(
    pair: Pair, set_theirs: SetTheirs, table_path: Path
) -> None:
    pair.ours.write("SELECT 1 AS id", table_path)
    for age, name in ((5, "old"), (1, "young")):
        file = table_path / name
        file.touch()
        hours_ago = file.stat().st_mtime - age * 3600
        os.utime(file, (hours_ago, hours_ago))
    statement = "VACUUM {t} RETAIN 2.6 HOURS DRY RUN"
    both: tuple[Engine, Engine] = (pair.ours, pair.theirs)
    set_theirs(CHECK, "false")
    with conf(pair.ours.spark, **{CHECK: "false"}):
        assert [told(engine, statement, table_path) for engine in both] == [[], []]
        set_theirs(IGNORE, "false")
        with conf(pair.ours.spark, **{IGNORE: "false"}):
            assert [told(engine, statement, table_path) for engine in both] == [["/old"], ["/old"]]


@pytest.mark.slow
def test_lite_goes_on_where_the_other_engine_stopped(
    pair: Pair, set_theirs: SetTheirs, table_path: Path
) -> None:
    set_theirs(CHECK, "false")
    store = LocalStore(table_path)
    lite = f"VACUUM {table(table_path)} LITE RETAIN 0 HOURS"
    pair.ours.write("SELECT 1 AS id", table_path)
    with conf(pair.ours.spark, **{CHECK: "false"}):
        turns: list[tuple[Engine, int]] = [(pair.theirs, 1), (pair.ours, 4), (pair.theirs, 7)]
        for engine, version in turns:
            engine.write("SELECT 2 AS id", table_path, mode="overwrite")
            engine.sql(lite)
            assert read_last_vacuum(store) == version
            assert len(list(table_path.glob("*.parquet"))) == 1
    pair.agree(table_path)


@pytest.mark.slow
def test_an_inventory_is_the_same_to_both(
    pair: Pair, set_theirs: SetTheirs, table_path: Path
) -> None:
    make(pair.ours, table_path, "partitions")
    both = copies(pair, table_path)
    found = []
    for engine, path in both:
        rows = " UNION ALL ".join(
            f"SELECT 'file:{path}/{name}', 5L, {is_dir}, 1L"
            for name, is_dir in (("stray é%.parquet", False), (".hidden", False), ("empty ä", True))
        )
        named = "SELECT nullif(col1, '') AS path, nullif(col2, 0L) AS length, "
        named += "nullif(col3, null) AS isDir, nullif(col4, 0L) AS modificationTime"
        query = f"{named} FROM ({rows}) AS t(col1, col2, col3, col4)"
        found.append(told(engine, f"VACUUM {{t}} USING INVENTORY ({query}) DRY RUN", path))
    assert found[0] == found[1] == ["/empty ä", "/stray é%.parquet"]
