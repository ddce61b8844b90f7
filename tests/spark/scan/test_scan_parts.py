"""Parts of a scan that need no Spark: rows in Spark's layout, deletion vectors as bits, filters."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector
from pyspark_delta.kernel.protocol.types import (
    BOOLEAN,
    DATE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    DecimalType,
    StructField,
    StructType,
)
from pyspark_delta.kernel.scan.predicates.binding import bind
from pyspark_delta.kernel.scan.predicates.tree import Column
from pyspark_delta.kernel.storage.memory import MemoryStore
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.conf.options import DeltaOptions
from pyspark_delta.spark.jvm.expressions.catalyst import Filter
from pyspark_delta.spark.jvm.scan.catalyst_rows import TextRows, array_bytes, row_bytes, word_of
from pyspark_delta.spark.scan.filters import predicate_of
from pyspark_delta.spark.scan.load import requested_snapshot
from pyspark_delta.spark.scan.monotonic_functions import day_of, truncated_to, year_of
from pyspark_delta.spark.scan.source import ScanSettings, SnapshotSource, row_bits
from tests.support.calls import num_calls
from tests.support.clock import FrozenClock
from tests.support.data_tables import DataTable
from tests.support.faulty import FaultStore
from tests.support.log_builder import LogBuilder, add

random.seed(3)


@pytest.mark.parametrize(
    "rows",
    [
        [0],
        [63],
        [64],
        list(range(64)),
        list(range(65)),
        [0, 9, 2**20],
        random.sample(range(100_000), 3_000),
        [*range(1_000, 70_000), 90_001],
    ],
)
def test_a_vector_is_a_bit_for_each_row_in_whole_words(rows: list[int]) -> None:
    bits = row_bits(DeletionVector(rows))
    assert len(bits) % 8 == 0
    number = int.from_bytes(bits, "little")
    assert number == sum(1 << row for row in rows)


def test_an_empty_vector_has_no_bits() -> None:
    assert row_bits(DeletionVector()) == b""


def test_a_row_is_nulls_then_words_then_what_does_not_fit_one() -> None:
    row = row_bytes([7, None, b"abc"])
    nulls, first, second, third = struct.unpack_from("=4Q", row)
    assert (nulls, first, second) == (0b10, 7, 0)
    assert (third >> 32, third & 0xFFFFFFFF) == (32, 3)
    assert row[32:] == b"abc" + bytes(5)
    assert array_bytes([b"x"])[:8] == struct.pack("=q", 1)


def test_rows_of_texts_are_those_that_are_made_one_by_one() -> None:
    texts = ["", "a", "ü/%20 x", "12345678", "x" * 100, "last"]
    sizes, times = [2**40, 0, 1, -1, 5, 6], list(range(6))
    columns = (pa.array(texts), pa.array(sizes), pa.array(times))
    rows = [row_bytes([t.encode(), s, m]) for t, s, m in zip(texts, sizes, times, strict=True)]
    made = TextRows(*columns)
    assert made.array(0, 6) == array_bytes(rows)
    assert made.array(2, 5) == array_bytes(rows[2:5])
    assert TextRows(*(each.slice(1, 3) for each in columns)).array(1, 3) == array_bytes(rows[2:4])
    assert TextRows(*(each.slice(0, 0) for each in columns)).array(0, 0) == array_bytes([])
    unknown = TextRows(pa.array(["a"]), pa.array([None], pa.int64())).array(0, 1)
    assert unknown == array_bytes([row_bytes([b"a", 0])])
    many = [f"{i}.parquet" for i in range(70)]
    numbers = pa.array([7] * 70)
    expected = array_bytes([row_bytes([name.encode(), 7]) for name in many])
    assert TextRows(pa.array(many), numbers).array(0, 70) == expected


def test_values_become_the_words_that_catalyst_keeps() -> None:
    assert word_of(None, LONG) is None
    assert word_of(-1, INTEGER) == 2**32 - 1
    assert word_of(True, BOOLEAN) == 1
    assert word_of("ü", STRING) == b"\xc3\xbc"
    assert word_of(Decimal("-1.5"), DecimalType(10, 2)) == -150
    assert word_of(Decimal("-0.01"), DecimalType(38, 2)) == b"\xff"
    assert word_of(Decimal("1.28"), DecimalType(38, 2)) == b"\x00\x80"


def tree(*nodes: dict[str, Any]) -> Filter:
    return Filter(None, [{"num-children": 0, **node} for node in nodes], 0)


def attribute(name: str, kind: object) -> dict[str, Any]:
    return {"class": "x.AttributeReference", "name": name, "dataType": kind}


def literal(value: str | None, kind: str) -> dict[str, Any]:
    return {"class": "x.Literal", "value": value, "dataType": kind}


def call(name: str, children: int, **fields: object) -> dict[str, Any]:
    return {"class": f"x.{name}", "num-children": children, **fields}


def of(*nodes: dict[str, Any]) -> str:
    return predicate_of(tree(*nodes), time_zone="America/Los_Angeles").to_sql()


STRUCT = {
    "type": "struct",
    "fields": [
        {"name": name, "type": "integer", "nullable": True, "metadata": {}} for name in ("a", "b")
    ],
}


def test_filters_are_read_as_predicates() -> None:
    n = attribute("n", "integer")
    assert of(call("IsNull", 1), n) == "n IS NULL"
    assert of(call("LessThan", 2), literal("5", "integer"), n) == "n > 5"
    cast = call("Cast", 1, dataType="long")
    assert of(call("EqualTo", 2), cast, n, literal("5", "long")) == "n = 5L"
    lossy = call("Cast", 1, dataType="double")
    big = attribute("l", "long")
    assert of(call("EqualTo", 2), lossy, big, literal("5.0", "double")) == "(EqualTo)"
    field = call("GetStructField", 1, ordinal=1)
    assert of(call("EqualTo", 2), field, attribute("s", STRUCT), literal("5", "integer")) == (
        "s.b = 5"
    )
    renamed = call("Cast", 1, dataType={**STRUCT, "fields": STRUCT["fields"][::-1]})
    assert of(call("IsNotNull", 1), field, renamed, attribute("s", STRUCT)) == "NOT (s.b IS NULL)"
    assert of(call("Not", 1), attribute("b", "boolean")) == "NOT (b = TRUE)"
    assert of(call("StartsWith", 2), attribute("s", "string"), literal("a%", "string")) == (
        "s LIKE 'a\\\\%%'"
    )
    assert of(call("Rand", 0)) == "(Rand)"
    assert predicate_of(Filter(None, None, 0)).to_sql() == "(an expression)"
    assert of(call("And", 2), n) == "(an expression)"


def test_a_filter_of_a_query_is_bound_once() -> None:
    store = MemoryStore(None, "tä ble 100%")
    table = DataTable(
        store, StructType((StructField("id", LONG), StructField("p", INTEGER))), ["p"]
    )
    rows = {"id": [1, 5]}
    files = [table.file(f"p={p}/ä %", rows, partition={"p": p}, stats=True) for p in ("1", "2")]
    source = SnapshotSource(table.commit(*files).snapshot, ScanSettings(time_zone="UTC"))
    on_partitions = tree(call("EqualTo", 2), attribute("p", "integer"), literal("1", "integer"))
    on_rows = tree(call("GreaterThan", 2), attribute("id", "long"), literal("3", "long"))
    assert source.groups([on_partitions], [on_rows])[0].counts == [1]
    assert num_calls(bind, lambda: source.groups([on_partitions], [on_rows])) == 2


@pytest.mark.parametrize("options", [{}, {"versionAsOf": "1"}, {"timestampAsOf": "2024-01-01"}])
def test_a_load_lists_the_log_of_a_cold_table_once(options: dict[str, str]) -> None:
    store = FaultStore(MemoryStore(None, "tä ble 100%", now_ms=FrozenClock()))
    LogBuilder(store).create(add("a")).commit(add("b"))
    store.calls.clear()
    log = DeltaLog(store)
    requested_snapshot(lambda _: log, "/tä ble 100%", DeltaOptions(options), lambda _: "UTC")
    assert [operation for operation, _ in store.calls].count("list_from") == 1


def struct_of(*fields: tuple[str, str, dict[str, Any]]) -> dict[str, Any]:
    """A struct's type, as Spark tells it: a collation is in the metadata of its field."""
    listed = [
        {"name": name, "type": kind, "nullable": True, "metadata": metadata}
        for name, kind, metadata in fields
    ]
    return {"type": "struct", "fields": listed}


