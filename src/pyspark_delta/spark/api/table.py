"""`DeltaTable`: the public API for one table, with delta-spark's names.

A handle holds the table's location and no snapshot: every call sees the newest version.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import replace
from typing import Any, Literal, overload

from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType as SparkStructType

from pyspark_delta.errors import (
    DeltaError,
    OperationNotAllowedError,
    StorageError,
    TableNotFoundError,
)
from pyspark_delta.kernel.log.snapshot import html_table
from pyspark_delta.kernel.sql.quoting import quoted_path
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.api.arguments import (
    check_flag,
    check_text,
    checked_options,
    condition_argument,
    partition_columns,
    property_map,
    served_by_client,
    vacuum_request,
    values_argument,
    whole_number,
)
from pyspark_delta.spark.api.errors import raises_spark_errors
from pyspark_delta.spark.api.merge_builder import DeltaMergeBuilder, merge_request
from pyspark_delta.spark.api.optimize_builder import DeltaOptimizeBuilder
from pyspark_delta.spark.api.table_builder import TableBuilder
from pyspark_delta.spark.api.table_methods import TableMethods
from pyspark_delta.spark.changes.feed import ChangeBound, change_bounds, changes_between, run_read
from pyspark_delta.spark.conf.options import DeltaOptions
from pyspark_delta.spark.convert.command import ConvertToDeltaCommand
from pyspark_delta.spark.convert.report import ConvertReport
from pyspark_delta.spark.ddl.clone import clone_log, target_named
from pyspark_delta.spark.ddl.create_table import run_create_table
from pyspark_delta.spark.dml.delete import run_delete
from pyspark_delta.spark.dml.update import run_update
from pyspark_delta.spark.jvm.catalog.entries import parse_name
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parser.plans import TableDefinition
from pyspark_delta.spark.jvm.plans.frames import output_set
from pyspark_delta.spark.maintenance.compaction import compact_after_writes
from pyspark_delta.spark.maintenance.optimize import OptimizeRequest, run_optimize
from pyspark_delta.spark.maintenance.vacuum import VacuumRequest, vacuum_table
from pyspark_delta.spark.merge.request import MergeRequest
from pyspark_delta.spark.merge.run import merge_into
from pyspark_delta.spark.results.detail import detail_frame
from pyspark_delta.spark.results.history import history_frame
from pyspark_delta.spark.scan.load import AsOf
from pyspark_delta.spark.tables.locations import hadoop_location, open_log
from pyspark_delta.spark.tables.names import log_of, look_up_relation, table_root

# A MERGE recognizes the columns of this many of the latest `toDF` frames.
_FRAMES = 100
_BUILDERS: dict[str, dict[str, bool]] = {
    "create": {},
    "createIfNotExists": {"if_not_exists": True},
    "replace": {"creates": False, "replaces": True},
    "createOrReplace": {"replaces": True},
}


@raises_spark_errors
class DeltaTable(TableMethods):
    """A Delta table, by its path or its name: `DeltaTable.forPath(spark, "/data/events")`."""

    def __init__(
        self,
        spark: SparkSession,
        root: str,
        *,
        path: str | None = None,
        name: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """`root` is the table's location, `path` one partition of it where only that is meant."""
        self._spark = spark
        self._root = root
        self._path = root if path is None else path
        self._name = name
        self._alias: str | None = None
        self._options = dict(options or {})
        # The column sets of the frames that `toDF` made, which handles with other aliases share.
        # Bounded: a handle may make frames for as long as its driver runs.
        self._columns: deque[Any] = deque(maxlen=_FRAMES)
        compact_after_writes()  # a session that is not enabled has handles too

    @classmethod
    @served_by_client
    def forPath(
        cls, sparkSession: SparkSession, path: str, hadoopConf: Mapping[str, str] | None = None
    ) -> DeltaTable:
        """The table at `path`; keys of `hadoopConf` must begin with `fs.` or `dfs.`."""
        check_text(path, "path")
        return cls._at_path(sparkSession, path, checked_options(hadoopConf))

    @classmethod
    @served_by_client
    def forName(cls, sparkSession: SparkSession, tableOrViewName: str) -> DeltaTable:
        """The table of that name in the catalog, or at the path in delta.`path`."""
        check_text(tableOrViewName, "tableOrViewName")
        return cls._of_name(sparkSession, tableOrViewName)

    @classmethod
    @served_by_client
    def isDeltaTable(cls, sparkSession: SparkSession, identifier: str) -> bool:
        """Whether a Delta table is there: at or above a path, at delta.`path`, or of that name."""
        check_text(identifier, "identifier")
        return cls._is_table(sparkSession, identifier)

    @overload
    @classmethod
    def convertToDelta(
        cls,
        sparkSession: SparkSession,
        identifier: str,
        partitionSchema: str | SparkStructType | None = None,
        *,
        incremental: bool = False,
        dry_run: Literal[False] = False,
    ) -> DeltaTable: ...

    @overload
    @classmethod
    def convertToDelta(
        cls,
        sparkSession: SparkSession,
        identifier: str,
        partitionSchema: str | SparkStructType | None = None,
        *,
        incremental: bool = False,
        dry_run: Literal[True],
    ) -> ConvertReport: ...

    @classmethod
    @served_by_client
    def convertToDelta(
        cls,
        sparkSession: SparkSession,
        identifier: str,
        partitionSchema: str | SparkStructType | None = None,
        *,
        incremental: bool = False,
        dry_run: bool = False,
    ) -> DeltaTable | ConvertReport:
        """Convert the Parquet table parquet.`path`, or of that name, to a Delta table in place.

        `partitionSchema` defines the columns in directory names, as `"day DATE"` or a StructType.
        With `incremental`, files that appeared after an earlier conversion are added to the table;
        `dry_run` writes nothing and returns a report of what the conversion would do.
        """
        check_text(identifier, "identifier")
        columns = partition_columns(sparkSession, partitionSchema)
        command = ConvertToDeltaCommand(identifier, columns, incremental=incremental)
        if dry_run:
            return command.dry_run(sparkSession)
        command.run(sparkSession)
        if command.is_catalog_table(sparkSession):
            return cls.forName(sparkSession, identifier)
        return cls.forPath(sparkSession, parse_name(JvmSession(sparkSession), identifier)[-1])

    @classmethod
    @served_by_client
    def create(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
        """A builder for CREATE TABLE, in the active session if none is given."""
        return cls._builder(sparkSession, "create")

    @classmethod
    @served_by_client
    def createIfNotExists(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
        """A builder for CREATE TABLE IF NOT EXISTS."""
        return cls._builder(sparkSession, "createIfNotExists")

    @classmethod
    @served_by_client
    def replace(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
        """A builder for REPLACE TABLE: the table must exist."""
        return cls._builder(sparkSession, "replace")

    @classmethod
    @served_by_client
    def createOrReplace(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
        """A builder for CREATE OR REPLACE TABLE."""
        return cls._builder(sparkSession, "createOrReplace")

    def toDF(self) -> DataFrame:
        """The rows of the table's newest version as a DataFrame."""
        frame = run_read(self._spark, self._path, DeltaOptions(self._options))
        self._columns.append(output_set(frame))
        return self._aliased(frame)

    def changes(self, start: ChangeBound, end: ChangeBound | None = None) -> DataFrame:
        """The change feed between two versions or times, both included, with a change type per row.

        Without `end` it goes up to the newest version.  The table must record its changes
        (`delta.enableChangeDataFeed`).
        """
        bounds = change_bounds(self._spark, start, end)
        return self._aliased(changes_between(self._spark, self._log(), bounds))

    def alias(self, aliasName: str) -> DeltaTable:
        """The same table with an alias for expressions, as in `alias("t")` and `"t.id = 1"`."""
        check_text(aliasName, "aliasName")
        handle = copy(self)
        handle._alias = aliasName
        return handle

    def delete(self, condition: str | Column | None = None) -> DataFrame:
        """Delete the rows for which `condition` is true; without a condition, all rows.

        Returns one row: num_affected_rows, which is -1 when the number is not known.
        """
        return self._delete(condition_argument(condition))

    def update(
        self, condition: str | Column | None = None, set: Mapping[str, str | Column] | None = None
    ) -> DataFrame:
        """Update the rows for which `condition` is true; without a condition, all rows.

        `set` is required: new values by column name, or by field as in `"s.a"`.  Returns one row:
        num_affected_rows.
        """
        values = values_argument(set)
        return self._update(values, condition_argument(condition))

    def merge(self, source: DataFrame, condition: str | Column) -> DeltaMergeBuilder:
        """Start a MERGE of `source` into the table; `condition` decides which rows match.

        Add clauses to the builder, then call its `execute`.
        """
        called: tuple[str, ...] = () if self._alias is None else (self._alias,)
        if self._alias is None and self._name is not None:
            called = parse_name(JvmSession(self._spark), self._name)
        request = merge_request(source, condition, called)
        request = replace(request, own_columns=tuple(self._columns))
        return DeltaMergeBuilder(request, self._merged)

    def optimize(self) -> DeltaOptimizeBuilder:
        """Start an OPTIMIZE; the builder chooses partitions, and compacts or Z-orders."""

        def run(request: OptimizeRequest) -> DataFrame:
            return run_optimize(self._spark, self._whole_log(), request).frame(self._spark)

        def parsed(name: str) -> tuple[str, ...]:
            return parse_name(JvmSession(self._spark), name)

        return DeltaOptimizeBuilder(run, parsed)

    def vacuum(
        self,
        retentionHours: float | None = None,
        *,
        dryRun: bool = False,
        lite: bool | None = None,
        inventory: DataFrame | None = None,
        keepVersions: Iterable[int] = (),
    ) -> DataFrame:
        """Delete files that no version within the retention needs; returns one row with the path.

        With `dryRun` nothing is deleted, and each file that would be is a row.  `lite` finds the
        files from the log, `inventory` from rows (path, length, isDir, modificationTime) instead of
        a listing.  Files of the versions in `keepVersions` are kept.
        """
        request = vacuum_request(retentionHours, dryRun, lite, inventory, keepVersions)
        return self._vacuum(request)

    def history(self, limit: int | None = None) -> DataFrame:
        """The commits of the table, newest first: the last `limit`, or all that are known."""
        if limit is not None:
            if isinstance(limit, bool) or not hasattr(limit, "__index__"):
                raise TypeError(f"limit is a whole number, not {type(limit).__name__}")
            limit = operator.index(limit)
        return history_frame(self._spark, self._log().history(limit))

    def detail(self) -> DataFrame:
        """One row that describes the table: its location, size, properties, protocol."""
        return detail_frame(self._spark, self._log().update(), self._name)

    def clone(
        self,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """Create a shallow clone at a path or name: a table that refers to this table's files.

        `isShallow` must be True.  `properties` override this table's.  With `replace`, the clone
        replaces an empty table that exists.
        """
        return self._cloned(None, target, isShallow, replace, properties)

    def cloneAtVersion(
        self,
        version: int,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """Clone an older version; see `clone`."""
        as_of = AsOf(version=whole_number(version, "version"))
        return self._cloned(as_of, target, isShallow, replace, properties)

    def cloneAtTimestamp(
        self,
        timestamp: str,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """Clone the version that was the newest at a time; see `clone`."""
        check_text(timestamp, "timestamp")
        return self._cloned(AsOf(timestamp=timestamp), target, isShallow, replace, properties)

    def _cloned(
        self,
        as_of: AsOf | None,
        target: str,
        is_shallow: bool,
        replaces: bool,
        properties: Mapping[str, str] | None,
    ) -> DeltaTable:
        check_text(target, "target")
        check_flag(is_shallow, "isShallow")
        check_flag(replaces, "replace")
        return self._clone(as_of, target, is_shallow, replaces, property_map(properties))

    # The methods below get arguments that are checked; a client of Spark Connect has its own.

    @classmethod
    def _at_path(cls, spark: SparkSession, path: str, options: dict[str, str]) -> DeltaTable:
        root = table_root(spark, path, options)
        if root is None:
            raise TableNotFoundError("DELTA_MISSING_DELTA_TABLE", tableName=f"`{path}`")
        return cls(spark, root, path=path, options=options)

    @classmethod
    def _of_name(cls, spark: SparkSession, name: str) -> DeltaTable:
        table = look_up_relation(spark, name)
        if table is not None and table.path is not None:
            return cls.forPath(spark, table.path)
        if table is None or table.location is None or not table.is_delta:
            quoted = quoted_path(parse_name(JvmSession(spark), name))
            raise TableNotFoundError("DELTA_MISSING_DELTA_TABLE", tableName=quoted)
        log_of(spark, table)  # raises for a name without a log
        return cls(spark, table.location, name=None if table.entry is None else table.entry.name)

    @classmethod
    def _is_table(cls, spark: SparkSession, identifier: str) -> bool:
        with suppress(StorageError):  # not a location, so possibly a name
            if table_root(spark, identifier, {}) is not None:
                return True
        try:
            table = look_up_relation(spark, identifier)
        except ParseException:
            return False
        if table is None or not table.is_delta or table.location is None:
            return False
        return table_root(spark, table.location, {}) is not None

    @classmethod
    def _builder(cls, spark: SparkSession | None, mode: str) -> DeltaTableBuilder:
        assert spark is not None  # the active one, if none was given
        return DeltaTableBuilder(spark, **_BUILDERS[mode])

    def _delete(self, where: Column | None) -> DataFrame:
        name = self._name_in_expressions
        return run_delete(self._spark, self._whole_log(), where, alias=name).frame(self._spark)

    def _update(self, values: dict[str, Column], where: Column | None) -> DataFrame:
        name = self._name_in_expressions
        result = run_update(self._spark, self._whole_log(), values, where, alias=name)
        return result.frame(self._spark)

    def _vacuum(self, request: VacuumRequest) -> DataFrame:
        return vacuum_table(self._spark, self._whole_log(), request)

    def _clone(
        self,
        as_of: AsOf | None,
        target: str,
        is_shallow: bool,
        replaces: bool,
        properties: dict[str, str],
    ) -> DeltaTable:
        if not is_shallow:
            raise OperationNotAllowedError("DELTA_UNSUPPORTED_DEEP_CLONE")
        name = target_named(self._spark, target)
        clone = TableDefinition(properties=properties, replaces=replaces)
        clone_log(self._spark, self._whole_log(), self._name, as_of, name, clone)
        if name.path is not None:
            return DeltaTable.forPath(self._spark, name.path)
        return DeltaTable.forName(self._spark, target)

    def _aliased(self, frame: DataFrame) -> DataFrame:
        return frame if self._alias is None else frame.alias(self._alias)

    def _merged(self, request: MergeRequest) -> DataFrame:
        result = merge_into(self._spark, self._whole_log(), request, self._show_columns)
        return result.counts.frame(self._spark)

    def _whole_log(self) -> DeltaLog:
        """The log, for a command that works on the whole table and not on one partition."""
        if self._path != self._root:
            raise OperationNotAllowedError("DELTA_UNEXPECTED_PARTIAL_SCAN", path=self._path)
        return self._log()

    @property
    def _name_in_expressions(self) -> str | None:
        """The name that conditions and values may use for the table."""
        if self._alias is not None or self._name is None:
            return self._alias
        return self._name.rpartition(".")[2]

    def _log(self) -> DeltaLog:
        # Opened for each call: credentials may have changed since the handle was made.
        return open_log(self._spark, self._root, self._options)

    def __repr__(self) -> str:
        name = "" if self._name is None else f", name={self._name!r}"
        alias = "" if self._alias is None else f", alias={self._alias!r}"
        return f"DeltaTable({self._path!r}{name}{alias})"

    def _repr_html_(self) -> str:
        rows: dict[str, object] = {"location": self._root}
        if self._name is not None:
            rows["name"] = self._name
        try:
            snapshot = self._log().update()
            rows |= {
                "location": hadoop_location(snapshot.store.root_uri),
                "version": snapshot.version,
                "files": snapshot.num_files,
                "bytes": snapshot.size_in_bytes,
                "partitioned by": ", ".join(snapshot.metadata.partition_columns) or "nothing",
                "columns": ", ".join(
                    f"{f.name} {f.data_type.simple_string}" for f in snapshot.schema
                ),
            }
        except DeltaError as error:
            rows["error"] = error
        return html_table("DeltaTable", rows.items())


@raises_spark_errors
class DeltaTableBuilder(TableBuilder):
    """Builds a table call by call: `DeltaTable.create(spark).tableName("t").execute()`.

    It needs a name or a location, and columns unless the location has a log already.
    """

    def execute(self) -> DeltaTable:
        """Create or replace the table, and return it."""
        name, definition = self._name(), self._definition()
        run_create_table(self._spark, name, definition)
        if name.path is not None:
            return DeltaTable.forPath(self._spark, name.path)
        assert self._identifier is not None  # else it would have been a path
        return DeltaTable.forName(self._spark, self._identifier)
