"""What keeps a table in order on demand: repair, checkpoints, the clean-up of its log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_delta import DeltaTable, enable
from tests.support.spark_tables import SparkTable


@pytest.mark.classic
def test_a_table_is_repaired_checkpointed_and_cleaned_up(
    spark: SparkSession, table_path: Path
) -> None:
    table = SparkTable(enable(spark), table_path)
    for number in range(3):
        table.write(table.data("id BIGINT", (number,)))
    handle = DeltaTable.forPath(spark, str(table_path))
    (lost,) = (file.path for file in table.files if '"id":1' in (file.stats or ""))
    (table_path / lost).unlink()
    assert [row.path for row in handle.repair(dry_run=True).collect()] == [lost]
    assert table.log.update().version == 2
    assert handle.repair().collect() == [(lost, "data file missing", 1, True)]
    assert table.rows == [(0,), (2,)]
    assert handle.repair().columns == ["path", "reason", "numRows", "removed"]
    assert table.log.update().version == 3
    with pytest.raises(TypeError):
        handle.repair(dry_run=1)  # type: ignore[arg-type]
    handle.checkpoint()
    log = table_path / "_delta_log"
    assert (log / f"{3:020d}.checkpoint.parquet").exists()
    assert handle.cleanUpLog().collect() == []
    table.write(table.data("id BIGINT", (4,)))
    for version in range(4):
        for file in log.glob(f"{version:020d}.*"):
            os.utime(file, (1_000_000_000 + version,) * 2)
    gone = [row.path for row in handle.cleanUpLog().collect()]
    assert f"_delta_log/{0:020d}.json" in gone
    assert not (log / f"{0:020d}.json").exists()
    assert table.rows == [(0,), (2,), (4,)]


@pytest.mark.classic
def test_repair_tells_reason_and_rows_and_keeps_rows_whose_vector_is_missing(
    spark: SparkSession, table_path: Path
) -> None:
    table = SparkTable(enable(spark), table_path)
    table.write(spark.range(0, 1000, 1, 1), "append", **{"delta.enableDeletionVectors": "true"})
    handle = DeltaTable.forPath(spark, str(table_path))
    handle.delete("id % 3 = 0")
    (file,) = table.files
    (vector,) = table_path.rglob("*.bin")
    content = vector.read_bytes()
    vector.unlink()
    with table.refused("DELTA_REPAIR_WOULD_DROP_ROWS") as refused:
        handle.repair()
    assert refused.value.parameters["numRows"] == "666"
    told = (file.path, "deletion vector missing", 666)
    assert handle.repair(dry_run=True).collect() == [(*told, False)]
    assert handle.repair(drop_rows_with_missing_vectors=False).collect() == [(*told, False)]
    with pytest.raises(TypeError):
        handle.repair(drop_rows_with_missing_vectors="yes")  # type: ignore[arg-type]
    vector.write_bytes(content)
    assert handle.repair().collect() == []
    assert len(table.rows) == 666
    vector.unlink()
    assert handle.repair(drop_rows_with_missing_vectors=True).collect() == [(*told, True)]
    assert table.rows == []
