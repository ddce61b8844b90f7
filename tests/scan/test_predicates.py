"""The predicate tree: how it is put together, taken apart and written down."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from pyspark_delta.kernel.protocol.types import (
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DecimalType,
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
    StartsWith,
    Unknown,
    columns_of,
    compare,
    conjunction,
    conjuncts,
    disjunction,
    has_unknown,
    literal,
    rename_columns,
    split_partition_part,
)

A, B, C = (compare(name, "=", 1) for name in "abc")


def test_and_and_or_are_flat() -> None:
    assert conjunction([A, conjunction([B, C])]) == And((A, B, C))
    assert disjunction([A, disjunction([B, C])]) == Or((A, B, C))
    assert conjunction([A]) == disjunction([A]) == A
    assert conjunction([]) == TRUE
    assert disjunction([]) == FALSE
    assert conjuncts(And((A, And((B, TRUE))))) == (A, B)
    assert conjuncts(TRUE) == ()


def test_constants_decide_what_they_can() -> None:
    assert conjunction([A, TRUE]) == A
    assert conjunction([A, FALSE]) == FALSE
    assert conjunction([A, NULL]) == And((A, NULL))
    assert disjunction([A, TRUE]) == TRUE
    assert disjunction([A, FALSE]) == A
    assert disjunction([A, NULL]) == Or((A, NULL))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2**31 - 1, Literal(2**31 - 1, INTEGER)),
        (2**31, Literal(2**31, LONG)),
        (-(2**63) - 1, Literal(Decimal(-(2**63) - 1), DecimalType(19, 0))),
        (0.5, Literal(0.5, DOUBLE)),
        (Decimal("0.001"), Literal(Decimal("0.001"), DecimalType(3, 3))),
        (Decimal("1E+3"), Literal(Decimal("1E+3"), DecimalType(4, 0))),
        (date(1969, 12, 31), Literal(-1, DATE)),
        (datetime(1970, 1, 1, 0, 0, 1), Literal(1_000_000, TIMESTAMP_NTZ)),
        (datetime(1970, 1, 1, tzinfo=UTC), Literal(0, TIMESTAMP)),
        (
            datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
            Literal(0, TIMESTAMP),
        ),
    ],
)
def test_a_python_value_is_a_literal(value: object, expected: Literal) -> None:
    assert literal(value) == expected  # type: ignore[arg-type]


def test_a_decimal_must_be_a_number() -> None:
    with pytest.raises(ValueError, match="not a decimal"):
        literal(Decimal("NaN"))
    with pytest.raises(ValueError, match="decimal"):
        literal(Decimal(10) ** 40)
    with pytest.raises(ValueError, match="operator"):
        Comparison("~", Column(("a",)), literal(1))


def test_columns_are_found_once_in_order() -> None:
    predicate = And(
        (
            Or((compare("b.c", "<", 1), IsNull(Column(("a",))))),
            Not(In(Column(("d",)), (literal(1),))),
            StartsWith(Column(("a",)), "x"),
            Comparison("=", Column(("e",)), Column(("b", "c"))),
            Unknown("f(x)"),
            NULL,
        )
    )
    assert columns_of(predicate) == (("b", "c"), ("a",), ("d",), ("e",))
    assert has_unknown(predicate)
    assert not has_unknown(A)


def test_columns_are_renamed_everywhere() -> None:
    predicate = And(
        (
            Not(Comparison("<", literal(1), Column(("a", "b")))),
            Or((IsNull(Column(("a",))), StartsWith(Column(("a",)), "x"), Unknown("a"))),
            In(Column(("a",)), (literal(1),)),
        )
    )
    renamed = rename_columns(predicate, lambda path: ("x", *path[1:]))
    assert columns_of(renamed) == (("x", "b"), ("x",))
    assert rename_columns(renamed, lambda path: ("a", *path[1:])) == predicate


def test_a_predicate_is_split_by_what_partitions_decide() -> None:
    mixed = Or((A, compare("x", "=", 1)))
    unknown = Or((A, Unknown("f(a)")))
    predicate = conjunction([A, compare("X", ">", 1), mixed, Or((A, B)), unknown])
    partition, data = split_partition_part(predicate, ["A", "b"])
    assert partition == And((A, Or((A, B))))
    assert data == And((compare("X", ">", 1), mixed, unknown))
    assert split_partition_part(TRUE, ["a"]) == (TRUE, TRUE)
    assert split_partition_part(FALSE, ["a"]) == (FALSE, TRUE)


@pytest.mark.parametrize(
    ("path", "sql"),
    [
        (("a", "b"), "a.b"),
        (("a.b",), "`a.b`"),
        (("a`b", "c d"), "`a``b`.`c d`"),
        (("select",), "`select`"),
        (("é",), "`é`"),
        (("1a",), "`1a`"),
    ],
)
def test_a_name_that_needs_it_is_quoted(path: tuple[str, ...], sql: str) -> None:
    assert Column(path).to_sql() == sql


def test_a_predicate_reads_as_sql() -> None:
    predicate = Or((And((A, Not(B))), IsNull(Column(("c",))), Unknown("f(x) > 1"), Unknown()))
    assert predicate.to_sql() == "(a = 1 AND NOT (b = 1)) OR c IS NULL OR (f(x) > 1) OR UNKNOWN"
    assert And(()).to_sql() == "TRUE"
    assert StartsWith(Column(("a",)), "50%_\\'").to_sql() == r"a LIKE '50\\%\\_\\\\\'%'"
