"""Plans: which files, which columns of them, and what is left to filter."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_delta.errors import SchemaError, UnsafePathError
from pyspark_delta.kernel.log.frames.file_actions import ADD_SCHEMA
from pyspark_delta.kernel.log.table_log import TableLog
from pyspark_delta.kernel.protocol.actions import AddFile
from pyspark_delta.kernel.protocol.column_mapping import physical_schema
from pyspark_delta.kernel.protocol.types import (
    INTEGER,
    LONG,
    STRING,
    DataType,
    StructField,
    StructType,
)
from pyspark_delta.kernel.scan.plan import PLANNED_COLUMNS, plan_scan, select_files
from pyspark_delta.kernel.scan.predicates.binding import bind
from pyspark_delta.kernel.scan.predicates.tree import (
    TRUE,
    Predicate,
    Unknown,
    compare,
    conjunction,
    disjunction,
)
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.storage.memory import MemoryStore
from tests.support.calls import num_calls
from tests.support.checkpoints import checkpoint
from tests.support.data_tables import DataTable
from tests.support.log_builder import add, remove
from tests.support.schemas import struct

SCHEMA = struct(id=LONG, v=STRING, p=INTEGER)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(None, "tä ble 100%")


def ids_between(low: int, high: int, nulls: int = 0) -> str:
    return json.dumps(
        {
            "numRecords": 10,
            "minValues": {"id": low},
            "maxValues": {"id": high},
            "nullCount": {"id": nulls},
        }
    )


def table_of(store: MemoryStore, *adds: AddFile) -> DataTable:
    return DataTable(store, SCHEMA, ["p"]).commit(*adds)


def four_files(store: MemoryStore) -> DataTable:
    return table_of(
        store,
        add("p=1/a%20b", partition_values={"p": "1"}, stats=ids_between(0, 9)),
        add("p=1/b", partition_values={"p": "1"}, stats=ids_between(10, 19)),
        add("p=2/c", partition_values={"p": "2"}, stats=ids_between(20, 29, nulls=3)),
        add("p=2/d", partition_values={"p": "2"}),
    )


def planned(table: DataTable, filter: str | Predicate | None) -> list[str]:
    return sorted(table.snapshot.plan(filter=filter).files.column("path").to_pylist())


@pytest.mark.parametrize(
    ("condition", "paths"),
    [
        (None, ["p=1/a%20b", "p=1/b", "p=2/c", "p=2/d"]),
        ("p = 1", ["p=1/a%20b", "p=1/b"]),
        ("p IS NULL", []),
        ("id < 10", ["p=1/a%20b", "p=2/d"]),
        ("id = 15", ["p=1/b", "p=2/d"]),
        ("id IS NULL", ["p=2/c", "p=2/d"]),
        ("p = 1 AND id > 12", ["p=1/b"]),
        ("p = 1 OR id = 25", ["p=1/a%20b", "p=1/b", "p=2/c", "p=2/d"]),
        ("(p = 1 AND id = 1) OR (p = 2 AND id = 25)", ["p=1/a%20b", "p=2/c", "p=2/d"]),
        ("v = 'x'", ["p=1/a%20b", "p=1/b", "p=2/c", "p=2/d"]),
        ("FALSE", []),
    ],
)
def test_files_are_chosen_by_partition_values_and_statistics(
    store: MemoryStore, condition: str | None, paths: list[str]
) -> None:
    assert planned(four_files(store), condition) == paths


def test_what_is_unknown_rules_no_file_out(store: MemoryStore) -> None:
    unknown = Unknown("rand() < 0.5")
    both = conjunction([compare("p", "=", 1), unknown])
    plan = four_files(store).snapshot.plan(filter=both)
    assert plan.files.num_rows == 2
    assert plan.partition_filter.predicate == compare("p", "=", 1)
    assert plan.data_filter.predicate == unknown
    assert planned(four_files(MemoryStore()), disjunction([compare("p", "=", 1), unknown])) == [
        "p=1/a%20b",
        "p=1/b",
        "p=2/c",
        "p=2/d",
    ]


def test_a_filter_is_bound_once_on_its_way_to_files_and_rows(store: MemoryStore) -> None:
    table = DataTable(store, SCHEMA, ["p"])
    rows = {"id": [1, 5], "v": ["a", "b"]}
    files = [table.file(f"p={p}/ä %", rows, partition={"p": p}, stats=True) for p in ("1", "2")]
    snapshot = table.commit(*files).snapshot
    assert num_calls(bind, lambda: snapshot.plan(filter="p = 2 AND id > 3")) == 1
    assert num_calls(bind, lambda: snapshot.to_table(filter="p = 2 AND id > 3")) == 1
    bound = bind(compare("ID", "<", 3), SCHEMA)
    assert snapshot.plan(filter=bound).filter is bound
    assert num_calls(bind, lambda: snapshot.plan(filter=bound)) == 0


def test_a_plan_says_what_to_read_and_what_is_left_to_filter(store: MemoryStore) -> None:
    plan = four_files(store).snapshot.plan(["p", "V"], "p = 2 AND id > 3")
    assert (plan.version, plan.num_files, plan.files.num_rows) == (1, 4, 2)
    assert plan.schema.names == ("p", "v")
    assert plan.data_schema.names == ("id", "v")
    assert plan.partition_schema.names == ("p",)
    assert plan.partition_filter.to_sql() == "p = 2"
    assert plan.data_filter.to_sql().startswith("id > 3")
    assert plan.partitions.to_pylist() == [{"p": 2}, {"p": 2}]
    # What is decided by partitions alone needs no column of its own.
    alone = four_files(MemoryStore()).snapshot.plan(["v"], "p = 2")
    assert alone.partition_schema.names == ()
    assert alone.data_filter.is_true


def test_a_plan_has_the_files_columns_and_where_they_are(store: MemoryStore) -> None:
    files = four_files(store).snapshot.plan().files
    assert files.schema.names == [*PLANNED_COLUMNS, "location", "isAbsolute"]
    assert files.column("location").to_pylist()[0] == "p=1/a b"
    assert not any(files.column("isAbsolute").to_pylist())


def test_a_file_outside_has_an_absolute_location(store: MemoryStore) -> None:
    source = MemoryStore("söurce of a plan")
    uri = source.address("a b.parquet")
    table = DataTable(store, struct(id=LONG)).commit(add(uri))
    with pytest.raises(UnsafePathError):
        table.snapshot.plan()
    files = table.snapshot.plan(allowed_roots=[source]).files
    assert files.select(["location", "isAbsolute"]).to_pylist() == [
        {"location": uri, "isAbsolute": True}
    ]


def test_only_files_that_are_planned_are_looked_at(store: MemoryStore) -> None:
    table = table_of(
        store,
        add("/outside", partition_values={"p": "1"}),
        add("inside", partition_values={"p": "2"}),
    )
    assert planned(table, "p = 2") == ["inside"]


def mapped(name: str, kind: DataType, physical: str, number: int) -> StructField:
    metadata = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    return StructField(name, kind, metadata=metadata)


@pytest.mark.parametrize("mode", ["name", "id"])
def test_physical_names_are_used_for_partitions_statistics_and_files(
    store: MemoryStore, mode: str
) -> None:
    schema = StructType((mapped("id", LONG, "col-1", 1), mapped("p", INTEGER, "col-2", 2)))
    stats = ids_between(0, 9).replace('"id"', '"col-1"')
    table = DataTable(
        store,
        schema,
        ["p"],
        configuration={"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "2"},
        features=("columnMapping",),
    )
    table.commit(add("a", partition_values={"col-2": "1"}, stats=stats))
    assert planned(table, "p = 1 AND id = 5") == ["a"]
    assert planned(table, "p = 2") == []
    assert planned(table, "id = 50") == []
    plan = table.snapshot.plan()
    assert plan.mode.value == mode
    assert physical_schema(plan.data_schema, plan.mode).names == ("col-1",)


@pytest.mark.parametrize(
    ("partition_columns", "condition"),
    [
        (["nope"], "DELTA_PARTITION_COLUMN_NOT_FOUND"),
        (["p", "P"], "DELTA_DUPLICATE_COLUMNS_FOUND.PARTITION_COLUMNS"),
    ],
)
def test_partition_columns_that_cannot_be_are_refused(
    store: MemoryStore, partition_columns: list[str], condition: str
) -> None:
    table = DataTable(store, SCHEMA, partition_columns)
    with pytest.raises(SchemaError) as caught:
        table.snapshot.plan()
    assert caught.value.condition == condition


def test_a_table_without_columns_cannot_be_read(store: MemoryStore) -> None:
    table = DataTable(store, StructType())
    with pytest.raises(SchemaError) as caught:
        table.snapshot.plan()
    assert caught.value.condition == "DELTA_READ_TABLE_WITHOUT_COLUMNS"


def test_files_are_selected_with_every_column_of_an_add(store: MemoryStore) -> None:
    snapshot = four_files(store).snapshot
    found = select_files(snapshot, compare("id", "=", 15))
    assert found.schema == ADD_SCHEMA
    assert found.column("path").to_pylist() == ["p=1/b", "p=2/d"]
    assert select_files(snapshot, TRUE, ["path"]).num_rows == 4


def test_statistics_that_were_parsed_stay_right_over_later_commits(store: MemoryStore) -> None:
    table = four_files(store)
    log = TableLog(store)

    def paths(condition: str) -> list[str]:
        plan = plan_scan(log.update(), filter=condition)
        return sorted(plan.files.column("path").to_pylist())

    assert paths("id = 15") == ["p=1/b", "p=2/d"]
    table.commit(
        remove("p=1/b", partition_values={"p": "1"}),
        add("e", partition_values={"p": "3"}, stats=ids_between(12, 17)),
    )
    assert paths("id = 15") == ["e", "p=2/d"]
    table.commit(add("p=1/b", partition_values={"p": "1"}, stats=ids_between(100, 110)))
    assert paths("id = 15") == ["e", "p=2/d"]
    assert paths("id = 105") == ["p=1/b", "p=2/d"]
    assert paths("p = 3 AND id = 15") == ["e"]


def test_a_checkpoint_whose_statistics_are_damaged_is_left_aside(table_path: Path) -> None:
    store = LocalStore(str(table_path))
    table = DataTable(store, SCHEMA, ["p"]).commit(
        *(
            add(f"f{i}", partition_values={"p": "1"}, stats=ids_between(i * 10, i * 10 + 9))
            for i in range(500)
        )
    )
    checkpoint(store)
    (path,) = (table_path / "_delta_log").glob("*.checkpoint.parquet")
    footer = pq.ParquetFile(path).metadata.row_group(0)
    chunks = [footer.column(i) for i in range(footer.num_columns)]
    (stats,) = [chunk for chunk in chunks if chunk.path_in_schema == "add.stats"]
    data = bytearray(path.read_bytes())
    start = min(filter(None, (stats.dictionary_page_offset, stats.data_page_offset)))
    data[start : start + stats.total_compressed_size] = b"\xff" * stats.total_compressed_size
    path.write_bytes(bytes(data))
    assert planned(table, "id = 4321") == ["f432"]


def test_statistics_are_parsed_for_few_files_when_partitions_leave_few(store: MemoryStore) -> None:
    table = table_of(
        store,
        *(
            add(f"f{i}", partition_values={"p": str(i)}, stats=ids_between(i, i + 5))
            for i in range(40)
        ),
    )
    assert planned(table, "p = 7 AND id = 8") == ["f7"]
    assert planned(table, "p = 7 AND id = 99") == []
    assert planned(table, "p >= 7 AND id = 8") == ["f7", "f8"]


VALUES = st.none() | st.integers(0, 6)


@settings(max_examples=60)
@given(
    files=st.lists(
        st.tuples(VALUES, st.lists(VALUES, min_size=1, max_size=4)), min_size=1, max_size=5
    ),
    low=st.integers(0, 6),
    part=st.integers(0, 6),
    any_of=st.booleans(),
)
def test_a_plan_never_loses_a_row(
    files: list[tuple[int | None, list[int | None]]], low: int, part: int, any_of: bool
) -> None:
    table = DataTable(MemoryStore(), struct(id=LONG, p=INTEGER), ["p"])
    adds = [
        table.file(
            f"f{number}",
            {"id": pa.array(ids, pa.int64())},
            partition={"p": None if p is None else str(p)},
            stats=number % 3 != 2,
        )
        for number, (p, ids) in enumerate(files)
    ]
    table.commit(*adds)
    word = "OR" if any_of else "AND"
    found = table.snapshot.to_table(filter=f"id >= {low} {word} p = {part}").to_pylist()
    wanted = [
        {"id": value, "p": p}
        for p, ids in files
        for value in ids
        if _holds(value is not None and value >= low, p == part, any_of)
    ]
    assert sorted(found, key=repr) == sorted(wanted, key=repr)


def _holds(first: bool, second: bool, any_of: bool) -> bool:
    return first or second if any_of else first and second


def test_a_plan_keeps_the_vector_of_each_file(store: MemoryStore) -> None:
    table = DataTable(store, struct(id=LONG), features=("deletionVectors",))
    table.commit(replace(add("a", vector="ab^-aqEH.-t@S}K{vb[*k^"), size=5))
    (file,) = table.snapshot.plan().files.to_pylist()
    assert file["deletionVector"]["pathOrInlineDv"] == "ab^-aqEH.-t@S}K{vb[*k^"
