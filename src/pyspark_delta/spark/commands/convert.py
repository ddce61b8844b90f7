"""CONVERT TO DELTA: a Parquet table becomes a Delta table where it is, in one commit.

No data file is moved or written.  Until the commit the table's directory is not touched, so that
whatever fails leaves plain Parquet files; files that appear while it runs may be left out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from uuid import uuid4

from pyspark.sql import Row, SparkSession

from pyspark_delta.errors.table import (
    OperationNotAllowedError,
    SchemaError,
    TableNotFoundError,
)
from pyspark_delta.kernel.ops.convert import construct_table_schema, create_add_file
from pyspark_delta.kernel.protocol.actions import AddFile, Metadata
from pyspark_delta.kernel.protocol.features import supported_features
from pyspark_delta.kernel.protocol.operations import Operation, convert
from pyspark_delta.kernel.protocol.row_tracking import FEATURE as ROW_TRACKING_FEATURE
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.kernel.txn.definition import mapping_mode
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.allowed_places import allow_places
from pyspark_delta.spark.catalog import shown_schema
from pyspark_delta.spark.commands.adopted_files import (
    adopting_table,
    check_adoption,
    unknown_files,
)
from pyspark_delta.spark.commands.convert_report import ConvertReport, ReportDraft
from pyspark_delta.spark.commands.convert_target import (
    CONVERT_CONF,
    PARQUET,
    ConvertTarget,
    ConvertTargetTable,
    find_catalog_table,
    is_on,
    resolve_convert_target,
    target_table,
)
from pyspark_delta.spark.commands.user_metadata import session_user_metadata
from pyspark_delta.spark.convert.actions import create_delta_actions, partition_rules
from pyspark_delta.spark.convert.footers import Footers, read_footers
from pyspark_delta.spark.convert.manifest import FileManifest, list_files
from pyspark_delta.spark.jvm.catalog import make_delta, parse_name
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.progress import Progress, progress
from pyspark_delta.spark.recorded_stats import STATS_CONF
from pyspark_delta.spark.table_access import open_log

logger = logging.getLogger(__name__)

ALREADY_DELTA = "The table you are trying to convert is already a delta table"
_MAPPING_CONF = "spark.databricks.delta.properties.defaults.columnMapping.mode"
_METADATA_CHECK_CONF = f"{CONVERT_CONF}metadataCheck.enabled"


class ConvertToDeltaCommand:
    """One conversion, asked for and not yet run.

    `table_identifier` is text as SQL has it, or its parts: parquet.`path`, or a table of the
    catalog.  `partition_schema` names the columns that the directories spell.  With `delta_path`
    the log is written there, and the catalog is left alone.  `incremental` adopts the files that
    an earlier conversion has not seen.
    """

    create_add_file = staticmethod(create_add_file)

    def __init__(
        self,
        table_identifier: str | Sequence[str],
        partition_schema: StructType | None = None,
        collect_stats: bool = True,
        delta_path: str | None = None,
        *,
        incremental: bool = False,
    ) -> None:
        self.table_identifier = table_identifier
        self.partition_schema = partition_schema
        self.collect_stats = collect_stats
        self.delta_path = delta_path
        self.incremental = incremental

    def run(self, spark: SparkSession) -> list[Row]:
        """Convert the table, unless it is a Delta table already; no rows come back."""
        target = resolve_convert_target(spark, self._parts(spark))
        if target.is_delta and not self.incremental:
            print(ALREADY_DELTA)
            return []
        table = self.get_target_table(spark, target)
        txn = self._log(spark, target).start_transaction()
        if txn.read_version == -1:
            self.perform_convert(spark, txn, target, table)
        elif self.incremental:
            self.adopt_files(spark, txn, target, table)
        else:
            self._handle_existing_log(spark, txn, target, table)
        return []

    def dry_run(self, spark: SparkSession) -> ConvertReport:
        """What `run` would do, and what would stop it.  Nothing is written."""
        target = resolve_convert_target(spark, self._parts(spark))
        txn = self._log(spark, target).start_transaction()
        is_delta = target.is_delta or txn.read_version > -1
        draft = ReportDraft(location=target.target_dir, is_delta=is_delta)
        if is_delta and not self.incremental:
            return draft.report()
        with draft.noted(), progress() as shown:
            table = self.get_target_table(spark, target)
            if is_delta:
                table = adopting_table(txn, table, self.partition_schema)
            with self._manifest(spark, txn, table, shown) as manifest:
                draft.add_files(manifest, table.partition_schema, partition_rules(spark))
                if not manifest.num_files:
                    return draft.report()
                with self._footers(spark, manifest, table, shown) as footers:
                    draft.add_footers(footers)
                    self._define(spark, txn, table, footers)
                    draft.add_definition(txn.metadata)
        return draft.report()

    def perform_convert(
        self,
        spark: SparkSession,
        txn: OptimisticTransaction,
        target: ConvertTarget,
        table: ConvertTargetTable,
    ) -> None:
        """List the files, read their footers, commit them, and tell the catalog."""
        if target.is_delta:
            raise TableNotFoundError("DELTA_TABLE_NOT_FOUND", tableName=target.identifier)
        with (
            progress() as shown,
            self._manifest(spark, txn, table, shown) as manifest,
            self._footers(spark, manifest, table, shown) as footers,
        ):
            self._define(spark, txn, table, footers)
            add_files = self.create_delta_actions(
                spark, footers, table.partition_schema, txn, progress=shown
            )
            operation = self.get_operation(spark, footers.num_files, target, table.format)
            self.stream_write(spark, txn, add_files, operation, footers.num_files)
        self._tell_catalog(spark, txn, target, table)

    def merge_schemas_in_parallel(self, spark: SparkSession, manifest: FileManifest) -> StructType:
        """The columns of all files together, without those that only directories spell."""
        with read_footers(spark, manifest, stats=False) as footers:
            return _inferred(footers)

    def construct_table_schema(
        self, data_schema: StructType, partition_schema: StructType
    ) -> StructType:
        """The columns of the files, then the partition columns that they do not have."""
        return construct_table_schema(data_schema, partition_schema)

    def create_delta_actions(
        self,
        spark: SparkSession,
        footers: Footers,
        partition_schema: StructType,
        txn: OptimisticTransaction,
        *,
        progress: Progress | None = None,
    ) -> Iterator[AddFile]:
        """An action for each file, made while it is read."""
        if self.collect_stats and not self.stats_enabled(spark):
            logger.warning("no statistics are collected: %s is false", STATS_CONF)
        return create_delta_actions(
            footers,
            metadata=txn.metadata,
            protocol=txn.protocol,
            partition_schema=partition_schema,
            rules=partition_rules(spark),
            absolute_paths=self.delta_path is not None,
            progress=progress,
        )

    def stream_write(
        self,
        spark: SparkSession,
        txn: OptimisticTransaction,
        add_files: Iterator[AddFile],
        operation: Operation,
        num_files: int,
    ) -> int:
        """Commit the files, a handful in memory at a time, and give the version."""
        done = txn.commit_large(
            add_files,
            operation,
            user_metadata=session_user_metadata(spark),
            metrics={"numConvertedFiles": num_files},
        )
        return done.version

    def get_operation(
        self, spark: SparkSession, num_files: int, target: ConvertTarget, source_format: str
    ) -> Operation:
        """What the history says of the conversion."""
        return convert(
            num_files=num_files,
            partitioned_by=self.partition_schema.names if self.partition_schema else (),
            collect_stats=self._collects_stats(spark),
            catalog_table=target.catalog_name,
            source_format=source_format,
        )

    def check_column_mapping(self, metadata: Metadata, table: ConvertTargetTable) -> None:
        """Refuse a table that would map columns: those of its files have the names they have."""
        mode = mapping_mode(metadata)
        if mode is not table.required_column_mapping_mode:
            raise SchemaError(
                "DELTA_CONVERSION_UNSUPPORTED_COLUMN_MAPPING",
                config=_MAPPING_CONF,
                mode=mode.value,
            )

    def is_catalog_table(self, spark: SparkSession) -> bool:
        """Whether the identifier is of a table in the catalog, and not a path."""
        return find_catalog_table(spark, self._parts(spark)) is not None

    def get_target_table(self, spark: SparkSession, target: ConvertTarget) -> ConvertTargetTable:
        """The table to convert; a typed error when it is of a kind that cannot be."""
        return target_table(spark, target, self.partition_schema)

    def stats_enabled(self, spark: SparkSession) -> bool:
        """Whether the session collects statistics at all."""
        return is_on(spark, STATS_CONF)

    def _collects_stats(self, spark: SparkSession) -> bool:
        return self.collect_stats and self.stats_enabled(spark)

    def _parts(self, spark: SparkSession) -> tuple[str, ...]:
        given = self.table_identifier
        return parse_name(JvmSession(spark), given) if isinstance(given, str) else tuple(given)

    def _log(self, spark: SparkSession, target: ConvertTarget) -> DeltaLog:
        return open_log(spark, self.delta_path or target.target_dir)

    def _manifest(
        self,
        spark: SparkSession,
        txn: OptimisticTransaction,
        table: ConvertTargetTable,
        shown: Progress,
    ) -> FileManifest:
        return list_files(
            spark,
            table.location,
            partitions=table.partitions,
            progress=shown,
            keep=None if txn.snapshot is None else unknown_files(txn.snapshot),
        )

    def _footers(
        self,
        spark: SparkSession,
        manifest: FileManifest,
        table: ConvertTargetTable,
        shown: Progress,
    ) -> Footers:
        return read_footers(
            spark,
            manifest,
            stats=self._collects_stats(spark),
            infer_schema=table.catalog_schema is None,
            configuration=table.properties,
            progress=shown,
        )

    def _define(
        self,
        spark: SparkSession,
        txn: OptimisticTransaction,
        table: ConvertTargetTable,
        footers: Footers,
    ) -> None:
        """Settle what the table will be, or say why it cannot."""
        if txn.snapshot is not None:
            check_adoption(spark, txn, _inferred(footers))
        else:
            schema = table.catalog_schema or self.construct_table_schema(
                _inferred(footers), table.partition_schema
            )
            partition_columns = tuple(schema[name].name for name in table.partition_schema.names)
            txn.update_metadata(
                Metadata(
                    id=str(uuid4()),
                    description=table.comment,
                    schema_string=format_schema(schema),
                    partition_columns=partition_columns,
                    configuration=dict(table.properties),
                    created_time=txn.log.now_ms(),
                )
            )
        self.check_column_mapping(txn.metadata, table)
        tracks_rows = ROW_TRACKING_FEATURE in supported_features(txn.protocol)
        if tracks_rows and not self._collects_stats(spark):
            raise OperationNotAllowedError("DELTA_CONVERT_TO_DELTA_ROW_TRACKING_WITHOUT_STATS")

    def adopt_files(
        self,
        spark: SparkSession,
        txn: OptimisticTransaction,
        target: ConvertTarget,
        table: ConvertTargetTable,
    ) -> None:
        """Commit the files that the log does not know; nothing when there are none."""
        table = adopting_table(txn, table, self.partition_schema)
        with progress() as shown, self._manifest(spark, txn, table, shown) as manifest:
            if not manifest.num_files:
                return
            with self._footers(spark, manifest, table, shown) as footers:
                self._define(spark, txn, table, footers)
                add_files = self.create_delta_actions(
                    spark, footers, table.partition_schema, txn, progress=shown
                )
                # Whoever adopts the same files meanwhile is in conflict with this.
                txn.read_whole_table()
                txn.commit(
                    add_files,
                    self.get_operation(spark, footers.num_files, target, table.format),
                    user_metadata=session_user_metadata(spark),
                    metrics={"numConvertedFiles": footers.num_files},
                )

    def _handle_existing_log(
        self,
        spark: SparkSession,
        txn: OptimisticTransaction,
        target: ConvertTarget,
        table: ConvertTargetTable,
    ) -> None:
        """The files are a Delta table already, but the catalog may not know it."""
        if not target.is_parquet_catalog_table:
            print(ALREADY_DELTA)
            return
        known = dict(txn.metadata.configuration)
        merged = {**known, **target.properties}
        if merged != known:
            if known and is_on(spark, _METADATA_CHECK_CONF):
                raise SchemaError(
                    "DELTA_CONVERT_METASTORE_METADATA_MISMATCH",
                    tableProperties=dict(target.properties),
                    configuration=known,
                    metadataCheckSqlConf=_METADATA_CHECK_CONF,
                )
            txn.update_metadata(replace(txn.metadata, configuration=merged))
            operation = self.get_operation(spark, 0, target, PARQUET)
            parameters = {**operation.parameters, "collectStats": False}
            txn.commit(
                [],
                replace(operation, parameters=parameters),
                user_metadata=session_user_metadata(spark),
            )
        self._tell_catalog(spark, txn, target, table)

    def _tell_catalog(
        self,
        spark: SparkSession,
        txn: OptimisticTransaction,
        target: ConvertTarget,
        table: ConvertTargetTable,
    ) -> None:
        """Whoever names these places to be converted lets the table name them."""
        outside = tuple(table.places_outside(self.delta_path))
        allow_places(spark, outside)
        self._convert_metadata(spark, txn, target, outside)

    def _convert_metadata(
        self,
        spark: SparkSession,
        txn: OptimisticTransaction,
        target: ConvertTarget,
        outside: Sequence[str] = (),
    ) -> None:
        """Let the catalog say that its table is a Delta table."""
        if target.catalog_table is not None and self.delta_path is None:
            schema = shown_schema(txn.metadata.schema)
            make_delta(JvmSession(spark), target.catalog_table, schema, outside)


def _inferred(footers: Footers) -> StructType:
    assert footers.schema is not None  # it was asked for
    return footers.schema