FOLDED = {"__COLLATIONS": {"a": "spark.UTF8_LCASE"}}


@pytest.mark.parametrize("collation", ["UTF8_LCASE", "UTF8_BINARY_RTRIM", "UNICODE"])
def test_text_that_a_collation_compares_says_nothing(collation: str) -> None:
    kind = f"string collate {collation}"
    plain, text = attribute("s", "string"), literal("abc", kind)
    cast = call("Cast", 1, dataType=kind)
    for name in ("EqualTo", "EqualNullSafe", "LessThan", "GreaterThanOrEqual"):
        assert of(call(name, 2), cast, plain, text) == f"({name})"
        assert of(call(name, 2), text, cast, plain) == f"({name})"
    assert of(call("StartsWith", 2), cast, plain, text) == "(StartsWith)"
    assert of(call("In", 3), cast, plain, text, literal(None, kind)) == "(In)"
    assert of(call("InSet", 1), cast, plain) == "(InSet)"
    assert of(call("Not", 1), call("EqualTo", 2), cast, plain, text) == "NOT ((EqualTo))"
    first = call("Substring", 3), cast, plain, literal("1", "integer"), literal("1", "integer")
    assert of(call("EqualTo", 2), *first, text) == "(EqualTo)"
    # Back to plain text is another cast, and the column keeps its own order.
    folded = attribute("s", kind)
    back = call("Cast", 1, dataType="string")
    assert of(call("EqualTo", 2), back, folded, literal("abc", "string")) == "(EqualTo)"
    assert of(call("EqualTo", 2), folded, attribute("other", kind)) == "(EqualTo)"
    # Whatever it compares by, it is null or it is not.
    assert of(call("IsNull", 1), folded) == "s IS NULL"
    assert of(call("IsNotNull", 1), cast, plain) == "NOT (s IS NULL)"


