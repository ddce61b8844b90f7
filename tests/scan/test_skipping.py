"""Files are skipped when they may be, and never when they must not be."""

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
from pyspark_delta.kernel.protocol.datetimes import format_date, format_timestamp
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
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
from pyspark_delta.kernel.scan.predicates.binding import BoundPredicate, bind
from pyspark_delta.kernel.scan.predicates.literals import float_value
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
from pyspark_delta.kernel.scan.skipping.files import skipping_mask
from pyspark_delta.kernel.scan.skipping.stats_table import leaf_stats, stats_leaves
from tests.support.predicate_model import judge, key, parse_for_skipping

SCHEMA = StructType(
    (
        StructField("n", LONG),
        StructField("d", DOUBLE),
        StructField("f", FLOAT),
        StructField("dec", DecimalType(20, 3)),
        StructField("t", STRING),
        StructField("b", BOOLEAN),
        StructField("day", DATE),
        StructField("at", TIMESTAMP),
        StructField("clock", TIMESTAMP_NTZ),
        StructField("s", StructType((StructField("x", LONG),))),
        StructField("list", ArrayType(LONG)),
        StructField("p", LONG),
    )
)
METADATA = Metadata(id="m", schema_string=format_schema(SCHEMA), partition_columns=("p",))


def mask(
    predicate: BoundPredicate, stats: list[str | None], partitions: pa.Table | None = None
) -> list[bool]:
    parsed = leaf_stats(pa.chunked_array([stats], pa.string()), stats_leaves(predicate, METADATA))
    kept: list[bool] = skipping_mask(predicate, parsed, partitions=partitions).to_pylist()
    return kept


def stats(column: str, low: Any, high: Any, nulls: int | None = 0, records: int | None = 10) -> str:
    nested: dict[str, Any] = {"minValues": low, "maxValues": high, "nullCount": nulls}
    value: dict[str, Any] = {"numRecords": records} if records is not None else {}
    for name, item in nested.items():
        if item is not None:
            inner = item
            for part in reversed(column.split(".")):
                inner = {part: inner}
            value[name] = inner
    return json.dumps(value)


def keeps(sql: str, *files: str | None) -> list[bool]:
    return mask(parse_for_skipping(sql, SCHEMA), list(files))


def test_a_range_chooses_the_files_it_overlaps() -> None:
    files = [stats("n", start, start + 9) for start in range(0, 50, 10)]
    assert keeps("n >= 20 AND n < 30", *files) == [False, False, True, False, False]
    assert keeps("n BETWEEN 19 AND 30", *files) == [False, True, True, True, False]
    assert keeps("n < 0", *files) == [False] * 5
    assert keeps("n <= 0", *files) == [True] + [False] * 4
    assert keeps("n > 49", *files) == [False] * 5
    assert keeps("49 <= n", *files) == [False] * 4 + [True]
    assert keeps("n = 25 OR n = 5", *files) == [True, False, True, False, False]
    assert keeps("n IN (5, 25, 100)", *files) == [True, False, True, False, False]
    assert keeps("n = 25.5", *files) == [False] * 5
    assert keeps("n < 10.5 AND n > 9.5", *files) == [False, True, False, False, False]
    assert keeps("n < 1e1D", *files) == [True] + [False] * 4


