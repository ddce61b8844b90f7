"""SQL text to predicates and back: what is understood, what is not, and that nothing is guessed."""

from __future__ import annotations

import math
from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    DecimalType,
    StructField,
    StructType,
)
from pyspark_delta.kernel.scan.predicates.literals import LiteralValue
from pyspark_delta.kernel.scan.predicates.sql import (
    MAX_CHARACTERS,
    parse_predicate,
)
from pyspark_delta.kernel.scan.predicates.tree import (
    FALSE,
    NULL,
    TRUE,
    And,
    Column,
    Comparison,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    Predicate,
    StartsWith,
    Unknown,
    compare,
    conjunction,
    disjunction,
    literal,
)
from tests.support.predicate_model import parse_for_skipping

A = Column(("a",))
B, C, ONE, TWO = (compare(name, "=", n) for name, n in [("b", 2), ("c", 3), ("one", 1), ("two", 2)])
HOUR = 3_600_000_000


def is_a(op: str, value: LiteralValue) -> Predicate:
    return Comparison(op, A, literal(value))


@pytest.mark.parametrize(
    ("sql", "predicate"),
    [
        ("a = 1", is_a("=", 1)),
        ("a == 1", is_a("=", 1)),
        ("a <> 1", is_a("!=", 1)),
        ("a != 1", is_a("!=", 1)),
        ("a <=> 1", is_a("<=>", 1)),
        ("1 < a", Comparison("<", literal(1), A)),
        ("((a)) >= (1)", is_a(">=", 1)),
        ("(a = 1)", is_a("=", 1)),
        ("not a = 1", Not(is_a("=", 1))),
        ("NOT NOT a = 1", is_a("=", 1)),
        ("! (a = 1)", Not(is_a("=", 1))),
        ("a = 1 AND b = 2 OR c = 3", Or((And((is_a("=", 1), B)), C))),
        ("a = 1 and (b = 2 or c = 3)", And((is_a("=", 1), Or((B, C))))),
        ("a IN (1, 'x', NULL)", In(A, (literal(1), literal("x"), literal(None)))),
        ("a not in (1)", Not(In(A, (literal(1),)))),
        ("a BETWEEN 1 AND 2", And((is_a(">=", 1), is_a("<=", 2)))),
        ("a not between 1 and 2 and b = 2", And((Not(And((is_a(">=", 1), is_a("<=", 2)))), B))),
        ("a IS NULL", IsNull(A)),
        ("a is not null", Not(IsNull(A))),
        ("a IS TRUE", is_a("<=>", True)),
        ("a IS NOT FALSE", Not(is_a("<=>", False))),
        ("a IS UNKNOWN", IsNull(A)),
        ("a IS DISTINCT FROM 1", Not(is_a("<=>", 1))),
        ("a IS NOT DISTINCT FROM 1", is_a("<=>", 1)),
        ("NULL IS NULL", TRUE),
        ("1 IS NULL", FALSE),
        ("a", is_a("=", True)),
        ("NOT a", Not(is_a("=", True))),
        ("TRUE", TRUE),
        ("NOT true", FALSE),
        ("null", NULL),
        ("NOT NULL", NULL),
        ("a LIKE 'x%'", StartsWith(A, "x")),
        ("a LIKE 'x%%'", StartsWith(A, "x")),
        ("a LIKE '%'", StartsWith(A, "")),
        ("a LIKE 'x'", is_a("=", "x")),
        ("a NOT LIKE 'x%'", Not(StartsWith(A, "x"))),
        (r"a LIKE 'x\%\_\\\\%'", StartsWith(A, "x%_\\")),
        ("a.b.`c d`.`e``f` = 1", compare(("a", "b", "c d", "e`f"), "=", 1)),
        ("`and` = 1", compare(("and",), "=", 1)),
        (
            "date = 1 AND timestamp = 2 AND end = 3",
            And((compare("date", "=", 1), compare("timestamp", "=", 2), compare("end", "=", 3))),
        ),
        ("é = 1", compare(("é",), "=", 1)),
        ("a /* why */ = -- because\n 1", is_a("=", 1)),
        ("a = /* no /* why */ */ 1", is_a("=", 1)),
        ("1a = 1", compare("1a", "=", 1)),
        (
            "1 IN (1, 2)",
            Or((Comparison("=", literal(1), literal(1)), Comparison("=", literal(1), literal(2)))),
        ),
        ("a < b", Comparison("<", A, Column(("b",)))),
    ],
)
def test_sql_is_understood(sql: str, predicate: Predicate) -> None:
    assert parse_predicate(sql) == predicate


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("5", Literal(5, INTEGER)),
        ("-2147483648", Literal(-(2**31), INTEGER)),
        ("2147483648", Literal(2**31, LONG)),
        ("9223372036854775808", Literal(Decimal(2**63), DecimalType(19, 0))),
        ("5L", Literal(5, LONG)),
        ("-9223372036854775808l", Literal(-(2**63), LONG)),
        ("5S", Literal(5, SHORT)),
        ("-128Y", Literal(-128, BYTE)),
        ("1.50", Literal(Decimal("1.50"), DecimalType(3, 2))),
        (".5", Literal(Decimal("0.5"), DecimalType(1, 1))),
        ("5.", Literal(Decimal("5"), DecimalType(1, 0))),
        ("2BD", Literal(Decimal(2), DecimalType(1, 0))),
        ("1.5e2bd", Literal(Decimal("1.5E+2"), DecimalType(3, 0))),
        ("1e2", Literal(100.0, DOUBLE)),
        ("1.5E-3", Literal(0.0015, DOUBLE)),
        ("1D", Literal(1.0, DOUBLE)),
        ("0.1F", Literal(0.10000000149011612, FLOAT)),
        ("+ 5", Literal(5, INTEGER)),
        ("'it''s'", Literal("it's", STRING)),
        (r"'it\'s\n\u00e9\U0001F600\101\\'", Literal("it's\né😀A\\", STRING)),
        (r"'50\%'", Literal("50\\%", STRING)),
        ('"say ""it\'\'s"""', Literal("say \"it''s\"", STRING)),
        (r"r'\n'", Literal("\\n", STRING)),
        ("DATE '2024-02-29'", Literal(19_782, DATE)),
        ("TIMESTAMP '1970-01-01 00:00:00'", Literal(-HOUR, TIMESTAMP)),
        ("timestamp '1970-01-01T00:00:00.5Z'", Literal(500_000, TIMESTAMP)),
        ("TIMESTAMP_NTZ '1970-01-01 00:00:00'", Literal(0, TIMESTAMP_NTZ)),
        ("X'0fF'", Literal(b"\x00\xff", BINARY)),
        ("CAST('NaN' AS DOUBLE)", None),
        ("CAST('5' AS BIGINT)", Literal(5, LONG)),
        ("CAST(5 AS DECIMAL(10, 2))", Literal(Decimal("5.00"), DecimalType(10, 2))),
        ("CAST(1.25 AS decimal(2,1))", Literal(Decimal("1.3"), DecimalType(2, 1))),
        ("CAST(CAST('1970-01-02' AS DATE) AS TIMESTAMP)", Literal(23 * HOUR, TIMESTAMP)),
        ("CAST(NULL AS INT)", Literal(None, INTEGER)),
        ("CAST('t' AS BOOLEAN)", Literal(True, BOOLEAN)),
        ("CAST(5 AS DOUBLE)", Literal(5.0, DOUBLE)),
        ("CAST(300 AS SMALLINT)", Literal(300, SHORT)),
    ],
)
def test_literals_have_the_types_that_spark_gives_them(sql: str, value: Literal | None) -> None:
    parsed = parse_predicate(f"a = {sql}", time_zone="+01:00")
    assert isinstance(parsed, Comparison)
    found = parsed.right
    assert isinstance(found, Literal)
    if value is None:
        assert isinstance(found.value, float)
        assert math.isnan(found.value)
    else:
        assert found == value
        assert type(found.value) is type(value.value)


