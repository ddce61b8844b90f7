"""Streams whose log lost commits: what is still read, and what is said of the rest."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pyspark_delta import DeltaLog, enable
from tests.support.feeds import fails_with
from tests.support.streams import drain, offsets, start, stream_of
from tests.support.tables import append, create_table

SCHEMA = pa.schema([("id", pa.int64())])
MISSING = "DELTA_MISSING_FILES_UNEXPECTED_VERSION"


@pytest.fixture
def log(spark: SparkSession, table_path: Path) -> DeltaLog:
    """Version 0 without rows; then three with a row each."""
    enable(spark)
    log = create_table(table_path, SCHEMA)
    add_rows(log, 1, 2, 3)
    return log


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "chéck 50%"


def add_rows(log: DeltaLog, *ids: int) -> None:
    """A version for each row."""
    for number in ids:
        append(log, pa.table({"id": [number]}, schema=SCHEMA))


def clean(log: DeltaLog, path: Path, *, before: int) -> None:
    """As if all commits before a version were older than the log keeps them."""
    log.checkpoint()
    for version in range(before):
        for file in (path / "_delta_log").glob(f"{version:020d}.*"):
            file.unlink()


def test_a_stream_that_has_read_what_is_gone_goes_on(
    spark: SparkSession, log: DeltaLog, table_path: Path, checkpoint: Path
) -> None:
    """Of its last batch nothing is left in the log, be it the table as a whole or a commit."""
    frame = stream_of(spark, table_path)
    assert drain(frame, checkpoint).ids == [1, 2, 3]
    for first in (4, 7):
        add_rows(log, first, first + 1, first + 2)
        clean(log, table_path, before=first)
        assert drain(frame, checkpoint).ids == [first, first + 1, first + 2]
        assert offsets(checkpoint)[-1]["reservoirVersion"] == first + 3
    clean(log, table_path, before=9)
    assert drain(frame, checkpoint).ids == []


def test_commits_that_are_lost_are_missed_or_passed_over(
    spark: SparkSession, log: DeltaLog, table_path: Path, checkpoint: Path
) -> None:
    drain(stream_of(spark, table_path), checkpoint)
    add_rows(log, 4, 5, 6)
    clean(log, table_path, before=6)
    for _ in range(2):
        with fails_with(MISSING) as caught:
            drain(stream_of(spark, table_path), checkpoint)
        assert caught.value.__cause__.parameters["startVersion"] == "4"  # type: ignore[union-attr]
    lenient = stream_of(spark, table_path, failOnDataLoss=False)
    assert drain(lenient, checkpoint).ids == [6]
    assert offsets(checkpoint)[-1]["reservoirVersion"] == 7


def test_a_batch_that_is_not_done_is_missed_when_it_is_gone(
    spark: SparkSession, log: DeltaLog, table_path: Path, checkpoint: Path
) -> None:
    frame = stream_of(spark, table_path)
    drain(frame, checkpoint)
    # As after a crash in the middle of the first batch: offsets are there, the commit is not.
    for file in (checkpoint / "commits").iterdir():
        file.unlink()
    add_rows(log, 4)
    clean(log, table_path, before=4)
    with fails_with("DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE"):
        drain(frame, checkpoint)


def test_a_log_that_is_deleted_stops_a_running_stream(
    spark: SparkSession, log: DeltaLog, table_path: Path, checkpoint: Path
) -> None:
    query = start(stream_of(spark, table_path), checkpoint, processingTime="0 seconds")
    query.processAllAvailable()
    for file in (table_path / "_delta_log").iterdir():
        file.unlink()
    with fails_with("DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE"):
        query.awaitTermination(30)
    assert not query.isActive
