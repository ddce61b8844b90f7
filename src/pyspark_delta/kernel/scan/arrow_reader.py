"""Read the rows of a table as Arrow, without Spark.

Files of a plan are read one after the other, completed with partition values from the log, and
filtered exactly.  The schema is the table's own, in the table's order.

`read_rows` reads one data file as columns of the table, without deleted rows.  Row positions count
all rows of the file, whatever is read of it, so that a deletion vector always means the same rows.
A file that pyarrow cannot read raises a DataFileError that names it.  PROTOCOL.md, "Deletion
Vectors".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_delta.errors import DataFileError, DeltaError, FileMissingError, InvalidPredicateError
from pyspark_delta.kernel.log.arrow_types import arrow_schema
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.column_mapping import ColumnMappingMode
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector, check_rows_exist
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.kernel.scan.locations import (
    IS_ABSOLUTE,
    LOCATION,
    Locations,
    VectorReader,
    descriptor_of,
)
from pyspark_delta.kernel.scan.plan import ScanPlan, plan_scan
from pyspark_delta.kernel.scan.predicates.evaluation import evaluate
from pyspark_delta.kernel.scan.predicates.tree import Predicate
from pyspark_delta.kernel.scan.projection import Projection, file_projection
from pyspark_delta.kernel.scan.skipping.files import row_groups_to_read
from pyspark_delta.kernel.storage.base import LogStore

DEFAULT_BATCH_SIZE = 65_536

# Equal rows need almost no space, but writers end a page long before this number of rows.
_MOST_ROWS_PER_BYTE = 1 << 20


class ReadableSnapshot(Snapshot):
    """A version of a table that can be read as Arrow."""

    def plan(
        self,
        columns: Iterable[str] | None = None,
        filter: str | Predicate | None = None,
        *,
        allowed_roots: Sequence[LogStore] = (),
        time_zone: str = "UTC",
    ) -> ScanPlan:
        """The plan for reading the rows for which `filter` is true."""
        return plan_scan(self, columns, filter, allowed_roots=allowed_roots, time_zone=time_zone)

    def to_batches(
        self,
        columns: Iterable[str] | None = None,
        filter: str | Predicate | None = None,
        *,
        batch_size: int = DEFAULT_BATCH_SIZE,
        allowed_roots: Sequence[LogStore] = (),
        time_zone: str = "UTC",
    ) -> Iterator[pa.RecordBatch]:
        """The rows for which `filter` (SQL text, or a predicate) is true, in no set order.

        A batch has `batch_size` or fewer rows.  `columns` are names of the table, by default all.
        Files that the log places outside of the table raise, unless they are below one of
        `allowed_roots`.  `time_zone` is the zone of days in the filter, and of timestamps without
        a zone among partition values.  The arguments are checked at once; files are opened as
        batches are consumed.
        """
        plan = self.plan(columns, filter, allowed_roots=allowed_roots, time_zone=time_zone)
        return read_planned(plan, self.store, batch_size=batch_size, allowed_roots=allowed_roots)

    def to_table(
        self,
        columns: Iterable[str] | None = None,
        filter: str | Predicate | None = None,
        *,
        allowed_roots: Sequence[LogStore] = (),
        time_zone: str = "UTC",
    ) -> pa.Table:
        """As `to_batches`, all rows at once."""
        plan = self.plan(columns, filter, allowed_roots=allowed_roots, time_zone=time_zone)
        batches = read_planned(plan, self.store, allowed_roots=allowed_roots)
        return pa.Table.from_batches(batches, schema=arrow_schema(plan.schema))


def read_planned(
    plan: ScanPlan,
    store: LogStore,
    *,
    batch_size: int = DEFAULT_BATCH_SIZE,
    allowed_roots: Sequence[LogStore] = (),
) -> Iterator[pa.RecordBatch]:
    """The rows of an existing plan, perhaps of another process and with a part of its files.

    `store` is the table's; raises for a filter that cannot be evaluated on rows.
    """
    if batch_size < 1:
        raise ValueError("a batch holds at least one row")
    if plan.filter.has_unknown:
        raise InvalidPredicateError(
            "DELTA_INVALID_PREDICATE",
            predicate=plan.filter.to_sql(),
            reason="rows cannot be judged by a part of it here",
        )
    return _Reader(plan, Locations(store, allowed_roots), batch_size).batches()


class _Reader:
    def __init__(self, plan: ScanPlan, locations: Locations, batch_size: int) -> None:
        self._plan = plan
        self._locations = locations
        self._batch_size = batch_size
        self._vectors = VectorReader(locations)
        self._needed = arrow_schema(plan.data_schema.add(*plan.partition_schema.fields))
        self._names = list(plan.schema.names)
        self._partitions = plan.partitions

    def batches(self) -> Iterator[pa.RecordBatch]:
        files = self._plan.files.select([LOCATION, IS_ABSOLUTE, "deletionVector"])
        start = 0
        # In pieces, so that not all files become Python objects at once.
        for piece in files.to_batches(max_chunksize=1024):
            for number, file in enumerate(piece.to_pylist(), start):
                values = [column[number] for column in self._partitions.columns]
                for rows in self._rows(file):
                    batch = self._filtered(self._completed(rows, values))
                    if batch.num_rows:
                        yield batch
            start += piece.num_rows

    def _rows(self, file: dict[str, Any]) -> Iterator[Rows]:
        plan = self._plan
        store, path = self._locations.located(file[LOCATION], file[IS_ABSOLUTE])
        descriptor = descriptor_of(file["deletionVector"])
        return read_rows(
            store,
            path,
            plan.data_schema,
            mode=plan.mode,
            vector=None if descriptor is None else self._vectors.read(descriptor),
            batch_size=self._batch_size,
            chosen=None
            if plan.data_filter.is_true
            else lambda opened: row_groups_to_read(opened, plan.data_filter, plan.mode),
        )

    def _completed(self, rows: Rows, values: list[pa.Scalar]) -> pa.RecordBatch:
        """A file's rows with its partition values: every column that the result and filter need."""
        arrays = [*rows.columns, *(pa.repeat(value, rows.num_rows) for value in values)]
        if not arrays:
            return batch_without_columns(rows.num_rows)
        return pa.RecordBatch.from_arrays(arrays, schema=self._needed)

    def _filtered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch that the filter selects, with the requested columns."""
        data_filter = self._plan.data_filter
        if not data_filter.is_true:
            batch = batch.filter(evaluate(data_filter, pa.Table.from_batches([batch])))
        return batch.select(self._names) if self._names else batch_without_columns(batch.num_rows)


class Rows(NamedTuple):
    """Some rows in the order of the file, with the requested columns, which may be none."""

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

    `schema` has the columns to read under logical names, without partition columns.  `chosen` has
    for each row group whether to read it; without it all are read.
    """
    address = store.address(path)
    with _translated(address):
        source = store.arrow_file(path)
    with source:
        with _translated(address):
            file = pq.ParquetFile(
                source,
                # Nanoseconds would overflow for years that microseconds can represent.
                coerce_int96_timestamp_unit="us",
                page_checksum_verification=True,
                pre_buffer=True,
            )
            num_rows = _num_rows(file, source.size())
            projection = file_projection(schema, file.schema_arrow, mode)
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
    """A batch with rows but without columns, which Arrow makes only from a struct array."""
    empty = pa.Array.from_buffers(pa.struct([]), num_rows, [None], 0)
    return pa.RecordBatch.from_struct_array(empty)


