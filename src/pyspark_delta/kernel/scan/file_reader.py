"""The rows of one Parquet data file, as columns of the table and without deleted rows.

Rows are counted as they stand in the file, whatever is read of it, so that a deletion vector means
the same rows always.  Partition values and predicates are not applied here.  What pyarrow cannot
read ends as a DataFileError that names the file.  PROTOCOL.md, "Deletion Vectors".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
    chosen: Callable[[pq.ParquetFile], Sequence[bool]] | None = None,
) -> Iterator[Rows]:
    """The rows of the file at `path` that `vector` leaves, `batch_size` or fewer at a time.

    `schema` has the columns to read under logical names, partition columns left out.  `chosen`
    says for each row group whether it is read; all are without it.
    """
    address = store.address(path)
    with _translated(address):
        source = store.arrow_file(path)
    with source:
        with _translated(address):
            file = _opened(source)
            num_rows = _num_rows(file, source.size())
            projection = project(schema, file.schema_arrow, mode)
            groups = _groups(file, chosen)
        if vector is not None:
            check_rows_exist(vector, num_rows)
        for start, batch in _batches(file, projection, groups, batch_size, address):
            with _translated(address):
                kept = batch if vector is None else _kept(batch, vector, start)
                rows = Rows(kept.num_rows, projection.columns(kept))
            if rows.num_rows:
                yield rows


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


class _Group(NamedTuple):
    """A row group that is read: which one, and its rows by their number in the file."""

    place: int
    rows: range


def _groups(
    file: pq.ParquetFile, chosen: Callable[[pq.ParquetFile], Sequence[bool]] | None
) -> list[_Group]:
    is_read = None if chosen is None else chosen(file)
    groups, start = [], 0
    for place in range(file.num_row_groups):
        stop = start + file.metadata.row_group(place).num_rows
        if is_read is None or is_read[place]:
            groups.append(_Group(place, range(start, stop)))
        start = stop
    return groups


def _batches(
    file: pq.ParquetFile,
    projection: Projection,
    groups: Sequence[_Group],
    batch_size: int,
    address: str,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """What row groups hold of the projection, every row of them, each with its first row."""
    # One row group after the other: what is buffered ahead is one of them, not the file.
    for place, rows in groups:
        start = rows.start
        if not projection.leaves:
            for start in rows[::batch_size]:
                yield start, batch_without_columns(min(batch_size, rows.stop - start))
            continue
        with _translated(address):
            batches = file.reader.iter_batches(
                batch_size, row_groups=[place], column_indices=list(projection.leaves)
            )
        while True:
            with _translated(address):
                batch = next(batches, None)
            if batch is None:
                break
            yield start, batch
            start += batch.num_rows
        if start != rows.stop:
            found = f"row group {place} has {start - rows.start} rows"
            raise _unreadable(address, f"its {found}, its footer says {len(rows)}")


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
