"""Find files that a table should no longer have as they are, by the schemas in their footers.

Files with data that the table has no more: deleted rows (their vectors are in the log), and dropped
columns.  Files that hold a column in a narrower type than the table has now.
PROTOCOL.md, "Type Widening".

>>> file = pa.schema([("n", pa.int16()), ("xs", pa.list_(pa.int32()))])
>>> type_in_file(file, ("N",)), type_in_file(file, ("xs", "element"))
(DataType(int16), DataType(int32))
>>> from pyspark_delta.kernel.protocol.types import SHORT, StructField
>>> has_other_columns(file, StructType((StructField("N", SHORT),)))
True
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyspark_delta.errors import DataFileError, DeltaError, SchemaError
from pyspark_delta.kernel.log.arrow_types import is_list, kernel_type
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.column_mapping import physical_path, physical_schema
from pyspark_delta.kernel.protocol.properties import ROW_COMMIT_VERSION_COLUMN, ROW_ID_COLUMN
from pyspark_delta.kernel.protocol.type_widening import all_type_changes
from pyspark_delta.kernel.protocol.types import (
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    MapType,
    StructType,
)
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.scan.plan import mapping_mode

_FOOTERS_AT_ONCE = 16


def files_to_purge(files: pa.Table, metadata: Metadata, locations: Locations) -> pa.Table:
    """The rows of `files`, a table of add actions, with deleted rows or dropped columns."""
    has_vector = pc.is_valid(files.column("deletionVector"))
    others = pc.indices_nonzero(pc.invert(has_vector))
    table = physical_schema(metadata.schema, mapping_mode(metadata))
    hidden = {
        metadata.configuration.get(row.key) for row in (ROW_ID_COLUMN, ROW_COMMIT_VERSION_COLUMN)
    }
    due = _by_schema(
        files.take(others), locations, lambda schema: has_other_columns(schema, table, hidden)
    )
    places = pa.concat_arrays([pc.indices_nonzero(has_vector), others.filter(due)])
    return files.take(places.take(pc.sort_indices(places)))


def widened_files(files: pa.Table, metadata: Metadata, locations: Locations) -> pa.Table:
    """The rows of `files`, a table of add actions, whose file has a column of an older type."""
    mode = mapping_mode(metadata)
    columns = {
        physical_path(metadata.schema, path, mode): change.to_type
        for path, change in all_type_changes(metadata.schema)
    }
    if not columns or not files.num_rows:
        return files.slice(0, 0)

    def is_older(schema: pa.Schema) -> bool:
        return any(_holds_older(type_in_file(schema, at), kind) for at, kind in columns.items())

    return files.filter(_by_schema(files, locations, is_older))


def _by_schema(
    files: pa.Table, locations: Locations, is_due: Callable[[pa.Schema], bool]
) -> pa.Array:

    def is_due_at(path: str) -> bool:
        store, name = locations.open(path)
        try:
            with store.arrow_file(name) as opened:
                schema = pq.read_schema(opened)
        except DeltaError:
            raise
        except (pa.ArrowException, OSError) as error:
            reason = str(error).rstrip(".")
            raise DataFileError(
                "DELTA_DATA_FILE_UNREADABLE", path=store.address(name), reason=reason
            ) from error
        return is_due(schema)

    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
        return pa.array(pool.map(is_due_at, files.column("path").to_pylist()), pa.bool_())


def has_other_columns(
    schema: pa.Schema, table: StructType, hidden: Collection[str | None] = ()
) -> bool:
    """Whether a file has a column, or a field in one, that the table does not; case is ignored.

    `hidden` columns belong to the table but not to its schema.
    """
    return _has_other_fields((f for f in schema if f.name not in hidden), table)


def _has_other_fields(fields: Iterable[pa.Field], table: StructType) -> bool:
    pairs = ((f, table.get(f.name)) for f in fields)
    return any(known is None or _has_other_parts(f.type, known.data_type) for f, known in pairs)


def _has_other_parts(file_type: pa.DataType, known: DataType) -> bool:
    match known:
        case StructType() if pa.types.is_struct(file_type):
            return _has_other_fields(file_type, known)
        case ArrayType() if is_list(file_type):
            return _has_other_parts(file_type.value_type, known.element_type)
        case MapType() if pa.types.is_map(file_type):
            return _has_other_parts(file_type.key_type, known.key_type) or _has_other_parts(
                file_type.item_type, known.value_type
            )
        case _:
            return False


def type_in_file(schema: pa.Schema, path: Sequence[str]) -> pa.DataType | None:
    """The type that a file has for a column, a field or an element; None when it has none."""
    file_type: pa.DataType | None = pa.struct(list(schema))
    for step in path:
        file_type = _inner_type(file_type, step)
    return file_type


def _inner_type(file_type: pa.DataType | None, step: str) -> pa.DataType | None:
    if file_type is None:
        return None
    if pa.types.is_struct(file_type):
        # A field of exactly that name comes before those in another case.
        same = [f for f in file_type if f.name.lower() == step.lower()]
        return min(same, key=lambda f: f.name != step).type if same else None
    if is_list(file_type):
        return file_type.value_type
    if pa.types.is_map(file_type):
        return file_type.key_type if step == "key" else file_type.item_type
    return None


def _holds_older(file_type: pa.DataType | None, current: DataType) -> bool:
    """Whether a file's type (None: absent) is older than the table's type."""
    if file_type is None:
        return False
    if current == TIMESTAMP_NTZ:
        return bool(
            pa.types.is_date(file_type)
        )  # times differ in unit and zone from writer to writer
    try:
        return kernel_type(file_type) != current
    except SchemaError:
        return True
