"""Reading through the Python data source: files planned on the driver, rows read by its workers.

Planning prunes and skips by the log; a worker then reads its files with the kernel's Arrow reader,
which knows deletion vectors, column mapping and type widening.  Spark applies every filter to the
rows again, so a filter here saves work and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType as SparkStructType

from pyspark_delta.errors.table import SchemaError
from pyspark_delta.kernel.scan.arrow_reader import read_planned
from pyspark_delta.kernel.scan.binding import BoundPredicate
from pyspark_delta.kernel.scan.plan import ScanPlan, bound_filter, plan_scan
from pyspark_delta.kernel.scan.predicates import (
    TRUE,
    Predicate,
    conjunction,
    conjuncts,
    has_unknown,
)
from pyspark_delta.kernel.scan.readable import ReadableSnapshot
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.spark.datasource import needs_enabling
from pyspark_delta.spark.datasource_options import given_zone, open_table, table_path, zone_of
from pyspark_delta.spark.options import DeltaOptions
from pyspark_delta.spark.pushed_filters import predicate_of_filter
from pyspark_delta.spark.time_travel import asked_snapshot
from pyspark_delta.spark.types import to_spark

# What a task reads at least before another one is started, a file counting as this much more.
_TASK_BYTES = 64 * 1024 * 1024
_FILE_BYTES = 4 * 1024 * 1024


# The location of a table and one of its versions.
Pinned = tuple[str, int]


def chosen_version(given: Mapping[str, str]) -> tuple[Pinned, SparkStructType]:
    """The version that the options ask for, and its columns as Spark is told of them."""
    options = DeltaOptions(given)
    if options.flag("readChangeFeed"):
        raise needs_enabling("A read of the change data feed")
    snapshot = asked_snapshot(
        lambda path: open_table(path, options),
        table_path(options),
        options,
        lambda time: zone_of(time, options),
    )
    _asked_filter(snapshot, options)
    return (snapshot.store.root_uri, snapshot.version), to_spark(snapshot.metadata.schema)


def reader_for(
    given: Mapping[str, str], pinned: Pinned | None, schema: SparkStructType
) -> DeltaReader:
    """The reader of a version; there is none when the user brought a schema of their own."""
    if pinned is None:
        table_path(DeltaOptions(given))
        raise SchemaError("DELTA_UNSUPPORTED_SCHEMA_DURING_READ")
    return DeltaReader(DeltaOptions(given), pinned, schema)


class _Pushdown:
    """`pushFilters` of a reader, which Spark must not take for an override.

    Where filters are not pushed, which is Spark's default, it refuses a reader that overrides the
    method.  The one sign it looks at is `__func__`.
    """

    def __init__(self, reader: DeltaReader) -> None:
        self.__func__ = DataSourceReader.pushFilters
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.push(filters)


class DeltaReader(DataSourceReader):
    """One read of one version."""

    def __init__(self, options: DeltaOptions, pinned: Pinned, schema: SparkStructType) -> None:
        self._options = options
        self._location, self._version = pinned
        self._schema = schema
        self._pushed: Predicate = TRUE

    @property
    def pushFilters(self) -> Any:
        """Takes the filters of a query and gives back those that Spark is to apply: all."""
        return _Pushdown(self)

    def push(self, filters: list[Filter]) -> list[Filter]:
        """Plan by `filters`, where the option `pushFilters` allows it.

        Spark 4.2 and 4.3 let all scans of a DataFrame share what the last of them planned, so a
        filter of one would take rows from another: docs/design/009-datasource.md.
        """
        if self._options.flag("pushFilters"):
            parts = (predicate_of_filter(filter) for filter in filters)
            self._pushed = conjunction(part for part in parts if not has_unknown(part))
        return filters

    def partitions(self) -> list[InputPartition]:
        """Files for one task each, about equal in bytes."""
        plan, store = self._plan()
        return [FilesToRead(replace(plan, files=files), store) for files in _tasks(plan.files)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of the files of a task."""
        if not isinstance(partition, FilesToRead):
            return  # Spark's own, in place of none
        target = to_arrow_schema(self._schema, timezone="UTC")
        for batch in read_planned(partition.plan, partition.store):
            columns = [
                column if column.type.equals(f.type) else column.cast(f.type)
                for column, f in zip(batch.columns, target, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=target)

    def _plan(self) -> tuple[ScanPlan, LogStore]:
        options = self._options
        snapshot = open_table(self._location, options).snapshot_at(version=self._version)
        zone = _zone(options)
        # What the table's types make unknown rules nothing out, and cannot judge rows either.
        pushed = bound_filter(self._pushed, snapshot.metadata.schema, time_zone=zone)
        known = [part for part in conjuncts(pushed.predicate) if not has_unknown(part)]
        asked = _asked_filter(snapshot, options)
        both = replace(asked, predicate=conjunction([asked.predicate, *known]))
        return plan_scan(snapshot, filter=both, time_zone=zone), snapshot.store


class FilesToRead(InputPartition):
    """What one task reads: a plan with some of its files, and the store that they are in."""

    def __init__(self, plan: ScanPlan, store: LogStore) -> None:
        self.plan = plan
        self.store = store

    def __repr__(self) -> str:
        return f"FilesToRead({self.plan.files.num_rows} files of {self.store.root_uri!r})"


def _zone(options: DeltaOptions) -> str:
    return given_zone(options) or "UTC"


def _asked_filter(snapshot: ReadableSnapshot, options: DeltaOptions) -> BoundPredicate:
    """The option `filter`, which belongs to the DataFrame: other rows are not in it."""
    return bound_filter(options.get("filter"), snapshot.metadata.schema, time_zone=_zone(options))


def _tasks(files: pa.Table) -> Iterator[pa.Table]:
    """The files in pieces, none of them empty."""
    start = total = 0
    for place, size in enumerate(files.column("size").to_pylist()):
        if place > start and total + size + _FILE_BYTES > _TASK_BYTES:
            yield files.slice(start, place - start)
            start, total = place, 0
        total += size + _FILE_BYTES
    if start < files.num_rows:
        yield files.slice(start)