@pytest.mark.parametrize(
    ("sql", "kept"),
    [
        ("NOT n < 10", False),
        ("NOT n < 9", True),
        ("NOT n <= 9", False),
        ("NOT n <= 8", True),
        ("NOT n > 4", False),
        ("NOT n > 5", True),
        ("NOT n >= 5", False),
        ("NOT n >= 6", True),
        ("NOT n = 5", True),
        ("NOT (n >= 5 AND n <= 9)", False),
        ("NOT (n < 5 OR n > 9)", True),
        ("NOT (n > 9 OR t = 'x')", True),
        ("NOT (n > 0 OR t = 'x')", False),
        ("NOT n IN (1, 2)", True),
        ("n NOT IN (1, NULL)", False),
        ("n IN (NULL)", False),
        ("n = NULL", False),
        ("NOT n = NULL", False),
        ("n IS NULL", False),
        ("n IS NOT NULL", True),
        ("n <=> NULL", False),
        ("n <=> 7", True),
        ("n <=> 20", False),
        ("NOT n <=> 20", True),
        ("TRUE", True),
        ("FALSE", False),
        ("NULL", False),
        ("n = 7 AND unsupported", True),
        ("n = 20 AND unsupported", False),
        ("n = 20 OR unsupported", True),
        ("NOT unsupported", True),
        ("n < t", True),
        ("n = 20 OR NOT n IS NULL", True),
    ],
)
def test_every_kind_of_condition_is_judged(sql: str, kept: bool) -> None:
    assert keeps(sql, stats("n", 5, 9)) == [kept]


def test_a_file_with_one_value_is_skipped_by_its_contrary() -> None:
    one = stats("n", 5, 5)
    assert keeps("n != 5", one) == [False]
    assert keeps("NOT n = 5", one) == [False]
    assert keeps("n NOT IN (4, 5)", one) == [False]
    assert keeps("n NOT IN (4, 6)", one) == [True]
    assert keeps("NOT n <=> 5", one) == [False]
    assert keeps("NOT n <=> 5", stats("n", 5, 5, nulls=3)) == [True]


def test_nulls_are_counted() -> None:
    none, some, all_null = (
        stats("n", 1, 2, nulls=0),
        stats("n", 1, 2, nulls=4),
        stats("n", None, None, nulls=10),
    )
    assert keeps("n IS NULL", none, some, all_null) == [False, True, True]
    assert keeps("n IS NOT NULL", none, some, all_null) == [True, True, False]
    assert keeps("n = 1", none, some, all_null) == [True, True, False]
    assert keeps("n != 7", none, some, all_null) == [True, True, False]
    assert keeps("n <=> 1", none, some, all_null) == [True, True, False]
    assert keeps("NOT n <=> 7", none, some, all_null) == [True, True, True]
    assert keeps("n IN (1, 2)", none, some, all_null) == [True, True, False]
    assert keeps("NOT t LIKE 'x%'", stats("t", None, None, nulls=10)) == [False]
    assert keeps("list IS NULL", stats("list", None, None, nulls=0)) == [False]
    assert keeps("s IS NULL", stats("s.x", 1, 2, nulls=0)) == [True]


def test_wide_bounds_change_nothing() -> None:
    # With a deletion vector numRecords stays physical, and nulls mean none, all, or nothing.
    wide = json.loads(stats("n", 1, 9, nulls=3))
    text = json.dumps({**wide, "tightBounds": False})
    assert keeps("n IS NULL", text) == [True]
    assert keeps("n > 9", text) == [False]


def test_what_statistics_do_not_say_keeps_the_file() -> None:
    files = [
        None,
        "{}",
        "?",
        stats("n", None, None, nulls=None),
        stats("n", 1, None),
        stats("n", None, 9),
        stats("n", None, None, nulls=10, records=None),
        stats("x", 1, 2),
    ]
    assert keeps("n = 100", *files) == [True, True, True, True, True, False, True, True]
    assert keeps("n < 0", *files) == [True, True, True, True, False, True, True, True]
    assert keeps("n IS NULL", *files)[:4] == [True] * 4
    assert keeps("n IS NOT NULL", *files) == [True] * 8
    assert keeps("n = 100 AND n IS NOT NULL") == []
    assert keeps("p = 100", "{}") == [True]
    assert keeps("unheard_of = 1 AND n = 100", stats("n", 1, 2)) == [False]


def test_text_is_bounded_by_what_was_cut() -> None:
    cut = stats("t", "aaa", "bbb\x7f")
    assert keeps("t = 'bbbx'", cut) == [True]
    assert keeps("t = 'bbb\x7f'", cut) == [True]
    assert keeps("t > 'bbb~'", cut) == [True]
    assert keeps("t = 'bbc'", cut) == [False]
    assert keeps("t = 'aa'", cut) == [False]
    assert keeps("t > 'bbb\U0010ffff'", stats("t", "a", "bbb\U0010ffff")) == [False]
    assert keeps("t = 'bbbé'", stats("t", "a", "bbb\U0010ffff")) == [True]
    assert keeps("t != 'abc'", stats("t", "abc", "abc")) == [False]
    assert keeps("t != 'abc'", stats("t", "abc", "abc\x7f")) == [True]


