"""`DeltaTable`: a handle on a table, with delta-spark's names.

A handle holds where the table is, not what it read there: every call sees the newest version.
"""

from __future__ import annotations

import html
import operator
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal, overload

from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType as SparkStructType

from pyspark_delta.errors.base import DeltaError
from pyspark_delta.errors.storage import StorageError
from pyspark_delta.errors.table import (
    OperationNotAllowedError,
    TableNotFoundError,
)
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.catalog import TableName, log_of, look_up_relation, quoted_parts
from pyspark_delta.spark.commands.change_feed import (
    ChangeBound,
    change_bounds,
    changes_between,
)
from pyspark_delta.spark.commands.clone import CloneTarget, clone_log, target_named
from pyspark_delta.spark.commands.convert import ConvertToDeltaCommand
from pyspark_delta.spark.commands.convert_report import ConvertReport
from pyspark_delta.spark.commands.create_table import run_create_table
from pyspark_delta.spark.commands.delete import run_delete
from pyspark_delta.spark.commands.merge import MergeResult, run_merge
from pyspark_delta.spark.commands.merge_request import MergeRequest
from pyspark_delta.spark.commands.optimize import OptimizeRequest, run_optimize
from pyspark_delta.spark.commands.read import run_load
from pyspark_delta.spark.commands.update import run_update
from pyspark_delta.spark.commands.vacuum import vacuum_table
from pyspark_delta.spark.detail_frame import detail_frame
from pyspark_delta.spark.expression_arguments import condition_argument, values_argument
from pyspark_delta.spark.feature_methods import FeatureMethods
from pyspark_delta.spark.history_frame import history_frame
from pyspark_delta.spark.jvm.catalog import parse_name
from pyspark_delta.spark.jvm.frame_facts import output_set
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.merge_builder import DeltaMergeBuilder, merge_request
from pyspark_delta.spark.optimize_builder import DeltaOptimizeBuilder
from pyspark_delta.spark.options import DeltaOptions
from pyspark_delta.spark.spark_errors import raises_spark_errors
from pyspark_delta.spark.table_access import hadoop_location, open_log
from pyspark_delta.spark.table_arguments import (
    active_session,
    check_flag,
    check_session,
    check_text,
    checked_options,
    partition_columns,
    property_map,
    whole_number,
)
from pyspark_delta.spark.table_builder import BuilderVerb, TableBuilder
from pyspark_delta.spark.table_facts import TableFacts
from pyspark_delta.spark.table_roots import table_root
from pyspark_delta.spark.table_upkeep import TableUpkeep
from pyspark_delta.spark.time_travel import AsOf
from pyspark_delta.spark.vacuum_arguments import vacuum_request

# Of so many frames of `toDF`, columns are known in a MERGE.
_FRAMES = 100


