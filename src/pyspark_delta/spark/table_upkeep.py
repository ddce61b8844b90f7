"""The part of `DeltaTable` that keeps a table in order: restore, repair, manifests, its log."""

from __future__ import annotations

from abc import ABC, abstractmethod

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.kernel.log.cleanup import run_cleanup
from pyspark_delta.kernel.ops.repair import run_repair
from pyspark_delta.kernel.protocol.types import BOOLEAN, LONG, STRING, StructField, StructType
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.allowed_places import allowed_stores
from pyspark_delta.spark.catalog import look_up_relation, show_columns
from pyspark_delta.spark.commands.generate import run_generate
from pyspark_delta.spark.commands.restore import run_restore
from pyspark_delta.spark.local_frame import local_frame
from pyspark_delta.spark.spark_errors import raises_spark_errors
from pyspark_delta.spark.table_arguments import check_flag, check_text, whole_number
from pyspark_delta.spark.time_travel import AsOf

_PATHS = StructType((StructField("path", STRING),))
_UNREADABLE = StructType(
    (
        StructField("path", STRING),
        StructField("reason", STRING),
        StructField("numRows", LONG),
        StructField("removed", BOOLEAN),
    )
)


@raises_spark_errors
class TableUpkeep(ABC):
    """What a handle offers for a table's upkeep."""

    _spark: SparkSession
    _name: str | None

    @abstractmethod
    def _whole_log(self) -> DeltaLog:
        """The log, for a command that is about the whole table."""

    def restoreToVersion(self, version: int) -> DataFrame:
        """Make the table what it was at a version; one row tells how many files changed.

        Versions in between stay in the history.  Nothing happens for the newest version.
        """
        return self._restored(AsOf(version=whole_number(version, "version")))

    def restoreToTimestamp(self, timestamp: str) -> DataFrame:
        """As `restoreToVersion`, to the newest version at a time such as `2024-01-31 12:00`."""
        check_text(timestamp, "timestamp")
        return self._restored(AsOf(timestamp=timestamp))

    def generate(self, mode: str) -> None:
        """Write manifests for engines that know no Delta; `mode` is `symlink_format_manifest`."""
        check_text(mode, "mode")
        run_generate(self._whole_log(), mode)

    def repair(
        self, *, dry_run: bool = False, drop_rows_with_missing_vectors: bool | None = None
    ) -> DataFrame:
        """Take files out of the table that are gone from storage, so that reads succeed again.

        The result has a row for each file: its path, the reason, how many live rows it has, and
        whether it was removed; with `dry_run` nothing is.  Where the data is there and only the
        file of its deletion vector is gone, the live rows cannot be told from deleted ones.  Such
        a table is refused, unless `drop_rows_with_missing_vectors` says True, to lose the rows
        of these files, or False, to repair only the others.
        """
        check_flag(dry_run, "dry_run")
        if drop_rows_with_missing_vectors is not None:
            check_flag(drop_rows_with_missing_vectors, "drop_rows_with_missing_vectors")
        log = self._whole_log()
        found = run_repair(
            log.start_transaction(),
            Locations(log.store, allowed_stores(self._spark)),
            dry_run=dry_run,
            drop_rows_with_missing_vectors=drop_rows_with_missing_vectors,
        )
        rows = [[each.path, each.reason, each.num_rows, each.is_removed] for each in found]
        return local_frame(self._spark, _UNREADABLE, rows)

    def checkpoint(self) -> None:
        """Write a checkpoint of the newest version now; commits do that by themselves."""
        self._whole_log().checkpoint()

    def cleanUpLog(self) -> DataFrame:
        """Delete log files older than `delta.logRetentionDuration` now, and give their paths.

        Commits do that by themselves, unless `delta.enableExpiredLogCleanup` is false.
        """
        log = self._whole_log()
        snapshot = log.update()
        gone = run_cleanup(
            log.store, snapshot.protocol, snapshot.metadata, now_ms=log.now_ms(), is_asked=True
        )
        return local_frame(self._spark, _PATHS, [[path] for path in gone])

    def _restored(self, as_of: AsOf) -> DataFrame:
        told = run_restore(self._spark, self._whole_log(), as_of)
        self._show_columns()
        return told

    def _show_columns(self) -> None:
        """Let the catalog show the columns that the table has now."""
        if self._name is not None:
            found = look_up_relation(self._spark, self._name)
            if found is not None:
                show_columns(self._spark, found)
