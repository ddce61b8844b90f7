"""Partition values as columns, and files chosen by them."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from pyspark_delta.errors import CorruptLogError, PartitionValueError
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.schema_json import format_schema
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
    DataType,
    DecimalType,
    StructField,
    StructType,
)
from pyspark_delta.kernel.scan.predicates.sql import parse_predicate
from pyspark_delta.kernel.scan.skipping.files import partition_columns_table, partition_mask

MAPS = pa.map_(pa.string(), pa.string())
Values = dict[str, str | None]


def files(*values: Values | None) -> pa.Table:
    rows = [None if value is None else list(value.items()) for value in values]
    paths = [f"part {n} 100%/é.parquet" for n in range(len(rows))]
    return pa.table({"path": pa.array(paths, pa.string()), "partitionValues": pa.array(rows, MAPS)})


def metadata(**columns: DataType) -> Metadata:
    fields = tuple(StructField(name, kind) for name, kind in columns.items())
    schema = StructType((StructField("data", LONG), *fields))
    return Metadata(id="m", schema_string=format_schema(schema), partition_columns=tuple(columns))


def column(kind: DataType, *texts: str | None) -> list[Any]:
    table = partition_columns_table(files(*({"p": text} for text in texts)), metadata(p=kind))
    found: list[Any] = table.column("p").to_pylist()
    return found


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (STRING, "a b%é", "a b%é"),
        (LONG, "-9223372036854775808", -(2**63)),
        (INTEGER, "5", 5),
        (SHORT, "-5", -5),
        (BYTE, "127", 127),
        (FLOAT, "1.5", 1.5),
        (DOUBLE, "1e300", 1e300),
        (DecimalType(5, 2), "1.5", Decimal("1.50")),
        (BOOLEAN, "true", True),
        (BINARY, "é", "é".encode()),
        (DATE, "2024-02-29", date(2024, 2, 29)),
        (TIMESTAMP, "2024-02-29 01:02:03.000004", datetime(2024, 2, 29, 1, 2, 3, 4, UTC)),
        (TIMESTAMP, "2024-02-29T01:02:03.000004Z", datetime(2024, 2, 29, 1, 2, 3, 4, UTC)),
        (TIMESTAMP_NTZ, "2024-02-29 01:02:03", datetime(2024, 2, 29, 1, 2, 3)),
    ],
)
def test_a_value_has_its_columns_type(kind: DataType, text: str, value: object) -> None:
    assert column(kind, text, None, "", text) == [value, None, None, value]


def test_nan_and_infinity_are_values() -> None:
    assert column(DOUBLE, "Infinity", "-Infinity") == [math.inf, -math.inf]
    assert math.isnan(column(DOUBLE, "NaN")[0])


def test_timestamps_without_a_zone_are_in_the_one_given() -> None:
    table = partition_columns_table(
        files({"p": "1970-01-01 00:00:00"}),
        metadata(p=TIMESTAMP),
        zone=timezone(timedelta(hours=9)),
    )
    assert table.column("p").to_pylist() == [datetime(1969, 12, 31, 15, tzinfo=UTC)]


def test_files_are_chosen_by_timestamps_in_the_zone_given() -> None:
    midnight = parse_predicate("p = TIMESTAMP'2024-01-01 00:00:00'", time_zone="Asia/Tokyo")
    table = files({"p": "2024-01-01 00:00:00"}, {"p": "2023-12-31T15:00:00Z"})

    def mask(time_zone: str) -> list[bool]:
        found = partition_mask(midnight, table, metadata(p=TIMESTAMP), time_zone=time_zone)
        chosen: list[bool] = found.to_pylist()
        return chosen

    assert mask("Asia/Tokyo") == [True, True]
    assert mask("UTC") == [False, True]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (INTEGER, "abc"),
        (BYTE, "128"),
        (DATE, "2024-02-30"),
        (DecimalType(3, 2), "10"),
        (BOOLEAN, "x"),
    ],
)
def test_a_value_that_its_type_cannot_hold_is_refused(kind: DataType, text: str) -> None:
    with pytest.raises(PartitionValueError) as caught:
        column(kind, "", text)
    assert caught.value.condition == "DELTA_INVALID_PARTITION_VALUE"
    assert caught.value.parameters["column"] == "p"


@pytest.mark.parametrize("broken", [{}, None, {"q": "1"}, {"P ": "1"}])
def test_a_file_without_a_value_is_refused_by_name(broken: Values | None) -> None:
    with pytest.raises(CorruptLogError) as caught:
        partition_columns_table(files({"p": "1"}, broken, {"p": "2"}), metadata(p=LONG))
    assert caught.value.condition == "DELTA_MISSING_PARTITION_VALUE"
    assert caught.value.parameters == {"path": "part 1 100%/é.parquet", "column": "p"}


def test_the_order_and_number_of_keys_do_not_matter() -> None:
    table = files({"p": "1", "q": "a"}, {"q": "b", "p": "2", "x": "9"}, {"P": "3", "q": None})
    found = partition_columns_table(table, metadata(p=LONG, q=STRING))
    assert found.to_pylist() == [{"p": 1, "q": "a"}, {"p": 2, "q": "b"}, {"p": 3, "q": None}]
    sliced = partition_columns_table(table.slice(1, 1), metadata(q=STRING, p=LONG))
    assert sliced.to_pylist() == [{"q": "b", "p": 2}]


def test_a_key_that_stands_twice_does_not_shift_the_others() -> None:
    rows = pa.array([[("p", "1"), ("p", "2")], [("q", "0")]], MAPS)
    table = pa.table({"path": ["a", "b"], "partitionValues": rows})
    with pytest.raises(CorruptLogError):
        partition_columns_table(table, metadata(p=LONG))


def test_files_may_come_in_chunks_or_not_at_all() -> None:
    many = pa.concat_tables([files({"p": "1"}), files(), files({"p": "2"}, {"p": None})])
    assert partition_columns_table(many, metadata(p=LONG)).column("p").to_pylist() == [1, 2, None]
    assert partition_columns_table(files(), metadata(p=DATE)).num_rows == 0
    plain = partition_columns_table(files({}, {}), metadata())
    assert (plain.num_rows, plain.num_columns) == (2, 0)
    with pytest.raises(CorruptLogError) as caught:
        partition_columns_table(pa.concat_tables([files({"p": "1"}), files({})]), metadata(p=LONG))
    assert caught.value.parameters["path"] == "part 0 100%/é.parquet"


def test_keys_are_physical_names_under_column_mapping() -> None:
    keys = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
    schema = StructType((StructField("p", LONG, metadata=keys),))
    mapped = Metadata(
        id="m",
        schema_string=format_schema(schema),
        partition_columns=("p",),
        configuration={"delta.columnMapping.mode": "name"},
    )
    found = partition_columns_table(files({"col-1": "1"}), mapped)
    assert found.to_pylist() == [{"p": 1}]


def test_files_are_chosen_by_typed_values() -> None:
    table = files(
        *({"n": n, "d": d} for n, d in [("9", "2024-01-01"), ("10", "2024-01-02"), ("", None)])
    )
    kind = metadata(n=LONG, d=DATE)

    def kept(sql: str) -> list[bool]:
        found: list[bool] = partition_mask(parse_predicate(sql), table, kind).to_pylist()
        return found

    assert kept("n < 10") == [True, False, False]
    assert kept("N >= 9 AND d > '2024-01-01'") == [False, True, False]
    assert kept("n IS NULL") == [False, False, True]
    assert kept("n != 9") == [False, True, False]
    assert kept("NOT n <=> 9") == [False, True, True]
    assert kept("d <=> NULL OR n = 10") == [False, True, True]
    assert kept("n IN (10, 11)") == [False, True, False]
    # What is not about partitions, or is not understood, chooses nothing.
    assert kept("data = 5") == [True, True, True]
    assert kept("data = 5 AND n = 9") == [True, False, False]
    assert kept("data = 5 OR n = 9") == [True, True, True]
    assert kept("unsupported AND n = 9") == [True, False, False]
    assert kept("TRUE") == [True, True, True]