NOT_UNDERSTOOD = [
    "a",
    "a + 1 = 2",
    "f(a) = 2",
    "a = f(1)",
    "a LIKE '%x'",
    "a LIKE 'x_y'",
    r"a LIKE 'x\\'",
    "a LIKE b",
    "a LIKE 'x%' ESCAPE '!'",
    "a RLIKE 'x'",
    "a IN (SELECT b FROM t WHERE c = 1 AND d = 2)",
    "a IN (b, c)",
    "a IN ()",
    "(a, b) = (1, 2)",
    "CASE WHEN a = 1 AND b = 2 THEN c OR d ELSE e END",
    "CASE WHEN a THEN CASE b WHEN 1 THEN true END END = true",
    "EXISTS (SELECT 1 FROM t WHERE a = 1 OR b = 2)",
    "(SELECT max(x) = 1 AND y = 2 FROM t)",
    "f(a) BETWEEN 1 AND 2",
    "a BETWEEN f(1) AND f(2)",
    "a BETWEEN 1 + 2 AND 3",
    "a = 1 = 2",
    "a IS NULL IS NULL",
    "a[0] = 1",
    "a:b = 1",
    "a.b() = 1",
    "a. = 1",
    "1.5abc = 1",
    "a = 1 2",
    "a = X'41' 'y'",
    "a = DATE '2024-02-30'",
    "a = 300Y",
    "a = 1.5L",
    "a = X'0g'",
    "a = INTERVAL '1' DAY",
    "a = CAST('x' AS INT)",
    "a = CAST(1 AS VARCHAR(3))",
    "a = CAST(1 AS DECIMAL(99, 2))",
    "a = CAST(b AS INT)",
    "a = - 'x'",
    "5",
    "'x'",
    "a || b = 'x'",
    "`` = 1",
    "a = ?",
    "a = :name",
    "a -> b",
    "a = 1e999999999999999999999BD",
    "a = " + "9" * 50,
]


