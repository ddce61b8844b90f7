"""Nulls of arrays and maps by the definition levels that a footer counts."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delta.kernel.ops.footers.level_histograms import null_counts

_LISTS = st.none() | st.lists(st.none() | st.integers(0, 9), max_size=3)
_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "a": _LISTS,
            "s": st.none()
            | st.fixed_dictionaries({"x": st.none() | st.integers(0, 9), "l": _LISTS}),
            "n": st.none() | st.lists(_LISTS, max_size=2),
        }
    ),
    max_size=12,
)
_SCHEMA = pa.schema(
    [
        ("a", pa.list_(pa.int32())),
        ("s", pa.struct([("x", pa.int32()), ("l", pa.list_(pa.int32()))])),
        ("n", pa.list_(pa.list_(pa.int32()))),
    ]
)
# The number of a leaf below the column, and how many names lead to the column.
_COLUMNS = [(0, 1), (2, 2), (3, 1)]


def written(table: pa.Table, **options: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def counted(file: bytes, columns: list[tuple[int, int]]) -> list[int | None]:
    source = pa.BufferReader(file)
    return null_counts(source, pq.read_metadata(source), columns)


@given(_ROWS, st.integers(1, 5))
def test_the_nulls_of_a_collection_are_told_from_nulls_in_it_and_empty_ones(
    rows: list[dict[str, object]], group: int
) -> None:
    table = pa.Table.from_pylist(rows, _SCHEMA)
    file = written(table, row_group_size=group)
    structs = [row["s"] for row in rows]
    assert counted(file, _COLUMNS) == [
        sum(row["a"] is None for row in rows),
        sum(not isinstance(s, dict) or s["l"] is None for s in structs),
        sum(row["n"] is None for row in rows),
    ]


def test_a_column_that_cannot_be_null_has_none() -> None:
    schema = pa.schema([pa.field("a", pa.list_(pa.int32()), nullable=False)])
    table = pa.table([pa.array([[None], []], schema.field(0).type)], schema=schema)
    assert counted(written(table), [(0, 1)]) == [0]


def test_values_that_look_like_a_column_are_none() -> None:
    path = b"\x19\x38\x01a\x04list\x07element"
    for value in (path, path + b"\x15\x02\x16\x04\0", path * 3):
        table = pa.table({"b": [value, value], "a": [None, [1, None]], "c": [value, value]})
        for group in (1, 2):
            assert counted(written(table, row_group_size=group), [(1, 1)]) == [1]


def test_a_footer_that_cannot_be_read_tells_nothing() -> None:
    whole = written(pa.table({"a": [[1], None]}))
    known, blank = pq.read_metadata(pa.BufferReader(whole)), b"\xff" * len(whole)
    for damaged in (b"", whole[-8:], blank + whole[-8:], b"\0" * 40):
        assert null_counts(pa.BufferReader(damaged), known, [(0, 1)]) == [None]
    assert null_counts(pa.BufferReader(whole), known, [(7, 1)]) == [None]
