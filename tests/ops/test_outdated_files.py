"""Which files hold rows or columns that the table no longer has."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyspark_delta.errors import DataFileError
from pyspark_delta.kernel.log.frames.file_actions import add_files, add_table
from pyspark_delta.kernel.ops.features.outdated_files import files_to_purge, has_other_columns
from pyspark_delta.kernel.protocol.action_parts import DeletionVectorDescriptor
from pyspark_delta.kernel.protocol.actions import AddFile, Metadata
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.types import (
    LONG,
    STRING,
    ArrayType,
    MapType,
    StructField,
    StructType,
)
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.storage.local import LocalStore

INNER = StructType((StructField("x", LONG),))
SCHEMA = StructType(
    (
        StructField("a", LONG),
        StructField("s", INNER),
        StructField("xs", ArrayType(INNER)),
        StructField("m", MapType(STRING, INNER)),
    )
)
ARROW_INNER = pa.struct([("x", pa.int64())])
WIDER = pa.struct([("X", pa.int64()), ("y", pa.int64())])


@pytest.mark.parametrize(
    ("columns", "is_other"),
    [
        ([("A", pa.int64())], False),
        ([("a", pa.int64()), ("id", pa.int64())], False),
        ([("a", pa.int64()), ("b", pa.int64())], True),
        ([("s", ARROW_INNER)], False),
        ([("s", WIDER)], True),
        ([("xs", pa.list_(ARROW_INNER)), ("m", pa.map_(pa.string(), ARROW_INNER))], False),
        ([("xs", pa.list_(WIDER))], True),
        ([("m", pa.map_(pa.string(), WIDER))], True),
    ],
)
def test_a_dropped_column_shows_in_a_files_schema(
    columns: list[tuple[str, pa.DataType]], is_other: bool
) -> None:
    assert has_other_columns(pa.schema(columns), SCHEMA, {"id", None}) == is_other


def test_files_with_vectors_and_files_with_dropped_columns_are_due(tmp_path: Path) -> None:
    root = tmp_path / "tä ble 100%"
    root.mkdir()
    pq.write_table(pa.table({"a": [1]}), root / "plain")
    pq.write_table(pa.table({"a": [1], "dropped": [1]}), root / "more")
    (root / "broken").write_bytes(b"no Parquet")
    vector = DeletionVectorDescriptor(
        storage_type="u", path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^", size_in_bytes=4, cardinality=1
    )

    def add(path: str, vector: DeletionVectorDescriptor | None = None) -> AddFile:
        return AddFile(
            path=path, size=1, modification_time=0, data_change=True, deletion_vector=vector
        )

    metadata = Metadata(id="1", schema_string=format_schema(SCHEMA))
    locations = Locations(LocalStore(str(root)))
    # The file with a vector need not even be opened.
    files = add_table([add("more"), add("missing", vector), add("plain")])
    due = files_to_purge(files, metadata, locations)
    assert [file.path for file in add_files(due)] == ["more", "missing"]
    assert files_to_purge(files.slice(2), metadata, locations).num_rows == 0
    with pytest.raises(DataFileError, match="broken"):
        files_to_purge(add_table([add("broken")]), metadata, locations)