def test_text_by_its_bytes_is_told_however_that_is_spelled() -> None:
    kind = "string collate UTF8_BINARY"
    cast = call("Cast", 1, dataType=kind)
    assert of(call("EqualTo", 2), cast, attribute("s", "string"), literal("a", kind)) == "s = 'a'"


def test_a_field_of_a_struct_is_told_by_what_a_cast_makes_of_it() -> None:
    plain = attribute("s", struct_of(("a", "string", {}), ("b", "double", {})))
    first, second = (call("GetStructField", 1, ordinal=ordinal) for ordinal in (0, 1))
    text = literal("x", "string")
    folds = call("Cast", 1, dataType=struct_of(("a", "string", FOLDED), ("b", "double", {})))
    assert of(call("EqualTo", 2), first, folds, plain, text) == "(EqualTo)"
    assert of(call("EqualTo", 2), second, folds, plain, literal("5.0", "double")) == "s.b = 5.0D"
    cuts = call("Cast", 1, dataType=struct_of(("x", "string", {}), ("y", "integer", {})))
    assert of(call("EqualTo", 2), first, cuts, plain, text) == "s.a = 'x'"
    # 5.7 becomes 5: bounds of the column do not rule it out.
    assert of(call("EqualTo", 2), second, cuts, plain, literal("5", "integer")) == "(EqualTo)"
    assert of(call("EqualTo", 2), second, folds, cuts, plain, literal("5.0", "double")) == (
        "(EqualTo)"
    )
    wider = call("Cast", 1, dataType="double")
    assert of(call("EqualTo", 2), wider, second, cuts, plain, literal("5.0", "double")) == (
        "(EqualTo)"
    )
    assert of(call("IsNull", 1), cuts, plain) == "s IS NULL"
    folded = attribute("s", struct_of(("a", "string", FOLDED)))
    assert of(call("EqualTo", 2), first, folded, text) == "(EqualTo)"
    assert of(call("IsNull", 1), first, folded) == "s.a IS NULL"


def test_days_that_clocks_change_on_are_taken_wider() -> None:
    zone = ZoneInfo("America/Los_Angeles")
    day = day_of(Column(("t",)), TIMESTAMP, zone)

    def bounds(number: int) -> Sequence[int]:
        predicate = day.compared("=", number)
        return [part.right.value for part in predicate.operands]  # type: ignore[attr-defined]

    def micros(*parts: int) -> int:
        return round(datetime(*parts, tzinfo=UTC).timestamp()) * 1_000_000  # type: ignore[arg-type, misc]

    plain = (date(2024, 7, 1) - date(1970, 1, 1)).days
    assert bounds(plain) == [micros(2024, 7, 1, 7), micros(2024, 7, 2, 7)]
    autumn = (date(2024, 11, 3) - date(1970, 1, 1)).days
    start, end = bounds(autumn)
    assert start <= micros(2024, 11, 3, 7)
    assert end >= micros(2024, 11, 4, 8)


def test_functions_of_days_go_up_in_steps() -> None:
    day = day_of(Column(("d",)), DATE, None)
    assert year_of(day).compared("=", 2024).to_sql() == (
        "d >= DATE '2024-01-01' AND d < DATE '2025-01-01'"
    )
    leap = (date(2024, 2, 29) - date(1970, 1, 1)).days
    first = (date(2024, 2, 1) - date(1970, 1, 1)).days
    month = truncated_to("month", day, to_day=True)
    assert month.compared("=", first).to_sql() == (
        "d >= DATE '2024-02-01' AND d < DATE '2024-03-01'"
    )
    assert month.compared(">=", leap).to_sql() == "d >= DATE '2024-03-01'"
    assert month.compared("<", leap).to_sql() == "d < DATE '2024-03-01'"
    week = truncated_to("WEEK", day, to_day=True)
    assert week.compared(">", leap).to_sql() == "d >= DATE '2024-03-04'"
    with pytest.raises(ValueError, match="no unit"):
        truncated_to("HOUR", day)
