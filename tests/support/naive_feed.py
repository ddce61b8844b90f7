"""The changes of one version, read by pyarrow file by file: what the log says, and nothing else.

Slow and plain on purpose, to hold our own reader of the feed and the files it reads to something.
PROTOCOL.md, "Change Data Files" and "Reader Requirements for AddCDCFile".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_delta.kernel.log.arrow_types import arrow_type
from pyspark_delta.kernel.protocol.actions import AddCDCFile, AddFile, Metadata, RemoveFile
from pyspark_delta.kernel.protocol.column_mapping import (
    MODE_KEY,
    ColumnMappingMode,
    physical_name,
    physical_schema,
)
from pyspark_delta.kernel.protocol.partition_values import parse_partition_value
from pyspark_delta.kernel.protocol.types import StructField
from pyspark_delta.kernel.scan.locations import Locations, VectorReader
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.storage.uris import decode_path
from tests.support.dml_model import Row, as_bag, frozen

CHANGE_TYPE = "_change_type"
Changes = Counter[tuple[str, str]]
"""How often a row, as `frozen` writes it, was changed in which way."""

_File = AddFile | RemoveFile | AddCDCFile


def changes(root: Path, metadata: Metadata, actions: Sequence[object]) -> Changes:
    """What a version's actions tell of changed rows."""
    told = [action for action in actions if isinstance(action, AddCDCFile)]
    if told:
        rows = [row for file in told for row in rows_of(root, metadata, file)]
        return Counter((row.pop(CHANGE_TYPE), frozen(row)) for row in rows)
    old: dict[str, Counter[str]] = {}
    new: dict[str, Counter[str]] = {}
    for action in actions:
        if isinstance(action, AddFile | RemoveFile) and action.data_change:
            side = new if isinstance(action, AddFile) else old
            side[action.path] = as_bag(rows_of(root, metadata, action))
    found = Changes()
    for path in {*old, *new}:
        # The same file with another vector: only the rows between the two have changed.
        before, after = old.get(path, Counter()), new.get(path, Counter())
        found.update({("delete", row): count for row, count in (before - after).items()})
        found.update({("insert", row): count for row, count in (after - before).items()})
    return found


def rows_of(root: Path, metadata: Metadata, file: _File) -> list[Row]:
    """The rows of one file, those of its deletion vector left out."""
    mode = ColumnMappingMode.parse(metadata.configuration.get(MODE_KEY))
    found = pq.ParquetFile(root / decode_path(file.path), coerce_int96_timestamp_unit="us").read()
    data = metadata.data_schema
    columns = {
        f.name: _logical(found.column(physical.name), f)
        for f, physical in zip(data, physical_schema(data, mode), strict=True)
    }
    for f in metadata.partition_schema:
        text = (file.partition_values or {})[physical_name(f, mode)]
        value = parse_partition_value(text, f.data_type)
        columns[f.name] = pa.array([value] * found.num_rows, arrow_type(f.data_type))
    if isinstance(file, AddCDCFile):
        columns[CHANGE_TYPE] = found.column(CHANGE_TYPE)
    rows: list[Row] = pa.table(columns).to_pylist(maps_as_pydicts="strict")
    vector = None if isinstance(file, AddCDCFile) else file.deletion_vector
    if vector is None:
        return rows
    gone = VectorReader(Locations(LocalStore(root), ())).read(vector)
    return [row for number, row in enumerate(rows) if number not in gone]


def _logical(column: pa.ChunkedArray, f: StructField) -> pa.ChunkedArray:
    """The column with the names and the type that the table's schema has for it."""
    wanted = arrow_type(f.data_type)
    if pa.types.is_nested(wanted):
        return pa.chunked_array([column.combine_chunks().view(wanted)])
    return column.cast(wanted)