@pytest.mark.parametrize(
    ("prefix", "kept", "otherwise"),
    [
        ("", True, False),
        ("a", False, True),
        ("b", True, True),
        ("bb", True, True),
        ("bbb", False, True),
        ("ba", True, True),
        ("c", True, True),
        ("cd", True, True),
        ("ce", False, True),
        ("d", False, True),
    ],
)
def test_prefixes_are_compared_with_both_ends(prefix: str, kept: bool, otherwise: bool) -> None:
    file = stats("t", "bac", "cdx")
    if prefix == "bb":
        file = stats("t", "bb", "cdx")
    if prefix == "bbb":
        file = stats("t", "bbc", "cdx")
    assert keeps(f"t LIKE '{prefix}%'", file) == [kept]
    assert keeps(f"t NOT LIKE '{prefix}%'", file) == [otherwise]


def test_a_file_of_one_prefix_is_skipped_by_its_contrary() -> None:
    assert keeps("t NOT LIKE 'ab%'", stats("t", "aba", "abz\x7f")) == [False]
    assert keeps("t NOT LIKE 'ab%'", stats("t", "aba", "abz", nulls=2)) == [False]
    assert keeps("t LIKE 'é%'", stats("t", "ée", "éf"), stats("t", "f", "z")) == [True, False]


def test_microseconds_behind_a_millisecond_are_found() -> None:
    # The file holds 00:00:00.123456 alone; its statistics say .123 twice.
    cut = "2024-01-01T00:00:00.123"
    assert keeps("at = '2024-01-01 00:00:00.123456Z'", stats("at", cut + "Z", cut + "Z")) == [True]
    assert keeps("at > '2024-01-01 00:00:00.123456Z'", stats("at", cut + "Z", cut + "Z")) == [True]
    assert keeps("at > '2024-01-01 00:00:00.124Z'", stats("at", cut + "Z", cut + "Z")) == [False]
    assert keeps("at != '2024-01-01 00:00:00.123Z'", stats("at", cut + "Z", cut + "Z")) == [True]
    assert keeps("clock = '2024-01-01 00:00:00.123999'", stats("clock", cut, cut)) == [True]
    assert keeps("clock = '2024-01-01 00:00:00.122999'", stats("clock", cut, cut)) == [False]
    assert keeps("at < '2024-01-01'", stats("at", cut + "Z", cut + "Z")) == [False]
    old = "1850-01-01T00:00:00.000-07:52"
    assert keeps("at = '1850-01-01 00:00:00-07:52:58'", stats("at", old, old)) == [True]
    assert keeps("at > '1851-01-01'", stats("at", old, old)) == [False]


def test_nan_may_hide_behind_any_maximum() -> None:
    file = stats("d", 1.5, 2.5)
    assert keeps("d > 100", file) == [True]
    assert keeps("NOT d < 100", file) == [True]
    assert keeps("d = CAST('NaN' AS DOUBLE)", file) == [True]
    assert keeps("d != 1.5", stats("d", 1.5, 1.5)) == [True]
    assert keeps("d < 1.5", file) == [False]
    assert keeps("d = 100", file) == [False]
    assert keeps("d IN (0, 100)", file) == [False]
    assert keeps("d BETWEEN 3 AND 4", file) == [True]
    assert keeps("d = 2", stats("d", 1.5, "NaN")) == [True]
    assert keeps("d < 1", stats("d", "NaN", "NaN")) == [False]


