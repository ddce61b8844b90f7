"""Bad schemas, properties and statistics, and data files that are not what the schema says."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from tests.support.bad_tables import (
    MEGABYTE,
    ROWS,
    BadTable,
    Case,
    add_a,
    case_id,
    check,
    parquet,
    parquet_of,
)
from tests.support.guarded import GuardedReader
from tests.support.log_builder import add, metadata
from tests.support.reading import open_table

INVALID = "DELTA_INVALID_SCHEMA_JSON"
TWICE = "DELTA_DUPLICATE_COLUMNS_FOUND"
EMPTY = "DELTA_READ_TABLE_WITHOUT_COLUMNS"
UNREADABLE = "DELTA_DATA_FILE_UNREADABLE"


def _field(name: str, kind: Any = "long", nullable: bool = True, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": {}, **more}


def _struct(*fields: Any) -> str:
    return json.dumps({"type": "struct", "fields": fields})


def _nested(depth: int) -> str:
    inner = '{"type":"array","elementType":' * depth + '"long"' + ',"containsNull":true}' * depth
    before = '{"type":"struct","fields":[{"name":"a","nullable":true,"metadata":{},"type":'
    return before + inner + "}]}"


def _nested_structs(depth: int) -> str:
    before = '{"type":"struct","fields":[{"name":"a","nullable":true,"metadata":{},"type":'
    return before * depth + '"long"' + "}]}" * depth


SCHEMAS: dict[str, tuple[str, str]] = {
    "nothing": ("", EMPTY),
    "no columns": (_struct(), EMPTY),
    "not JSON": ("{not json", INVALID),
    "half of itself": (_struct(_field("id"))[:-9], INVALID),
    "a word": ('"long"', INVALID),
    "a number": ("7", INVALID),
    "null": ("null", INVALID),
    "a list": ("[]", INVALID),
    "an array type": ('{"type":"array","elementType":"long","containsNull":true}', INVALID),
    "a struct without fields": ('{"type":"struct"}', INVALID),
    "fields that are an object": ('{"type":"struct","fields":{}}', INVALID),
    "a field that is text": (_struct("id"), INVALID),
    "a field without a name": (_struct({"type": "long"}), INVALID),
    "a field whose name is a number": (_struct(_field(7)), INVALID),  # type: ignore[arg-type]
    "a field without a type": (_struct({"name": "id"}), INVALID),
    "an unknown type": (_struct(_field("id", "quaternion")), INVALID),
    "an unknown type that is nested": (_struct(_field("id", {"type": "set"})), INVALID),
    "a type that is a list": (_struct(_field("id", ["long"])), INVALID),
    "a decimal that is too wide": (_struct(_field("id", "decimal(99,2)")), INVALID),
    "a decimal below zero": (_struct(_field("id", "decimal(-1,2)")), INVALID),
    "a decimal whose scale is too large": (_struct(_field("id", "decimal(5,9)")), INVALID),
    "a type of 1 MB": (_struct(_field("id", "x" * MEGABYTE)), INVALID),
    "nullable that is text": (_struct(_field("id", nullable="yes")), INVALID),  # type: ignore[arg-type]
    "metadata that is a list": (_struct(_field("id", metadata=[1])), INVALID),
    "the same name twice": (_struct(_field("id"), _field("id")), TWICE),
    "the same name twice but for case": (_struct(_field("id"), _field("ID")), TWICE),
    "nested 101 deep": (_nested(101), INVALID),
    "nested 500 deep": (_nested(500), INVALID),
    "nested 20,000 deep": (_nested(20_000), INVALID),
    "nested 200,000 deep": (_nested(200_000), INVALID),
    "structs nested 500 deep": (_nested_structs(500), INVALID),
    "structs nested 20,000 deep": (_nested_structs(20_000), INVALID),
    "field metadata nested 20,000 deep": (
        _struct(_field("id")).replace("{}", '{"a":' * 20_000 + "1" + "}" * 20_000),
        INVALID,
    ),
}


@pytest.mark.parametrize(("schema", "want"), SCHEMAS.values(), ids=SCHEMAS)
def test_a_bad_schema_ends_in_a_typed_error(
    schema: str, want: str, tmp_path: Path, guarded: GuardedReader
) -> None:
    case = Case(
        name="",
        build=lambda table: table.create(add_a(), schema_text=schema),
        want=want,
        most_bytes=512 * MEGABYTE,
        asks=len(schema) < MEGABYTE,
    )
    check(case, tmp_path, guarded)


def test_a_schema_of_100_levels_is_read(tmp_path: Path, guarded: GuardedReader) -> None:
    case = Case(
        name="",
        build=lambda table: table.create(schema_text=_nested(99)),
        want=[],
    )
    check(case, tmp_path, guarded)


def _many_columns(table: BadTable, count: int) -> None:
    fields = [_field("id"), _field("v", "string"), *(_field(f"c{i}") for i in range(count))]
    table.create(add_a(), schema_text=_struct(*fields))


def test_a_schema_of_10_000_columns_is_read(tmp_path: Path, guarded: GuardedReader) -> None:
    case = Case(
        name="",
        build=lambda table: _many_columns(table, 10_000),
        want=[row | {f"c{i}": None for i in range(10_000)} for row in ROWS],
        asks=False,
    )
    check(case, tmp_path, guarded)


@pytest.mark.parametrize("count", [50_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_schema_of_very_many_columns_is_parsed_in_time_and_memory_that_grow_with_it(
    count: int, tmp_path: Path
) -> None:
    table = BadTable(tmp_path)
    _many_columns(table, count)
    started = time.monotonic()
    assert len(open_table(str(table.root)).snapshot.schema) == count + 2
    assert time.monotonic() - started < 10 + count / 10_000


# Column mapping.

MAPPED = Protocol(min_reader_version=2, min_writer_version=5)


def _mapped(table: BadTable, mode: str, *fields: Any) -> None:
    table.create(
        add_a(),
        protocol=MAPPED,
        configuration={"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "9"},
        schema_text=None,
    )
    changed = replace(
        metadata(configuration={"delta.columnMapping.mode": mode}), schema_string=_struct(*fields)
    )
    table.commit(changed)


def _physical(name: str, physical: Any, number: Any) -> dict[str, Any]:
    keys = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    known = {key: item for key, item in keys.items() if item is not None}
    return _field(name, "long" if name == "id" else "string", metadata=known)


UNMAPPED = "DELTA_COLUMN_MAPPING_MISSING_METADATA"
PROPERTY = "DELTA_INVALID_TABLE_PROPERTY"
MAPPINGS = [
    Case(
        name="right",
        build=lambda t: _mapped(t, "name", _physical("id", "id", 1), _physical("v", "v", 2)),
        want=ROWS,
    ),
    Case(
        name="no physical name",
        build=lambda t: _mapped(t, "name", _field("id"), _field("v", "string")),
        want=UNMAPPED,
        says=("delta.columnMapping.physicalName", "id"),
    ),
    Case(
        name="a physical name that is a number",
        build=lambda t: _mapped(t, "name", _physical("id", 7, 1), _physical("v", "v", 2)),
        want=UNMAPPED,
    ),
    Case(
        name="no id in id mode",
        build=lambda t: _mapped(t, "id", _physical("id", "id", None), _physical("v", "v", None)),
        want=frozenset({"DELTA_MISSING_COLUMN_ID", INVALID, UNREADABLE}),
    ),
    Case(
        name="an id that is text",
        build=lambda t: _mapped(t, "id", _physical("id", "id", "x"), _physical("v", "v", 2)),
        want=frozenset({"DELTA_MISSING_COLUMN_ID", INVALID, UNREADABLE}),
    ),
    Case(
        name="the same physical name twice",
        build=lambda t: _mapped(t, "name", _physical("id", "id", 1), _physical("v", "id", 2)),
        want=frozenset({UNREADABLE, "DELTA_COLUMN_MAPPING_DUPLICATE", TWICE}),
    ),
    Case(
        name="an unknown mode",
        build=lambda t: _mapped(t, "telepathy", _physical("id", "id", 1)),
        want=PROPERTY,
        says=("telepathy",),
    ),
]


@pytest.mark.parametrize("case", MAPPINGS, ids=case_id)
def test_a_bad_column_mapping_ends_in_a_typed_error(
    case: Case, tmp_path: Path, guarded: GuardedReader
) -> None:
    check(case, tmp_path, guarded)


# Metadata besides the schema.

PROPERTIES = [
    Case(
        name=f"{key} is {value[:20]!r}",
        build=lambda t, key=key, value=value: t.create(add_a(), configuration={key: value}),
        want=ROWS,
    )
    for key in (
        "delta.enableInCommitTimestamps",
        "delta.inCommitTimestampEnablementVersion",
        "delta.setTransactionRetentionDuration",
        "delta.logRetentionDuration",
        "delta.checkpointInterval",
        "delta.checkpointPolicy",
        "delta.dataSkippingNumIndexedCols",
        "delta.dataSkippingStatsColumns",
        "delta.enableDeletionVectors",
        "delta.nobodyKnows",
    )
    for value in ("", "banana")
]


@pytest.mark.parametrize("case", PROPERTIES, ids=case_id)
def test_a_property_that_makes_no_sense_hides_no_rows(
    case: Case, tmp_path: Path, guarded: GuardedReader
) -> None:
    check(case, tmp_path, guarded)


METADATA = [
    Case(
        name="a partition column that is not in the schema",
        build=lambda t: t.create(add_a(), partition_columns=["nobody"]),
        want="DELTA_PARTITION_COLUMN_NOT_FOUND",
        says=("nobody",),
    ),
    Case(
        name="the same partition column twice",
        build=lambda t: t.create(add_a(partition_values={"v": "x"}), partition_columns=["v", "v"]),
        want=f"{TWICE}.PARTITION_COLUMNS",
    ),
    Case(
        name="no schema",
        build=lambda t: t.commit(Protocol(), Metadata(id="x"), add_a()),
        want=EMPTY,
    ),
]


@pytest.mark.parametrize("case", METADATA, ids=case_id)
def test_metadata_that_contradicts_itself_ends_in_a_typed_error(
    case: Case, tmp_path: Path, guarded: GuardedReader
) -> None:
    check(case, tmp_path, guarded)


# Statistics say which files to skip, and nothing else.

STATS = {
    "not JSON": "{not json",
    "empty": "",
    "null": "null",
    "a list": "[1]",
    "a number": "7",
    "nested 100,000 deep": "[" * 100_000,
    "numRecords that is text": '{"numRecords":"x","minValues":{"id":1},"maxValues":{"id":3}}',
    "numRecords below zero": '{"numRecords":-1}',
    "numRecords beyond 64 bits": '{"numRecords":99999999999999999999}',
    "minValues that are a list": '{"numRecords":3,"minValues":[],"maxValues":[]}',
    "bounds of another type": '{"numRecords":3,"minValues":{"id":"x"},"maxValues":{"id":{}}}',
    "bounds that are null": '{"numRecords":3,"minValues":{"id":null},"maxValues":{"id":null}}',
    "nullCount that is text": '{"numRecords":3,"nullCount":{"id":"x"}}',
    "a bound that is no number": '{"minValues":{"id":NaN},"maxValues":{"id":1e999}}',
    "columns that are not there": '{"numRecords":3,"minValues":{"zz":1},"maxValues":{"zz":1}}',
    "half of a surrogate pair": '{"numRecords":3,"maxValues":{"v":"\\ud800"}}',
}


@pytest.mark.parametrize("stats", STATS.values(), ids=STATS)
def test_statistics_that_make_no_sense_are_ignored(
    stats: str, tmp_path: Path, guarded: GuardedReader
) -> None:
    case = Case(name="", build=lambda table: table.create(add_a(stats=stats)), want=ROWS)
    check(case, tmp_path, guarded)


@pytest.mark.parametrize("stats", STATS.values(), ids=STATS)
@pytest.mark.parametrize("where", ["id = 2", "v = 'b'", "id is not null and v <> 'zz' and id = 2"])
def test_statistics_that_make_no_sense_skip_no_rows(stats: str, where: str, tmp_path: Path) -> None:
    table = BadTable(tmp_path)
    table.create(add_a(stats=stats))
    table.data("b.parquet", [{"id": 9, "v": "zz"}])
    table.commit(
        add("b.parquet", stats='{"numRecords":1,"minValues":{"id":9},"maxValues":{"id":9}}')
    )
    snapshot = open_table(str(table.root)).snapshot
    rows = [row for batch in snapshot.to_batches(filter=where) for row in batch.to_pylist()]
    assert rows == [ROWS[1]]


# Data files that are not what the schema says.


def _file(table: BadTable, data: pa.Table | bytes) -> None:
    table.write("b.parquet", data if isinstance(data, bytes) else parquet_of(data))
    table.create(add("b.parquet"))


def _claiming(table: pa.Table, rows: int) -> bytes:
    """A Parquet file whose footer tells of another number of rows, wherever it tells of one."""
    data = parquet_of(table, write_statistics=False, store_schema=False)
    length = int.from_bytes(data[-8:-4], "little")
    # 0x16 is how thrift spells a 64-bit number in the field that follows the one before.
    told, claimed = (b"\x16" + _zigzag(count) for count in (table.num_rows, rows))
    footer = data[-8 - length : -8]
    assert footer.count(told) >= 3
    footer = footer.replace(told, claimed)
    return data[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def _zigzag(number: int) -> bytes:
    number, parts = 2 * number, []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


_SOME = pa.table({"id": range(54_321), "v": ["x"] * 54_321})

FILES = [
    *(
        Case(
            name=f"a footer that claims {rows} rows, {what}",
            build=lambda t, table=table, rows=rows: _file(t, _claiming(table, rows)),
            want=UNREADABLE,
            says=(str(rows),),
        )
        for rows in (2**62, 2**63 - 1)
        for what, table in (("ours", _SOME), ("others", _SOME.rename_columns(["x", "y"])))
    ),
    Case(
        name="a footer that claims 2^31 rows",
        build=lambda t: _file(t, _claiming(_SOME, 2**31)),
        want=UNREADABLE,
        says=("54321",),
    ),
    Case(
        name="a column of another type",
        build=lambda t: _file(t, pa.table({"id": ["x"], "v": ["a"]})),
        want=UNREADABLE,
    ),
    Case(
        name="a column that is nested",
        build=lambda t: _file(t, pa.table({"id": [[1]], "v": ["a"]})),
        want=UNREADABLE,
    ),
    Case(
        name="an integer that does not fit",
        build=lambda t: _file(t, pa.table({"id": pa.array([2**64 - 1], pa.uint64()), "v": ["a"]})),
        want=UNREADABLE,
    ),
    Case(
        name="a column twice",
        build=lambda t: _file(t, pa.table([[1], [2], ["a"]], names=["id", "id", "v"])),
        want=UNREADABLE,
    ),
    Case(
        name="a column twice but for case",
        build=lambda t: _file(t, pa.table([[1], [2], ["a"]], names=["Id", "iD", "v"])),
        want=UNREADABLE,
    ),
    Case(
        name="no column of the table",
        build=lambda t: _file(t, pa.table({"x": [1, 2]})),
        want=[{"id": None, "v": None}] * 2,
    ),
    Case(
        name="text that is not UTF-8",
        build=lambda t: _file(t, pa.table({"id": [1], "v": pa.array([b"\xff"], pa.binary())})),
        want=UNREADABLE,
    ),
    Case(
        name="no rows",
        build=lambda t: _file(t, parquet([])),
        want=[],
    ),
]


@pytest.mark.parametrize("case", FILES, ids=case_id)
def test_a_data_file_of_another_shape_gives_no_wrong_row(
    case: Case, tmp_path: Path, guarded: GuardedReader
) -> None:
    check(case, tmp_path, guarded)


def test_rows_that_take_no_space_in_a_file_are_read_in_bounded_batches(
    tmp_path: Path,
) -> None:
    """Ten million rows in some kilobytes are legal; what must not happen is holding them all."""
    table = BadTable(tmp_path)
    rows = 10_000_000
    _file(table, pa.table({"id": pa.nulls(rows, pa.int64()), "v": pa.nulls(rows, pa.string())}))
    assert table.path("b.parquet").stat().st_size < MEGABYTE
    snapshot = open_table(str(table.root)).snapshot
    before = pa.total_allocated_bytes()
    seen = most = 0
    for batch in snapshot.to_batches():
        seen += batch.num_rows
        most = max(most, pa.total_allocated_bytes() - before)
    assert seen == rows
    assert most < 64 * MEGABYTE
