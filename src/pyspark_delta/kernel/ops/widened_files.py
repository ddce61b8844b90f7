"""Files that were written before a column got a wider type, and hold it in the older one.

Told by their footers, for no action says it.  PROTOCOL.md, "Type Widening".

>>> schema = pa.schema([("n", pa.int16()), ("xs", pa.list_(pa.int32()))])
>>> found_type(schema, ("N",)), found_type(schema, ("xs", "element"))
(DataType(int16), DataType(int32))
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_delta.errors.table import SchemaError
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.column_mapping import physical_path
from pyspark_delta.kernel.protocol.type_widening import all_type_changes
from pyspark_delta.kernel.protocol.types import TIMESTAMP_NTZ, DataType
from pyspark_delta.kernel.scan.arrow_types import is_list, kernel_type
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.scan.plan import mapping_mode

_FOOTERS_AT_ONCE = 16


def widened_files(files: pa.Table, metadata: Metadata, locations: Locations) -> pa.Table:
    """Those of `files`, a table of add actions, that hold a column of an older type."""
    mode = mapping_mode(metadata)
    columns: dict[tuple[str, ...], DataType] = {}
    for path, change in all_type_changes(metadata.schema):
        columns[physical_path(metadata.schema, path, mode)] = change.to_type
    if not columns or not files.num_rows:
        return files.slice(0, 0)

    def is_older(path: str) -> bool:
        store, name = locations.open(path)
        with store.arrow_file(name) as opened:
            schema = pq.read_schema(opened)
        return any(holds_older(found_type(schema, at), kind) for at, kind in columns.items())

    paths: Iterable[str] = files.column("path").to_pylist()
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
        return files.filter(pa.array(pool.map(is_older, paths), pa.bool_()))


def found_type(schema: pa.Schema, path: Sequence[str]) -> pa.DataType | None:
    """The type that a file has for a column, a field or an element; None when it has none."""
    found: pa.DataType = pa.struct(list(schema))
    for step in path:
        inner = _inner(found, step)
        if inner is None:
            return None
        found = inner
    return found


def holds_older(found: pa.DataType | None, current: DataType) -> bool:
    """Whether values in a file of one type are not of a table's present type; None is none."""
    if found is None:
        return False
    if current == TIMESTAMP_NTZ:
        return bool(pa.types.is_date(found))  # times differ in unit and zone from writer to writer
    try:
        return kernel_type(found) != current
    except SchemaError:
        return True


def _inner(found: pa.DataType, step: str) -> pa.DataType | None:
    if pa.types.is_struct(found):
        names = [f.name for f in found]
        if step in names:
            return found.field(step).type
        same = [f.type for f in found if f.name.lower() == step.lower()]
        return same[0] if same else None
    if is_list(found):
        return found.value_type
    if pa.types.is_map(found):
        return found.key_type if step == "key" else found.item_type
    return None
