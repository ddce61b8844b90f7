"""Partition values: typed, as text in the log, and as directories."""

from __future__ import annotations

import math
import struct
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delta.errors import PartitionValueError
from pyspark_delta.kernel.protocol.partition_values import (
    HIVE_DEFAULT_PARTITION,
    as_single,
    escape_path_name,
    format_float,
    format_partition_value,
    parse_partition_directory,
    parse_partition_value,
    partition_directory,
    unescape_path_name,
)
from pyspark_delta.kernel.protocol.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    StructType,
)
from tests.support.schemas import decimals
from tests.support.zones import zone

D = DecimalType
ALL_TYPES = [
    *(STRING, LONG, INTEGER, SHORT, BYTE, FLOAT, DOUBLE, BOOLEAN, BINARY),
    *(DATE, TIMESTAMP, TIMESTAMP_NTZ, D(10, 2)),
]


@pytest.mark.parametrize("data_type", ALL_TYPES, ids=str)
@pytest.mark.parametrize("text", [None, ""])
def test_null_and_the_empty_string_are_null_for_every_type(
    data_type: DataType, text: str | None
) -> None:
    assert parse_partition_value(text, data_type) is None
    assert format_partition_value(None, data_type) is None


@pytest.mark.parametrize(
    ("text", "data_type", "expected"),
    [
        ("0", STRING, "0"),
        ("null", STRING, "null"),
        (HIVE_DEFAULT_PARTITION, STRING, HIVE_DEFAULT_PARTITION),
        ("-128", BYTE, -128),
        ("32767", SHORT, 32767),
        ("+2147483647", INTEGER, 2147483647),
        ("-9223372036854775808", LONG, -(2**63)),
        ("1.5", DOUBLE, 1.5),
        ("1.0E10", DOUBLE, 1e10),
        ("-Infinity", DOUBLE, -math.inf),
        ("0.1", FLOAT, 0.10000000149011612),
        ("Infinity", FLOAT, math.inf),
        ("true", BOOLEAN, True),
        ("FALSE", BOOLEAN, False),
        ("\x01\x02\x03", BINARY, b"\x01\x02\x03"),
        ("ü", BINARY, "ü".encode()),
        ("2021-09-08", DATE, 18878),
        ("0001-01-01", DATE, -719162),
        ("+10000-01-01", DATE, 2932897),
        ("2021-09-08 11:11:11", TIMESTAMP, 1631099471000000),
        ("2021-09-08T11:11:11.000001Z", TIMESTAMP, 1631099471000001),
        ("2021-09-08 11:11:11.1", TIMESTAMP_NTZ, 1631099471100000),
        ("1.50", D(10, 2), Decimal("1.50")),
        ("1", D(10, 2), Decimal("1.00")),
        ("1e2", D(10, 2), Decimal("100.00")),
        ("1.500", D(10, 2), Decimal("1.50")),
        ("-99999999.99", D(10, 2), Decimal("-99999999.99")),
        ("9" * 38, D(38, 0), Decimal("9" * 38)),
        ("0E-18", D(38, 18), Decimal("0E-18")),
    ],
)
def test_text_becomes_the_value_it_spells(text: str, data_type: DataType, expected: object) -> None:
    value = parse_partition_value(text, data_type)
    assert value == expected
    assert type(value) is type(expected)


def test_a_decimal_has_the_scale_of_its_type() -> None:
    assert str(parse_partition_value("1", D(10, 2))) == "1.00"


def test_not_a_number_is_a_number_here() -> None:
    for data_type in (FLOAT, DOUBLE):
        value = parse_partition_value("NaN", data_type)
        assert isinstance(value, float)
        assert math.isnan(value)
        assert format_partition_value(value, data_type) == "NaN"