@raises_spark_errors
class DeltaTable(FeatureMethods, TableFacts, TableUpkeep):
    """A Delta table, by its path or its name: `DeltaTable.forPath(spark, "/data/events")`."""

    def __init__(
        self,
        spark: SparkSession,
        root: str,
        *,
        path: str | None = None,
        name: str | None = None,
        alias: str | None = None,
        options: Mapping[str, str] | None = None,
        columns: deque[Any] | None = None,
    ) -> None:
        """`root` is where the table is, `path` a partition in it that alone is meant.

        `columns` are the sets of columns of frames that were made of it.
        """
        self._spark = spark
        self._root = root
        self._path = root if path is None else path
        self._name = name
        self._alias = alias
        self._options = dict(options or {})
        # Of the newest frames alone: a handle may be asked for frames as long as its driver runs.
        self._columns: deque[Any] = deque(maxlen=_FRAMES) if columns is None else columns

    @classmethod
    def forPath(
        cls, sparkSession: SparkSession, path: str, hadoopConf: Mapping[str, str] | None = None
    ) -> DeltaTable:
        """The table at `path`; keys of `hadoopConf` begin with `fs.` or `dfs.`."""
        check_session(sparkSession)
        check_text(path, "path")
        options = checked_options(hadoopConf)
        root = table_root(sparkSession, path, options)
        if root is None:
            raise TableNotFoundError("DELTA_MISSING_DELTA_TABLE", tableName=f"`{path}`")
        return cls(sparkSession, root, path=path, options=options)

    @classmethod
    def forName(cls, sparkSession: SparkSession, tableOrViewName: str) -> DeltaTable:
        """The table of that name in the catalog, or at the path of delta.`path`."""
        check_session(sparkSession)
        check_text(tableOrViewName, "tableOrViewName")
        found = look_up_relation(sparkSession, tableOrViewName)
        if found is not None and found.path is not None:
            return cls.forPath(sparkSession, found.path)
        if found is None or found.location is None or not found.is_delta:
            shown = quoted_parts(parse_name(JvmSession(sparkSession), tableOrViewName))
            raise TableNotFoundError("DELTA_MISSING_DELTA_TABLE", tableName=shown)
        log_of(sparkSession, found)  # a name without a log is refused with what completes it
        return cls(sparkSession, found.location, name=_catalog_name(found))

    @classmethod
    def isDeltaTable(cls, sparkSession: SparkSession, identifier: str) -> bool:
        """Whether there is a Delta table: at or above a path, at delta.`path`, or of that name."""
        check_session(sparkSession)
        check_text(identifier, "identifier")
        with suppress(StorageError):  # no address, so a name perhaps
            if table_root(sparkSession, identifier, {}) is not None:
                return True
        try:
            found = look_up_relation(sparkSession, identifier)
        except ParseException:
            return False
        if found is None or not found.is_delta or found.location is None:
            return False
        return table_root(sparkSession, found.location, {}) is not None

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
    def convertToDelta(
        cls,
        sparkSession: SparkSession,
        identifier: str,
        partitionSchema: str | SparkStructType | None = None,
        *,
        incremental: bool = False,
        dry_run: bool = False,
    ) -> DeltaTable | ConvertReport:
        """Make a Delta table of the Parquet table parquet.`path`, or of that name, in place.

        `partitionSchema` has the columns that directories spell, as `"day DATE"` or a StructType.
        With `incremental`, files that came after an earlier conversion enter the table; with
        `dry_run` nothing is written, and what would happen is told.
        """
        check_session(sparkSession)
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
    def create(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
        """To make a table, as CREATE TABLE does; the active session's without one given."""
        return DeltaTableBuilder(active_session(sparkSession), BuilderVerb())

    @classmethod
    def createIfNotExists(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
        """To make a table unless there is one, as CREATE TABLE IF NOT EXISTS does."""
        return DeltaTableBuilder(active_session(sparkSession), BuilderVerb(if_not_exists=True))

    @classmethod
    def replace(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
        """To put a table in the place of one that exists, as REPLACE TABLE does."""
        verb = BuilderVerb(creates=False, replaces=True)
        return DeltaTableBuilder(active_session(sparkSession), verb)

    @classmethod
    def createOrReplace(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
        """To make a table or replace the one that exists, as CREATE OR REPLACE TABLE does."""
        return DeltaTableBuilder(active_session(sparkSession), BuilderVerb(replaces=True))

    def toDF(self) -> DataFrame:
        """The rows of the newest version."""
        frame = run_load(self._spark, self._path, DeltaOptions(self._options))
        self._columns.append(output_set(frame))
        return frame if self._alias is None else frame.alias(self._alias)

    def changes(self, start: ChangeBound, end: ChangeBound | None = None) -> DataFrame:
        """The rows that changed between two versions or times, both included, and how.

        Up to the newest version without an `end`.  The table must record its changes
        (`delta.enableChangeDataFeed`).
        """
        bounds = change_bounds(self._spark, start, end)
        frame = changes_between(self._spark, self._log(), bounds)
        return frame if self._alias is None else frame.alias(self._alias)

    def alias(self, aliasName: str) -> DeltaTable:
        """The same table under a name for expressions, as in `alias("t")` and `"t.id = 1"`."""
        check_text(aliasName, "aliasName")
        return DeltaTable(
            self._spark,
            self._root,
            path=self._path,
            name=self._name,
            alias=aliasName,
            options=self._options,
            columns=self._columns,
        )

    def delete(self, condition: str | Column | None = None) -> DataFrame:
        """Delete the rows for which `condition` is true; all rows without one.

        One row says how many went: num_affected_rows, -1 when nobody knows.
        """
        asked = condition_argument(condition)
        name = self._name_in_expressions
        done = run_delete(self._spark, self._whole_log(), asked, alias=name)
        return done.frame(self._spark)

    def update(
        self,
        condition: str | Column | None = None,
        set: Mapping[str, str | Column] | None = None,
    ) -> DataFrame:
        """Set columns of the rows for which `condition` is true, of all rows without one.

        `set` is needed: new values by the names of columns, or of fields as in `"s.a"`.  One row
        says how many were updated: num_affected_rows.
        """
        values = values_argument(set)
        asked = condition_argument(condition)
        name = self._name_in_expressions
        done = run_update(self._spark, self._whole_log(), values, asked, alias=name)
        return done.frame(self._spark)

    def merge(self, source: DataFrame, condition: str | Column) -> DeltaMergeBuilder:
        """Update, delete and insert rows by those of `source`, which match where `condition` holds.

        What happens to which rows is said to the builder.
        """
        called: tuple[str, ...] = () if self._alias is None else (self._alias,)
        if self._alias is None and self._name is not None:
            called = parse_name(JvmSession(self._spark), self._name)
        request = merge_request(source, condition, called)
        request = replace(request, own_columns=tuple(self._columns))
        return DeltaMergeBuilder(request, self._merged)

    def optimize(self) -> DeltaOptimizeBuilder:
        """Write small files together, or order rows; of which partitions is said to the builder."""

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
        """Delete the files that no version within the retention needs; one row has the path.

        With `dryRun` nothing goes, and a row comes for each path that would.  `lite` takes names
        from the log, `inventory` from rows (path, length, isDir, modificationTime) in place of a
        listing.  Of `keepVersions` all files stay.
        """
        asked = vacuum_request(retentionHours, dryRun, lite, inventory, keepVersions)
        return vacuum_table(self._spark, self._whole_log(), asked)

    def history(self, limit: int | None = None) -> DataFrame:
        """Who changed the table and how, newest first; the last `limit` changes, or all known."""
        if limit is not None:
            if isinstance(limit, bool) or not hasattr(limit, "__index__"):
                raise TypeError(f"limit is a whole number, not {type(limit).__name__}")
            limit = operator.index(limit)
        return history_frame(self._spark, self._log().history(limit))

    def detail(self) -> DataFrame:
        """One row about the table: its location, size, properties, protocol."""
        return detail_frame(self._spark, self._log().update(), self._name)

    def clone(
        self,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """A new table, at a path or of a name, whose files are this one's: `isShallow` is needed.

        `properties` stand in the place of this table's.  With `replace`, an empty table that is
        there becomes the clone.
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
        """As `clone`, of an older version."""
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
        """As `clone`, of the newest version at a time."""
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
        given = property_map(properties)
        if not is_shallow:
            raise OperationNotAllowedError("DELTA_UNSUPPORTED_DEEP_CLONE")
        asked = CloneTarget(
            name=target_named(self._spark, target), properties=given, replaces=replaces
        )
        clone_log(self._spark, self._whole_log(), self._name, as_of, asked)
        if asked.name.path is not None:
            return DeltaTable.forPath(self._spark, target)
        return DeltaTable.forName(self._spark, target)

    def _merged(self, request: MergeRequest) -> MergeResult:
        result = run_merge(self._spark, self._whole_log(), request)
        if result.has_new_schema:
            self._show_columns()
        return result

    def _whole_log(self) -> DeltaLog:
        """The log, for a command that changes the table and not a partition of it."""
        if self._path != self._root:
            raise OperationNotAllowedError("DELTA_UNEXPECTED_PARTIAL_SCAN", path=self._path)
        return self._log()

    @property
    def _name_in_expressions(self) -> str | None:
        """What conditions and values may call the table."""
        if self._alias is not None or self._name is None:
            return self._alias
        return self._name.rpartition(".")[2]

    def _log(self) -> DeltaLog:
        # Asked anew each time: credentials may have changed since the handle was made.
        return open_log(self._spark, self._root, self._options)

    def __repr__(self) -> str:
        shown = repr(self._path) if self._name is None else f"{self._path!r}, name={self._name!r}"
        alias = "" if self._alias is None else f", alias={self._alias!r}"
        return f"DeltaTable({shown}{alias})"

    def _repr_html_(self) -> str:
        """A card for notebooks; what cannot be read is left out of it."""
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
        cells = "".join(
            f"<tr><th>{key}</th><td>{html.escape(str(value))}</td></tr>"
            for key, value in rows.items()
        )
        return f"<table><caption>DeltaTable</caption>{cells}</table>"


@raises_spark_errors
class DeltaTableBuilder(TableBuilder):
    """A table put together call by call: `DeltaTable.create(spark).tableName("t").execute()`.

    It needs a name or a location, and columns unless a log at the location has them.
    """

    def execute(self) -> DeltaTable:
        """Make or replace the table."""
        definition = self._definition()
        run_create_table(self._spark, definition)
        path = definition.name.path
        if path is not None:
            return DeltaTable.forPath(self._spark, path)
        assert self._identifier is not None  # else it would have been a path
        return DeltaTable.forName(self._spark, self._identifier)


def _catalog_name(table: TableName) -> str | None:
    return None if table.entry is None else table.entry.name