@pytest.mark.parametrize("sql", NOT_UNDERSTOOD[1:])
def test_other_sql_is_refused_with_its_place(sql: str) -> None:
    with pytest.raises(InvalidPredicateError) as caught:
        parse_predicate(sql)
    assert caught.value.condition == "DELTA_INVALID_PREDICATE"
    assert caught.value.parameters["predicate"] == sql
    assert "at position" in caught.value.parameters["reason"]


@pytest.mark.parametrize(
    "sql",
    [
        "",
        " ",
        "a =",
        "AND",
        "a = 1 AND",
        "OR a = 1",
        "a = 1)",
        "(a = 1",
        "a = 'x",
        "a = `x",
        'a = "x',
        "a = 1 /* x",
        "a = 1 /* /* */",
        "NOT",
        "()",
        "a = 1 OR ()",
    ],
)
def test_broken_sql_is_refused_and_skips_nothing(sql: str) -> None:
    with pytest.raises(InvalidPredicateError, match="at position"):
        parse_predicate(sql)


def test_a_comment_is_not_a_condition() -> None:
    assert parse_predicate("a = 1 -- AND b = 2") == is_a("=", 1)
    assert parse_predicate("a = 1 /* AND b = 2 */ OR c = 3") == Or(
        (is_a("=", 1), compare("c", "=", 3))
    )


