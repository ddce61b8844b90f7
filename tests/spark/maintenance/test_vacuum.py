"""VACUUM by SQL and from Python: statements, results, settings, inventories, errors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta import DeltaError, DeltaTable, enable
from pyspark_delta.kernel.ops.notes import read_last_vacuum
from pyspark_delta.spark.jvm.hadoop.store import HadoopStore
from tests.support.spark_tables import SparkTable, conf

CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
IGNORE = "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled"
LITE = "spark.databricks.delta.vacuum.lite.enabled"
LOGGING = "spark.databricks.delta.vacuum.logging.enabled"
PARALLEL = "spark.databricks.delta.vacuum.parallelDelete"
LONG_AGO = (1, 1)


@pytest.fixture(autouse=True)
def _enabled(spark: SparkSession) -> None:
    enable(spark)


@pytest.fixture
def unchecked(spark: SparkSession) -> Iterator[None]:
    """RETAIN 0 HOURS is allowed."""
    with conf(spark, **{CHECK: "false"}):
        yield


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> SparkTable:
    """Two partitions, of which one was deleted, and a stray file that is old."""
    made = SparkTable(spark, table_path)
    data = made.data("id long, p string", (1, "a b"), (2, "c%/d"))
    made.write(data, "append", "p")
    DeltaTable.forPath(spark, str(table_path)).delete("p = 'a b'")
    stray(table_path, "p=c%25%2Fd/stray é.parquet")
    return made


def stray(root: Path, name: str) -> Path:
    """A file of a write that failed long ago."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"12345")
    os.utime(path, LONG_AGO)
    return path


