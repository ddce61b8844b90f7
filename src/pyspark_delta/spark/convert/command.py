"""CONVERT TO DELTA: converts a Parquet table to a Delta table in place, in one commit.

No data file is moved or written.  The table's directory is not touched before the commit, so any
failure leaves plain Parquet files.  Files that appear during the conversion may be left out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row, SparkSession

from pyspark_delta.errors import OperationNotAllowedError, SchemaError, TableNotFoundError
from pyspark_delta.kernel.log.frames.file_actions import canonical_paths
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.ops.convert.files import construct_table_schema, create_add_file
from pyspark_delta.kernel.protocol.actions import AddFile, Metadata
from pyspark_delta.kernel.protocol.constraints import table_constraints
from pyspark_delta.kernel.protocol.features import check_writable, supported_features
from pyspark_delta.kernel.protocol.generated_columns import generated_columns
from pyspark_delta.kernel.protocol.identity_columns import identity_columns
from pyspark_delta.kernel.protocol.operations import Operation, operation
from pyspark_delta.kernel.protocol.row_tracking import ROW_TRACKING_FEATURE
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.schema_merge import check_write_compatible, evolve_schema
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.conf.progress import Progress, progress
from pyspark_delta.spark.conf.setting_table import (
    AUTO_MERGE,
    CONVERT_METADATA_CHECK,
    PROPERTY_DEFAULTS,
    STATS_COLLECT,
    USER_METADATA,
)
from pyspark_delta.spark.convert.actions import create_delta_actions, partition_rules
from pyspark_delta.spark.convert.files import FileManifest, Keep, list_files
from pyspark_delta.spark.convert.footers import Footers, read_footers
from pyspark_delta.spark.convert.report import ConvertReport, ReportDraft
from pyspark_delta.spark.convert.target import (
    PARQUET,
    ConvertTarget,
    ConvertTargetTable,
    check_partition_schema,
    find_catalog_table,
    resolve_convert_target,
    target_table,
)
from pyspark_delta.spark.jvm.catalog.entries import make_delta, parse_name
from pyspark_delta.spark.jvm.failures import typed_job_failures
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.tables.locations import allow_places, hadoop_location, open_log
from pyspark_delta.spark.tables.names import schema_for_catalog

logger = logging.getLogger(__name__)

# Deletion vectors are stored among the data files.
_NO_DATA = r"(^|/)deletion_vector_[^/]*\.bin$"
ALREADY_DELTA = "The table you are trying to convert is already a delta table"


class ConvertToDeltaCommand:
    """A conversion that `run` performs.

    `table_identifier` is SQL text or its parts: parquet.`path`, or a table of the catalog.
    `partition_schema` defines the columns in directory names.  With `delta_path` the log is written
    there, and the catalog is not changed.  `incremental` adds the files that an earlier conversion
    has not seen.
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
        """Convert the table, unless it is a Delta table already; returns no rows."""
        with typed_job_failures(spark):
            target = resolve_convert_target(spark, self._parts(spark))
            if target.is_delta and not self.incremental:
                print(ALREADY_DELTA)
                return []
            table = self.get_target_table(spark, target)
            txn = self._log(spark, target).start_transaction()
            if txn.read_version == -1 or self.incremental:
                self.perform_convert(spark, txn, target, table)
            else:
                _Conversion(
                    command=self, spark=spark, txn=txn, target=target, table=table
                ).handle_existing_log()
        return []

    def dry_run(self, spark: SparkSession) -> ConvertReport:
        """Report what `run` would do, and the errors it would raise.  Nothing is written."""
        target = resolve_convert_target(spark, self._parts(spark))
        txn = self._log(spark, target).start_transaction()
        is_delta = target.is_delta or txn.read_version > -1
        draft = ReportDraft(location=target.target_dir, is_delta=is_delta)
        if is_delta and not self.incremental:
            return draft.report
        with draft.collected_problems(), typed_job_failures(spark), progress() as bar:
            table = self.get_target_table(spark, target)
            if is_delta:
                table = _adopting_table(txn, table, self.partition_schema)
            work = _Conversion(command=self, spark=spark, txn=txn, target=target, table=table)
            with work.manifest(bar) as manifest:
                draft.add_files(manifest, table.partition_schema, partition_rules(spark))
                if not manifest.num_files:
                    return draft.report
                with work.footers(manifest, bar) as footers:
                    draft.add_footers(footers)
                    work.define(footers)
                    draft.add_definition(txn.metadata)
        return draft.report

    def perform_convert(
        self,
        spark: SparkSession,
        txn: OptimisticTransaction,
        target: ConvertTarget,
        table: ConvertTargetTable,
    ) -> None:
        """List the files, read their footers, commit them, and update the catalog.

        Where there is a log, only the files that it does not know are committed.
        """
        adopts = txn.snapshot is not None
        if adopts:
            table = _adopting_table(txn, table, self.partition_schema)
        elif target.is_delta:
            raise TableNotFoundError("DELTA_TABLE_NOT_FOUND", tableName=target.identifier)
        work = _Conversion(command=self, spark=spark, txn=txn, target=target, table=table)
        with progress() as bar, work.manifest(bar) as manifest:
            if not manifest.num_files:
                return
            with work.footers(manifest, bar) as footers:
                work.define(footers)
                add_files = self.create_delta_actions(
                    spark, footers, table.partition_schema, txn, progress=bar
                )
                operation = self.get_operation(spark, footers.num_files, target, table.format)
                if adopts:
                    txn.read_whole_table()  # another adoption of the same files is a conflict
                self.stream_write(spark, txn, add_files, operation, footers.num_files)
        if not adopts:
            work.update_catalog()

    def merge_schemas_in_parallel(self, spark: SparkSession, manifest: FileManifest) -> StructType:
        """The merged columns of all files, without those that exist only in directory names."""
        with read_footers(spark, manifest, stats=False) as footers:
            return _inferred(footers)

    def construct_table_schema(
        self, data_schema: StructType, partition_schema: StructType
    ) -> StructType:
        """The columns of the files, then the partition columns that the files do not have."""
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
        """The actions of the files, made one by one as they are consumed."""
        if self.collect_stats and not self.stats_enabled(spark):
            logger.warning("no statistics are collected: %s is false", STATS_COLLECT.key)
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
        """Commit the files, of a new table a few in memory at a time; returns the version."""
        commit = txn.commit_large if txn.snapshot is None else txn.commit
        committed = commit(
            add_files,
            operation,
            user_metadata=USER_METADATA.of(spark),
            metrics={"numConvertedFiles": num_files},
        )
        return committed.version

    def get_operation(
        self, spark: SparkSession, num_files: int, target: ConvertTarget, source_format: str
    ) -> Operation:
        """The operation of the conversion for the history."""
        return operation(
            "CONVERT",
            numFiles=num_files,
            partitionedBy=self.partition_schema.names if self.partition_schema else (),
            collectStats=self._collects_stats(spark),
            catalogTable=target.catalog_name,
            sourceFormat=source_format,
        )

    def check_column_mapping(self, metadata: Metadata, table: ConvertTargetTable) -> None:
        """Raise for a table with column mapping: columns in its files have their logical names."""
        mode = mapping_mode(metadata)
        if mode is not table.required_column_mapping_mode:
            raise SchemaError(
                "DELTA_CONVERSION_UNSUPPORTED_COLUMN_MAPPING",
                config=f"{PROPERTY_DEFAULTS.prefix}columnMapping.mode",
                mode=mode.value,
            )

    def is_catalog_table(self, spark: SparkSession) -> bool:
        """Whether the identifier is a table in the catalog, and not a path."""
        return find_catalog_table(spark, self._parts(spark)) is not None

    def get_target_table(self, spark: SparkSession, target: ConvertTarget) -> ConvertTargetTable:
        """The table to convert; raises a typed error for a kind that cannot be converted."""
        return target_table(spark, target, self.partition_schema)

    def stats_enabled(self, spark: SparkSession) -> bool:
        """Whether the session collects statistics."""
        return STATS_COLLECT.of(spark)

    def _collects_stats(self, spark: SparkSession) -> bool:
        return self.collect_stats and self.stats_enabled(spark)

    def _parts(self, spark: SparkSession) -> tuple[str, ...]:
        given = self.table_identifier
        return parse_name(JvmSession(spark), given) if isinstance(given, str) else tuple(given)

    def _log(self, spark: SparkSession, target: ConvertTarget) -> DeltaLog:
        return open_log(spark, self.delta_path or target.target_dir)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Conversion:
    """The steps of a command, for one table and transaction."""

    command: ConvertToDeltaCommand
    spark: SparkSession
    txn: OptimisticTransaction
    target: ConvertTarget
    table: ConvertTargetTable

    def manifest(self, bar: Progress) -> FileManifest:
        return list_files(
            self.spark,
            self.table.location,
            partitions=self.table.partitions,
            progress=bar,
            keep=None if self.txn.snapshot is None else _unknown_files(self.txn.snapshot),
        )

    def footers(self, manifest: FileManifest, bar: Progress) -> Footers:
        return read_footers(
            self.spark,
            manifest,
            stats=self.command._collects_stats(self.spark),
            infer_schema=self.table.catalog_schema is None,
            configuration=self.table.properties,
            progress=bar,
        )

    def define(self, footers: Footers) -> None:
        """Resolve the definition of the new table; raises when the table cannot have it."""
        command, txn, table = self.command, self.txn, self.table
        if txn.snapshot is not None:
            _check_adoption(self.spark, txn, _inferred(footers))
        else:
            schema = table.catalog_schema or command.construct_table_schema(
                _inferred(footers), table.partition_schema
            )
            metadata = Metadata(
                id=str(uuid4()),
                description=table.comment,
                schema_string=format_schema(schema),
                partition_columns=tuple(schema[name].name for name in table.partition_schema.names),
                configuration=dict(table.properties),
                created_time=txn.log.now_ms(),
            )
            txn.update_metadata(metadata)
        command.check_column_mapping(txn.metadata, table)
        tracks_rows = ROW_TRACKING_FEATURE in supported_features(txn.protocol)
        if tracks_rows and not command._collects_stats(self.spark):
            raise OperationNotAllowedError("DELTA_CONVERT_TO_DELTA_ROW_TRACKING_WITHOUT_STATS")

    def handle_existing_log(self) -> None:
        """Handle files that are a Delta table already, which the catalog may not know."""
        spark, txn, target = self.spark, self.txn, self.target
        if not target.is_parquet_catalog_table:
            print(ALREADY_DELTA)
            return
        known = dict(txn.metadata.configuration)
        merged = {**known, **target.properties}
        if merged != known:
            if known and CONVERT_METADATA_CHECK.of(spark):
                raise SchemaError(
                    "DELTA_CONVERT_METASTORE_METADATA_MISMATCH",
                    tableProperties=dict(target.properties),
                    configuration=known,
                    metadataCheckSqlConf=CONVERT_METADATA_CHECK.key,
                )
            txn.update_metadata(replace(txn.metadata, configuration=merged))
            operation = self.command.get_operation(spark, 0, target, PARQUET)
            parameters = {**operation.parameters, "collectStats": False}
            txn.commit(
                [], replace(operation, parameters=parameters), user_metadata=USER_METADATA.of(spark)
            )
        self.update_catalog()

    def update_catalog(self) -> None:
        """Change the catalog's entry to that of a Delta table; its log may refer to its places."""
        delta_path, entry = self.command.delta_path, self.target.catalog_table
        outside = tuple(self.table.places_outside(delta_path))
        allow_places(self.spark, outside)
        if entry is not None and delta_path is None:
            schema = schema_for_catalog(self.txn.metadata.schema)
            make_delta(JvmSession(self.spark), entry, schema, outside)