@pytest.mark.parametrize(
    ("text", "data_type"),
    [
        *[
            (text, INTEGER)
            for text in ("abc", "1.0", "1e3", " 1", "1_0", "٥", "2147483648", "9" * 60)
        ],
        ("128", BYTE),
        ("-32769", SHORT),
        ("9223372036854775808", LONG),
        *[(text, DOUBLE) for text in ("x", "1e400", "0x1p3", "1_0.0", "1d", "9" * 500)],
        ("1e39", FLOAT),
        *[(text, BOOLEAN) for text in ("1", "yes", "t")],
        *[(text, DATE) for text in ("2021-02-30", "2021-09", "20210908", "9999999-01-01")],
        *[(text, TIMESTAMP) for text in ("yesterday", "2021-09-08 25:00:00", "+300000-01-01")],
        ("2021-09-08 11:11:11Z", TIMESTAMP_NTZ),
        *[(text, D(4, 2)) for text in ("100.00", "1.234", "1e3", "NaN", "1e9999", "x")],
        ("9" * 500, D(38, 0)),
        ("\ud800", BINARY),
        ("x", VOID),
        ("x", VARIANT),
        ("x", ArrayType(STRING)),
        ("x", StructType()),
    ],
)
def test_what_a_type_cannot_hold_is_an_error_never_a_null(text: str, data_type: DataType) -> None:
    with pytest.raises(PartitionValueError) as caught:
        parse_partition_value(text, data_type, column="p")
    assert caught.value.condition == "DELTA_INVALID_PARTITION_VALUE"
    assert caught.value.parameters["column"] == "p"
    assert caught.value.parameters["dataType"] == data_type.simple_string
    assert len(caught.value.parameters["value"]) <= 100


def test_a_timestamp_that_does_not_say_its_zone_is_in_the_writers() -> None:
    berlin = zone("Europe/Berlin")
    local = parse_partition_value("2021-09-08 13:11:11", TIMESTAMP, zone=berlin)
    assert local == parse_partition_value("2021-09-08T11:11:11Z", TIMESTAMP, zone=berlin)


@pytest.mark.parametrize(
    ("value", "data_type", "expected"),
    [
        ("", STRING, None),
        ("a b/ü", STRING, "a b/ü"),
        (5, LONG, "5"),
        (1.0, DOUBLE, "1.0"),
        (1, DOUBLE, "1.0"),
        (as_single(0.1), FLOAT, "0.1"),
        (0.1, FLOAT, "0.1"),
        (True, BOOLEAN, "true"),
        (Decimal("1.5"), D(10, 2), "1.50"),
        (3, D(10, 2), "3.00"),
        (Decimal("0E-18"), D(38, 18), "0.000000000000000000"),
        (b"\x01a", BINARY, "\x01a"),
        (18878, DATE, "2021-09-08"),
        (date(2021, 9, 8), DATE, "2021-09-08"),
        (1631099471000001, TIMESTAMP, "2021-09-08T11:11:11.000001Z"),
        (datetime(2021, 9, 8, 11, 11, 11, tzinfo=UTC), TIMESTAMP, "2021-09-08T11:11:11.000000Z"),
        (
            datetime(2021, 9, 8, 11, 11, 11, tzinfo=timezone(timedelta(hours=2))),
            TIMESTAMP,
            "2021-09-08T09:11:11.000000Z",
        ),
        (1631099471000000, TIMESTAMP_NTZ, "2021-09-08 11:11:11"),
        (datetime(2021, 9, 8, 11, 11, 11, 120000), TIMESTAMP_NTZ, "2021-09-08 11:11:11.12"),
    ],
)
def test_values_are_written_as_the_protocol_has_them(
    value: object, data_type: DataType, expected: str | None
) -> None:
    assert format_partition_value(value, data_type) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "data_type"),
    [
        (5, STRING),
        ("\ud800", STRING),
        ("5", LONG),
        (True, LONG),
        (128, BYTE),
        (1.5, LONG),
        (1e39, FLOAT),
        ("1.5", DOUBLE),
        (1, BOOLEAN),
        (Decimal("1.234"), D(10, 2)),
        (Decimal("100"), D(4, 2)),
        (Decimal("NaN"), D(4, 2)),
        (1.5, D(4, 2)),
        (b"", BINARY),
        (b"\xff", BINARY),
        ("text", BINARY),
        (datetime(2021, 1, 1), DATE),
        (2**31, DATE),
        (datetime(2021, 1, 1), TIMESTAMP),
        (datetime(2021, 1, 1, tzinfo=UTC), TIMESTAMP_NTZ),
        (2**63, TIMESTAMP),
        (5, VOID),
        ([1], ArrayType(LONG)),
    ],
)
def test_what_would_not_read_back_is_refused(value: object, data_type: DataType) -> None:
    with pytest.raises(PartitionValueError) as caught:
        format_partition_value(value, data_type, column="p")  # type: ignore[arg-type]
    assert caught.value.condition == "DELTA_INVALID_PARTITION_VALUE"


