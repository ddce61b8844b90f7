"""Statistics of a file: bounds that never lose a row."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delta.errors import InvalidActionsError
from pyspark_delta.kernel.protocol.actions import Action, AddFile
from pyspark_delta.kernel.protocol.stats import (
    ColumnStats,
    format_bound,
    format_stats,
    parse_bound,
    parse_stats,
    truncate_max,
    truncate_min,
    widen_stats,
    with_num_records,
)
from pyspark_delta.kernel.protocol.types import (
    BINARY,
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
)
from tests.support.golden import GoldenTables

HIGH = "\U0010ffff"
LOW = "\x7f"
TEXTS = st.text(
    st.characters(codec="utf-8") | st.sampled_from([HIGH, LOW, "\uffff", "\ue000", "a"]),
    max_size=24,
)


# Strings.


@pytest.mark.parametrize(
    ("text", "length", "expected"),
    [
        ("abcd", 6, "abcd"),
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abcdef"),
        ("a" + HIGH + "d", 2, "a" + HIGH),
        ("🚀🚀🚀", 3, "🚀🚀"),
        ("🚀🚀🚀", 6, "🚀🚀🚀"),
        ("abcd", 0, None),
    ],
)
def test_a_minimum_is_cut_and_never_inside_a_character(
    text: str, length: int, expected: str | None
) -> None:
    assert truncate_min(text, length) == expected


@pytest.mark.parametrize(
    ("text", "expected", "length"),
    [
        ("abcd", None, 0),
        ("a" + HIGH + "d", "a" + HIGH + LOW, 2),
        ("abcd", "abcd", 6),
        ("abcdef", "abcdef", 6),
        ("abcde\ufffd", "abcde\ufffd", 6),
        ("abcd\ufffdabcd", "abcd\ufffda" + LOW, 6),
        ("\ufffdabcd", "\ufffdabcd", 6),
        ("abcdef\ufffd", "abcdef" + HIGH, 6),
        ("abcdef\ufffd\ufffd", "abcdef" + HIGH, 6),
        ("abcdef-abcdef\ufffd", "abcdef" + LOW, 6),
        ("abcdef" + LOW, "abcdef" + HIGH, 6),
        ("漢字仮名한글தமி", "漢字仮名한글" + HIGH, 6),
        ("漢字仮名한글", "漢字仮名한글", 6),
        ("abcdef🚀", "abcdef" + HIGH, 6),
        (HIGH * 4, None, 1),
        (HIGH * 4, HIGH * 4, 4),
        ("\ufffd" * 4, "\ufffd\ufffd" + HIGH, 2),
        (
            "abcdefghijklm💞😉💕\n🥀🌹💐🌺🌷🌼🌻🌷🥀",
            "abcdefghijklm💞😉💕\n🥀🌹💐🌺🌷🌼" + HIGH,
            32,
        ),
    ],
)
def test_a_maximum_gets_a_tie_breaker(text: str, expected: str | None, length: int) -> None:
    assert truncate_max(text, length) == expected


@given(TEXTS, st.integers(1, 12))
def test_cut_strings_stay_on_their_side_of_the_value(text: str, length: int) -> None:
    low, high = truncate_min(text, length), truncate_max(text, length)
    assert low is not None
    # Code points and UTF-8 bytes order alike; both are asked.
    assert low <= text
    assert low.encode() <= text.encode()
    if high is not None:
        assert high.encode() >= text.encode()
        assert len(high.encode("utf-16-le")) // 2 <= max(2 * length + 3, 1)


# Other bounds.


@pytest.mark.parametrize(
    ("value", "data_type", "low", "high"),
    [
        (5, LONG, "5", "5"),
        (1.5, DOUBLE, "1.5", "1.5"),
        (0.10000000149011612, FLOAT, "0.1", "0.1"),
        (1e10, DOUBLE, "1.0E10", "1.0E10"),
        (math.nan, DOUBLE, None, None),
        (math.inf, DOUBLE, None, None),
        (-math.inf, FLOAT, None, None),
        (Decimal("3333333333.3333333333"), DecimalType(20, 10), *("3333333333.3333333333",) * 2),
        (Decimal("0E-10"), DecimalType(20, 10), "0.0000000000", "0.0000000000"),
        (Decimal("NaN"), DecimalType(20, 10), None, None),
        (18878, DATE, '"2021-09-08"', '"2021-09-08"'),
        (date(2021, 9, 8), DATE, '"2021-09-08"', '"2021-09-08"'),
        (2932897, DATE, None, None),
        (-719163, DATE, None, None),
        (1_000, TIMESTAMP, '"1970-01-01T00:00:00.001Z"', '"1970-01-01T00:00:00.001Z"'),
        (1_001, TIMESTAMP, '"1970-01-01T00:00:00.001Z"', '"1970-01-01T00:00:00.002Z"'),
        (-1, TIMESTAMP, '"1969-12-31T23:59:59.999Z"', '"1970-01-01T00:00:00.000Z"'),
        (1_999, TIMESTAMP_NTZ, '"1970-01-01T00:00:00.001"', '"1970-01-01T00:00:00.002"'),
        (
            datetime(2021, 9, 8, 1, 2, 3, 4567, tzinfo=UTC),
            TIMESTAMP,
            '"2021-09-08T01:02:03.004Z"',
            '"2021-09-08T01:02:03.005Z"',
        ),
        (2**63 - 1, TIMESTAMP, None, None),
        (-(2**63), TIMESTAMP, None, None),
        (253402300799_999_999, TIMESTAMP, '"9999-12-31T23:59:59.999Z"', None),
        ("\ud800", STRING, None, None),
        (None, LONG, None, None),
    ],
)
def test_bounds_are_written_so_that_every_reader_reads_them(
    value: Any, data_type: DataType, low: str | None, high: str | None
) -> None:
    column = ColumnStats(path=("c",), data_type=data_type, minimum=value, maximum=value)
    assert format_stats(1, [column]) == (
        f'{{"numRecords":1,"minValues":{_one(low)},"maxValues":{_one(high)},"nullCount":{{}}}}'
    )


def _one(bound: str | None) -> str:
    return "{}" if bound is None else f'{{"c":{bound}}}'


def test_a_bound_that_cannot_be_written_is_left_out_and_its_other_side_stays() -> None:
    column = ColumnStats(path=("c",), data_type=DOUBLE, minimum=1.0, maximum=math.inf)
    assert format_stats(1, [column]) == (
        '{"numRecords":1,"minValues":{"c":1.0},"maxValues":{},"nullCount":{}}'
    )


@given(
    st.integers(-62135596800_000_000, 253402300799_000_000),
    st.sampled_from([TIMESTAMP, TIMESTAMP_NTZ]),
)
def test_timestamps_never_leave_their_bounds_on_the_way(micros: int, data_type: DataType) -> None:
    low = parse_bound(format_bound(micros, data_type, is_max=False), data_type, is_max=False)
    high = parse_bound(format_bound(micros, data_type, is_max=True), data_type, is_max=True)
    assert low <= micros <= high
    assert high - low < 3000


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_singles_are_exactly_their_bounds(value: float) -> None:
    stats = parse_stats(
        format_stats(1, [ColumnStats(path=("c",), data_type=FLOAT, minimum=value, maximum=value)])
    )
    assert stats is not None
    assert stats.minimum(("c",), FLOAT) == value == stats.maximum(("c",), FLOAT)


# The whole text.


def test_statistics_have_the_shape_that_delta_spark_writes() -> None:
    columns = [
        ColumnStats(path=("id",), data_type=LONG, minimum=1, maximum=9, null_count=0),
        ColumnStats(path=("s", "a"), data_type=STRING, minimum="ä", maximum="ö", null_count=1),
        ColumnStats(path=("s", "b"), data_type=BINARY, minimum=b"x", maximum=b"y", null_count=2),
        ColumnStats(path=("n", "x"), data_type=LONG, null_count=3),
    ]
    assert format_stats(3, columns) == (
        '{"numRecords":3,"minValues":{"id":1,"s":{"a":"ä"},"n":{}},'
        '"maxValues":{"id":9,"s":{"a":"ö"},"n":{}},'
        '"nullCount":{"id":0,"s":{"a":1,"b":2},"n":{"x":3}}}'
    )
    assert format_stats(3, [], tight_bounds=True) == '{"numRecords":3,"tightBounds":true}'


def test_strings_are_cut_to_the_length_of_the_property() -> None:
    column = ColumnStats(path=("v",), data_type=STRING, minimum="abcdef", maximum="abcdef")
    assert format_stats(1, [column], prefix_length=2) == (
        '{"numRecords":1,"minValues":{"v":"ab"},"maxValues":{"v":"ab\x7f"},"nullCount":{}}'
    )


@pytest.mark.parametrize("text", [None, "", "{", "[]", "5", '"x"', "[" * 100_000])
def test_what_is_no_statistics_is_ignored(text: str | None) -> None:
    assert parse_stats(text) is None


def test_parts_of_statistics_that_make_no_sense_are_ignored() -> None:
    stats = parse_stats(
        '{"numRecords":"five","minValues":7,"maxValues":{"a":{"b":1},"c":NaN},"nullCount":{"a":-1}}'
    )
    assert stats is not None
    assert stats.num_records is None
    assert stats.tight_bounds
    assert stats.minimum(("a",), LONG) is None
    assert stats.maximum(("a",), LONG) is None
    assert stats.maximum(("a", "b"), LONG) == 1
    assert stats.maximum(("a", "b", "c"), LONG) is None
    assert stats.maximum(("c",), DOUBLE) is None
    assert stats.null_count(("a",)) is None


@pytest.mark.parametrize(
    ("raw", "data_type", "is_max", "expected"),
    [
        (5, LONG, True, 5),
        ("5", LONG, True, None),
        (True, LONG, True, None),
        (Decimal("5.5"), LONG, True, None),
        (5, DOUBLE, True, 5.0),
        (10**400, DOUBLE, True, None),
        ("Infinity", DOUBLE, True, None),
        (Decimal("0.1"), FLOAT, True, 0.10000000149011612),
        (Decimal("1.10"), DecimalType(10, 2), True, Decimal("1.10")),
        (0, DecimalType(10, 2), True, Decimal(0)),
        ("x", STRING, True, "x"),
        (5, STRING, True, None),
        ("2021-09-08", DATE, True, 18878),
        ("nope", DATE, True, None),
        (18878, DATE, True, None),
        # A column that was widened from date keeps the statistics of its old files.
        ("1970-01-02", TIMESTAMP_NTZ, False, 86_400_000_000),
        ("1970-01-01T00:00:00.001Z", TIMESTAMP, False, 1000),
        ("1970-01-01T00:00:00.001Z", TIMESTAMP, True, 1999),
        ("2000-01-01T00:00:00.000-08:00", TIMESTAMP, False, 946713600000000),
        (5, TIMESTAMP, True, None),
        ("x", BINARY, True, None),
        (None, LONG, True, None),
    ],
)
def test_bounds_become_values_or_nothing(
    raw: Any, data_type: DataType, is_max: bool, expected: Any
) -> None:
    value = parse_bound(raw, data_type, is_max=is_max)
    assert value == expected
    assert type(value) is type(expected)


def test_offsets_that_lost_their_seconds_make_bounds_wider() -> None:
    # 1850 in Los Angeles was at -07:52:58; writers print -07:52.
    exact = parse_bound("1850-01-01T00:00:00.000-07:52:58", TIMESTAMP, is_max=False)
    cut = "1850-01-01T00:00:00.000-07:52"
    assert parse_bound(cut, TIMESTAMP, is_max=False) <= exact
    assert parse_bound(cut, TIMESTAMP, is_max=True) >= exact
    assert parse_bound("1850-01-01T00:00:00.000Z", TIMESTAMP, is_max=False) == -3786825600000000


# Deletion vectors.


def test_after_a_deletion_vector_bounds_are_wide_and_the_row_count_stays() -> None:
    stats = (
        '{"numRecords":4,"minValues":{"a":1.10,"b":{"c":1E+5}},"maxValues":{"a":123456789012345678901},'
        '"nullCount":{"a":0,"b":{"c":4},"d":2},"future":[1.50]}'
    )
    assert widen_stats(stats) == (
        '{"numRecords":4,"minValues":{"a":1.10,"b":{"c":1E+5}},"maxValues":{"a":123456789012345678901},'
        '"nullCount":{"a":0,"b":{"c":4},"d":2},"tightBounds":false,"future":[1.50]}'
    )


def test_a_column_of_nulls_only_is_marked_for_the_whole_file() -> None:
    tight = '{"numRecords":10,"nullCount":{"all":7,"some":3,"none":0},"tightBounds":true}'
    assert json.loads(widen_stats(tight, deleted_records=3)) == {
        "numRecords": 10,
        "nullCount": {"all": 10, "some": 3, "none": 0},
        "tightBounds": False,
    }
    wide = tight.replace("true", "false")
    assert widen_stats(wide, deleted_records=3) == wide


def test_files_without_statistics_get_the_row_count_that_a_vector_needs() -> None:
    assert widen_stats(None, num_records=5) == '{"numRecords":5,"tightBounds":false}'
    assert widen_stats("{", num_records=5) == '{"numRecords":5,"tightBounds":false}'
    with pytest.raises(InvalidActionsError) as caught:
        widen_stats('{"minValues":{}}')
    assert caught.value.condition == "DELTA_DELETION_VECTOR_MISSING_NUM_RECORDS"


def test_a_row_count_that_was_missing_changes_nothing_else() -> None:
    known = '"maxValues":{"d":12345678901234567890.1234567890},"future":[1.50]}'
    assert with_num_records("{" + known, 5) == '{"numRecords":5,' + known
    assert with_num_records('{"numRecords":"many",' + known, 5) == '{"numRecords":5,' + known
    assert with_num_records(None, 5) == with_num_records("no JSON", 5) == '{"numRecords":5}'


def test_statistics_nested_too_deeply_do_not_exhaust_the_stack() -> None:
    deep = '{"numRecords":1,"x":' + "[" * 800 + "]" * 800 + "}"
    assert json.loads(widen_stats(deep))["tightBounds"] is False
    assert json.loads(with_num_records(deep, 5))["numRecords"] == 5


def test_null_counts_of_wide_statistics_say_all_none_or_nothing() -> None:
    text = '{"numRecords":4,"nullCount":{"all":4,"none":0,"some":2},"tightBounds":%s}'
    tight, wide = parse_stats(text % "true"), parse_stats(text % "false")
    assert tight is not None
    assert wide is not None
    assert [tight.null_count((name,)) for name in ("all", "none", "some")] == [4, 0, 2]
    assert [wide.null_count((name,)) for name in ("all", "none", "some")] == [4, 0, None]
    assert tight.null_count(("nope",)) is None


@pytest.mark.parametrize(
    "name",
    [
        "basic-decimal-table",
        "data-skipping-basic-stats-all-types",
        "data-reader-timestamp_ntz",
        "kernel-timestamp-pst",
    ],
)
def test_statistics_of_other_writers_are_understood(name: str, golden: GoldenTables) -> None:
    found = 0
    for path in golden(name).table.glob("_delta_log/0*.json"):
        for line in path.read_text(encoding="utf-8").splitlines():
            action = Action.from_json(line)
            if not isinstance(action, AddFile) or action.stats is None:
                continue
            stats = parse_stats(action.stats)
            assert stats is not None
            assert stats.num_records == action.num_records
            assert json.loads(widen_stats(action.stats)) == {
                **json.loads(action.stats),
                "tightBounds": False,
            }
            found += 1
    assert found


@given(
    st.lists(
        st.tuples(st.integers(-(2**31), 2**31 - 1), TEXTS, st.integers(0, 9)),
        min_size=1,
        max_size=4,
    )
)
def test_what_was_written_reads_back_as_bounds_of_the_same_rows(
    rows: list[tuple[int, str, int]],
) -> None:
    numbers, texts = [row[0] for row in rows], [row[1] for row in rows]
    columns = [
        ColumnStats(path=("s", "n"), data_type=INTEGER, minimum=min(numbers), maximum=max(numbers)),
        ColumnStats(path=("t",), data_type=STRING, minimum=min(texts), maximum=max(texts)),
    ]
    stats = parse_stats(format_stats(len(rows), columns, prefix_length=4))
    assert stats is not None
    assert stats.minimum(("s", "n"), INTEGER) == min(numbers)
    assert stats.maximum(("s", "n"), INTEGER) == max(numbers)
    assert all(stats.minimum(("t",), STRING) <= text for text in texts)
    highest = stats.maximum(("t",), STRING)
    assert highest is None or all(text <= highest for text in texts)