def _inferred(footers: Footers) -> StructType:
    assert footers.schema is not None  # because it was requested
    return footers.schema


def _unknown_files(snapshot: Snapshot) -> Keep:
    """A filter for listed files that the log has neither as added nor as removed.

    Files of a Delta writer that died, or has not committed yet, look the same, so this is only for
    directories that plain Parquet writers still write to.
    """
    live = snapshot.files_with(["path"]).column("path")
    removed = snapshot.tombstones(["path"]).column("path")
    root_uri = snapshot.store.root_uri
    paths = pa.chunked_array([*live.chunks, *removed.chunks], pa.string()).combine_chunks()
    known = canonical_paths(paths, root_uri)
    outside = [hadoop_location(uri) for uri in known.to_pylist() if "://" in uri]
    known = pa.concat_arrays([known, pa.array(outside, pa.string())])

    def is_unknown(files: pa.RecordBatch) -> pa.Array:
        path = files.column("path")
        is_known = pc.is_in(path, value_set=known)
        return pc.invert(pc.or_(is_known, pc.match_substring_regex(path, _NO_DATA)))

    return is_unknown


def _adopting_table(
    txn: OptimisticTransaction, table: ConvertTargetTable, given: StructType | None
) -> ConvertTargetTable:
    """The table as its log describes it; `given` are the partition columns from the user."""
    metadata = txn.metadata
    known = StructType(tuple(metadata.schema[name] for name in metadata.partition_columns))
    check_partition_schema(known, given)
    return replace(
        table,
        partition_schema=known,
        catalog_schema=None,
        partitions=None,
        properties={k: v for k, v in metadata.configuration.items() if v is not None},
    )


def _check_adoption(spark: SparkSession, txn: OptimisticTransaction, data: StructType) -> None:
    """Raise for files that do not fit the table, or cannot be checked against its rules.

    New columns are added where the session merges schemas automatically.
    """
    old = txn.metadata
    check_writable(txn.protocol, txn.log.store.root_uri)
    for rule, columns in (
        ("constraints", table_constraints(old)),
        ("generated columns", generated_columns(old.schema)),
        ("identity columns", identity_columns(old.schema)),
    ):
        if columns:
            raise OperationNotAllowedError(
                "DELTA_OPERATION_NOT_ALLOWED",
                operation=f"Adopting files, whose rows nobody checked, where there are {rule},",
            )
    partitions = {name.lower() for name in old.partition_columns}
    own = StructType(tuple(f for f in data if f.name.lower() not in partitions))
    merged = evolve_schema(old.schema, own)
    only_adds = merged.fields[: len(old.schema)] == old.schema.fields
    if only_adds and AUTO_MERGE.of(spark):
        if merged != old.schema:
            txn.update_metadata(replace(old, schema_string=format_schema(merged)))
        return
    check_write_compatible(old.schema, own, table_id=old.id)
