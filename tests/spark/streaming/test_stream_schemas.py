"""Streams with a schema log: columns renamed, dropped and retyped under a running checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pyspark_delta import DeltaLog, enable
from pyspark_delta.kernel.protocol.types import StructType
from tests.spark.streaming.test_stream_source import condition_of
from tests.support.streams import drain, offsets, stream_of
from tests.support.tables import append, change_schema, create_table

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
EVOLUTION = "DELTA_STREAMING_METADATA_EVOLUTION"
BLOCKED = "DELTA_STREAMING_CANNOT_CONTINUE_PROCESSING_POST_SCHEMA_EVOLUTION"


@pytest.fixture
def log(spark: SparkSession, table_path: Path) -> DeltaLog:
    enable(spark)
    mapped = {"delta.columnMapping.mode": "name"}
    log = create_table(table_path, SCHEMA, configuration=mapped)
    append(log, pa.table({"id": [1], "v": ["a"]}, schema=SCHEMA))
    return log


def rename(log: DeltaLog, old: str, new: str) -> None:
    schema = log.update().schema
    fields = tuple(replace(f, name=new) if f.name == old else f for f in schema)
    change_schema(log, StructType(fields))


def drop(log: DeltaLog, name: str) -> None:
    schema = log.update().schema
    change_schema(log, StructType(tuple(f for f in schema if f.name != name)))


def test_a_stream_follows_renamed_and_dropped_columns(
    spark: SparkSession, log: DeltaLog, table_path: Path, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "chéck 1%"
    tracked = {"schemaTrackingLocation": f"{checkpoint}/schemas"}
    assert drain(stream_of(spark, table_path, **tracked), checkpoint).rows == [(1, "a")]
    directory = checkpoint / "schemas" / f"_schema_log_{log.snapshot.metadata.id}"
    assert [file.name for file in directory.iterdir() if file.name.isdigit()] == ["0"]
    rename(log, "v", "w")
    append(log, pa.table({"id": [2], "w": ["b"]}))
    with pytest.raises(StreamingQueryException) as caught:
        drain(stream_of(spark, table_path, **tracked), checkpoint)
    assert condition_of(caught) == EVOLUTION
    assert offsets(checkpoint)[-1]["index"] == -19
    assert offsets(checkpoint)[-1]["sourceVersion"] == 3
    with pytest.raises(StreamingQueryException) as caught:
        drain(stream_of(spark, table_path, **tracked), checkpoint)
    assert condition_of(caught) == BLOCKED
    version = str(log.update().version - 1)
    allowed = {**tracked, "allowSourceColumnRename": version}
    frame = stream_of(spark, table_path, **allowed)
    assert frame.columns == ["id", "w"]
    assert drain(frame, checkpoint).rows == [(2, "b")]
    drop(log, "w")
    append(log, pa.table({"id": [3]}))
    with pytest.raises(StreamingQueryException) as caught:
        drain(stream_of(spark, table_path, **allowed), checkpoint)
    assert condition_of(caught) == EVOLUTION
    key = "spark.databricks.delta.streaming.allowSourceColumnDrop"
    with pytest.raises(StreamingQueryException) as caught:
        drain(stream_of(spark, table_path, **allowed), checkpoint)
    assert condition_of(caught) == BLOCKED
    spark.conf.set(key, "always")
    try:
        assert drain(stream_of(spark, table_path, **tracked), checkpoint).rows == [(3,)]
    finally:
        spark.conf.unset(key)


def test_without_a_schema_log_a_renamed_column_is_refused(
    spark: SparkSession, log: DeltaLog, table_path: Path, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    drain(stream_of(spark, table_path), checkpoint)
    rename(log, "v", "w")
    append(log, pa.table({"id": [2], "w": ["b"]}))
    with pytest.raises(StreamingQueryException) as caught:
        drain(stream_of(spark, table_path), checkpoint)
    expected = "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE_USE_SCHEMA_LOG"
    assert condition_of(caught) == expected


def test_a_schema_location_belongs_to_one_source_below_the_checkpoint(
    spark: SparkSession, log: DeltaLog, table_path: Path, tmp_path: Path
) -> None:
    outside = stream_of(spark, table_path, schemaTrackingLocation=tmp_path / "elsewhere")
    with pytest.raises(StreamingQueryException) as caught:
        drain(outside, tmp_path / "one")
    expected = "DELTA_STREAMING_SCHEMA_LOCATION_NOT_UNDER_CHECKPOINT"
    assert condition_of(caught) == expected
    checkpoint = tmp_path / "two"
    location = checkpoint / "schemas"
    both = [stream_of(spark, table_path, schemaLocation=location) for _ in range(2)]
    with pytest.raises(StreamingQueryException) as caught:
        drain(both[0].union(both[1]), checkpoint)
    assert condition_of(caught) == "DELTA_STREAMING_SCHEMA_LOCATION_CONFLICT"
    checkpoint = tmp_path / "three"
    location = checkpoint / "schemas"
    told_apart = [
        stream_of(
            spark, table_path, schemaTrackingLocation=location, streamingSourceTrackingId=name
        )
        for name in ("a", "b")
    ]
    for _ in range(2):
        drain(told_apart[0].union(told_apart[1]), checkpoint)
    names = sorted(each.name[-2:] for each in location.iterdir())
    assert names == ["_a", "_b"]
