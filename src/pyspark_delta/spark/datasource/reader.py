"""Reading through the Python data source: files planned on the driver, rows read by its workers.

Planning prunes and skips by the log; a worker then reads its files with the kernel's Arrow reader,
which applies deletion vectors, column mapping and type widening.  Spark applies every filter to the
rows again, so a filter pushed down here saves work and never changes the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as spark
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType as SparkStructType

from pyspark_delta.errors import SchemaError
from pyspark_delta.kernel.scan.arrow_reader import ReadableSnapshot, read_planned
from pyspark_delta.kernel.scan.plan import ScanPlan, bound_filter, plan_scan
from pyspark_delta.kernel.scan.predicates.binding import BoundPredicate
from pyspark_delta.kernel.scan.predicates.tree import (
    TRUE,
    Column,
    In,
    IsNull,
    Literal,
    Not,
    Predicate,
    StartsWith,
    Unknown,
    compare,
    conjunction,
    conjuncts,
    has_unknown,
    literal,
)
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.spark.conf.options import DeltaOptions
from pyspark_delta.spark.datasource.options import given_zone, open_table, table_path, zone_of
from pyspark_delta.spark.datasource.source import needs_enabling
from pyspark_delta.spark.jvm.gateway import to_spark
from pyspark_delta.spark.scan.load import requested_snapshot

_OPERATORS: dict[type[spark.Filter], str] = {
    spark.EqualTo: "=",
    spark.EqualNullSafe: "<=>",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
}


def _comparison(filter: Any) -> Predicate:
    # Raises for lists and maps, which columns can also be compared with.
    _filter_literal(filter.value)
    return compare(filter.attribute, _OPERATORS[type(filter)], filter.value)


def _filter_literal(value: Any) -> Literal:
    parsed: Literal | None = literal(value)
    if parsed is None:
        raise ValueError(f"{value!r} is not a literal")
    return parsed


def predicate_of_filter(filter: spark.Filter) -> Predicate:
    """A filter that Spark pushes down, as a predicate; otherwise `Unknown`, which prunes nothing.

    >>> predicate_of_filter(spark.Not(spark.EqualTo(("a", "b"), 5))).to_sql()
    'NOT (a.b = 5)'
    """
    rule = _FILTER_RULES.get(type(filter))
    try:
        return Unknown(repr(filter)) if rule is None else rule(filter)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return Unknown(repr(filter))


_FILTER_RULES: dict[type[spark.Filter], Callable[[Any], Predicate]] = {
    **dict.fromkeys(_OPERATORS, _comparison),
    spark.In: lambda f: In(Column(f.attribute), tuple(_filter_literal(value) for value in f.value)),
    spark.IsNull: lambda f: IsNull(Column(f.attribute)),
    spark.IsNotNull: lambda f: Not(IsNull(Column(f.attribute))),
    spark.StringStartsWith: lambda f: StartsWith(Column(f.attribute), f.value),
    spark.Not: lambda f: Not(predicate_of_filter(f.child)),
}
# Bytes for one task; each file counts _FILE_BYTES more than its size.
_TASK_BYTES = 64 * 1024 * 1024
_FILE_BYTES = 4 * 1024 * 1024
# The location of a table, and one of its versions.
Pinned = tuple[str, int]


def pin_version(given: Mapping[str, str]) -> tuple[Pinned, SparkStructType]:
    """The version that the options choose, and its columns as Spark's."""
    options = DeltaOptions(given)
    if options.flag("readChangeFeed"):
        raise needs_enabling("A read of the change data feed")
    snapshot = requested_snapshot(
        lambda path: open_table(path, options),
        table_path(options),
        options,
        lambda time: zone_of(time, options),
    )
    _option_filter(snapshot, options)
    return (snapshot.store.root_uri, snapshot.version), to_spark(snapshot.metadata.schema)


def reader_for(
    given: Mapping[str, str], pinned: Pinned | None, schema: SparkStructType
) -> DeltaReader:
    """A reader of a version; raises when the user gave a schema."""
    if pinned is None:
        table_path(DeltaOptions(given))
        raise SchemaError("DELTA_UNSUPPORTED_SCHEMA_DURING_READ")
    return DeltaReader(DeltaOptions(given), pinned, schema)


class DeltaReader(DataSourceReader):
    """One read of one version."""

    def __init__(self, options: DeltaOptions, pinned: Pinned, schema: SparkStructType) -> None:
        self._options = options
        self._location, self._version = pinned
        self._schema = schema
        self._pushed: Predicate = TRUE

    @property
    def pushFilters(self) -> Any:
        """Called with the filters of a query; returns those that Spark must apply: all."""
        return _Pushdown(self)

    def push(self, filters: list[Filter]) -> list[Filter]:
        """Plan with `filters`, if the option `pushFilters` is set.

        Spark 4.2 and 4.3 let all scans of a DataFrame share the plan of the last one, so the filter
        of one scan would drop rows of another: docs/design/009-datasource.md.
        """
        if self._options.flag("pushFilters"):
            parts = (predicate_of_filter(filter) for filter in filters)
            self._pushed = conjunction(part for part in parts if not has_unknown(part))
        return filters

    def partitions(self) -> list[InputPartition]:
        """The files, divided into tasks of about equal size in bytes."""
        plan, store = self._plan()
        return [
            FilesToRead(replace(plan, files=files), store) for files in _files_by_task(plan.files)
        ]

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
        zone = given_zone(options) or "UTC"
        # A predicate that is unknown for the table's types prunes nothing, and cannot filter rows.
        pushed = bound_filter(self._pushed, snapshot.metadata.schema, time_zone=zone)
        known = [part for part in conjuncts(pushed.predicate) if not has_unknown(part)]
        own = _option_filter(snapshot, options)
        both = replace(own, predicate=conjunction([own.predicate, *known]))
        return plan_scan(snapshot, filter=both, time_zone=zone), snapshot.store


class FilesToRead(InputPartition):
    """The work of one task: a plan with some of its files, and their store."""

    def __init__(self, plan: ScanPlan, store: LogStore) -> None:
        self.plan = plan
        self.store = store

    def __repr__(self) -> str:
        return f"FilesToRead({self.plan.files.num_rows} files of {self.store.root_uri!r})"


class _Pushdown:
    """`pushFilters` of a reader, in a form that Spark does not take for an override.

    Without filter pushdown, which is Spark's default, Spark raises for a reader that overrides the
    method.  Its check looks only at `__func__`.
    """

    def __init__(self, reader: DeltaReader) -> None:
        self.__func__ = DataSourceReader.pushFilters
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.push(filters)


def _option_filter(snapshot: ReadableSnapshot, options: DeltaOptions) -> BoundPredicate:
    """The option `filter`, which defines the DataFrame: other rows are not in it."""
    zone = given_zone(options) or "UTC"
    return bound_filter(options.get("filter"), snapshot.metadata.schema, time_zone=zone)


def _files_by_task(files: pa.Table) -> Iterator[pa.Table]:
    """Split the files for tasks; no part is empty."""
    start = total = 0
    for place, size in enumerate(files.column("size").to_pylist()):
        if place > start and total + size + _FILE_BYTES > _TASK_BYTES:
            yield files.slice(start, place - start)
            start, total = place, 0
        total += size + _FILE_BYTES
    if start < files.num_rows:
        yield files.slice(start)
