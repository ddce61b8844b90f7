"""Methods of `DeltaTable` on the whole table: facts, rows as Arrow, maintenance, table features.

Facts and rows as Arrow run no Spark job: this process reads the log and the data files.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from pyspark_delta.errors import TableNotFoundError
from pyspark_delta.kernel.log.arrow_types import arrow_schema
from pyspark_delta.kernel.log.cleanup import run_cleanup
from pyspark_delta.kernel.ops.vacuum.missing_files import run_repair
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.properties import (
    FEATURE_PREFIX,
    MIN_READER_VERSION,
    MIN_WRITER_VERSION,
)
from pyspark_delta.kernel.protocol.types import BOOLEAN, LONG, STRING
from pyspark_delta.kernel.scan.arrow_reader import read_planned
from pyspark_delta.kernel.scan.locations import IS_ABSOLUTE, LOCATION, Locations
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.api.arguments import check_flag, check_text, whole_number
from pyspark_delta.spark.api.errors import raises_spark_errors
from pyspark_delta.spark.conf.settings import session_zone
from pyspark_delta.spark.ddl.table import run_set_properties
from pyspark_delta.spark.jvm.gateway import to_spark
from pyspark_delta.spark.maintenance.features import run_drop
from pyspark_delta.spark.maintenance.restore import run_generate, run_restore
from pyspark_delta.spark.results.local_frame import columns, local_frame
from pyspark_delta.spark.scan.load import AsOf
from pyspark_delta.spark.scan.source import reader_schema
from pyspark_delta.spark.tables.locations import allowed_stores
from pyspark_delta.spark.tables.names import TableName, look_up_relation, update_entry

_PATH_COLUMNS = columns(path=STRING)
_REPAIR_COLUMNS = columns(path=STRING, reason=STRING, numRows=LONG, removed=BOOLEAN)


@raises_spark_errors
class TableMethods(ABC):
    """The methods that need the table's log and location, and nothing else of a handle."""

    _spark: SparkSession
    _root: str
    _name: str | None

    @abstractmethod
    def _whole_log(self) -> DeltaLog:
        """The log, for a command on the whole table and not on one partition."""

    def version(self) -> int:
        """The newest version's number."""
        return self._whole_log().update().version

    def schema(self) -> StructType:
        """The columns, as a schema of Spark."""
        return to_spark(reader_schema(self._whole_log().update().schema))

    def metadata(self) -> Metadata:
        """The table's metadata: id, name, columns, partition columns, properties."""
        return self._whole_log().update().metadata

    def protocol(self) -> Protocol:
        """The reader and writer versions and the features that clients must support."""
        return self._whole_log().update().protocol

    def fileUris(self) -> list[str]:
        """The URIs of all data files, for tools that copy or count them.

        With deletion vectors a file may hold rows that are deleted from the table.
        """
        snapshot = self._whole_log().update()
        locations = Locations(snapshot.store, allowed_stores(self._spark))
        resolved = locations.resolve(snapshot.files.column("path"))
        return [
            location if is_absolute else snapshot.store.address(location)
            for location, is_absolute in zip(
                resolved.column(LOCATION).to_pylist(),
                resolved.column(IS_ABSOLUTE).to_pylist(),
                strict=True,
            )
        ]

    def toArrow(self, columns: Iterable[str] | None = None, filter: str | None = None) -> pa.Table:
        """The rows for which `filter` is true, read in this process without a Spark job."""
        return self._reader(columns, filter).read_all()

    def toArrowReader(
        self, columns: Iterable[str] | None = None, filter: str | None = None
    ) -> pa.RecordBatchReader:
        """As `toArrow`, batch by batch, for tables that are larger than memory."""
        return self._reader(columns, filter)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows through Arrow's C stream interface: for polars, DuckDB, pandas, pyarrow."""
        return self._reader(None, None).__arrow_c_stream__(requested_schema)

    def restoreToVersion(self, version: int) -> DataFrame:
        """Restore the table to a version; returns one row with the numbers of changed files.

        This is a new commit: versions in between stay in the history.  For the newest version it
        does nothing.
        """
        return self._restored(AsOf(version=whole_number(version, "version")))

    def restoreToTimestamp(self, timestamp: str) -> DataFrame:
        """As `restoreToVersion`, to the newest version at a time such as `2024-01-31 12:00`."""
        check_text(timestamp, "timestamp")
        return self._restored(AsOf(timestamp=timestamp))

    def generate(self, mode: str) -> None:
        """Write manifests for engines without Delta; `mode` is `symlink_format_manifest`."""
        check_text(mode, "mode")
        run_generate(self._whole_log(), mode)

    def repair(
        self, *, dry_run: bool = False, drop_rows_with_missing_vectors: bool | None = None
    ) -> DataFrame:
        """Remove files from the table that are missing in storage, so that reads succeed again.

        Returns a row for each file: its path, the reason, its number of live rows, and whether it
        was removed; `dry_run` removes none.  If a data file exists but the file of its deletion
        vector is missing, live and deleted rows cannot be distinguished.  Such a table is an error
        unless `drop_rows_with_missing_vectors` is True, which loses the rows of these files, or
        False, which repairs only the others.
        """
        check_flag(dry_run, "dry_run")
        if drop_rows_with_missing_vectors is not None:
            check_flag(drop_rows_with_missing_vectors, "drop_rows_with_missing_vectors")
        log = self._whole_log()
        repaired = run_repair(
            log.start_transaction(),
            Locations(log.store, allowed_stores(self._spark)),
            dry_run=dry_run,
            drop_rows_with_missing_vectors=drop_rows_with_missing_vectors,
        )
        rows = [[each.path, each.reason, each.num_rows, each.is_removed] for each in repaired]
        return local_frame(self._spark, _REPAIR_COLUMNS, rows)

    def checkpoint(self) -> None:
        """Write a checkpoint of the newest version now; commits do this automatically."""
        self._whole_log().checkpoint()

    def cleanUpLog(self) -> DataFrame:
        """Delete log files older than `delta.logRetentionDuration` now, and return their paths.

        Commits do this automatically, unless `delta.enableExpiredLogCleanup` is false.
        """
        log = self._whole_log()
        snapshot = log.update()
        gone = run_cleanup(
            log.store, snapshot.protocol, snapshot.metadata, now_ms=log.now_ms(), is_requested=True
        )
        return local_frame(self._spark, _PATH_COLUMNS, [[path] for path in gone])

    def upgradeTableProtocol(self, readerVersion: int, writerVersion: int) -> None:
        """Require these protocol versions of the table's clients; they are never lowered again."""
        reader = whole_number(readerVersion, "readerVersion")
        writer = whole_number(writerVersion, "writerVersion")
        self._set_properties(
            {MIN_READER_VERSION.key: str(reader), MIN_WRITER_VERSION.key: str(writer)}
        )

    def addFeatureSupport(self, featureName: str) -> None:
        """Add a feature to the table's protocol; clients must support it from then on."""
        check_text(featureName, "featureName")
        self._set_properties({FEATURE_PREFIX + featureName: "supported"}, keeps_spelling=True)

    def dropFeatureSupport(self, featureName: str, truncateHistory: bool | None = None) -> None:
        """Remove a feature from the table, so that clients need not support it.

        History that needs a reader feature is kept behind checkpoints; with `truncateHistory` it is
        deleted, for which it must be a day old.
        """
        check_text(featureName, "featureName")
        if truncateHistory is not None:
            check_flag(truncateHistory, "truncateHistory")
        self._drop_feature(featureName, truncateHistory)

    def _drop_feature(self, name: str, truncates: bool | None) -> None:
        run_drop(self._spark, self._whole_log(), name, truncate_history=bool(truncates))

    def _reader(self, columns: Iterable[str] | None, filter: str | None) -> pa.RecordBatchReader:
        snapshot = self._whole_log().update()
        allowed = allowed_stores(self._spark)
        zone = session_zone(self._spark)
        plan = snapshot.plan(columns, filter, allowed_roots=allowed, time_zone=zone)
        batches = read_planned(plan, snapshot.store, allowed_roots=allowed)
        return pa.RecordBatchReader.from_batches(arrow_schema(plan.schema), batches)

    def _restored(self, as_of: AsOf) -> DataFrame:
        counts = run_restore(self._spark, self._whole_log(), as_of)
        self._show_columns()
        return counts

    def _show_columns(self) -> None:
        """Write the table's current columns into the catalog."""
        if self._name is not None:
            table = look_up_relation(self._spark, self._name)
            if table is not None:
                update_entry(self._spark, table)

    def _set_properties(self, properties: dict[str, str], *, keeps_spelling: bool = False) -> None:
        log = self._whole_log()
        name: TableName | None = TableName(path=self._root)
        if self._name is not None:
            name = look_up_relation(self._spark, self._name)
        if name is None:
            raise TableNotFoundError("DELTA_MISSING_DELTA_TABLE", tableName=self._name)
        run_set_properties(self._spark, name, properties, log, keeps_spelling=keeps_spelling)
