"""Files that other implementations' VACUUM deleted and should not have, or said that it deleted.

Each test rebuilds what its report tells.  `docs/reported-losses.md` lists them all.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_delta import DeltaLog, DeltaTable, enable
from pyspark_delta.spark.conf.setting_table import CHECK_RETENTION
from tests.support.dml_tables import VECTORS
from tests.support.spark_tables import SparkTable, conf

AWKWARD = ("a b", "100%", "%41", "p=ü/é", "x+y#z?", "it's", None)


@pytest.fixture(autouse=True)
def _enabled(spark: SparkSession) -> None:
    enable(spark)


def data_files(root: Path) -> set[str]:
    """The files below a table's root, as the operating system spells them."""
    found = (path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    return {name for name in found if "_delta_log/" not in name and not name.endswith(".crc")}


def test_files_that_wait_for_their_commit_are_not_vacuumed(
    spark: SparkSession, table_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """delta-rs#3645: VACUUM ran between a writer's files and its commit."""
    path = str(table_path)
    spark.range(3).write.format("delta").save(path)
    log = DeltaLog.for_table(path)
    vacuumed = threading.Event()
    store_create = log.store.create
    found: list[str] = []

    def create(name: str, data: bytes) -> None:
        # The writer's files are there, its commit is not: now the other one runs.
        if name.endswith("1.json") and not vacuumed.is_set():
            vacuumed.set()
            handle = DeltaTable.forPath(spark, path)
            found.extend(row.path for row in handle.vacuum(dryRun=True).collect())
            with conf(spark, **{"spark.databricks.delta.vacuum.logging.enabled": "false"}):
                handle.vacuum()
        store_create(name, data)

    monkeypatch.setattr(log.store, "create", create)
    spark.range(3, 6).write.format("delta").mode("append").save(path)
    assert vacuumed.is_set()
    assert found == []
    assert sorted(row.id for row in spark.read.format("delta").load(path).collect()) == [*range(6)]


def test_what_is_said_to_be_deleted_is_gone_whatever_its_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    """delta-rs#4646, and the clean-up of delta#1725, #4989 and #3678: paths encoded once more."""
    root = tmp_path / "a b %41 100% ü"
    rows = [(n, value) for n, value in enumerate(AWKWARD)]
    data = spark.createDataFrame(rows, "id long, p string")
    writer = data.repartition(1).write.format("delta").partitionBy("p").options(**VECTORS)
    writer.save(str(root))
    handle = DeltaTable.forPath(spark, str(root))
    before = data_files(root)
    table = SparkTable(spark, root)
    handle.update(set={"id": F.col("id") + 100})
    stays = data_files(root) - before
    with conf(spark, **{CHECK_RETENTION.key: "false"}):
        said = {row.path for row in handle.vacuum(0, dryRun=True).collect()}
        handle.vacuum(0)
    gone = {path.removeprefix(f"file:{root}/") for path in said}
    assert before <= gone
    assert not gone & data_files(root)
    assert table.metrics["numDeletedFiles"] == len(gone)
    assert not any(os.path.lexists(root / name) for name in gone)
    assert data_files(root) <= stays
    assert table.rows == sorted(((n + 100, value) for n, value in rows), key=repr)
