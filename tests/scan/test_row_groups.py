"""Row groups that cannot hold a wanted row are not read, and no wanted row is lost by it."""

from __future__ import annotations

import io
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_delta.errors import DataFileError
from pyspark_delta.kernel.log.arrow_types import arrow_schema
from pyspark_delta.kernel.protocol.column_mapping import ColumnMappingMode
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector
from pyspark_delta.kernel.protocol.types import (
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    StructField,
    StructType,
)
from pyspark_delta.kernel.scan.arrow_reader import read_rows
from pyspark_delta.kernel.scan.plan import bound_filter
from pyspark_delta.kernel.scan.predicates.evaluation import evaluate
from pyspark_delta.kernel.scan.skipping.files import row_groups_to_read
from pyspark_delta.kernel.storage.memory import MemoryStore
from tests.support.tables import append, create_table, delete_positions


def parquet(rows: pa.Table, per_group: int, **options: Any) -> pq.ParquetFile:
    sink = io.BytesIO()
    pq.write_table(rows, sink, row_group_size=per_group, store_schema=False, **options)
    return pq.ParquetFile(io.BytesIO(sink.getvalue()), coerce_int96_timestamp_unit="us")


def read_groups(file: pq.ParquetFile, condition: str, schema: StructType) -> list[int]:
    predicate = bound_filter(condition, schema)
    mask = row_groups_to_read(file, predicate)
    return [place for place, is_read in enumerate(mask) if is_read]


def one(data_type: DataType, name: str = "a") -> StructType:
    return StructType((StructField(name, data_type),))


DAY = datetime(2024, 2, 28, tzinfo=UTC)


@pytest.mark.parametrize(
    ("data_type", "values", "condition", "groups"),
    [
        (LONG, range(6), "a = 3", [1]),
        (LONG, range(6), "a < 2 OR a > 4", [0, 2]),
        (LONG, range(6), "a IN (1, 5)", [0, 2]),
        (LONG, range(6), "NOT (a >= 2)", [0]),
        (LONG, [None, None, 2, None, 4, 5], "a IS NULL", [0, 1]),
        (LONG, [None, None, 2, None, 4, 5], "a IS NOT NULL", [1, 2]),
        (LONG, [None, None, 2, None, 4, 5], "a < 9", [1, 2]),
        (STRING, ["a", "b", "ä", "ü", "ｚ", "𐀀"], "a >= 'ü'", [1, 2]),
        (STRING, ["a", "ab", "b", "bc", "c", "cd"], "a LIKE 'b%'", [1]),
        (FLOAT, [0.1, 0.2, 0.3, math.nan, 0.5, 0.6], "a < 0.25", [0]),
        (DOUBLE, [-1.0, -0.0, 0.0, 1.0, 2.0, math.nan], "a = 0", [0, 1]),
        (DATE, [DAY.date() + timedelta(days=n) for n in range(6)], "a = '2024-03-01'", [1]),
        (
            TIMESTAMP,
            [DAY + timedelta(hours=n) for n in range(6)],
            "a >= '2024-02-28T04:00:00Z'",
            [2],
        ),
        (
            TIMESTAMP_NTZ,
            [datetime(2024, 2, 28, n) for n in range(6)],
            "a < timestamp_ntz '2024-02-28 02:00:00'",
            [0],
        ),
        (DecimalType(9, 2), [Decimal(n) / 2 for n in range(6)], "a > 2.1", [2]),
        (DecimalType(30, 2), [Decimal(n) / 2 for n in range(-3, 3)], "a <= -1.00", [0]),
    ],
)
def test_a_group_whose_bounds_rule_it_out_is_not_read(
    data_type: DataType, values: list[Any], condition: str, groups: list[int]
) -> None:
    schema = one(data_type)
    rows = pa.table({"a": list(values)}, schema=arrow_schema(schema))
    for options in ({}, {"store_decimal_as_integer": True}):
        assert read_groups(parquet(rows, 2, **options), condition, schema) == groups


def test_nan_keeps_its_group() -> None:
    rows = pa.table({"a": [1.0, math.nan, 3.0, 4.0]})
    assert read_groups(parquet(rows, 2), "a > 9", one(DOUBLE)) == [0, 1]


def test_columns_without_statistics_keep_every_group() -> None:
    rows = pa.table({"a": [1, 2, 3, 4], "b": [b"a", b"b", b"c", b"d"]})
    assert read_groups(parquet(rows, 2, write_statistics=False), "a = 1", one(LONG)) == [0, 1]
    old = pa.table({"a": pa.array([DAY] * 4, pa.timestamp("us", "UTC"))})
    file = parquet(old, 2, use_deprecated_int96_timestamps=True)
    assert read_groups(file, "a < '2000-01-01'", one(TIMESTAMP)) == [0, 1]


