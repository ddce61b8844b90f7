"""Rows in Arrow to files of a table: directories, statistics, names, sizes.  No JVM."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyspark_delta import DeltaLog
from pyspark_delta.errors import ConstraintError
from pyspark_delta.kernel.protocol.operations import write
from pyspark_delta.kernel.protocol.types import LONG, STRING, ArrayType, StructField, StructType
from pyspark_delta.kernel.storage.uris import decode_path
from pyspark_delta.spark.conf.options import DeltaOptions
from pyspark_delta.spark.datasource import arrow_files as arrow_writer
from pyspark_delta.spark.datasource.arrow_files import ArrowWriter
from pyspark_delta.spark.files.write_options import FileOptions
from tests.support.agreement import agree
from tests.support.tables import create_table


def written(log: DeltaLog, *batches: pa.RecordBatch, **options: Any) -> list[dict[str, Any]]:
    """What the log knows of the files that hold the batches, once they are committed."""
    metadata, protocol = log.update().metadata, log.update().protocol
    writer = ArrowWriter(log.store, metadata, protocol, batches[0].schema, **options)
    for batch in batches:
        writer.write(batch)
    actions = writer.finish()
    log.start_transaction().commit(actions, write("Append"))
    return [
        {"path": decode_path(f.path), "values": f.partition_values, **json.loads(f.stats or "{}")}
        for f in actions
    ]


def test_rows_go_to_the_directories_of_their_partitions(table_path: Path) -> None:
    schema = pa.schema(
        [
            ("v", pa.int64()),
            ("s", pa.string()),
            ("d", pa.date32()),
            ("t", pa.timestamp("us", "UTC")),
        ]
    )
    log = create_table(table_path, schema, partition_by=["s", "d", "t"])
    at = datetime(2024, 2, 29, 12, 0, 0, 5, tzinfo=UTC)
    values = ["a b", "ü%/x", "", None, "a b"]
    batch = pa.record_batch(
        {"T": [at] * 5, "S": values, "V": [1, 2, 3, 4, 5], "D": [date(2024, 2, 29)] * 4 + [None]}
    )
    files = written(log, batch, batch)
    assert sorted((f["path"].split("/")[0], f["numRecords"]) for f in files) == [
        ("s=__HIVE_DEFAULT_PARTITION__", 4),  # the empty text is null
        ("s=a b", 2),
        ("s=a b", 2),
        ("s=ü%25%2Fx", 2),
    ]
    assert {f["values"]["t"] for f in files} == {"2024-02-29T12:00:00.000005Z"}
    expected = [
        {"v": v, "s": s or None, "d": d, "t": at}
        for v, s, d in zip(range(1, 6), values, [date(2024, 2, 29)] * 4 + [None], strict=True)
    ]
    agree(table_path, [*expected, *expected])


def test_statistics_are_those_of_the_rows(table_path: Path) -> None:
    inner = pa.struct([("a", pa.float32())])
    schema = pa.schema(
        [
            ("f", pa.float64()),
            ("g", pa.float64()),
            ("s", pa.string()),
            ("m", pa.decimal128(10, 2)),
            ("i", inner),
            ("l", pa.list_(pa.int64())),
        ]
    )
    log = create_table(table_path, schema)
    rows = {
        "f": [1.5, math.nan, None],
        "g": [-1.0, 0.0, 2.0],
        "s": ["b", "ä", None],
        "m": [Decimal("1.50"), Decimal("-2.25"), None],
        "i": [{"a": 1.0}, {"a": math.nan}, None],
        "l": [[1], [], None],
    }
    (file,) = written(log, pa.RecordBatch.from_pydict(rows, schema=schema))
    # NaN is above all numbers and has no spelling, so there is no maximum beside it.
    assert file["minValues"] == {"f": 1.5, "g": -1.0, "s": "b", "m": -2.25, "i": {"a": 1.0}}
    assert file["maxValues"] == {"g": 2.0, "s": "ä", "m": 1.5, "i": {}}
    assert file["nullCount"]["f"] == file["nullCount"]["i"]["a"] == 1
    agree(table_path, pa.Table.from_pydict(rows, schema=schema))
    assert log.update().to_table(filter="f > 5").num_rows == 1


def test_files_of_a_mapped_table_have_physical_names_and_ids(table_path: Path) -> None:
    inner = pa.struct([("x y", pa.int64()), ("z", pa.list_(pa.struct([("q", pa.string())])))])
    schema = pa.schema([("a b", pa.int64()), ("st", inner), ("p", pa.string())])
    log = create_table(
        table_path,
        schema,
        partition_by=["p"],
        configuration={"delta.columnMapping.mode": "id"},
    )
    rows = {
        "a b": [1, 2],
        "st": [{"x y": 1, "z": [{"q": "ü"}]}, None],
        "p": ["x", "x"],
    }
    # The struct's fields in another order and case, the first one missing from the data.
    given = pa.struct([("Z", pa.list_(pa.struct([("Q", pa.string())])))])
    data = {"P": ["x", "x"], "A B": [1, 2], "st": [{"Z": [{"Q": "ü"}]}, None]}
    arrays = [pa.array(data["P"]), pa.array(data["A B"]), pa.array(data["st"], given)]
    (file,) = written(log, pa.RecordBatch.from_arrays(arrays, names=["P", "A B", "st"]))
    footer = pq.read_schema(table_path / file["path"])
    assert "a b" not in footer.names
    assert all(b"PARQUET:field_id" in f.metadata for f in footer)
    rows["st"][0]["x y"] = None  # type: ignore[index]
    assert log.update().to_table().to_pylist() == pa.Table.from_pydict(rows).to_pylist()


def test_values_that_may_not_be_null_stand_in_collections_that_may(table_path: Path) -> None:
    item = StructType((StructField("x", LONG),))
    schema = StructType((StructField("l", ArrayType(item, contains_null=False)),))
    log = create_table(table_path, schema, configuration={"delta.columnMapping.mode": "name"})
    given = pa.list_(pa.struct([("x", pa.int64())]))
    rows = [{"l": None}, {"l": [{"x": 1}]}, {"l": []}]
    written(log, pa.RecordBatch.from_pylist(rows, schema=pa.schema([("l", given)])))
    assert log.update().to_table().to_pylist() == rows


def test_null_is_refused_where_the_table_requires_a_value(table_path: Path) -> None:
    inner = StructType((StructField("b", LONG, nullable=False),))
    schema = StructType((StructField("a", inner, nullable=False), StructField("s", STRING)))
    log = create_table(table_path, schema)
    arrow = pa.struct([("b", pa.int64())])
    with pytest.raises(ConstraintError) as caught:
        written(log, pa.record_batch({"a": pa.array([{"b": 1}, {"b": None}], arrow)}))
    assert caught.value.parameters == {"columnName": "a.b"}
    written(log, pa.record_batch({"a": pa.array([{"b": 1}], arrow)}))
    agree(table_path, [{"a": {"b": 1}, "s": None}])
    assert len(list(table_path.glob("*.parquet"))) == 1


def test_files_end_at_the_asked_number_of_rows(table_path: Path) -> None:
    log = create_table(table_path, pa.schema([("id", pa.int32())]))
    batch = pa.record_batch({"id": pa.array(range(25), pa.int32())})
    options = FileOptions.parse(DeltaOptions({"maxRecordsPerFile": 20, "compression": "zstd"}))
    files = written(log, batch, batch, task=7, options=options)
    assert [f["numRecords"] for f in files] == [20, 20, 10]
    assert all(f["path"].startswith("part-00007-") and "zstd" in f["path"] for f in files)
    agree(table_path, pa.Table.from_batches([batch, batch]))


def test_options_of_parquet_are_those_of_pyarrow(table_path: Path) -> None:
    log = create_table(table_path, pa.schema([("id", pa.int64()), ("s", pa.string())]))
    batch = pa.record_batch({"id": range(1000), "s": [f"w {i}" for i in range(1000)]})
    given = {
        "parquet.writer.version": "v2",
        "parquet.enable.dictionary": "false",
        "parquet.block.size": "8000",
        "parquet.bloom.filter.enabled#S": "true",  # names come in any case
        "parquet.bloom.filter.expected.ndv#s": "1000",
        "parquet.bloom.filter.fpp": "0.05",
    }
    options = FileOptions.parse(DeltaOptions(given))
    (file,) = written(log, batch, batch, options=options)
    footer = pq.read_metadata(table_path / file["path"])
    assert footer.num_row_groups == 2
    by_id, by_text = (footer.row_group(0).column(i) for i in range(2))
    assert not by_id.has_dictionary_page
    assert by_id.bloom_filter_length is None
    assert by_text.bloom_filter_length > 100
    agree(table_path, pa.Table.from_batches([batch, batch]))


def test_files_of_a_task_that_fails_are_deleted(table_path: Path) -> None:
    schema = StructType((StructField("id", LONG, nullable=False),))
    log = create_table(table_path, schema)
    metadata, protocol = log.update().metadata, log.update().protocol
    options = FileOptions.parse(DeltaOptions({"maxRecordsPerFile": 1}))
    good, bad = (pa.record_batch({"id": pa.array([i], pa.int64())}) for i in (1, None))
    writer = ArrowWriter(log.store, metadata, protocol, good.schema, options=options)
    writer.write(good)
    assert len(list(table_path.glob("*.parquet"))) == 1
    with pytest.raises(ConstraintError):
        writer.write(bad)
    writer.discard()
    assert not list(table_path.glob("*.parquet"))


@pytest.mark.parametrize(
    "properties",
    [{"delta.randomizeFilePrefixes": "true"}, {"delta.columnMapping.mode": "name"}],
    ids=["asked", "mapped"],
)
def test_random_directories_take_the_place_of_partitions(
    table_path: Path, properties: dict[str, str]
) -> None:
    schema = pa.schema([("id", pa.int64()), ("p", pa.int32())])
    log = create_table(table_path, schema, partition_by=["p"], configuration=properties)
    batch = pa.RecordBatch.from_pydict({"id": range(6), "p": [0, 1, 2] * 2}, schema=schema)
    files = written(log, batch)
    assert all(re.fullmatch(r"[A-Za-z0-9]{2}/part-[^/=]*", f["path"]) for f in files)
    assert {value for f in files for value in f["values"].values()} == {"0", "1", "2"}
    agree(table_path, pa.Table.from_batches([batch]))


def test_many_partitions_take_bounded_memory_and_files(
    table_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_writer, "_OPEN_FILES", 2)
    monkeypatch.setattr(arrow_writer, "_BUFFERED_BYTES", 200)
    monkeypatch.setattr(arrow_writer, "_GROUP_ROWS", 8)
    schema = pa.schema([("id", pa.int64()), ("p", pa.int32())])
    log = create_table(table_path, schema, partition_by=["p"])
    batches = [
        pa.RecordBatch.from_pydict(
            {"id": range(20 * i, 20 * i + 20), "p": [n % 5 for n in range(20)]}, schema=schema
        )
        for i in range(6)
    ]
    files = written(log, *batches)
    assert sum(f["numRecords"] for f in files) == 120
    agree(table_path, pa.Table.from_batches(batches))
