"""Jobs that fail: a typed error names the reason, and has Spark's error as its cause."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta import disable, enable
from pyspark_delta.errors import DataFileError, JobFailedError, StorageRefusedError
from pyspark_delta.tables import DeltaTable
from tests.support.feeds import fails_with, run
from tests.support.refusing_disks import closed_directory, small_disk
from tests.support.spark_tables import SparkTable

Command = Callable[[SparkTable], object]


def handle(table: SparkTable) -> DeltaTable:
    return DeltaTable.forPath(table.spark, str(table.path))


def rows(table: SparkTable) -> DataFrame:
    return table.spark.read.format("delta").load(str(table.path))


def append(table: SparkTable, data: DataFrame) -> None:
    data.write.format("delta").mode("append").save(str(table.path))


COMMANDS: dict[str, Command] = {
    "collect": lambda t: rows(t).collect(),
    "count": lambda t: rows(t).where("id % 4 = 1").count(),
    "sql": lambda t: t.spark.sql(f"SELECT sum(id) FROM delta.`{t.path}`").first(),
    "append": lambda t: append(t, rows(t)),
    "delete": lambda t: handle(t).delete("id % 4 = 1"),
    "update": lambda t: handle(t).update("id % 4 = 1", {"id": "id + 1"}),
    "merge": lambda t: (
        handle(t)
        .alias("t")
        .merge(t.spark.range(3).alias("s"), "t.id = s.id")
        .whenMatchedUpdate(set={"id": "t.id + 8"})
        .execute()
    ),
    "optimize": lambda t: handle(t).optimize().executeCompaction(),
    "add constraint": lambda t: t.spark.sql(
        f"ALTER TABLE delta.`{t.path}` ADD CONSTRAINT c CHECK (id % 9 < 9)"
    ),
}


# Those whose tasks write data files.
WRITES = ("append", "update", "merge", "optimize")


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkTable]:
    """Two files, of which none is written anew: what fails leaves the table as it is."""
    found = SparkTable(enable(spark), tmp_path_factory.mktemp("fa iled") / "tä ble 100%")
    found.write(spark.range(0, 8, 1, 2))
    yield found
    disable(spark)


@pytest.fixture
def lost_file(table: SparkTable) -> Iterator[Path]:
    # A task that ran on when its job had failed may have left a file that is not in the log.
    lost = table.path / table.files[0].path
    aside = lost.rename(lost.with_suffix(".aside"))
    yield lost
    aside.rename(lost)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_missing_data_file_is_named_with_the_way_to_repair(
    table: SparkTable, lost_file: Path, name: str
) -> None:
    with pytest.raises(DataFileError) as caught:
        COMMANDS[name](table)
    assert caught.value.condition == "DELTA_FILE_NOT_FOUND_DETAILED"
    assert caught.value.parameters["filePath"].endswith(str(lost_file))
    assert "repair()" in str(caught.value)
    assert isinstance(caught.value, PySparkException)
    assert isinstance(caught.value.__cause__, Py4JJavaError)
    assert table.log.update().version == 0


def test_a_missing_file_of_another_format_is_sparks_own_error(
    table: SparkTable, tmp_path: Path
) -> None:
    place = tmp_path / "par quet 100% ü"
    table.spark.range(2).write.parquet(str(place))
    others = table.spark.read.parquet(str(place))
    for file in place.glob("*.parquet"):
        file.unlink()
    with pytest.raises(Py4JJavaError, match="FILE_NOT_EXIST"):
        others.collect()


@pytest.mark.parametrize("name", WRITES)
def test_a_directory_in_which_tasks_may_not_write_refuses(table: SparkTable, name: str) -> None:
    with closed_directory(table.path), pytest.raises(StorageRefusedError) as caught:
        COMMANDS[name](table)
    assert isinstance(caught.value.__cause__, Py4JJavaError)
    assert table.log.update().version == 0


@pytest.mark.parametrize("name", WRITES)
def test_a_disk_that_is_full_for_tasks_refuses_and_keeps_no_files(
    table: SparkTable, tmp_path: Path, name: str
) -> None:
    with small_disk(tmp_path / "dä ta 100%") as disk:
        small = SparkTable(table.spark, disk.path / "t")
        small.write(table.spark.range(0, 8, 1, 2))
        before = {each.name for each in small.path.glob("*.parquet")}
        disk.fill()
        with pytest.raises(StorageRefusedError, match="No space left on device") as caught:
            COMMANDS[name](small)
        assert isinstance(caught.value.__cause__, Py4JJavaError)
        assert {each.name for each in small.path.glob("*.parquet")} == before


@pytest.mark.parametrize("name", WRITES)
def test_a_disk_that_is_read_only_for_tasks_refuses(
    table: SparkTable, tmp_path: Path, name: str
) -> None:
    with small_disk(tmp_path / "dä ta 100%") as disk:
        fixed = SparkTable(table.spark, disk.path / "t")
        fixed.write(table.spark.range(0, 8, 1, 2))
        disk.make_read_only()
        with pytest.raises(StorageRefusedError, match="Read-only file system") as caught:
            COMMANDS[name](fixed)
        assert isinstance(caught.value.__cause__, Py4JJavaError)
        assert fixed.log.update().version == 0


@pytest.mark.parametrize("sink", ["delta", "noop"])
def test_a_stream_that_misses_a_data_file_names_it(
    table: SparkTable, lost_file: Path, tmp_path: Path, sink: str
) -> None:
    stream = table.spark.readStream.format("delta").load(str(table.path)).writeStream
    stream = stream.format(sink).option("checkpointLocation", str(tmp_path / "che ckpoint 100% ü"))
    with fails_with("DELTA_FILE_NOT_FOUND_DETAILED") as caught:
        run(stream, tmp_path / "co py 100% ü")
    assert str(lost_file) in str(caught.value.__cause__)
    assert "repair()" in str(caught.value.__cause__)


def test_a_task_that_fails_for_another_reason_is_typed_with_it(table: SparkTable) -> None:
    place = table.path.parent / "par titioned 100% ü"
    parted = SparkTable(table.spark, place)
    parted.write(table.spark.range(1).selectExpr("id", "0 AS p"), "append", "p")
    (place / "p=7").write_bytes(b"in the way")
    with pytest.raises(JobFailedError, match=r"DELTA_JOB_FAILED.*directory") as caught:
        append(parted, table.spark.range(1).selectExpr("id", "7 AS p"))
    assert isinstance(caught.value.__cause__, Py4JJavaError)


def test_a_cancelled_command_keeps_sparks_condition_and_no_files(table: SparkTable) -> None:
    before = sorted(table.path.rglob("*"))
    context = table.spark.sparkContext
    done = threading.Event()

    def cancel() -> None:
        while not done.wait(0.2):
            if context.statusTracker().getActiveJobsIds():
                context.cancelAllJobs()

    thread = threading.Thread(target=cancel)
    thread.start()
    endless = table.spark.range(0, 10**12, 1, 2).where("sha2(string(id), 512) = 'x'")
    try:
        with pytest.raises(JobFailedError) as caught:
            append(table, endless)
    finally:
        done.set()
        thread.join()
    assert caught.value.getCondition() == "SPARK_JOB_CANCELLED"  # type: ignore[attr-defined]
    assert isinstance(caught.value.__cause__, Py4JJavaError)
    assert sorted(table.path.rglob("*")) == before