def _num_rows(file: pq.ParquetFile, size: int) -> int:
    metadata = file.metadata
    groups = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    num_rows = int(metadata.num_rows)
    if min(groups, default=0) < 0 or sum(groups) != num_rows:
        raise ValueError("its footer does not agree on the number of rows")
    if num_rows > _MOST_ROWS_PER_BYTE * size:
        raise ValueError(f"its footer says that {num_rows} rows are in {size} bytes")
    return num_rows


def _groups(
    file: pq.ParquetFile, chosen: Callable[[pq.ParquetFile], Sequence[bool]] | None
) -> list[tuple[int, range]]:
    """The row groups to read: the index of each, and the positions of its rows in the file."""
    is_read = None if chosen is None else chosen(file)
    groups, start = [], 0
    for place in range(file.num_row_groups):
        stop = start + file.metadata.row_group(place).num_rows
        if is_read is None or is_read[place]:
            groups.append((place, range(start, stop)))
        start = stop
    return groups


def _batches(
    file: pq.ParquetFile,
    projection: Projection,
    groups: Sequence[tuple[int, range]],
    batch_size: int,
    address: str,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The projected columns of row groups, with all rows, each with its first row's position."""
    # One row group after the other, so that one of them is buffered ahead and not the file.
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
    # Much faster than looking up every row in the set of deleted ones.
    kept = bytearray(b"\1") * batch.num_rows
    for row in gone:
        kept[row - start] = 0
    flags = pa.Array.from_buffers(pa.uint8(), len(kept), [None, pa.py_buffer(kept)])
    return batch.filter(flags.cast(pa.bool_()))


@contextmanager
def _translated(address: str) -> Iterator[None]:
    """Translate pyarrow's errors, of which a hostile file can cause many kinds."""
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
