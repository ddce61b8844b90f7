"""Commits that the store certainly refused: no command leaves a file that it wrote for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_delta import disable, enable
from pyspark_delta.errors import StorageRefusedError
from pyspark_delta.tables import DeltaTable
from tests.storage.s3_server import S3Server, running_s3
from tests.support.feeds import Feed, fails_with, run
from tests.support.refusing_disks import closed_directory, limited_files, small_disk
from tests.support.spark_tables import SparkTable, conf

Command = Callable[[SparkTable], object]

COMMANDS: dict[str, Command] = {
    "append": lambda t: t.spark.range(5, 6).write.format("delta").mode("append").save(str(t.path)),
    "overwrite": lambda t: (
        t.spark.range(5, 6).write.format("delta").mode("overwrite").save(str(t.path))
    ),
    "delete": lambda t: DeltaTable.forPath(t.spark, str(t.path)).delete("id = 2"),
    "update": lambda t: DeltaTable.forPath(t.spark, str(t.path)).update("id = 2", {"id": "id + 9"}),
    "merge": lambda t: (
        DeltaTable.forPath(t.spark, str(t.path))
        .alias("t")
        .merge(t.spark.range(2, 7).alias("s"), "t.id = s.id")
        .whenMatchedUpdate(set={"id": "s.id + 9"})
        .whenNotMatchedInsertAll()
        .execute()
    ),
    "optimize": lambda t: DeltaTable.forPath(t.spark, str(t.path)).optimize().executeCompaction(),
}


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkTable]:
    """Two files and a change data feed; what is refused leaves it as it is."""
    found = SparkTable(enable(spark), tmp_path_factory.mktemp("re fused") / "tä ble 100%")
    features = ("delta.enableChangeDataFeed", "delta.enableDeletionVectors")
    properties = dict.fromkeys(features, "true")
    found.write(spark.range(0, 8, 1, 2), "append", **properties)
    yield found
    disable(spark)


def files_of(path: Path) -> set[str]:
    return {str(each.relative_to(path)) for each in path.rglob("*") if each.is_file()}


@pytest.mark.parametrize(
    ("name", "vectors"),
    [*((name, True) for name in COMMANDS), ("update", False), ("merge", False)],
)
def test_no_command_leaves_files_of_a_commit_that_was_refused(
    table: SparkTable, name: str, vectors: bool
) -> None:
    before = files_of(table.path)
    key = f"spark.databricks.delta.{name}.deletionVectors.persistent"
    # A vector's file has room below the limit, the commit has not.
    with (
        conf(table.spark, **{key: str(vectors).lower()}),
        limited_files(400),
        pytest.raises(StorageRefusedError) as caught,
    ):
        COMMANDS[name](table)
    assert caught.value.parameters["path"].endswith("/_delta_log/00000000000000000001.json")
    assert files_of(table.path) == before


def test_no_file_is_left_where_the_log_takes_no_new_names(table: SparkTable) -> None:
    before = files_of(table.path)
    with closed_directory(table.path / "_delta_log"), pytest.raises(StorageRefusedError):
        COMMANDS["append"](table)
    assert files_of(table.path) == before


@pytest.mark.parametrize("reason", ["No space left on device", "Read-only file system"])
@pytest.mark.parametrize("name", ["append", "update", "merge"])
def test_no_command_leaves_files_where_the_disk_of_the_log_refuses(
    spark: SparkSession, table_path: Path, name: str, reason: str
) -> None:
    """The log has a disk of its own: the data files are written, and the commit is not."""
    with small_disk(table_path / "_delta_log") as disk:
        table = SparkTable(enable(spark), table_path)
        table.write(spark.range(0, 8, 1, 2))
        disk.fill() if reason.startswith("No") else disk.make_read_only()
        before = files_of(table_path)
        with pytest.raises(StorageRefusedError, match=reason) as caught:
            COMMANDS[name](table)
        # The data files were there.
        assert caught.value.parameters["path"].endswith("/_delta_log/00000000000000000001.json")
        assert files_of(table_path) == before
        assert table.log.update().version == 0


def test_a_refused_batch_of_a_stream_leaves_no_files(table: SparkTable, tmp_path: Path) -> None:
    before = files_of(table.path)
    feed = Feed(table.spark, tmp_path / "fe ed 100%", "id LONG").add({"id": 9})
    stream = feed.stream().writeStream.format("delta")
    stream = stream.option("checkpointLocation", str(tmp_path / "che ckpoint 100% ü"))
    with limited_files(400), fails_with("DELTA_STORAGE_REFUSED"):
        run(stream, table.path)
    assert files_of(table.path) == before


@pytest.fixture
def s3() -> Iterator[S3Server]:
    with running_s3() as server:
        yield server


def test_the_data_source_takes_back_files_of_a_commit_that_a_store_refused(
    spark: SparkSession, s3: S3Server
) -> None:
    session = disable(spark.newSession())
    options = {
        "fs.s3a.endpoint": s3.endpoint,
        "fs.s3a.access.key": "AK",
        "fs.s3a.secret.key": "secret",
        "fs.s3a.path.style.access": "true",
    }

    location = "s3://lake/tä ble 100%25"
    data = session.range(0, 2, 1, 1).write.format("delta").mode("append").options(**options)
    data.save(location)
    before = set(s3.objects)
    s3.refused_suffix = ".json"
    s3.refusals = {"PUT": (403, "<Error><Code>AccessDenied</Code></Error>")}
    s3.requests.clear()
    with pytest.raises(PySparkException, match="DELTA_STORAGE_REFUSED"):
        data.save(location)
    assert set(s3.objects) == before
    commits = [key for method, key in s3.requests if method == "PUT" and key.endswith(".json")]
    assert len(commits) == 1
