"""The rows of one Parquet data file, as columns of the table and without deleted rows.

Rows are counted as they stand in the file, whatever is read of it, so that a deletion vector means
the same rows always.  Partition values and predicates are not applied here.  What pyarrow cannot
read ends as a DataFileError that names the file.  PROTOCOL.md, "Deletion Vectors".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_delta.errors.base import DeltaError
from pyspark_delta.errors.storage import FileMissingError
from pyspark_delta.errors.table import DataFileError
from pyspark_delta.kernel.protocol.column_mapping import ColumnMappingMode
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector, check_rows_exist
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.kernel.scan.projection import Projection, project
from pyspark_delta.kernel.storage.base import LogStore

DEFAULT_BATCH_SIZE = 65_536

# Rows that are all alike take almost no room, but writers end a page long before this.
_MOST_ROWS_PER_BYTE = 1 << 20


class Rows(NamedTuple):
    """Some rows in the order of the file: a column for each that was asked for, perhaps none."""

    num_rows: int
    columns: list[pa.Array]


def read_rows(
    store: LogStore,
    path: str,
    schema: StructType,
    *,
    mode: ColumnMappingMode = ColumnMappingMode.NONE,
    vector: DeletionVector | None = None,
    batch_size: int = DEFAULT_BATCH_SIZE,
) -> Iterator[Rows]:
    """The rows of the file at `path` that `vector` leaves, `batch_size` or fewer at a time.

    `schema` has the columns to read under logical names, partition columns left out.
    """
    address = store.address(path)
    with _translated(address):
        source = store.arrow_file(path)
    with source:
        with _translated(address):
            file = _opened(source)
            num_rows = _num_rows(file, source.size())
            projection = project(schema, file.schema_arrow, mode)
        if vector is not None:
            check_rows_exist(vector, num_rows)
        start = 0
        for batch in _batches(file, projection, num_rows, batch_size, address):
            with _translated(address):
                kept = batch if vector is None else _kept(batch, vector, start)
                rows = Rows(kept.num_rows, projection.columns(kept))
            start += batch.num_rows
            if rows.num_rows:
                yield rows
        if start != num_rows:
            raise _unreadable(address, f"it has {start} rows, its footer says {num_rows}")


def batch_without_columns(num_rows: int) -> pa.RecordBatch:
    """A batch that has rows, but no column to count them by: only a struct can make one."""
    empty = pa.Array.from_buffers(pa.struct([]), num_rows, [None], 0)
    return pa.RecordBatch.from_struct_array(empty)


def _opened(source: pa.NativeFile) -> pq.ParquetFile:
    return pq.ParquetFile(
        source,
        # Nanoseconds would overflow for years that microseconds hold.
        coerce_int96_timestamp_unit="us",
        page_checksum_verification=True,
        pre_buffer=True,
    )


def _num_rows(file: pq.ParquetFile, size: int) -> int:
    metadata = file.metadata
    groups = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    num_rows = int(metadata.num_rows)
    if min(groups, default=0) < 0 or sum(groups) != num_rows:
        raise ValueError("its footer does not agree on the number of rows")
    if num_rows > _MOST_ROWS_PER_BYTE * size:
        raise ValueError(f"its footer says that {num_rows} rows are in {size} bytes")
    return num_rows


def _batches(
    file: pq.ParquetFile, projection: Projection, num_rows: int, batch_size: int, address: str
) -> Iterator[pa.RecordBatch]:
    """What the file holds of the projection, every row of it, in order."""
    if not projection.leaves:
        for start in range(0, num_rows, batch_size):
            yield batch_without_columns(min(batch_size, num_rows - start))
        return
    # One row group after the other: what is buffered ahead is one of them, not the file.
    for group in range(file.num_row_groups):
        with _translated(address):
            batches = file.reader.iter_batches(
                batch_size, row_groups=[group], column_indices=list(projection.leaves)
            )
        while True:
            with _translated(address):
                batch = next(batches, None)
            if batch is None:
                break
            yield batch


def _kept(batch: pa.RecordBatch, vector: DeletionVector, start: int) -> pa.RecordBatch:
    """`batch`, whose first row is row `start` of the file, without the rows of `vector`."""
    stop = start + batch.num_rows
    gone = vector.rows_between(start, stop)
    if not gone:
        return batch
    if len(gone) == batch.num_rows:
        return batch.slice(0, 0)
    # Much faster than looking every row up in the set of those that are gone.
    kept = bytearray(b"\1") * batch.num_rows
    for row in gone:
        kept[row - start] = 0
    flags = pa.Array.from_buffers(pa.uint8(), len(kept), [None, pa.py_buffer(kept)])
    return batch.filter(flags.cast(pa.bool_()))


@contextmanager
def _translated(address: str) -> Iterator[None]:
    """Raise our errors for pyarrow's, of which a hostile file can cause many kinds."""
    try:
        yield
    except FileMissingError as error:
        raise DataFileError("DELTA_FILE_NOT_FOUND", path=address) from error
    except DeltaError:
        raise
    except Exception as error:
        raise _unreadable(address, str(error) or type(error).__name__) from error


def _unreadable(address: str, reason: str) -> DataFileError:
    return DataFileError("DELTA_DATA_FILE_UNREADABLE", path=address, reason=reason.rstrip("."))
