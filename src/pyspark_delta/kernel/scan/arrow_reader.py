"""The rows of a table as Arrow, without Spark.

One file after the other: planned by the log, read by `file_reader`, completed with partition
values from the log, and filtered exactly.  The schema is the table's own, in the table's order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_delta.errors.table import InvalidPredicateError
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.scan.arrow_types import arrow_schema
from pyspark_delta.kernel.scan.evaluation import evaluate
from pyspark_delta.kernel.scan.file_reader import (
    DEFAULT_BATCH_SIZE,
    Rows,
    batch_without_columns,
    read_rows,
)
from pyspark_delta.kernel.scan.locations import IS_ABSOLUTE, LOCATION, Locations
from pyspark_delta.kernel.scan.plan import ScanPlan, plan_scan
from pyspark_delta.kernel.scan.predicates import Predicate
from pyspark_delta.kernel.scan.row_groups import row_groups_to_read
from pyspark_delta.kernel.scan.vectors import VectorReader, descriptor_of
from pyspark_delta.kernel.storage.base import LogStore


def read_batches(
    snapshot: Snapshot,
    columns: Iterable[str] | None = None,
    filter: str | Predicate | None = None,
    *,
    batch_size: int = DEFAULT_BATCH_SIZE,
    allowed_roots: Sequence[LogStore] = (),
    time_zone: str = "UTC",
) -> Iterator[pa.RecordBatch]:
    """The rows for which `filter` is true, `batch_size` or fewer at a time, in no set order.

    What is asked for is checked at once; files are opened as batches are taken.  The arguments
    are those of `plan_scan`.
    """
    return _reader(snapshot, columns, filter, batch_size, allowed_roots, time_zone).batches()


def read_table(
    snapshot: Snapshot,
    columns: Iterable[str] | None = None,
    filter: str | Predicate | None = None,
    *,
    allowed_roots: Sequence[LogStore] = (),
    time_zone: str = "UTC",
) -> pa.Table:
    """As `read_batches`, all rows at once."""
    reader = _reader(snapshot, columns, filter, DEFAULT_BATCH_SIZE, allowed_roots, time_zone)
    return pa.Table.from_batches(reader.batches(), schema=reader.schema)


def read_planned(
    plan: ScanPlan,
    store: LogStore,
    *,
    batch_size: int = DEFAULT_BATCH_SIZE,
    allowed_roots: Sequence[LogStore] = (),
) -> Iterator[pa.RecordBatch]:
    """The rows of a plan made before: in another process perhaps, with a part of its files.

    `store` is the table's; a filter that rows cannot be judged by is refused.
    """
    return _reader_of(plan, store, batch_size, allowed_roots).batches()


def _reader(
    snapshot: Snapshot,
    columns: Iterable[str] | None,
    filter: str | Predicate | None,
    batch_size: int,
    allowed_roots: Sequence[LogStore],
    time_zone: str,
) -> _Reader:
    plan = plan_scan(snapshot, columns, filter, allowed_roots=allowed_roots, time_zone=time_zone)
    return _reader_of(plan, snapshot.store, batch_size, allowed_roots)


def _reader_of(
    plan: ScanPlan, store: LogStore, batch_size: int, allowed_roots: Sequence[LogStore]
) -> _Reader:
    if batch_size < 1:
        raise ValueError("a batch holds at least one row")
    if plan.filter.has_unknown:
        raise InvalidPredicateError(
            "DELTA_INVALID_PREDICATE",
            predicate=plan.filter.to_sql(),
            reason="rows cannot be judged by a part of it here",
        )
    return _Reader(plan, Locations(store, allowed_roots), batch_size)


class _Reader:
    """Reads the files of one plan."""

    def __init__(self, plan: ScanPlan, locations: Locations, batch_size: int) -> None:
        self._plan = plan
        self._locations = locations
        self._batch_size = batch_size
        self._vectors = VectorReader(locations)
        needed = plan.data_schema.add(*plan.partition_schema.fields)
        self._needed = arrow_schema(needed)
        self._asked = list(plan.schema.names)
        self._partitions = plan.partitions

    @property
    def schema(self) -> pa.Schema:
        """That of every batch."""
        return arrow_schema(self._plan.schema)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows of every file, filtered, without empty batches."""
        files = self._plan.files.select([LOCATION, IS_ABSOLUTE, "deletionVector"])
        start = 0
        # A piece at a time: a list of files must not become a list of Python objects.
        for piece in files.to_batches(max_chunksize=1024):
            for number, file in enumerate(piece.to_pylist(), start):
                values = [column[number] for column in self._partitions.columns]
                for rows in self._rows(file):
                    batch = self._filtered(self._completed(rows, values))
                    if batch.num_rows:
                        yield batch
            start += piece.num_rows

    def _rows(self, file: dict[str, Any]) -> Iterator[Rows]:
        store, path = self._locations.located(file[LOCATION], file[IS_ABSOLUTE])
        descriptor = descriptor_of(file["deletionVector"])
        return read_rows(
            store,
            path,
            self._plan.data_schema,
            mode=self._plan.mode,
            vector=None if descriptor is None else self._vectors.read(descriptor),
            batch_size=self._batch_size,
            chosen=None if self._plan.data_filter.is_true else self._row_groups,
        )

    def _row_groups(self, file: pq.ParquetFile) -> list[bool]:
        plan = self._plan
        return row_groups_to_read(file, plan.data_filter, plan.mode)

    def _completed(self, rows: Rows, values: list[pa.Scalar]) -> pa.RecordBatch:
        """Rows of a file with the partition values of that file; every column that is needed."""
        arrays = [*rows.columns, *(pa.repeat(value, rows.num_rows) for value in values)]
        if not arrays:
            return batch_without_columns(rows.num_rows)
        return pa.RecordBatch.from_arrays(arrays, schema=self._needed)

    def _filtered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch that are wanted, and the columns that were asked for."""
        plan = self._plan
        if not plan.data_filter.is_true:
            mask = evaluate(plan.data_filter, pa.Table.from_batches([batch]))
            batch = batch.filter(mask)
        return batch.select(self._asked) if self._asked else batch_without_columns(batch.num_rows)
