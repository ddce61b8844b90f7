"""Symbolic links that lead out of a table: Spark would follow them, so no scan may be planned."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_delta import DeltaTable, enable
from pyspark_delta.errors import UnsafePathError
from pyspark_delta.kernel.scan import locations
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.conf.setting_table import ALLOWED_LOCATIONS
from tests.support.feeds import run
from tests.support.spark_tables import conf

UNSAFE = "DELTA_UNSAFE_PATH"
KINDS = ("file", "directory")
Work = Callable[[SparkSession, Path], object]


@pytest.fixture(autouse=True)
def _enabled(spark: SparkSession) -> None:
    enable(spark)


@pytest.fixture(scope="module")
def template(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of two partitions with two files each."""
    path = tmp_path_factory.mktemp("links") / "tä ble 100%"
    enable(spark)
    for half in (range(2), range(2, 4)):
        rows = [(each, f"p {each % 2}") for each in half]
        data = spark.createDataFrame(rows, "id long, p string").repartition(1)
        data.write.format("delta").partitionBy("p").mode("append").save(str(path))
    return path


@pytest.fixture(params=KINDS)
def linked(request: pytest.FixtureRequest, template: Path, tmp_path: Path) -> Path:
    """That table, of which a file, or a partition's directory, lies elsewhere behind a link."""
    return linked_table(request.param, template, tmp_path)


def linked_table(kind: str, template: Path, tmp_path: Path) -> Path:
    table, outside = tmp_path / "tä ble 100%", tmp_path / "out side"
    shutil.copytree(template, table)
    (directory,) = (each for each in table.iterdir() if each.name.endswith("1"))
    chosen = directory if kind == "directory" else next(directory.glob("*.parquet"))
    chosen.rename(outside)
    chosen.symlink_to(outside)
    return table


def outside_of(table: Path) -> list[str]:
    outside = table.parent / "out side"
    return sorted(each.name for each in outside.iterdir()) if outside.is_dir() else [outside.name]


def merge(spark: SparkSession, table: Path) -> None:
    source = spark.range(4).withColumnRenamed("id", "key")
    target = DeltaTable.forPath(spark, str(table))
    target.merge(source, "id = key").whenMatchedUpdate(set={"id": "id + 10"}).execute()


