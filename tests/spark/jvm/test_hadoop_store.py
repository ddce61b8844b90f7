"""`HadoopStore` over a real Hadoop file system: viewfs, whose mount leads to local files."""

from __future__ import annotations

import os
import pickle
import traceback
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from pyspark_delta import DeltaLog, enable
from pyspark_delta.errors import (
    FileAlreadyExistsError,
    FileMissingError,
    StorageError,
    StorageRefusedError,
    UnsupportedSchemeError,
)
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.spark.jvm.hadoop.store import HadoopStore
from pyspark_delta.spark.tables.locations import hadoop_location, open_log
from tests.contracts.log_store import COMMIT, LogStoreContract, names
from tests.spark.session.test_session import rows
from tests.support.refusing_disks import closed_directory
from tests.support.viewfs import mounted


@pytest.fixture
def location(spark: SparkSession, tmp_path: Path) -> str:
    """A place on viewfs; Hadoop keeps its clients, so each test has a host of its own."""
    return mounted(spark, tmp_path)


@pytest.fixture
def store(spark: SparkSession, location: str) -> HadoopStore:
    return HadoopStore(spark, f"{location}/tä ble 100%")


class TestHadoopStore(LogStoreContract):
    """Every promise of LogStore."""


def test_a_file_system_without_hard_links_is_renamed_on(
    store: HadoopStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on HDFS: Hadoop's FileContext renames, and does not overwrite unless it is asked to."""
    store._is_local = False
    store.create(COMMIT, b"first")
    with pytest.raises(FileAlreadyExistsError):
        store._publish("create", COMMIT, [b"second"], overwrites=False)  # as if it was not there
    assert store.read(COMMIT) == b"first"
    store.overwrite(COMMIT, b"third")
    assert store.read(COMMIT) == b"third"
    assert names(store, "") == [COMMIT]


def test_what_the_file_system_refuses_was_not_written(store: HadoopStore, tmp_path: Path) -> None:
    log = tmp_path / "mount" / "tä ble 100%" / "_delta_log"
    store.create(COMMIT, b"x")
    with closed_directory(log), pytest.raises(StorageRefusedError):
        store.create("_delta_log/1.json", b"y")


def test_large_contents_cross_whole(store: HadoopStore) -> None:
    data = os.urandom(300_000)
    store.create_from("large", [data[:200_000], data[200_000:]])
    assert store.read("large") == data
    assert store.read_range("large", 100, 250_000) == data[100:250_100]
    with store.arrow_file("large") as file:
        assert file.size() == len(data)
        file.seek(299_990)
        assert file.read() == data[-10:]


def test_unfinished_and_checksum_files_are_not_listed(store: HadoopStore, tmp_path: Path) -> None:
    store.create(COMMIT, b"x")
    folder = tmp_path / "mount" / "tä ble 100%" / "_delta_log"
    (folder / ".delta-staging-1-a").write_bytes(b"half")
    assert names(store, "") == [COMMIT]
    assert sorted(os.listdir(folder)) == [".delta-staging-1-a", COMMIT.partition("/")[2]]


def test_what_hadoop_says_becomes_a_typed_error(spark: SparkSession, location: str) -> None:
    with pytest.raises(UnsupportedSchemeError):
        HadoopStore(spark, "nosuchscheme://host/t")
    with pytest.raises(StorageError):
        HadoopStore(spark, "relative/t")
    store = HadoopStore(spark, f"{location}/t")
    store.create("d/f", b"x")
    with pytest.raises(StorageError) as caught:
        store.create("d/f/g", b"x")
    assert not isinstance(caught.value, FileMissingError)
    assert caught.value.__cause__ is None
    assert "Py4J" not in "".join(traceback.format_exception(caught.value))
    outside = HadoopStore(spark, location.replace("/data", "/elsewhere") + "/t")
    with pytest.raises(StorageError):
        outside.create("f", b"x")
    assert not outside.exists("f")
    assert outside.list_from("") == []


def test_options_are_kept_and_not_shown(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "mount").mkdir()
    host = f"m{uuid4().hex}"
    options = {
        f"fs.viewfs.mounttable.{host}.link./data": (tmp_path / "mount").as_uri(),
        "fs.made.up.secret": "planted",
    }
    store = HadoopStore(spark, f"viewfs://{host}/data/t", options)
    store.create("f", b"x")
    assert pickle.loads(pickle.dumps(store)).read("f") == b"x"
    with pytest.raises(FileMissingError) as caught:
        store.read("absent")
    shown = [repr(store), str(caught.value), store.address("f"), repr(DeltaLog(store))]
    assert not any("planted" in text for text in shown)


def test_a_table_on_any_file_system_is_written_and_read(spark: SparkSession, location: str) -> None:
    enable(spark)
    path = f"{location}/tä ble 100%"
    frame = spark.range(6).selectExpr("id", "concat('p ', id % 2) AS p")
    frame.write.format("delta").partitionBy("p").save(path)
    frame.write.format("delta").mode("append").save(path)
    read = spark.read.format("delta").load(path)
    assert rows(read) == sorted(2 * rows(frame))
    assert rows(read.where("p = 'p 1'").select("id")) == sorted(2 * [(1,), (3,), (5,)])
    log = open_log(spark, path)
    assert isinstance(log.store, HadoopStore)
    assert open_log(spark, path + "/") is log
    assert log.update().version == 1
    assert hadoop_location(log.store.root_uri) == path
    assert [info.version for info in log.history()] == [1, 0]
    contract: LogStore = log.store
    assert contract.exists(COMMIT)
