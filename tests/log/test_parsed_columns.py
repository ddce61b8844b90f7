"""Statistics and partition values as typed columns: exact where possible, null otherwise."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delta.kernel.log.checkpoints.parsed_columns import (
    parse_partition_values,
    typed_stats,
)
from pyspark_delta.kernel.protocol.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIMESTAMP,
    DataType,
    DecimalType,
    StructField,
    StructType,
)

VALUES = pa.struct(
    [
        ("b", pa.int8()),
        ("f", pa.float32()),
        ("d", pa.decimal128(6, 2)),
        ("t", pa.timestamp("us", "UTC")),
        ("n", pa.timestamp("us")),
        ("day", pa.date32()),
        ("s", pa.string()),
        ("in", pa.struct([("q", pa.int64())])),
    ]
)
WANTED = pa.struct([("numRecords", pa.int64()), ("minValues", VALUES), ("tightBounds", pa.bool_())])
GOOD = json.dumps(
    {
        "numRecords": 5,
        "minValues": {
            "b": 3,
            "f": 1.5,
            "d": 12.34,
            "t": "2024-01-01T00:00:00.123+05:30",
            "n": "2024-01-01T00:00:00.123456",
            "day": "2024-02-29",
            "s": "é\x1f😀",
            "in": {"q": 9, "unknown": []},
        },
        "tightBounds": False,
        "later": {"a": [1, "x"]},
    }
)


def parsed(*texts: str | None) -> list[Any]:
    return typed_stats(pa.array(texts, pa.string()), WANTED).to_pylist()  # type: ignore[no-any-return]


def bound(name: str, raw: str) -> Any:
    """What a bound becomes, read fast or slowly: the broken line forces the slow way."""
    text = f'{{"minValues":{{"{name}":{raw}}}}}'
    fast = parsed(text)[0]
    slow = parsed(text, "broken")[0]
    assert repr(fast) == repr(slow)
    return None if fast is None or fast["minValues"] is None else fast["minValues"][name]


def test_every_type_is_read() -> None:
    assert parsed(GOOD, None, "{}") == [
        {
            "numRecords": 5,
            "minValues": {
                "b": 3,
                "f": 1.5,
                "d": Decimal("12.34"),
                "t": datetime(2023, 12, 31, 18, 30, 0, 123000, UTC),
                "n": datetime(2024, 1, 1, 0, 0, 0, 123456),
                "day": date(2024, 2, 29),
                "s": "é\x1f😀",
                "in": {"q": 9},
            },
            "tightBounds": False,
        },
        None,
        {"numRecords": None, "minValues": None, "tightBounds": None},
    ]


@pytest.mark.parametrize(
    ("name", "raw", "value"),
    [
        ("b", "127", 127),
        ("b", "128", None),
        ("b", "1.0", 1),
        ("b", "1.5", None),
        ("b", '"1"', None),
        ("b", "true", None),
        ("f", "1", 1.0),
        ("f", '"Infinity"', math.inf),
        ("f", '"x"', None),
        ("d", "12", Decimal("12.00")),
        ("d", "12.345", None),  # rounding would make it no bound
        ("d", "99999.5", None),
        ("d", '"1.5"', Decimal("1.50")),
        ("d", "true", None),
        ("t", '"2024-01-01T00:00:00Z"', datetime(2024, 1, 1, tzinfo=UTC)),
        # Zones of the 19th century have seconds.
        ("t", '"1850-01-01T00:00:00.5-07:52:58"', datetime(1850, 1, 1, 7, 52, 58, 500000, UTC)),
        ("t", '"yesterday"', None),
        ("t", "5", None),
        ("n", '"2024-01-01"', datetime(2024, 1, 1)),  # a column that was a date before
        ("day", '"2024-13-01"', None),
        ("day", "7", None),
        ("s", '"\\ud83d\\ude00"', "😀"),
        ("s", '"\\ud83d"', None),
        ("s", "1", None),
        ("in", "[]", None),
    ],
)
def test_a_value_fits_or_is_null(name: str, raw: str, value: Any) -> None:
    assert bound(name, raw) == value


def test_nan_is_kept_as_such() -> None:
    assert math.isnan(bound("f", '"NaN"'))


def test_a_year_beyond_pythons_is_kept() -> None:
    stats = pa.array(['{"minValues":{"day":"+10000-01-01"}}'])
    days = typed_stats(stats, WANTED).field("minValues").field("day")
    assert days.cast(pa.int32()).to_pylist() == [2932897]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "broken",
        "[]",
        "5",
        '"x"',
        "null",
        '{"numRecords":1}{"numRecords":2}',
        "{}}\n{",
        "{",
    ],
)
def test_a_text_that_is_no_object_shifts_no_other_row(text: str) -> None:
    rows = parsed('{"numRecords":1}', text, '{"numRecords":3}', "", '{"numRecords":5}')
    assert [row and row["numRecords"] for row in rows] == [1, None, 3, None, 5]


def test_a_few_broken_rows_among_many_cost_only_themselves() -> None:
    texts: list[str | None] = [GOOD] * 3000
    texts[7], texts[1500], texts[2999] = "broken", None, '{"numRecords":1e2}'
    rows = parsed(*texts)
    good = parsed(GOOD)[0]
    assert sum(row == good for row in rows) == 2997
    assert rows[7] is rows[1500] is None
    assert rows[2999]["numRecords"] == 100


def test_a_value_nested_very_deeply_is_survived() -> None:
    deep = '{"numRecords":1,"x":' + "[" * 100_000 + "]" * 100_000 + "}"
    assert parsed(deep)[0]["numRecords"] == 1
    assert parsed(deep, "broken") == [None, None]


def test_no_rows_are_no_rows() -> None:
    assert parsed() == []


@given(st.lists(st.text(max_size=12) | st.just('{"numRecords":7}') | st.none(), max_size=6))
def test_rows_keep_their_place_whatever_the_texts(texts: list[str | None]) -> None:
    rows = parsed(*texts)
    assert len(rows) == len(texts)
    for text, row in zip(texts, rows, strict=True):
        if text == '{"numRecords":7}':
            assert row["numRecords"] == 7


@pytest.mark.parametrize(
    ("data_type", "arrow", "texts", "values"),
    [
        (INTEGER, pa.int32(), ["1", "", None, "x", "007"], [1, None, None, None, 7]),
        (STRING, pa.string(), ["a", "", None], ["a", None, None]),
        (BOOLEAN, pa.bool_(), ["true", "FALSE", "x"], [True, False, None]),
        (BINARY, pa.binary(), ["é"], ["é".encode()]),
        (DOUBLE, pa.float64(), ["1.5", "-Infinity"], [1.5, -math.inf]),
        (DecimalType(5, 2), pa.decimal128(5, 2), ["1.5", "1.555"], [Decimal("1.50"), None]),
        (DATE, pa.date32(), ["2024-01-02", "2024-1-2"], [date(2024, 1, 2), date(2024, 1, 2)]),
        (
            TIMESTAMP,
            pa.timestamp("us", "UTC"),
            ["2024-01-02 03:04:05", "2024-01-02T03:04:05.000000Z"],
            [datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)] * 2,
        ),
    ],
)
def test_partition_values_have_their_columns_type(
    data_type: DataType, arrow: pa.DataType, texts: list[str | None], values: list[Any]
) -> None:
    maps = [[("other", "z"), ("col-1", text)] for text in texts]
    column = pa.array([*maps, []], pa.map_(pa.string(), pa.string()))
    schema = StructType((StructField("col-1", data_type),))
    found = parse_partition_values(column, schema, pa.struct([("col-1", arrow)]))
    assert [row["col-1"] for row in found.to_pylist()] == [*values, None]
