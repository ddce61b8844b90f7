"""Rows of whole tables: columns, partitions, vectors, filters, and files that are not as told."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from pyspark_delta.errors import (
    CorruptLogError,
    DataFileError,
    DeletionVectorError,
    DeltaError,
    InvalidPredicateError,
    PartitionValueError,
    SchemaError,
    UnsafePathError,
)
from pyspark_delta.kernel.protocol.actions import AddFile
from pyspark_delta.kernel.protocol.deletion_vectors import (
    DeletionVector,
    inline_descriptor,
    pack_deletion_vectors,
)
from pyspark_delta.kernel.protocol.types import (
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    DataType,
    DecimalType,
    StructField,
    StructType,
)
from pyspark_delta.kernel.scan.predicates.tree import Unknown, compare
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.storage.memory import MemoryStore
from tests.support.data_tables import VECTORS, DataTable
from tests.support.schemas import struct


def mapped(name: str, kind: DataType, physical: str, number: int) -> StructField:
    metadata = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    return StructField(name, kind, metadata=metadata)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(None, "tä ble 100%")


def rows(table: DataTable, *args: Any, **options: Any) -> list[dict[str, Any]]:
    found = table.snapshot.to_table(*args, **options).to_pylist()
    return sorted(found, key=repr)


# Columns.


def test_columns_come_in_the_tables_order_with_its_types(store: MemoryStore) -> None:
    schema = StructType((StructField("id", LONG, nullable=False), StructField("v", STRING)))
    table = DataTable(store, schema)
    table.commit(table.file("ä b%.parquet", {"extra": [9], "v": ["x"], "id": [1]}))
    found = table.snapshot.to_table()
    assert found.schema == pa.schema([pa.field("id", pa.int64(), False), ("v", pa.string())])
    assert found.to_pylist() == [{"id": 1, "v": "x"}]


def test_asked_columns_come_in_the_order_they_are_asked_for(store: MemoryStore) -> None:
    table = DataTable(store)
    table.commit(table.file("a", {"id": [1], "v": ["x"]}))
    assert table.snapshot.to_table(["V", "id"]).to_pylist() == [{"v": "x", "id": 1}]
    assert table.snapshot.to_table(["id"]).schema.names == ["id"]


def test_rows_can_be_counted_without_any_column(store: MemoryStore) -> None:
    table = DataTable(store, features=VECTORS)
    gone = inline_descriptor(DeletionVector([0]))
    table.commit(table.file("a", {"id": [1, 2, 3], "v": ["x"] * 3}, vector=gone))
    assert table.snapshot.to_table([]).num_rows == 2
    assert table.snapshot.to_table([], "id > 2").num_rows == 1
    assert sum(batch.num_rows for batch in table.snapshot.to_batches([])) == 2


@pytest.mark.parametrize(
    ("columns", "condition"),
    [
        (["id", "nope"], "DELTA_COLUMN_NOT_FOUND"),
        (["id", "ID"], "DELTA_DUPLICATE_COLUMNS_FOUND.READ_SCHEMA"),
    ],
)
def test_columns_that_cannot_be_are_named_at_once(
    store: MemoryStore, columns: list[str], condition: str
) -> None:
    snapshot = DataTable(store).snapshot
    with pytest.raises(SchemaError) as caught:
        snapshot.to_batches(columns)
    assert caught.value.condition == condition


def test_one_text_is_not_taken_for_many_columns(store: MemoryStore) -> None:
    snapshot = DataTable(store).snapshot
    with pytest.raises(TypeError):
        snapshot.to_batches("id")


def test_a_table_without_files_has_its_schema(store: MemoryStore) -> None:
    snapshot = DataTable(store).snapshot
    assert snapshot.to_table(["v"]).schema == pa.schema([("v", pa.string())])
    assert list(snapshot.to_batches()) == []


def test_a_void_column_is_null(store: MemoryStore) -> None:
    table = DataTable(store, struct(id=LONG, n=VOID))
    table.commit(table.file("a", {"id": [1]}))
    assert rows(table) == [{"id": 1, "n": None}]


def test_no_batch_is_larger_than_asked_for(store: MemoryStore) -> None:
    table = DataTable(store)
    table.commit(
        table.file("a", {"id": range(10), "v": ["x"] * 10}),
        table.file("b", {"id": range(3), "v": ["y"] * 3}),
    )
    sizes = [batch.num_rows for batch in table.snapshot.to_batches(batch_size=4)]
    assert sorted(sizes) == [2, 3, 4, 4]
    with pytest.raises(ValueError, match="at least one row"):
        table.snapshot.to_batches(batch_size=0)


def test_files_are_opened_as_batches_are_taken(store: MemoryStore) -> None:
    table = DataTable(store)
    missing = table.file("b", {"id": [2], "v": ["y"]}, written=False)
    table.commit(table.file("a", {"id": [1], "v": ["x"]}))
    table.commit(missing)
    batches = table.snapshot.to_batches()
    assert next(batches).to_pylist() == [{"id": 1, "v": "x"}]
    with pytest.raises(DataFileError):
        next(batches)


# Partitions.

PARTITIONED = struct(id=LONG, p=STRING)


def test_partition_values_come_from_the_log_not_from_the_file(store: MemoryStore) -> None:
    table = DataTable(store, PARTITIONED, ["p"])
    table.commit(
        table.file("p=wrong/a b%.parquet", {"id": [1], "p": ["file"]}, partition={"p": "log ä%"}),
        table.file("b.parquet", {"id": [2]}, partition={"p": None}),
        table.file("c.parquet", {"id": [3]}, partition={"p": ""}),
    )
    assert rows(table) == [
        {"id": 1, "p": "log ä%"},
        {"id": 2, "p": None},
        {"id": 3, "p": None},
    ]


def test_partition_values_of_every_type_are_typed(store: MemoryStore) -> None:
    schema = struct(
        id=LONG, i=INTEGER, d=DATE, t=TIMESTAMP, n=TIMESTAMP_NTZ, m=DecimalType(5, 2), f=DOUBLE
    )
    names = list(schema.names)[1:]
    texts = {
        "i": "-5",
        "d": "2024-02-29",
        "t": "2024-02-29T12:00:00.000001Z",
        "n": "2024-02-29 12:00:00",
        "m": "1.5",
        "f": "1.5",
    }
    table = DataTable(store, schema, names)
    table.commit(
        table.file("a", {"id": [1]}, partition=texts),
        table.file("b", {"id": [2]}, partition=dict.fromkeys(names)),
    )
    found = table.snapshot.to_table()
    assert found.schema.field("m").type == pa.decimal128(5, 2)
    first, second = sorted(found.to_pylist(), key=lambda row: row["id"])
    assert first["t"] == datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=UTC)
    assert (str(first["m"]), first["i"], first["f"]) == ("1.50", -5, 1.5)
    assert {second[name] for name in names} == {None}


def test_a_timestamp_partition_without_a_zone_is_in_the_zone_that_is_asked_for(
    store: MemoryStore,
) -> None:
    table = DataTable(store, struct(id=LONG, t=TIMESTAMP), ["t"])
    table.commit(table.file("a", {"id": [1]}, partition={"t": "2024-07-01 00:00:00"}))
    (utc,) = rows(table)
    (paris,) = rows(table, time_zone="Europe/Paris")
    assert utc["t"] == datetime(2024, 7, 1, tzinfo=UTC)
    assert paris["t"] == datetime(2024, 6, 30, 22, tzinfo=UTC)
    on_the_day = "t >= '2024-07-01' AND t < '2024-07-02'"
    assert len(rows(table, filter=on_the_day, time_zone="Europe/Paris")) == 1


@pytest.mark.parametrize(
    ("partition", "error"),
    [({"p": "abc"}, PartitionValueError), ({"p": "3000000000"}, PartitionValueError)],
)
def test_a_partition_value_of_another_type_is_an_error(
    store: MemoryStore, partition: dict[str, str | None], error: type[DeltaError]
) -> None:
    table = DataTable(store, struct(id=LONG, p=INTEGER), ["p"])
    table.commit(table.file("a", {"id": [1]}, partition=partition))
    with pytest.raises(error):
        rows(table)


def test_a_missing_partition_value_is_an_error(store: MemoryStore) -> None:
    table = DataTable(store, PARTITIONED, ["p"])
    table.commit(table.file("a", {"id": [1]}))
    with pytest.raises(CorruptLogError) as caught:
        rows(table)
    assert caught.value.condition == "DELTA_MISSING_PARTITION_VALUE"


def test_a_table_of_partition_columns_alone_has_its_rows(store: MemoryStore) -> None:
    table = DataTable(store, PARTITIONED, ["p"])
    table.commit(table.file("a", {"id": [1, 2]}, partition={"p": "x"}))
    assert rows(table, ["p"]) == [{"p": "x"}, {"p": "x"}]


# Filters.


def filtered(store: MemoryStore) -> DataTable:
    table = DataTable(store, struct(id=LONG, v=STRING, p=STRING), ["p"])
    for part, start in (("x", 0), ("y", 10), (None, 20)):
        ids = [None, *range(start, start + 9)]
        data = pa.table({"id": pa.array(ids, pa.int64()), "v": [f"v{i}" for i in ids]})
        add = table.file(f"{part}", data, partition={"p": part}, stats=True, row_group_size=4)
        table.commit(add)
    return table


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("id = 12", [12]),
        ("id >= 7 AND id < 12", [7, 8, 10, 11]),
        ("p = 'x' AND id > 5", [6, 7, 8]),
        ("p = 'x' OR id = 15", [None, *range(9), 15]),
        ("p IS NULL AND id <= 21", [20, 21]),
        ("NOT (id < 28)", [28]),
        ("v = 'v13'", [13]),
        ("V LIKE 'v1%' AND Id > 11", [12, 13, 14, 15, 16, 17, 18]),
        ("id IS NULL", [None, None, None]),
        ("id <=> NULL AND p = 'y'", [None]),
        ("id IN (1, 11, 99)", [1, 11]),
        ("id > 1000", []),
        ("p = 'nope'", []),
        ("FALSE", []),
        ("NULL", []),
        ("TRUE AND id = 1", [1]),
    ],
)
def test_a_filter_selects_exactly_the_rows_for_which_it_is_true(
    store: MemoryStore, condition: str, ids: list[int | None]
) -> None:
    found = filtered(store).snapshot.to_table(["id"], condition).column("id").to_pylist()
    assert sorted(found, key=repr) == sorted(ids, key=repr)


def test_a_filter_may_be_a_predicate_on_columns_that_are_not_asked_for(store: MemoryStore) -> None:
    assert rows(filtered(store), ["v"], compare("id", "=", 3)) == [{"v": "v3"}]


@pytest.mark.parametrize("condition", ["nope = 1", "id = ", "year(id) = 1", "id = 'abc'"])
def test_a_filter_that_is_not_understood_is_refused_at_once(
    store: MemoryStore, condition: str
) -> None:
    snapshot = filtered(store).snapshot
    with pytest.raises(InvalidPredicateError):
        snapshot.to_batches(filter=condition)


def test_rows_are_never_judged_by_what_is_unknown(store: MemoryStore) -> None:
    snapshot = filtered(store).snapshot
    with pytest.raises(InvalidPredicateError):
        snapshot.to_batches(filter=Unknown("year(id) = 1"))


def test_a_file_that_a_filter_rules_out_is_not_opened(store: MemoryStore) -> None:
    table = filtered(store)
    store.delete("y")
    assert rows(table, ["id"], "p = 'x' AND id = 1") == [{"id": 1}]
    assert rows(table, ["id"], "id = 21") == [{"id": 21}]
    with pytest.raises(DataFileError):
        rows(table, filter="id = 11")


# Deletion vectors.


def test_vectors_and_filters_meet_on_rows_of_the_file(store: MemoryStore) -> None:
    gone = DeletionVector([0, 5, 6, 99])
    (file,) = pack_deletion_vectors([gone], next_id=lambda: UUID(int=3), prefix="ä b")
    store.create(file.path, file.data)
    table = DataTable(store, features=VECTORS)
    data = {"id": range(100), "v": [str(i) for i in range(100)]}
    table.commit(
        table.file("a", data, vector=file.descriptors[0], stats=True, row_group_size=7),
    )
    left = [i for i in range(100) if i not in gone]
    found = [row["id"] for row in rows(table, ["id"])]
    assert sorted(found) == left
    found = [row["id"] for row in rows(table, ["id"], "id >= 5 AND id < 9")]
    assert found == [7, 8]
    assert rows(table, ["id"], "v = '99'") == []


def test_one_file_may_be_there_under_one_vector_only(store: MemoryStore) -> None:
    table = DataTable(store, features=VECTORS)
    first = table.file(
        "a", {"id": [1, 2, 3], "v": ["x"] * 3}, vector=inline_descriptor(DeletionVector([0]))
    )
    second = replace(first, deletion_vector=inline_descriptor(DeletionVector([0, 1])))
    table.commit(first)
    table.commit(first.remove(deletion_timestamp=1), second)
    assert rows(table, ["id"]) == [{"id": 3}]


def test_a_vector_without_the_feature_is_refused(store: MemoryStore) -> None:
    table = DataTable(store)
    gone = inline_descriptor(DeletionVector([0]))
    table.commit(table.file("a", {"id": [1, 2], "v": ["x"] * 2}, vector=gone))
    with pytest.raises(DeletionVectorError) as caught:
        rows(table)
    assert caught.value.condition == "DELTA_DELETION_VECTOR_FEATURE_NOT_SUPPORTED"
    assert caught.value.parameters["path"] == "a"


@pytest.mark.parametrize(
    ("gone", "cardinality", "condition"),
    [
        ([0], 2, "DELTA_DELETION_VECTOR_CARDINALITY_MISMATCH"),
        ([2], 1, "DELTA_DELETION_VECTOR_INVALID_ROW_INDEX"),
    ],
)
def test_a_vector_that_does_not_fit_gives_no_rows(
    store: MemoryStore, gone: list[int], cardinality: int, condition: str
) -> None:
    table = DataTable(store, features=VECTORS)
    vector = replace(inline_descriptor(DeletionVector(gone)), cardinality=cardinality)
    table.commit(table.file("a", {"id": [1, 2], "v": ["x"] * 2}, vector=vector))
    with pytest.raises(DeletionVectorError) as caught:
        next(table.snapshot.to_batches())
    assert caught.value.condition == condition


# Column mapping and type widening.


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_are_found_after_a_rename(store: MemoryStore, mode: str) -> None:
    inner = StructType((mapped("new x", LONG, "x", 2),))
    schema = StructType(
        (
            mapped("s", inner, "col-1", 1),
            mapped("part", STRING, "col-p", 3),
            mapped("z", LONG, "y", 4),
        )
    )
    table = DataTable(
        store,
        schema,
        ["part"],
        configuration={"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "4"},
        features=("columnMapping",),
    )
    field = pa.field("x", pa.int64(), metadata={"PARQUET:field_id": "2"})
    file_schema = pa.schema(
        [
            pa.field("col-1", pa.struct([field]), metadata={"PARQUET:field_id": "1"}),
            pa.field("z", pa.int64(), metadata={"PARQUET:field_id": "9"}),
        ]
    )
    data = pa.Table.from_pylist([{"col-1": {"x": 7}, "z": 8}], file_schema)
    table.commit(table.file("ab/a.parquet", data, partition={"col-p": "v"}))
    assert rows(table) == [{"s": {"new x": 7}, "part": "v", "z": None}]
    assert rows(table, ["part"], "s.`new x` = 7 AND part = 'v'") == [{"part": "v"}]


def test_older_files_are_read_as_the_widened_type(store: MemoryStore) -> None:
    change = {"fromType": "integer", "toType": "long"}
    column = StructField("id", LONG, metadata={"delta.typeChanges": [change]})
    table = DataTable(store, StructType((column,)), features=("typeWidening",))
    table.commit(
        table.file("old", {"id": pa.array([1], pa.int32())}, stats=True),
        table.file("new", {"id": pa.array([2**40], pa.int64())}, stats=True),
    )
    assert {row["id"] for row in rows(table)} == {1, 2**40}
    assert rows(table, filter=f"id = {2**40}") == [{"id": 2**40}]


def test_an_unknown_type_change_is_refused(store: MemoryStore) -> None:
    change = {"fromType": "string", "toType": "long"}
    column = StructField("id", LONG, metadata={"delta.typeChanges": [change]})
    table = DataTable(store, StructType((column,)), features=("typeWidening",))
    with pytest.raises(SchemaError) as caught:
        table.snapshot.to_batches()
    assert caught.value.condition == "DELTA_UNSUPPORTED_TYPE_CHANGE_IN_SCHEMA"


# Files that are not there, or not there to be read.


def test_a_missing_file_is_named(store: MemoryStore) -> None:
    table = DataTable(store)
    table.commit(table.file("p q/ä%.parquet", {"id": [1], "v": ["x"]}, written=False))
    with pytest.raises(DataFileError) as caught:
        rows(table)
    assert caught.value.condition == "DELTA_FILE_NOT_FOUND"
    assert caught.value.parameters["path"].endswith("p%20q/%C3%A4%25.parquet")


def test_a_damaged_file_is_named(store: MemoryStore) -> None:
    table = DataTable(store)
    add = table.file("a", {"id": [1], "v": ["x"]}, written=False)
    store.create("a", b"PAR1 is not enough")
    with pytest.raises(DataFileError) as caught:
        rows(table.commit(add))
    assert caught.value.condition == "DELTA_DATA_FILE_UNREADABLE"


def test_the_size_in_the_log_is_not_believed(store: MemoryStore) -> None:
    table = DataTable(store)
    add = table.file("a", {"id": [1], "v": ["x"]})
    assert rows(table.commit(replace(add, size=add.size * 1000))) == [{"id": 1, "v": "x"}]


@pytest.mark.parametrize(
    "path",
    ["../o.parquet", "%2e%2e/o.parquet", "/abs", "file:///abs", "http://127.0.0.1:9/x", "a//b"],
)
def test_a_path_out_of_the_table_is_refused_before_anything_is_read(
    store: MemoryStore, path: str
) -> None:
    table = DataTable(store)
    good = table.file("a", {"id": [1], "v": ["x"]})
    table.commit(good, replace(good, path=path))
    snapshot = table.snapshot
    with pytest.raises(UnsafePathError):
        snapshot.to_batches()


def test_a_symbolic_link_out_of_the_table_is_refused(tmp_path: Path) -> None:
    root, outside = tmp_path / "tä ble 100%", tmp_path / "outside"
    store = LocalStore(str(root))
    other = DataTable(LocalStore(str(outside)))
    other.file("o.parquet", {"id": [1], "v": ["x"]})
    table = DataTable(store)
    add = table.file("link.parquet", {"id": [1], "v": ["x"]}, written=False)
    (root / "link.parquet").symlink_to(outside / "o.parquet")
    with pytest.raises(UnsafePathError):
        rows(table.commit(add))


def test_a_shallow_clone_reads_its_source_once_that_is_allowed(tmp_path: Path) -> None:
    source = DataTable(LocalStore(str(tmp_path / "söurce 100%")), features=VECTORS)
    (file,) = pack_deletion_vectors([DeletionVector([0])], next_id=lambda: UUID(int=3))
    source.store.create(file.path, file.data)
    add = source.file("a b.parquet", {"id": [1, 2], "v": ["x", "y"]})
    vector = replace(
        file.descriptors[0], storage_type="p", path_or_inline_dv=source.store.address(file.path)
    )
    clone = DataTable(LocalStore(str(tmp_path / "clö ne")), features=VECTORS)
    far = replace(add, path=source.store.address("a b.parquet"), deletion_vector=vector)
    clone.commit(clone.file("own.parquet", {"id": [3], "v": ["z"]}), far)
    with pytest.raises(UnsafePathError):
        rows(clone)
    found = rows(clone, allowed_roots=[source.store])
    assert found == [{"id": 2, "v": "y"}, {"id": 3, "v": "z"}]


def test_a_local_table_is_read_from_a_path_that_needs_care(table_path: Path) -> None:
    table = DataTable(LocalStore(str(table_path)), PARTITIONED, ["p"])
    add: AddFile = table.file("p=a%20b/ü 1.parquet", {"id": [1]}, partition={"p": "a b"})
    assert add.path == "p=a%2520b/%C3%BC%201.parquet"
    assert rows(table.commit(add)) == [{"id": 1, "p": "a b"}]
