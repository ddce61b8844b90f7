"""A commit that lost lines, read by Spark: the version checksum tells."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_delta import DeltaError, enable
from pyspark_delta.kernel.protocol.paths import checksum_path, commit_path
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.conf.setting_table import CHECKSUM_MISMATCH_IS_FATAL
from tests.support.spark_tables import conf


@pytest.fixture(scope="module")
def template(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three versions of two files each, and their checksums."""
    path = tmp_path_factory.mktemp("damaged") / "tä ble 100%"
    enable(spark)
    for start in (0, 2, 4):
        data = spark.range(start, start + 2, numPartitions=2)
        data.write.format("delta").mode("append").save(str(path))
    assert DeltaLog.for_table(path).wait_for_hooks(60)
    assert (path / checksum_path(2)).exists()
    return path


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("lost", [1, 2], ids=["cut at a line end", "emptied"])
def test_a_read_names_the_damaged_commit_unless_the_setting_is_off(
    spark: SparkSession, template: Path, tmp_path: Path, version: int, lost: int
) -> None:
    enable(spark)
    table = tmp_path / "tä ble 100%"
    shutil.copytree(template, table)
    commit = table / commit_path(version)
    lines = [] if lost == 2 else commit.read_bytes().splitlines(keepends=True)[:-1]
    commit.write_bytes(b"".join(lines))
    (table / f"_delta_log/.{commit.name}.crc").unlink(missing_ok=True)
    for work in (
        lambda: spark.read.format("delta").load(str(table)).collect(),
        lambda: spark.sql(f"SELECT count(*) FROM delta.`{table}`").collect(),
        lambda: spark.sql(f"DELETE FROM delta.`{table}` WHERE id = 0"),
    ):
        with pytest.raises((PySparkException, DeltaError)) as caught:
            work()
        assert "DELTA_TXN_LOG_FAILED_INTEGRITY" in str(caught.value)
        assert f"{commit_path(version)} is damaged" in str(caught.value)
    with conf(spark, **{CHECKSUM_MISMATCH_IS_FATAL.key: "false"}):
        assert len(spark.read.format("delta").load(str(table)).collect()) == 6 - lost
    if version == 2:
        older = spark.read.format("delta").option("versionAsOf", 1).load(str(table))
        assert len(older.collect()) == 4