def test_floats_are_compared_as_the_floats_they_are() -> None:
    assert keeps("f >= 0.1", stats("f", 0.1, 0.1)) == [True]
    assert keeps("f = 0.1", stats("f", 0.1, 0.1)) == [False]
    assert keeps("f <= 0.1", stats("f", 0.1, 0.1)) == [False]
    assert keeps("f = 0.1F", stats("f", 0.1, 0.1)) == [True]


def test_other_types_are_judged_too() -> None:
    assert keeps("day = '2024-02-29'", stats("day", "2024-01-01", "2024-02-28")) == [False]
    noon = "day < TIMESTAMP '2024-01-01 12:00:00'"
    assert keeps(noon, stats("day", "2024-01-01", "2024-02-28")) == [True]
    assert keeps(noon, stats("day", "2024-01-02", "2024-02-28")) == [False]
    assert keeps("b", stats("b", False, False)) == [False]
    assert keeps("NOT b", stats("b", False, False)) == [True]
    assert keeps("dec > 2.5", stats("dec", 1.25, 2.5)) == [True]  # a double may have been rounded
    assert keeps("dec > 2.502", stats("dec", 1.25, 2.5)) == [False]
    assert keeps("s.x = 5", stats("s.x", 1, 4), stats("s.x", 1, 9)) == [False, True]


def test_long_lists_are_judged_by_ranges() -> None:
    values = ", ".join(str(n) for n in (*range(1000, 2000), *range(8000, 9000)))
    spans = [(0, 999), (1500, 1501), (3000, 4000), (8999, 9999), (9000, 9999), (0, 9999)]
    files = [stats("n", low, high) for low, high in spans]
    assert keeps(f"n IN ({values})", *files) == [False, True, False, True, False, True]
    assert keeps(f"n NOT IN ({values})", *files) == [True] * 6
    assert keeps(f"n NOT IN ({values})", stats("n", 1500, 1500)) == [False]
    assert keeps(f"d IN ({values})", stats("d", 3000, 4000), stats("d", 0, 1)) == [False, False]
    assert keeps(f"d NOT IN ({values})", stats("d", 1500, 1500)) == [True]
    assert keeps(f"d IN ({values}, CAST('NaN' AS DOUBLE))", stats("d", 0, 1)) == [True]


def test_partition_values_and_statistics_are_judged_together() -> None:
    partitions = pa.table({"p": [1, 2, None]})
    files = [stats("n", 0, 9), stats("n", 10, 19), stats("n", 0, 99)]

    def kept(sql: str) -> list[bool]:
        return mask(parse_for_skipping(sql, SCHEMA), list(files), partitions)

    assert kept("(p = 1 AND n > 50) OR (p = 2 AND n = 15)") == [False, True, False]
    assert kept("p = 1") == [True, False, False]
    assert kept("NOT p = 1") == [False, True, False]
    assert kept("p IS NULL AND n = 50") == [False, False, True]
    assert kept("p <=> NULL OR n = 15") == [False, True, True]
    assert kept("p < n") == [True] * 3
    assert kept("unsupported AND p = 2") == [False, True, False]


# A file with a row that matches is never skipped.

MICROS = st.integers(-5_000_000_000_000_000, 3_000_000_000_000_000) | st.integers(-2_000, 2_000)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "n": st.integers(-20, 20) | st.integers(-(2**63), 2**63 - 1),
    "d": st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0]) | st.floats(-9, 9),
    "f": st.floats(-9, 9, width=32) | st.sampled_from([math.nan, float_value(0.1, FLOAT)]),
    "dec": st.integers(-(10**19), 10**19).map(lambda n: Decimal(n).scaleb(-3)),
    "t": st.text(st.sampled_from("aé\x7f\U0001f600\U0010ffff"), max_size=6),
    "b": st.booleans(),
    "day": st.integers(-800_000, 40_000) | st.integers(-2, 2),
    "at": MICROS,
    "clock": MICROS,
}
KINDS: dict[str, DataType] = {name: SCHEMA[name].data_type for name in VALUES}
CUT = 3  # characters of a text that statistics keep
OPERATORS = st.sampled_from(["=", "<=>", "!=", "<", "<=", ">", ">="])


