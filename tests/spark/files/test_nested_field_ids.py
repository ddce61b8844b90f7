"""Ids of elements, keys and values in files, as tables that Iceberg can read need them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_delta.errors import StorageError
from pyspark_delta.kernel.protocol.column_mapping import field_ids, physical_schema
from pyspark_delta.kernel.protocol.types import (
    LONG,
    STRING,
    ArrayType,
    MapType,
    StructField,
    StructType,
)
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.storage.uris import decode_path
from pyspark_delta.spark.files.nested_field_ids import with_nested_ids
from pyspark_delta.spark.jvm.write.file_writer import WrittenFile
from tests.support.spark_tables import SparkTable
from tests.support.tables import create_table

NESTED = StructType(
    (
        StructField("id", LONG),
        StructField("l", ArrayType(ArrayType(LONG))),
        StructField("m", MapType(STRING, StructType((StructField("x.y", ArrayType(STRING)),)))),
        *(StructField(f"filler number {i}", LONG) for i in range(20)),
    )
)
COMPATIBLE = {"delta.enableIcebergCompatV2": "true", "delta.columnMapping.mode": "name"}


def ids_in(file: Path) -> dict[str, int]:
    """The ids that a file has, by the names of its columns and what is in them."""
    found: dict[str, int] = {}

    def walk(f: pa.Field, path: str) -> None:
        here = f"{path}{f.name}"
        field_id = (f.metadata or {}).get(b"PARQUET:field_id")
        if field_id is not None:
            found[here] = int(field_id)
        if pa.types.is_struct(f.type):
            for inner in f.type:
                walk(inner, f"{here}.")
        elif pa.types.is_list(f.type):
            walk(f.type.value_field, f"{here}.")
        elif pa.types.is_map(f.type):
            walk(f.type.key_field, f"{here}.")
            walk(f.type.item_field, f"{here}.")

    for f in pq.read_schema(file):
        walk(f, "")
    return found


def bare_file(root: Path, name: str, schema: StructType, rows: list[dict[str, Any]]) -> WrittenFile:
    """A file without any ids, as a writer that knows none leaves it."""

    def arrow(data_type: Any) -> pa.DataType:
        match data_type:
            case StructType():
                return pa.struct([pa.field(f.name, arrow(f.data_type)) for f in data_type])
            case ArrayType():
                return pa.list_(pa.field("element", arrow(data_type.element_type)))
            case MapType():
                return pa.map_(pa.string(), pa.field("value", arrow(data_type.value_type)))
        return pa.int64() if data_type == LONG else pa.string()

    columns = pa.schema([pa.field(f.name, arrow(f.data_type)) for f in schema])
    pq.write_table(
        pa.Table.from_pylist(rows, columns), root / name, store_schema=False, row_group_size=2
    )
    size = (root / name).stat().st_size
    return WrittenFile(path=name, size=size, modified_ms=0, partition_values={})


def test_a_copy_has_all_ids_and_the_same_rows(table_path: Path) -> None:
    log = create_table(table_path, NESTED, configuration=COMPATIBLE)
    metadata = log.update().metadata
    written = physical_schema(metadata.schema, mapping_mode(metadata))
    names = {f.name: p.name for f, p in zip(NESTED, written, strict=True)}
    inner = written[names["m"]].data_type.value_type.fields[0].name  # type: ignore[attr-defined]
    rows = [
        {
            names["id"]: i,
            names["l"]: [[i, None], None, []],
            names["m"]: [("k", {inner: ["x", None]})],
        }
        for i in range(5)
    ]
    name = "part-00007-0b1e0a3e-8a52-4d2d-9d0e-6f7b5b0c9d11.c000.snappy.parquet"
    file = bare_file(table_path, name, written, rows)
    assert ids_in(table_path / name) == {}
    before = pq.read_table(table_path / name).to_pylist()
    (copy,) = with_nested_ids(log.store, [file], metadata.schema, written)
    assert not (table_path / name).exists()
    assert copy.path.startswith("part-00007-")
    assert copy.path.endswith(".c000.snappy.parquet")
    assert (table_path / copy.path).stat().st_size == copy.size
    wanted = {".".join(path): number for path, number in field_ids(metadata.schema).items()}
    assert ids_in(table_path / copy.path) == wanted
    assert len(wanted) == len(set(wanted.values())) == 29
    assert pq.read_table(table_path / copy.path).to_pylist() == before
    assert pq.read_metadata(table_path / copy.path).num_row_groups == 3


def test_a_file_of_another_schema_is_left_alone(table_path: Path) -> None:
    schema = StructType((StructField("a", ArrayType(LONG)),))
    table_path.mkdir()
    file = bare_file(table_path, "part-0", schema, [{"a": [1]}])
    content = (table_path / "part-0").read_bytes()
    store = LocalStore(str(table_path))
    others = (
        StructType((StructField("b", ArrayType(LONG)),)),
        StructType((StructField("a", LONG),)),
        StructType((*schema, StructField("c", LONG))),
    )
    for other in others:
        with pytest.raises(StorageError):
            with_nested_ids(store, [file], StructType(), other)
    for broken in (
        content[:-1] + b"X",
        content[:40] + content[-8:],
        content[:-8] + b"\xff" * 4 + b"PAR1",
    ):
        (table_path / "part-0").write_bytes(broken)
        cut = WrittenFile(path="part-0", size=len(broken), modified_ms=0, partition_values={})
        with pytest.raises(StorageError):
            with_nested_ids(store, [cut], StructType(), schema)
    assert [path.name for path in table_path.iterdir()] == ["part-0"]


def test_files_of_spark_have_all_ids(spark: SparkSession, table_path: Path) -> None:
    table = SparkTable(spark, table_path)
    data = spark.range(0, 6, 1, 2).selectExpr(
        "id",
        "array(array(id), null) AS l",
        "map('k', named_struct('x', array(cast(id AS string)))) AS m",
        "id % 2 AS p",
    )
    table.write(data, "append", "p", **COMPATIBLE)
    table.write(data.withColumn("more", F.array("id")), mergeSchema="true")
    wanted = {".".join(k): v for k, v in field_ids(table.log.snapshot.schema).items()}
    assert len(wanted) == 12
    for file in table.files:
        assert file.tags == {"ICEBERG_COMPAT_VERSION": "2"}
        found = ids_in(table.path / decode_path(file.path))
        assert found.items() <= wanted.items()
        assert len(found) >= 10
    on_disk = {path.name for path in table_path.rglob("*.parquet")}
    assert on_disk == {decode_path(file.path).rpartition("/")[2] for file in table.files}
    assert len(table.rows) == 12
    again = table.read().where("p = 1 AND more IS NULL").select("l").collect()
    assert sorted(row[0][0][0] for row in again) == [1, 3, 5]
