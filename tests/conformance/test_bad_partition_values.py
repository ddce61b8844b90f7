"""Partition values that their column cannot hold: an error, never a silent null."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_delta.kernel.protocol.schema_json import parse_type
from pyspark_delta.kernel.protocol.types import LONG, StructField, StructType
from tests.support.bad_tables import BadTable, Case, add_a, check, parquet_of
from tests.support.guarded import GuardedReader
from tests.support.log_builder import add

INVALID = "DELTA_INVALID_PARTITION_VALUE"
MISSING = "DELTA_MISSING_PARTITION_VALUE"


def _build(table: BadTable, kind: str, values: Mapping[str, str | None]) -> None:
    schema = StructType((StructField("id", LONG), StructField("p", parse_type(kind))))
    table.write("b.parquet", parquet_of(pa.table({"id": [1]})))
    table.create(add("b.parquet", partition_values=values), schema=schema, partition_columns=["p"])


def _read(kind: str, values: Mapping[str, str | None], want: Any) -> Case:
    return Case(name="", build=lambda table: _build(table, kind, values), want=want)


# A type, a text that it cannot hold.
REFUSED = [
    ("integer", "abc"),
    ("integer", "2147483648"),
    ("integer", "1.5"),
    ("integer", "1 "),
    ("integer", "0x10"),
    ("integer", "٣"),
    ("integer", "9" * 5000),
    ("long", "9223372036854775808"),
    ("short", "32768"),
    ("byte", "-129"),
    ("boolean", "yes"),
    ("boolean", "1"),
    ("float", "abc"),
    ("float", "1e39"),
    ("double", "1e309"),
    ("double", "1_0"),
    ("double", "9" * 100_000),
    ("decimal(5,2)", "1234.5"),
    ("decimal(5,2)", "1.234"),
    ("decimal(5,2)", "abc"),
    ("decimal(5,2)", "NaN"),
    ("decimal(38,0)", "1e9999999"),
    ("date", "2024-02-30"),
    ("date", "yesterday"),
    ("date", "2024-01-01T00:00:00"),
    ("timestamp", "2024-01-01 25:00:00"),
    ("timestamp", "abc"),
    ("timestamp", "2024-13-01T00:00:00Z"),
    ("timestamp_ntz", "abc"),
]


@pytest.mark.parametrize(("kind", "text"), REFUSED, ids=lambda value: str(value)[:30])
def test_a_value_that_its_column_cannot_hold_is_an_error(
    kind: str, text: str, tmp_path: Path, guarded: GuardedReader
) -> None:
    outcome = check(_read(kind, {"p": text}, INVALID), tmp_path, guarded)
    assert "p" in outcome.message
    assert len(outcome.message) < 2000


# A type, a text, its value as the reader gives it.
ACCEPTED = [
    ("string", None, None),
    ("string", "", None),
    ("string", "ä 100%/\n", "ä 100%/\n"),
    ("string", "__HIVE_DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__"),
    ("string", "x" * 100_000, "x" * 100_000),
    ("integer", "", None),
    ("integer", "-2147483648", -(2**31)),
    ("integer", "+7", 7),
    ("long", "9223372036854775807", 2**63 - 1),
    ("double", "NaN", "NaN"),
    ("double", "-Infinity", "-Infinity"),
    ("decimal(5,2)", "123.4", "123.40"),
    ("date", "2024-02-29", "2024-02-29"),
    ("timestamp", "2024-01-01 10:20:30", "2024-01-01 10:20:30+00:00"),
    ("timestamp", "2024-01-01 10:20:30.123456", "2024-01-01 10:20:30.123456+00:00"),
    ("timestamp", "2024-01-01T10:20:30.123456Z", "2024-01-01 10:20:30.123456+00:00"),
    ("timestamp_ntz", "2024-01-01 10:20:30", "2024-01-01 10:20:30"),
    ("boolean", "true", True),
]


@pytest.mark.parametrize(("kind", "text", "value"), ACCEPTED, ids=lambda value: str(value)[:30])
def test_a_value_that_its_column_can_hold_is_read(
    kind: str, text: str | None, value: object, tmp_path: Path, guarded: GuardedReader
) -> None:
    want = float(value) if kind == "double" and isinstance(value, str) else value
    case = _read(kind, {"p": text}, [{"id": 1, "p": want}])
    if want != want:
        _build(table := BadTable(tmp_path), kind, {"p": text})
        (row,) = guarded.read(table.root).rows or []
        assert row["p"] != row["p"]
        return
    check(case, tmp_path, guarded)


@pytest.mark.parametrize("values", [{}, {"q": "1"}, {"p2": "1", "": "1"}])
def test_a_file_without_a_value_for_a_partition_column_is_an_error(
    values: dict[str, str], tmp_path: Path, guarded: GuardedReader
) -> None:
    outcome = check(_read("integer", values, MISSING), tmp_path, guarded)
    assert "b.parquet" in outcome.message


def test_a_value_of_a_type_that_is_no_partition_type_is_an_error(
    tmp_path: Path, guarded: GuardedReader
) -> None:
    def build(table: BadTable) -> None:
        array = StructType(
            (
                StructField("id", LONG),
                StructField(
                    "p", parse_type({"type": "array", "elementType": "long", "containsNull": True})
                ),
            )
        )
        table.create(add_a(partition_values={"p": "[1]"}), schema=array, partition_columns=["p"])

    wanted = frozenset({INVALID, "DELTA_INVALID_PARTITION_COLUMN_TYPE"})
    check(Case(name="", build=build, want=wanted), tmp_path, guarded)


def test_values_that_are_no_text_are_taken_as_their_text(
    tmp_path: Path, guarded: GuardedReader
) -> None:
    def build(table: BadTable) -> None:
        _build(table, "integer", {"p": "0"})
        line = add("b.parquet", partition_values={"p": "7"}).json
        table.commit(line.replace('"7"', "7"))

    check(Case(name="", build=build, want=[{"id": 1, "p": 7}]), tmp_path, guarded)


def test_a_partition_value_never_comes_from_the_file(
    tmp_path: Path, guarded: GuardedReader
) -> None:
    def build(table: BadTable) -> None:
        _build(table, "integer", {"p": "7"})
        table.write("b.parquet", parquet_of(pa.table({"id": [1], "p": [8]})))

    check(Case(name="", build=build, want=[{"id": 1, "p": 7}]), tmp_path, guarded)