WORKS: dict[str, Work] = {
    "a read": lambda spark, table: spark.read.format("delta").load(str(table)).collect(),
    "input files": lambda spark, table: spark.read.format("delta").load(str(table)).inputFiles(),
    "OPTIMIZE": lambda spark, table: spark.sql(f"OPTIMIZE delta.`{table}`").collect(),
    "DELETE": lambda spark, table: spark.sql(f"DELETE FROM delta.`{table}` WHERE id > 0"),
    "UPDATE": lambda spark, table: spark.sql(f"UPDATE delta.`{table}` SET id = id + 1"),
    "MERGE": merge,
    "a copy": lambda spark, table: (
        spark.read.format("delta").load(str(table)).write.format("delta").save(f"{table} copy")
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_read_or_copied_through_a_link_out_of_the_table(
    spark: SparkSession, kind: str, template: Path, tmp_path: Path
) -> None:
    table = linked_table(kind, template, tmp_path)
    before = DeltaLog.for_table(table).update().version
    for name, work in WORKS.items():
        with pytest.raises((PySparkException, UnsafePathError), match=UNSAFE) as caught:
            work(spark, table)
        for part in ("p=p 1", "symbolic link", "Move the file into the table"):
            assert part in str(caught.value), name
    assert DeltaLog.for_table(table).update().version == before
    assert not (table.parent / f"{table.name} copy/_delta_log").exists()


def insert(statement: str) -> Work:
    """A statement that reads the table, and writes its rows to another one."""

    def work(spark: SparkSession, table: Path) -> None:
        spark.sql(f"CREATE TABLE delta.`{table} copy` (id BIGINT, p STRING) USING delta")
        spark.sql(statement.format(copy=f"delta.`{table} copy`", table=f"delta.`{table}`"))

    return work


def stream(spark: SparkSession, table: Path) -> None:
    rows = spark.readStream.format("delta").load(str(table))
    writer = rows.writeStream.format("delta").option("checkpointLocation", f"{table} checkpoint")
    run(writer, table.with_name(f"{table.name} copy"))


WRITES: dict[str, Work] = {
    **{name: work for name, work in WORKS.items() if name not in ("a read", "input files")},
    "OPTIMIZE ZORDER": lambda spark, table: spark.sql(f"OPTIMIZE delta.`{table}` ZORDER BY (id)"),
    "CTAS": lambda spark, table: spark.sql(
        f"CREATE TABLE delta.`{table} copy` USING delta AS SELECT * FROM delta.`{table}`"
    ),
    "INSERT": insert("INSERT INTO {copy} SELECT * FROM {table}"),
    "INSERT of a join": insert(
        "INSERT INTO {copy} SELECT a.* FROM {table} a JOIN {table} USING (id)"
    ),
    "INSERT OVERWRITE": insert("INSERT OVERWRITE {copy} SELECT * FROM {table}"),
    "the source of a MERGE": insert(
        "MERGE INTO {copy} t USING {table} s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"
    ),
    "a stream": stream,
}


def rows_of(path: str) -> int:
    log = DeltaLog.for_table(path)
    return log.update().to_table().num_rows if log.table_exists else 0


@pytest.mark.parametrize("name", WRITES)
def test_a_command_that_writes_rows_checks_each_of_any_number_of_files(
    spark: SparkSession,
    template: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    table = linked_table("file", template, tmp_path)
    before = DeltaLog.for_table(table).update().version
    monkeypatch.setattr(locations, "FEW_FILES", 0)
    # A read that nothing is written from would follow the link.
    assert spark.read.format("delta").load(str(table)).count() == 4
    assert len(spark.read.format("delta").load(str(table)).collect()) == 4
    with pytest.raises((PySparkException, UnsafePathError), match=UNSAFE):
        WRITES[name](spark, table)
    assert DeltaLog.for_table(table).update().version == before
    assert rows_of(f"{table} copy") == 0


def test_reorg_and_change_feeds_check_each_file_too(
    spark: SparkSession, table_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = f"delta.`{table_path}`"
    properties = dict.fromkeys(
        ("delta.enableDeletionVectors", "delta.enableChangeDataFeed"), "true"
    )
    data = spark.range(0, 4, 1, 1).write.format("delta").options(**properties)
    data.save(str(table_path))
    spark.sql(f"DELETE FROM {table} WHERE id = 1")
    (file,) = table_path.glob("*.parquet")
    file.rename(tmp_path / "out side")
    file.symlink_to(tmp_path / "out side")
    monkeypatch.setattr(locations, "FEW_FILES", 0)
    assert len(spark.sql(f"SELECT * FROM {table}").collect()) == 3
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
    for work in (
        lambda: spark.sql(f"REORG TABLE {table} APPLY (PURGE)").collect(),
        lambda: feed.load(str(table_path)).collect(),
    ):
        with pytest.raises((PySparkException, UnsafePathError), match=UNSAFE):
            work()
    assert DeltaLog.for_table(table_path).update().version == 1


def test_the_kernel_has_the_same_rule(linked: Path) -> None:
    with pytest.raises(UnsafePathError, match="symbolic link") as caught:
        DeltaLog.for_table(linked).snapshot.to_table()
    assert caught.value.condition == UNSAFE


def test_files_that_a_query_leaves_out_are_not_checked(spark: SparkSession, linked: Path) -> None:
    rows = spark.read.format("delta").load(str(linked)).where("p = 'p 0'").collect()
    assert sorted(row.id for row in rows) == [0, 2]


def test_vacuum_deletes_nothing_behind_a_link(spark: SparkSession, linked: Path) -> None:
    spark.sql(f"DELETE FROM delta.`{linked}` WHERE p = 'p 1'")  # by partition: opens no file
    before = outside_of(linked)
    with conf(spark, **{"spark.databricks.delta.retentionDurationCheck.enabled": "false"}):
        for lite in ("", "LITE"):
            spark.sql(f"VACUUM delta.`{linked}` {lite} RETAIN 0 HOURS")
    assert outside_of(linked) == before


def test_a_link_within_the_table_and_a_table_behind_a_link_are_read(
    spark: SparkSession, template: Path, tmp_path: Path
) -> None:
    table = tmp_path / "tä ble 100%"
    shutil.copytree(template, table)
    (directory,) = (each for each in table.iterdir() if each.name.endswith("1"))
    directory.rename(table / "moved")
    directory.symlink_to("moved")
    (tmp_path / "ali as").symlink_to(table)
    for path in (table, tmp_path / "ali as"):
        assert spark.read.format("delta").load(str(path)).count() == 4
        ids = spark.read.format("delta").load(str(path)).select("id").collect()
        assert sorted(row.id for row in ids) == [0, 1, 2, 3]


def test_a_clone_reads_files_of_an_allowed_place_but_not_through_its_links(
    spark: SparkSession, template: Path, tmp_path: Path
) -> None:
    source, clone = tmp_path / "söurce 1%", tmp_path / "clö ne 1%"
    shutil.copytree(template, source)
    with conf(spark, **{ALLOWED_LOCATIONS.key: ""}):
        spark.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE delta.`{source}`")
        spark.conf.set(ALLOWED_LOCATIONS.key, str(source))
        assert len(spark.read.format("delta").load(str(clone)).collect()) == 4
        (directory,) = (each for each in source.iterdir() if each.name.endswith("1"))
        directory.rename(tmp_path / "out side")
        directory.symlink_to(tmp_path / "out side")
        with pytest.raises(PySparkException, match="symbolic link"):
            spark.read.format("delta").load(str(clone)).collect()


def test_a_log_directory_that_is_a_link_out_of_the_table_is_refused(
    spark: SparkSession, template: Path, tmp_path: Path
) -> None:
    table = tmp_path / "tä ble 100%"
    shutil.copytree(template, table)
    (table / "_delta_log").rename(tmp_path / "ano ther")
    (table / "_delta_log").symlink_to(tmp_path / "ano ther")
    with pytest.raises((PySparkException, UnsafePathError), match=UNSAFE):
        spark.read.format("delta").load(str(table)).collect()
    with pytest.raises(UnsafePathError, match="symbolic link"):
        DeltaLog.for_table(table).snapshot  # noqa: B018


@pytest.fixture
def changed(spark: SparkSession, template: Path, tmp_path: Path) -> Path:
    """That table with change files, of which one lies elsewhere behind a link."""
    table = tmp_path / "tä ble 100%"
    shutil.copytree(template, table)
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    spark.sql(f"UPDATE delta.`{table}` SET id = id + 10 WHERE id = 1")
    change = next((table / "_change_data").rglob("*.parquet"))
    change.rename(tmp_path / "out side")
    change.symlink_to(tmp_path / "out side")
    return table


def test_a_change_file_behind_a_link_is_not_read(spark: SparkSession, changed: Path) -> None:
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 3)
    with pytest.raises(PySparkException, match="symbolic link"):
        feed.load(str(changed)).collect()