def test_bounds_follow_a_type_that_was_widened() -> None:
    narrow = pa.table({"a": pa.array(range(4), pa.int32())})
    for wide in (LONG, DOUBLE, DecimalType(12, 2)):
        assert read_groups(parquet(narrow, 2), "a <= 1", one(wide)) == [0]
    days = pa.table({"a": [date(2024, 1, n) for n in range(1, 5)]})
    condition = "a > timestamp_ntz '2024-01-02 00:00:00'"
    assert read_groups(parquet(days, 2), condition, one(TIMESTAMP_NTZ)) == [1]
    unsigned = pa.table({"a": pa.array([1, 2, 3, 4], pa.uint32())})
    assert read_groups(parquet(unsigned, 2), "a > 3", one(LONG)) == [0, 1]


def test_a_leaf_that_the_file_lacks_is_not_mistaken_for_its_neighbour() -> None:
    inner = StructType((StructField("b", LONG), StructField("c", LONG)))
    schema = one(inner).add(StructField("z", LONG))
    rows = pa.table({"y": [1, 2], "a": [{"c": 1}, {"c": 2}], "z": [7, 8]})
    file = parquet(rows, 1)
    assert read_groups(file, "a.b = 9", schema) == [0, 1]
    assert read_groups(file, "a.c = 2", schema) == [1]
    assert read_groups(file, "z = 7 AND a.b IS NULL", schema) == [0]


def test_physical_names_lead_to_the_columns() -> None:
    metadata = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-x"}
    schema = StructType((StructField("a", LONG, True, metadata),))
    file = parquet(pa.table({"a": [9, 9], "col-x": [1, 2]}), 1)
    predicate = bound_filter("a = 2", schema)
    assert row_groups_to_read(file, predicate, ColumnMappingMode.NAME) == [False, True]


def test_vectors_count_the_rows_of_groups_that_are_not_read() -> None:
    store = MemoryStore("groups")
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": range(9)}), sink, row_group_size=3)
    store.create("f", sink.getvalue())
    found = read_rows(
        store,
        "f",
        one(LONG),
        vector=DeletionVector([0, 4, 8]),
        batch_size=2,
        chosen=lambda _: [False, True, True],
    )
    assert [value for rows in found for value in rows.columns[0].to_pylist()] == [3, 5, 6, 7]
    counted = read_rows(
        store, "f", StructType(()), batch_size=2, chosen=lambda _: [True, False, True]
    )
    assert [rows.num_rows for rows in counted] == [2, 1, 2, 1]


def test_a_table_is_read_by_the_groups_that_may_match(table_path: Path) -> None:
    rows = pa.table({"id": range(100), "p": ["x"] * 100})
    vectors = {"delta.enableDeletionVectors": "true"}
    log = create_table(table_path, rows.schema, partition_by=["p"], configuration=vectors)
    append(log, rows)
    delete_positions(log, lambda file: [55])
    (path,) = table_path.glob("**/*.parquet")
    with pq.ParquetWriter(path, rows.schema, compression="none") as writer:
        writer.write_table(rows, row_group_size=10)
    last = pq.read_metadata(path).row_group(9).column(0)
    content = bytearray(path.read_bytes())
    # Only what is not read can be broken without anybody noticing.
    start = last.dictionary_page_offset or last.data_page_offset
    content[start : start + last.total_compressed_size] = b"?" * last.total_compressed_size
    path.write_bytes(content)
    found = log.update().to_table(filter="id BETWEEN 54 AND 56 AND p = 'x'")
    assert found.column("id").to_pylist() == [54, 56]
    with pytest.raises(DataFileError):
        log.update().to_table()


@settings(max_examples=60)
@given(
    values=st.lists(st.one_of(st.none(), st.integers(-3, 3)), min_size=1, max_size=12),
    per_group=st.integers(1, 4),
    condition=st.sampled_from(
        ["a > 0", "a <= -2", "a = 1", "a <> 1", "a <=> NULL", "NOT (a IN (0, 1))", "a IS NULL"]
    ),
)
def test_no_row_that_is_wanted_is_lost(
    values: list[int | None], per_group: int, condition: str
) -> None:
    schema = one(INTEGER)
    rows = pa.table({"a": pa.array(values, pa.int32())})
    predicate = bound_filter(condition, schema)
    wanted = evaluate(predicate, rows).to_pylist()
    mask = row_groups_to_read(parquet(rows, per_group), predicate)
    for place, is_read in enumerate(mask):
        if not is_read:
            assert True not in wanted[place * per_group : (place + 1) * per_group]
