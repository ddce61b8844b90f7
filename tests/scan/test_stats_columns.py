"""Statistics as columns: what is read, what is widened, what is left alone when broken."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    DecimalType,
    StructField,
    StructType,
)
from pyspark_delta.kernel.scan.predicates.literals import cast_text
from pyspark_delta.kernel.scan.skipping.stats_bounds import Side, bound, struct_bound
from pyspark_delta.kernel.scan.skipping.stats_table import (
    NUM_RECORDS,
    StatsLeaf,
    leaf_stats,
    stats_leaves,
    struct_stats,
)
from tests.support.predicate_model import parse_for_skipping

MILLISECOND = 1_000
SECOND = 1_000_000


def leaf(data_type: DataType = LONG, *path: str) -> StatsLeaf:
    place = path or ("x",)
    return StatsLeaf(path=place, physical_path=place, data_type=data_type, is_ordered=True)


def stats_of(low: Any, high: Any, *, nulls: Any = 0, records: Any = 10, name: str = "x") -> str:
    return json.dumps(
        {
            "numRecords": records,
            "minValues": {name: low},
            "maxValues": {name: high},
            "nullCount": {name: nulls},
        }
    )


def parsed(texts: list[str | None], *leaves: StatsLeaf) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = leaf_stats(
        pa.chunked_array([texts], pa.string()), leaves or [leaf()]
    ).to_pylist()
    return rows


def bounds(data_type: DataType, low: Any, high: Any) -> tuple[Any, Any]:
    (row,) = parsed([stats_of(low, high)], leaf(data_type))
    return row["minValues x"], row["maxValues x"]


def micros(text: str) -> int:
    found = cast_text(text, TIMESTAMP)
    assert isinstance(found, int)
    return found


# Which columns are looked for.


def metadata(schema: StructType, *partitions: str, mode: str = "none") -> Metadata:
    return Metadata(
        id="m",
        schema_string=format_schema(schema),
        partition_columns=partitions,
        configuration={"delta.columnMapping.mode": mode},
    )


def test_only_columns_with_statistics_are_leaves() -> None:
    schema = StructType(
        (
            StructField("P", LONG),
            StructField("n", LONG),
            StructField("list", ArrayType(LONG)),
            StructField("s", StructType((StructField("x", INTEGER),))),
            StructField("bin", BINARY),
            StructField("code", STRING, metadata={"__CHAR_VARCHAR_TYPE_STRING": "char(2)"}),
        )
    )
    predicate = parse_for_skipping(
        "p = 1 AND N = 1 AND n < 5 AND list IS NULL AND s IS NULL AND s.X = 1 AND bin = X'00'"
        " AND code LIKE 'x%' AND nowhere = 1 AND unsupported",
        schema,
    )
    found = stats_leaves(predicate, metadata(schema, "P"))
    assert [(each.path, each.is_ordered) for each in found] == [
        (("n",), True),
        (("list",), False),
        (("s", "x"), True),
        (("bin",), False),
        (("code",), False),
    ]


def test_statistics_have_physical_names() -> None:
    def mapped(name: str, kind: DataType, number: int) -> StructField:
        keys = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"c-{number}"}
        return StructField(name, kind, metadata=keys)

    schema = StructType((mapped("s", StructType((mapped("x.y", LONG, 2),)), 1),))
    predicate = parse_for_skipping("s.`x.y` > 1", schema)
    (found,) = stats_leaves(predicate, metadata(schema, mode="name"))
    assert found.physical_path == ("c-1", "c-2")
    text = '{"minValues":{"c-1":{"c-2":5}},"maxValues":{"s":{"x.y":9},"c-1":{"c-2":7}}}'
    (row,) = parsed([text], found)
    assert (row["minValues s.`x.y`"], row["maxValues s.`x.y`"]) == (5, 7)


# What is read.


def test_counts_and_bounds_come_out_of_the_json() -> None:
    row = {"numRecords": 10, "tightBounds": None}
    row |= {"nullCount x": 2, "minValues x": -5, "maxValues x": 7}
    assert parsed([stats_of(-5, 7, nulls=2)]) == [row]
    spaced = json.dumps(json.loads(stats_of(-5, 7, nulls=2)), indent=2) + "\n"
    assert parsed([spaced, stats_of(-5, 7, nulls=2)]) == [row, row]
    assert leaf_stats(pa.chunked_array([["{}", spaced]]), []).column(NUM_RECORDS).to_pylist() == [
        None,
        10,
    ]


def test_no_files_are_no_trouble() -> None:
    assert parsed([]) == []
    assert leaf_stats(pa.chunked_array([], pa.string()), [leaf(DATE)]).num_rows == 0
    assert struct_stats(pa.chunked_array([], pa.struct([])), [leaf(DATE)]).num_rows == 0


NOTHING = {
    "numRecords": None,
    "tightBounds": None,
    "nullCount x": None,
    "minValues x": None,
    "maxValues x": None,
}
BROKEN = [
    None,
    "",
    "   ",
    "{",
    "}",
    "null",
    "[]",
    "5",
    '"x"',
    "not JSON",
    '{"numRecords":1}{"numRecords":2}',
    '{"numRecords":1}\n{"numRecords":2}',
    '{"numRecords":',
    '{"minValues":{"x":',
    '{}}{"r":{}',
    '{"minValues":{"x":"\n"}}',
    "[" * 100_000,
    '{"numRecords":"many","minValues":[],"maxValues":5,"nullCount":{"x":{}}}',
    '{"minValues":{"x":{"y":1}},"maxValues":{"x":[1]},"nullCount":{"x":true}}',
    '{"minValues":{"x":1.5},"maxValues":{"x":1e400},"nullCount":{"x":1.5}}',
    '{"minValues":{"x":99999999999999999999},"maxValues":{"x":"7"},"nullCount":null}',
    '{"numRecords":' + "9" * 5_000 + "}",
    '{"numRecords":1e999999999999999999}',
]


@pytest.mark.parametrize("broken", BROKEN, ids=repr)
def test_broken_statistics_say_nothing_and_disturb_no_other_file(broken: str | None) -> None:
    sound = stats_of(1, 2)
    (good,) = parsed([sound])
    assert parsed([broken]) == [NOTHING]
    assert parsed([sound, broken, sound]) == [good, NOTHING, good]


def test_broken_statistics_cannot_shift_the_others() -> None:
    # Two objects in one text, and none in another: as many as there are files, but not theirs.
    texts = ["{}{}", "", stats_of(1, 2), "{}}\n{", stats_of(3, 4)]
    found = [row["minValues x"] for row in parsed(list(texts))]
    assert found == [None, None, 1, None, 3]


def test_many_files_with_one_that_is_broken() -> None:
    texts: list[str | None] = [stats_of(n, n + 1) for n in range(5_000)]
    texts[1_234] = '{"minValues":{"x":"NaN"}}'
    texts[4_999] = "?"
    chunks = pa.chunked_array([texts[:100], [], texts[100:]], pa.string())
    lows = leaf_stats(chunks, [leaf()]).column("minValues x").to_pylist()
    assert lows == [None if n in (1_234, 4_999) else n for n in range(5_000)]


def test_a_number_is_a_whole_number_however_it_is_written() -> None:
    assert bounds(LONG, 5.0, 7) == (5, 7)
    assert parsed(['{"numRecords":3.0,"nullCount":{"x":0e0}}'])[0]["numRecords"] == 3


# Bounds by type.


def test_bounds_of_floats_are_those_that_a_float_holds() -> None:
    low, high = bounds(FLOAT, 0.1, 1.1)
    assert (low, high) == (0.10000000149011612, 1.100000023841858)
    assert bounds(DOUBLE, 0.1, 1.1) == (0.1, 1.1)
    assert bounds(DOUBLE, "-Infinity", "Infinity") == (-math.inf, math.inf)
    assert math.isnan(bounds(DOUBLE, 1, "NaN")[1])
    assert math.isnan(bounds(DOUBLE, 1, math.nan)[1])
    assert bounds(DOUBLE, "x", True) == (None, None)


def test_booleans_and_text_are_bounds_too() -> None:
    assert bounds(BOOLEAN, False, True) == (0, 1)
    assert bounds(BOOLEAN, 0, "true") == (None, None)
    assert bounds(STRING, "a", "é\U0010ffff") == ("a", "é\U0010ffff")
    assert bounds(STRING, 5, "\ud800") == (None, None)


def test_dates_are_days() -> None:
    assert bounds(DATE, "1970-01-02", "1970-02-01") == (1, 31)
    assert bounds(DATE, "-0001-12-31", "+10000-01-01") == (-719_529, 2_932_897)
    assert bounds(DATE, "1970-13-02", "x") == (None, None)
    rows = parsed([stats_of("1970-01-02", "1970-01-03"), stats_of("x", "1970-02-30")], leaf(DATE))
    assert [row["minValues x"] for row in rows] == [1, None]
    assert [row["maxValues x"] for row in rows] == [2, None]


def test_a_timestamp_may_be_a_millisecond_later_than_its_maximum() -> None:
    low, high = bounds(TIMESTAMP, "2024-01-01T00:00:00.123Z", "2024-01-01T00:00:00.123Z")
    assert low == micros("2024-01-01 00:00:00.123Z")
    assert high == low + MILLISECOND
    low, high = bounds(TIMESTAMP_NTZ, "2024-01-01T00:00:00.123", "2024-01-01T00:00:00.123")
    assert (low, high - low) == (micros("2024-01-01 00:00:00.123Z"), MILLISECOND)


def test_an_offset_may_have_lost_its_seconds() -> None:
    # Los Angeles was at -07:52:58 in 1850; writers once cut that to -07:52.
    low, high = bounds(TIMESTAMP, "1850-01-01T00:00:00.000-07:52", "1850-01-01T00:00:00.000-07:52")
    true = micros("1850-01-01 00:00:00-07:52:58")
    assert low <= true <= high
    assert high - low == 2 * 59 * SECOND + MILLISECOND
    low, high = bounds(
        TIMESTAMP, "1850-01-01T00:00:00.000-07:52:58", "1850-01-01T00:00:00.000-07:52:58"
    )
    assert (low, high) == (true, true + MILLISECOND)
    low, high = bounds(TIMESTAMP, "2024-01-01T00:00:00.000+05:30", "1914-01-01T00:00:00.000Z")
    assert low == micros("2023-12-31 18:30:00Z") - 59 * SECOND
    assert high == micros("1914-01-01 00:00:00Z") + 59 * SECOND + MILLISECOND


def test_timestamps_that_do_not_say_when_are_no_bounds() -> None:
    assert bounds(TIMESTAMP, "2024-01-01T00:00:00.000", "2024-01-01") == (None, None)
    assert bounds(TIMESTAMP, "x", "2024-13-01T00:00:00.000Z") == (None, None)
    assert bounds(TIMESTAMP_NTZ, "2024-01-01T00:00:00.000Z", "2024-01-01T00:00:00+01:00") == (
        None,
        None,
    )
    spelled = ("2024-01-01T00:00:00.000Z", "x", "1850-01-01T00:00:00.000-07:52:58")
    texts = [stats_of(text, text) for text in spelled]
    found = [row["minValues x"] for row in parsed(list(texts), leaf(TIMESTAMP))]
    assert found == [micros("2024-01-01 00:00:00Z"), None, micros("1850-01-01 00:00:00-07:52:58")]


def test_timestamps_at_the_end_of_time_do_not_come_round() -> None:
    last, first = "+294247-01-10T04:00:54.775Z", "-290308-12-21T19:59:06.000Z"
    assert bounds(TIMESTAMP, first, last) == (-(2**63), 2**63 - 1)
    low, high = bounds(TIMESTAMP, last, first)
    assert low == micros(last)
    assert high == micros(first) + 59 * SECOND + MILLISECOND


def test_a_date_that_became_a_timestamp_is_still_a_bound() -> None:
    assert bounds(TIMESTAMP_NTZ, "1970-01-02", "1970-01-02") == (
        86_400 * SECOND,
        86_400 * SECOND + MILLISECOND,
    )


def test_doubles_that_were_floats_keep_the_floats_digits() -> None:
    changed = {"delta.typeChanges": [{"fromType": "float", "toType": "double"}]}
    schema = StructType((StructField("x", DOUBLE, metadata=changed), StructField("y", DOUBLE)))
    widened, other = stats_leaves(parse_for_skipping("x = 1 AND y = 1", schema), metadata(schema))
    assert (widened.was_float, other.was_float) == (True, False)
    text = '{"minValues":{"x":0.1,"y":0.1},"maxValues":{"x":0.1,"y":0.1}}'
    (row,) = parsed([text], widened, other)
    assert (row["minValues x"], row["maxValues x"]) == (0.1, 0.10000000149011612)
    assert (row["minValues y"], row["maxValues y"]) == (0.1, 0.1)
    (row,) = parsed(['{"minValues":{"x":"NaN"},"maxValues":{"x":"NaN"}}'], widened)
    assert math.isnan(row["maxValues x"])


def test_numbers_that_became_wider_are_still_bounds() -> None:
    assert bounds(DOUBLE, 5, 7) == (5.0, 7.0)
    assert bounds(DecimalType(12, 2), 5, 7) == (Decimal("5.00"), Decimal("7.00"))


def test_decimals_are_exact_where_a_double_would_be() -> None:
    assert bounds(DecimalType(15, 2), 0.1, 12.34) == (Decimal("0.10"), Decimal("12.34"))
    text = '{"minValues":{"x":1.00},"maxValues":{"x":1e3}}'
    (row,) = parsed([text], leaf(DecimalType(15, 2)))
    assert (row["minValues x"], row["maxValues x"]) == (Decimal("1.00"), Decimal("1000.00"))
    # Digits that the type does not have: outwards.
    assert bounds(DecimalType(15, 2), 12.345, 12.345) == (Decimal("12.34"), Decimal("12.35"))
    assert bounds(DecimalType(15, 2), -12.345, "x") == (Decimal("-12.35"), None)


@given(st.integers(-(10**36), 10**36), st.sampled_from([0, 5, 30]), st.booleans())
def test_decimals_that_went_through_a_double_stay_inside_their_bounds(
    digits: int, scale: int, exact: bool
) -> None:
    value = Decimal(digits).scaleb(-scale)
    written = str(value) if exact else repr(float(value))
    text = f'{{"minValues":{{"x":{written}}},"maxValues":{{"x":{written}}}}}'
    (row,) = parsed([text], leaf(DecimalType(38, scale)))
    assert row["minValues x"] is None or row["minValues x"] <= value
    assert row["maxValues x"] is None or row["maxValues x"] >= value
    if row["minValues x"] is not None:
        assert row["maxValues x"] - row["minValues x"] <= abs(value) * Decimal("1e-14") + 3


def test_decimals_near_their_limit_have_no_bound() -> None:
    limit = 10**38 - 1
    text = f'{{"minValues":{{"x":-{limit}}},"maxValues":{{"x":{limit}}}}}'
    (row,) = parsed([text], leaf(DecimalType(38, 0)))
    assert (row["minValues x"], row["maxValues x"]) == (None, None)


# Checkpoints.


def structs(values: list[Any], kind: pa.DataType) -> pa.ChunkedArray:
    inner = pa.struct([("x", kind)])
    outer = pa.struct(
        [
            ("numRecords", pa.int64()),
            ("minValues", inner),
            ("maxValues", inner),
            ("nullCount", pa.struct([("x", pa.int32())])),
        ]
    )
    rows = [
        None
        if value is None
        else {
            "numRecords": 3,
            "minValues": {"x": value},
            "maxValues": {"x": value},
            "nullCount": {"x": 1},
        }
        for value in values
    ]
    return pa.chunked_array([pa.array(rows[:1], outer), pa.array(rows[1:], outer)])


def test_the_structs_of_checkpoints_give_the_same_columns() -> None:
    table = struct_stats(structs([5, None], pa.int32()), [leaf(LONG)])
    assert table.to_pylist() == [
        {**NOTHING, "numRecords": 3, "nullCount x": 1, "minValues x": 5, "maxValues x": 5},
        NOTHING,
    ]
    assert table.schema.equals(leaf_stats(pa.chunked_array([["{}"]]), [leaf(LONG)]).schema)


@pytest.mark.parametrize(
    ("kind", "data_type", "value", "expected"),
    [
        (pa.float32(), FLOAT, 0.1, (0.10000000149011612,) * 2),
        (pa.date32(), DATE, 3, (3, 3)),
        (pa.string(), STRING, "é", ("é", "é")),
        (pa.decimal128(9, 2), DecimalType(12, 3), Decimal("1.25"), (Decimal("1.250"),) * 2),
        (pa.timestamp("us"), TIMESTAMP_NTZ, 5, (5, 5 + MILLISECOND)),
        (pa.date32(), TIMESTAMP_NTZ, 1, (86_400 * SECOND, 86_400 * SECOND + MILLISECOND)),
        (pa.timestamp("us", "UTC"), TIMESTAMP, 5, (5 - 59 * SECOND, 5 + 59 * SECOND + MILLISECOND)),
        (pa.timestamp("ms", "UTC"), TIMESTAMP, 1, (1_000 - 59 * SECOND, 59 * SECOND + 2_000)),
        (pa.string(), LONG, "x", (None, None)),
        (pa.string(), TIMESTAMP, "x", (None, None)),
        (pa.decimal128(9, 3), DecimalType(12, 2), Decimal("1.255"), (None, None)),
    ],
)
def test_structs_are_widened_like_json(
    kind: pa.DataType, data_type: DataType, value: Any, expected: tuple[Any, Any]
) -> None:
    (row, _) = struct_stats(structs([value, None], kind), [leaf(data_type)]).to_pylist()
    assert (row["minValues x"], row["maxValues x"]) == expected


def test_structs_may_lack_a_column() -> None:
    table = struct_stats(structs([5], pa.int64()), [leaf(LONG, "y"), leaf(LONG, "x", "z")])
    (row,) = table.to_pylist()
    assert row["numRecords"] == 3
    assert {value for name, value in row.items() if name != "numRecords"} == {None}


def test_bounds_are_made_of_empty_columns_too() -> None:
    for kind in (DATE, TIMESTAMP, TIMESTAMP_NTZ, STRING):
        for side in Side:
            assert len(bound(pa.array([], pa.string()), kind, side)) == 0
            assert bound(pa.nulls(2, pa.string()), kind, side).null_count == 2
    assert len(struct_bound(pa.array([], pa.int8()), LONG, Side.LOWER)) == 0
