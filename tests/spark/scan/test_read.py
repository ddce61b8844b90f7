"""Reading through Spark: versions, pruning, skipping, deletion vectors, other formats untouched."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession, functions

from pyspark_delta import DeltaLog, disable, enable
from pyspark_delta.errors import PropertyError, TableNotFoundError, VersionNotFoundError
from pyspark_delta.spark.scan.frame import ScanSettings, SnapshotSource
from tests.support.tables import append, create_table, delete_positions

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string())])


@pytest.fixture
def log(table_path: Path) -> DeltaLog:
    """Three versions with rows: 0-9 in partition `a b`, 10-19 in `ü%`, 20-29 in none."""
    log = create_table(table_path, SCHEMA, partition_by=["p"])
    for number, value in enumerate(["a b", "ü%", None]):
        append(log, rows(range(10 * number, 10 * number + 10), value))
    return log


def rows(ids: Iterable[int], value: str | None) -> pa.Table:
    listed = list(ids)
    return pa.table({"id": listed, "p": [value] * len(listed)}, schema=SCHEMA)


def ids(frame: object) -> list[int]:
    return sorted(row["id"] for row in frame.collect())  # type: ignore[attr-defined]


def test_a_table_is_read_at_its_newest_version_and_at_older_ones(
    spark: SparkSession, log: DeltaLog, table_path: Path
) -> None:
    read = enable(spark).read.format("delta")
    assert ids(read.load(str(table_path))) == list(range(30))
    versions = [log.snapshot_at(version=v).num_files for v in range(log.update().version + 1)]
    first = versions.index(1)
    old = spark.read.format("delta").option("versionAsOf", first).load(str(table_path))
    assert ids(old) == list(range(10))
    assert ids(spark.read.format("delta").load(f"{table_path}@v{first}")) == list(range(10))


@pytest.mark.parametrize(
    ("condition", "expected", "opened"),
    [
        ("p = 'a b'", range(10), 1),
        ("p = 'ü%' AND id > 15", range(16, 20), 1),
        ("p IS NULL", range(20, 30), 1),
        ("p IS NOT NULL", range(20), 2),
        ("p <> 'a b'", range(10, 20), 1),
        ("p IN ('ü%', 'x')", range(10, 20), 1),
        ("upper(p) = 'A B'", range(10), 1),
        ("length(p) > 2 AND p LIKE 'a%'", range(10), 1),
        ("id < 5", range(5), 1),
        ("id = 15 OR id = 25", (15, 25), 2),
        ("id + 1 = 6", (5,), 3),
        ("id > 100", (), 0),
    ],
)
def test_a_filter_opens_only_files_that_may_match(
    spark: SparkSession,
    log: DeltaLog,
    table_path: Path,
    condition: str,
    expected: range,
    opened: int,
) -> None:
    frame = enable(spark).read.format("delta").load(str(table_path)).where(condition)
    assert ids(frame) == list(expected)
    files = frame.select("_metadata.file_path").distinct().count()
    assert files <= opened
    partitions = frame._jdf.queryExecution().executedPlan().toString()
    assert "FileScan parquet" in partitions


def test_deleted_rows_are_gone_whatever_is_filtered(spark: SparkSession, table_path: Path) -> None:
    log = create_table(table_path, SCHEMA, configuration={"delta.enableDeletionVectors": "true"})
    append(log, rows(range(100), "x"))
    append(log, rows(range(100, 200), "y"))
    first = sorted(log.update().files.column("path").to_pylist())[0]
    gone = {0, 1, 7, 8, 63, 64, 99}
    delete_positions(log, lambda file: sorted(gone) if file.path == first else [])
    frame = enable(spark).read.format("delta").load(str(table_path))
    kept = {row["id"] for row in frame.collect()}
    assert len(kept) == 200 - len(gone)
    assert kept == set(log.update().to_table().column("id").to_pylist())
    assert frame.where("id % 2 = 0").count() == len([i for i in kept if i % 2 == 0])
    assert frame.count() == len(kept)


def test_a_frame_shows_the_rows_that_are_there_when_its_query_is_planned(
    spark: SparkSession, log: DeltaLog, table_path: Path
) -> None:
    frame = enable(spark).read.format("delta").load(str(table_path))
    append(log, rows([99], "new"))
    assert 99 in ids(frame)
    append(log, rows([100], "new"))
    assert 100 not in ids(frame)  # the frame's own query is planned once
    assert 100 in ids(frame.select("*"))


def test_joins_caches_and_metadata_columns_work(
    spark: SparkSession, log: DeltaLog, table_path: Path
) -> None:
    frame = enable(spark).read.format("delta").load(str(table_path))
    assert frame.alias("a").join(frame.alias("b"), "id").count() == 30
    cached = frame.cache()
    try:
        assert cached.count() == cached.agg(functions.count_distinct("id")).first()[0]
    finally:
        cached.unpersist()
    found = frame.select("id", "_metadata.row_index", "_metadata.file_name").collect()
    assert {row["row_index"] for row in found} == set(range(10))


def test_what_cannot_be_read_is_told_before_any_job(
    spark: SparkSession, log: DeltaLog, table_path: Path, tmp_path: Path
) -> None:
    read = enable(spark).read
    with pytest.raises(TableNotFoundError):
        read.format("delta").load(str(tmp_path / "nö where 100%"))
    with pytest.raises(VersionNotFoundError):
        read.format("delta").option("versionAsOf", 99).load(str(table_path))
    with pytest.raises(PropertyError) as caught:
        spark.read.format("delta").option("versionAsOf", "x").load(str(table_path))
    assert caught.value.condition == "DELTA_ILLEGAL_OPTION"


def test_other_formats_and_other_sessions_are_untouched(
    spark: SparkSession, log: DeltaLog, table_path: Path, tmp_path: Path
) -> None:
    enable(spark)
    target = str(tmp_path / "pläin 100%")
    spark.range(3).write.format("parquet").save(target)
    assert spark.read.format("parquet").load(target).count() == 3
    disable(spark)
    from_pyspark = spark.read.__class__.load.__module__
    assert from_pyspark == "pyspark.sql.readwriter"


def test_equal_versions_are_equal_plans(log: DeltaLog) -> None:
    one, two = (
        SnapshotSource(log.snapshot, ScanSettings(time_zone="UTC")),
        SnapshotSource(log.snapshot, ScanSettings(time_zone="UTC")),
    )
    assert one.identity == two.identity
