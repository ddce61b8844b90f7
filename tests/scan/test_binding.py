"""Predicates and schemas: names, and the side that is cast before a comparison."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest

from pyspark_delta.errors import InvalidPredicateError
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
    VARIANT,
    VOID,
    ArrayType,
    DecimalType,
    StructField,
    StructType,
)
from pyspark_delta.kernel.scan.predicates.binding import bind, cast_literal, has_binary_order
from pyspark_delta.kernel.scan.predicates.sql import parse_predicate
from pyspark_delta.kernel.scan.predicates.tree import (
    FALSE,
    TRUE,
    Column,
    Comparison,
    Literal,
    Unknown,
    compare,
    literal,
)

SCHEMA = StructType(
    (
        StructField("Id", LONG),
        StructField("b", BYTE),
        StructField("f", FLOAT),
        StructField("d", DOUBLE),
        StructField("dec", DecimalType(10, 2)),
        StructField("txt", STRING),
        StructField("bin", BINARY),
        StructField("flag", BOOLEAN),
        StructField("day", DATE),
        StructField("at", TIMESTAMP),
        StructField("clock", TIMESTAMP_NTZ),
        StructField("nothing", VOID),
        StructField("list", ArrayType(LONG)),
        StructField("v", VARIANT),
        StructField("S", StructType((StructField("X.y", INTEGER),))),
        StructField("folded", STRING, metadata={"__COLLATIONS": {"folded": "spark.UTF8_LCASE"}}),
        StructField("code", STRING, metadata={"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}),
        StructField("short", STRING, metadata={"__CHAR_VARCHAR_TYPE_STRING": "varchar(5)"}),
    )
)
NEVER = "{0} IS NULL AND NULL"
ALWAYS = "NOT ({0} IS NULL) OR NULL"


def bound(sql: str, time_zone: str = "UTC") -> str:
    return bind(parse_predicate(sql, time_zone=time_zone), SCHEMA, time_zone=time_zone).to_sql()


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("ID = 5", "Id = 5"),
        ("5 < id", "Id > 5"),
        ("s.`x.Y` >= 1", "S.`X.y` >= 1"),
        ("id = 2.0", "Id = 2"),
        ("id = 2.5", NEVER.format("Id")),
        ("id != 2.5", ALWAYS.format("Id")),
        ("id <=> 2.5", "FALSE"),
        ("id < 2.5", "Id <= 2"),
        ("id <= -2.5", "Id <= -3"),
        ("id > 2.5", "Id > 2"),
        ("id >= -2.5", "Id > -3"),
        ("id < 1e30BD", ALWAYS.format("Id")),
        ("id >= -1e30BD", ALWAYS.format("Id")),
        ("id > 1e30BD", NEVER.format("Id")),
        ("id = 1e30BD", NEVER.format("Id")),
        ("id != 1e30BD", ALWAYS.format("Id")),
        ("id <=> -1e30BD", "FALSE"),
        ("b < 1000", "b < 1000"),
        ("id = '5'", "Id = 5"),
        ("id < 2.5D", "Id < 2.5D"),
        ("dec < 1.234", "dec <= 1.23BD"),
        ("dec = 5", "dec = 5.00BD"),
        ("dec = '1.5'", "dec = 1.5D"),
        ("dec > 1.5F", "dec > 1.5D"),
        ("dec < 1e37BD", ALWAYS.format("dec")),
        ("f = 1", "f = 1.0D"),
        ("f = 0.1", "f = 0.1D"),
        ("d = 'NaN'", "d = CAST('NaN' AS DOUBLE)"),
        ("txt < 'x'", "txt < 'x'"),
        ("bin = 'é'", "bin = X'C3A9'"),
        ("flag = 'yes'", "flag = TRUE"),
        ("flag", "flag = TRUE"),
        ("day >= '2024-02-29'", "day >= DATE '2024-02-29'"),
        ("day < TIMESTAMP '2024-02-29 00:00:00'", "day < DATE '2024-02-29'"),
        ("day < TIMESTAMP '2024-02-29 00:00:01'", "day <= DATE '2024-02-29'"),
        ("day >= TIMESTAMP '2024-02-29 00:00:01'", "day > DATE '2024-02-29'"),
        ("day = TIMESTAMP_NTZ '2024-02-29 00:00:01'", NEVER.format("day")),
        ("at < '2024-02-29'", "at < TIMESTAMP '2024-02-29 00:00:00.000000Z'"),
        ("at < DATE '2024-02-29'", "at < TIMESTAMP '2024-02-29 00:00:00.000000Z'"),
        ("at < TIMESTAMP_NTZ '2024-02-29 1:0:0'", "at < TIMESTAMP '2024-02-29 01:00:00.000000Z'"),
        ("clock < '2024-02-29'", "clock < TIMESTAMP_NTZ '2024-02-29 00:00:00.000000'"),
        ("clock < DATE '2024-02-29'", "clock < TIMESTAMP_NTZ '2024-02-29 00:00:00.000000'"),
        ("clock < TIMESTAMP '2024-02-29'", "clock < TIMESTAMP_NTZ '2024-02-29 00:00:00.000000'"),
        ("id = NULL", "NULL"),
        ("id <=> NULL", "Id IS NULL"),
        ("nothing = 1", "NULL"),
        ("nothing <=> 1", "FALSE"),
        ("list IS NULL", "list IS NULL"),
        ("s IS NOT NULL", "NOT (S IS NULL)"),
        ("id IN (1, 2.0, 2.5, 2)", "Id IN (1, 2)"),
        ("id IN (1, 3000000000)", "Id IN (1L, 3000000000L)"),
        ("id IN (1, NULL)", "Id IN (1, NULL)"),
        ("id IN (2.5)", NEVER.format("Id")),
        ("id IN (2.5, NULL)", "NULL"),
        ("id IN (1, 2D)", "Id = 1 OR Id = 2.0D"),
        ("id IN (1, 2D, NULL)", "Id = 1 OR Id = 2.0D OR NULL"),
        ("code LIKE 'x%'", "code LIKE 'x%'"),
        ("short = 'x'", "short = 'x'"),
        ("id = b", "Id = b"),
        ("dec < d", "dec < d"),
        ("1 < 2", "TRUE"),
        ("1 = 1.0", "TRUE"),
        ("0.1D = 0.1F", "FALSE"),
        ("'b' <= 'a'", "FALSE"),
        ("'2' = 2", "TRUE"),
        ("NULL = 1", "NULL"),
        ("NULL <=> NULL", "TRUE"),
        ("1 <=> NULL", "FALSE"),
        ("CAST('NaN' AS DOUBLE) > 1e300", "TRUE"),
        ("CAST('NaN' AS DOUBLE) = CAST('NaN' AS FLOAT)", "TRUE"),
        ("DATE '2024-01-01' < TIMESTAMP '2024-01-01 00:00:01'", "TRUE"),
        ("DATE '2024-01-01' != '2024-01-01'", "FALSE"),
        ("TRUE >= FALSE", "TRUE"),
        ("TRUE AND id = 1", "Id = 1"),
    ],
)
def test_literals_take_the_type_they_are_compared_in(sql: str, expected: str) -> None:
    assert bound(sql) == expected
    again = bind(parse_predicate(bound(sql)), SCHEMA)
    assert again.to_sql() == expected, "binding twice changes nothing"


def test_days_and_clocks_are_those_of_the_session() -> None:
    zone = "-08:00"
    assert bound("at >= '2024-02-29'", zone) == "at >= TIMESTAMP '2024-02-29 08:00:00.000000Z'"
    assert bound("at >= DATE '2024-02-29'", zone).endswith(" 08:00:00.000000Z'")
    assert bound("day < TIMESTAMP '2024-02-29 08:00:00Z'", zone) == "day < DATE '2024-02-29'"
    assert bound("day < TIMESTAMP '2024-02-29 07:59:59Z'", zone) == "day <= DATE '2024-02-28'"
    # A clock may show an hour twice, or never: such a comparison has no order to rely on.
    with pytest.raises(InvalidPredicateError, match="cannot be compared"):
        bound("clock < TIMESTAMP '2024-02-29'", zone)


@pytest.mark.parametrize(
    "sql",
    [
        "unknown = 1",
        "s.z = 1",
        "id.x = 1",
        "list.element = 1",
        "unknown IS NULL",
        "unknown IN (1)",
        "unknown LIKE 'x%'",
        "unknown = id",
        "txt = 5",
        "txt = DATE '2024-01-01'",
        "id = 'x'",
        "id = '1.5'",
        "id = TRUE",
        "flag = 1",
        "flag = 'perhaps'",
        "day = 5",
        "day = 'x'",
        "at = 5",
        "list = 1",
        "v = 1",
        "s = 1",
        "folded = 'x'",
        "folded LIKE 'x%'",
        "code = 'x'",
        "id LIKE '1%'",
        "id = txt",
        "folded = txt",
        "list = list",
        "1 = DATE '2024-01-01'",
        "1 = 'x'",
        "X'00' = 1",
        "at = TIMESTAMP_NTZ '+294300-01-01 00:00:00'",
    ],
)
def test_what_has_no_one_meaning_is_refused_or_unknown(sql: str) -> None:
    try:
        predicate = parse_predicate(sql)
    except InvalidPredicateError:
        return
    with pytest.raises(InvalidPredicateError) as caught:
        bind(predicate, SCHEMA)
    assert caught.value.condition == "DELTA_INVALID_PREDICATE"
    lenient = bind(predicate, SCHEMA, lenient=True)
    assert isinstance(lenient.predicate, Unknown)


def test_a_time_zone_must_be_one() -> None:
    with pytest.raises(InvalidPredicateError, match="time zone"):
        bind(compare("id", "=", 1), SCHEMA, time_zone="Nowhere")


def test_constants_are_decided_at_once() -> None:
    one = Comparison("=", literal(1), literal(1))
    assert bind(one, SCHEMA).predicate == TRUE
    assert bind(Comparison("!=", literal(1), literal(1)), SCHEMA).predicate == FALSE


def test_text_has_an_order_of_bytes_unless_it_says_otherwise() -> None:
    ordered = {f.name for f in SCHEMA if f.data_type == STRING and has_binary_order(f)}
    assert ordered == {"txt", "short"}


def test_casts_of_literals_are_few_and_exact() -> None:
    assert cast_literal(literal(5), DecimalType(5, 2)) == Literal(
        Decimal("5.00"), DecimalType(5, 2)
    )
    assert cast_literal(literal(None), DATE) == Literal(None, DATE)
    assert cast_literal(literal(math.inf), FLOAT) == Literal(math.inf, FLOAT)
    for value, kind in [(literal(True), LONG), (literal(1.5), LONG), (literal(5), DATE)]:
        with pytest.raises(ValueError, match="cast"):
            cast_literal(value, kind)
    with pytest.raises(ValueError, match="fit"):
        cast_literal(literal(5000), BYTE)
    with pytest.raises(ValueError, match="cast"):
        cast_literal(literal(math.nan), DecimalType(5, 2))
    assert Column(("a",)).to_sql() == "a"