_TYPED = st.one_of(
    st.tuples(st.text(st.characters(codec="utf-8"), min_size=1), st.just(STRING)),
    st.tuples(st.integers(-128, 127), st.just(BYTE)),
    st.tuples(st.integers(-(2**63), 2**63 - 1), st.sampled_from([LONG, TIMESTAMP, TIMESTAMP_NTZ])),
    st.tuples(st.integers(-(2**31), 2**31 - 1), st.sampled_from([INTEGER, DATE])),
    st.tuples(st.floats(allow_nan=False), st.just(DOUBLE)),
    st.tuples(st.floats(allow_nan=False, width=32), st.just(FLOAT)),
    st.tuples(st.booleans(), st.just(BOOLEAN)),
    st.tuples(st.text(st.characters(codec="utf-8"), min_size=1).map(str.encode), st.just(BINARY)),
    decimals().flatmap(
        lambda kind: st.tuples(
            st.integers(-(10**kind.precision) + 1, 10**kind.precision - 1).map(
                lambda unscaled: Decimal(unscaled).scaleb(-kind.scale)
            ),
            st.just(kind),
        )
    ),
)


@given(_TYPED)
def test_every_value_reads_back_from_its_text(typed: tuple[object, DataType]) -> None:
    value, data_type = typed
    text = format_partition_value(value, data_type)  # type: ignore[arg-type]
    assert text
    assert parse_partition_value(text, data_type) == value


def test_days_and_microseconds_are_what_arrow_takes_whatever_the_year() -> None:
    days = parse_partition_value("+10000-01-01", DATE)
    micros = parse_partition_value("-0044-03-15T00:00:00Z", TIMESTAMP)
    assert pa.scalar(days, pa.int32()).cast(pa.date32()).value == days
    assert pa.scalar(micros, pa.int64()).cast(pa.timestamp("us", "UTC")).value == micros


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (0.001, "0.001"),
        (0.0009, "9.0E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (123456789.125, "1.23456789125E8"),
        (-1.5e-10, "-1.5E-10"),
        (100.0, "100.0"),
        (1e300, "1.0E300"),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
    ],
)
def test_doubles_are_spelled_as_java_spells_them(value: float, expected: str) -> None:
    assert format_float(value, DOUBLE) == expected


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_singles_have_few_digits_and_read_back(value: float) -> None:
    text = format_float(value, FLOAT)
    assert struct.pack("<f", float(text)) == struct.pack("<f", value)
    assert sum(c.isdigit() for c in text.partition("E")[0].strip("-0.")) <= 9


# Directories.


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a b", "a b"),
        ("2021-09-08 11:11:11", "2021-09-08 11%3A11%3A11"),
        ("100%", "100%25"),
        ("a/b=c", "a%2Fb%3Dc"),
        ("\x01\x1f\x7f", "%01%1F%7F"),
        ("\"#'*?\\{[]^", "%22%23%27%2A%3F%5C%7B%5B%5D%5E"),
        ("}<>|+&ü日", "}<>|+&ü日"),
    ],
)
def test_names_are_escaped_as_hive_and_spark_do(text: str, escaped: str) -> None:
    assert escape_path_name(text) == escaped
    assert unescape_path_name(escaped) == text


@given(st.text())
def test_every_name_reads_back_and_holds_no_slash(text: str) -> None:
    escaped = escape_path_name(text)
    assert unescape_path_name(escaped) == text
    assert "/" not in escaped
    assert "=" not in escaped


def test_a_percent_sign_without_two_digits_is_itself() -> None:
    assert unescape_path_name("100%") == "100%"
    assert unescape_path_name("%4") == "%4"
    assert unescape_path_name("%+1%zz%41") == "%+1%zzA"


def test_directories_spell_names_and_values_in_order() -> None:
    values = {"a=b": "x/y", "n": None, "e": "", "d": "2021-09-08"}
    directory = partition_directory(["d", "a=b", "n", "e"], values)
    assert directory == (
        f"d=2021-09-08/a%3Db=x%2Fy/n={HIVE_DEFAULT_PARTITION}/e={HIVE_DEFAULT_PARTITION}"
    )
    assert parse_partition_directory(f"{directory}/part-0.parquet") == (
        ("d", "2021-09-08"),
        ("a=b", "x/y"),
        ("n", None),
        ("e", None),
    )


def test_an_unpartitioned_table_has_no_directories() -> None:
    assert partition_directory([], {}) == ""
    assert parse_partition_directory("part-0.parquet") == ()
    assert parse_partition_directory("sub/=x/part=.parquet") == ()