def test_depth_and_length_are_limited() -> None:
    deep = "(" * 5_000 + "a = 1" + ")" * 5_000
    long = " OR ".join(["a = 1"] * (MAX_CHARACTERS // 8))
    for sql in (deep, long, "NOT " * 300_000 + "a"):
        with pytest.raises(InvalidPredicateError):
            parse_predicate(sql)
    assert parse_predicate("NOT " * 1_000 + "a = 1") == is_a("=", 1)
    assert len(parse_predicate(" OR ".join(f"a = {n}" for n in range(5_000))).operands) == 5_000
    nested = "(" * 90 + "a = 1" + ")" * 90
    assert parse_predicate(nested) == is_a("=", 1)


def test_a_time_zone_must_be_one() -> None:
    with pytest.raises(InvalidPredicateError, match="time zone"):
        parse_predicate("a = 1", time_zone="Nowhere")


SCHEMA = StructType(
    (
        StructField("Id", LONG),
        StructField("day", DATE),
        StructField("s", StructType((StructField("x", INTEGER),))),
        StructField("name", STRING),
    )
)


@pytest.mark.parametrize(
    ("sql", "bound"),
    [
        ("id > 5 AND DAY = '2024-01-01'", "Id > 5 AND day = DATE '2024-01-01'"),
        ("id > 5 AND nothing = 1", "Id > 5 AND (nothing = 1)"),
        ("t.id > 5", "(t.id > 5)"),
        ("s = 1 OR s.X = 2", "(s = 1) OR s.x = 2"),
        ("name = 5", "(name = 5)"),
        ("id = 'x'", "(Id = 'x')"),
        ("s.x.y IS NULL", "(s.x.y IS NULL)"),
    ],
)
def test_for_skipping_names_and_types_must_fit(sql: str, bound: str) -> None:
    found = parse_for_skipping(sql, SCHEMA)
    assert found.to_sql().lower() == bound.lower()
    parts = (found.predicate, *found.predicate.operands)
    assert ("(" in bound) == any(isinstance(part, Unknown) for part in parts)


# What is written is read again.

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=6)
COLUMNS = st.lists(NAMES, min_size=1, max_size=3).map(lambda path: Column(tuple(path)))
LITERALS = st.one_of(
    st.none().map(lambda _: Literal(None, VOID)),
    st.booleans().map(literal),
    st.integers(-(2**31), 2**31 - 1).map(literal),
    st.integers(-(2**63), 2**63 - 1).map(lambda n: Literal(n, LONG)),
    st.integers(-128, 127).map(lambda n: Literal(n, BYTE)),
    st.integers(-(2**15), 2**15 - 1).map(lambda n: Literal(n, SHORT)),
    st.floats(allow_nan=False).map(literal),
    st.floats(allow_nan=False, width=32).map(lambda x: Literal(x, FLOAT)),
    st.integers(-(10**20), 10**20).map(lambda n: literal(Decimal(n).scaleb(-3))),
    st.text(st.characters(codec="utf-8")).map(literal),
    st.binary(max_size=8).map(literal),
    st.integers(-800_000, 3_000_000).map(lambda n: Literal(n, DATE)),
    st.integers(-(2**60), 2**60).map(lambda n: Literal(n, TIMESTAMP)),
    st.integers(-(2**60), 2**60).map(lambda n: Literal(n, TIMESTAMP_NTZ)),
)
OPERATORS = st.sampled_from(["=", "<=>", "!=", "<", "<=", ">", ">="])
LEAVES = st.one_of(
    st.builds(Comparison, OPERATORS, COLUMNS, LITERALS),
    st.builds(Comparison, st.sampled_from(["=", "<"]), COLUMNS, COLUMNS),
    st.builds(IsNull, COLUMNS),
    st.builds(In, COLUMNS, st.lists(LITERALS, min_size=1, max_size=3).map(tuple)),
    st.builds(StartsWith, COLUMNS, st.text(st.characters(codec="utf-8"), max_size=5)),
)
PREDICATES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.filter(lambda p: not isinstance(p, Not)).map(Not),
        st.lists(inner, min_size=2, max_size=3).map(conjunction),
        st.lists(inner, min_size=2, max_size=3).map(disjunction),
    ),
    max_leaves=8,
)


@given(PREDICATES, st.sampled_from(["UTC", "-07:52:58"]))
def test_a_predicate_survives_its_own_text(predicate: Predicate, time_zone: str) -> None:
    assert parse_predicate(predicate.to_sql(), time_zone=time_zone) == predicate


KEYWORDS = ("AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS", "NULL", "CASE", "END", "DATE")
WORDS = st.sampled_from(
    [
        *"ab.'\"`()=<>!-+*/,01 \n\\%_",
        *(f" {word} " for word in KEYWORDS),
        *("CAST(", "a = 1", "'x'"),
    ]
)


@given(st.lists(WORDS, max_size=15).map("".join) | st.text(max_size=30))
def test_no_text_breaks_the_parser(text: str) -> None:
    with suppress(InvalidPredicateError):
        assert isinstance(parse_predicate(text), Predicate)
