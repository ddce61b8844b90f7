"""Rows judged in Arrow agree with rows judged one by one."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delta.errors import InvalidPredicateError
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
    DecimalType,
    StructField,
    StructType,
)
from pyspark_delta.kernel.scan.predicates.binding import bind
from pyspark_delta.kernel.scan.predicates.evaluation import evaluate
from pyspark_delta.kernel.scan.predicates.sql import parse_predicate
from pyspark_delta.kernel.scan.predicates.tree import (
    Column,
    Comparison,
    In,
    IsNull,
    Literal,
    Not,
    Predicate,
    StartsWith,
    Unknown,
    conjunction,
    disjunction,
    literal,
)
from tests.support.predicate_model import judge

NAN, INF = math.nan, math.inf
SCHEMA = StructType(
    (
        StructField("n", LONG),
        StructField("i", INTEGER),
        StructField("d", DOUBLE),
        StructField("f", FLOAT),
        StructField("dec", DecimalType(20, 3)),
        StructField("t", STRING),
        StructField("bin", BINARY),
        StructField("b", BOOLEAN),
        StructField("day", DATE),
        StructField("at", TIMESTAMP),
        StructField("clock", TIMESTAMP_NTZ),
        StructField("s", StructType((StructField("x", LONG),))),
    )
)
ARROW_TYPES = {
    "n": pa.int64(),
    "i": pa.int32(),
    "d": pa.float64(),
    "f": pa.float32(),
    "dec": pa.decimal128(20, 3),
    "t": pa.string(),
    "bin": pa.binary(),
    "b": pa.bool_(),
    "day": pa.date32(),
    "at": pa.timestamp("us", "UTC"),
    "clock": pa.timestamp("us"),
    "s": pa.struct([("x", pa.int64())]),
}


def table(**columns: list[Any]) -> pa.Table:
    return pa.table({name: pa.array(values, ARROW_TYPES[name]) for name, values in columns.items()})


def judged(sql: str, time_zone: str = "UTC", **columns: list[Any]) -> list[bool | None]:
    predicate = parse_predicate(sql, time_zone=time_zone)
    bound = bind(predicate, SCHEMA, time_zone=time_zone)
    found: list[bool | None] = evaluate(bound, table(**columns)).to_pylist()
    return found


def test_nulls_are_neither_true_nor_false() -> None:
    assert judged("n < 5", n=[1, 9, None]) == [True, False, None]
    assert judged("NOT n < 5", n=[1, 9, None]) == [False, True, None]
    assert judged("n < 5 OR t = 'x'", n=[9, None, None], t=["x", "x", "y"]) == [True, True, None]
    assert judged("n < 5 AND t = 'x'", n=[9, None, None], t=[None, "x", "y"]) == [
        False,
        None,
        False,
    ]
    assert judged("n IS NULL", n=[1, None]) == [False, True]
    assert judged("n <=> NULL", n=[1, None]) == [False, True]
    assert judged("n <=> 1", n=[1, 2, None]) == [True, False, False]
    assert judged("NOT n <=> 1", n=[1, 2, None]) == [False, True, True]
    assert judged("n IN (1, NULL)", n=[1, 2, None]) == [True, None, None]
    assert judged("n NOT IN (1, NULL)", n=[1, 2, None]) == [False, None, None]
    assert judged("n NOT IN (1, 3)", n=[1, 2, None]) == [False, True, None]
    assert judged("n = 2.5", n=[1, None]) == [False, None]
    assert judged("n != 2.5", n=[1, None]) == [True, None]
    assert judged("NULL", n=[1, None]) == [None, None]
    assert judged("TRUE", n=[1, None]) == [True, True]


def test_nan_is_one_number_above_all_others() -> None:
    values = [1.0, INF, NAN, None]
    assert judged("d > 5", d=values) == [False, True, True, None]
    assert judged("d < 5", d=values) == [True, False, False, None]
    assert judged("d = CAST('NaN' AS DOUBLE)", d=values) == [False, False, True, None]
    assert judged("d != CAST('NaN' AS DOUBLE)", d=values) == [True, True, False, None]
    assert judged("d < CAST('NaN' AS DOUBLE)", d=values) == [True, True, False, None]
    assert judged("d <= CAST('NaN' AS DOUBLE)", d=values) == [True, True, True, None]
    assert judged("d >= CAST('NaN' AS DOUBLE)", d=values) == [False, False, True, None]
    assert judged("d > CAST('NaN' AS DOUBLE)", d=values) == [False, False, False, None]
    assert judged("d <=> CAST('NaN' AS DOUBLE)", d=values) == [False, False, True, False]
    assert judged("d IN (1, CAST('NaN' AS DOUBLE))", d=values) == [True, False, True, None]
    assert judged("d = 0 AND d IN (0D, 7)", d=[0.0, -0.0, 7.0]) == [True, True, False]
    assert judged("f IN (-0D)", f=[0.0, -0.0, 7.0]) == [True, True, False]


def test_numbers_compare_by_value_whatever_their_type() -> None:
    assert judged("f = 0.1", f=[0.1]) == [False]
    assert judged("f = 0.1F", f=[0.1]) == [True]
    assert judged("f > 0.1", f=[0.1]) == [True]
    assert judged("i < 3000000000", i=[5, -5]) == [True, True]
    assert judged("n = 9007199254740992D", n=[2**53, 2**53 + 1]) == [True, True]
    assert judged("n = 9007199254740992", n=[2**53, 2**53 + 1]) == [True, False]
    assert judged("dec = 1.50", dec=[Decimal("1.500"), Decimal("1.501")]) == [True, False]
    assert judged("dec > 1.5004", dec=[Decimal("1.500"), Decimal("1.501")]) == [False, True]
    assert judged("dec > 1.5D", dec=[Decimal("1.500"), Decimal("1.501")]) == [False, True]


def test_columns_compare_with_columns() -> None:
    assert judged("n < i", n=[1, 5, None], i=[2, 5, 1]) == [True, False, None]
    assert judged("n <=> i", n=[1, 5, None, None], i=[2, 5, 1, None]) == [False, True, False, True]
    assert judged("dec = n", dec=[Decimal("2.000"), Decimal("2.001")], n=[2, 2]) == [True, False]
    assert judged("d > n", d=[NAN, 1.0], n=[2**62, 1]) == [True, False]
    assert judged("t = t", t=["x", None]) == [True, None]


def test_text_is_cast_to_the_columns_type() -> None:
    days = [date(2024, 2, 28), date(2024, 2, 29), None]
    assert judged("day >= '2024-02-29'", day=days) == [False, True, None]
    assert judged("day = TIMESTAMP '2024-02-29 00:00:00'", day=days) == [False, True, None]
    moment = datetime(2024, 2, 29, 8, tzinfo=UTC)
    assert judged("at = '2024-02-29'", at=[moment]) == [False]
    assert judged("at = '2024-02-29'", at=[moment], time_zone="-08:00") == [True]
    assert judged("at > '2024-02-29 07:59:59.999999Z'", at=[moment]) == [True]
    assert judged("clock = '2024-02-29 08:00:00'", clock=[moment.replace(tzinfo=None)]) == [True]
    assert judged("b", b=[True, False, None]) == [True, False, None]
    assert judged("b > FALSE", b=[True, False, None]) == [True, False, None]


def test_text_and_binary_compare_by_their_bytes() -> None:
    # UTF-16 would put the first behind the second.
    assert judged("t < '\U0001f600'", t=["\uffff", "\U0001f601"]) == [True, False]
    assert judged("t LIKE 'x%'", t=["x", "xy", "X", "", None]) == [True, True, False, False, None]
    assert judged("t LIKE '%'", t=["", None]) == [True, None]
    assert judged("bin > X'7F'", bin=[b"\x80", b"\x7f", b""]) == [True, False, False]


def test_fields_of_structs_are_columns_too() -> None:
    rows = [{"x": 1}, {"x": None}, None, {"x": 9}]
    assert judged("s.x < 5", s=rows) == [True, None, None, False]
    assert judged("s.x IS NULL", s=rows) == [False, True, True, False]
    assert judged("s IS NULL", s=rows) == [False, False, True, False]


def test_other_arrow_types_of_a_column_are_taken_as_they_are() -> None:
    rows = pa.table(
        {
            "t": pa.chunked_array([["x", "y"], ["x"]]).dictionary_encode(),
            "n": pa.array([1, 2, 3], pa.int8()),
            "at": pa.array([0, 1_000, 1_999], pa.timestamp("ns", "UTC")),
            "clock": pa.array([0, 1, 2], pa.date32()),
        }
    )
    predicate = parse_predicate("t = 'x' AND n >= 1")
    assert evaluate(bind(predicate, SCHEMA), rows).to_pylist() == [True, False, True]
    late = parse_predicate("at >= '1970-01-01 00:00:00.000001Z'")
    assert evaluate(bind(late, SCHEMA), rows).to_pylist() == [False, True, True]
    widened = parse_predicate("clock >= '1970-01-02'")
    assert evaluate(bind(widened, SCHEMA), rows).to_pylist() == [False, True, True]
    large = pa.table({"t": pa.array(["x"], pa.large_string())})
    assert evaluate(bind(parse_predicate("t = 'x'"), SCHEMA), large).to_pylist() == [True]


def test_no_rows_are_no_trouble() -> None:
    assert judged("n < 5 AND NOT t LIKE 'x%' OR n IN (1, 2)", n=[], t=[]) == []
    empty = pa.table({"n": pa.chunked_array([], pa.int64())})
    assert len(evaluate(bind(parse_predicate("n < 5"), SCHEMA), empty)) == 0


def test_rows_cannot_be_judged_by_what_is_unknown() -> None:
    with pytest.raises(InvalidPredicateError, match="cannot be judged"):
        evaluate(bind(Unknown("f(n) = 1"), SCHEMA), table(n=[1]))
    with pytest.raises(InvalidPredicateError, match="no column"):
        judged("nothing = 1", n=[1])


# The same by the model.

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "n": st.integers(-3, 3) | st.sampled_from([2**53, 2**53 + 1, -(2**63), 2**63 - 1]),
    "d": st.sampled_from([NAN, INF, -INF, 0.0, -0.0, 1.5, -1.5, 2.0**53, 1e300]),
    "dec": st.integers(-3_000, 3_000).map(lambda n: Decimal(n).scaleb(-3)),
    "t": st.text(st.sampled_from("abé\U0001f600"), max_size=3),
    "day": st.integers(-2, 2),
    "at": st.integers(-2, 2),
}
KINDS = {name: SCHEMA[name].data_type for name in VALUES}
OPERATORS = st.sampled_from(["=", "<=>", "!=", "<", "<=", ">", ">="])


@st.composite
def leaves(draw: st.DrawFn) -> Predicate:
    name = draw(st.sampled_from(sorted(VALUES)))
    column = Column((name,))
    values = VALUES[name].map(lambda value: Literal(value, KINDS[name]))
    if name in ("n", "dec"):
        values |= VALUES["n"].map(literal) | VALUES["d"].map(literal)
        values |= st.integers(-30_000, 30_000).map(lambda n: literal(Decimal(n).scaleb(-4)))
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return IsNull(column)
    if kind == 1:
        nulls = st.just(literal(None))
        same = VALUES[name].map(lambda value: Literal(value, KINDS[name]))
        return In(column, tuple(draw(st.lists(same | nulls, min_size=1, max_size=4))))
    if kind == 2 and name == "t":
        return StartsWith(column, draw(VALUES["t"]))
    return Comparison(draw(OPERATORS), column, draw(values))


PREDICATES = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        inner.map(Not),
        st.lists(inner, min_size=1, max_size=3).map(conjunction),
        st.lists(inner, min_size=1, max_size=3).map(disjunction),
    ),
    max_leaves=5,
)
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}),
    max_size=6,
)


@given(PREDICATES, ROWS)
def test_arrow_and_the_model_agree(predicate: Predicate, rows: list[dict[str, Any]]) -> None:
    columns = {name: [row[name] for row in rows] for name in VALUES}
    found = evaluate(bind(predicate, SCHEMA), table(**columns)).to_pylist()
    assert found == [judge(predicate, row) for row in rows]
