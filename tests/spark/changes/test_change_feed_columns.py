"""Columns of a change feed: mapped, renamed, added, widened, nested; and files that are skipped."""

from __future__ import annotations

import io
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta import DeltaLog, enable, table_changes_by_path
from pyspark_delta.errors import ChangeFeedError
from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.ops.changes import feed as change_feed
from pyspark_delta.kernel.protocol.actions import AddCDCFile
from pyspark_delta.kernel.protocol.column_mapping import physical_name
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector
from pyspark_delta.kernel.protocol.partition_values import format_partition_value
from pyspark_delta.kernel.protocol.type_widening import record_type_changes
from pyspark_delta.kernel.protocol.types import INTEGER, LONG, StructField, StructType
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.spark.scan.source import stretch_bits
from tests.support.plans import files_read
from tests.support.spark_tables import conf
from tests.support.tables import (
    append,
    change_schema,
    create_table,
    delete_positions,
    overwrite,
    physical_rows,
)

FEED = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("s", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("p", pa.timestamp("us", "UTC")),
    ]
)
NOON = datetime(2024, 2, 29, 12)
UNSAFE = (
    "spark__databricks__delta__changeDataFeed__unsafeBatchReadOnIncompatibleSchemaChanges__enabled"
)


def rows(*ids: int) -> pa.Table:
    values = [{"id": i, "s": {"a": i % 7, "b": "ü" if i % 2 else None}, "p": NOON} for i in ids]
    return pa.Table.from_pylist(values, SCHEMA)


def tell(log: DeltaLog, data: pa.Table, *types: str) -> int:
    """A version that removes all files, and tells its changes in a file of its own."""
    txn = log.start_transaction()
    metadata = txn.metadata
    old = list(add_files(txn.filter_files()))
    txn.read_whole_table()
    kinds = pa.array(types, pa.string())
    sink = io.BytesIO()
    physical = physical_rows(data, metadata)
    pq.write_table(physical.append_column("_change_type", kinds), sink, store_schema=False)
    path = f"_change_data/cdc-{uuid4()}.parquet"
    log.store.create(path, sink.getvalue())
    mode = mapping_mode(metadata)
    values = {
        physical_name(f, mode): format_partition_value(data.column(f.name)[0].as_py(), f.data_type)
        for f in metadata.partition_schema
    }
    size = len(sink.getvalue())
    cdc = AddCDCFile(path=path, partition_values=values, size=size, data_change=False)
    return txn.commit([*(f.remove(deletion_timestamp=1) for f in old), cdc], "UPDATE").version


def changes(spark: SparkSession, path: Path, *ends: Any) -> DataFrame:
    return table_changes_by_path(spark, str(path), *(ends or (0,)))


def found(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.select(*columns).collect())


@pytest.mark.parametrize("mode", ["none", "name", "id"])
def test_mapped_columns_are_found_in_data_and_change_files(
    spark: SparkSession, table_path: Path, mode: str
) -> None:
    enable(spark)
    configuration = {**FEED, "delta.columnMapping.mode": mode}
    log = create_table(table_path, SCHEMA, partition_by=["p"], configuration=configuration)
    append(log, rows(*range(10)))
    delete_positions(log, lambda file: [3, 9])
    told = tell(log, rows(5, 50), "update_preimage", "update_postimage")
    frame = changes(spark, table_path)
    names = [*SCHEMA.names, "_change_type", "_commit_version", "_commit_timestamp"]
    assert frame.columns == names
    wanted = ("id", "s.a", "s.b", "_change_type", "_commit_version")
    assert found(frame.where("_commit_version > 1"), *wanted) == [
        (3, 3, "ü", "delete", 2),
        (5, 5, "ü", "update_preimage", told),
        (9, 2, "ü", "delete", 2),
        (50, 1, None, "update_postimage", told),
    ]
    assert frame.where("s.a = 6").count() == 1
    assert frame.where("p = timestamp'2024-02-29 12:00:00Z'").count() == 14
    assert files_read(frame.where("p > timestamp'2024-03-01 00:00:00Z'")) == 0
    # By statistics, of inserts and of rows that a vector took away; change files have none.
    assert files_read(frame.where("id = 77")) == 1
    assert files_read(changes(spark, table_path, 1, 2).where("id = 77")) == 0