def written(name: str, value: Any, is_max: bool) -> Any:
    """A bound as some writer would put it into JSON; None for one that it leaves out."""
    kind = KINDS[name]
    if isinstance(value, float) and (math.isnan(value) or math.isinf(value)):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if kind == FLOAT:
        return float(f"{value:.9g}")
    if isinstance(kind, DecimalType):
        return float(value)  # as some do, and lose digits
    if kind == STRING:
        if len(value) <= CUT:
            return value
        return value[:CUT] + "\U0010ffff" if is_max else value[:CUT]
    if kind == DATE:
        return format_date(value)
    if kind in (TIMESTAMP, TIMESTAMP_NTZ):
        text = format_timestamp(value, separator="T", fraction_digits=3)
        return text + ("Z" if kind == TIMESTAMP else "")
    return value


@st.composite
def files(draw: st.DrawFn) -> tuple[list[dict[str, Any]], str]:
    """Rows, and statistics that some writer may have written for them."""
    row = st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()})
    rows = draw(st.lists(row, min_size=1, max_size=4))
    value: dict[str, Any] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    if draw(st.integers(0, 9)):
        value["numRecords"] = len(rows)
    for name in VALUES:
        present = [row[name] for row in rows if row[name] is not None]
        if draw(st.booleans()):  # as Parquet, which leaves NaN out
            present = [item for item in present if item == item]
        if draw(st.integers(0, 9)):
            value["nullCount"][name] = sum(row[name] is None for row in rows)
        if present and draw(st.integers(0, 9)):
            ordered = sorted(present, key=key)
            value["minValues"][name] = written(name, ordered[0], False)
            value["maxValues"][name] = written(name, ordered[-1], True)
    return rows, json.dumps(value)


@st.composite
def predicates(draw: st.DrawFn, rows: list[dict[str, Any]]) -> Predicate:
    def leaf() -> Predicate:
        name = draw(st.sampled_from(sorted(VALUES)))
        column, kind = Column((name,)), KINDS[name]
        present = [row[name] for row in rows if row[name] is not None]
        values = st.sampled_from(present) | VALUES[name] if present else VALUES[name]
        literals = values.map(lambda value: Literal(value, kind))
        match draw(st.integers(0, 7)):
            case 0:
                return IsNull(column)
            case 1:
                nulls = st.just(literal(None))
                return In(column, tuple(draw(st.lists(literals | nulls, min_size=1, max_size=3))))
            case 2 if name == "t":
                return StartsWith(column, draw(values)[: draw(st.integers(0, 4))])
            case 3 if name in ("n", "dec"):
                return Comparison(draw(OPERATORS), column, literal(draw(VALUES["d"])))
            case 4:
                return Unknown("f(x)")
            case _:
                return Comparison(draw(OPERATORS), column, draw(literals))

    def tree(depth: int) -> Predicate:
        match draw(st.integers(0, 4)) if depth else 9:
            case 0:
                return Not(tree(depth - 1))
            case 1:
                return conjunction([tree(depth - 1), tree(depth - 1)])
            case 2:
                return disjunction([tree(depth - 1), tree(depth - 1)])
            case _:
                return leaf()

    return tree(3)


def replaced(predicate: Predicate, value: Predicate) -> Predicate:
    """The predicate with one constant in the place of everything that is unknown."""
    match predicate:
        case Unknown():
            return value
        case Not(operand=operand):
            return Not(replaced(operand, value))
    if predicate.operands:
        return type(predicate)(tuple(replaced(part, value) for part in predicate.operands))  # type: ignore[call-arg]
    return predicate


@given(st.data())
def test_a_file_with_a_matching_row_is_never_skipped(data: st.DataObject) -> None:
    rows, text = data.draw(files())
    predicate = data.draw(predicates(rows))
    (kept,) = mask(bind(predicate, SCHEMA, lenient=True), [text])
    for constant in (literal(True), literal(False), literal(None)):
        certain = replaced(predicate, Comparison("=", constant, literal(True)))
        if any(judge(certain, row) for row in rows):
            assert kept, (predicate.to_sql(), text)