def names(root: Path) -> list[str]:
    """What is left of the table's data, checksums too."""
    found = (path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    return sorted(name for name in found if not name.startswith("_delta_log/"))


def paths(frame: DataFrame) -> list[str]:
    assert frame.columns == ["path"]
    assert [f.dataType.simpleString() for f in frame.schema] == ["string"]
    return sorted(row.path for row in frame.collect())


def live(table: SparkTable) -> list[str]:
    return sorted(file.path for file in table.files)


def test_what_nothing_needs_goes_by_sql(
    spark: SparkSession, table: SparkTable, capsys: pytest.CaptureFixture[str]
) -> None:
    root = table.path
    before = names(root)
    statement = f"vacuum delta.`{root}`"
    # The deleted rows' file is young, the stray one is not.
    assert paths(spark.sql(f"{statement} DRY RUN")) == [f"file:{root}/p=c%25%2Fd/stray é.parquet"]
    assert names(root) == before
    assert paths(spark.sql(f"VACUUM '{root}'; ")) == [f"file:{root}"]
    assert "Deleted 1 files and directories in a total of 3 directories." in capsys.readouterr().out
    assert set(before) - set(names(root)) == {"p=c%25%2Fd/stray é.parquet"}
    with conf(spark, **{CHECK: "false"}):
        found = paths(spark.sql(f"{statement} RETAIN 0 HOURS DRY RUN"))
        assert len(found) == 1
        assert "/p=a b/part-" in found[0]
        assert paths(spark.sql(f"{statement} RETAIN 0.4 HOURS")) == [f"file:{root}"]
        assert [name for name in names(root) if name.startswith("p=a b")] == []
        assert (root / "p=a b").is_dir()  # the checksum beside the file went too
        assert paths(spark.sql(f"{statement} RETAIN 0L HOURS DRY RUN")) == [f"file:{root}/p=a b"]
        spark.sql(f"{statement} RETAIN 0 HOURS")
    assert not (root / "p=a b").exists()
    assert table.rows == [(2, "c%/d")]
    told = [(i.operation, i.operation_parameters, i.operation_metrics) for i in table.log.history()]
    assert told[4:6] == [
        (
            "VACUUM END",
            {"status": "COMPLETED"},
            {"numDeletedFiles": "1", "numVacuumedDirectories": "3"},
        ),
        (
            "VACUUM START",
            {"retentionCheckEnabled": True, "defaultRetentionMillis": 604800000},
            {"numFilesToDelete": "1", "sizeOfDataToDelete": "5"},
        ),
    ]
    assert told[1][1] == {
        "retentionCheckEnabled": False,
        "defaultRetentionMillis": 604800000,
        "specifiedRetentionMillis": 0,
    }


@pytest.mark.usefixtures("unchecked")
def test_a_table_of_the_catalog_is_vacuumed_by_name(spark: SparkSession, table: SparkTable) -> None:
    spark.sql(f"CREATE TABLE vacuumed USING delta LOCATION '{table.path}'")
    try:
        found = paths(spark.sql("VACUUM default.vacuumed FULL DRY RUN RETAIN 0 HOURS"))
        assert len(found) == 2
        handle = DeltaTable.forName(spark, "vacuumed")
        assert paths(handle.vacuum(0, dryRun=True)) == found
        assert paths(handle.vacuum(0)) == [f"file:{table.path}"]
        assert [name for name in names(table.path) if not name.endswith(".crc")] == [
            file.replace("%25", "%") for file in live(table)
        ]
        assert table.rows == [(2, "c%/d")]
    finally:
        spark.sql("DROP TABLE vacuumed")


@pytest.mark.usefixtures("unchecked")
def test_lite_takes_names_from_the_log(spark: SparkSession, table: SparkTable) -> None:
    statement = f"VACUUM delta.`{table.path}`"
    found = paths(spark.sql(f"{statement} RETAIN 0 HOURS LITE DRY RUN"))
    assert len(found) == 1
    assert "/p=a b/part-" in found[0]
    handle = DeltaTable.forPath(spark, str(table.path))
    assert paths(handle.vacuum(0, lite=True, dryRun=True)) == found
    spark.sql(f"{statement} LITE RETAIN 0 HOURS")
    assert [name for name in names(table.path) if "stray" in name] == ["p=c%25%2Fd/stray é.parquet"]
    assert not Path(found[0].removeprefix("file:")).exists()
    assert read_last_vacuum(table.log.store) == 1
    assert paths(handle.vacuum(0, lite=True, dryRun=True)) == []
    with conf(spark, **{LITE: "true"}):
        assert paths(handle.vacuum(0, dryRun=True)) == []
        assert len(paths(spark.sql(f"{statement} FULL DRY RUN"))) == 1
        assert len(paths(handle.vacuum(lite=False, dryRun=True))) == 1


def test_an_inventory_names_what_is_looked_at(spark: SparkSession, table: SparkTable) -> None:
    root = table.path
    stray(root, "not in it.parquet")
    other = stray(root, "local é.parquet")
    schema = "modificationTime long, path string, more int, length long, isDir boolean"
    rows = [
        (1, f"file:{root}/p=c%25%2Fd/stray é.parquet", 1, 5, False),
        (1, str(other), 1, 5, False),
        (1, f"file:{root}/_delta_log/00000000000000000000.json", 1, 5, False),
        (1, f"file:{root}/p=c%25%2Fd", 1, 0, True),
        (1, f"file:{root}/../tä ble 100%/not in it.parquet", 1, 5, False),
        (1, "file:/elsewhere/x", 1, 5, False),
        (None, f"file:{root}/not in it.parquet", 1, 5, False),
    ]
    spark.createDataFrame(rows, schema).createOrReplaceTempView("inventory_view")
    wanted = [f"file:{root}/local é.parquet", f"file:{root}/p=c%25%2Fd/stray é.parquet"]
    statement = f"VACUUM delta.`{root}` USING INVENTORY"
    assert paths(spark.sql(f"{statement} inventory_view DRY RUN")) == wanted
    some = "SELECT * FROM inventory_view WHERE path LIKE :like"
    found = spark.sql(f"{statement} ({some}) DRY RUN", args={"like": "%stray%"})
    assert paths(found) == wanted[1:]
    handle = DeltaTable.forPath(spark, str(root))
    handle.vacuum(inventory=spark.table("inventory_view"))
    assert [name for name in names(root) if name.endswith("it.parquet")] == ["not in it.parquet"]
    assert not other.exists()
    for bad in ("SELECT 1 AS path", "SELECT *, 1 AS length FROM inventory_view", "VALUES (1)"):
        with table.refused("DELTA_INVALID_INVENTORY_SCHEMA") as error:
            spark.sql(f"{statement} ({bad}) DRY RUN")
        assert "modificationTime bigint" in error.value.parameters["expectedSchema"]


def test_short_retentions_are_refused(spark: SparkSession, table: SparkTable) -> None:
    handle = DeltaTable.forPath(spark, str(table.path))
    before = names(table.path)
    with table.refused("DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT") as error:
        spark.sql(f"VACUUM delta.`{table.path}` RETAIN 0 HOURS DRY RUN")
    assert error.value.parameters == {"configuredRetentionHours": "168"}
    with table.refused("DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT"):
        handle.vacuum(0.2)
    with table.refused("DELTA_VACUUM_RETENTION_PERIOD_NEGATIVE"):
        spark.sql(f"VACUUM delta.`{table.path}` RETAIN -1 HOURS")
    # Hours other than 0 are the table's to say, unless the session says otherwise.
    assert len(paths(handle.vacuum(1, dryRun=True))) == 1
    with conf(spark, **{IGNORE: "false"}):
        with table.refused("DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT"):
            handle.vacuum(167)
        assert len(paths(handle.vacuum(168, dryRun=True))) == 1
    assert names(table.path) == before


def test_settings_decide_what_the_history_tells_and_how_many_delete_at_once(
    spark: SparkSession, table: SparkTable
) -> None:
    handle = DeltaTable.forPath(spark, str(table.path))
    version = table.log.update().version
    with conf(spark, **{LOGGING: "false", f"{PARALLEL}.enabled": "false"}):
        handle.vacuum()
    assert table.log.update().version == version
    assert not any("stray" in name for name in names(table.path))
    for number in range(20):
        stray(table.path, f"more {number}")
    with conf(spark, **{f"{PARALLEL}.enabled": "true", f"{PARALLEL}.parallelism": "3"}):
        handle.vacuum()
    assert table.metrics == {"numDeletedFiles": 20, "numVacuumedDirectories": 3}


@pytest.mark.usefixtures("unchecked")
def test_kept_versions_can_still_be_read(spark: SparkSession, table: SparkTable) -> None:
    handle = DeltaTable.forPath(spark, str(table.path))
    handle.vacuum(0, keepVersions=[0])
    old = spark.read.format("delta").option("versionAsOf", 0).load(str(table.path))
    assert old.count() == 2
    with pytest.raises(DeltaError) as error:
        handle.vacuum(0, keepVersions=[77])
    assert error.value.condition == "DELTA_VERSION_NOT_FOUND"


@pytest.mark.parametrize(
    ("rest", "condition"),
    [
        ("DRY RUN DRY RUN", "DUPLICATE_CLAUSES"),
        ("RETAIN 1 HOURS RETAIN 1 HOURS", "DUPLICATE_CLAUSES"),
        ("FULL LITE", "DUPLICATE_CLAUSES"),
        ("USING INVENTORY a USING INVENTORY b", "DUPLICATE_CLAUSES"),
        ("USING INVENTORY a LITE", "_LEGACY_ERROR_TEMP_0035"),
        ("USING INVENTORY a INVENTORY b", "PARSE_SYNTAX_ERROR"),
        ("RETAIN HOURS", "PARSE_SYNTAX_ERROR"),
        ("RETAIN 1 DAYS", "PARSE_SYNTAX_ERROR"),
        ("RETAIN 1x HOURS", "PARSE_SYNTAX_ERROR"),
        ("DRY", "PARSE_SYNTAX_ERROR"),
        ("USING INVENTORY (SELECT 1", "PARSE_SYNTAX_ERROR"),
    ],
)
def test_what_does_not_make_sense_is_refused_where_it_stands(
    spark: SparkSession, rest: str, condition: str
) -> None:
    with pytest.raises(ParseException) as error:
        spark.sql(f"VACUUM some.table {rest}")
    assert error.value.getCondition() == condition


def test_what_is_no_delta_table_is_refused(spark: SparkSession, table: SparkTable) -> None:
    elsewhere = table.path.parent / "nothing ä%"
    partition = table.path / "p=c%25%2Fd"
    named = [f"'{elsewhere}'", f"'{partition}'", f"delta.`{partition}`", f"delta.`{elsewhere}`"]
    found = []
    for name in named:
        with pytest.raises(DeltaError) as error:
            spark.sql(f"VACUUM {name}")
        assert error.value.parameters["tableName"].strip("`") in name
        found.append(error.value.condition)
    assert found == ["DELTA_TABLE_ONLY_OPERATION"] * 3 + ["DELTA_MISSING_DELTA_TABLE"]
    assert not elsewhere.exists()
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("VACUUM nobody.knows")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"retentionHours": "1"}, TypeError),
        ({"retentionHours": True}, TypeError),
        ({"retentionHours": float("nan")}, ValueError),
        ({"dryRun": 1}, TypeError),
        ({"lite": "yes"}, TypeError),
        ({"inventory": "t"}, TypeError),
        ({"keepVersions": 1}, TypeError),
        ({"keepVersions": "1"}, TypeError),
        ({"keepVersions": [1.5]}, TypeError),
    ],
)
def test_arguments_are_checked(
    spark: SparkSession, tmp_path: Path, arguments: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        DeltaTable(spark, str(tmp_path)).vacuum(**arguments)


def test_a_table_behind_hadoop_is_listed_by_directory_and_by_tasks(
    spark: SparkSession, table_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("p=1/f 1%", "p=2/g", "p=2/_hidden", "_change_data/c", "_tmp/x", "p=3/deep/h"):
        stray(table_path, name)
    for name in ("empty", "p=4/empty", "p=3/bare"):
        (table_path / name).mkdir(parents=True)
    store = HadoopStore(spark, f"file:{table_path}")

    def hides(name: str) -> bool:
        return name[0] in "_." and not name.startswith("_change_data")

    def listed() -> dict[str, tuple[list[str], bool]]:
        found = list(store.list_tree(hides))
        assert len({each.path for each in found}) == len(found)
        return {e.path: (sorted(i.path for i in e.files), e.has_others) for e in found}

    whole = listed()
    assert whole == {
        "": ([], True),
        "p=1": (["p=1/f 1%"], False),
        "p=2": (["p=2/g"], True),
        "p=3": ([], False),
        "p=3/deep": (["p=3/deep/h"], False),
        "p=3/bare": ([], False),
        "p=4": ([], False),
        "p=4/empty": ([], False),
        "empty": ([], False),
        "_change_data": (["_change_data/c"], False),
    }
    monkeypatch.setattr("pyspark_delta.spark.jvm.hadoop.store._TREES_BY_TASKS", 2)
    tasks = listed()
    assert {path: files for path, (files, _) in tasks.items()} == {
        path: files for path, (files, _) in whole.items() if path != "p=3/bare"
    }
    assert not store.delete_directory("p=2")
    assert not store.delete_directory("nobody")
    assert store.delete_directory("empty")
    assert not (table_path / "empty").exists()