def test_renamed_columns_part_a_feed(spark: SparkSession, table_path: Path) -> None:
    enable(spark)
    configuration = {**FEED, "delta.columnMapping.mode": "name"}
    log = create_table(table_path, SCHEMA, configuration=configuration)
    append(log, rows(1))
    schema = log.update().schema
    renamed = StructType(tuple(f.with_name("key") if f.name == "id" else f for f in schema))
    change_schema(log, renamed)
    append(log, pa.table({"key": [2], "s": rows(2).column("s"), "p": rows(2).column("p")}))
    assert found(changes(spark, table_path, 0, 1), "id") == [(1,)]
    assert found(changes(spark, table_path, 2), "key") == [(2,)]
    with pytest.raises(ChangeFeedError) as caught:
        changes(spark, table_path)
    assert caught.value.condition == "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA"
    with conf(spark, **{UNSAFE: "true"}):
        assert found(changes(spark, table_path), "key") == [(1,), (2,)]


def test_added_and_wider_columns_fit_older_rows(spark: SparkSession, table_path: Path) -> None:
    enable(spark)
    log = create_table(
        table_path,
        StructType((StructField("n", INTEGER),)),
        configuration={**FEED, "delta.enableTypeWidening": "true"},
    )
    append(log, pa.table({"n": pa.array([1, 2], pa.int32())}))
    delete_positions(log, lambda file: [0])
    old = log.update().schema
    wide = StructType((old["n"].with_type(LONG), StructField("m", LONG)))
    change_schema(log, record_type_changes(old, wide))
    big = pa.table({"n": [2**40], "m": [5]})
    tell(log, pa.table({"n": pa.array([2, 2**40]), "m": [None, 5]}), "update_preimage", "insert")
    append(log, big)
    assert found(changes(spark, table_path).na.fill(0), "n", "m", "_change_type") == [
        (1, 0, "delete"),
        (1, 0, "insert"),
        (2, 0, "insert"),
        (2, 0, "update_preimage"),
        (2**40, 5, "insert"),
        (2**40, 5, "insert"),
    ]
    # Within older versions, too, the columns are the newest.
    assert changes(spark, table_path, 0, 1).columns[:2] == ["n", "m"]


@given(st.frozensets(st.integers(0, 5000), min_size=1))
def test_bits_begin_with_the_first_row_that_counts(rows: frozenset[int]) -> None:
    start, bits = stretch_bits(DeletionVector(rows))
    assert start % 64 == 0
    assert len(bits) % 8 == 0
    numbers = (start + at for at in range(8 * len(bits)) if bits[at // 8] >> at % 8 & 1)
    assert set(numbers) == rows
    assert 8 * len(bits) <= max(rows) - min(rows) + 128


def test_rows_that_came_back_are_found_in_files_of_any_length(
    spark: SparkSession, table_path: Path
) -> None:
    enable(spark)
    schema = pa.schema([("id", pa.int64())])
    log = create_table(
        table_path, schema, configuration={**FEED, "delta.enableRowTracking": "true"}
    )
    append(log, pa.table({"id": range(5000)}, schema=schema))
    gone = [0, 63, 64, 127, 4095, 4096, 4999]
    delete_positions(log, lambda file: gone)
    # No rows but these at either end: what is behind the last one is not kept.
    delete_positions(log, lambda file: [64, 3000])
    frame = changes(spark, table_path, 2)
    assert found(frame, "_commit_version", "_change_type", "id") == [
        *((2, "delete", i) for i in gone),
        (3, "delete", 3000),
        *((3, "insert", i) for i in gone if i != 64),
    ]
    assert found(frame.where("id > 4000 AND _commit_version = 2"), "id") == [
        (4095,),
        (4096,),
        (4999,),
    ]
    # Files with a vector that are removed, and rows that are all gone.
    overwrite(log, pa.table({"id": [1]}, schema=schema))
    assert changes(spark, table_path, 4).where("_change_type = 'delete'").count() == 4998


def test_large_commits_are_read_the_same(
    spark: SparkSession, table_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enable(spark)
    log = create_table(table_path, SCHEMA, partition_by=["p"], configuration=FEED)
    append(log, rows(*range(10)))
    append(log, replace_time(rows(20), None))
    delete_positions(log, lambda file: [0])
    overwrite(log, rows(30))
    columns = ("id", "p", "_change_type", "_commit_version")

    def by_text(frame: DataFrame) -> list[str]:
        return sorted(map(str, frame.select(*columns).collect()))

    small = by_text(changes(spark, table_path))
    monkeypatch.setattr(change_feed, "LARGE_COMMIT_BYTES", 1)
    large = changes(spark, table_path)
    assert by_text(large) == small
    assert len(small) == 11 + 2 + 9 + 1
    assert files_read(large.where("p IS NULL")) == 3
    # Of removed files a large commit tells too little to leave them unopened.
    assert files_read(large.where("id = 30")) == 1 + 2 + 2


def replace_time(data: pa.Table, value: datetime | None) -> pa.Table:
    at = data.schema.get_field_index("p")
    return data.set_column(at, "p", pa.array([value] * data.num_rows, SCHEMA.field("p").type))
