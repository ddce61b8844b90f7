"""Files that hold what the table no longer has: deleted rows, and columns that were dropped.

Vectors are in the log; columns are told by footers, for no action says which a file has.

>>> file = pa.schema([("a", pa.int64()), ("s", pa.struct([("x", pa.int64())]))])
>>> from pyspark_delta.kernel.protocol.types import LONG, StructField
>>> has_other_columns(file, StructType((StructField("A", LONG),)))
True
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyspark_delta.errors.base import DeltaError
from pyspark_delta.errors.table import DataFileError
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.column_mapping import physical_schema
from pyspark_delta.kernel.protocol.properties import ROW_COMMIT_VERSION_COLUMN, ROW_ID_COLUMN
from pyspark_delta.kernel.protocol.types import ArrayType, DataType, MapType, StructType
from pyspark_delta.kernel.scan.arrow_types import is_list
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.scan.plan import mapping_mode

_FOOTERS_AT_ONCE = 16


def files_to_purge(files: pa.Table, metadata: Metadata, locations: Locations) -> pa.Table:
    """Those of `files`, a table of add actions, that hold deleted rows or dropped columns."""
    has_vector = pc.is_valid(files.column("deletionVector"))
    others = pc.indices_nonzero(pc.invert(has_vector))
    table = physical_schema(metadata.schema, mapping_mode(metadata))
    hidden = {
        metadata.configuration.get(row.key) for row in (ROW_ID_COLUMN, ROW_COMMIT_VERSION_COLUMN)
    }

    def is_due(path: str) -> bool:
        return has_other_columns(_schema(path, locations), table, hidden)

    paths: Iterable[str] = files.column("path").take(others).to_pylist()
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
        due = pa.array(pool.map(is_due, paths), pa.bool_())
    places = pa.concat_arrays([pc.indices_nonzero(has_vector), others.filter(due)])
    return files.take(places.take(pc.sort_indices(places)))


def has_other_columns(
    found: pa.Schema, table: StructType, hidden: Collection[str | None] = ()
) -> bool:
    """Whether a file has a column, or a field in one, that the table does not; case is ignored.

    `hidden` columns are the table's without being part of its schema.
    """
    kept = [f for f in found if f.name not in hidden]
    return _has_other_fields(kept, table)


def _has_other_fields(found: Iterable[pa.Field], table: StructType) -> bool:
    for f in found:
        known = table.get(f.name)
        if known is None or _has_other_parts(f.type, known.data_type):
            return True
    return False


def _has_other_parts(found: pa.DataType, known: DataType) -> bool:
    match known:
        case StructType() if pa.types.is_struct(found):
            return _has_other_fields(found, known)
        case ArrayType() if is_list(found):
            return _has_other_parts(found.value_type, known.element_type)
        case MapType() if pa.types.is_map(found):
            return _has_other_parts(found.key_type, known.key_type) or _has_other_parts(
                found.item_type, known.value_type
            )
        case _:
            return False


def _schema(path: str, locations: Locations) -> pa.Schema:
    store, name = locations.open(path)
    try:
        with store.arrow_file(name) as opened:
            return pq.read_schema(opened)
    except DeltaError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise DataFileError(
            "DELTA_DATA_FILE_UNREADABLE", path=store.address(name), reason=str(error).rstrip(".")
        ) from error
