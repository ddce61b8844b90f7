"""The rows of one data file: deleted ones left out, damaged files refused."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_delta.errors import DataFileError, DeletionVectorError, DeltaError, StorageError
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector
from pyspark_delta.kernel.protocol.types import (
    LONG,
    STRING,
    TIMESTAMP,
    ArrayType,
    StructField,
    StructType,
)
from pyspark_delta.kernel.scan.arrow_reader import read_rows
from pyspark_delta.kernel.storage.memory import MemoryStore

PATH = "tä ble 100%/a b.parquet"
SCHEMA = StructType((StructField("id", LONG), StructField("v", STRING)))


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def numbered(rows: int, **options: Any) -> bytes:
    table = pa.table({"id": range(rows), "v": [f"v{i}" for i in range(rows)]})
    return parquet(table, **options)


def stored(data: bytes) -> MemoryStore:
    store = MemoryStore()
    store.create(PATH, data)
    return store


def ids(data: bytes, schema: StructType = SCHEMA, **options: Any) -> list[Any]:
    rows = read_rows(stored(data), PATH, schema, **options)
    return [value for _, columns in rows for value in columns[0].to_pylist()]


def test_a_deletion_vector_means_rows_of_the_file_across_row_groups() -> None:
    gone = [0, 1, 99, 100, 101, 250, 299, 300, 949]
    found = ids(numbered(950, row_group_size=100), vector=DeletionVector(gone), batch_size=64)
    assert found == [i for i in range(950) if i not in gone]


@settings(max_examples=40)
@given(
    rows=st.integers(1, 60),
    gone=st.sets(st.integers(0, 59)),
    group=st.integers(1, 25),
    batch=st.integers(1, 25),
)
def test_any_vector_over_any_layout_leaves_exactly_the_other_rows(
    rows: int, gone: set[int], group: int, batch: int
) -> None:
    gone = {row for row in gone if row < rows}
    data = numbered(rows, row_group_size=group)
    found = ids(data, vector=DeletionVector(gone), batch_size=batch)
    assert found == [i for i in range(rows) if i not in gone]


def test_a_batch_whose_rows_are_all_gone_is_left_out() -> None:
    store = stored(numbered(10, row_group_size=5))
    rows = list(read_rows(store, PATH, SCHEMA, vector=DeletionVector(range(5))))
    assert [count for count, _ in rows] == [5]


def test_a_vector_with_a_row_beyond_the_file_is_refused() -> None:
    with pytest.raises(DeletionVectorError) as caught:
        ids(numbered(3), vector=DeletionVector([3]))
    assert caught.value.condition == "DELTA_DELETION_VECTOR_INVALID_ROW_INDEX"


@pytest.mark.parametrize("schema", [StructType(), StructType((StructField("new", STRING),))])
def test_rows_are_counted_without_reading_a_column(schema: StructType) -> None:
    store = stored(numbered(10, row_group_size=4))
    rows = list(read_rows(store, PATH, schema, vector=DeletionVector([2, 7]), batch_size=4))
    assert [count for count, _ in rows] == [3, 3, 2]
    assert all(array.null_count == count for count, columns in rows for array in columns)


def test_no_batch_is_larger_than_asked_for() -> None:
    store = stored(numbered(100, row_group_size=100))
    assert [count for count, _ in read_rows(store, PATH, SCHEMA, batch_size=40)] == [40, 40, 20]


def test_a_file_of_no_rows_gives_none() -> None:
    assert ids(numbered(0)) == []


def test_int96_holds_years_that_nanoseconds_cannot() -> None:
    moments = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC), None]
    table = pa.table({"at": pa.array(moments, pa.timestamp("us", "UTC"))})
    data = parquet(table, use_deprecated_int96_timestamps=True, store_schema=False)
    schema = StructType((StructField("at", TIMESTAMP),))
    assert ids(data, schema) == moments


def test_a_missing_file_is_named() -> None:
    with pytest.raises(DataFileError) as caught:
        list(read_rows(MemoryStore(), PATH, SCHEMA))
    assert caught.value.condition == "DELTA_FILE_NOT_FOUND"
    assert caught.value.parameters["path"].endswith("/t%C3%A4%20ble%20100%25/a%20b.parquet")


def unreadable(data: bytes, schema: StructType = SCHEMA) -> str:
    with pytest.raises(DataFileError) as caught:
        ids(data, schema)
    assert caught.value.condition == "DELTA_DATA_FILE_UNREADABLE"
    assert caught.value.parameters["path"].endswith("a%20b.parquet")
    return caught.value.parameters["reason"]


def test_a_file_that_is_not_parquet_is_named() -> None:
    assert unreadable(b"")
    assert unreadable(b"no parquet at all, but long enough to be one")
    assert unreadable(b"PAR1" + (2**31 - 1).to_bytes(4, "little") + b"PAR1")


def test_a_column_of_another_type_is_named() -> None:
    reason = unreadable(parquet(pa.table({"id": ["x"], "v": ["y"]})))
    assert "column id is bigint in the table and string in it" in reason


def test_a_value_that_does_not_fit_is_named() -> None:
    assert unreadable(parquet(pa.table({"v": [b"\xff"]})))


def test_an_encrypted_or_foreign_footer_is_named() -> None:
    data = numbered(3)
    assert unreadable(data[:-4] + b"PARE")


NESTED = StructType(
    (
        StructField("id", LONG),
        StructField("l", ArrayType(StructType((StructField("x", LONG), StructField("y", STRING))))),
    )
)


def nested_file() -> bytes:
    rows = [{"id": i, "l": [{"x": i, "y": "t" * (i % 5)}] * (i % 3)} for i in range(200)]
    return parquet(pa.Table.from_pylist(rows), row_group_size=70, write_page_checksum=True)


@settings(max_examples=300)
@given(
    at=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=3),
    byte=st.integers(0, 255),
    cut=st.none() | st.floats(0, 1),
)
def test_a_damaged_file_gives_the_right_rows_or_a_typed_error(
    at: list[float], byte: int, cut: float | None
) -> None:
    damaged = bytearray(NESTED_FILE)
    for place in at:
        damaged[int(place * len(damaged))] = byte
    if cut is not None:
        damaged = damaged[: int(cut * len(damaged))]
    try:
        found = ids(bytes(damaged), NESTED)
    except DeltaError:
        return
    assert found == list(range(200))


NESTED_FILE = nested_file()


def test_a_footer_that_claims_endless_rows_is_refused() -> None:
    data = bytearray(numbered(3))
    length = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - length : -8]
    # Rows are counted in zigzag: 3 is 6.  The file's count and the group's stand one of each.
    for at in range(len(footer)):
        if footer[at] != 6:
            continue
        for other in range(at + 1, len(footer)):
            if footer[other] == 6:
                endless = bytes(footer[:other]) + ENDLESS + bytes(footer[other + 1 :])
                endless = endless[:at] + ENDLESS + endless[at + 1 :]
                claimed = bytes(data[: -8 - length]) + endless
                claimed += len(endless).to_bytes(4, "little") + b"PAR1"
                try:
                    ids(claimed, StructType())
                except DataFileError as error:
                    if "rows are in" in error.parameters["reason"]:
                        return
    pytest.fail("no footer claimed endless rows")


ENDLESS = b"\xfe" + b"\xff" * 7 + b"\x7f"


def test_a_file_that_shrinks_while_it_is_read_is_an_error() -> None:
    store = stored(numbered(20_000, row_group_size=5_000, compression="none"))
    rows = read_rows(_Shrinking(store), PATH, SCHEMA, batch_size=1_000)
    assert next(rows).num_rows == 1_000
    with pytest.raises(DeltaError):
        list(rows)


class _Shrinking(MemoryStore):
    """Serves the first reads, then no more bytes."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__()
        self._inner = inner
        self._reads = 0

    def size(self, path: str) -> int:
        return self._inner.size(path)

    def read_range(self, path: str, start: int, length: int) -> bytes:
        self._reads += 1
        if self._reads > 4:
            raise StorageError(operation="read", path=path, reason="it ended early")
        return self._inner.read_range(path, start, length)

    def arrow_file(self, path: str) -> Any:
        return super(MemoryStore, self).arrow_file(path)
