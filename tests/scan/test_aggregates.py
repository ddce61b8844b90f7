"""What the log alone says of rows: exact, or nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delta.kernel.protocol.actions import AddFile
from pyspark_delta.kernel.protocol.types import (
    BYTE,
    DATE,
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    DataType,
)
from pyspark_delta.kernel.scan.aggregates import Aggregate, AggregateKind, aggregates_from_log
from pyspark_delta.kernel.scan.plan import bound_filter
from pyspark_delta.kernel.storage.memory import MemoryStore
from tests.support.checkpoints import checkpoint
from tests.support.data_tables import VECTORS, DataTable
from tests.support.log_builder import add
from tests.support.schemas import struct

KINDS: dict[str, DataType] = {
    "id": LONG,
    "b": BYTE,
    "d": DATE,
    "s": STRING,
    "x": DOUBLE,
    "t": TIMESTAMP,
    "p": LONG,
    "q": STRING,
}
SCHEMA = struct(**KINDS)
ROWS = Aggregate(kind=AggregateKind.COUNT)


def of(question: str, column: str) -> Aggregate:
    return Aggregate(kind=AggregateKind(question), column=column)


def stats(rows: int | None = 10, nulls: int | None = 0, **bounds: tuple[Any, Any]) -> str:
    told: dict[str, Any] = {} if rows is None else {"numRecords": rows}
    told["minValues"] = {name: low for name, (low, _) in bounds.items()}
    told["maxValues"] = {name: high for name, (_, high) in bounds.items()}
    if nulls is not None:
        told["nullCount"] = dict.fromkeys(bounds, nulls)
    return json.dumps(told)


def file(
    name: str, text: str | None, p: str | None = "1", q: str | None = "a", **more: Any
) -> AddFile:
    return add(name, partition_values={"p": p, "q": q}, stats=text, **more)


def table_of(*adds: AddFile) -> DataTable:
    store = MemoryStore(None, "tä ble 100%")
    return DataTable(store, SCHEMA, ["p", "q"], features=VECTORS).commit(*adds)


def told(table: DataTable, *asked: Aggregate, where: str | None = None) -> list[object] | None:
    answers = aggregates_from_log(table.snapshot, bound_filter(where, SCHEMA), asked)
    return None if answers is None else list(answers.values)


def test_rows_are_counted_and_whole_numbers_and_dates_have_a_least_and_a_greatest() -> None:
    table = table_of(
        file("a", stats(id=(3, 7), d=("2024-02-29", "2024-03-01"), b=(-128, 5))),
        file("b", stats(5, id=(-2, 4), d=("1969-12-31", "1970-01-01"), b=(0, 127))),
    )
    asked = [ROWS, of("min", "id"), of("max", "id"), of("min", "d"), of("max", "b")]
    assert told(table, *asked) == [15, -2, 7, -1, 127]
    assert told(table, of("min", "b"), of("count", "id")) == [-128, 15]


def test_a_checkpoint_tells_the_same() -> None:
    table = table_of(file("a", stats(id=(3, 7), d=("2024-02-29", "2024-03-01"))))
    asked = [ROWS, of("min", "id"), of("max", "d"), of("count", "id"), of("max", "q")]
    before = told(table, *asked)
    checkpoint(table.store)
    assert told(table, *asked) == before == [10, 3, 19783, 10, "a"]


def test_a_table_without_files_has_no_rows() -> None:
    assert told(table_of(), ROWS, of("min", "id"), of("max", "p")) == [0, None, None]


def test_partition_values_count_only_where_there_are_rows() -> None:
    table = table_of(
        file("a", stats(), "3", "ä"),
        file("b", stats(2), None, "z"),
        file("c", stats(0), "9", "ÿ"),
    )
    asked = [ROWS, of("max", "p"), of("min", "q"), of("max", "q"), of("count", "p")]
    assert told(table, *asked) == [12, 3, "z", "ä", 10]


def test_a_filter_on_partitions_chooses_files() -> None:
    table = table_of(
        file("a", stats(id=(1, 2)), "1"), file("b", None, "2"), file("c", stats(3, id=(8, 9)), "3")
    )
    assert told(table, ROWS) is None
    assert told(table, ROWS, of("min", "id"), where="p <> 2") == [13, 1]
    assert told(table, ROWS, of("min", "id"), where="p > 2") == [3, 8]
    assert told(table, ROWS, of("min", "id"), where="p > 7") == [0, None]


@pytest.mark.parametrize("column", ["s", "x", "t"])
def test_bounds_that_may_be_cut_or_lack_a_value_are_no_answer(column: str) -> None:
    bounds = {"s": ("a", "b"), "x": (0.5, 1.5), "t": ("2024-01-01T00:00:00.000Z",) * 2}
    table = table_of(file("a", stats(**{column: bounds[column]})))
    assert told(table, of("max", column)) is None
    assert told(table, of("count", column)) == [10]


def test_what_is_not_told_of_one_file_is_not_answered() -> None:
    known = file("a", stats(id=(1, 2)))
    assert told(table_of(known, file("b", stats(None, id=(1, 2)))), ROWS) is None
    for unknown in (stats(nulls=None, id=(1, None)), stats(nulls=3, id=(1, None)), stats()):
        table = table_of(known, file("b", unknown))
        assert told(table, ROWS) == [20]
        assert told(table, of("max", "id")) is None
    assert told(table_of(known, file("b", stats(nulls=None, id=(1, 2)))), of("count", "id")) is None


def test_a_file_of_nulls_has_no_bounds_and_hides_none() -> None:
    table = table_of(file("a", stats(id=(1, 2))), file("b", stats(nulls=10, id=(None, None))))
    assert told(table, of("min", "id"), of("max", "id"), of("count", "id")) == [1, 2, 10]


def test_rows_that_a_vector_hides_are_not_counted_and_bounds_are_wider_then() -> None:
    table = table_of(file("a", stats(id=(1, 2)), vector="v"), file("b", stats(id=(5, 6))))
    assert told(table, ROWS, of("max", "p")) == [18, 1]
    assert told(table, of("max", "id")) is None
    assert told(table, of("count", "id")) is None


def test_bounds_that_say_they_are_wide_are_no_answer() -> None:
    text = json.dumps({**json.loads(stats(id=(1, 2))), "tightBounds": False})
    assert told(table_of(file("a", text)), ROWS) == [10]
    assert told(table_of(file("a", text)), of("max", "id")) is None
    tight = json.dumps({**json.loads(stats(id=(1, 2))), "tightBounds": True})
    assert told(table_of(file("a", tight)), of("max", "id")) == [2]


@pytest.mark.parametrize(
    "text",
    ["", "?", "[]", '{"numRecords":-1}', '{"numRecords":"5"}', '{"numRecords":1.5}'],
)
def test_statistics_that_make_no_sense_are_no_answer(text: str) -> None:
    assert told(table_of(file("a", text)), ROWS) is None


def test_a_value_that_its_column_cannot_hold_is_no_answer() -> None:
    assert told(table_of(file("a", stats(b=(1, 128)))), of("max", "b")) is None
    assert told(table_of(file("a", stats(nulls=11, id=(1, 2)))), of("count", "id")) is None


@given(
    st.lists(
        st.tuples(
            st.lists(st.one_of(st.none(), st.integers(-5, 5)), max_size=4),
            st.sampled_from(["1", "2", None]),
        ),
        max_size=5,
    ),
    st.sampled_from([None, "p = 1", "p IS NULL", "p > 1 OR p IS NULL"]),
)
def test_answers_are_those_of_the_rows(
    files: list[tuple[list[int | None], str | None]], where: str | None
) -> None:
    passes = {
        None: lambda p: True,
        "p = 1": lambda p: p == "1",
        "p IS NULL": lambda p: p is None,
        "p > 1 OR p IS NULL": lambda p: p in ("2", None),
    }[where]
    adds = []
    for i, (rows, p) in enumerate(files):
        values = [value for value in rows if value is not None]
        bounds = (min(values, default=None), max(values, default=None))
        adds.append(file(str(i), stats(len(rows), len(rows) - len(values), id=bounds), p))
    left = [value for rows, p in files if passes(p) for value in rows]
    values = [value for value in left if value is not None]
    asked = [ROWS, of("count", "id"), of("min", "id"), of("max", "id")]
    expected = [len(left), len(values), min(values, default=None), max(values, default=None)]
    assert told(table_of(*adds), *asked, where=where) == expected
