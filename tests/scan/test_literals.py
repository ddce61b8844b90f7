"""Text and values: Spark's casts, and literals that mean the same in any time zone."""

from __future__ import annotations

import math
from datetime import UTC, timedelta, timezone
from decimal import Decimal

import pytest

from pyspark_delta.kernel.protocol.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    DataType,
    DecimalType,
    StructType,
)
from pyspark_delta.kernel.scan.predicates.literals import (
    LiteralValue,
    cast_text,
    format_literal,
    local_day,
    start_of_day,
    to_instant,
    zone_named,
)
from tests.support.zones import zone

HOUR = 3_600_000_000
DAY = 24 * HOUR


@pytest.mark.parametrize(
    ("text", "data_type", "value"),
    [
        (" 12 ", INTEGER, 12),
        ("-128", BYTE, -128),
        ("+9223372036854775807", LONG, 2**63 - 1),
        ("1.5", DOUBLE, 1.5),
        (" .5e1", DOUBLE, 5.0),
        ("Infinity", DOUBLE, math.inf),
        ("-inf", FLOAT, -math.inf),
        ("0.1", FLOAT, 0.10000000149011612),
        ("1e39", FLOAT, math.inf),
        ("1.005", DecimalType(5, 2), Decimal("1.01")),
        ("-1.005", DecimalType(5, 2), Decimal("-1.01")),
        ("Yes", BOOLEAN, True),
        ("f", BOOLEAN, False),
        (" x ", STRING, " x "),
        ("é", BINARY, "é".encode()),
        ("1970", DATE, 0),
        ("1970-2", DATE, 31),
        ("1970-01-02", DATE, 1),
        ("1970-01-02 whatever", DATE, 1),
        ("1970-01-02T", DATE, 1),
        ("-0001-12-31", DATE, -719_529),
        ("+10000-01-01", DATE, 2_932_897),
        ("1970-01-02", TIMESTAMP, DAY),
        ("1970-01-01 01:02", TIMESTAMP, HOUR + 2 * HOUR // 60),
        ("1970-01-01T00:00:00.1234567", TIMESTAMP, 123_456),
        ("1970-01-01 00:00:00.", TIMESTAMP, 0),
        ("1970-01-01 00:00:00 +01:00", TIMESTAMP, -HOUR),
        ("1970-01-01 00:00:00-07:52:58", TIMESTAMP, 7 * HOUR + 52 * 60_000_000 + 58_000_000),
        ("1970-01-01 00:00:00 GMT+2", TIMESTAMP, -2 * HOUR),
        ("1970-01-01 00:00:00Z", TIMESTAMP_NTZ, 0),
        ("1970-01-01 00:00:00+05:00", TIMESTAMP_NTZ, 0),
    ],
)
def test_text_is_cast_as_spark_casts_it(text: str, data_type: DataType, value: object) -> None:
    found = cast_text(text, data_type)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "data_type"),
    [
        ("", INTEGER),
        ("1.0", INTEGER),
        ("1_0", INTEGER),
        ("128", BYTE),
        ("9" * 50, LONG),
        ("١", INTEGER),
        ("1_0.0", DOUBLE),
        ("1e", DOUBLE),
        ("0x10", DOUBLE),
        ("nan1", DOUBLE),
        ("1000", DecimalType(5, 2)),
        ("1e99999", DecimalType(5, 2)),
        ("x", DecimalType(5, 2)),
        ("maybe", BOOLEAN),
        ("2024-02-30", DATE),
        ("2024-13-01", DATE),
        ("24-01-01", DATE),
        ("2024-01-01x", DATE),
        ("99999999-01-01", DATE),
        ("2024-01-01x", TIMESTAMP),
        ("2024-01 10:00:00", TIMESTAMP),
        ("2024-01-01 25:00:00", TIMESTAMP),
        ("2024-01-01 10:00:00 Nowhere/Land", TIMESTAMP),
        ("2024-01-01 10:00:00 ../../etc/passwd", TIMESTAMP),
        ("10:00:00", TIMESTAMP),
        ("+999999-01-01", TIMESTAMP),
        ("x", StructType()),
    ],
)
def test_text_that_is_no_such_value_is_refused(text: str, data_type: DataType) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        cast_text(text, data_type)


def test_a_time_zone_has_several_names() -> None:
    assert zone_named("UTC") is zone_named("gmt") is zone_named("Z") is UTC
    assert zone_named("+01:30") == timezone(timedelta(hours=1, minutes=30))
    assert zone_named("GMT-8") == timezone(-timedelta(hours=8))
    for name in ("", "+19:00", "+01:99", "/etc/localtime", "Mars/Base"):
        with pytest.raises(ValueError, match="time zone"):
            zone_named(name)


def test_days_begin_where_clocks_are() -> None:
    berlin, los_angeles = zone("Europe/Berlin"), zone("America/Los_Angeles")
    assert zone_named("Europe/Berlin") == berlin
    assert cast_text("1970-01-01 00:00:00 Europe/Berlin", TIMESTAMP) == -HOUR
    assert start_of_day(0, None) == 0
    assert start_of_day(0, berlin) == -HOUR
    assert local_day(-HOUR, berlin) == 0
    assert local_day(-HOUR - 1, berlin) == -1
    assert local_day(-1, UTC) == -1
    assert to_instant(0, los_angeles) == 8 * HOUR
    # On 2024-03-31 clocks in Beirut went from 00:00 to 01:00: the day begins with the jump.
    beirut = zone("Asia/Beirut")
    day = cast_text("2024-03-31", DATE)
    assert isinstance(day, int)
    assert start_of_day(day, beirut) == day * DAY - 2 * HOUR
    assert local_day(start_of_day(day, beirut), beirut) == day
    with pytest.raises(ValueError, match="out of range"):
        local_day(2**62, berlin)
    with pytest.raises(ValueError, match="out of range"):
        start_of_day(2**31 - 1, None)


@pytest.mark.parametrize(
    ("value", "data_type", "sql"),
    [
        (None, VOID, "NULL"),
        (None, LONG, "CAST(NULL AS BIGINT)"),
        (True, BOOLEAN, "TRUE"),
        (5, INTEGER, "5"),
        (-5, LONG, "-5L"),
        (5, BYTE, "5Y"),
        (1.5, DOUBLE, "1.5D"),
        (1.5, FLOAT, "1.5F"),
        (math.nan, DOUBLE, "CAST('NaN' AS DOUBLE)"),
        (-math.inf, FLOAT, "CAST('-Infinity' AS FLOAT)"),
        (Decimal("1.50"), DecimalType(3, 2), "1.50BD"),
        ("it's \\ here", STRING, r"'it\'s \\ here'"),
        (b"\x00\xff", BINARY, "X'00FF'"),
        (0, DATE, "DATE '1970-01-01'"),
        (1, TIMESTAMP, "TIMESTAMP '1970-01-01 00:00:00.000001Z'"),
        (-1, TIMESTAMP_NTZ, "TIMESTAMP_NTZ '1969-12-31 23:59:59.999999'"),
    ],
)
def test_a_literal_is_spelled_so_that_it_means_one_value(
    value: LiteralValue, data_type: DataType, sql: str
) -> None:
    assert format_literal(value, data_type) == sql
